"""Vector scaling: a weight and a bias per class, fitted by maximum likelihood (Guo et al. 2017).

With z = log p̄ (multi-label: the log-odds), q = softmax(w ∘ z + c) (multi-label: σ(w ∘ z + c), Platt scaling of every
label). The likelihood is concave in (w, c); it is climbed with bounded L-BFGS from (1, 0), the predictions as they are,
and so never ends below where it began. Probabilities are floored at 1e-12, in the fit and when applied: a class ruled
out entirely has no log to scale. 2 K parameters overfit small sets: fit on a validation file, not on what is scored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from dubio.calibration.temperature import FLOOR, LOG_FLOOR
from dubio.core.errors import UserError
from dubio.core.passes import log_sigmoid, log_softmax
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.requirements import labelled

WEIGHT_RANGE = (0.01, 100.0)
BIAS_RANGE = (-100.0, 100.0)


@dataclass(frozen=True, eq=False)
class VectorScaling:
    """A fitted vector scaling.

    Attributes:
        weights: ``[K]``.
        biases: ``[K]``.
        at_bound: Whether some parameter ended at the edge of its range: no optimum inside it.
        iterations: Steps of the optimiser.
        nll_before: Mean negative log-likelihood of the floored predictions as they were.
        nll_after: The same after scaling.
    """

    weights: FloatArray
    biases: FloatArray
    at_bound: bool
    iterations: int
    nll_before: float
    nll_after: float


def fit_vector(predictions: Predictions) -> VectorScaling:
    """Fit a weight and a bias per class to labelled predictions.

    Raises:
        UserError: When no example is labelled.
    """
    rows = labelled(predictions, "vector scaling")
    features, classes = _features(rows), rows.class_count
    loss = _sigmoid_loss if rows.target == "multilabel" else _softmax_loss
    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    bounds = [WEIGHT_RANGE] * classes + [BIAS_RANGE] * classes
    optimum = optimize.minimize(
        loss,
        start,
        args=(features, rows.labels),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 500, "ftol": 1e-12, "gtol": 1e-7},
    )
    before = float(loss(start, features, rows.labels)[0])
    best = optimum.x if optimum.fun <= before else start
    low, high = np.array(bounds).T
    return VectorScaling(
        weights=best[:classes],
        biases=best[classes:],
        at_bound=bool(((best <= low) | (best >= high)).any()),
        iterations=int(optimum.nit),
        nll_before=before,
        nll_after=min(before, float(optimum.fun)),
    )


def apply_vector(scaling: VectorScaling, predictions: Predictions) -> Predictions:
    """Return recalibrated predictions: one pooled sample.

    Raises:
        UserError: When the number of classes differs.
    """
    if predictions.class_count != len(scaling.weights):
        raise UserError(
            f"this scaling was fitted for {len(scaling.weights)} classes; "
            f"the predictions have {predictions.class_count}."
        )
    logits = scaling.weights * _features(predictions) + scaling.biases
    return pooled_as(predictions, logits)


def pooled_as(predictions: Predictions, logits: FloatArray) -> Predictions:
    """Return the same examples with one sample of other logits ``[N, K]``."""
    return replace(
        predictions,
        logits=logits[None].astype(np.float32),
        member=np.zeros(1, dtype=np.int64),
        temperature=1.0,
        data_variance=None,
        model_variance=None,
    )


def _features(predictions: Predictions) -> FloatArray:
    if predictions.target == "multilabel":
        limit = float(np.log1p(-FLOOR)) - LOG_FLOOR
        return np.clip(predictions.log_probs - predictions.log_complements, -limit, limit)
    return np.maximum(predictions.log_probs, LOG_FLOOR)


def _softmax_loss(parameters: FloatArray, features: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Return the mean negative log-likelihood and its gradient."""
    weights, biases = np.split(parameters, 2)
    logs = log_softmax(weights * features + biases)
    rows = np.arange(len(labels))
    value = -float(logs[rows, labels].mean())
    residual = np.exp(logs)
    residual[rows, labels] -= 1.0
    return value, np.concatenate([(residual * features).mean(axis=0), residual.mean(axis=0)])


def _sigmoid_loss(parameters: FloatArray, features: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Return the mean over examples of the summed binary cross-entropies, and its gradient."""
    weights, biases = np.split(parameters, 2)
    odds = weights * features + biases
    value = -float(log_sigmoid(np.where(labels == 1, odds, -odds)).sum(axis=1).mean())
    residual = np.exp(log_sigmoid(odds)) - labels
    return value, np.concatenate([(residual * features).mean(axis=0), residual.mean(axis=0)])
