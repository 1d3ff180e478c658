"""The per-example uncertainty quantities (T §II-C, R eq. 2), by name.

======================  ================================================================================================
``confidence``          max_k p̄_k, the highest pooled probability (softmax score)
``predictive_entropy``  H(p̄), the entropy of the pooled prediction
``expected_entropy``    mean_s H(p_s), the mean entropy of the samples
``mutual_information``  H(p̄) − mean_s H(p_s) ≥ 0, what the samples disagree on
``model_uncertainty``   mean_k Var_s p_s,k, the variance between samples, or a GP head's own
``data_uncertainty``    mean_s mean_k σ²_s,k, the variance that a heteroscedastic head predicts
``total_variance``      mean_k p̄_k(1 − p̄_k), the variance of the pooled prediction
``expected_variance``   mean_s mean_k p_s,k(1 − p_s,k), the part of the total variance that no averaging removes
``random``              random numbers: the control that every quantity must beat
======================  ================================================================================================

``confidence`` and ``predictive_entropy`` belong to the pooled prediction and follow its temperature; the others
describe the samples as they were drawn. :func:`uncertainty` turns any of them so that higher means more uncertain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError, check_known
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray, Need
from dubio.metrics.decisions import correct, decided, labels_asserted
from dubio.metrics.decomposition import decompose
from dubio.metrics.requirements import lacking

Quantity = str
"""The name of an uncertainty quantity: a key of :data:`QUANTITIES`, or of the predictions' own ``scores``."""

CONFIDENCE: Quantity = "confidence"
"""The quantity that every metric orders rows by unless another is named."""


@dataclass(frozen=True)
class UncertaintyQuantity:
    """One number per row that says how uncertain a prediction is.

    Attributes:
        name: What users write.
        compute: The quantity ``[N]`` as it is defined.
        needs: What the predictions must have.
        instead: Other needs that also suffice, where there are such.
        higher_is_more_uncertain: False for ``confidence`` alone.
    """

    name: Quantity
    compute: Callable[[Predictions], FloatArray]
    needs: frozenset[Need] = frozenset()
    instead: frozenset[Need] = frozenset()
    higher_is_more_uncertain: bool = True

    def why_not(self, predictions: Predictions) -> str | None:
        """Return why the quantity is not defined for these predictions, as a clause, or None when it is."""
        reason = lacking(predictions, self.needs)
        if reason is None or (self.instead and lacking(predictions, self.instead) is None):
            return None
        return reason


def confidence(predictions: Predictions) -> FloatArray:
    """Return max_k p̄_k; multi-label: the mean of p̄ over the asserted labels (p̄ > 1/2), else the highest p̄."""
    if predictions.target != "multilabel":
        return predictions.summary.top
    return _over_asserted(predictions, predictions.log_probs)


def doubt(predictions: Predictions) -> FloatArray:
    """Return 1 − confidence, without losing digits where confidence is near one."""
    if predictions.target != "multilabel":
        return predictions.summary.complement
    return _over_asserted(predictions, predictions.log_complements)


def _over_asserted(predictions: Predictions, logs: FloatArray) -> FloatArray:
    yes, no, mean = predictions.log_probs, predictions.log_complements, np.empty(len(predictions))
    for rows in row_blocks(1, len(predictions), predictions.class_count):
        mean[rows] = mean_over_asserted(yes[rows], no[rows], logs[rows])
    return mean


def mean_over_asserted(yes: FloatArray, no: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the mean of exp(logs) over the labels asserted by log p̄ and log(1 − p̄), else the most probable one."""
    asserted = decided(labels_asserted(yes, no), yes, "argmax")
    return np.asarray((np.exp(logs) * asserted).sum(axis=1) / asserted.sum(axis=1))


def predictive_entropy(predictions: Predictions) -> FloatArray:
    """Return H(p̄) in nats; multi-label: Σ_k of the Bernoulli entropies of p̄_k."""
    if predictions.temperature == 1.0:
        return decompose(predictions).pooled_entropy
    entropy = np.empty(len(predictions))
    sides = [predictions.log_probs]
    if predictions.target == "multilabel":
        sides.append(predictions.log_complements)
    for rows in row_blocks(1, len(predictions), predictions.class_count):
        entropy[rows] = sum(-(np.exp(side[rows]) * np.maximum(side[rows], -1e4)).sum(axis=1) for side in sides)
    return entropy


def model_uncertainty(predictions: Predictions) -> FloatArray:
    """Return mean_k Var_s p_s,k; of a single draw from a GP head: the head's own variance."""
    if predictions.samples == 1 and predictions.model_variance is not None:
        return np.asarray(predictions.model_variance[0], dtype=np.float64)
    return decompose(predictions).sample_variance


def data_uncertainty(predictions: Predictions) -> FloatArray:
    """Return mean_s mean_k σ²_s,k of a heteroscedastic head."""
    variance = predictions.data_variance
    if variance is None:
        raise UserError("data_uncertainty cannot be computed: it needs data_variance.")
    mean = np.empty(len(predictions))
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        mean[rows] = variance[:, rows].mean(axis=(0, 2), dtype=np.float64)
    return mean


def random_scores(predictions: Predictions, *, seed: int = 0) -> FloatArray:
    """Return independent uniform numbers: the control that every quantity must beat.

    It is the only quantity that depends on the order of rows.
    """
    return np.random.default_rng(seed).random(len(predictions))


def _part(name: str) -> Callable[[Predictions], FloatArray]:
    """Return the quantity that is one part of the decomposition."""
    return lambda predictions: np.asarray(getattr(decompose(predictions), name))


_SAMPLES: frozenset[Need] = frozenset({"samples"})

_ALL = (
    UncertaintyQuantity(CONFIDENCE, confidence, frozenset({"probs"}), higher_is_more_uncertain=False),
    UncertaintyQuantity("predictive_entropy", predictive_entropy),
    UncertaintyQuantity("expected_entropy", _part("expected_entropy")),
    UncertaintyQuantity("mutual_information", _part("mutual_information"), _SAMPLES),
    UncertaintyQuantity("model_uncertainty", model_uncertainty, _SAMPLES, instead=frozenset({"model_variance"})),
    UncertaintyQuantity("data_uncertainty", data_uncertainty, frozenset({"data_variance"})),
    UncertaintyQuantity("total_variance", _part("total_variance")),
    UncertaintyQuantity("expected_variance", _part("expected_variance")),
    UncertaintyQuantity("random", random_scores),
)

QUANTITIES: dict[str, UncertaintyQuantity] = {quantity.name: quantity for quantity in _ALL}


def uncertainty(predictions: Predictions, name: Quantity = CONFIDENCE, *, seed: int = 0) -> FloatArray:
    """Return a quantity turned so that higher means more uncertain, ``[N]``; ``confidence`` becomes 1 − confidence.

    Args:
        predictions: Any predictions.
        name: A name in :data:`QUANTITIES`, or one of the system's own scores in the predictions.
        seed: Used by ``random`` alone.

    Raises:
        UnknownName: For an unknown quantity.
        UserError: When the predictions lack what it needs.
    """
    if name not in QUANTITIES:
        check_known("uncertainty quantity", [name], (*QUANTITIES, *predictions.scores))
        return predictions.scores[name]
    quantity = QUANTITIES[name]
    reason = quantity.why_not(predictions)
    if reason is not None:
        raise UserError(f"{name} cannot be computed: {reason}.")
    if name == "random":
        return random_scores(predictions, seed=seed)
    return doubt(predictions) if name == CONFIDENCE else quantity.compute(predictions)


def applicable_quantities(predictions: Predictions) -> tuple[Quantity, ...]:
    """Return the names of the quantities that are defined for these predictions: own scores first, the control last."""
    own = tuple(name for name in predictions.scores if name not in QUANTITIES)
    return own + tuple(name for name, quantity in QUANTITIES.items() if quantity.why_not(predictions) is None)


@dataclass(frozen=True, eq=False)
class Extremes:
    """The most and the least certain rows, among the right and among the wrong; each list begins with its extreme."""

    sure_right: IntArray
    sure_wrong: IntArray
    unsure_right: IntArray
    unsure_wrong: IntArray

    @property
    def rows(self) -> IntArray:
        """Return all of them, each once, in ascending order."""
        return np.unique(np.concatenate([self.sure_right, self.sure_wrong, self.unsure_right, self.unsure_wrong]))


def extreme_rows(predictions: Predictions, *, count: int, quantity: Quantity = "predictive_entropy") -> Extremes:
    """Return the labelled rows of highest and of lowest certainty, of equally certain ones the first.

    Where there are fewer than 2 · ``count`` right (or wrong) rows, the sure and the unsure share them.

    Args:
        predictions: Of any target; rows without a label are left out.
        count: The number of rows in each list.
        quantity: The measure of certainty.
    """
    rows = np.flatnonzero(np.ones(len(predictions)) if predictions.target == "multilabel" else predictions.labels >= 0)
    if len(rows) == 0:
        return Extremes(*(np.empty(0, dtype=np.int64) for _ in range(4)))
    labelled = predictions.labelled
    order = np.argsort(uncertainty(labelled, quantity), kind="stable")
    right = correct(labelled)[order]
    sides = [rows[order[right]], rows[order[~right]]]
    sure = [side[: min(count, (len(side) + 1) // 2)] for side in sides]
    unsure = [side[max(len(side) - count, (len(side) + 1) // 2) :][::-1] for side in sides]
    return Extremes(sure[0], sure[1], unsure[0], unsure[1])
