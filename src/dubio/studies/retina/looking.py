"""Looking at one run on one split: referral curves, ROC curves, and where its certainty lies."""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.calibration_error import ece
from dubio.metrics.decisions import binary_problems, correct, predicted, why_undefined
from dubio.metrics.quantities import confidence, extreme_rows, predictive_entropy
from dubio.metrics.referral_curve import (
    FRACTIONS,
    NHS_POINT,
    SLACK,
    RocCurve,
    best_sensitivity,
    referral_curve,
    retained_roc,
)
from dubio.metrics.selective import au_arc, referral_gain
from dubio.reporting.manifest_view import MethodRun
from dubio.reporting.measures import REFERRED_BY, RETAINED
from dubio.reporting.sections.referral import Curves
from dubio.statistics.bootstrap import Statistic, mean_statistic
from dubio.studies.retina.found import CLOUD_BINS, FALSE_ALARMS, ROC_AT, Exhibit, Retained

BINS = 15
"""Of the expected calibration error."""

SHOWN = 6
"""Examples of each sort in the gallery."""


def look(run: MethodRun, known: Predictions, curves: Curves | None) -> Retained:
    """Everything about one run on one split that tables and figures need.

    Args:
        run: Which run.
        known: Its labelled rows.
        curves: What is known already of its referral curves; None where nothing is.
    """
    if curves is not None and curves.auc is not None:
        accuracy, auc = curves.accuracy, curves.auc
    else:
        found = referral_curve(known, quantity=REFERRED_BY, fractions=tuple(RETAINED))
        accuracy, auc = found.accuracy, found.auc
    rocs = {fraction: roc_at(known, fraction) for fraction in sorted({*FRACTIONS, *ROC_AT})}
    drawn = {fraction: on_grid(curve) for fraction in ROC_AT if (curve := rocs[fraction]) is not None}
    reached = [rocs[fraction] for fraction in FRACTIONS]
    sensitivity = [np.nan if curve is None else best_sensitivity(curve, NHS_POINT[1]) for curve in reached]
    reason = why_undefined(binary_problems(known)) or ""
    return Retained(run, accuracy, auc, reason, drawn, np.array(sensitivity), cloud_of(known))


def roc_at(known: Predictions, fraction: float) -> RocCurve | None:
    """The ROC curve of the rows retained; None where they lie on one side."""
    try:
        return retained_roc(known, fraction=fraction, quantity=REFERRED_BY)
    except UserError:
        return None


def on_grid(curve: RocCurve) -> FloatArray:
    """The highest sensitivity at each false-positive rate of the grid; a step function, nothing is interpolated."""
    places = np.searchsorted(curve.false_positive_rate, FALSE_ALARMS + SLACK, side="right") - 1
    return np.asarray(np.maximum.accumulate(curve.true_positive_rate)[places])


def positive_probability(known: Predictions) -> FloatArray:
    """The probability of being positive, from the log-odds that ROC curves are of."""
    ((_, scores, _),) = binary_problems(known)
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -700, 700))))


def cloud_of(known: Predictions) -> FloatArray:
    """Predictive entropy against the probability of being positive, in bins, the right and the wrong apart."""
    chance, entropy, right = positive_probability(known), predictive_entropy(known), correct(known)
    which = np.minimum((chance * CLOUD_BINS).astype(np.int64), CLOUD_BINS - 1)
    return np.array(
        [
            [np.bincount(which[rows], values[rows], CLOUD_BINS) for values in (np.ones(len(known)), chance, entropy)]
            for rows in (right, ~right)
        ]
    )


def gain_statistics(known: Predictions) -> dict[str, Statistic]:
    """Area under the referral curve and its gain over random referral, as functions of weights."""
    return {
        "area": lambda weights: np.asarray(au_arc(known, quantity=REFERRED_BY, weights=weights)),
        "gain": lambda weights: np.asarray(referral_gain(known, quantity=REFERRED_BY, weights=weights)),
    }


def calibration_statistics(known: Predictions) -> dict[str, Statistic]:
    """Accuracy, expected calibration error and mean confidence minus accuracy, as functions of weights."""
    right, sure = correct(known).astype(np.float64), confidence(known)
    return {
        "accuracy": mean_statistic(right),
        "ece": lambda weights: np.asarray(ece(known, bins=BINS, weights=weights)),
        "excess": mean_statistic(sure - right),
    }


def exhibit(run: MethodRun, predictions: Predictions) -> Exhibit:
    """The most and least certain examples of a run."""
    found = extreme_rows(predictions, count=SHOWN, quantity=REFERRED_BY)
    return Exhibit(
        run, found, predictions.ids, predictions.labels, predicted(predictions), np.asarray(confidence(predictions))
    )
