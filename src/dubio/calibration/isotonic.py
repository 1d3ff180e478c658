"""Isotonic recalibration: the best non-decreasing map from a probability to a frequency, by pool-adjacent-violators.

One against the rest (Zadrozny & Elkan 2002): one map per class from p̄_k to the frequency of class k, rows then
normalised to sum to one (multi-label: one map per label, no normalisation); a row that every map sends to zero becomes
uniform.

Equal probabilities share one value. Between the fitted points the map is linear, beyond them constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from dubio.calibration.vector import pooled_as
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.requirements import labelled


@dataclass(frozen=True, eq=False)
class MonotoneMap:
    """A non-decreasing piecewise linear map, constant outside its knots."""

    knots: FloatArray
    values: FloatArray

    def __call__(self, probabilities: FloatArray) -> FloatArray:
        """Return the map at these probabilities."""
        return np.asarray(np.interp(probabilities, self.knots, self.values))


@dataclass(frozen=True)
class Isotonic:
    """One map per class."""

    maps: tuple[MonotoneMap, ...]


def fit_map(probabilities: FloatArray, outcomes: FloatArray) -> MonotoneMap:
    """Fit the non-decreasing map with the least squared error: minimise Σ_i (f(p_i) − o_i)² over non-decreasing f.

    Args:
        probabilities: ``[N]``.
        outcomes: ``[N]``, 0 or 1.
    """
    knots, index, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    means = np.bincount(index, weights=outcomes) / counts
    fitted = optimize.isotonic_regression(means, weights=counts.astype(np.float64)).x
    # inside a level only its ends matter for the interpolation
    inner = np.zeros(len(knots), dtype=bool)
    inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return MonotoneMap(knots[~inner], np.clip(fitted[~inner], 0.0, 1.0))


def fit_isotonic(predictions: Predictions) -> Isotonic:
    """Fit one map per class (label) against the rest.

    Raises:
        UserError: When no example is labelled.
    """
    rows = labelled(predictions, "isotonic recalibration")
    hot = rows.labels if rows.target == "multilabel" else np.equal.outer(rows.labels, np.arange(rows.class_count))
    columns = zip(rows.probs.T, hot.astype(np.float64).T, strict=True)
    return Isotonic(tuple(fit_map(probabilities, outcomes) for probabilities, outcomes in columns))


def apply_isotonic(isotonic: Isotonic, predictions: Predictions) -> Predictions:
    """Return recalibrated predictions: one pooled sample.

    Raises:
        UserError: When the number of classes differs.
    """
    if predictions.class_count != len(isotonic.maps):
        raise UserError(
            f"this recalibration was fitted for {len(isotonic.maps)} classes; "
            f"the predictions have {predictions.class_count}."
        )
    pairs = zip(isotonic.maps, predictions.probs.T, strict=True)
    mapped = np.stack([monotone(column) for monotone, column in pairs], axis=1)
    with np.errstate(divide="ignore"):
        if predictions.target == "multilabel":
            largest = np.finfo(np.float32).max  # a frequency of one has infinite odds, which logits may not have
            return pooled_as(predictions, np.minimum(np.log(mapped) - np.log1p(-mapped), largest))
        mapped[mapped.sum(axis=1) == 0.0] = 1.0
        return pooled_as(predictions, np.log(mapped / mapped.sum(axis=1, keepdims=True)))
