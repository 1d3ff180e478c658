"""Intervals of a method's mean over its runs: the patients are drawn again, the same ones for every run and method.

For every run the statistic is computed on the same replicates (same seed, same units), then averaged over runs within
each replicate. The interval is therefore of the mean of these trained networks over other patients like these; what
other trainings would have given is not in it, and is told by the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.core.weights import Weights
from dubio.metrics.metric import preparing_once
from dubio.statistics.bootstrap import Interval, Statistic, Units, centred_interval, percentile_interval, units_of

CELLS = 4_000_000
"""Rows × replicates of one statistic: large test sets have narrow intervals, which fewer replicates tell as well."""

MOST, FEWEST = 1000, 200
SEED = 0

Counts = NDArray[np.unsignedinteger]
"""``[N, R]``, as of :class:`dubio.statistics.bootstrap.Weights`."""


def replicates_for(rows: int) -> int:
    """How many replicates a test set of so many rows gets: 1,000, and at least 200."""
    return max(FEWEST, min(MOST, CELLS // max(1, rows)))


@dataclass
class _Sum:
    value: float
    draws: FloatArray
    runs: int
    units: int


@dataclass
class Resampled:
    """Sums over runs of statistics and of their replicates; the draws of a task are kept, since its runs share them."""

    sums: dict[tuple[str, ...], _Sum] = field(default_factory=dict)
    drawn: dict[tuple[str, ...], tuple[Counts, ...]] = field(default_factory=dict)

    def add(self, key: tuple[str, ...], predictions: Predictions, statistics: Mapping[str, Statistic]) -> None:
        """Add one run's statistics.

        Args:
            key: Sort, task, what of it, and last the method: where the sums are kept with the statistic's name.
            predictions: Labelled rows, the same ones for all runs and methods.
            statistics: Functions of weights.
        """
        units, count = units_of(predictions), replicates_for(len(predictions))
        once = Weights.of(np.ones((1, len(predictions))))
        blocks = [Weights(counts) for counts in self._draws(key[:-1], units, count)]
        for name, statistic in statistics.items():
            with preparing_once():
                values = [statistic(block) for block in blocks] or [np.full(count, np.nan)]
            known = self.sums.setdefault((*key, name), _Sum(0.0, np.zeros(count), 0, units.count))
            known.value += float(statistic(once)[0])
            known.draws += np.concatenate(values)
            known.runs += 1

    def _draws(self, place: tuple[str, ...], units: Units, count: int) -> tuple[Counts, ...]:
        """How often every row counts in every replicate, in blocks; with one unit there is nothing to resample."""
        if place not in self.drawn:
            self.drawn = {known: draws for known, draws in self.drawn.items() if known[1] == place[1]}
            several = units.weights(count, SEED) if units.count > 1 else ()
            self.drawn[place] = tuple(weights.counts for weights in several)
        return self.drawn[place]

    def interval(self, key: tuple[str, ...], *, centred: bool = False) -> Interval:
        """The mean over runs with its 95 % interval, moved onto the estimate where resampling itself pushes it up."""
        found = self.sums[key]
        made = centred_interval if centred else percentile_interval
        return made(found.value / found.runs, found.draws / found.runs)

    def units(self, key: tuple[str, ...]) -> int:
        """How many units were resampled."""
        return self.sums[key].units
