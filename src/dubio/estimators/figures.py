"""Referral and detection by any uncertainty, an estimator's own included, as functions of bootstrap weights.

The metrics of the same names know the quantities that follow from predictions; here the uncertainty is a column. A
replicate counts every row as often as it was drawn; the rows kept at a fraction retained f are the
max(1, ⌊f n + 1/2⌋) least uncertain, a block of ties across the cut in equal parts. Referral at random, the control,
keeps the same share of every row: its expected accuracy is that of all rows whatever is retained, so that

    referral_gain = au_arc − accuracy        (mean over coverages of the accuracy of the kept, less that at random).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, Direction, FloatArray
from dubio.evaluation import Score
from dubio.metrics import ranking
from dubio.metrics.auc import LOG_ODDS, contests
from dubio.metrics.naming import written
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import QUANTITIES
from dubio.metrics.referral_curve import FRACTIONS
from dubio.statistics.bootstrap import percentile_interval, replicate
from dubio.statistics.resampling import Units, Weights
from dubio.statistics.weighted import Weighted, weighted_aurc, weighted_auroc, weighted_precision

OWN_MISTAKES = "Each system is judged on its own mistakes; it describes one system and ranks none."
CONFIDENCE = "confidence"

ROUNDING = 1e-12
"""Differences of means of zeros and ones below this are none."""


@dataclass(frozen=True, eq=False)
class Figure:
    """A number of one system on one set of rows.

    Attributes:
        name: As the metric of that sort is written.
        better: Which way is better.
        weighted: Weights of replicates to the value of each.
        comparable: Whether it may rank systems.
        why_not: Why it may not, in one sentence.
    """

    name: str
    better: Direction
    weighted: Weighted
    comparable: bool = True
    why_not: str = ""

    def value(self, rows: int) -> float:
        """On the rows as they are."""
        return float(self.weighted(Weights.of(np.ones((1, rows))))[0])


def scored(figures: Sequence[Figure], units: Units, *, replicates: int, level: float, seed: int) -> dict[str, Score]:
    """Every figure with its interval, from shared replicates.

    Args:
        figures: All on the same rows.
        units: What to resample.
        replicates: How often; 0 for no intervals.
        level: Confidence level.
        seed: Of the draws.
    """
    draws: Mapping[str, FloatArray] = {}
    if replicates and figures:
        forms = {figure.name: figure.weighted for figure in figures}
        draws = replicate(forms, units, replicates=replicates, seed=seed)
    scores = {}
    for figure in figures:
        value, low, high = figure.value(len(units.index)), float("nan"), float("nan")
        if figure.name in draws:
            interval = percentile_interval(value, draws[figure.name], level=level)
            low, high = interval.low, interval.high
        scores[figure.name] = Score(value, low, high, figure.better, figure.comparable, figure.why_not)
    return scores


def referral_figures(
    known: Predictions, uncertainty: FloatArray, quantity: str, fractions: Sequence[float] = FRACTIONS
) -> list[Figure]:
    """Accuracy (of a task with two sides also AUC) of the kept at every fraction; the area and its gain over random.

    Args:
        known: Labelled rows.
        uncertainty: ``[N]``, higher = referred first.
        quantity: What it is called.
        fractions: Fractions retained.
    """
    right = correct(known)
    area = weighted_aurc(uncertainty, ~right)
    figures = [
        Figure(
            referral_name("referral_accuracy", quantity, fraction),
            "higher",
            kept_accuracy(uncertainty, right, fraction),
        )
        for fraction in fractions
    ]
    questions = contests(known)
    if len(questions) == 1:
        _, scores, positive = questions[0]
        figures += [
            Figure(
                referral_name("referral_auc", quantity, fraction),
                "higher",
                kept_auc(uncertainty, scores, positive, fraction),
            )
            for fraction in fractions
        ]
    figures.append(Figure(quantity_name("au_arc", quantity), "higher", lambda weights: 1.0 - area(weights)))
    figures.append(
        Figure(
            quantity_name("referral_gain", quantity),
            "higher",
            _gain(area, right),
            comparable=False,
            why_not=OWN_MISTAKES,
        )
    )
    return figures


def _gain(area: Weighted, right: BoolArray) -> Weighted:
    """What the area above leaves of the accuracy of all rows; rounding, where all rows are tied, is no gain."""
    hits = right.astype(np.float64)

    def value(weights: Weights) -> FloatArray:
        gain = 1.0 - area(weights) - weights.sums(hits) / weights.totals
        return np.where(np.abs(gain) < ROUNDING, 0.0, gain)

    return value


def detection_figures(uncertainty: FloatArray, strange: BoolArray, quantity: str) -> list[Figure]:
    """How well an uncertainty tells strange rows from ordinary ones.

    Args:
        uncertainty: ``[N]``, higher = stranger.
        strange: ``[N]``, which rows are.
        quantity: What it is called; the correlation is that of the quantity as it is defined.
    """
    falls = quantity in QUANTITIES and not QUANTITIES[quantity].higher_is_more_uncertain
    sign, together = -1.0 if falls else 1.0, strange_correlation(uncertainty, strange)
    return [
        Figure(quantity_name("ood_auroc", quantity), "higher", weighted_auroc(uncertainty, strange)),
        Figure(quantity_name("ood_aupr", quantity), "higher", weighted_precision(uncertainty, strange)),
        Figure(quantity_name("id_aupr", quantity), "higher", weighted_precision(-uncertainty, ~strange)),
        Figure(quantity_name("ood_fpr95", quantity), "lower", strange_fpr(uncertainty, strange)),
        Figure(
            quantity_name("ood_correlation", quantity),
            "lower" if falls else "higher",
            lambda weights: sign * together(weights),
        ),
    ]


def quantity_name(metric: str, quantity: str) -> str:
    """How a metric of a quantity is written."""
    return written(metric, quantity=(quantity, CONFIDENCE))


def referral_name(metric: str, quantity: str, fraction: float) -> str:
    """How a referral metric of a quantity at a fraction retained is written."""
    return written(metric, quantity=(quantity, CONFIDENCE), retained=(fraction, 0.8))


def kept_accuracy(uncertainty: FloatArray, right: BoolArray, fraction: float) -> Weighted:
    """Accuracy of the kept, as a function of weights."""
    order = ranking.ordered(uncertainty)

    def value(weights: Weights) -> FloatArray:
        counts = weights.real[order.order]
        share, keep = _shares(np.add.reduceat(counts, order.starts, axis=0), weights.totals, fraction)
        hits = np.add.reduceat(counts * right[order.order, None], order.starts, axis=0)
        return np.asarray((share * hits).sum(axis=0) / keep)

    return value


def kept_auc(uncertainty: FloatArray, scores: FloatArray, positive: BoolArray, fraction: float) -> Weighted:
    """Area under the ROC curve of the kept, as a function of weights; NaN where they are of one side.

    Args:
        uncertainty: ``[N]``.
        scores: ``[N]`` log-odds of the positive side.
        positive: ``[N]``, which rows are on it.
        fraction: Retained.
    """
    order, places = ranking.ordered(uncertainty), ranking.ordered(scores, unit=LOG_ODDS)

    def value(weights: Weights) -> FloatArray:
        counts = weights.real
        blocks = np.add.reduceat(counts[order.order], order.starts, axis=0)
        share, _ = _shares(blocks, weights.totals, fraction)
        kept = np.empty_like(counts)
        kept[order.order] = counts[order.order] * share[order.block]
        sides = [kept * side[:, None] for side in (positive, ~positive)]
        ups, downs = (np.add.reduceat(side[places.order], places.starts, axis=0) for side in sides)
        pairs = ups.sum(axis=0) * downs.sum(axis=0)
        below = (ups * (np.cumsum(downs, axis=0) - downs / 2)).sum(axis=0)
        return np.asarray(np.divide(below, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))

    return value


def _shares(blocks: FloatArray, totals: FloatArray, fraction: float) -> tuple[FloatArray, FloatArray]:
    """How much of every block of ties is kept ``[B, R]``, and how many rows together ``[R]``.

    Args:
        blocks: ``[B, R]`` rows in every block of every replicate, the least uncertain first.
        totals: ``[R]`` rows of every replicate.
        fraction: Retained.
    """
    keep = np.maximum(1.0, np.floor(fraction * totals + 0.5))
    before = np.cumsum(blocks, axis=0) - blocks
    parts = np.divide(keep - before, blocks, out=np.zeros_like(blocks), where=blocks > 0)
    return np.clip(parts, 0.0, 1.0), keep


def strange_correlation(scores: FloatArray, flag: BoolArray) -> Weighted:
    """Signed point-biserial correlation, as a function of weights; NaN where the score or the flag does not vary."""
    varies = len(ranking.ordered(scores).starts) > 1
    centred = scores - scores.mean()
    scale = float(np.abs(centred).max())
    marks, moved = flag.astype(np.float64), centred / scale if scale > 0 else centred

    def value(weights: Weights) -> FloatArray:
        total, up, first = weights.totals, weights.sums(marks), weights.sums(moved)
        spread = total * weights.sums(moved * moved) - first * first
        product = spread * up * (total - up)
        defined = varies & (product > 0)
        shared = total * weights.sums(moved * marks) - first * up
        found = np.divide(shared, np.sqrt(np.abs(product)), out=np.full(len(total), np.nan), where=defined)
        return np.asarray(np.clip(found, -1.0, 1.0))

    return value


def strange_fpr(scores: FloatArray, flag: BoolArray, level: float = 0.95) -> Weighted:
    """Share of ordinary rows flagged where at least ``level`` of the strange ones are, as a function of weights."""
    order = ranking.ordered(-scores)

    def value(weights: Weights) -> FloatArray:
        counts, strange = weights.real[order.order], flag[order.order, None]
        ups = np.cumsum(np.add.reduceat(counts * strange, order.starts, axis=0), axis=0)
        downs = np.cumsum(np.add.reduceat(counts * ~strange, order.starts, axis=0), axis=0)
        # Counts are whole numbers: a hair of slack keeps level * total from missing its own count by rounding.
        first = np.argmax(ups >= level * ups[-1] - 1e-9, axis=0)
        flagged = np.take_along_axis(downs, first[None], axis=0)[0]
        both = (ups[-1] > 0) & (downs[-1] > 0)
        return np.asarray(np.divide(flagged, downs[-1], out=np.full(len(both), np.nan), where=both))

    return value
