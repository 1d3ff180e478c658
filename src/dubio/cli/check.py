"""``dubio check``: does everything that a file registers conform to the rules?"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dubio.cli.options import JsonOption
from dubio.cli.output import print_result, say

if TYPE_CHECKING:
    from dubio.testing import CheckedEntry

MARKS = {"passed": "✓", "failed": "✗", "skipped": "·"}


class Inputs(enum.StrEnum):
    """Kinds of data that methods can be fitted on."""

    TABLE = "table"
    TEXT = "text"
    IMAGE = "image"


def check(file: Path, inputs: list[Inputs] | None = None, json: JsonOption = False) -> None:
    """Check everything a file registers, and explain what is wrong.

    Exit code 0 if everything passes, 1 if something fails, 2 if the file cannot be loaded or registers nothing.

    Args:
        file: A Python file that registers tasks, networks, methods or metrics.
        inputs: The data that methods are fitted on; may be repeated. Default: table.
    """
    from dubio.testing import check_plugin

    checked = check_plugin(file, inputs or [Inputs.TABLE])
    failed = sum(not item.passed for item in checked)
    document = {"file": str(file), "ok": not failed, "checked": [_document(item) for item in checked]}
    print_result(json, document, (line for item in checked for line in _lines(item)))
    if not json:
        say(f"{len(checked)} checked, {failed or 'none'} failed.")
    raise typer.Exit(1 if failed else 0)


def _document(item: CheckedEntry) -> dict[str, Any]:
    rules = []
    for outcome in item.outcomes:
        findings = [{"problem": finding.problem, "advice": finding.advice} for finding in outcome.findings]
        rules.append({"what": outcome.what, "state": outcome.state, "findings": findings})
    return {"sort": item.kind, "name": item.entry.name, "ok": item.passed, "rules": rules}


def _lines(item: CheckedEntry) -> Iterator[str]:
    """Yield one line per rule, and the problems and advice beneath it; skipped rules are only counted."""
    yield f"{item.kind} {item.entry.name}"
    for outcome in item.outcomes:
        if outcome.state != "skipped":
            yield f"  {MARKS[outcome.state]} {outcome.what}"
        for finding in outcome.findings:
            yield f"      {finding.problem}\n      → {finding.advice}"
    skipped = sum(outcome.state == "skipped" for outcome in item.outcomes)
    if skipped and not item.passed:
        yield f"  · {skipped} more {'rule was' if skipped == 1 else 'rules were'} not checked"
    yield ""
