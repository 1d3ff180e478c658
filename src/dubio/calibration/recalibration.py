"""A recalibration for deployment: fitted on a validation file, stored as JSON, applied to new predictions.

``temperature`` (one number) is the default and rarely hurts; ``vector`` (a weight and a bias per class) and
``isotonic`` (a monotone map per class) follow more and need more validation rows. The file is plain JSON with a schema
number; what is read from it is checked value by value, and nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from dubio.calibration.class_maps import IsotonicMaps, VectorScaling
from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.core.errors import UserError, one_of
from dubio.core.files import write_file
from dubio.core.predictions import LEAST_TEMPERATURE, Predictions, check_predictions
from dubio.core.types import Target
from dubio.core.validate import NonNegative, NullAs, Positive, at_least, document, encode, read_json
from dubio.metrics.requirements import labelled
from dubio.metrics.scoring import nll

Likelihood = Annotated[float, NullAs(math.inf)]
"""An infinite likelihood has no JSON number."""

RecalibrationMethod = Literal["temperature", "vector", "isotonic"]


@dataclass(frozen=True)
class TemperatureScaling:
    """One temperature; see :mod:`dubio.calibration.temperature`."""

    temperature: Annotated[float, at_least(LEAST_TEMPERATURE)]

    @classmethod
    def fit(cls, rows: Predictions) -> TemperatureScaling:
        """Fit to labelled predictions by maximum likelihood."""
        return cls(fit_temperature(rows).temperature)

    def apply(self, predictions: Predictions) -> Predictions:
        """Return tempered predictions, with all their samples."""
        return apply_temperature(predictions, self.temperature)


METHODS: dict[str, type[TemperatureScaling | VectorScaling | IsotonicMaps]] = {
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
    "isotonic": IsotonicMaps,
}


@dataclass(frozen=True)
class FittedOn:
    """The labelled predictions that a recalibration was fitted on.

    Attributes:
        rows: Their number.
        fingerprint: Hash of all predictions given, by which a later score on them is recognised.
        nll_before: Negative log-likelihood on them before.
        nll_after: And after; on other rows it may be higher.
    """

    rows: NonNegative
    fingerprint: str
    nll_before: Likelihood
    nll_after: Likelihood


@document("recalibration", schema=1)
@dataclass(frozen=True)
class Recalibration:
    """A fitted recalibration and what it was fitted on; its JSON form has the same fields.

    Attributes:
        method: Which one.
        target: The target it is for.
        classes: The number of classes it is for.
        names: The names of the classes, where known.
        parameters: The fit: a temperature, a vector scaling or one map per class.
        fitted_on: The validation predictions.
    """

    method: RecalibrationMethod
    target: Target
    classes: Positive
    names: tuple[str, ...] | None
    parameters: TemperatureScaling | VectorScaling | IsotonicMaps
    fitted_on: FittedOn

    def __post_init__(self) -> None:
        if self.names is not None and len(self.names) != self.classes:
            raise UserError(f"field 'names' must name {self.classes} classes; given {len(self.names)}.")
        if not isinstance(self.parameters, METHODS[self.method]):
            raise UserError(f"field 'parameters' is not that of the method {self.method}.")
        for numbers in vars(self.parameters).values():
            if isinstance(numbers, tuple) and len(numbers) != self.classes:
                raise UserError(f"field 'parameters' must have {self.classes} entries per list; given {len(numbers)}.")


def fit_recalibration(predictions: Predictions, method: RecalibrationMethod = "temperature") -> Recalibration:
    """Fit a recalibration to labelled validation predictions.

    Args:
        predictions: Labelled predictions that training has not seen and scoring will not see.
        method: ``temperature``, ``vector`` or ``isotonic``.

    Raises:
        UserError: When no row is labelled, or these are training rows.
    """
    one_of("method", method, METHODS)
    if predictions.kind == "train":
        raise UserError("a recalibration fitted on training rows learns how sure training made the model; "
                        "use a validation file.")  # fmt: skip
    rows = labelled(predictions, "a recalibration")
    parameters = METHODS[method].fit(rows)
    source = FittedOn(len(rows), fingerprint(predictions), nll(rows), nll(parameters.apply(rows)))
    return Recalibration(method, rows.target, rows.class_count, rows.classes, parameters, source)


def apply_recalibration(recalibration: Recalibration, predictions: Predictions) -> Predictions:
    """Return recalibrated predictions: tempered samples, or one pooled sample after vector scaling or isotonic maps.

    Raises:
        UserError: When target, number or names of classes differ from what it was fitted for.
    """
    check_predictions(predictions, "predictions")
    if predictions.target != recalibration.target:
        raise UserError(f"this recalibration is for {recalibration.target} predictions; "
                        f"these are {predictions.target}.")  # fmt: skip
    if predictions.class_count != recalibration.classes:
        raise UserError(f"this recalibration is for {recalibration.classes} classes; "
                        f"the predictions have {predictions.class_count}.")  # fmt: skip
    if None not in (recalibration.names, predictions.classes) and recalibration.names != predictions.classes:
        raise UserError("this recalibration is for classes of other names, or in another order.")
    return recalibration.parameters.apply(predictions)


def fitted_on(recalibration: Recalibration, predictions: Predictions) -> bool:
    """Whether these are the very predictions it was fitted on."""
    return fingerprint(predictions) == recalibration.fitted_on.fingerprint


def fingerprint(predictions: Predictions) -> str:
    """Return the SHA-256 of the pooled probabilities to six digits and the labels, whatever the order of rows."""
    labels = predictions.labels.reshape(len(predictions), -1)
    rows = np.concatenate([np.round(predictions.probs, 6) + 0.0, labels], axis=1).astype("<f8")
    digest = hashlib.sha256(str(rows.shape).encode())
    for row in sorted(hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in rows):
        digest.update(row)
    return digest.hexdigest()


def recalibration_to_json(recalibration: Recalibration) -> dict[str, Any]:
    """Return the recalibration as plain values."""
    plain: dict[str, Any] = encode(recalibration)
    return plain


def write_recalibration(path: Path, recalibration: Recalibration) -> None:
    """Write a recalibration as JSON.

    Raises:
        UserError: When it cannot be written.
    """
    text = json.dumps(recalibration_to_json(recalibration), indent=2, ensure_ascii=False, allow_nan=False)
    write_file(path, text + "\n")


def read_recalibration(path: Path) -> Recalibration:
    """Read a recalibration, checking every value.

    Raises:
        BadFile: When it is none, is damaged, or was written by a newer dubio.
    """
    return read_json(Recalibration, path)
