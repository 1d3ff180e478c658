"""Orders of methods, and how far two of them agree: ranks, swapped pairs, Kendall's τ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau, rankdata

from dubio.pooling import FloatArray
from dubio.report.ensembles.study import Line, Study
from dubio.report.ensembles.thresholded import SETTINGS


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
    def tau(self) -> float:
        """Kendall's τ (b) of the two orders; NaN for fewer than two methods."""
        names = self.names
        if len(names) < 2:
            return float("nan")
        return float(kendalltau([self.before[n] for n in names], [self.after[n] for n in names]).statistic)


def tempered_order(study: Study, size: int) -> Reordering:
    """Methods with so many samples by NLL at temperature 1, and by calibrated NLL."""
    cells = {line.name: (line.at("nll", size), line.at("calibrated_nll", size)) for line in study.lines}
    known = {
        name: (before.mean, after.mean)
        for name, (before, after) in cells.items()
        if before is not None and after is not None and np.isfinite([before.mean, after.mean]).all()
    }
    return Reordering({name: pair[0] for name, pair in known.items()}, {name: pair[1] for name, pair in known.items()})


@dataclass(frozen=True, eq=False)
class Taces:
    """TACE of methods in every setting, ``[methods, settings]``."""

    lines: tuple[Line, ...]
    values: FloatArray

    @property
    def ranks(self) -> FloatArray:
        """Ranks in every setting, 1 being lowest."""
        return np.asarray(rankdata(self.values, axis=0))

    @property
    def leaders(self) -> tuple[str, ...]:
        """Methods that are lowest in some setting, in the order of settings."""
        return tuple(dict.fromkeys(self.lines[place].name for place in self.values.argmin(axis=0)))

    @property
    def least_agreement(self) -> tuple[float, int, int]:
        """The smallest Kendall's τ between two settings, and which two."""
        found = [
            (float(kendalltau(self.values[:, i], self.values[:, j]).statistic), i, j)
            for i, j in combinations(range(len(SETTINGS)), 2)
            if SETTINGS[i] != SETTINGS[j]
        ]
        return min(found)


def taces_of(lines: tuple[Line, ...]) -> Taces:
    """The calibration errors of these methods, averaged over runs."""
    return Taces(lines, np.array([line.tace.mean(axis=0) for line in lines]))
