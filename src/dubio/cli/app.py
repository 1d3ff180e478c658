"""The command ``dubio``: assembles the commands and turns errors into messages and exit codes.

Exit codes: 0 success, 1 some runs failed, 2 a user error, 3 a case of ``dubio refer apply --fail-on`` or a failed
``dubio evaluate --require``, 70 an error that nobody foresaw (:mod:`dubio.__main__`), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dubio import __version__
from dubio.cli import calibrate, data, refer, store
from dubio.cli.check import check
from dubio.cli.commands import Command, CommandGroup
from dubio.cli.compare import compare
from dubio.cli.dee import dee
from dubio.cli.evaluate import evaluate
from dubio.cli.export import export
from dubio.cli.list import list_names
from dubio.cli.output import say
from dubio.cli.predict import predict
from dubio.cli.report import report
from dubio.cli.run import run
from dubio.cli.serve import serve
from dubio.cli.show import show
from dubio.core.errors import DubioError, UserError

app = CommandGroup(
    name="dubio",
    help="Does a classifier know when it does not know, and which uncertainty method makes it know best?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Command] = {
    "run": run, "evaluate": evaluate, "compare": compare, "dee": dee, "report": report, "show": show,
    "predict": predict, "export": export, "serve": serve, "list": list_names, "check": check,
}  # fmt: skip
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
for _name, _group in {"calibrate": calibrate, "refer": refer, "data": data, "store": store}.items():
    app.add_typer(_group.app, name=_name)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"dubio {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error; anywhere in the command.")
    ] = False,
) -> None:
    """Handle the options of ``dubio`` itself."""


def main() -> None:
    """Run the command line; errors that were foreseen become a message and an exit code."""
    try:
        app()
    except DubioError as error:
        say(f"dubio: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        # A file that cannot be read or written is for the user to correct; the message names it.
        say(f"dubio: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(UserError.exit_code)
    finally:
        _flush_quietly()


def _flush_quietly() -> None:
    """Flush standard output; a reader that has gone (``| head``) is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more on exit; give it somewhere to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
