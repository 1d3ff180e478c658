"""``dubio list``: what there is to choose from."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from dubio.cli.output import print_json

if TYPE_CHECKING:
    from dubio.core.registry import Entry


class Sort(enum.StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    NETWORKS = "networks"
    METHODS = "methods"
    METRICS = "metrics"
    BENCHMARKS = "benchmarks"


def list_names(
    sort: Annotated[Sort, typer.Argument(help="What to list.")],
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file whose registrations are listed too; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List tasks, networks, methods, metrics or benchmarks, with their arguments and defaults."""
    if sort is Sort.BENCHMARKS:
        found = _benchmarks()
    else:
        from dubio.core.registry import REGISTRIES, load_entry_points, load_plugin

        load_entry_points()
        for path in plugin or ():
            load_plugin(path)
        entries = REGISTRIES[sort.value].entries()
        found = [_described(entry) | (_ranking(entry) if sort is Sort.METRICS else {}) for entry in entries]
    if json:
        print_json(found)
    else:
        _print_lines(found)


def _described(entry: Entry[Any]) -> dict[str, Any]:
    """An entry as JSON: name, origin, summary, facts and arguments."""
    defaults = entry.defaults()
    arguments = [
        {"name": name, "type": _type_name(parameter.annotation), "required": name not in defaults}
        | ({"default": defaults[name]} if name in defaults else {})
        for name, parameter in entry.parameters().items()
    ]
    header = {"name": entry.name, "origin": entry.origin, "summary": entry.summary}
    return {**header, **_plain_facts(entry), "arguments": arguments}


def _plain_facts(entry: Entry[Any]) -> dict[str, Any]:
    """Return the facts of a registration that JSON can hold: not a task's data source, say."""
    plain = (str, int, float, list, tuple, type(None))
    return {name: fact for name, fact in entry.facts.items() if isinstance(fact, plain)}


def _ranking(entry: Entry[Any]) -> dict[str, Any]:
    """What may be done with a metric; known without arguments only where it needs none."""
    if len(entry.defaults()) < len(entry.parameters()):
        return {}
    metric = entry.factory()
    return {"better": metric.better, "comparable": metric.comparable, "why_not": metric.why_not}


def _type_name(annotation: Any) -> str:
    """A type as it was written; annotations are texts under ``from __future__ import annotations``."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _benchmarks() -> list[dict[str, Any]]:
    """The benchmarks that come with dubio: name, file and what each says of itself."""
    import tomllib
    from importlib.resources import files

    found = []
    for folder in sorted(files("dubio").joinpath("studies").iterdir(), key=lambda folder: folder.name):
        file = folder / "benchmark.toml"
        if file.is_file():
            summary = str(tomllib.loads(file.read_text(encoding="utf-8")).get("description", ""))
            found.append({"name": folder.name, "origin": str(file), "summary": summary})
    return found


def _print_lines(found: list[dict[str, Any]]) -> None:
    """One line of name and summary, one of origin and arguments: readable at any width and by any pipe."""
    width = max((len(item["name"]) for item in found), default=0)
    for item in found:
        typer.echo(f"{item['name']:<{width}}  {item['summary']}")
        arguments = ", ".join(
            argument["name"] if argument["required"] else f"{argument['name']}={argument['default']!r}"
            for argument in item.get("arguments", ())
        )
        typer.echo(" " * width + f"  {item['origin']}" + (f"({arguments})" if arguments else ""))
        if not item.get("comparable", True):
            typer.echo(" " * width + f"  does not rank models: {item['why_not']}")
