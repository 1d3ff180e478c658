"""How closely likelihood goes with accuracy, and whether calibration brings them closer: correlations with intervals.

The points (method, number of samples, run) are far from independent: a method's prefixes are nested, and an ensemble or
an augmented twin predicts from the same fits. What is drawn again in the bootstrap is therefore whole families of
methods, each with all its points. Moments add over families, so a draw costs six numbers a family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.types import FloatArray
from dubio.reporting.claims import Outcome
from dubio.studies.ensembles.scatters import Beside
from dubio.studies.ensembles.study import Line

DRAWS = 2000
FEWEST = 6
"""With fewer families a bootstrap over them says little."""
CLOSE = 0.95
"""What P finds |ρ| to exceed after calibration."""
COVERED = 0.95


@dataclass(frozen=True)
class Closeness:
    """|ρ| before and after calibration.

    Attributes:
        before: At temperature 1.
        after: At the cross-validated temperature.
        after_range: The interval of the second; None of too few families or where a correlation is not defined.
        rise_range: The interval of the second minus the first.
    """

    before: float
    after: float
    after_range: tuple[float, float] | None
    rise_range: tuple[float, float] | None

    @property
    def outcome(self) -> Outcome:
        """Whether |ρ| is above 0.95 after calibration and higher than before: both, not one of them, or not told."""
        if self.after_range is None or self.rise_range is None:
            return "undecided"
        if self.after_range[1] < CLOSE or self.rise_range[1] < 0:
            return "contradicts"
        return "supports" if self.after_range[0] > CLOSE and self.rise_range[0] > 0 else "undecided"


def closeness_of(before: Beside, after: Beside, *, seed: int = 0) -> Closeness:
    """Both correlations over the same methods, with percentile intervals over families drawn again.

    Args:
        before: Likelihood beside accuracy at temperature 1.
        after: The same at the cross-validated temperature.
        seed: Of the draws.
    """
    values = abs(before.pearson), abs(after.pearson)
    families = families_of(before.lines)
    if len(set(families)) < FEWEST or not np.isfinite(values).all():
        return Closeness(*values, None, None)
    moments = [_moments(side, families) for side in (before, after)]
    count = len(moments[0])
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
    sides = [np.abs(_correlations(drawn @ each)) for each in moments]
    known = np.isfinite(sides).all(axis=0)
    return Closeness(*values, _interval(sides[1][known]), _interval((sides[1] - sides[0])[known]))


def families_of(lines: Sequence[Line]) -> list[str]:
    """The family of every line: that of its method, of a twin that of its base where the base is there."""
    own = {line.name: line.method.family for line in lines}
    return [own.get(line.base, line.method.family) for line in lines]


def _moments(side: Beside, families: Sequence[str]) -> FloatArray:
    """``[families, 6]``: count, Σx, Σy, Σx², Σy², Σxy about the mean of all."""
    x, y = np.concatenate(side.x), np.concatenate(side.y)
    owner = np.repeat(np.unique(families, return_inverse=True)[1], [len(each) for each in side.x])
    x, y = x - x.mean(), y - y.mean()
    parts = (np.ones_like(x), x, y, x * x, y * y, x * y)
    return np.stack([np.bincount(owner, weights=part, minlength=len(set(families))) for part in parts], axis=1)


def _correlations(sums: FloatArray) -> FloatArray:
    """Pearson's correlation of every row of moments; NaN where a side does not vary."""
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((xy - x * y / n) / np.sqrt((xx - x * x / n) * (yy - y * y / n)))


def _interval(values: FloatArray) -> tuple[float, float] | None:
    if not len(values):
        return None
    low, high = np.quantile(values, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(low), float(high)
