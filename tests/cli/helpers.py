"""Helpers of the commands' tests."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from click.testing import Result
from typer.testing import CliRunner


def invoke(app: typer.Typer, *arguments: object) -> Result:
    """Run a command; an exception that is not an exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run_here(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process, which has loaded what a new one would load again.

    Args:
        folder: The folder it starts in.
        words: What follows ``dubio``.

    Returns:
        What a process would leave: its exit code, and what it prints.
    """
    from dubio.cli.app import main

    arguments = ["dubio", *map(str, words)]
    printed, said = io.StringIO(), io.StringIO()
    code: Any = 0
    with chdir(folder), mock.patch.object(sys, "argv", arguments), redirect_stdout(printed), redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), said.getvalue())


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
