"""Metrics of rankings, with rows counted by weights: what a bootstrap evaluates for many replicates at once.

Each function here prepares what does not depend on the weights and returns a function from :class:`Weights` of R
replicates to values ``[R]``. The value equals the metric on the rows repeated as often as they weigh, with the blocks
of ties that all rows have together. With w the weight of a row, B and A the weight in the blocks below its own and up
to the end of its own, n the weight of all rows, and sums over the marked rows (the positives, the errors; m their
weight)::

    auroc      Σ w (B + A)/2 counts, ties half, what lies below each marked row, and m²/2 of it is marked itself:
               (Σ w (B + A)/2 − m²/2) / (m (n − m))
    precision  Σ w M/A / m, M the weight of the marked up to the end of the block, in descending order
    aurc       an error at place j adds Σ_{k=j..n} 1/k = H(n) − H(j − 1) to the sum of risks, H the harmonic numbers;
               over a block, the mean of that: (m H(n) − Σ w mean_{B≤j<A} H(j)) / n
    augrc      an error at place j is among the kept n − j + 1 times: (m n − Σ w (B + A)/2) / n²
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dubio.core.types import BoolArray, FloatArray
from dubio.metrics.ranking import ordered
from dubio.statistics.resampling import Weights
from dubio.statistics.running import Marked

Weighted = Callable[[Weights], FloatArray]


def weighted_auroc(scores: FloatArray, positive: BoolArray, *, unit: float = 0.0) -> Weighted:
    """Area under the ROC curve, ties counting one half; NaN where only one side was drawn.

    Args:
        scores: ``[N]``, higher = more likely positive.
        positive: ``[N]``, which rows are positive.
        unit: As for :func:`dubio.metrics.ranking.ordered`.
    """
    fewer = bool(positive.mean() > 0.5)  # the negatives are fewer: count from their side
    marks = ~positive if fewer else positive
    marked = Marked(ordered(scores, unit=unit), marks)

    def value(weights: Weights) -> FloatArray:
        own = weights.sums(marks.astype(np.float64))
        below = _halfway(marked, weights) - np.square(own) / 2
        area = _ratio(below, own * (weights.totals - own))
        return 1.0 - area if fewer else area

    return value


def weighted_precision(scores: FloatArray, positive: BoolArray) -> Weighted:
    """Average precision over blocks of ties, Σ_b (R_b − R_{b−1}) P_b; NaN where only one side was drawn."""
    marked = Marked(ordered(-scores), positive)

    def value(weights: Weights) -> FloatArray:
        own, most = weights.sums(positive.astype(np.float64)), float(weights.totals.max())
        _, upto = marked.beside(weights.counts, most)
        # a row without weight may lie before all that was drawn: nothing there to divide by, and nothing to add
        parts = marked.marked_upto(weights.counts, most) / np.maximum(upto, 1)
        parts *= weights.counts.take(marked.rows, axis=0)
        both = (own > 0) & (own < weights.totals)
        return np.where(both, _ratio(_down(parts), own), np.nan)

    return value


def weighted_mean(forms: Sequence[Weighted]) -> Weighted:
    """The mean of several forms; NaN where one of them is."""
    return lambda weights: np.asarray(np.mean([form(weights) for form in forms], axis=0))


def weighted_aurc(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """Mean over coverages of the risk of the kept, ties in the average order.

    Were every row an error, the sum of risks would be n: where errors are many, the right rows are counted and taken
    from that.
    """
    many = bool(wrong.mean() > 0.5)
    marks = ~wrong if many else wrong
    marked = Marked(ordered(scores), marks)
    tables = harmonic_sums(len(scores))

    def value(weights: Weights) -> FloatArray:
        most = round(float(weights.totals.max()))  # more than there are rows, where large groups were drawn often
        harmonic, sums = tables if most <= len(scores) else harmonic_sums(most)
        before, upto = marked.beside(weights.counts, most)
        past = sums.take(upto)
        past -= sums.take(before)
        tied = marked.tied  # a row alone in its block weighs as much as the block: nothing to share out
        size = upto[tied] - before[tied]
        past[tied] *= weights.counts.take(marked.rows[tied], axis=0) / np.maximum(size, 1)
        own = weights.sums(marks.astype(np.float64)) * harmonic[weights.totals.astype(np.int64)]
        area = (own - _down(past)) / weights.totals
        return 1.0 - area if many else area

    return value


def weighted_excess(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """The area of :func:`weighted_aurc` above that of the ideal order, all m errors last, never below zero.

    The ideal order has (1/n) Σ_{k>r} (k − r)/k = (m − r (H(n) − H(r))) / n, r = n − m.
    """
    form = weighted_aurc(scores, wrong)

    def value(weights: Weights) -> FloatArray:
        errors, totals = weights.sums(wrong.astype(np.float64)), weights.totals
        right = totals - errors
        harmonic, _ = harmonic_sums(round(float(totals.max())))
        tail = harmonic[totals.astype(np.int64)] - harmonic[right.astype(np.int64)]
        return np.maximum(form(weights) - (errors - right * tail) / totals, 0.0)

    return value


def weighted_augrc(scores: FloatArray, wrong: BoolArray) -> Weighted:
    """Area under the generalised risk–coverage curve, ties in the average order."""
    marked = Marked(ordered(scores), wrong)

    def value(weights: Weights) -> FloatArray:
        errors = weights.sums(wrong.astype(np.float64))
        return (errors * weights.totals - _halfway(marked, weights)) / np.square(weights.totals)

    return value


def harmonic_sums(count: int) -> tuple[FloatArray, FloatArray]:
    """H(m) and Σ_{j<m} H(j) for m = 0 … count."""
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, count + 1)))
    return harmonic, np.append(0.0, np.cumsum(harmonic[:-1]))


def _halfway(marked: Marked, weights: Weights) -> FloatArray:
    """Σ w (B + A)/2 over the marked rows: whole numbers and halves, exact as long as they are below 2⁵³."""
    before, upto = marked.beside(weights.counts, float(weights.totals.max()))
    before += upto
    own = weights.counts.take(marked.rows, axis=0)
    return np.asarray(np.einsum("ir,ir->r", before.astype(np.float64), own.astype(np.float64))) / 2


def _down(values: FloatArray) -> FloatArray:
    """Sums over rows; a product with ones takes a fifth of the time of a sum along the first axis."""
    return np.asarray(np.ones(len(values)) @ values)


def _ratio(parts: FloatArray, whole: FloatArray) -> FloatArray:
    """Parts of a whole; NaN where there is none."""
    return np.asarray(np.divide(parts, whole, out=np.full(len(parts), np.nan), where=whole > 0))
