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
    """Run a command as ``python -m dubio`` does, in this process, which has loaded what a new one would load again.

    Args:
        folder: The folder it starts in.
        words: What follows ``dubio``.

    Returns:
        What a process would leave: its exit code, and what it prints.
    """
    from dubio.__main__ import main

    arguments = ["dubio", *map(str, words)]
    printed, said = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: Any = 0
    with chdir(folder), mock.patch.object(sys, "argv", arguments), redirect_stdout(printed), redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    texts = [stream.buffer.getvalue().decode() for stream in (printed, said)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code, *texts)


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
