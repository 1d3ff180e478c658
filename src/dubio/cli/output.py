"""How commands print: results to standard output, messages to standard error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from dubio.core.errors import UserError

FAILED = 3
"""The exit code where something that the user made a condition of success is not so."""

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of the signal."""

MEGABYTE = 1e6


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; an infinite number is a text, NaN is null."""
    from dubio.core.specs import to_json

    typer.echo(to_json(value))


def say(*messages: str) -> None:
    """Print messages to standard error."""
    for message in messages:
        typer.echo(message, err=True)


def print_result(as_json: bool, document: Any, lines: Iterable[str], *, output: Path | None = None) -> None:
    """Print a result to standard output: one JSON document, or lines of text.

    Args:
        as_json: Whether it is the document that is printed.
        document: The result.
        lines: The same as text.
        output: The file that the command has written: if that is standard output, the result goes to standard error.
    """
    from dubio.core.files import descriptor_of
    from dubio.core.specs import to_json

    is_stdout = output is not None and descriptor_of(output) == 1
    for line in [to_json(document)] if as_json else lines:
        typer.echo(line, err=is_stdout)


def check_output(output: Path, *inputs: Path | None, option: str = "--output") -> None:
    """Refuse to overwrite a file that the command reads.

    Args:
        output: The file to write.
        inputs: The files that are read.
        option: The option that names the output.

    Raises:
        UserError: Naming both.
    """
    for path in inputs:
        if path is not None and path.is_file() and output.exists() and output.samefile(path):
            raise UserError(f"{option} {str(output)!r} is the input {str(path)!r}; name another file.")


def print_table(table: Any) -> None:
    """Print a table, or anything else that rich can print, to standard output."""
    from rich.console import Console

    Console().print(table)
