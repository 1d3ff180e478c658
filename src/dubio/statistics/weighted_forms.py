"""Which weighted form belongs to which registered metric.

A form is chosen by the metric's written name, such as ``ece(bins=10)``, and taken only if it gives the metric's own
value when every example counts once: a metric of the same name but another definition is never bootstrapped by the
wrong form.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from dubio.metrics.auc import LOG_ODDS, contests
from dubio.metrics.calibration_error import EDGE
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import confidence, uncertainty
from dubio.pooling import FloatArray
from dubio.statistics.weighted import (
    Weighted,
    weighted_augrc,
    weighted_aurc,
    weighted_auroc,
    weighted_bins,
    weighted_mean,
    weighted_precision,
)
from dubio.types import IntArray, Metric, Predictions


def weighted_form(metric: Metric, predictions: Predictions) -> Weighted | None:
    """The metric as a function of weights ``[R, N]``, or None where no form is known for it.

    Args:
        metric: Any metric.
        predictions: The examples that are weighted; all labelled where the metric needs labels.
    """
    name, _, told = metric.name.partition("(")
    build = _FORMS.get(name)
    if build is None or ("labels" in metric.needs and predictions.labelled is not predictions):
        return None
    pairs = (piece.partition("=") for piece in told.removesuffix(")").split(", ") if piece)
    try:
        form = build(predictions, **{key: json.loads(value) for key, _, value in pairs})
    except (TypeError, json.JSONDecodeError):  # arguments this form does not have: another metric's name
        return None
    once = float(form(np.ones((1, len(predictions))))[0])
    return form if np.isclose(once, metric.compute(predictions), rtol=1e-9, atol=1e-12, equal_nan=True) else None


def _aurc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "aurc")
    return weighted_aurc(uncertainty(known, quantity), ~correct(known))


def _au_arc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    form = _aurc(predictions, quantity=quantity)
    return lambda weights: 1.0 - form(weights)


def _augrc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "augrc")
    return weighted_augrc(uncertainty(known, quantity), ~correct(known))


def _misclassification_auroc(predictions: Predictions, *, quantity: str = "confidence") -> Weighted:
    known = labelled(predictions, "misclassification_auroc")
    return weighted_auroc(uncertainty(known, quantity), ~correct(known))


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
        columns = zip(known.probs.T, known.labels.T.astype(np.float64), strict=True)
        return weighted_bins([_binned(stated, truth, bins) for stated, truth in columns], bins)
    return weighted_bins([_binned(confidence(known), correct(known).astype(np.float64), bins)], bins)


def _binned(stated: FloatArray, truth: FloatArray, bins: int) -> tuple[IntArray, FloatArray]:
    """The equal-width, right-closed bin of every row, and how far truth lies above what was stated."""
    which = np.clip(np.ceil((stated - EDGE) * bins) - 1, 0, bins - 1).astype(np.int64)
    return which, truth - stated


_FORMS: dict[str, Callable[..., Any]] = {
    "aurc": _aurc,
    "au_arc": _au_arc,
    "augrc": _augrc,
    "misclassification_auroc": _misclassification_auroc,
    "ood_auroc": _ood_auroc,
    "ood_aupr": _ood_aupr,
    "id_aupr": _id_aupr,
    "class_auroc": _class_auroc,
    "ece": _ece,
}
