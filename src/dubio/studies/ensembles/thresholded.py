"""TACE under other thresholds and other numbers of bins (P Fig. 2): one sorting a class serves them all.

With p̂ the probability of class k at the optimal temperature, survivors p̂ > ε in M bins of equal mass (P eq. 2 with
weights |B|/(n K)), TACE = 1/K Σ_k Σ_B |Σ_{i∈B} (1[y_i = k] − p̂_i)| / n. A threshold keeps the upper end of the sorted
probabilities, and a number of bins cuts it differently: neither needs another sorting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dubio.core.types import FloatArray, IntArray
from dubio.metrics.ranking import ordered

THRESHOLDS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Thresholds at :data:`BINS_USED` bins."""
BINS = (5, 10, 15, 20, 30, 50, 100)
"""Numbers of bins at the threshold :data:`THRESHOLD_USED`."""
BINS_USED = 15
THRESHOLD_USED = 1e-3

Setting = tuple[float, int]
"""A threshold and a number of bins."""

SETTINGS: tuple[Setting, ...] = (
    *((threshold, BINS_USED) for threshold in THRESHOLDS),
    *((THRESHOLD_USED, bins) for bins in BINS),
)


def thresholded_errors(probs: FloatArray, labels: IntArray, settings: Sequence[Setting] = SETTINGS) -> FloatArray:
    """TACE for every setting.

    Args:
        probs: ``[N, K]``; of several labels at once, each its own Bernoulli.
        labels: ``[N]`` class indices, or multi-hot ``[N, K]``.
        settings: Thresholds and numbers of bins.
    """
    total = np.zeros(len(settings))
    for column in range(probs.shape[1]):
        truth = labels[:, column] if labels.ndim == 2 else labels == column
        total += _of_class(np.ascontiguousarray(probs[:, column]), truth.astype(np.float64), settings)
    return total / probs.size


def _of_class(stated: FloatArray, truth: FloatArray, settings: Sequence[Setting]) -> FloatArray:
    """Σ_B |Σ_{i∈B} (truth_i − stated_i)| for every setting; rows that state the same share their truth."""
    ordering = ordered(stated)
    rising = np.sort(stated)
    gaps = (ordering.sums(truth - stated) / ordering.sizes)[ordering.block]
    sums = np.concatenate([[0.0], np.cumsum(gaps)])
    found = np.zeros(len(settings))
    for place, (threshold, bins) in enumerate(settings):
        first = int(np.searchsorted(rising, threshold, side="right"))
        kept = len(gaps) - first
        used = min(bins, kept)
        if used:
            edges = first + (np.arange(used + 1) * kept) // used
            found[place] = np.abs(np.diff(sums[edges])).sum()
    return found
