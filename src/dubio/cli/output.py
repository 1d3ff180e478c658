"""How commands print: results to standard output, messages to standard error."""

from __future__ import annotations

from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; a number that is not finite is null, never NaN."""
    from dubio.core.specs import to_json

    typer.echo(to_json(value))


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(message, err=True)
