"""Helpers of the report's tests: blocks of a section by its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from dubio.reporting.build import Report
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Score, ScoreTable
from dubio.reporting.section import Block, Cards, Figure, Text

Kind = TypeVar("Kind")


def blocks(report: Report, section: str, task: TaskView | None = None) -> tuple[Block, ...]:
    placed = next(placed for placed in report.sections if placed.name == section)
    return report.blocks(placed, task)


def section_of(report: Report, kind: type[Kind]) -> Kind:
    return next(placed.section for placed in report.sections if isinstance(placed.section, kind))


def of_kind(found: tuple[Block, ...], kind: type[Kind]) -> list[Kind]:
    return [block for block in found if isinstance(block, kind)]


def texts(found: tuple[Block, ...]) -> list[str]:
    """Every paragraph and list item, and the texts of cards."""
    lines = []
    for block in found:
        if isinstance(block, Text):
            lines += [block.text] if isinstance(block.text, str) else list(block.text)
        if isinstance(block, Cards):
            lines += [text for card in block.cards for text in (card.title, *card.texts, *card.evidence)]
    return lines


def figure_names(report: Report, task: TaskView | None = None) -> list[str]:
    found = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
    return [block.name for block in found if isinstance(block, Figure)]


def figures(report: Report, task: TaskView | None = None) -> dict[str, Figure]:
    found = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
    return {block.name: block for block in found if isinstance(block, Figure)}


def with_manifest(report: Report, **changes: Any) -> Report:
    """The same report of a run that lists other tasks or methods."""
    run = report.run
    return Report(replace(run, manifest=replace(run.manifest, **changes)), report.sections)


def on_tasks(run: RunView, tasks: Iterable[TaskView]) -> RunView:
    """The same run with other tasks."""
    return replace(run, manifest=replace(run.manifest, tasks=tuple(tasks)))


def with_scores(run: RunView, scores: Iterable[Score]) -> RunView:
    """The same run with other scores."""
    table = ScoreTable(run.manifest, run.scores.better, run.scores.not_ranked)
    table.extend(scores)
    return replace(run, scores=table)
