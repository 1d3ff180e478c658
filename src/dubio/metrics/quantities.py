"""The per-example uncertainty quantities (T §II-C, R eq. 2), by name.

``confidence`` and ``predictive_entropy`` belong to the pooled prediction and follow its temperature; the others
describe the samples as they were drawn. :func:`uncertainty` turns any of them so that higher means more uncertain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UnknownName, UserError
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Need
from dubio.metrics.decomposition import decompose
from dubio.metrics.needs import lacking
from dubio.metrics.outcomes import predicted_labels


@dataclass(frozen=True)
class Quantity:
    """A number a row that says how uncertain a prediction is.

    Attributes:
        name: What users write.
        compute: The quantity ``[N]`` as it is defined.
        higher_is_more_uncertain: False for ``confidence`` alone.
        needs: What the predictions must have.
        instead: Other needs that also suffice, where there are such.
        summary: One line.
    """

    name: str
    compute: Callable[[Predictions], FloatArray]
    higher_is_more_uncertain: bool = True
    needs: frozenset[Need] = frozenset()
    instead: frozenset[Need] = frozenset()
    summary: str = ""

    def why_not(self, predictions: Predictions) -> str | None:
        """Why the quantity is not defined for these predictions, as a clause, or None when it is."""
        reason = lacking(predictions, self.needs)
        if reason is None or (self.instead and lacking(predictions, self.instead) is None):
            return None
        return reason


def confidence(predictions: Predictions) -> FloatArray:
    """max_k p̄_k; multi-label: the mean of p̄ over the asserted labels (p̄ > 1/2), else the highest p̄."""
    if predictions.target != "multilabel":
        return predictions.summary.top
    return _mean_over_asserted(predictions, predictions.log_probs)


def doubt(predictions: Predictions) -> FloatArray:
    """1 − confidence, without losing digits where confidence is near one."""
    if predictions.target != "multilabel":
        return predictions.summary.complement
    return _mean_over_asserted(predictions, predictions.log_complements)


def _mean_over_asserted(predictions: Predictions, logs: FloatArray) -> FloatArray:
    asserted = predicted_labels(predictions)
    none = ~asserted.any(axis=1)
    # Without an asserted label the most probable one stands in; equally probable ones have the same value.
    asserted[none, predictions.log_probs[none].argmax(axis=1)] = True
    mean = np.empty(len(predictions))
    for rows in row_blocks(1, len(predictions), predictions.class_count):
        mean[rows] = (np.exp(logs[rows]) * asserted[rows]).sum(axis=1) / asserted[rows].sum(axis=1)
    return mean


def predictive_entropy(predictions: Predictions) -> FloatArray:
    """H(p̄) in nats; multi-label: Σ_k of the Bernoulli entropies of p̄_k."""
    if predictions.temperature == 1.0:
        return decompose(predictions).pooled_entropy
    entropy = np.empty(len(predictions))
    sides = [predictions.log_probs]
    if predictions.target == "multilabel":
        sides.append(predictions.log_complements)
    for rows in row_blocks(1, len(predictions), predictions.class_count):
        entropy[rows] = sum(-(np.exp(side[rows]) * np.maximum(side[rows], -1e4)).sum(axis=1) for side in sides)
    return entropy


def expected_entropy(predictions: Predictions) -> FloatArray:
    """mean_s H(p_s)."""
    return decompose(predictions).expected_entropy


def mutual_information(predictions: Predictions) -> FloatArray:
    """H(p̄) − mean_s H(p_s) ≥ 0, what the samples disagree on."""
    return decompose(predictions).mutual_information


def model_uncertainty(predictions: Predictions) -> FloatArray:
    """mean_k Var_s p_s,k; of a single draw from a GP head: the head's own variance."""
    if predictions.samples == 1 and predictions.model_variance is not None:
        return np.asarray(predictions.model_variance[0], dtype=np.float64)
    return decompose(predictions).sample_variance


def data_uncertainty(predictions: Predictions) -> FloatArray:
    """mean_s mean_k σ²_s,k of a heteroscedastic head."""
    variance = predictions.data_variance
    if variance is None:
        raise UserError("data_uncertainty cannot be computed: it needs data_variance.")
    mean = np.empty(len(predictions))
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        mean[rows] = variance[:, rows].mean(axis=(0, 2), dtype=np.float64)
    return mean


def total_variance(predictions: Predictions) -> FloatArray:
    """mean_k p̄_k(1 − p̄_k)."""
    return decompose(predictions).total_variance


def expected_variance(predictions: Predictions) -> FloatArray:
    """mean_s mean_k p_s,k(1 − p_s,k), the part of the total variance that no averaging removes."""
    return decompose(predictions).expected_variance


def random_scores(predictions: Predictions, *, seed: int = 0) -> FloatArray:
    """Independent uniform numbers: the control every quantity must beat. The only one that knows the order of rows."""
    return np.random.default_rng(seed).random(len(predictions))


_ALL = (
    Quantity("confidence", confidence, False, summary="The highest pooled probability (softmax score)."),
    Quantity("predictive_entropy", predictive_entropy, summary="Entropy of the pooled prediction."),
    Quantity("expected_entropy", expected_entropy, summary="Mean entropy of the samples."),
    Quantity(
        "mutual_information",
        mutual_information,
        needs=frozenset({"samples"}),
        summary="Entropy of the mean minus mean entropy: what samples disagree on.",
    ),
    Quantity(
        "model_uncertainty",
        model_uncertainty,
        needs=frozenset({"samples"}),
        instead=frozenset({"model_variance"}),
        summary="Variance of the probabilities between samples.",
    ),
    Quantity(
        "data_uncertainty",
        data_uncertainty,
        needs=frozenset({"data_variance"}),
        summary="Mean variance predicted by a heteroscedastic head.",
    ),
    Quantity("total_variance", total_variance, summary="Variance of the pooled prediction."),
    Quantity("expected_variance", expected_variance, summary="Mean variance of the samples' own predictions."),
    Quantity("random", random_scores, summary="Random numbers, as a control."),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ALL}


def quantity_named(name: str) -> Quantity:
    """The quantity of that name.

    Raises:
        UnknownName: With the nearest name, when there is none.
    """
    if name not in QUANTITIES:
        raise UnknownName("uncertainty quantity", name, QUANTITIES)
    return QUANTITIES[name]


def needs_with(name: str, *further: Need) -> frozenset[Need]:
    """What a metric needs that orders rows by this quantity; a quantity with alternatives checks them itself."""
    quantity = quantity_named(name)
    return frozenset(further) if quantity.instead else quantity.needs | frozenset(further)


def uncertainty(predictions: Predictions, name: str = "confidence", *, seed: int = 0) -> FloatArray:
    """A quantity turned so that higher means more uncertain, ``[N]``; ``confidence`` becomes 1 − confidence.

    Args:
        predictions: Any predictions.
        name: A name in :data:`QUANTITIES`.
        seed: Used by ``random`` alone.

    Raises:
        UnknownName: For an unknown quantity.
        UserError: When the predictions lack what it needs.
    """
    quantity = quantity_named(name)
    reason = quantity.why_not(predictions)
    if reason is not None:
        raise UserError(f"{name} cannot be computed: {reason}.")
    if name == "random":
        return random_scores(predictions, seed=seed)
    return doubt(predictions) if name == "confidence" else quantity.compute(predictions)


def applicable_quantities(predictions: Predictions) -> tuple[str, ...]:
    """The names of the quantities that these predictions have what it takes for, the control last."""
    return tuple(name for name, quantity in QUANTITIES.items() if quantity.why_not(predictions) is None)
