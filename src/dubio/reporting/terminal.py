"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from dubio.reporting.build import Report
from dubio.reporting.leaderboard import QUESTIONS
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.section import Card, Cards, Text
from dubio.reporting.tables import Column, Table, TableCell

STYLES = {"best": "bold cyan", "tied": "cyan", "leading": "bold", "unranked": "dim"}

_ONE_LINE = str.maketrans({"\n": " ", "↑": "", "↓": ""})

GAP = 2
"""Blanks between two columns."""


TerminalBlock = Table | Card | Text


def terminal_blocks(report: Report) -> tuple[TerminalBlock, ...]:
    """Return the tables and sentences that a terminal shows at the end of a run, without the style of methods."""
    shown: list[TerminalBlock] = []
    run = report.run
    for task in run.tasks:
        if not run.methods_of(task):
            shown.append(Text(f"{task.key}: no run was completed", "warning"))
            continue
        blocks = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
        tables = [block for block in blocks if isinstance(block, Table) and block.terminal]
        shown += [replace(table, rows=tuple(replace(row, style=None) for row in table.rows)) for table in tables]
    blocks = [block for placed in report.of_part("opening") for block in report.blocks(placed)]
    cards = [card for block in blocks if isinstance(block, Cards) for card in block.cards]
    shown += [card for card in cards if not card.evidence]  # cards with evidence give advice, and this is about results
    if any(len(run.scores.verdicts(task, task.in_domain.name, RANKED_BY)) > 1 for task in run.tasks):
        shown.append(Text(QUESTIONS[run.question], "small"))
    return tuple(shown)


def terminal_table(shown: Report | Iterable[TerminalBlock]) -> RenderableType:
    """Return a report, or blocks of one, as something rich can print."""
    blocks = terminal_blocks(shown) if isinstance(shown, Report) else shown
    return Group(*map(_renderable, blocks))


def _renderable(block: TerminalBlock) -> RenderableType:
    if isinstance(block, Table):
        return TerminalTable(block)
    if isinstance(block, Card):
        return Padding(RichText.assemble((f"{block.title}  ", "bold"), block.texts[0]), (0, 0, 1, 0))
    return RichText(str(block.text), style="red" if block.kind == "warning" else "dim")


@dataclass(frozen=True)
class TerminalTable:
    """A table that shows the columns that fit into the terminal's width, and names the others."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the table out for this console; texts are never read as markup."""
        table, count = self.table, columns_that_fit(self.table, options.max_width)
        others = [" ".join(_head(column).plain.translate(_ONE_LINE).split()) for column in table.columns[count:]]
        rows = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        rows.add_column(RichText(table.first.lower()), no_wrap=True)
        for column in table.columns[:count]:
            rows.add_column(_head(column), justify="right", no_wrap=True)
        for row in table.rows:
            title = RichText(row.title, style="italic dim" if row.control else "")
            rows.add_row(title, *(_cell_text(cell) for cell in row.cells[:count]))
        yield RichText(table.terminal, style="bold")
        yield rows
        note = table.caption + (f"; the report also has {', '.join(others)}" if others else "")
        yield Padding(RichText(note, style="dim"), (0, 0, 1, 0))


def columns_that_fit(table: Table, width: int) -> int:
    """Return how many columns, from the left, fit beside the methods' names; always at least one."""
    used = max(len(row.title) for row in table.rows)
    for index, column in enumerate(table.columns):
        cells = [len(row.cells[index].plain) for row in table.rows]
        used += GAP + max(*cells, *(len(line) for line in _head(column).plain.split("\n")))
        if used > width:
            return max(1, index)
    return len(table.columns)


def _head(column: Column) -> RichText:
    title = f"{column.title} {column.arrow}".strip().replace("Calibrated ", "Calibrated\n")
    head = RichText(title, style="dim" if column.unranked else "bold")
    return RichText.assemble(head, "\n", (column.sub, "dim")) if column.sub and column.sub != "not ranked" else head


def _cell_text(cell: TableCell) -> RichText:
    spread = f" {cell.spread}" if cell.spread else ""
    return RichText.assemble((cell.text, STYLES.get(cell.place, "")), (spread, "dim"))
