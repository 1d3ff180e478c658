"""What test-time augmentation brings a method, with how surely that is known.

A method and its twin predict from the same fits, so their difference is taken run by run:

    g = mean_r (nll_r − nll'_r),    v(g) = s²/n over runs r,

s² being shared by the methods of one training, as in :mod:`dubio.statistics.verdicts`: a few runs tell little of a
variance. A deep ensemble of k of L networks has orders, not runs. Its mean over orders is a U-statistic, and with s²
the variance of the difference over orders, v(g) ≤ s²·k/(L − k) (Hoeffding: Var U ≤ k/L of the variance over whole new
sets of k networks, of which orders of one pool show the share 1 − k/L).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.reporting.aggregate import Cell
from dubio.statistics.verdicts import ALPHA, VarianceTerm, shared_variances, smallest_difference
from dubio.studies.ensembles.study import Line, Study


@dataclass(frozen=True)
class Gain:
    """By how much calibrated NLL falls with augmentation.

    Attributes:
        mean: The mean fall; negative where augmentation harms.
        part: The variance of that mean with its degrees of freedom; None where there is no spread to know it by.
    """

    mean: float
    part: VarianceTerm | None

    def scaled(self, factor: float) -> Gain:
        """The same, a share of it."""
        part = None if self.part is None else (factor**2 * self.part[0], self.part[1])
        return Gain(factor * self.mean, part)


NOTHING = Gain(0.0, (0.0, 1))
"""No gain, for sure."""


@dataclass(frozen=True)
class Margin:
    """How far one gain lies above another, and the smallest distance that is told from none; None where unknown."""

    difference: float
    resolves: float | None

    @property
    def told(self) -> bool:
        """Whether the spread over runs tells the two apart."""
        return self.resolves is not None and abs(self.difference) > self.resolves

    @property
    def words(self) -> str:
        """What is told, or what would have to be."""
        if self.resolves is None:
            return "there is no spread over runs to judge by"
        return f"{self.resolves:.2g} {'would have been enough' if self.told else 'would be resolved'}"


def gains_of(study: Study, lines: Sequence[Line], measure: str = "calibrated_nll") -> dict[str, Gain]:
    """Method → what augmentation brings it with :attr:`Study.equal` samples, for those that have a twin.

    Args:
        study: The study.
        lines: Methods without augmentation; those of as many trainings share their variance over runs.
        measure: What falls.
    """
    found = {line.name: (line, twin, fall) for line in lines for twin, fall in _falls(study, line, measure)}
    spread = {name: (fall, line.method.members) for name, (line, _, fall) in found.items() if line.role == "method"}
    shared = shared_variances(
        {name: fall for name, (fall, _) in spread.items()}, {name: kin for name, (_, kin) in spread.items()}
    )
    gains = {}
    for name, (line, twin, fall) in found.items():
        if line.role == "pool":
            part = _pool_part(fall, study.equal, min(line.samples, twin.samples))
        elif line.role == "method":
            part = _over_runs(shared.get(line.method.members), fall.n)
        else:
            part = None if fall.std is None else (fall.std**2 / fall.n, fall.n - 1)
        gains[name] = Gain(fall.mean, part)
    return gains


def margin(one: Gain, other: Gain, comparisons: int = 1) -> Margin:
    """How far one gain lies above another.

    Args:
        one: A gain.
        other: Another, of other fits or of the same: what they share makes this err towards "not told".
        comparisons: How many are made together (Bonferroni).
    """
    difference = one.mean - other.mean
    if one.part is None or other.part is None:
        return Margin(difference, None)
    return Margin(difference, smallest_difference([one.part, other.part], None, level=ALPHA / comparisons))


def _falls(study: Study, line: Line, measure: str) -> list[tuple[Line, Cell]]:
    """The twin and the differences, run by run or order by order; empty without a twin or without finite values."""
    twin = study.twin(line)
    without, augmented = line.at(measure, study.equal), None if twin is None else twin.at(measure, study.equal)
    if twin is None or without is None or augmented is None:
        return []
    before, after = _by_run(line, without), _by_run(twin, augmented)
    falls = [before[run] - after[run] for run in before if run in after]
    return [(twin, Cell(tuple(falls)))] if falls and np.isfinite(falls).all() else []


def _by_run(line: Line, cell: Cell) -> Mapping[object, float]:
    keys: Sequence[object] = line.runs or range(cell.n)
    return dict(zip(keys, cell.values, strict=True))


def _over_runs(shared: VarianceTerm | None, runs: int) -> VarianceTerm | None:
    return None if shared is None else (shared[0] / runs, shared[1])


def _pool_part(fall: Cell, size: int, networks: int) -> VarianceTerm | None:
    """The bound above; orders tell no more of a variance than there are networks."""
    if fall.std is None or networks <= size:
        return None
    freedom = min(fall.n, networks) - 1
    return (fall.std**2 * size / (networks - size), freedom) if math.isfinite(fall.std) and freedom else None
