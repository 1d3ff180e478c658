"""Requirements: what predictions must have for a quantity or a metric to be defined, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Metric, Need


def _no_labels(predictions: Predictions) -> str | None:
    if predictions.target == "multilabel" or (predictions.labels >= 0).any():
        return None
    return "it needs labels, and every row is unlabelled"


def _no_samples(predictions: Predictions) -> str | None:
    return None if predictions.samples > 1 else "it needs at least two samples, and there is one"


def _no_ood(predictions: Predictions) -> str | None:
    flagged = int(predictions.ood.sum())
    if 0 < flagged < len(predictions):
        return None
    which = "in-distribution" if flagged == 0 else "out-of-distribution"
    return f"it needs both in- and out-of-distribution rows, and every row is {which}"


def _no_two_classes(predictions: Predictions) -> str | None:
    if predictions.target == "multilabel":
        mixed = (predictions.labels.min(axis=0) != predictions.labels.max(axis=0)).any()
        return None if mixed else "it needs a label that some rows have and some do not have, and there is none"
    labels = predictions.labels[predictions.labels >= 0]
    return None if len(np.unique(labels)) > 1 else "it needs at least two classes among the labels"


def _no_data_variance(predictions: Predictions) -> str | None:
    return "it needs data_variance" if predictions.data_variance is None else None


def _no_model_variance(predictions: Predictions) -> str | None:
    return "it needs model_variance" if predictions.model_variance is None else None


# "probs" has no check: every kind of predictions there is has probabilities of all classes.
_CHECKS: dict[Need, Callable[[Predictions], str | None]] = {
    "labels": _no_labels,
    "samples": _no_samples,
    "ood": _no_ood,
    "two_classes": _no_two_classes,
    "data_variance": _no_data_variance,
    "model_variance": _no_model_variance,
}


def lacking(predictions: Predictions, needs: Iterable[Need]) -> str | None:
    """Return the first of these needs that the predictions do not meet, as a clause, or None when they meet all."""
    for need in sorted(needs):
        reason = _CHECKS[need](predictions) if need in _CHECKS else None
        if reason is not None:
            return reason
    return None


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
