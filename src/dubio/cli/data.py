"""``dubio data``: what data there is, and what becomes of yours before anything is trained on it."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import print_json
from dubio.errors import UserError

if TYPE_CHECKING:
    from dubio.types import SourceCard, Task

app = typer.Typer(help="List tasks and check your own data before training.", no_args_is_help=True)

LISTS = ("features", "novel", "order", "fractions")
"""Arguments of your own data that are written as one word, with commas."""

_MANY_CLASSES = 20

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PluginOption = Annotated[
    list[Path] | None, typer.Option(help="A Python file whose tasks are known too; may be repeated.")
]


@app.command("list")
def list_tasks(plugin: PluginOption = None, json: JsonOption = False) -> None:
    """List tasks with where their data comes from."""
    import sys

    entries = _registry(plugin).entries()
    # a task's module may hold its source card as CARD, so that listing need not load the data
    cards = [getattr(sys.modules.get(entry.origin), "CARD", None) for entry in entries]
    if json:
        print_json(
            [
                {"name": entry.name, "summary": entry.summary, "card": _card(card)}
                for entry, card in zip(entries, cards, strict=True)
            ]
        )
        return
    for entry, card in zip(entries, cards, strict=True):
        typer.echo(f"{entry.name}: {entry.summary}")
        if card is not None:
            typer.echo(f"    {card.description}\n    source: {card.source}\n    licence: {card.licence}")
            typer.echo(f"    cite: {card.citation}")


@app.command("show")
def show_task(
    name: Annotated[str, typer.Argument(help="A task's name.")],
    set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An argument of the task, as JSON or text.")
    ] = None,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Load a task; print its splits, class counts, and rows that splits share."""
    from dubio.tasks.duplicates import shared_rows

    task = _registry(plugin).make(name, **dict(_setting(item) for item in set or ()))
    shared = [found.sentence() for found in shared_rows(task.splits, task.inputs)]
    _print(task, [*dict.fromkeys([*task.notes, *shared])], json)


@app.command("check")
def check_own(
    data: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, Parquet, npz, or a folder of images.")],
    text: Annotated[str | None, typer.Option(help="Column of texts.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of classes.")] = None,
    features: Annotated[str | None, typer.Option(help="Numeric columns, with commas; * for all others.")] = None,
    label_separator: Annotated[str | None, typer.Option(help="What stands between several labels of a row.")] = None,
    target: Annotated[str | None, typer.Option(help="multiclass, multilabel or ordinal.")] = None,
    order: Annotated[str | None, typer.Option(help="Classes in their order, with commas: an ordinal target.")] = None,
    id: Annotated[str | None, typer.Option(help="Column of unique ids.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of what belongs together (a patient).")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times: oldest rows train, newest test.")] = None,
    domain: Annotated[str | None, typer.Option(help="Column of domains.")] = None,
    train_domain: Annotated[str | None, typer.Option(help="The domain to train on.")] = None,
    split: Annotated[str | None, typer.Option(help="Column of given parts (train, val, cal, test).")] = None,
    novel: Annotated[str | None, typer.Option(help="Classes held out of training, with commas, or auto.")] = None,
    fractions: Annotated[str | None, typer.Option(help="Shares of train,val,cal,test.")] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    size: Annotated[int | None, typer.Option(help="Both sides of every image, in pixels.")] = None,
    json: JsonOption = False,
) -> None:
    """Read your own data and print what training would get: splits, classes, duplicates, notes."""
    given = {key: value for key, value in locals().items() if key != "json"}
    task = _registry(None).make("own", **own_arguments(given))
    _print(task, list(task.notes), json)


def own_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the task ``own`` from options as they are written on the command line.

    Args:
        given: Values by argument, None where an option was not given; lists are one text with commas.

    Raises:
        UserError: When a share is not a number.
    """
    made = {key: value for key, value in given.items() if value is not None}
    for key in LISTS:
        if key in made:
            made[key] = tuple(part.strip() for part in made[key].split(",") if part.strip())
    if "fractions" in made:
        try:
            made["fractions"] = tuple(float(part) for part in made["fractions"])
        except ValueError as fault:
            raise UserError(f"fractions must be four numbers with commas; given {given['fractions']!r}.") from fault
    return made | {"data": str(made["data"])}


def _registry(plugin: list[Path] | None) -> Any:
    from dubio.registry import TASKS, load_entry_points, load_plugin

    load_entry_points()
    for path in plugin or ():
        load_plugin(path)
    return TASKS


def _setting(item: str) -> tuple[str, Any]:
    key, equals, value = item.partition("=")
    if not equals:
        raise UserError(f"--set needs KEY=VALUE; given {item!r}.")
    try:
        return key, jsons.loads(value)
    except ValueError:
        return key, value


def _card(card: SourceCard | None) -> dict[str, str] | None:
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


def _print(task: Task, notes: list[str], as_json: bool) -> None:
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
        print_json(head | {"splits": splits, "notes": notes, "card": _card(task.card)})
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
