"""Area under the ROC curve of the classes themselves, and why it is undefined where it is.

Binary: of class 1. More classes and multi-label: one against the rest, averaged over classes. Ordinal: of P(grade ≥ 2),
or of the upper class where there are two. Undefined areas are NaN, with the reason beside them, never 0 or 1.
"""

from __future__ import annotations

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, Metric
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import class_scores, grade_scores
from dubio.metrics.ranking import auroc

LOG_ODDS = 1.0
"""Log-odds below one are compared absolutely: those of an even chance are zero but for rounding."""

REFERABLE = 2
"""The grade from which an eye is referred (R §2.1)."""


def contests(predictions: Predictions) -> list[tuple[str, FloatArray, BoolArray]]:
    """The two-sided questions whose areas are averaged: (what is positive, score ``[N]``, which rows are positive)."""
    count = predictions.class_count
    if predictions.target == "multilabel":
        return [
            (
                _called(predictions, k),
                predictions.log_probs[:, k] - predictions.log_complements[:, k],
                predictions.labels[:, k].astype(bool),
            )
            for k in range(count)
        ]
    if predictions.target == "ordinal" and count > REFERABLE:
        return [(f"grade >= {REFERABLE}", grade_scores(predictions, REFERABLE), predictions.labels >= REFERABLE)]
    return [
        (_called(predictions, k), class_scores(predictions, k), predictions.labels == k)
        for k in ((1,) if count == 2 else range(count))
    ]


def area(found: list[tuple[str, FloatArray, BoolArray]], weights: FloatArray | None = None) -> tuple[float, str | None]:
    """(mean area over the contests, None), or (NaN, why it is undefined).

    Args:
        found: From :func:`contests`.
        weights: ``[N]``, how much each row counts.
    """
    areas = []
    for what, scores, positive in found:
        here = positive if weights is None else positive[weights > 0]
        if here.all() or not here.any():
            return float("nan"), f"every row {'is' if here.all() else 'is other than'} {what}"
        areas.append(auroc(scores, positive, weights, unit=LOG_ODDS))
    return float(np.mean(areas)), None


def class_auroc(predictions: Predictions) -> float:
    """The area for labelled rows; NaN where a class is absent or alone."""
    known = labelled(predictions, "class_auroc")
    return area(contests(known))[0] if known.class_count > 1 or known.target == "multilabel" else float("nan")


def _called(predictions: Predictions, index: int) -> str:
    return f"class {predictions.classes[index]!r}" if predictions.classes else f"class {index}"


@metric("class_auroc")
def class_auroc_metric() -> Metric:
    """AUROC of the classes: of class 1, of P(grade ≥ 2), or one against the rest averaged."""
    return Metric(
        "class_auroc",
        "higher",
        class_auroc,
        needs=frozenset({"labels", "two_classes"}),
        summary="Telling the classes apart: AUROC.",
    )
