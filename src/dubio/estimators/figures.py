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
from functools import partial

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.types import BoolArray, Direction, FloatArray, Metric
from dubio.core.weights import Weights
from dubio.evaluation import Score
from dubio.metrics.areas import (
    correlations,
    false_positive_rate,
    precision_area,
    retained_weights,
    risk_area,
    roc_area,
)
from dubio.metrics.decisions import LOG_ODDS, binary_problems, correct
from dubio.metrics.quantities import QUANTITIES
from dubio.metrics.ranking import Marked, ordered
from dubio.metrics.referral_curve import FRACTIONS
from dubio.statistics.bootstrap import Statistic, Units, percentile_interval, replicate

OWN_MISTAKES = "Each system is judged on its own mistakes; it describes one system and ranks none."

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
    weighted: Statistic
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
    area = partial(risk_area, Marked.fewer(uncertainty, ~right))
    figures = [
        Figure(
            referral_name("referral_accuracy", quantity, fraction),
            "higher",
            kept_accuracy(uncertainty, right, fraction),
        )
        for fraction in fractions
    ]
    questions = binary_problems(known)
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


def _gain(area: Statistic, right: BoolArray) -> Statistic:
    """What the area above leaves of the accuracy of all rows; rounding, where all rows are tied, is no gain."""
    hits = right.astype(np.float64)

    def value(weights: Weights) -> FloatArray:
        gain = 1.0 - area(weights) - weights.mean(hits)
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
    sign = -1.0 if falls else 1.0
    first = Marked(ordered(-uncertainty), strange)
    forms: list[tuple[str, Direction, Statistic]] = [
        ("ood_auroc", "higher", partial(roc_area, Marked.fewer(uncertainty, strange))),
        ("ood_aupr", "higher", partial(precision_area, first)),
        ("id_aupr", "higher", partial(precision_area, Marked(ordered(uncertainty), ~strange))),
        ("ood_fpr95", "lower", partial(false_positive_rate, first)),
        (
            "ood_correlation",
            "lower" if falls else "higher",
            lambda weights: sign * correlations(uncertainty, strange, weights),
        ),
    ]
    return [Figure(quantity_name(name, quantity), better, form) for name, better, form in forms]


def quantity_name(metric: str, quantity: str) -> str:
    """Return how a metric of a quantity is written."""
    named: Metric = METRICS.make(metric, quantity=quantity)
    return named.name


def referral_name(metric: str, quantity: str, fraction: float) -> str:
    """Return how a referral metric of a quantity at a fraction retained is written."""
    named: Metric = METRICS.make(metric, quantity=quantity, retained=fraction)
    return named.name


def kept_accuracy(uncertainty: FloatArray, right: BoolArray, fraction: float) -> Statistic:
    """Accuracy of the kept, as a function of weights."""
    ordering = ordered(uncertainty)
    return lambda weights: retained_weights(ordering, weights, fraction).mean(right)


def kept_auc(uncertainty: FloatArray, scores: FloatArray, positive: BoolArray, fraction: float) -> Statistic:
    """Area under the ROC curve of the kept, as a function of weights; NaN where they are of one side.

    Args:
        uncertainty: ``[N]``.
        scores: ``[N]`` log-odds of the positive side.
        positive: ``[N]``, which rows are on it.
        fraction: Retained.
    """
    ordering, ranks = ordered(uncertainty), Marked.fewer(scores, positive, unit=LOG_ODDS)
    return lambda weights: roc_area(ranks, retained_weights(ordering, weights, fraction))
