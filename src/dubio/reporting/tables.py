"""Tables as data: methods down, metrics across, ready to be printed or set on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dubio.reporting.manifest_view import MethodView
from dubio.reporting.score_table import Cell, decimals
from dubio.reporting.style import Style
from dubio.statistics.bootstrap import Interval
from dubio.statistics.verdicts import Place, Verdict

ARROWS = {"higher": "↑", "lower": "↓"}

SPOKEN_PLACE: dict[Place, str] = {
    "best": "best mean",
    "tied": "not significantly different",
    "behind": "significantly worse",
    "unjudged": "not judged",
}

NOT_JUDGED = (
    "not judged, because this method or the best one was trained only once and another training might reverse the "
    "order; run it again with --seeds 5, and only what is missing is trained"
)
"""Why a method has no verdict, and what gives one."""


@dataclass(frozen=True)
class Column:
    """The head of a column; one of texts is set left-aligned.

    One of a ``metric`` is marked when the page's reader chooses it, one of a ``split`` hidden when another is chosen.
    """

    title: str
    sub: str = ""
    arrow: str = ""
    note: str = ""
    unranked: bool = False
    is_text: bool = False
    metric: str = ""
    split: str = ""


@dataclass(frozen=True)
class TableCell:
    """One value: its text, its spread, and the method's place in the ranking; an empty ``sort_key`` is not sorted.

    ``span`` draws it: the lower end of its interval, the value and the upper end, as shares of the column's range; the
    ends are None where there is no interval.
    """

    text: str
    spread: str = ""
    sort_key: str = ""
    place: str = ""
    hint: str = ""
    span: tuple[float | None, float, float | None] | None = None

    @property
    def plain(self) -> str:
        """Text and spread together."""
        return f"{self.text} {self.spread}".strip()


    @property
    def is_sorted_by_hint(self) -> bool:
        """Whether the hint begins with the number that the cell is sorted by, to six digits."""
        number = re.match(r"-?\d[\d.e+-]*", self.hint)
        with suppress(ValueError):  # sorted by a text, or not at all
            return number is not None and f"{float(self.sort_key):.6g}" == number[0]
        return False


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
        split: The test set it is about, where it is one.
        matrix: Whether it is the matrix of methods and questions that the page begins with.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    first: str = "Method"
    title: str = ""
    shown: bool = False
    terminal: str = ""
    split: str = ""
    matrix: bool = False


@dataclass(frozen=True)
class FilledColumn:
    """A column with its cells by method."""

    column: Column
    cells: Mapping[str, TableCell]


UNDECIDED = {"best": "leading", "tied": ""}
"""Marks in a column in which no method is significantly worse than the best."""

EMPTY = TableCell("–", place="unranked")


def score_column(
    column: Column, cells: Mapping[str, Cell], verdicts: Mapping[str, Verdict] | None = None, places: int | None = None
) -> FilledColumn:
    """Return a column of means with their spread.

    Args:
        column: Its head.
        cells: Method → values.
        verdicts: Method → its verdict against the best, where the column ranks.
        places: Decimals; chosen from the spreads by default.
    """
    places = decimals(cells.values()) if places is None else places
    judged = verdicts or {}
    filled = {name: score_cell(cell, places, judged.get(name), column) for name, cell in cells.items()}
    if not any(verdict.place == "behind" for verdict in judged.values()):
        # Nothing differs significantly from the best: to mark every method would say less than to mark none.
        filled = {name: replace(cell, place=UNDECIDED.get(cell.place, cell.place)) for name, cell in filled.items()}
    return FilledColumn(column, filled)


def score_cell(cell: Cell, places: int, verdict: Verdict | None, column: Column) -> TableCell:
    """Return a value with its spread: never a bare mean where there are several runs, and one run says so."""
    if cell.n == 0:
        return TableCell("undefined", place="unranked", hint=f"not defined in any of {cell.undefined} runs")
    if math.isinf(cell.mean):
        if cell.interval is not None:
            return TableCell("∞", "", f"{cell.mean}", "unranked", "infinite: not compared")
        return TableCell("∞", f"({cell.n} runs)", f"{cell.mean}", "unranked" if column.unranked else "behind")
    spread = "(1 run)" if cell.std is None else f"± {cell.std:.{places}f}"
    hints = [f"{cell.mean:.6g}, {cell.n} run{'s' if cell.n > 1 else ''}"]
    if cell.interval is not None:
        ends = (cell.interval.low, cell.interval.high)
        spread, hints = bounds(None if math.isnan(ends[0]) else ends, f".{places}f"), [f"{cell.mean:.6g}"]
    spread += " †" if verdict is not None and verdict.place == "unjudged" and not column.unranked else ""
    if cell.undefined:
        hints.append(f"not defined in {cell.undefined} more")
    if verdict is not None:
        hints.append(SPOKEN_PLACE[verdict.place])
        if verdict.place != "best" and verdict.resolves is not None:
            hints[-1] += f": {verdict.difference:.2g} (detectable {verdict.resolves:.2g})"
    mark = "unranked" if column.unranked else (verdict.place if verdict else "")
    return value_cell(cell.mean, f".{places}f", spread, mark, "; ".join(hints))


def method_table(
    methods: Sequence[MethodView],
    columns: Iterable[FilledColumn],
    styles: Mapping[str, Style],
    *,
    caption: str = "",
    controls: Mapping[str, str] | None = None,
    terminal: str = "",
) -> Table:
    """Return a table of columns side by side, one row per method, controls last.

    Args:
        methods: The rows, in order.
        columns: The columns; one that no row has a value in is left out.
        styles: How each method is drawn.
        caption: What the table is.
        controls: Names of control rows → their titles.
        terminal: The title below which a terminal prints the table too, if it does.
    """
    filled = [column for column in columns if any(column.cells.get(method.name) for method in methods)]

    def cells(name: str) -> tuple[TableCell, ...]:
        return tuple(column.cells.get(name, EMPTY) for column in filled)

    marks = {cell.place for column in filled for cell in column.cells.values()}
    if "unjudged" in marks:
        caption += f" †: {NOT_JUDGED}." if caption.endswith(".") else f"; †: {NOT_JUDGED}"
    rows = [Row(method.title, cells(method.name), styles[method.name]) for method in methods]
    rows += [Row(title, cells(name), control=True) for name, title in (controls or {}).items()]
    return Table(tuple(column.column for column in filled), tuple(rows), caption, terminal=terminal)


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


def folded(table: Table, title: str) -> Table:
    """Return a table that the page shows on demand, below a title."""
    return replace(table, title=title, shown=False)


def plain_table(first: str, columns: tuple[Column, ...], rows: Mapping[str, Iterable[str]]) -> Table:
    """Return a table of texts: row title → its cells."""
    cells = tuple(Row(title, tuple(TableCell(text) for text in texts)) for title, texts in rows.items())
    return Table(columns, cells, first=first)
