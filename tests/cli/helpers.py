"""Helpers of the commands' tests."""

from __future__ import annotations

import typer
from click.testing import Result
from typer.testing import CliRunner


def invoke(app: typer.Typer, *arguments: object) -> Result:
    """Run a command; an exception that is not an exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
