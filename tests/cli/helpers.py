"""Helpers of the commands' tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from click.testing import Result
from typer.testing import CliRunner


def invoke(app: typer.Typer, *arguments: object) -> Result:
    """Run a command; an exception that is not an exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@dataclass(frozen=True)
class StoredRun:
    path: Path
    run: str
    fit: str
    single: str
    ensemble: str


def run_command(function: Any, *arguments: object) -> str:
    app = typer.Typer()
    app.command()(function)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None:
        raise done.exception
    return done.stdout
