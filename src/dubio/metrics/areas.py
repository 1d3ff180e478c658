"""Areas and rates of rankings, with rows counted by weights.

Every function takes rows in order of a score, some of them marked (the positives, the errors), and :class:`Weights` of
R replicates, and returns values ``[R]``. A value equals that of the rows repeated as often as they weigh, with the
blocks of ties that all rows have together. With w the weight of a row, B and A the weight in the blocks below its own
and up to the end of its own, n the weight of all rows, and sums over the marked rows (m their weight)::

    auroc      Σ w (B + A)/2 counts, ties half, what lies below each marked row, and m²/2 of it is marked itself:
               (Σ w (B + A)/2 − m²/2) / (m (n − m))
    precision  Σ w M/A / m, M the weight of the marked up to the end of the block, in descending order
    aurc       an error at position j adds Σ_{k=j..n} 1/k = H(n) − H(j − 1) to the sum of risks, H the harmonic numbers;
               over a block, the mean of that: (m H(n) − Σ w mean_{B≤j<A} H(j)) / n
    augrc      an error at position j is among the retained n − j + 1 times: (m n − Σ w (B + A)/2) / n²
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dubio.core.errors import UserError
from dubio.core.types import BoolArray, FloatArray
from dubio.core.weights import Values, Weights
from dubio.metrics.ranking import Marked, Ordering, ordered


def roc_area(marked: Marked, weights: Weights) -> Values:
    """Return the area under the ROC curve, ties counting one half; NaN where one side has no weight."""
    own = marked.total(weights)
    below = _halfway(marked, weights) - np.square(own) / 2
    area = ratio(below, own * (weights.totals - own))
    return 1.0 - area if marked.flipped else area


def auroc(scores: FloatArray, positive: BoolArray, weights: FloatArray | None = None, *, unit: float = 0.0) -> float:
    """Return the area under the ROC curve: the chance that a positive scores above a negative, ties counting one half.

    Args:
        scores: ``[N]``, higher = more likely positive.
        positive: ``[N]``, which rows are positive.
        weights: ``[N]``, how much each row counts; once by default.
        unit: As for :func:`dubio.metrics.ranking.ordered`.

    Returns:
        The area, or NaN where there is no positive or no negative.
    """
    counts = Weights.once(len(scores)) if weights is None else Weights(np.asarray(weights, dtype=np.float64)[:, None])
    return float(roc_area(Marked.fewer(scores, positive, unit=unit), counts)[0])


def precision_area(marked: Marked, weights: Weights) -> Values:
    """Return the average precision Σ_b (R_b − R_{b−1}) P_b over blocks of ties; NaN where one side has no weight.

    Args:
        marked: Positives marked, the highest score first (ordered by its negative).
        weights: Whole numbers.
    """
    own = marked.total(weights)
    _, up_to = marked.beside(weights)
    # A row without weight may lie before all that was drawn: there is nothing to divide by, and nothing to add.
    parts = marked.marked_up_to(weights) / np.maximum(up_to, 1)
    parts *= marked.own(weights)
    return np.where(own < weights.totals, ratio(_column_sums(parts), own), np.nan)


def average_precision(scores: FloatArray, positive: BoolArray) -> float:
    """Return the area under the precision–recall curve as average precision.

    Returns:
        The area, or NaN where there is no positive or no negative (the value would not say anything about scores).
    """
    return float(precision_area(Marked(ordered(-scores), positive), Weights.once(len(scores)))[0])


def false_positive_rate(marked: Marked, weights: Weights, level: float = 0.95) -> Values:
    """Return the lowest false-positive rate of a threshold whose true-positive rate is at least ``level``.

    A threshold never splits a block of ties and nothing is interpolated; NaN where one side has no weight.

    Args:
        marked: Positives marked, the highest score first (ordered by its negative).
        weights: Of the rows.
        level: The true-positive rate.
    """
    positive = marked.marks[:, None]
    ups = np.cumsum(marked.ordering.sums(weights.real * positive), axis=0)
    downs = np.cumsum(marked.ordering.sums(weights.real * ~positive), axis=0)
    # Counts are whole numbers: a little slack prevents level * total from missing its own count by rounding.
    first = np.argmax(ups >= level * ups[-1] - 1e-9, axis=0)
    flagged = np.take_along_axis(downs, first[None], axis=0)[0]
    return np.where(ups[-1] > 0, ratio(flagged, downs[-1]), np.nan)


def fpr_at_tpr(scores: FloatArray, positive: BoolArray, level: float = 0.95) -> float:
    """Return the false-positive rate where at least ``level`` of the positives score above the threshold."""
    return float(false_positive_rate(Marked(ordered(-scores), positive), Weights.once(len(scores)), level)[0])


def correlations(scores: FloatArray, flag: BoolArray, weights: Weights) -> Values:
    """Return the signed point-biserial (Pearson) correlation of a score with a flag; NaN where one does not vary."""
    varies = len(ordered(scores).starts) > 1
    centred = scores - scores.mean()
    scale = float(np.abs(centred).max())
    moved = centred / scale if scale > 0 else centred  # scaled: tiny scores must not underflow
    total, up, first = weights.totals, weights.sums(flag), weights.sums(moved)
    spread = total * weights.sums(moved * moved) - first * first
    product = spread * up * (total - up)
    shared = total * weights.sums(moved * flag) - first * up
    defined = varies & (product > 0)
    correlations = np.divide(shared, np.sqrt(np.abs(product)), out=np.full(len(total), np.nan), where=defined)
    return np.asarray(np.clip(correlations, -1.0, 1.0))


def correlation(scores: FloatArray, flag: BoolArray) -> float:
    """Return the signed point-biserial correlation in [−1, 1], or NaN where the score or the flag does not vary."""
    return float(correlations(np.asarray(scores, dtype=np.float64), flag, Weights.once(len(scores)))[0])


def risk_area(marked: Marked, weights: Weights) -> Values:
    """Return the area under the risk–coverage curve: the mean over coverages of the error of the retained.

    Were every row an error, the sum of risks would be n: where errors are many, the right rows are marked and counted.

    Args:
        marked: Errors, by uncertainty.
        weights: Whole numbers.
    """
    most = round(float(weights.totals.max()))  # more than there are rows, where large groups were drawn often
    harmonic, sums = harmonic_sums(most)
    before, up_to = marked.beside(weights)
    past = sums.take(up_to)
    past -= sums.take(before)
    tied = marked.tied  # a row alone in its block weighs as much as the block: nothing to share out
    if len(tied):
        past[tied] *= marked.own(weights)[tied] / np.maximum(up_to[tied] - before[tied], 1)
    own = marked.total(weights) * harmonic[weights.totals.astype(np.int64)]
    area = (own - _column_sums(past)) / weights.totals
    return 1.0 - area if marked.flipped else area


def area_under_risk(scores: FloatArray, wrong: BoolArray) -> float:
    """Return the area under the risk–coverage curve when the rows of highest score are rejected first."""
    return float(risk_area(Marked.fewer(scores, wrong), Weights.once(len(scores)))[0])


def excess_risk_area(marked: Marked, weights: Weights) -> Values:
    """Return the area of :func:`risk_area` above that of the ideal order, all m errors last, never below zero.

    The ideal order has (1/n) Σ_{k>r} (k − r)/k = (m − r (H(n) − H(r))) / n, r = n − m.
    """
    totals, own = weights.totals, marked.total(weights)
    errors = totals - own if marked.flipped else own
    right = totals - errors
    harmonic, _ = harmonic_sums(round(float(totals.max())))
    tail = harmonic[totals.astype(np.int64)] - harmonic[right.astype(np.int64)]
    return np.maximum(risk_area(marked, weights) - (errors - right * tail) / totals, 0.0)


def generalised_risk_area(marked: Marked, weights: Weights) -> Values:
    """Return the area under the generalised risk–coverage curve; of all rows together it is one half."""
    area = (marked.total(weights) * weights.totals - _halfway(marked, weights)) / np.square(weights.totals)
    return 0.5 - area if marked.flipped else area


def retained_weights(ordering: Ordering, weights: Weights, fraction: float) -> Weights:
    """Return the weights of what is retained of each row when the most uncertain rows are referred.

    A block of ties across the cut is retained in part, every row of it with the same share.

    Args:
        ordering: Rows by uncertainty.
        weights: Of all rows, whole numbers.
        fraction: Of n rows, the nearest whole number to fraction × n is retained (halves upwards), at least one.

    Raises:
        UserError: For a fraction that does not lie above 0 or exceeds 1.
    """
    if not 0 < fraction <= 1:
        raise UserError(f"fraction retained must lie above 0 and be at most 1; given {fraction}.")
    blocks = ordering.sums(weights.real)
    target = retained_count(weights.totals, fraction)
    before = np.cumsum(blocks, axis=0) - blocks
    shares = np.divide(target - before, blocks, out=np.zeros_like(blocks), where=blocks > 0)
    return weights.scaled(ordering.by_row(np.clip(shares, 0.0, 1.0)))


def retained_count(rows: FloatArray | int, fraction: FloatArray | float) -> FloatArray:
    """Return the number of rows retained: the nearest whole number to the fraction (halves upwards), at least one."""
    return np.maximum(1.0, np.floor(np.asarray(fraction) * rows + 0.5))


@lru_cache(maxsize=2)
def harmonic_sums(count: int) -> tuple[FloatArray, FloatArray]:
    """Return H(m) and Σ_{j<m} H(j) for m = 0 … count."""
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, count + 1)))
    return harmonic, np.append(0.0, np.cumsum(harmonic[:-1]))


def ratio(parts: FloatArray, totals: FloatArray) -> Values:
    """Return parts / totals; NaN where a total is zero."""
    return np.asarray(np.divide(parts, totals, out=np.full(len(parts), np.nan), where=totals > 0))


def _halfway(marked: Marked, weights: Weights) -> Values:
    """Return Σ w (B + A)/2 over the marked rows: whole numbers and halves, exact as long as they are below 2⁵³."""
    before, up_to = marked.beside(weights)
    before += up_to
    own = marked.own(weights)
    return np.asarray(np.einsum("ir,ir->r", before.astype(np.float64), own.astype(np.float64))) / 2


def _column_sums(values: FloatArray) -> Values:
    """Return sums over rows; of several columns, a product with ones takes a fifth of the time of a sum."""
    if values.shape[1] == 1:
        return np.asarray(values.sum(axis=0))
    return np.asarray(np.ones(len(values)) @ values)
