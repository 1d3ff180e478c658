"""``dubio check``: does what a file registers keep the rules?"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json, say
from dubio.core.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from dubio.core.registry import Entry
    from dubio.testing import Outcome

MARKS = {"passed": "✓", "failed": "✗", "skipped": "·"}


class Inputs(enum.StrEnum):
    """What methods can be fitted on."""

    TABLE = "table"
    TEXT = "text"
    IMAGE = "image"


def check(
    file: Annotated[Path, typer.Argument(help="A Python file that registers tasks, networks, methods or metrics.")],
    inputs: Annotated[
        list[Inputs] | None, typer.Option(help="What methods are fitted on; may be repeated. Default: table.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check what a file of yours registers, and say in words what is wrong.

    Exit code 0 when everything passes, 1 when something fails, 2 when the file cannot be loaded or registers nothing.
    """
    found = _registered(file)
    on = [choice.value for choice in inputs or (Inputs.TABLE,)]
    results = []
    for sort, entry in found:
        outcomes = _examine(sort, entry, on)
        results.append(_described(sort, entry, outcomes))
        if not json:
            _print(sort, entry, outcomes)
    failed = sum(not result["ok"] for result in results)
    if json:
        print_json({"file": str(file), "ok": not failed, "checked": results})
    else:
        say(f"{len(results)} checked, {failed or 'none'} with something to mend.")
    if failed:
        raise typer.Exit(1)


def _registered(file: Path) -> list[tuple[str, Entry[Any]]]:
    """What loading the file adds to the registries.

    Raises:
        UserError: When that is nothing.
    """
    from dubio.core.registry import REGISTRIES, load_plugin

    before = {sort: _names(registry.names) for sort, registry in REGISTRIES.items()}
    load_plugin(file)
    found = []
    for sort, known in before.items():
        if not isinstance(known, MissingExtra):
            found += [(sort.removesuffix("s"), e) for e in REGISTRIES[sort].entries() if e.name not in known]
    if found:
        return found
    for known in before.values():
        if isinstance(known, MissingExtra):
            raise known
    raise UserError(
        f"{str(file)!r} registers nothing; decorate a function with @task, @network, @method or @metric from "
        "dubio.core.registry."
    )


def _names(names: Callable[[], tuple[str, ...]]) -> tuple[str, ...] | MissingExtra:
    """What is known already, or why that cannot be said (networks and methods without torch)."""
    try:
        return names()
    except MissingExtra as missing:
        return missing


def _examine(sort: str, entry: Entry[Any], inputs: list[str]) -> list[Outcome]:
    from dubio import testing

    examine: Callable[..., list[Outcome]] = getattr(testing, f"examine_{sort}")
    return examine(entry, inputs=inputs) if sort == "method" else examine(entry)


def _described(sort: str, entry: Entry[Any], outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "sort": sort,
        "name": entry.name,
        "ok": all(outcome.state != "failed" for outcome in outcomes),
        "rules": [
            {
                "what": outcome.what,
                "state": outcome.state,
                "findings": [{"problem": f.problem, "advice": f.advice} for f in outcome.findings],
            }
            for outcome in outcomes
        ],
    }


def _print(sort: str, entry: Entry[Any], outcomes: list[Outcome]) -> None:
    typer.echo(f"{sort} {entry.name}")
    for line in _lines(outcomes):
        typer.echo(f"  {line}")
    typer.echo("")


def _lines(outcomes: list[Outcome]) -> Iterator[str]:
    """One line a rule, and the sentences of what is wrong beneath it; rules that say nothing here are left out."""
    for outcome in outcomes:
        if outcome.state != "skipped":
            yield f"{MARKS[outcome.state]} {outcome.what}"
        for finding in outcome.findings:
            yield f"    {finding.problem}"
            yield f"    → {finding.advice}"
    if any(outcome.state == "failed" for outcome in outcomes):
        skipped = sum(outcome.state == "skipped" for outcome in outcomes)
        if skipped:
            yield f"· {skipped} more {'rule was' if skipped == 1 else 'rules were'} not looked at"
