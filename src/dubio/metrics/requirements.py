"""Requirements: what predictions must have for a quantity or a metric to be defined, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Metric, Need


def _missing(predictions: Predictions, need: Need) -> str | None:
    """Return what is missing where predictions do not meet a need, as a clause; None where they do."""
    multilabel, labels = predictions.target == "multilabel", predictions.labels
    met: bool | np.bool_
    match need:
        case "labels":
            met, clause = multilabel or (labels >= 0).any(), "it needs labels, and every row is unlabelled"
        case "samples":
            met, clause = predictions.samples > 1, "it needs at least two samples, and there is one"
        case "ood":
            met = predictions.ood.any() and not predictions.ood.all()
            which = "out-of-distribution" if predictions.ood.any() else "in-distribution"
            clause = f"it needs both in- and out-of-distribution rows, and every row is {which}"
        case "two_classes" if multilabel:
            met = (labels.min(axis=0) != labels.max(axis=0)).any()
            clause = "it needs a label that some rows have and some do not have, and there is none"
        case "two_classes":
            met, clause = len(np.unique(labels[labels >= 0])) > 1, "it needs at least two classes among the labels"
        case "data_variance" | "model_variance":
            met, clause = getattr(predictions, need) is not None, f"it needs {need}"
        case "probs":  # every kind of predictions there is has probabilities of all classes
            return None
    return None if met else clause


def lacking(predictions: Predictions, needs: Iterable[Need]) -> str | None:
    """Return the first of these needs that the predictions do not meet, as a clause, or None when they meet all."""
    reasons = (_missing(predictions, need) for need in sorted(needs))
    return next((reason for reason in reasons if reason is not None), None)


def has_labels(predictions: Predictions) -> bool:
    """Return whether at least one row has a label."""
    return lacking(predictions, {"labels"}) is None


def why_not_applicable(metric: Metric, predictions: Predictions) -> str | None:
    """Return why a metric is not defined for these predictions, as a clause, or None when it is."""
    if predictions.target not in metric.targets:
        return f"it is defined for {', '.join(sorted(metric.targets))} predictions, and these are {predictions.target}"
    return lacking(predictions, metric.needs)


def require(predictions: Predictions, needs: Iterable[Need], name: str) -> None:
    """Refuse predictions that lack what is needed.

    Raises:
        UserError: Naming what needs it and what is missing.
    """
    reason = lacking(predictions, needs)
    if reason is not None:
        raise UserError(f"{name} cannot be computed: {reason}.")


def labelled(predictions: Predictions, name: str) -> Predictions:
    """Return the rows whose label is known.

    Args:
        predictions: Any predictions.
        name: What needs the labels, for the message.

    Raises:
        UserError: When no row has a label.
    """
    require(predictions, {"labels"}, name)
    return predictions.labelled
