"""``dubio list``: the registered tasks, networks, methods and metrics, and the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from dubio.cli.options import JsonOption, PluginOption, load_plugins
from dubio.cli.output import print_result, say
from dubio.core.errors import check_known, one_of

if TYPE_CHECKING:
    from dubio.core.registry import Entry


KINDS = ("tasks", "networks", "methods", "metrics", "benchmarks")


def list_names(
    kind: str,
    name: Annotated[str | None, typer.Argument()] = None,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """List tasks, networks, methods, metrics or benchmarks, with their arguments and defaults.

    Args:
        kind: The kind of names to list: tasks, networks, methods, metrics or benchmarks.
        name: Show this one alone, such as packed-ensemble; all by default.
    """
    one_of("kind", kind, KINDS)
    from dubio.core.registry import REGISTRIES, not_loaded_sentence

    if kind == "benchmarks":
        items = _benchmarks()
    else:
        load_plugins(plugin)
        entries = REGISTRIES[kind].entries()
        items = [_described(entry) | (_ranking(entry) if kind == "metrics" else {}) for entry in entries]
    if name is not None:
        check_known(kind.removesuffix("s"), [name], [item["name"] for item in items])
        items = [item for item in items if item["name"] == name]
    print_result(json, items, _lines(items))
    if sentence := not_loaded_sentence():
        say(sentence)


def _described(entry: Entry[Any]) -> dict[str, Any]:
    """Return an entry as JSON: name, origin, summary, facts and arguments."""
    defaults = entry.defaults()
    arguments = [
        {"name": name, "type": _type_name(parameter.annotation), "required": name not in defaults}
        | ({"default": defaults[name]} if name in defaults else {})
        for name, parameter in entry.parameters().items()
    ]
    plain = (str, int, float, list, tuple, type(None))  # not a task's data source, say
    facts = {name: fact for name, fact in entry.facts.items() if isinstance(fact, plain)}
    return {"name": entry.name, "origin": entry.origin, "summary": entry.summary, **facts, "arguments": arguments}


def _ranking(entry: Entry[Any]) -> dict[str, Any]:
    """Return whether a metric may rank models; known without arguments only if it needs none."""
    if len(entry.defaults()) < len(entry.parameters()):
        return {}
    metric = entry.factory()
    return {"better": metric.better, "comparable": metric.comparable, "why_not": metric.why_not}


def _type_name(annotation: Any) -> str:
    """Return a type as it is written; annotations are texts under ``from __future__ import annotations``."""
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _benchmarks() -> list[dict[str, Any]]:
    """Return name, file, description and presets of the benchmarks that come with dubio."""
    from dubio.core.documents import parse_toml
    from dubio.runner.benchmark_file import benchmark_files

    files = {name: (file, parse_toml(file.read_bytes(), name)) for name, file in benchmark_files().items()}
    return [
        {"name": name, "origin": str(file), "summary": str(table.get("description", ""))}
        | {"default_preset": table.get("default_preset", "")}
        | {"presets": {key: preset.get("description", "") for key, preset in table.get("preset", {}).items()}}
        for name, (file, table) in files.items()
    ]


def _lines(items: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line with name and summary and a line with origin and arguments: readable at any width."""
    width = max((len(item["name"]) for item in items), default=0)
    for item in items:
        role = f" [{item['role']}]" if "role" in item else ""
        yield f"{item['name']:<{width}}  {item['summary']}{role}"
        arguments = ", ".join(
            argument["name"] if argument["required"] else f"{argument['name']}={argument['default']!r}"
            for argument in item.get("arguments", ())
        )
        yield " " * width + f"  {item['origin']}" + (f"({arguments})" if arguments else "")
        for name, description in item.get("presets", {}).items():
            default = " (default)" if name == item["default_preset"] else ""
            yield " " * width + f"  preset {name}{default}: {description}"
        if not item.get("comparable", True):
            yield " " * width + f"  does not rank models: {item['why_not']}"
