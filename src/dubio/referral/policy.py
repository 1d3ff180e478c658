"""A referral policy as a value, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Literal, get_args

from dubio.core.errors import BadFile, nearest
from dubio.core.types import KINDS, TARGETS, Target
from dubio.metrics.quantities import QUANTITIES

PolicyKind = Literal["risk", "capacity", "screening"]

SELECTED = ("train", "val")
"""Kinds of split that training or selection has used."""

FORMAT = "referral policy"
SCHEMA = 1
"""Bumped by hand when a policy written by this dubio can no longer be read by an older one."""


@dataclass(frozen=True)
class Policy:
    """Which predictions to keep: those whose uncertainty is at most the threshold.

    Attributes:
        kind: What it promises: a bound on the error, a capacity, or sensitivity and specificity.
        quantity: The uncertainty it refers by.
        threshold: Kept if uncertainty ≤ threshold; infinite where everything is kept.
        confidence: Probability, over calibration sets, that the guarantee holds.
        goals: What was asked for, by name: ``max_risk``, ``capacity``, ``sensitivity``, ``specificity``.
        positive: Index of the positive class of a screening policy.
        guarantee: The promise, in words.
        evidence: Figures of the calibration set it rests on, by name.
        notes: What a reader must know of it, a sentence each.
        target: What is predicted.
        class_count: Number of classes.
        classes: Their names, where known.
        temperature: Of the calibration predictions.
        samples: How many samples those had.
        grouped: Whether groups were the independent units.
        split: The kind of split it was fitted on, where known.
        seen: Uncertainties of independent calibration rows, ascending, for the test of shift.
    """

    kind: PolicyKind
    quantity: str
    threshold: float
    confidence: float
    goals: Mapping[str, float]
    positive: int | None
    guarantee: str
    evidence: Mapping[str, float]
    notes: tuple[str, ...]
    target: Target
    class_count: int
    classes: tuple[str, ...] | None
    temperature: float
    samples: int
    grouped: bool
    split: str | None
    seen: tuple[float, ...]

    @property
    def void(self) -> bool:
        """Whether it was fitted, by force, on a split that training or selection has used, and promises nothing."""
        return self.split in SELECTED

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a threshold of null keeps everything."""
        threshold = None if self.threshold == inf else self.threshold
        return {"dubio": FORMAT, "schema": SCHEMA, **asdict(self), "threshold": threshold}

    def to_json(self) -> str:
        """The policy as one JSON document."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, name: str = "policy") -> Policy:
        """Read a policy, checking every field.

        Args:
            text: JSON.
            name: What to call it in a refusal, e.g. the file's path.

        Raises:
            BadFile: Naming the field that is missing, unknown or not what it must be.
        """
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as fault:
            raise BadFile(f"{name} is not JSON: {fault}") from fault
        if not isinstance(document, dict) or document.get("dubio") != FORMAT:
            raise BadFile(f"{name} is not a {FORMAT} of dubio.")
        schema = document.pop("schema", None)
        if schema != SCHEMA:
            raise BadFile(f"{name} has schema {schema!r}; this dubio reads {SCHEMA}.")
        del document["dubio"]
        _check_fields(document, name)
        lists = {key: tuple(document[key]) for key in ("notes", "seen")}
        names = None if document["classes"] is None else tuple(document["classes"])
        threshold = inf if document["threshold"] is None else float(document["threshold"])
        return cls(**{**document, **lists, "classes": names, "threshold": threshold})


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def _check_fields(document: dict[str, Any], name: str) -> None:
    wanted = {field.name for field in fields(Policy)}
    for key in sorted(set(document) - wanted):
        close = nearest(key, wanted)
        raise BadFile(f"{name}: field {key!r} is not known{f'; nearest: {close!r}' if close else ''}.")
    for key in sorted(wanted):
        if key not in document:
            raise BadFile(f"{name}: field {key!r} is missing.")
        allowed, fits = _RULES[key]
        if not fits(document[key]):
            given = json.dumps(document[key], ensure_ascii=False)
            shown = given if len(given) < 60 else given[:57] + "..."
            raise BadFile(f"{name}: field {key!r} must be {allowed}; given {shown}.")
    for key, fits_beside, allowed in _TOGETHER:
        if not fits_beside(document):
            raise BadFile(f"{name}: field {key!r} must {allowed}.")


def _number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _ascending(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(map(_number, value))
        and all(low <= high for low, high in pairwise(value))
    )


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": (f"one of {', '.join(get_args(PolicyKind))}", lambda value: value in get_args(PolicyKind)),
    "quantity": (
        "an uncertainty quantity other than random",
        lambda value: isinstance(value, str) and value in QUANTITIES and value != "random",
    ),
    "threshold": ("a number, or null to keep everything", lambda value: value is None or _number(value)),
    "confidence": ("between 0 and 1", lambda value: _number(value) and 0 < value < 1),
    "goals": ("numbers by name", lambda value: _numbers(value) and bool(value)),
    "positive": ("the index of a class, or null", lambda value: value is None or _whole(value)),
    "guarantee": ("a text", lambda value: isinstance(value, str)),
    "evidence": ("numbers by name", _numbers),
    "notes": ("a list of texts", _texts),
    "target": (f"one of {', '.join(TARGETS)}", lambda value: value in TARGETS),
    "class_count": ("a whole number above 0", lambda value: _whole(value) and value > 0),
    "classes": ("a list of names, or null", lambda value: value is None or _texts(value)),
    "temperature": ("a positive number", lambda value: _number(value) and value > 0),
    "samples": ("a whole number above 0", lambda value: _whole(value) and value > 0),
    "grouped": ("true or false", lambda value: isinstance(value, bool)),
    "split": (f"one of {', '.join(KINDS)}, or null", lambda value: value is None or value in KINDS),
    "seen": ("a list of ascending numbers", _ascending),
}

_TOGETHER: tuple[tuple[str, Callable[[dict[str, Any]], bool], str], ...] = (
    (
        "classes",
        lambda document: document["classes"] is None or len(document["classes"]) == document["class_count"],
        "name as many classes as class_count says",
    ),
    (
        "positive",
        lambda document: (document["positive"] is not None) == (document["kind"] == "screening"),
        "be given for a screening policy and for no other",
    ),
    (
        "positive",
        lambda document: document["positive"] is None or document["positive"] < document["class_count"],
        "be the index of one of the classes",
    ),
)
