"""A recalibration for deployment: fitted on a validation file, kept as JSON, applied to new predictions.

``temperature`` (one number) is the default and rarely hurts; ``vector`` (a weight and a bias a class) and ``isotonic``
(a monotone map a class) follow more and need more validation rows. The file is plain JSON with a schema number; what is
read from it is checked value by value, and nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np

from dubio.calibration.isotonic import Isotonic, MonotoneMap, apply_isotonic, fit_isotonic
from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.calibration.vector import VectorScaling, apply_vector, fit_vector
from dubio.core.errors import UserError, one_of
from dubio.core.files import write_file
from dubio.core.predictions import Predictions
from dubio.core.types import Target
from dubio.core.validate import (
    ASCENDING,
    RISING,
    Finite,
    NonNegative,
    NullAs,
    Positive,
    Share,
    above,
    document,
    encode,
    entries,
    read_json,
)
from dubio.metrics.requirements import labelled
from dubio.metrics.scoring import nll

Likelihood = Annotated[float, NullAs(math.inf)]
"""An infinite likelihood has no JSON number."""

RecalibrationMethod = Literal["temperature", "vector", "isotonic"]
METHODS: tuple[RecalibrationMethod, ...] = get_args(RecalibrationMethod)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A fitted recalibration and what it was fitted on.

    Attributes:
        method: Which one.
        target: The target it is for.
        classes: The number of classes it is for.
        names: The names of the classes, where known.
        parameters: The fit: a temperature, a vector scaling or one map a class.
        rows: Labelled rows it was fitted on.
        fingerprint: Hash of those predictions, to tell when they are scored with it.
        nll_before: Negative log-likelihood on them before.
        nll_after: And after; on other rows it may be higher.
    """

    method: RecalibrationMethod
    target: Target
    classes: int
    names: tuple[str, ...] | None
    parameters: float | VectorScaling | Isotonic
    rows: int
    fingerprint: str
    nll_before: float
    nll_after: float


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
    labelled_rows = labelled(predictions, "a recalibration")
    parameters: float | VectorScaling | Isotonic
    if method == "temperature":
        parameters = fit_temperature(labelled_rows).temperature
    else:
        parameters = fit_vector(labelled_rows) if method == "vector" else fit_isotonic(labelled_rows)
    after = nll(_applied(parameters, labelled_rows))
    return Recalibration(
        method,
        predictions.target,
        predictions.class_count,
        predictions.classes,
        parameters,
        len(labelled_rows),
        fingerprint(predictions),
        nll(labelled_rows),
        after,
    )


def apply_recalibration(recalibration: Recalibration, predictions: Predictions) -> Predictions:
    """Return recalibrated predictions: tempered samples, or one pooled sample after vector scaling or isotonic maps.

    Raises:
        UserError: When target, number or names of classes differ from what it was fitted for.
    """
    if predictions.target != recalibration.target:
        raise UserError(f"this recalibration is for {recalibration.target} predictions; "
                        f"these are {predictions.target}.")  # fmt: skip
    if predictions.class_count != recalibration.classes:
        raise UserError(f"this recalibration is for {recalibration.classes} classes; "
                        f"the predictions have {predictions.class_count}.")  # fmt: skip
    if None not in (recalibration.names, predictions.classes) and recalibration.names != predictions.classes:
        raise UserError("this recalibration is for classes of other names, or in another order.")
    return _applied(recalibration.parameters, predictions)


def _applied(parameters: float | VectorScaling | Isotonic, predictions: Predictions) -> Predictions:
    if isinstance(parameters, VectorScaling):
        return apply_vector(parameters, predictions)
    if isinstance(parameters, Isotonic):
        return apply_isotonic(parameters, predictions)
    return apply_temperature(predictions, parameters)


def fitted_on(recalibration: Recalibration, predictions: Predictions) -> bool:
    """Whether these are the very predictions it was fitted on."""
    return fingerprint(predictions) == recalibration.fingerprint


def fingerprint(predictions: Predictions) -> str:
    """Return the SHA-256 of the pooled probabilities to six digits and the labels, whatever the order of rows."""
    rows = np.concatenate(
        [np.round(predictions.probs, 6) + 0.0, predictions.labels.reshape(len(predictions), -1)], axis=1
    ).astype("<f8")
    digest = hashlib.sha256(str(rows.shape).encode())
    for row in sorted(hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in rows):
        digest.update(row)
    return digest.hexdigest()


Numbers = tuple[Finite, ...]


@dataclass(frozen=True)
class _Temperature:
    temperature: Annotated[float, above(0)]


@dataclass(frozen=True)
class _Vector:
    weights: Numbers
    biases: Numbers


@dataclass(frozen=True)
class _Map:
    knots: Annotated[Numbers, entries(1), RISING]
    values: Annotated[tuple[Share, ...], ASCENDING]

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.values):
            raise UserError(f"knots and values must have one length; given {len(self.knots)} and {len(self.values)}.")


@dataclass(frozen=True)
class _Maps:
    maps: tuple[_Map, ...]


@dataclass(frozen=True)
class _FittedOn:
    rows: NonNegative
    fingerprint: str
    nll_before: Likelihood
    nll_after: Likelihood


@document("recalibration", schema=1)
@dataclass(frozen=True)
class RecalibrationDocument:
    """The JSON form of a recalibration; ``parameters`` depend on the method."""

    method: RecalibrationMethod
    target: Target
    classes: Positive
    names: tuple[str, ...] | None
    parameters: _Temperature | _Vector | _Maps
    fitted_on: _FittedOn

    def __post_init__(self) -> None:
        if self.names is not None and len(self.names) != self.classes:
            raise UserError(f"field 'names' must name {self.classes} classes; given {len(self.names)}.")
        kinds = {"temperature": _Temperature, "vector": _Vector, "isotonic": _Maps}
        if not isinstance(self.parameters, kinds[self.method]):
            raise UserError(f"field 'parameters' is not that of the method {self.method}.")
        lists = () if isinstance(self.parameters, _Temperature) else encode(self.parameters).values()
        for numbers in lists:
            if len(numbers) != self.classes:
                raise UserError(f"field 'parameters' must have {self.classes} entries per list; given {len(numbers)}.")


def recalibration_to_json(recalibration: Recalibration) -> dict[str, Any]:
    """Return the recalibration as plain values."""
    fit = recalibration.parameters
    parameters: _Temperature | _Vector | _Maps
    if isinstance(fit, VectorScaling):
        parameters = _Vector(tuple(fit.weights.tolist()), tuple(fit.biases.tolist()))
    elif isinstance(fit, Isotonic):
        parameters = _Maps(tuple(_Map(tuple(item.knots.tolist()), tuple(item.values.tolist())) for item in fit.maps))
    else:
        parameters = _Temperature(fit)
    source = _FittedOn(recalibration.rows, recalibration.fingerprint, recalibration.nll_before, recalibration.nll_after)
    plain: dict[str, Any] = encode(
        RecalibrationDocument(
            recalibration.method,
            recalibration.target,
            recalibration.classes,
            recalibration.names,
            parameters,
            source,
        )
    )
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
    stored = read_json(RecalibrationDocument, path)
    fit: float | VectorScaling | Isotonic
    if isinstance(stored.parameters, _Temperature):
        fit = stored.parameters.temperature
    elif isinstance(stored.parameters, _Vector):
        weights, biases = np.array(stored.parameters.weights), np.array(stored.parameters.biases)
        fit = VectorScaling(weights, biases, False, 0, math.nan, math.nan)
    else:
        maps = stored.parameters.maps
        fit = Isotonic(tuple(MonotoneMap(np.array(item.knots), np.array(item.values)) for item in maps))
    source = stored.fitted_on
    return Recalibration(
        stored.method,
        stored.target,
        stored.classes,
        stored.names,
        fit,
        source.rows,
        source.fingerprint,
        source.nll_before,
        source.nll_after,
    )
