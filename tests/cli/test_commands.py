"""The help of a command is in its docstring; what typer has to know beyond that is in the annotations."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from dubio.cli.app import app as dubio
from dubio.cli.commands import CommandGroup

Shared = Annotated[str, typer.Option(help="Help of its own.")]


def copy(
    source: Path,
    target: Annotated[Path | None, typer.Argument()] = None,
    times: Annotated[int, typer.Option(min=1)] = 1,
    dry_run: bool = False,
    shared: Shared = "x",
) -> None:
    """Copy a file.

    Twice, if need be.

    Args:
        source: The file,
            with its folder.
        target: Where to.
        times: How often.
        dry_run: Do nothing.
    """
    typer.echo(f"{source} {target} {times} {dry_run} {shared}")


@pytest.fixture
def invoke():
    group = CommandGroup()
    assert group.command("copy")(copy) is copy
    group.command("other")(lambda: None)
    return lambda *words: CliRunner().invoke(group, ["copy", *words], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_texts_of_args_are_the_help(invoke):
    text = " ".join(invoke("--help").stdout.split())
    for piece in ("Copy a file.", "Twice, if need be.", "The file, with its folder.", "Where to.", "How often.",
                  "Do nothing.", "Help of its own."):
        assert piece in text
    assert "Args:" not in text
    assert "--no-dry-run" not in text
    assert "[x>=1]" in text


def test_values_reach_the_function(invoke):
    assert invoke("a").stdout == "a None 1 False x\n"
    assert invoke("a", "b", "--times", "2", "--dry-run", "--shared", "y").stdout == "a b 2 True y\n"
    assert invoke("a", "--times", "0").exit_code == 2
    assert invoke().exit_code == 2


def commands(group: typer.Typer, path: tuple[str, ...] = ()):
    click_group = typer.main.get_command(group) if isinstance(group, typer.Typer) else group
    for name, command in getattr(click_group, "commands", {}).items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [((*path, name), command)]


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=" ".join(p)) for p, c in commands(dubio)])
def test_every_option_of_dubio_has_a_help(path, command):
    lacking = [item.name for item in command.params if not getattr(item, "help", None)]
    assert not lacking
