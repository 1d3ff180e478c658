"""Reading the tables of a benchmark strictly: every key is known or refused, every value of its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dubio.core.errors import UnknownName, UserError

Table = Mapping[str, Any]

_SPOKEN: dict[type, str] = {str: "a text", list: "a list", dict: "a table", int: "a whole number"}


def check(where: str, table: Any, known: Mapping[str, type], needed: Iterable[str] = ()) -> None:
    """Refuse what is no table, a key that is not known, a value of another type, and a lacking key.

    Raises:
        UserError: Naming the place and what is allowed there.
    """
    if not isinstance(table, dict):
        raise UserError(f"{where} must be a table; given {table!r}.")
    for key, value in table.items():
        if key not in known:
            raise UnknownName(f"key in {where}", key, known)
        if not isinstance(value, known[key]) or (known[key] is int and isinstance(value, bool)):
            raise UserError(f"{where}: {key} must be {_SPOKEN[known[key]]}; given {value!r}.")
    for key in needed:
        if key not in table:
            raise UserError(f"{where} needs the key {key!r}.")


def tables(where: str, given: Table) -> dict[str, Table]:
    """Tables by name.

    Raises:
        UserError: When one of them is none.
    """
    for name, table in given.items():
        if not isinstance(table, dict):
            raise UserError(f"[{where}.{name}] must be a table; given {table!r}.")
    return dict(given)


def names(what: str, values: Iterable[Any]) -> tuple[str, ...]:
    """Names, each once.

    Raises:
        UserError: For what is no text, or a name that comes twice.
    """
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise UserError(f"{what}: every entry must be a name; given {value!r}.")
    once(what, found)
    return found


def seeds(values: Iterable[Any]) -> tuple[int, ...]:
    """Seeds.

    Raises:
        UserError: For what is no whole number, or less than zero.
    """
    found = tuple(values)
    for value in found:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"seeds: every entry must be a whole number, zero or more; given {value!r}.")
    return found


def choices(method: str, key: str, values: Any) -> tuple[Any, ...]:
    """The values that tuning tries.

    Raises:
        UserError: When they are no list, or none.
    """
    if not isinstance(values, list) or not values:
        raise UserError(f"[tune.{method}] {key} must be a list of values to try; given {values!r}.")
    return tuple(values)


def once(what: str, values: Iterable[Any]) -> None:
    """Refuse a value that comes twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise UserError(f"{what}: {value!r} is named twice.")
        seen.add(value)


def at_least(where: str, table: Table, key: str, least: int) -> int | None:
    """The number under a key, or None where there is none.

    Raises:
        UserError: When it is too small.
    """
    value: int | None = table.get(key)
    if value is not None and value < least:
        raise UserError(f"{where}: {key} must be at least {least}; given {value}.")
    return value
