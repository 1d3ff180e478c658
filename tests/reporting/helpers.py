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
from dubio.reporting.tables import Table

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


def sort_values(table: Table, title: str, sub: str = "") -> dict[str, str]:
    """Return row → what a column is sorted by; the column is found by its title, and by the text below it."""
    index = next(k for k, c in enumerate(table.columns) if c.title == title and (not sub or c.sub == sub))
    return {row.title: row.cells[index].sort_key for row in table.rows}


def run_ids(manifest: dict[str, Any], task: str, method: str) -> list[str]:
    """Return the ids of a method's runs on a task."""
    return [run["id"] for run in manifest["runs"] if run["task"] == task and run["method"] == method]
