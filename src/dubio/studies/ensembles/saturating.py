"""What the last samples of a method bring, in networks a sample, with the spread of that over runs.

Every run of a method has its own deep-ensemble equivalents (P eq. 4), and so its own slope between its last two numbers
of samples. The curve of growing ensembles is known up to its spread over orders; a slope is told to be above or below a
bound only where it is so against the curve itself and against both its bounds (P eq. 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.types import FloatArray
from dubio.statistics.ensemble_equivalent import equivalent
from dubio.statistics.verdicts import smallest_difference
from dubio.studies.ensembles.prefixes import SIZES
from dubio.studies.ensembles.study import Line, Study

FEWEST_SIZES = 3
"""With fewer numbers of samples a method has no course to speak of."""


@dataclass(frozen=True, eq=False)
class Slope:
    """Networks gained for a sample added.

    Attributes:
        sizes: The last two numbers of samples.
        worth: The equivalents there, of the mean over runs.
        values: ``[curves, R]``: slopes against the curve raised, as it is and lowered by its spread; None where a
            run, or the mean, is beyond the longest ensemble with the first, or no better than one network with both.
        at_least: Whether some slope is only known to be no smaller: up to the longest ensemble, which was passed.
    """

    sizes: tuple[int, int]
    worth: tuple[float, float]
    values: FloatArray | None
    at_least: bool

    @property
    def spoken(self) -> str:
        """The slope with its spread over runs; nothing where it is not known."""
        if self.values is None:
            return ""
        middle = self.values[1]
        spread = f" ± {middle.std(ddof=1):.2f}" if len(middle) > 1 else " (1 run)"
        bound = "at least " if self.at_least else ""
        return f"{bound}{middle.mean():+.2f}{spread} networks a sample".replace("-", "−")

    def against(self, bound: float) -> int:
        """1 where the slope is surely above a bound, −1 where it is surely below, 0 where that is not told."""
        if self.values is None or self.values.shape[1] < 2:
            return 0
        sides = set()
        for values in self.values:
            part = float(values.var(ddof=1)) / len(values), len(values) - 1
            resolves = smallest_difference([part], None) or 0.0
            apart = float(values.mean()) - bound
            sides.add(0 if abs(apart) <= resolves else 1 if apart > 0 else -1)
        side = sides.pop() if len(sides) == 1 else 0
        return 0 if self.at_least and side < 0 else side


def slope_of(study: Study, line: Line) -> Slope | None:
    """The slope between a method's last two numbers of samples; None of a method with fewer than three."""
    places = [line.sizes.index(size) for size in SIZES if size in line.sizes]
    if len(places) < FEWEST_SIZES:
        return None
    before, last = places[-2:]
    sizes = line.sizes[before], line.sizes[last]
    runs, mean = line.of("calibrated_nll")[:, [before, last]], line.mean("calibrated_nll")[[before, last]]
    curve, spread = study.growth.mean["nll"], study.growth.std["nll"]
    curves = curve - spread, curve, curve + spread
    worths = np.array([[_worths(each, row) for row in (*runs, mean)] for each in curves])
    worth = float(worths[1, -1, 0]), float(worths[1, -1, 1])
    if np.isinf(worths[..., 0]).any() or (worths == 1.0).all(axis=2).any():
        return Slope(sizes, worth, None, False)
    reached = np.minimum(worths[:, :-1], len(curve))
    slopes = (reached[..., 1] - reached[..., 0]) / (sizes[1] - sizes[0])
    return Slope(sizes, worth, slopes, bool(np.isinf(worths).any()))


def _worths(curve: FloatArray, values: FloatArray) -> list[float]:
    return [equivalent(curve, float(value)).size for value in values]
