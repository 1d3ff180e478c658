"""Calibration error: how far stated confidence is from observed accuracy.

None of these ranks models: each depends on its bins and is estimated with a bias that differs between models (P §3.4).
With B a bin, n rows and K classes (P eqs 1–2)::

    ece           = Σ_B |B|/n · |acc(B) − conf(B)|        conf = max_k p̄_k, equal-width bins, right-closed
    ece_adaptive  = the same over bins of equal mass
    classwise_ece = 1/K Σ_k Σ_B |B|/n · |share of class k in B − mean p̄_k in B|     (also called sce)
    ace, tace     = the same over bins of equal mass; tace only over p̄_k > threshold, still divided by n K

Multi-label: ``ece`` and ``ece_adaptive`` are means over labels; ``ece_pooled`` bins all decisions together.

``ece_smooth`` has a kernel in place of bins, its bandwidth chosen by the data (Błasiok and Nakkiran, 2023). With
residuals r_i = truth_i − stated_i and K_σ the Gaussian kernel reflected at 0 and 1::

    smece(σ) = ∫_0^1 | 1/n Σ_i r_i K_σ(stated_i, t) | dt,       ece_smooth = smece(σ*) where smece(σ*) = σ*

smece(σ) never rises with σ, so σ* exists and is unique. The reflected Gaussian is the heat kernel of the unit interval,
diagonal in cosines: on a grid of cells the smoothing is one discrete cosine transform there and back.

With weights, a row's bin of equal width does not change. Its bin of equal mass does: a bin is the next n/M rows in
order, with every row repeated as often as it weighs. Within a block of ties all rows share their gaps truth − stated,
so that the sum of gaps up to a position is linear within the block, and a bin that begins inside a block is cut there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.fft import dct, idct

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.decisions import correct
from dubio.metrics.metric import metric, prepared
from dubio.metrics.ranking import PrefixSums, ordered
from dubio.metrics.requirements import labelled

EDGE = 5e-7
"""Values this close to a bin's edge are on it: predictions are stored as float32 logarithms, which move p by 1e-7."""

CELLS = 4096
"""Cells of the grid of ``ece_smooth``; residuals move by at most half a cell, 1.3e-4."""

HALVINGS = 40
"""Bisections of the bandwidth of ``ece_smooth``."""

WHY_NOT = (
    "Calibration errors depend on the binning and are estimated with a bias that differs between models; "
    "compare calibrated_nll or brier instead."
)

# Resampled rows add noise, which the absolute value of every bin turns into bias: the intervals are centred.
_calibration_metric = partial(metric, better="lower", needs={"labels", "probs"}, why_not=WHY_NOT, interval="centred")


def width_bins(stated: FloatArray, bins: int) -> IntArray:
    """Return the equal-width, right-closed bin of each value."""
    _check_bins(bins)
    return np.asarray(np.clip(np.ceil((stated - EDGE) * bins) - 1, 0, bins - 1), dtype=np.int64)


MOST_BINS = 10_000
"""Bins × replicates of the bootstrap are held at once."""


def _check_bins(bins: int) -> None:
    if not 1 <= bins <= MOST_BINS:
        raise UserError(f"bins must be 1 to {MOST_BINS:,}; given {bins}.")


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps truth − stated of rows, each in one of several bins that do not depend on the weights.

    Attributes:
        which: ``[N · C]``, the bin of each cell, row by row; C cells per row.
        gaps: ``[N · C]``, its gap.
        bins: The number of bins.
        rows: N.
    """

    which: IntArray
    gaps: FloatArray
    bins: int
    rows: int

    @classmethod
    def of(cls, stated: FloatArray, truth: NDArray[Any], bins: int) -> Gaps:
        """Put ``[N]`` or ``[N, C]`` stated probabilities into equal-width bins."""
        return cls(width_bins(stated.ravel(), bins), (truth - stated).ravel(), bins, len(stated))

    @cached_property
    def _matrix(self) -> Any:
        rows = np.repeat(np.arange(self.rows), len(self.which) // self.rows)
        return sparse.csr_array((self.gaps, (self.which, rows)), shape=(self.bins, self.rows))

    def sums(self, weights: Weights) -> FloatArray:
        """Return the weighted sum of gaps in each bin, divided by the weight of all cells, ``[bins, R]``."""
        if weights.each_once:  # building the matrix takes longer than one sum
            sums = np.bincount(self.which, self.gaps, minlength=self.bins)[:, None]
        else:
            sums = self._matrix @ weights.real
        return np.asarray(sums / (weights.totals * (len(self.which) // self.rows)))

    def error(self, weights: Weights) -> Values:
        """Return Σ_B |Σ_{i in B} gap_i| / n, ``[R]``."""
        return np.asarray(np.abs(self.sums(weights)).sum(axis=0))


@dataclass(frozen=True, eq=False)
class MassBins:
    """Gaps truth − stated in order of the stated probability; small, because there may be a thousand of them.

    Attributes:
        rows: The rows that count at all, lowest stated first.
        opens: Which of them begin a block of ties.
        gaps: Their gaps, in the same order.
    """

    rows: IntArray
    opens: BoolArray
    gaps: FloatArray

    @classmethod
    def of(cls, stated: FloatArray, truth: FloatArray, threshold: float = -1.0) -> MassBins:
        """Order the rows that state more than a threshold."""
        rows = np.flatnonzero(stated > threshold)
        opens = np.zeros(len(rows), dtype=bool)
        if len(rows):
            ordering = ordered(stated[rows])
            rows, opens[ordering.starts] = rows[ordering.order], True
        return cls(rows.astype(np.int32), opens, (truth[rows] - stated[rows]).astype(np.float64))

    def error(self, bins: int, weights: Weights) -> Values:
        """Return Σ_B |Σ_{i in B} gap_i| / n over bins of equal mass, n the weight of all rows, ``[R]``.

        Bins differ in size by at most one; with fewer rows than bins every row is its own bin; without rows it is zero.
        """
        _check_bins(bins)
        if len(self.rows) == 0:
            return np.zeros(len(weights))
        sums = PrefixSums(self.rows, replicates=len(weights))
        counted = sums.weights(weights)
        in_slots = np.zeros((len(counted), 1))
        in_slots[sums.slots(np.arange(sums.count))] = self.gaps[:, None]
        gaps = sums.sums(in_slots * weights.real.take(sums.rows, axis=0))
        last = sums.slots(np.array([sums.count - 1]))
        sizes, all_gaps = counted[last].astype(np.int64), gaps[last]
        used = np.minimum(sizes, bins)
        number = np.arange(bins)[:, None]
        begins = np.where(number < used, number * sizes // np.maximum(used, 1), sizes)
        first, following = self._blocks(_positions(begins, counted, sums))
        low, high = _before(first, counted, sums), _before(following, counted, sums)
        low_gaps, high_gaps = _before(first, gaps, sums), _before(following, gaps, sums)
        inside = (begins - low) / np.maximum(high - low, 1)
        up_to = np.where(begins < sizes, low_gaps + inside * (high_gaps - low_gaps), all_gaps)
        return np.asarray(np.abs(np.diff(up_to, axis=0, append=all_gaps)).sum(axis=0) / weights.totals)

    def _blocks(self, positions: IntArray) -> tuple[IntArray, IntArray]:
        """Return where the block of ties of each position begins, and where the next one does."""
        starts = np.flatnonzero(self.opens)
        block = np.searchsorted(starts, positions, side="right") - 1
        return starts[block], np.append(starts[1:], len(self.rows))[block]


def _positions(begins: IntArray, counted: NDArray[Any], sums: PrefixSums) -> IntArray:
    """Return the first position up to which the weight exceeds ``begins``, else the last, in every replicate."""
    low, high = np.zeros_like(begins), np.full_like(begins, sums.count - 1)
    replicate = np.arange(begins.shape[1])
    while bool((low < high).any()):
        middle = (low + high) // 2
        past = counted[sums.slots(middle), replicate] > begins
        low, high = np.where(past, low, np.minimum(middle + 1, high)), np.where(past, middle, high)
    return low


def _before(positions: IntArray, up_to: NDArray[Any], sums: PrefixSums) -> NDArray[Any]:
    """Return the sums of everything before a position, from sums up to and including every position."""
    sums_before = up_to[sums.slots(np.maximum(positions - 1, 0)), np.arange(positions.shape[1])]
    return np.where(positions > 0, sums_before, 0)


Pairs = Callable[[Predictions], Iterator[tuple[FloatArray, FloatArray]]]
"""What a calibration error is averaged over: pairs of stated probabilities and of what was true."""


def _decisions(p: Predictions) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the highest probability and whether the decision is right; multi-label: every label's."""
    if p.target == "multilabel":
        yield from _columns(p)
    else:
        yield p.summary.top, correct(p).astype(np.float64)


def _columns(p: Predictions) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield every class's stated probability, and whether it is the class (one of the labels)."""
    for k in range(p.class_count):
        truth = p.labels[:, k] if p.target == "multilabel" else p.labels == k
        yield np.ascontiguousarray(p.probs[:, k]), truth.astype(np.float64)


def _pooled(p: Predictions) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the probabilities of all labels together, ``[N, K]``, and whether each is true."""
    yield p.probs, p.labels.astype(np.float64)


def stated_and_true(predictions: Predictions) -> tuple[FloatArray, FloatArray]:
    """Return the highest probabilities and whether the decisions are right, ``[N]``; multi-label: of all labels."""
    rows = labelled(predictions, "the reliability diagram")
    stated, truth = next((_pooled if rows.target == "multilabel" else _decisions)(rows))
    return stated.ravel(), truth.ravel()


@prepared
def _by_width(p: Predictions, pairs: Pairs, bins: int) -> tuple[Gaps, ...]:
    return tuple(Gaps.of(stated, truth, bins) for stated, truth in pairs(p))


@prepared
def _by_mass(p: Predictions, pairs: Pairs, threshold: float = -1.0) -> tuple[MassBins, ...]:
    return tuple(MassBins.of(stated, truth, threshold) for stated, truth in pairs(p))


def _width_error(p: Predictions, pairs: Pairs, bins: int, weights: Weights) -> Values:
    """Return the calibration error over bins of equal width, averaged over the pairs."""
    return np.asarray(np.mean([gaps.error(weights) for gaps in _by_width(p, pairs, bins)], axis=0))


def _mass_error(p: Predictions, pairs: Pairs, bins: int, weights: Weights, threshold: float = -1.0) -> Values:
    """Return the calibration error over bins of equal mass, averaged over the pairs."""
    return np.asarray(np.mean([gaps.error(bins, weights) for gaps in _by_mass(p, pairs, threshold)], axis=0))


@_calibration_metric("ece")
def ece(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Expected calibration error over equal-width, right-closed bins of the highest probability."""
    return _width_error(p, _decisions, bins, weights)


@_calibration_metric("ece_pooled", targets={"multilabel"})
def ece_pooled(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Multi-label expected calibration error with the decisions of all labels in the same bins."""
    return _width_error(p, _pooled, bins, weights)


@_calibration_metric("ece_adaptive")
def ece_adaptive(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Expected calibration error over bins of equal mass of the highest probability."""
    return _mass_error(p, _decisions, bins, weights)


@_calibration_metric("classwise_ece")
def classwise_ece(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Calibration error of each class's probability over equal-width bins, averaged over classes (sce)."""
    return _width_error(p, _columns, bins, weights)


@_calibration_metric("sce")
def sce(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Static calibration error: another name of classwise_ece."""
    return _width_error(p, _columns, bins, weights)


@_calibration_metric("ace")
def ace(p: Predictions, *, bins: int = 15, weights: Weights = ONCE) -> Values:
    """Calibration error of each class's probability over bins of equal mass, averaged over classes."""
    return _mass_error(p, _columns, bins, weights)


@_calibration_metric("tace")
def tace(p: Predictions, *, bins: int = 15, threshold: float = 1e-3, weights: Weights = ONCE) -> Values:
    """As :func:`ace` over the probabilities above the threshold, weights |B|/(n K); zero where none is above it."""
    return _mass_error(p, _columns, bins, weights, threshold)


@_calibration_metric("ece_smooth")
def ece_smooth(p: Predictions, *, weights: Weights = ONCE) -> Values:
    """Smooth calibration error of the highest probability; multi-label: of each label, averaged."""
    return np.asarray(np.mean([smooth_error(*pair, weights) for pair in _decisions(p)], axis=0))


def smooth_error(stated: FloatArray, truth: FloatArray, weights: Weights) -> Values:
    """Return the fixed point smece(σ*) = σ*, by bisection in σ, ``[R]``."""
    smece = smoothed_gaps(stated, truth, weights)
    low, high = np.zeros(len(weights)), np.ones(len(weights))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = smece(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def smoothed_gaps(stated: FloatArray, truth: FloatArray, weights: Weights) -> Callable[[FloatArray], Values]:
    """Return smece as a function of one bandwidth σ per replicate."""
    cells = np.clip((stated * CELLS).astype(np.int64), 0, CELLS - 1)
    waves = dct(Gaps(cells, truth - stated, CELLS, len(stated)).sums(weights), axis=0)
    numbers = np.arange(CELLS)[:, None]

    def smece(bandwidths: FloatArray) -> Values:
        decay = np.exp(-0.5 * (np.pi * bandwidths * numbers) ** 2)
        return np.asarray(np.abs(idct(waves * decay, axis=0)).sum(axis=0))

    return smece
