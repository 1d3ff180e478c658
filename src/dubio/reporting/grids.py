"""Tables as data: methods down, metrics across, ready to be printed or set on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dubio.reporting.aggregate import Cell, decimals
from dubio.reporting.comparison import Place, Verdict
from dubio.reporting.manifest import MethodView
from dubio.reporting.style import Look

ARROWS = {"higher": "↑", "lower": "↓"}

SPOKEN_PLACE: dict[Place, str] = {
    "best": "best mean",
    "tied": "not distinguishable from the best",
    "behind": "behind the best",
    "unjudged": "one run: not judged",
}


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    title: str
    sub: str = ""
    arrow: str = ""
    note: str = ""
    unranked: bool = False


@dataclass(frozen=True)
class GridCell:
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
class GridRow:
    """One method's values."""

    title: str
    cells: tuple[GridCell, ...]
    look: Look | None = None
    control: bool = False


@dataclass(frozen=True)
class Grid:
    """A table; ``first`` heads the column of the rows' titles."""

    columns: tuple[Column, ...]
    rows: tuple[GridRow, ...]
    caption: str = ""
    first: str = "Method"


@dataclass(frozen=True)
class Filled:
    """A column with its cells by method."""

    column: Column
    cells: Mapping[str, GridCell]


UNDECIDED = {"best": "leading", "tied": ""}
"""Places in a column in which no method is told from another."""

EMPTY = GridCell("–", place="unranked")


def filled(
    column: Column, cells: Mapping[str, Cell], verdicts: Mapping[str, Verdict] | None = None, places: int | None = None
) -> Filled:
    """A column of means with their spread.

    Args:
        column: Its head.
        cells: Method → values.
        verdicts: Method → where it stands, where the column ranks.
        places: Decimals; chosen from the spreads by default.
    """
    shown = decimals(cells.values()) if places is None else places
    judged = verdicts or {}
    made = {name: grid_cell(cell, shown, judged.get(name), column) for name, cell in cells.items()}
    if not any(verdict.place == "behind" for verdict in judged.values()):
        # Nothing is told from the best: to mark every method would say less than to mark none.
        made = {name: replace(cell, place=UNDECIDED.get(cell.place, cell.place)) for name, cell in made.items()}
    return Filled(column, made)


def grid_cell(cell: Cell, places: int, verdict: Verdict | None, column: Column) -> GridCell:
    """A value with its spread: never a bare mean where there are several runs, and one run says so."""
    if cell.n == 0:
        return GridCell("undefined", place="unranked", hint=f"not defined in any of {cell.undefined} runs")
    if math.isinf(cell.mean):
        return GridCell("∞", f"({cell.n} runs)", f"{cell.mean}", "unranked" if column.unranked else "behind")
    spread = "(1 run)" if cell.std is None else f"± {cell.std:.{places}f}"
    hints = [f"mean {cell.mean:.6g} over {cell.n} run{'s' if cell.n > 1 else ''}"]
    if cell.undefined:
        hints.append(f"not defined in {cell.undefined} more")
    if verdict is not None:
        hints.append(_spoken_verdict(verdict))
    place = "unranked" if column.unranked else (verdict.place if verdict else "")
    return GridCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", place, "; ".join(hints))


def _spoken_verdict(verdict: Verdict) -> str:
    words = SPOKEN_PLACE[verdict.place]
    if verdict.place == "best" or verdict.resolves is None:
        return words
    return f"{words}: {verdict.difference:.3g} away, resolved from {verdict.resolves:.3g} on"


def grid(
    methods: Sequence[MethodView],
    columns: Iterable[Filled],
    looks: Mapping[str, Look],
    *,
    caption: str = "",
    controls: Mapping[str, str] | None = None,
) -> Grid:
    """Columns side by side, one row a method, controls last.

    Args:
        methods: The rows, in order.
        columns: The columns; one that no row has a value in is left out.
        looks: How each method is drawn.
        caption: What the table is.
        controls: Names of control rows → their titles.
    """
    kept = [column for column in columns if any(column.cells.get(method.name) for method in methods)]
    rows = [GridRow(m.title, tuple(column.cells.get(m.name, EMPTY) for column in kept), looks[m.name]) for m in methods]
    for name, title in (controls or {}).items():
        rows.append(GridRow(title, tuple(column.cells.get(name, EMPTY) for column in kept), control=True))
    return Grid(tuple(column.column for column in kept), tuple(rows), caption)
