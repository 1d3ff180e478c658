"""Fixtures of the text study's tests: those of the report."""

from __future__ import annotations

from tests.reporting.conftest import report, run, text_report, text_run, text_world, world

__all__ = ["report", "run", "text_report", "text_run", "text_world", "world"]
