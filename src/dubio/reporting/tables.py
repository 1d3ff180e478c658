"""Tables as data: methods down, metrics across, ready to be printed or set on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dubio.reporting.manifest_view import MethodView
from dubio.reporting.score_table import Cell, decimals
from dubio.reporting.style import Style
from dubio.statistics.bootstrap import Interval
from dubio.statistics.verdicts import Place, Verdict

ARROWS = {"higher": "↑", "lower": "↓"}

SPOKEN_PLACE: dict[Place, str] = {
    "best": "best mean",
    "tied": "not distinguishable from the best",
    "behind": "behind the best",
    "unjudged": "one run: not judged",
}


@dataclass(frozen=True)
class Column:
    """The head of a column; ``words`` marks a column of text, which is set left-aligned."""

    title: str
    sub: str = ""
    arrow: str = ""
    note: str = ""
    unranked: bool = False
    words: bool = False


@dataclass(frozen=True)
class TableCell:
    """One value: its text, its spread, and where the method stands; ``sort`` is what to order by, "" for nothing."""

    text: str
    spread: str = ""
    sort: str = ""
    place: str = ""
    hint: str = ""

    @property
    def plain(self) -> str:
        """Text and spread together."""
        return f"{self.text} {self.spread}".strip()


@dataclass(frozen=True)
class Row:
    """One method's values."""

    title: str
    cells: tuple[TableCell, ...]
    style: Style | None = None
    control: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: The heads of the columns.
        rows: One per method, mostly.
        caption: What it shows.
        first: The head of the column of the rows' titles.
        title: Where given, the table is shown below it on demand.
        shown: Whether a table with a title is shown from the start.
        terminal: Where given, the terminal prints the table too, below this title.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    first: str = "Method"
    title: str = ""
    shown: bool = False
    terminal: str = ""


@dataclass(frozen=True)
class FilledColumn:
    """A column with its cells by method."""

    column: Column
    cells: Mapping[str, TableCell]


UNDECIDED = {"best": "leading", "tied": ""}
"""Places in a column in which no method is told from another."""

EMPTY = TableCell("–", place="unranked")


def score_column(
    column: Column, cells: Mapping[str, Cell], verdicts: Mapping[str, Verdict] | None = None, places: int | None = None
) -> FilledColumn:
    """A column of means with their spread.

    Args:
        column: Its head.
        cells: Method → values.
        verdicts: Method → where it stands, where the column ranks.
        places: Decimals; chosen from the spreads by default.
    """
    shown = decimals(cells.values()) if places is None else places
    judged = verdicts or {}
    made = {name: score_cell(cell, shown, judged.get(name), column) for name, cell in cells.items()}
    if not any(verdict.place == "behind" for verdict in judged.values()):
        # Nothing is told from the best: to mark every method would say less than to mark none.
        made = {name: replace(cell, place=UNDECIDED.get(cell.place, cell.place)) for name, cell in made.items()}
    return FilledColumn(column, made)


def score_cell(cell: Cell, places: int, verdict: Verdict | None, column: Column) -> TableCell:
    """A value with its spread: never a bare mean where there are several runs, and one run says so."""
    if cell.n == 0:
        return TableCell("undefined", place="unranked", hint=f"not defined in any of {cell.undefined} runs")
    if math.isinf(cell.mean):
        return TableCell("∞", f"({cell.n} runs)", f"{cell.mean}", "unranked" if column.unranked else "behind")
    spread = "(1 run)" if cell.std is None else f"± {cell.std:.{places}f}"
    hints = [f"mean {cell.mean:.6g} over {cell.n} run{'s' if cell.n > 1 else ''}"]
    if cell.undefined:
        hints.append(f"not defined in {cell.undefined} more")
    if verdict is not None:
        hints.append(_spoken_verdict(verdict))
    place = "unranked" if column.unranked else (verdict.place if verdict else "")
    return TableCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", place, "; ".join(hints))


def _spoken_verdict(verdict: Verdict) -> str:
    words = SPOKEN_PLACE[verdict.place]
    if verdict.place == "best" or verdict.resolves is None:
        return words
    return f"{words}: {verdict.difference:.3g} away, resolved from {verdict.resolves:.3g} on"


def method_table(
    methods: Sequence[MethodView],
    columns: Iterable[FilledColumn],
    styles: Mapping[str, Style],
    *,
    caption: str = "",
    controls: Mapping[str, str] | None = None,
    terminal: str = "",
) -> Table:
    """Columns side by side, one row a method, controls last.

    Args:
        methods: The rows, in order.
        columns: The columns; one that no row has a value in is left out.
        styles: How each method is drawn.
        caption: What the table is.
        controls: Names of control rows → their titles.
        terminal: The title below which a terminal prints the table too, if it does.
    """
    kept = [column for column in columns if any(column.cells.get(method.name) for method in methods)]
    rows = [Row(m.title, tuple(column.cells.get(m.name, EMPTY) for column in kept), styles[m.name]) for m in methods]
    for name, title in (controls or {}).items():
        rows.append(Row(title, tuple(column.cells.get(name, EMPTY) for column in kept), control=True))
    return Table(tuple(column.column for column in kept), tuple(rows), caption, terminal=terminal)


def value_cell(value: float, form: str = ".3f", spread: str = "", place: str = "", hint: str = "") -> TableCell:
    """Return a number in a format, sorted by its value."""
    return TableCell(f"{value:{form}}", spread, f"{value:.9g}", place, hint)


def bounds(interval: tuple[float, float] | None, form: str = ".3f") -> str:
    """Return the ends of an interval as a spread; empty where there is none."""
    return "" if interval is None else f"[{interval[0]:{form}}, {interval[1]:{form}}]"


def interval_cell(interval: Interval, form: str = ".3f", *, underpowered: bool = False, hint: str = "") -> TableCell:
    """Return a value with its confidence interval; one without an interval, or of too few units, is unranked."""
    missing = math.isnan(interval.low)
    spread = "(no interval)" if missing else bounds((interval.low, interval.high), form)
    return value_cell(interval.value, form, spread, "unranked" if missing or underpowered else "", hint)


def folded(table: Table, title: str, *, shown: bool = False) -> Table:
    """Return a table that the page shows on demand, below a title."""
    return replace(table, title=title, shown=shown)


def plain_table(first: str, columns: tuple[Column, ...], rows: Mapping[str, Iterable[str]]) -> Table:
    """Return a table of texts: row title → its cells."""
    made = tuple(Row(title, tuple(TableCell(text) for text in texts)) for title, texts in rows.items())
    return Table(columns, made, first=first)
