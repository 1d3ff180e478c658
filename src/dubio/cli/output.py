"""How commands print: results to standard output, messages to standard error."""

from __future__ import annotations

import json
import math
from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; a number that is not finite is null, never NaN."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(message, err=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
