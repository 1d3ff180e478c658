"""Reliability diagrams: observed frequency against stated probability, in bins and as CORP, with consistency bands.

With rows that state p_i and outcomes o_i, 0 or 1::

    bins    mean of o_i against mean of p_i within bins of equal width, right-closed as those of ``ece``
    CORP    the non-decreasing f with the least Σ_i (f(p_i) − o_i)², by pool-adjacent-violators, which has no bins to
            choose (Dimitriadis, Gneiting and Jordan, 2021)

A consistency band says where either would lie if the probabilities were calibrated (Bröcker and Smith, 2007): outcomes
are drawn again and again as o_i ~ Bernoulli(p_i), independent of each other, and the band contains the middle LEVEL of
the diagrams they give, bin by bin or point by point. Where there are few rows it is wide.

Rows whose probabilities lie in the same narrow cell are taken together: time and memory do not grow with the rows, and
a probability moves by less than the width of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dubio.calibration.class_maps import pool_adjacent_violators
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.calibration_error import stated_and_true, width_bins
from dubio.metrics.requirements import labelled

LEVEL = 0.9
"""Share of the diagrams of calibrated predictions that a consistency band contains."""

REPLICATES = 200
"""Draws of the outcomes behind a consistency band."""

CELLS_PER_BIN = 20
CELLS = 300
"""Cells of CORP: narrower than a pixel of a panel."""

GRID = np.linspace(0.0, 1.0, 51)
"""Probabilities at which CORP is evaluated: the size of a diagram does not depend on the number of rows."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram, one entry per bin or point; NaN where there are no rows.

    Attributes:
        stated: ``[M]`` mean stated probability of a bin, or the point's probability.
        observed: ``[M]`` share of outcomes that came true, or CORP's value.
        low: ``[M]`` lower end of the consistency band.
        high: ``[M]`` upper end of the consistency band.
        count: ``[M]`` rows of a bin; of CORP all rows, 0 outside the range of their probabilities.
    """

    stated: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray
    count: FloatArray


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows taken together by cells of equal width, right-closed; those without rows are left out.

    Attributes:
        number: ``[C]`` number of the cell, ascending.
        count: ``[C]`` rows.
        stated: ``[C]`` mean stated probability.
        observed: ``[C]`` share of outcomes that came true.
    """

    number: IntArray
    count: FloatArray
    stated: FloatArray
    observed: FloatArray

    @classmethod
    def of(cls, stated: FloatArray, truth: FloatArray, cells: int) -> Cells:
        """Take the rows of every cell together."""
        number, index, count = np.unique(width_bins(stated, cells), return_inverse=True, return_counts=True)
        means = (np.bincount(index, side) / count for side in (stated, truth))
        return cls(number, count.astype(np.float64), *means)

    def resampled(self, seed: int) -> FloatArray:
        """Return shares ``[REPLICATES, C]`` of outcomes that are drawn with the stated probabilities."""
        generator, count = np.random.default_rng(seed), self.count.astype(np.int64)
        return generator.binomial(count, np.clip(self.stated, 0.0, 1.0), (REPLICATES, len(count))) / self.count


def binned(stated: FloatArray, truth: FloatArray, *, bins: int = 15, seed: int = 0) -> Reliability:
    """Return the diagram in bins of equal width.

    Args:
        stated: ``[N]`` probabilities.
        truth: ``[N]`` outcomes, 0 or 1.
        bins: The number of bins.
        seed: Of the outcomes that are drawn for the consistency band.
    """
    cells = Cells.of(stated, truth, bins * CELLS_PER_BIN)
    rows = np.zeros((len(cells.count), bins))
    rows[np.arange(len(rows)), cells.number // CELLS_PER_BIN] = cells.count
    count = rows.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean, observed, draws = (side @ rows / count for side in (cells.stated, cells.observed, cells.resampled(seed)))
    low, high = _band(draws)
    return Reliability(mean, observed, low, high, count)


def corp(stated: FloatArray, truth: FloatArray, *, seed: int = 0) -> Reliability:
    """Return CORP's curve at :data:`GRID`, from the lowest stated probability to the highest.

    Args:
        stated: ``[N]`` probabilities.
        truth: ``[N]`` outcomes, 0 or 1.
        seed: Of the outcomes that are drawn for the consistency band.
    """
    cells = Cells.of(stated, truth, CELLS)
    shares = np.vstack([cells.observed, cells.resampled(seed)])
    fits = [np.interp(GRID, cells.stated, pool_adjacent_violators(share, cells.count)) for share in shares]
    lowest, highest = stated.min() - GRID[1], stated.max() + GRID[1]
    inside = (lowest < GRID) & (highest > GRID)
    curve, *draws = np.where(inside, fits, np.nan)
    low, high = _band(np.array(draws))
    return Reliability(GRID, curve, low, high, np.where(inside, float(len(stated)), 0.0))


def _band(draws: FloatArray) -> FloatArray:
    return np.asarray(np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


def binary_or_top_label(predictions: Predictions) -> tuple[FloatArray, FloatArray]:
    """Return the second class's probability and whether it is the class; with other than two classes, the top label's.

    Multi-label: the probabilities of all labels, and whether each is true.
    """
    rows = labelled(predictions, "the reliability diagram")
    if rows.target == "multilabel" or rows.class_count != 2:
        return stated_and_true(rows)
    return rows.probs[:, 1].astype(np.float64), (rows.labels == 1).astype(np.float64)


def pooled(diagrams: Sequence[Reliability]) -> Reliability:
    """Return the diagram of several runs together.

    Runs predict the same examples and mostly err on the same ones. The band is as wide as if they always did: that of
    one run, which never claims a deviation because one was counted several times.
    """
    count = np.sum([diagram.count for diagram in diagrams], axis=0)

    def mean(side: str) -> FloatArray:
        total = np.sum([np.where(d.count > 0, d.count * getattr(d, side), 0.0) for d in diagrams], axis=0)
        return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))

    return Reliability(mean("stated"), mean("observed"), mean("low"), mean("high"), count)
