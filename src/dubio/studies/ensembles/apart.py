"""Which methods of a study are told apart by a score with as many samples, by its spread over runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dubio.reporting.aggregate import Cell
from dubio.reporting.claims import outcome_of
from dubio.statistics.verdicts import pair_verdict
from dubio.studies.ensembles.study import Line

RULE = "calibrated_nll"
"""What methods are compared by."""


def cells_of(lines: Iterable[Line], size: int, measure: str = RULE) -> dict[str, Cell]:
    """Method → its values with so many samples; those that have not so many, or no finite mean, are left out."""
    found = {line.name: line.at(measure, size) for line in lines}
    return {name: cell for name, cell in found.items() if cell is not None and math.isfinite(cell.mean)}


def kin_of(lines: Iterable[Line]) -> dict[str, int]:
    """Method → of how many trainings it is: those of as many share their variance over runs."""
    return {line.name: line.method.members for line in lines}


def apart(cells: Mapping[str, Cell], kin: Mapping[str, int], pair: tuple[str, str]) -> bool:
    """Whether two methods are told apart among all of these; never one that is not among them."""
    return set(pair) <= cells.keys() and outcome_of(pair_verdict(cells, "lower", pair, None, kin)) != "undecided"
