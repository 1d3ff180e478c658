"""Fixtures of the scenarios."""

from __future__ import annotations

from tests.runner.helpers import fake_world

__all__ = ["fake_world"]
