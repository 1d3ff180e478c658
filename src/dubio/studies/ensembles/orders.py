"""Orders of methods, and how far two of them agree: ranks, swapped pairs, Kendall's τ.

Only methods with a finite value on both sides have an order. Where all are tied on one side there is none either, and
Kendall's τ does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau, rankdata

from dubio.core.types import FloatArray
from dubio.studies.ensembles.study import Line, Study
from dubio.studies.ensembles.thresholded import SETTINGS


def agreement_of(one: Sequence[float] | FloatArray, other: Sequence[float] | FloatArray) -> float | None:
    """Kendall's τ (b) of two scores of the same methods over those that are finite in both.

    None for fewer than two of them, or where all are tied on one side.
    """
    sides = np.array([one, other], dtype=np.float64)
    known = sides[:, np.isfinite(sides).all(axis=0)]
    if known.shape[1] < 2 or (np.ptp(known, axis=1) == 0).any():
        return None
    return float(kendalltau(*known).statistic)


@dataclass(frozen=True, eq=False)
class Reordering:
    """The same methods under two scores, lower being better.

    Attributes:
        before: Method → its value under the first.
        after: Method → its value under the second.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, best first under the second score."""
        return tuple(sorted(self.after, key=lambda name: self.after[name]))

    def ranks(self) -> tuple[dict[str, float], dict[str, float]]:
        """Method → rank under either score, 1 being best and ties sharing their mean."""
        sides = []
        for values in (self.before, self.after):
            sides.append(dict(zip(values, map(float, rankdata(list(values.values()))), strict=True)))
        return sides[0], sides[1]

    @property
    def swapped(self) -> tuple[tuple[str, str], ...]:
        """Pairs whose order is reversed."""
        return tuple(
            (one, other)
            for one, other in combinations(self.names, 2)
            if (self.before[one] - self.before[other]) * (self.after[one] - self.after[other]) < 0
        )

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.after) * (len(self.after) - 1) // 2

    @property
    def tau(self) -> float | None:
        """Kendall's τ (b) of the two orders; None for fewer than two methods, or where all are tied on one side."""
        names = self.names
        return agreement_of([self.before[name] for name in names], [self.after[name] for name in names])


def reordering_of(before: Mapping[str, float], after: Mapping[str, float]) -> Reordering:
    """The methods that have a finite value under both scores."""
    known = [name for name in after if name in before and math.isfinite(before[name]) and math.isfinite(after[name])]
    return Reordering({name: before[name] for name in known}, {name: after[name] for name in known})


def tempered_order(study: Study, size: int) -> Reordering:
    """Methods with so many samples by NLL at temperature 1, and by calibrated NLL."""
    sides = [
        {line.name: cell.mean for line in study.lines if (cell := line.at(measure, size)) is not None}
        for measure in ("nll", "calibrated_nll")
    ]
    return reordering_of(*sides)


@dataclass(frozen=True, eq=False)
class Taces:
    """TACE of methods in every setting, ``[methods, settings]``; NaN where it is not known."""

    lines: tuple[Line, ...]
    values: FloatArray

    @property
    def ranks(self) -> FloatArray:
        """Ranks in every setting, 1 being lowest and ties sharing their mean; NaN where there is no value."""
        return np.asarray(rankdata(self.values, axis=0, nan_policy="omit"))

    @property
    def orders(self) -> int:
        """How many different orders the settings give; ties are part of an order."""
        return len({tuple(column) for column in np.nan_to_num(self.ranks, nan=np.inf).T})

    @property
    def leaders(self) -> tuple[str, ...]:
        """Methods that are lowest in some setting, in the order of settings; none leads where all are tied."""
        found: dict[str, None] = {}
        for column in self.values.T:
            known = column[np.isfinite(column)]
            if len(known) > 1 and np.ptp(known) > 0:
                found |= dict.fromkeys(self.lines[place].name for place in np.flatnonzero(column == known.min()))
        return tuple(found)

    @property
    def least_agreement(self) -> tuple[float, int, int] | None:
        """The smallest Kendall's τ between two settings, and which two; None where no two settings order methods."""
        found = [
            (tau, i, j)
            for i, j in combinations(range(len(SETTINGS)), 2)
            if SETTINGS[i] != SETTINGS[j] and (tau := agreement_of(self.values[:, i], self.values[:, j])) is not None
        ]
        return min(found, default=None)


def taces_of(lines: tuple[Line, ...]) -> Taces:
    """The calibration errors of these methods, averaged over runs."""
    return Taces(lines, np.array([line.tace.mean(axis=0) for line in lines]))
