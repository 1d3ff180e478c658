"""A hook of mkdocs: write the options of every command into commands.md, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from dubio.cli.app import app

PLACEHOLDER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholder by the commands."""
    if PLACEHOLDER not in markdown:
        return markdown
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = (line for name in commands for line in _section(name, commands[name], 2))
    return markdown.replace(PLACEHOLDER, "\n\n".join(lines))


def _section(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `dubio {name}`"
    yield str(command.help).strip()
    for below, inner in getattr(command, "commands", {}).items():
        yield from _section(f"{name} {below}", inner, level + 1)
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        yield "\n".join(["| option | |", "|---|---|", *rows])


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name, default = parameter.name.upper(), None
    else:
        name, default = max(parameter.opts, key=len), parameter.default
    stated = "" if default is None or default is False else f" Default: `{default}`."
    return f"| `{name}` | {(parameter.help or '').replace('|', chr(92) + '|')}{stated} |"
