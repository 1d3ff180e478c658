"""Recalibration class by class: vector scaling, and isotonic regression. Both give one pooled sample.

**Vector scaling** (Guo et al. 2017) has a weight and a bias per class, fitted by maximum likelihood. With z = log p̄
(multi-label: the log-odds), q = softmax(w ∘ z + c) (multi-label: σ(w ∘ z + c), Platt scaling of every label). The
likelihood is concave in (w, c); it is climbed with bounded L-BFGS from (1, 0), the predictions as they are, and so
never ends below where it began. Probabilities are floored at 1e-12, in the fit and when applied: a class ruled out
entirely has no log to scale. 2 K parameters overfit small sets: fit on a validation file, not on what is scored.

**Isotonic regression**, one against the rest (Zadrozny & Elkan 2002), has one map per class from p̄_k to the frequency
of class k: the best non-decreasing one, by pool-adjacent-violators. Rows are then normalised to sum to one (not of
several labels); a row that every map sends to zero becomes uniform. Equal probabilities share one value. Between the
fitted points a map is linear, beyond them constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy import optimize

from dubio.calibration.temperature import LARGEST_ODDS, LOG_FLOOR
from dubio.core.errors import UserError
from dubio.core.passes import log_sigmoid, log_softmax
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.core.validate import ASCENDING, RISING, Finite, Share, between, entries

WEIGHT_RANGE = (0.01, 100.0)
BIAS_RANGE = (-100.0, 100.0)

Coefficient = Annotated[float, between(-1e30, 1e30)]
"""Features are at most 28: what it gives fits into float32."""

Numbers = tuple[Finite, ...]


@dataclass(frozen=True)
class VectorScaling:
    """A weight and a bias per class."""

    weights: tuple[Coefficient, ...]
    biases: tuple[Coefficient, ...]

    @classmethod
    def fit(cls, rows: Predictions) -> VectorScaling:
        """Fit to labelled predictions by maximum likelihood."""
        features, classes = recalibration_features(rows), rows.class_count
        loss = _sigmoid_loss if rows.target == "multilabel" else _softmax_loss
        start = np.concatenate([np.ones(classes), np.zeros(classes)])
        bounds = [WEIGHT_RANGE] * classes + [BIAS_RANGE] * classes
        options = {"maxiter": 500, "ftol": 1e-12, "gtol": 1e-7}
        data = (features, rows.labels)
        optimum = optimize.minimize(loss, start, data, "L-BFGS-B", jac=True, bounds=bounds, options=options)
        best = optimum.x if optimum.fun <= loss(start, *data)[0] else start
        return cls(tuple(best[:classes].tolist()), tuple(best[classes:].tolist()))

    def apply(self, predictions: Predictions) -> Predictions:
        """Return recalibrated predictions of the same classes."""
        weights, biases = np.array(self.weights), np.array(self.biases)
        return _pooled_as(predictions, weights * recalibration_features(predictions) + biases)


def fit_intercepts(features: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Fit one b = 1/T and an intercept per class by maximum likelihood: vector scaling whose weights are equal.

    Args:
        features: As of :func:`recalibration_features`.
        labels: Class index ``[N]``, or 0 or 1 for each label ``[N, K]``.
    """
    classes = features.shape[1]

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        vector = np.concatenate([np.full(classes, parameters[0]), parameters[1:]])
        value, gradient = (_softmax_loss if labels.ndim == 1 else _sigmoid_loss)(vector, features, labels)
        return value, np.concatenate([[gradient[:classes].sum()], gradient[classes:]])

    start, bounds = np.zeros(1 + classes), [(0.0, WEIGHT_RANGE[1])] + [BIAS_RANGE] * classes
    optimum = optimize.minimize(loss, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 200})
    return float(optimum.x[0]), np.asarray(optimum.x[1:])


def recalibration_features(predictions: Predictions) -> FloatArray:
    """Return log p̄, or the log-odds of several labels, ``[N, K]``, floored as above."""
    if predictions.target == "multilabel":
        return np.clip(predictions.log_probs - predictions.log_complements, -LARGEST_ODDS, LARGEST_ODDS)
    return np.maximum(predictions.log_probs, LOG_FLOOR)


def _softmax_loss(parameters: FloatArray, features: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Return the mean negative log-likelihood and its gradient."""
    weights, biases = np.split(parameters, 2)
    logs = log_softmax(weights * features + biases)
    rows = np.arange(len(labels))
    residual = np.exp(logs)
    residual[rows, labels] -= 1.0
    return -float(logs[rows, labels].mean()), _gradient(residual, features)


def _sigmoid_loss(parameters: FloatArray, features: FloatArray, labels: IntArray) -> tuple[float, FloatArray]:
    """Return the mean over examples of the summed binary cross-entropies, and its gradient."""
    weights, biases = np.split(parameters, 2)
    odds = weights * features + biases
    value = -float(log_sigmoid(np.where(labels == 1, odds, -odds)).sum(axis=1).mean())
    return value, _gradient(np.exp(log_sigmoid(odds)) - labels, features)


def _gradient(residual: FloatArray, features: FloatArray) -> FloatArray:
    return np.concatenate([(residual * features).mean(axis=0), residual.mean(axis=0)])


def pool_adjacent_violators(means: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the non-decreasing values f with the least Σ_i w_i (f_i − m_i)²."""
    return np.asarray(optimize.isotonic_regression(means, weights=weights).x)


@dataclass(frozen=True)
class MonotoneMap:
    """A non-decreasing piecewise linear map, constant outside its knots."""

    knots: Annotated[Numbers, entries(1), RISING]
    values: Annotated[tuple[Share, ...], ASCENDING]

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.values):
            raise UserError(f"knots and values must have one length; given {len(self.knots)} and {len(self.values)}.")

    @classmethod
    def fit(cls, probabilities: FloatArray, outcomes: FloatArray) -> MonotoneMap:
        """Fit the non-decreasing map with the least squared error: minimise Σ_i (f(p_i) − o_i)² over such f.

        Args:
            probabilities: ``[N]``.
            outcomes: ``[N]``, 0 or 1.
        """
        knots, index, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
        means = np.bincount(index, weights=outcomes) / counts
        fitted = pool_adjacent_violators(means, counts.astype(np.float64))
        # inside a level only its ends matter for the interpolation
        ends = np.ones(len(knots), dtype=bool)
        ends[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
        return cls(tuple(knots[ends].tolist()), tuple(np.clip(fitted[ends], 0.0, 1.0).tolist()))

    def __call__(self, probabilities: FloatArray) -> FloatArray:
        """Return the map at these probabilities."""
        return np.asarray(np.interp(probabilities, self.knots, self.values))


@dataclass(frozen=True)
class IsotonicMaps:
    """One map per class."""

    maps: tuple[MonotoneMap, ...]

    @classmethod
    def fit(cls, rows: Predictions) -> IsotonicMaps:
        """Fit one map per class (label) against the rest to labelled predictions."""
        hot = rows.labels if rows.target == "multilabel" else np.equal.outer(rows.labels, np.arange(rows.class_count))
        columns = zip(rows.probs.T, hot.astype(np.float64).T, strict=True)
        return cls(tuple(MonotoneMap.fit(probabilities, outcomes) for probabilities, outcomes in columns))

    def apply(self, predictions: Predictions) -> Predictions:
        """Return recalibrated predictions of the same classes."""
        pairs = zip(self.maps, predictions.probs.T, strict=True)
        mapped = np.stack([monotone(column) for monotone, column in pairs], axis=1)
        with np.errstate(divide="ignore"):
            if predictions.target == "multilabel":
                largest = np.finfo(np.float32).max  # a frequency of one has infinite odds, which logits may not have
                return _pooled_as(predictions, np.minimum(np.log(mapped) - np.log1p(-mapped), largest))
            mapped[mapped.sum(axis=1) == 0.0] = 1.0
            return _pooled_as(predictions, np.log(mapped / mapped.sum(axis=1, keepdims=True)))


def _pooled_as(predictions: Predictions, logits: FloatArray) -> Predictions:
    """Return the same examples with one sample of other logits ``[N, K]``."""
    without: dict[str, Any] = {"member": None, "data_variance": None, "model_variance": None}
    return replace(predictions, logits=logits[None].astype(np.float32), temperature=1.0, **without)
