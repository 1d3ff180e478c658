"""How commands print: results to standard output, messages to standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; an infinite number is a text, NaN is null."""
    from dubio.core.specs import to_json

    typer.echo(to_json(value))


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(message, err=True)


def print_result(as_json: bool, document: Any, lines: Iterable[str]) -> None:
    """Print a result to standard output: one JSON document, or lines of text."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        typer.echo(line)


def print_table(table: Any) -> None:
    """Print a table, or anything else that rich can print, to standard output."""
    from rich.console import Console

    Console().print(table)
