"""Tables in a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from dubio.reporting.build import Report
from dubio.reporting.leaderboard import QUESTION
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.section import Cards
from dubio.reporting.tables import Column, Table, TableCell

STYLES = {"best": "bold cyan", "tied": "cyan", "leading": "bold", "unranked": "dim"}

_ONE_LINE = str.maketrans({"\n": " ", "↑": "", "↓": ""})

GAP = 2
"""Blanks between two columns."""


def terminal_table(report: Report) -> RenderableType:
    """Return the tables and sentences that a terminal shows at the end of a run, as something rich can print."""
    shown: list[RenderableType] = []
    run = report.run
    for task in run.tasks:
        if not run.methods_of(task):
            shown.append(Text(f"{task.key}: no run was completed", style="red"))
            continue
        blocks = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
        shown += [TerminalTable(block) for block in blocks if isinstance(block, Table) and block.terminal]
    blocks = [block for placed in report.of_part("opening") for block in report.blocks(placed)]
    for card in (card for block in blocks if isinstance(block, Cards) for card in block.cards):
        if not card.evidence:  # cards with evidence give advice, and this is about results
            shown.append(Padding(Text.assemble((f"{card.title}  ", "bold"), card.texts[0]), (0, 0, 1, 0)))
    if any(len(run.scores.verdicts(task, task.in_domain.name, RANKED_BY)) > 1 for task in run.tasks):
        shown.append(Text(QUESTION, style="dim"))
    return Group(*shown)


@dataclass(frozen=True)
class TerminalTable:
    """A table that shows the columns that fit into the terminal's width, and names the others."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the table out for this console; texts are never read as markup."""
        table, count = self.table, columns_that_fit(self.table, options.max_width)
        others = [" ".join(_head(column).plain.translate(_ONE_LINE).split()) for column in table.columns[count:]]
        rows = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        rows.add_column(Text("method"), no_wrap=True)
        for column in table.columns[:count]:
            rows.add_column(_head(column), justify="right", no_wrap=True)
        for row in table.rows:
            title = Text(row.title, style="italic dim" if row.control else "")
            rows.add_row(title, *(_cell_text(cell) for cell in row.cells[:count]))
        yield Text(table.terminal, style="bold")
        yield rows
        note = table.caption + (f"; the report also has {', '.join(others)}" if others else "")
        yield Padding(Text(note, style="dim"), (0, 0, 1, 0))


def columns_that_fit(table: Table, width: int) -> int:
    """Return how many columns, from the left, fit beside the methods' names; always at least one."""
    used = max(len(row.title) for row in table.rows)
    for index, column in enumerate(table.columns):
        cells = [len(row.cells[index].plain) for row in table.rows]
        used += GAP + max(*cells, *(len(line) for line in _head(column).plain.split("\n")))
        if used > width:
            return max(1, index)
    return len(table.columns)


def _head(column: Column) -> Text:
    title = f"{column.title} {column.arrow}".strip().replace("Calibrated ", "Calibrated\n")
    head = Text(title, style="dim" if column.unranked else "bold")
    return Text.assemble(head, "\n", (column.sub, "dim")) if column.sub and column.sub != "not ranked" else head


def _cell_text(cell: TableCell) -> Text:
    spread = f" {cell.spread}" if cell.spread else ""
    return Text.assemble((cell.text, STYLES.get(cell.place, "")), (spread, "dim"))
