"""Estimators: methods that are fitted by scikit-learn in seconds, stored as arrays, and predicted with numpy alone.

One protocol (:class:`Estimator`) serves the fit, its storage and its predictions: ``fit`` returns plain arrays, which
are stored like the weights of a network, and ``scores`` reads them back, so that neither a pickle nor an object of
scikit-learn is ever stored or needed again. An estimator sees the encoding of its inputs' modality and never the
network, so that tasks with several networks share its fit.

A class (label) without examples on both sides in the training split cannot be fitted. It gets its smoothed frequency,
and the others share what is left of the probability: no prediction is ever exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logit, logsumexp

from dubio.core.errors import UserError
from dubio.core.specs import describe, part
from dubio.core.types import FloatArray, IntArray, Modality, Split, Target, Task, class_frequencies
from dubio.encoders import Encoded, Encoding, TextEncoding, encoding_for
from dubio.methods.encoding_cache import encode

Arrays = dict[str, NDArray[Any]]
Stored = Mapping[str, NDArray[Any]]
Report = Callable[[float, str], None]

MOST_ROWS = 20_000
"""Largest number of training rows of an estimator, so that a fit takes seconds; of more, evenly spaced ones."""

NO_NETWORK = {"name": "none", "version": 1, "arguments": {}}
"""The network in the specification of an estimator's fit."""

FREQUENCIES, FITTED = "log_frequencies", "fitted"
"""The arrays of every fit: log frequencies (multi-label: log odds) ``[K]``, and which classes were fitted, ``[K]``."""


@dataclass(frozen=True)
class Labelled:
    """Encoded examples and their labels: class indices below ``classes``, or multi-hot ``[N, classes]``."""

    rows: Encoded
    labels: IntArray
    classes: int

    @property
    def multilabel(self) -> bool:
        """Whether an example may have several labels."""
        return self.labels.ndim == 2

    def losses(self, scores: FloatArray) -> FloatArray:
        """Return the negative log-likelihood of every example under ``scores [N, classes]``; multi-label: the sum."""
        if self.multilabel:
            return np.asarray(np.logaddexp(0.0, np.where(self.labels > 0, -scores, scores)).sum(axis=1))
        return np.asarray(-log_softmax(scores, axis=1)[np.arange(len(self.labels)), self.labels])


class Estimator:
    """The contract of estimators: frozen parts whose fields are their settings.

    Attributes:
        inputs: The modalities that it applies to.
        fits_classes: Whether it is fitted to the classes; if not, it predicts their frequencies.
        rate: Approximate seconds of a fit per training row and class, for forecasts.
    """

    inputs: ClassVar[tuple[Modality, ...]] = ("text", "image", "table")
    fits_classes: ClassVar[bool] = True
    rate: ClassVar[float] = 0.0

    def fit(self, train: Labelled, val: Labelled, report: Report) -> tuple[Arrays, dict[str, Any]]:
        """Return the arrays of a fit and facts for its record; settings are chosen by the NLL on ``val``.

        Args:
            train: At least two classes, each with an example; of a label, examples with and without it.
            val: Examples of the same classes; may be empty.
            report: Called with the fraction done and a short text.
        """
        raise NotImplementedError

    def scores(self, arrays: Stored, rows: Encoded) -> FloatArray:
        """Return the logits ``[N, classes]`` in float64 (multi-label: log odds) of the fitted classes."""
        raise NotImplementedError


@part("estimator-recipe")
@dataclass(frozen=True)
class EstimatorRecipe:
    """A method that is an estimator; to a runner it is a recipe of one training and one deterministic pass.

    Attributes:
        estimator: The estimator.
        name: Its name in a benchmark; not part of any identity.
        title: Its title in a report; not part of any identity.
    """

    members: ClassVar[int] = 1
    samples: ClassVar[int] = 0
    pooled: ClassVar[int] = 0
    most: ClassVar[int] = 0
    features: ClassVar[str] = ""
    start: ClassVar[None] = None
    views: ClassVar[None] = None

    estimator: Estimator
    name: str = ""
    title: str = ""

    def fit_part(self) -> EstimatorRecipe:
        """Return the recipe with only what affects the fit."""
        return replace(self, name="", title="")

    def encoding(self, inputs: Modality) -> Encoding:
        """Return the encoding of a modality; texts are never cut, and no word is too rare for the vocabulary.

        Raises:
            UserError: When the estimator does not apply to such inputs.
        """
        if inputs not in self.estimator.inputs:
            allowed = " and ".join(self.estimator.inputs)
            raise UserError(f"{self.name or 'this estimator'} is for {allowed} inputs; this task has {inputs} inputs.")
        if inputs == "text":
            return TextEncoding(vocabulary=100_000, min_frequency=1, max_length=1_000_000)
        return encoding_for(inputs, {})

    def spec_parts(self, inputs: Modality) -> dict[str, Any]:
        """Return its parts of a fit's specification: no network, no seed."""
        return {
            "encoding": describe(self.encoding(inputs)),
            "network": NO_NETWORK,
            "recipe": describe(self.fit_part()),
            "start": None,
            "seed": 0,
            "member": 0,
        }


def fit_estimator(
    estimator: Estimator, encoder: bytes, task: Task, train: Split, val: Split | None, report: Report
) -> tuple[Arrays, dict[str, Any]]:
    """Fit an estimator; return its arrays and the record.

    Args:
        estimator: The estimator.
        encoder: The canonical JSON of the encoder fitted on the training split.
        task: The task.
        train: Its training split.
        val: Its validation split, if it has one.
        report: Called with the fraction done and a short text.
    """
    labels, count, rows = train.data.labels, len(task.classes), encode(encoder, train)
    none = np.empty(0, dtype=np.int64)
    val_rows = (rows.take(none), labels[none]) if val is None else (encode(encoder, val), val.data.labels)
    chosen = np.unique(np.linspace(0, len(train) - 1, min(len(train), MOST_ROWS)).astype(np.int64))
    fitted = _fitted_classes(labels[chosen], count) & estimator.fits_classes
    arrays: Arrays = {FREQUENCIES: _log_frequencies(labels, count), FITTED: fitted}
    record: dict[str, Any] = {"parameters": count}
    if fitted.any():
        data = _labelled(rows.take(chosen), labels[chosen], fitted)
        val_data = _labelled(*val_rows, fitted)
        own, facts = estimator.fit(data, val_data, report)
        arrays |= own
        record = {"parameters": sum(array.size for array in own.values()), "rows": len(data.labels), **facts}
    every = _labelled(*val_rows, np.ones(count, dtype=bool))
    if len(every.labels):
        record["val_nll"] = float(every.losses(estimator_logits(estimator, arrays, every.rows, task.target)).mean())
    return arrays, record


def estimator_logits(estimator: Estimator, arrays: Stored, rows: Encoded, target: Target) -> FloatArray:
    """Return the logits ``[N, K]`` of a stored fit in float64; multi-label: log odds.

    With q the smoothed frequencies and F the fitted classes, a class outside F has probability q_k; a class of F has
    (1 − Σ q_j over j outside F) · p_k(x), where p is the estimator's distribution over F.
    """
    frequencies, fitted = arrays[FREQUENCIES], arrays[FITTED]
    logits: FloatArray = np.repeat(frequencies[None], len(rows), axis=0)
    if fitted.any():
        scores = estimator.scores(arrays, rows)
        if target != "multilabel":
            scores = log_softmax(scores, axis=1) + logsumexp(frequencies[fitted])
        logits[:, fitted] = scores
    return logits


def _log_frequencies(labels: IntArray, classes: int) -> FloatArray:
    frequencies = class_frequencies(labels, classes)
    return np.asarray(logit(frequencies) if labels.ndim == 2 else np.log(frequencies))


def _fitted_classes(labels: IntArray, classes: int) -> NDArray[np.bool_]:
    """Return which classes have examples on both sides, ``[K]``: others and own."""
    if labels.ndim == 2:
        return np.asarray((labels.min(axis=0) == 0) & (labels.max(axis=0) > 0))
    present = np.bincount(labels[labels >= 0], minlength=classes) > 0
    return present if present.sum() > 1 else np.zeros(classes, dtype=bool)


def _labelled(rows: Encoded, labels: IntArray, fitted: NDArray[np.bool_]) -> Labelled:
    """Return the examples of the fitted classes, with labels that count these classes alone."""
    if labels.ndim == 2:
        return Labelled(rows, labels[:, fitted], int(fitted.sum()))
    counted = (labels >= 0) & fitted[labels]
    index = np.cumsum(fitted) - 1
    return Labelled(rows if counted.all() else rows.take(counted), index[labels[counted]], int(fitted.sum()))
