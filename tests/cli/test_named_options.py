"""Every option that a message or a help text names exists: on the command that prints it, where that is clear."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import dubio
from dubio.cli.app import app

SOURCE = Path(dubio.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")

OF_OTHERS = {"--help": "of click", "--head": "of ray start"}
"""Options that are not dubio's own, and whose they are."""

READING = ("evaluate", "calibrate fit", "calibrate apply", "refer fit", "refer apply", "dee")
"""The commands that read files of predictions: what the readers name must exist on each."""

NOT_THERE = {
    ("refer apply", "--target"): "the policy says it",
    ("dee", "--by"): "an equivalent is of all rows",
}


def commands() -> dict[str, set[str]]:
    """Return command → its options."""
    options: dict[str, set[str]] = {}

    def add(name: str, command: object) -> None:
        own = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
        options[name] = {text for text in own if text.startswith("--")}
        for inner, below in getattr(command, "commands", {}).items():
            add(f"{name} {inner}".strip(), below)

    add("", typer.main.get_command(app))
    return options


def named_options(path: Path) -> Iterator[tuple[str, str]]:
    """Yield option and text of every string that names one and is no docstring, nor an argument of another program."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            of_others = "pip " in node.value or (path.parent.name != "cli" and node.value.startswith("--"))
            yield from ((option, node.value) for option in OPTION.findall("" if of_others else node.value))


def test_the_scan_finds_options_in_messages_and_not_in_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""About --this."""\nrun(["pip", "--quiet"])\nraise ValueError(f"say {x} (--in-domain), or --a-{x}")\n'
    )
    assert [option for option, _ in named_options(path)] == ["--in-domain"]


FILES = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.py")
    if OPTION.search(path.read_text(encoding="utf-8"))  # parsed when its test runs: collecting happens in every process
)


@pytest.mark.parametrize("name", FILES)
def test_options_that_are_named_exist(name: str) -> None:
    options = commands()
    everywhere = set().union(*options.values()) | OF_OTHERS.keys()
    module = name.removeprefix("cli/").removesuffix(".py")
    own = [command for command in options if name.startswith("cli/") and command.split(" ")[0] == module]
    allowed = set().union(*(options[command] for command in own)) if own else everywhere
    for option, text in named_options(SOURCE / name):
        assert option in everywhere, text
        assert option in allowed or "dubio " in text, text  # or it names the command that has it


@pytest.mark.parametrize("name", sorted(file for file in FILES if file.startswith("formats/")))
def test_options_that_readers_name_exist_on_every_command_that_reads(name: str) -> None:
    options = commands()
    for option, text in named_options(SOURCE / name):
        missing = [command for command in READING if option not in options[command]]
        assert [command for command in missing if (command, option) not in NOT_THERE] == [], text


@pytest.mark.parametrize("name", sorted(file for file in FILES if file.startswith("referral/")))
def test_options_that_policies_name_exist_on_refer(name: str) -> None:
    options = commands()
    refer = options["refer fit"] | options["refer apply"]
    assert {option for option, _ in named_options(SOURCE / name)} <= refer
