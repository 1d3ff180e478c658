"""How ``dubio data`` prints a task, a copy of a corpus, and the ways to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from dubio.cli.output import print_json

if TYPE_CHECKING:
    from dubio.core.types import SourceCard, Task

_MANY_CLASSES = 20


def copy_line(copy: dict[str, Any]) -> str:
    """Where a copy is, in which form, and whether it is whole."""
    return f"{copy['path']} ({copy['form']}; {copy['way']}){'' if copy['whole'] else ', NOT WHOLE'}"


def print_ways(way: dict[str, Any]) -> None:
    """Every way to a corpus, numbered in the order in which they are tried."""
    typer.echo(f"{way['corpus']}: {copy_line(way['here']) if way['here'] else 'not here'}")
    if way["archive"]:
        typer.echo(f"    unopened archive: {way['archive']}")
    typer.echo(f"    1. folders: {', '.join(way['folders']) or 'none named (--data-dir, DUBIO_DATA)'}")
    typer.echo(f"    2. cache: {way['cache']}")
    typer.echo(f"    3. package: {way['package']['requirement'] if way['package'] else 'none carries it'}")
    for url in way["urls"]:
        known = f"SHA-256 {url['sha256']}" if url["sha256"] else "not fetched automatically: its SHA-256 is not known"
        typer.echo(f"    4. {url['url']}\n       {known}")
    typer.echo(f"    by hand: {way['by_hand']}")


def print_photographs(ways: dict[str, Any]) -> None:
    """Where photographs are, and where more can be had."""
    for copy in ways["here"]:
        typer.echo(f"{ways['corpus']}: {copy_line(copy)}")
    if not ways["here"]:
        typer.echo(f"{ways['corpus']}: not here")
    typer.echo(f"    folders: {', '.join(ways['folders']) or 'none named (--data-dir, DUBIO_DATA)'}")
    typer.echo(f"    {ways.get('kept', 'prepared photographs')}: {ways['cache']}")
    for source in ways["sources"]:
        typer.echo(f"    {source['name']}: {source['source']}\n        {source['looks']}")
    typer.echo(f"    by hand: {ways['by_hand']}")


def print_report(found: dict[str, Any], as_json: bool) -> None:
    """The preprocessing report of a data set of photographs."""
    if as_json:
        print_json(found)
        return
    whose = f" of {found['patients']:,} patients" if "patients" in found else ""
    typer.echo(f"{found['data']}: {found['photographs']:,} photographs{whose}, {found['path']}")
    if "grades" in found:
        typer.echo("    " + ", ".join(f"{name} {count:,}" for name, count in found["grades"].items()))
    for sentence in found["summary"]:
        typer.echo(f"- {sentence}")
    for line in found["findings"]:
        typer.echo(f"    {line}")


def print_copy_counts(copy: dict[str, Any]) -> None:
    """The numbers of a copy beside the published ones."""
    typer.echo(f"{copy['corpus']}: {copy_line(copy['here'])}")
    for count in copy["counts"]:
        should = "" if count["published"] is None else f"  published {count['published']:>9,} ({count['by']})"
        typer.echo(f"    {count['what']:<10} {count['found']:>9,}{should}{'  DIFFERS' if count['differs'] else ''}")


def card_fields(card: SourceCard | None) -> dict[str, str] | None:
    """A source card as JSON takes it."""
    import dataclasses

    return None if card is None else dataclasses.asdict(card)


def _counts(task: Task) -> dict[str, list[int]]:
    """Rows of each class, by split."""
    import numpy as np

    found = {}
    for split in task.splits:
        labels = split.data.labels
        if labels.ndim == 2:
            found[split.name] = labels.sum(axis=0).tolist()
        else:
            found[split.name] = np.bincount(labels[labels >= 0], minlength=len(task.classes)).tolist()
    return found


def print_task(task: Task, notes: list[str], as_json: bool) -> None:
    """A task's splits, the rows of each class, and its notes."""
    counts = _counts(task)
    if as_json:
        splits = [
            {
                "name": split.name,
                "kind": split.kind,
                "examples": len(split),
                "fingerprint": split.fingerprint,
                "classes": dict(zip(task.classes, counts[split.name], strict=True)),
            }
            for split in task.splits
        ]
        head = {"name": task.name, "inputs": task.inputs, "target": task.target, "classes": list(task.classes)}
        print_json(head | {"splits": splits, "notes": notes, "card": card_fields(task.card)})
        return
    typer.echo(f"{task.name}: {task.inputs}, {task.target}, {len(task.classes)} classes")
    typer.echo(f"{task.card.description} Source: {task.card.source} ({task.card.revision}).\n")
    width = max(len("split"), *(len(split.name) for split in task.splits))
    typer.echo(f"{'split':<{width}}  kind   {'rows':>8}  rows of each class")
    for split in task.splits:
        typer.echo(f"{split.name:<{width}}  {split.kind:<5}  {len(split):>8,}  {_spread(task, counts[split.name])}")
    if notes:
        typer.echo()
    for note in notes:
        typer.echo(f"- {note}")


def _spread(task: Task, counts: list[int]) -> str:
    """Class counts in full where they are few, else their range."""
    if not any(counts):
        return "none of the classes"
    if len(counts) <= _MANY_CLASSES:
        return ", ".join(f"{name} {count:,}" for name, count in zip(task.classes, counts, strict=True))
    middle = sorted(counts)[len(counts) // 2]
    return f"{min(counts):,} to {max(counts):,}, half of them at most {middle:,}"
