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
from typing import Any, Literal, get_args

import numpy as np

from dubio.calibration.isotonic import Isotonic, MonotoneMap, apply_isotonic, fit_isotonic
from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.calibration.vector import VectorScaling, apply_vector, fit_vector
from dubio.core.errors import BadFile, UserError, one_of
from dubio.core.files import write_file
from dubio.core.predictions import Predictions
from dubio.core.types import TARGETS, Target
from dubio.metrics.needs import labelled
from dubio.metrics.scoring import nll

SCHEMA = 1
"""Bumped by hand when a file written by this dubio can no longer be read by an older one."""

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
    known = labelled(predictions, "a recalibration")
    parameters: float | VectorScaling | Isotonic
    if method == "temperature":
        parameters = fit_temperature(known).temperature
    else:
        parameters = fit_vector(known) if method == "vector" else fit_isotonic(known)
    after = nll(_applied(parameters, known))
    return Recalibration(
        method,
        predictions.target,
        predictions.class_count,
        predictions.classes,
        parameters,
        len(known),
        fingerprint(predictions),
        nll(known),
        after,
    )


def apply_recalibration(recalibration: Recalibration, predictions: Predictions) -> Predictions:
    """Recalibrated predictions: tempered samples, or one pooled sample after vector scaling or isotonic maps.

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
    """SHA-256 of the pooled probabilities to six digits and the labels, whatever the order of rows."""
    rows = np.concatenate(
        [np.round(predictions.probs, 6) + 0.0, predictions.labels.reshape(len(predictions), -1)], axis=1
    ).astype("<f8")
    digest = hashlib.sha256(str(rows.shape).encode())
    for row in sorted(hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in rows):
        digest.update(row)
    return digest.hexdigest()


def recalibration_to_json(recalibration: Recalibration) -> dict[str, Any]:
    """The recalibration as plain values."""
    parameters = recalibration.parameters
    if isinstance(parameters, VectorScaling):
        told: dict[str, Any] = {"weights": parameters.weights.tolist(), "biases": parameters.biases.tolist()}
    elif isinstance(parameters, Isotonic):
        told = {"maps": [{"knots": each.knots.tolist(), "values": each.values.tolist()} for each in parameters.maps]}
    else:
        told = {"temperature": parameters}
    return {
        "dubio": "recalibration",
        "schema": SCHEMA,
        "method": recalibration.method,
        "target": recalibration.target,
        "classes": recalibration.classes,
        "names": None if recalibration.names is None else list(recalibration.names),
        "parameters": told,
        "fitted_on": {
            "rows": recalibration.rows,
            "fingerprint": recalibration.fingerprint,
            # an infinite likelihood has no JSON number
            "nll_before": recalibration.nll_before if math.isfinite(recalibration.nll_before) else None,
            "nll_after": recalibration.nll_after if math.isfinite(recalibration.nll_after) else None,
        },
    }


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
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise BadFile(f"{str(path)!r} cannot be read: {fault.strerror}.") from fault
    except (ValueError, RecursionError) as fault:
        raise BadFile(f"{str(path)!r} is not JSON.") from fault
    if not isinstance(document, dict) or document.get("dubio") != "recalibration":
        raise BadFile(f"{str(path)!r} is no recalibration; dubio calibrate fit makes one.")
    if type(document.get("schema")) is not int or document["schema"] > SCHEMA:
        raise BadFile(f"{str(path)!r} has schema {document.get('schema')!r}; this dubio reads up to {SCHEMA}.")
    try:
        return recalibration_from_json(document)
    except (KeyError, TypeError, ValueError) as fault:
        raise BadFile(f"{str(path)!r} is a damaged recalibration: {fault}") from fault


def recalibration_from_json(document: dict[str, Any]) -> Recalibration:
    """A recalibration from plain values.

    Raises:
        KeyError: For a value that is missing.
        TypeError: For one of another type.
        ValueError: For one that cannot be.
    """
    one_of("method", document["method"], METHODS)
    one_of("target", document["target"], TARGETS)
    classes, names, source = int(document["classes"]), document["names"], document["fitted_on"]
    if classes < 1 or (names is not None and len(names) != classes):
        raise ValueError(f"{classes} classes with the names {names}.")
    return Recalibration(
        document["method"],
        document["target"],
        classes,
        None if names is None else tuple(str(name) for name in names),
        _parameters(document["method"], document["parameters"], classes),
        int(source["rows"]),
        str(source["fingerprint"]),
        math.inf if source["nll_before"] is None else float(source["nll_before"]),
        math.inf if source["nll_after"] is None else float(source["nll_after"]),
    )


def _parameters(method: str, told: dict[str, Any], classes: int) -> float | VectorScaling | Isotonic:
    if method == "temperature":
        temperature = float(told["temperature"])
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite; given {temperature}.")
        return temperature
    if method == "vector":
        weights, biases = _numbers(told["weights"], classes), _numbers(told["biases"], classes)
        return VectorScaling(weights, biases, False, 0, math.nan, math.nan)
    maps = tuple(_map(each) for each in told["maps"])
    if len(maps) != classes:
        raise ValueError(f"{len(maps)} maps for {classes} classes.")
    return Isotonic(maps)


def _numbers(values: Any, count: int) -> Any:
    found = np.array(values, dtype=np.float64)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(f"{count} finite numbers are needed; given {values}.")
    return found


def _map(told: dict[str, Any]) -> MonotoneMap:
    knots, values = _numbers(told["knots"], len(told["knots"])), _numbers(told["values"], len(told["knots"]))
    if len(knots) == 0 or (np.diff(knots) <= 0).any() or (np.diff(values) < 0).any():
        raise ValueError("a map must have rising knots and values that do not fall.")
    if values[0] < 0 or values[-1] > 1:
        raise ValueError("the values of a map must lie between 0 and 1.")
    return MonotoneMap(knots, values)
