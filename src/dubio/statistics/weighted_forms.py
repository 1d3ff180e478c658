"""Which weighted form belongs to which registered metric.

A form is chosen by the metric's written name, such as ``ece(bins=10)``, and taken only if it gives the metric's own
value when every example counts once: a metric of the same name but another definition is never bootstrapped by the
wrong form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dubio.calibration.cross_validation import REPEATS
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Metric
from dubio.metrics.auc import LOG_ODDS, contests
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct, predicted
from dubio.metrics.quantities import confidence, uncertainty
from dubio.statistics.resampling import Weights
from dubio.statistics.weighted import (
    Weighted,
    weighted_augrc,
    weighted_aurc,
    weighted_auroc,
    weighted_excess,
    weighted_mean,
    weighted_precision,
)
from dubio.statistics.weighted_bins import Column, weighted_masses, weighted_widths
from dubio.statistics.weighted_calibration import weighted_calibrated_aurc


def weighted_form(metric: Metric, predictions: Predictions) -> Weighted | None:
    """The metric as a function of weights, or None where no form is known for it.

    Args:
        metric: Any metric.
        predictions: The examples that are weighted; all labelled where the metric needs labels.
    """
    name, _, told = metric.name.partition("(")
    build = _FORMS.get(name)
    if build is None or ("labels" in metric.needs and predictions.labelled is not predictions):
        return None
    point = metric.compute(predictions)  # first: it refuses by name what it cannot be computed from
    pairs = (piece.partition("=") for piece in told.removesuffix(")").split(", ") if piece)
    try:
        form = build(predictions, **{key: json.loads(value) for key, _, value in pairs})
    except (TypeError, json.JSONDecodeError):  # arguments this form does not have: another metric's name
        return None
    except UserError:  # a metric that is undefined where its form is refused
        return None
    once = float(form(Weights.of(np.ones((1, len(predictions)))))[0])
    return form if np.isclose(once, point, rtol=1e-9, atol=1e-12, equal_nan=True) else None


def _aurc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "aurc")
    return weighted_aurc(uncertainty(known, quantity), ~correct(known))


def _au_arc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    form = _aurc(predictions, quantity=quantity)
    return lambda weights: 1.0 - form(weights)


def _referral_gain(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    area, right = _au_arc(predictions, quantity=quantity), correct(labelled(predictions, "referral_gain")).astype(float)
    return lambda weights: area(weights) - weights.sums(right) / weights.totals


def _augrc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "augrc")
    return weighted_augrc(uncertainty(known, quantity), ~correct(known))


def _e_aurc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "e_aurc")
    return weighted_excess(uncertainty(known, quantity), ~correct(known))


def _calibrated_aurc(predictions: Predictions, *, repeats: int = REPEATS, seed: int = 0) -> Weighted:
    return weighted_calibrated_aurc(labelled(predictions, "calibrated_aurc"), repeats=repeats, seed=seed)


def _misclassification_auroc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "misclassification_auroc")
    return weighted_auroc(uncertainty(known, quantity), ~correct(known))


def _misclassification_aupr(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "misclassification_aupr")
    return weighted_precision(uncertainty(known, quantity), ~correct(known))


def _ood_auroc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    return weighted_auroc(uncertainty(predictions, quantity), predictions.ood)


def _ood_aupr(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    return weighted_precision(uncertainty(predictions, quantity), predictions.ood)


def _id_aupr(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    return weighted_precision(-uncertainty(predictions, quantity), ~predictions.ood)


def _class_auroc(predictions: Predictions) -> Weighted:
    questions = contests(labelled(predictions, "class_auroc"))
    return weighted_mean([weighted_auroc(scores, positive, unit=LOG_ODDS) for _, scores, positive in questions])


def _ece(predictions: Predictions, *, bins: int = 15) -> Weighted:
    known = labelled(predictions, "ece")
    if known.target == "multilabel":
        return _classwise_ece(predictions, bins=bins)
    return weighted_widths(*_decisions(known), bins)


def _ece_pooled(predictions: Predictions, *, bins: int = 15) -> Weighted:
    known = labelled(predictions, "ece_pooled")
    return weighted_widths(known.probs, known.labels.astype(np.float64), bins)


def _classwise_ece(predictions: Predictions, *, bins: int = 15) -> Weighted:
    known = labelled(predictions, "classwise_ece")
    return weighted_mean([weighted_widths(stated, truth, bins) for stated, truth in _columns(known)])


def _ece_adaptive(predictions: Predictions, *, bins: int = 15) -> Weighted:
    known = labelled(predictions, "ece_adaptive")
    if known.target == "multilabel":
        return _ace(predictions, bins=bins)
    return weighted_masses([Column.of(*_decisions(known))], bins)


def _ace(predictions: Predictions, *, bins: int = 15) -> Weighted:
    known = labelled(predictions, "ace")
    return weighted_masses([Column.of(stated, truth) for stated, truth in _columns(known)], bins)


def _tace(predictions: Predictions, *, bins: int = 15, threshold: float = 1e-3) -> Weighted:
    known = labelled(predictions, "tace")
    return weighted_masses([Column.of(stated, truth, stated > threshold) for stated, truth in _columns(known)], bins)


def _macro_f1(predictions: Predictions) -> Weighted:
    """Of classes alone: of several labels at once the plain way is taken."""
    known = labelled(predictions, "macro_f1")
    if known.target == "multilabel":
        raise TypeError("a form for classes")
    chosen, truth, classes = predicted(known), known.labels, known.class_count
    right = chosen == truth

    def form(weights: Weights) -> FloatArray:
        found = np.empty(len(weights))
        for place, each in enumerate(weights.real.T):
            hits = np.bincount(truth[right], weights=each[right], minlength=classes)
            said = np.bincount(chosen, weights=each, minlength=classes) + np.bincount(truth, each, classes)
            found[place] = np.mean(2 * hits[said > 0] / said[said > 0])
        return found

    return form


def _decisions(known: Predictions) -> tuple[FloatArray, FloatArray]:
    return confidence(known), correct(known).astype(np.float64)


def _columns(known: Predictions) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Every class's stated probability, and whether it is the class (one of the labels)."""
    for k in range(known.class_count):
        truth = known.labels[:, k] if known.target == "multilabel" else known.labels == k
        yield np.ascontiguousarray(known.probs[:, k]), truth.astype(np.float64)


_FORMS: dict[str, Callable[..., Any]] = {
    "macro_f1": _macro_f1,
    "aurc": _aurc,
    "au_arc": _au_arc,
    "referral_gain": _referral_gain,
    "e_aurc": _e_aurc,
    "augrc": _augrc,
    "calibrated_aurc": _calibrated_aurc,
    "misclassification_auroc": _misclassification_auroc,
    "misclassification_aupr": _misclassification_aupr,
    "ood_auroc": _ood_auroc,
    "ood_aupr": _ood_aupr,
    "id_aupr": _id_aupr,
    "class_auroc": _class_auroc,
    "ece": _ece,
    "ece_pooled": _ece_pooled,
    "ece_adaptive": _ece_adaptive,
    "classwise_ece": _classwise_ece,
    "sce": _classwise_ece,
    "ace": _ace,
    "tace": _tace,
}
