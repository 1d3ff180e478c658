"""How a metric with arguments is written: ``ece``, ``ece(bins=10)``, ``ood_auroc(quantity="mutual_information")``."""

from __future__ import annotations

import json
import re
from typing import Any

from dubio.core.errors import UserError
from dubio.core.registry import METRICS
from dubio.core.types import Metric

_CALL = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def written(name: str, **arguments: tuple[Any, Any]) -> str:
    """The name of a metric with those arguments that are not the default.

    Args:
        name: The registered name.
        arguments: For each argument, (its value, its default).
    """
    told = [f"{key}={json.dumps(value)}" for key, (value, default) in arguments.items() if value != default]
    return f"{name}({', '.join(told)})" if told else name


def metric_named(text: str) -> Metric:
    """The metric that a text such as ``ece(bins=10)`` asks for.

    A value is a number, ``true`` or ``false``, or a text with or without quotes.

    Raises:
        UnknownName: For an unknown metric or argument, with the nearest name.
        UserError: For a text of another form, or a value of another type.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise UserError(f"metric {text!r} must be a name or name(argument=value, …).")
    arguments: dict[str, Any] = {}
    for piece in filter(None, (match[2] or "").split(",")):
        key, equals, value = (side.strip() for side in piece.partition("="))
        if not equals or not key or not value:
            raise UserError(f"metric {text!r}: {piece.strip()!r} must be argument=value.")
        try:
            arguments[key] = json.loads(value)
        except json.JSONDecodeError:
            arguments[key] = value
    made: Metric = METRICS.make(match[1], **arguments)
    return made
