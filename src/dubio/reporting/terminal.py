"""Tables outside the page: the terminal's, and the long table as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from dubio.reporting.build import Report
from dubio.reporting.score_table import Score
from dubio.reporting.section import Block, Card, Cards
from dubio.reporting.tables import Column, Table, TableCell

COLUMNS = ("task", "split", "kind", "method", "seed", "member", "metric", "value")

STYLES = {"best": "bold cyan", "tied": "cyan", "leading": "bold", "unranked": "dim"}

_ONE_LINE = str.maketrans({"\n": " ", "↑": "", "↓": ""})

GAP = 2
"""Blanks between two columns."""


def results_csv(scores: Iterable[Score]) -> str:
    """The long table: one row a value; ``member`` is empty for ensembles, ``value`` where it is not defined."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for score in scores:
        member = "" if score.member is None else score.member
        value = "" if math.isnan(score.value) else repr(score.value)
        writer.writerow((score.task, score.split, score.kind, score.method, score.seed, member, score.metric, value))
    return sink.getvalue()


def results_table(report: Report) -> RenderableType:
    """Return what a terminal shows at the end of a run: the main tables, and the findings in words."""
    parts: list[RenderableType] = []
    for task in report.run.tasks:
        if not report.run.methods_of(task):
            parts.append(Text(f"{task.key}: no run was completed", style="red"))
            continue
        blocks = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
        parts += [
            TerminalTable(block, block.terminal) for block in blocks if isinstance(block, Table) and block.terminal
        ]
    for card in (card for placed in report.of_part("opening") for card in _findings(report.blocks(placed))):
        parts.append(Padding(Text.assemble((f"{card.title}  ", "bold"), card.texts[0]), (0, 0, 1, 0)))
    return Group(*parts)


def _findings(blocks: Iterable[Block]) -> list[Card]:
    """The cards without evidence: what was found, not what is advised."""
    return [card for block in blocks if isinstance(block, Cards) for card in block.cards if not card.evidence]


@dataclass(frozen=True)
class TerminalTable:
    """A grid that shows as many whole columns as the terminal is wide, and names those it has no room for."""

    grid: Table
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the grid out for this console."""
        kept = columns_that_fit(self.grid, options.max_width)
        note = self.grid.caption
        if kept < len(self.grid.columns):
            left_out = [
                " ".join(_head(column).plain.translate(_ONE_LINE).split()) for column in self.grid.columns[kept:]
            ]
            note += f"; the report also has {', '.join(left_out)}"
        yield Text(self.title, style="bold")
        yield _rich_table(self.grid, kept)
        yield Padding(Text(note, style="dim"), (0, 0, 1, 0))


def columns_that_fit(grid: Table, width: int) -> int:
    """How many columns, from the left, fit beside the methods' names; always at least one."""
    used = max(len(row.title) for row in grid.rows)
    for place, column in enumerate(grid.columns):
        cells = [len(row.cells[place].plain) for row in grid.rows]
        used += GAP + max(*cells, *(len(line) for line in _head(column).plain.split("\n")))
        if used > width:
            return max(1, place)
    return len(grid.columns)


def _rich_table(grid: Table, kept: int) -> RichTable:
    """The first columns of a grid; texts are never read as markup."""
    table = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(Text("method"), no_wrap=True)
    for column in grid.columns[:kept]:
        table.add_column(_head(column), justify="right", no_wrap=True)
    for row in grid.rows:
        name = Text(row.title, style="italic dim" if row.control else "")
        table.add_row(name, *(_shown(cell) for cell in row.cells[:kept]))
    return table


def _head(column: Column) -> Text:
    title = f"{column.title} {column.arrow}".strip().replace("Calibrated ", "Calibrated\n")
    head = Text(title, style="dim" if column.unranked else "bold")
    return Text.assemble(head, "\n", (column.sub, "dim")) if column.sub and column.sub != "not ranked" else head


def _shown(cell: TableCell) -> Text:
    spread = f" {cell.spread}" if cell.spread else ""
    return Text.assemble((cell.text, STYLES.get(cell.place, "")), (spread, "dim"))
