"""The study of one task in one table: every method with as many samples, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dubio.reporting.aggregate import Cell, decimals
from dubio.reporting.style import Style
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.statistics.ensemble_equivalent import EquivalentRange
from dubio.studies.ensembles.study import Line, Study
from dubio.studies.ensembles.told import worth_order

COLUMNS = (
    Column("Calibrated NLL", "", "↓", "mean ± standard deviation over runs; of deep ensembles over orders of one pool"),
    Column("Equivalent", "networks", "↑", "deep-ensemble equivalent with its bounds"),
    Column("Calibrated NLL", "augmented", "↓", "with one random view a sample"),
    Column("Equivalent", "augmented", "↑", "of the method with augmentation, in networks without"),
    Column("Error", "%", "↓"),
    Column("NLL", "temperature 1", "↓", "as the method gives it; does not rank", unranked=True),
    Column("Temperature", "best", "", "median of the cross-validated ones", unranked=True),
)


def summary_grid(study: Study, styles: Mapping[str, Style]) -> Table:
    """Methods without augmentation, their twins beside them, by calibrated NLL.

    Args:
        study: The study.
        styles: How the methods are drawn.
    """
    order = worth_order(study, study.chosen("network", "pool", "method", "ensemble", augmented=False))
    places = decimals([line.at("calibrated_nll", study.equal) for line, _ in order])
    rows = tuple(Row(line.title, tuple(_cells(study, line, worth, places)), styles[line.name]) for line, worth in order)
    kept = [place for place in range(len(COLUMNS)) if any(row.cells[place] is not EMPTY for row in rows)]
    return Table(
        tuple(COLUMNS[place] for place in kept),
        tuple(Row(row.title, tuple(row.cells[place] for place in kept), row.style) for row in rows),
        f"{study.task.key}: {study.equal} samples each; one network has one sample",
    )


def _cells(study: Study, line: Line, worth: EquivalentRange, places: int) -> Sequence[TableCell]:
    size, twin = study.equal, study.twin(line)
    augmented = None if twin is None else study.equivalent_at(twin, size)
    error = line.at("error", size)
    return (
        _value(line.at("calibrated_nll", size), places),
        _worth(worth),
        EMPTY if twin is None else _value(twin.at("calibrated_nll", size), places),
        EMPTY if augmented is None else _worth(augmented),
        EMPTY if error is None else _value(Cell(tuple(100.0 * value for value in error.values)), 2),
        _value(line.at("nll", size), places, "unranked"),
        _value(line.at("temperature", size), 2, "unranked"),
    )


def _value(cell: Cell | None, places: int, place: str = "") -> TableCell:
    if cell is None:
        return EMPTY
    spread = "" if cell.std is None else f"± {cell.std:.{places}f}"
    return TableCell(f"{cell.mean:.{places}f}", spread, f"{cell.mean:.9g}", place, f"over {cell.n} runs")


def _worth(worth: EquivalentRange) -> TableCell:
    low, high = (f"> {part.longest}" if part.beyond else f"{part.size:.1f}" for part in (worth.lower, worth.upper))
    central = worth.central
    text = f"> {central.longest}" if central.beyond else f"{central.size:.1f}"
    return TableCell(text, "" if low == text == high else f"({low} to {high})", f"{min(central.size, 1e9):.9g}")
