"""Presets: named overlays of one benchmark, written side by side in its TOML file.

::

    default_preset = "small"        # taken where the user names none

    [preset.paper]
    members = 5                     # of every ensemble
    samples = 10                    # of every method that draws any
    seeds = [0, 1, 2]
    training = { epochs = 45 }      # laid over the training arguments of every task
    method.swag = { lr = 0.01 }     # laid over the arguments of one method
    tune.swag = { lr = [0.1, 0.01] } # instead of everything the benchmark tunes
    methods = ["deterministic"]     # instead of the benchmark's

    [[preset.paper.where]]          # only for some tasks or networks; of two that fit, the later one wins
    task = ["cifar100"]
    network = ["wrn-28-10"]
    training = { lr = 0.1, epochs = 300 }
    encoding = { }
    arguments = { }
    network_arguments = { }
    method.swag = { lr = 0.05 }
    method_network.swag = { depth = 2 }
    methods = ["deterministic"]     # instead of the entry's; [] leaves the entry out

A preset is laid over the table of the benchmark before that is read: what a preset can say, a benchmark can say too.
A method that a preset leaves out can still be asked for; what the benchmark and the preset say of it then counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.runner.tables import Table, check

WHOLE: dict[str, type] = {
    "description": str, "seeds": list, "members": int, "samples": int, "methods": list, "training": dict,
    "method": dict, "tune": dict, "where": list,
}  # fmt: skip
OVERLAID = ("arguments", "network_arguments", "encoding", "training")
SINGLE = ("method", "method_network")
WHERE: dict[str, type] = {
    "task": list, "network": list, "methods": list, **dict.fromkeys((*SINGLE, *OVERLAID), dict),
}  # fmt: skip


def labels(entry: Table) -> tuple[str, ...]:
    """What an entry answers to: what it is called, else its task's name, alone and with the text of an argument.

    ``amazon`` with ``source = "books"`` is ``amazon`` and ``amazon-books``.
    """
    if entry.get("called"):
        return (entry["called"],)
    name, arguments = entry["name"], entry.get("arguments", {})
    return (name, *(f"{name}-{value}" for value in arguments.values() if isinstance(value, str)))


def chosen_preset(table: Table, asked: str | None) -> str:
    """The name of the preset to take; empty where there is none and none is asked for.

    Raises:
        UserError: For a preset the benchmark does not have.
    """
    known, default = table.get("preset", {}), table.get("default_preset", "")
    if default and default not in known:
        raise UnknownName("preset in default_preset", default, known)
    if asked is None:
        return str(default)
    if not known:
        raise UserError(f"benchmark {table.get('name')!r} has no presets; leave --preset {asked} out.")
    if asked not in known:
        raise UnknownName(f"preset of benchmark {table.get('name')}", asked, known)
    return asked


def check_presets(table: Table) -> None:
    """Refuse a preset with a key, task or network that the benchmark does not know.

    Raises:
        UserError: Naming the preset and the key.
    """
    entries = table["task"]
    known = {
        "task": {label for entry in entries for label in labels(entry)},
        "network": {entry["network"] for entry in entries},
    }
    methods = _method_names(table)
    for name, preset in table.get("preset", {}).items():
        check(f"[preset.{name}]", preset, WHOLE)
        _check_names(f"method in [preset.{name}]", preset.get("method", {}), methods | {*preset.get("methods", ())})
        for where in preset.get("where", ()):
            place = f"[[preset.{name}.where]]"
            check(place, where, WHERE)
            for key in SINGLE:
                _check_names(f"{key} in {place}", where.get(key, {}), methods | {*where.get("methods", ())})
            for key, allowed in known.items():
                _check_names(f"{key} in {place}", where.get(key, ()), allowed)


def _check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownName(what, name, known)


def _method_names(table: Table) -> set[str]:
    """Every method that the benchmark names, and what its variants are made of."""
    bases = {made.get("method", "") for made in table.get("variant", {}).values() if isinstance(made, dict)}
    return {*_used(table), *table.get("variant", {}), *bases}


def overlaid(table: Table, preset: Table, asked: Iterable[str] = ()) -> dict[str, Any]:
    """The benchmark's table with a preset laid over it; tables of methods that are left out go with them.

    Args:
        table: The benchmark's.
        preset: The preset's.
        asked: Methods that the user names: those that the benchmark has stay, whatever the preset leaves out.

    Raises:
        UserError: When no task is left.
    """
    new = {key: value for key, value in table.items() if key not in ("preset", "default_preset")}
    new |= {key: preset[key] for key in ("seeds", "members", "samples", "methods", "tune") if key in preset}
    new["method"] = _joined(new.get("method", {}), preset.get("method", {}))
    entries = [_with_wheres(entry, preset) for entry in new["task"]]
    new["task"] = [entry for entry in entries if entry.get("methods") != []]
    if not new["task"]:
        raise UserError("the preset leaves no task.")
    used, known = _used(new), {*_used(table), *table.get("variant", {})}
    new["methods"] = [*new["methods"], *(name for name in dict.fromkeys(asked) if name in known and name not in used)]
    return _pruned(new)


def _with_wheres(entry: Table, preset: Table) -> dict[str, Any]:
    new = dict(entry)
    answers = labels(entry)
    fitting = [where for where in preset.get("where", ()) if _fits(where, answers, entry["network"])]
    for layer in ({"training": preset.get("training", {})}, *fitting):
        for key in OVERLAID:
            if layer.get(key):
                new[key] = {**new.get(key, {}), **layer[key]}
        if "methods" in layer:
            new["methods"] = layer["methods"]
        for key in SINGLE:
            if key in layer:
                new[key] = _joined(new.get(key, {}), layer[key])
    return new


def _fits(where: Table, answers: Iterable[str], network: str) -> bool:
    wanted = where.get("task")
    return (wanted is None or bool({*wanted} & {*answers})) and network in where.get("network", [network])


def _joined(below: Mapping[str, Table], above: Mapping[str, Table]) -> dict[str, Table]:
    return {name: {**below.get(name, {}), **above.get(name, {})} for name in dict.fromkeys((*below, *above))}


def _used(table: Table) -> set[str]:
    """The methods of the whole and of its entries."""
    return set(table["methods"]).union(*(entry.get("methods", ()) for entry in table["task"]))


def _pruned(table: dict[str, Any]) -> dict[str, Any]:
    """Without what is said of methods that no entry has any more."""
    used = _used(table)
    variants = {name: made for name, made in table.get("variant", {}).items() if name in used}
    used |= {made["method"] for made in variants.values() if "method" in made}
    for key in ("method", "tune"):
        table[key] = _of(used, table.get(key, {}))
    entries = [{**entry, **{key: _of(used, entry[key]) for key in SINGLE if key in entry}} for entry in table["task"]]
    return {**table, "variant": variants, "task": entries}


def _of(names: Iterable[str], said: Table) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name in names}
