"""``dubio check``: does everything that a file registers conform to the rules?"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import JsonOption
from dubio.cli.output import print_json, say

if TYPE_CHECKING:
    from dubio.testing import CheckedEntry, Outcome

MARKS = {"passed": "✓", "failed": "✗", "skipped": "·"}


class Inputs(enum.StrEnum):
    """Kinds of data that methods can be fitted on."""

    TABLE = "table"
    TEXT = "text"
    IMAGE = "image"


def check(
    file: Annotated[Path, typer.Argument(help="A Python file that registers tasks, networks, methods or metrics.")],
    inputs: Annotated[
        list[Inputs] | None, typer.Option(help="The data that methods are fitted on; may be repeated. Default: table.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check everything a file registers, and explain what is wrong.

    Exit code 0 if everything passes, 1 if something fails, 2 if the file cannot be loaded or registers nothing.
    """
    from dubio.testing import check_plugin

    checked = check_plugin(file, [choice.value for choice in inputs or (Inputs.TABLE,)])
    failed = sum(not item.passed for item in checked)
    if json:
        print_json({"file": str(file), "ok": not failed, "checked": [_document(item) for item in checked]})
    else:
        for item in checked:
            typer.echo(f"{item.kind} {item.entry.name}")
            for line in _lines(item.outcomes):
                typer.echo(f"  {line}")
            typer.echo("")
        say(f"{len(checked)} checked, {failed or 'none'} failed.")
    if failed:
        raise typer.Exit(1)


def _document(item: CheckedEntry) -> dict[str, Any]:
    return {
        "sort": item.kind,
        "name": item.entry.name,
        "ok": item.passed,
        "rules": [
            {
                "what": outcome.what,
                "state": outcome.state,
                "findings": [{"problem": f.problem, "advice": f.advice} for f in outcome.findings],
            }
            for outcome in item.outcomes
        ],
    }


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield one line per rule, and the problems and advice beneath it; skipped rules are only counted."""
    for outcome in outcomes:
        if outcome.state != "skipped":
            yield f"{MARKS[outcome.state]} {outcome.what}"
        for finding in outcome.findings:
            yield f"    {finding.problem}"
            yield f"    → {finding.advice}"
    if any(outcome.state == "failed" for outcome in outcomes):
        skipped = sum(outcome.state == "skipped" for outcome in outcomes)
        if skipped:
            yield f"· {skipped} more {'rule was' if skipped == 1 else 'rules were'} not checked"
