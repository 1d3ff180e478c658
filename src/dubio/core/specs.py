"""Specifications: values with a JSON form, canonical JSON, and identities.

Every slot of a recipe and every encoder setting is a *part*: a frozen dataclass registered under a name and a version.
:func:`describe` turns it into JSON with all defaults filled in, from which identities are hashed; :func:`restore` turns
that JSON back into the same value, which is how jobs reach worker processes.

An id is the SHA-256 of the canonical JSON of a resolved specification: of everything that determines the content.
Device, jobs, batch size at prediction and timings are never in it. Tests pin some ids: if they changed, existing stores
could no longer be used.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dubio.core.errors import StoreError, UserError, check_known
from dubio.core.registry import import_packages
from dubio.core.validate import check_fields

T = TypeVar("T")

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_PARTS: dict[str, type[Any]] = {}

ADDED = "added"
"""The metadata key of a field that was added later."""

_PACKAGES = ("encoders", "inference", "networks", "networks.heads", "training", "methods")
PACKAGES = tuple(f"dubio.{name}" for name in _PACKAGES)
"""The packages that define dubio's own parts."""


def part(name: str, *, version: int = 1) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass as a part, whose fields are checked when it is made (see :mod:`dubio.core.validate`).

    Args:
        name: Its name in a description; unique among all parts.
        version: Raised by hand whenever the same fields come to mean something else.
    """

    def decorate(cls: type[T]) -> type[T]:
        if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise TypeError(f"{cls.__name__}: a part is a frozen dataclass")
        other = _PARTS.get(name)
        if other is not None and other.__qualname__ != cls.__qualname__:
            raise UserError(f"part {name!r} is already defined by {other.__module__}.{other.__qualname__}.")
        _PARTS[name] = cls
        cls.part_name = name  # type: ignore[attr-defined]
        cls.part_version = version  # type: ignore[attr-defined]
        make = cls.__init__

        @functools.wraps(make)
        def checked(self: T, *positional: Any, **named: Any) -> None:
            make(self, *positional, **named)
            check_fields(self, name)

        cls.__init__ = checked  # type: ignore[assignment, method-assign]
        return cls

    return decorate


def added(default: Any) -> Any:
    """Declare a field that was added after values had been stored: at its default it is left out of the description.

    The default of the new field is what earlier versions did, so that stored fits keep their identity.
    """
    return dataclasses.field(default=default, metadata={ADDED: default})


def name_of(value: object) -> str:
    """Return the registered name of a part."""
    return str(type(value).part_name)  # type: ignore[attr-defined]


def known_parts() -> dict[str, type[Any]]:
    """Return all registered parts, by name."""
    return dict(_PARTS)


def describe(value: Any) -> Any:
    """Return the JSON form of a value made of parts, tuples, mappings and scalars.

    Raises:
        TypeError: For a value that has no JSON form; identities must never depend on a ``repr``.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [describe(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if hasattr(type(value), "part_name"):
        shown = [field for field in dataclasses.fields(value) if not _unchanged(value, field)]
        fields = {field.name: describe(getattr(value, field.name)) for field in shown}
        return {"part": value.part_name, "version": value.part_version, **fields}
    raise TypeError(f"{value!r} is not a part and has no JSON form")


def _unchanged(value: Any, field: dataclasses.Field[Any]) -> bool:
    return ADDED in field.metadata and getattr(value, field.name) == field.metadata[ADDED]


def restore(description: Any) -> Any:
    """Return the value that a description was made from; lists come back as tuples.

    Raises:
        UnknownName: When a part of that name is not registered (its plugin is not loaded, say).
        UserError: When the part's version is not the one this dubio knows.
    """
    if isinstance(description, list):
        return tuple(restore(item) for item in description)
    if not isinstance(description, dict):
        return description
    if "part" not in description:
        return {key: restore(item) for key, item in description.items()}
    if description["part"] not in _PARTS:
        # Another process wrote this; here nothing may have imported the module yet.
        import_packages(*PACKAGES)
    check_known("part", [description["part"]], _PARTS)
    cls = _PARTS[description["part"]]
    if description["version"] != cls.part_version:
        raise UserError(
            f"part {description['part']!r} has version {description['version']} in this description; "
            f"this dubio knows version {cls.part_version}."
        )
    fields = {key: restore(item) for key, item in description.items() if key not in ("part", "version")}
    return cls(**fields)


ID = re.compile(r"[0-9a-f]{64}")


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value: keys sorted, no spaces, UTF-8 unescaped, no NaN.

    Raises:
        ValueError: For NaN or an infinity, which have no JSON form.
        TypeError: For a value that has no JSON form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def to_json(value: Any) -> str:
    """Return one JSON document for readers: an infinite number is the text "Infinity" or "-Infinity", NaN is null."""
    return json.dumps(to_plain(value, "Infinity"), indent=2, ensure_ascii=False, allow_nan=False)


def to_plain(value: Any, infinity: str | None = None) -> Any:
    """Return a value as JSON holds it: dataclasses as objects, arrays as numbers, tuples as lists, NaN as null.

    Args:
        value: Any value.
        infinity: What stands for an infinite number, "-" before a negative one; null by default.
    """
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, infinity) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, infinity) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist(), infinity)
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if infinity is None or math.isnan(value) else "-" * (value < 0) + infinity


def identity(spec: Any) -> str:
    """Return the id of a specification: SHA-256 of its canonical JSON, in hex."""
    return hashlib.sha256(canonical(spec)).hexdigest()


def check_id(identifier: str) -> str:
    """Return an id that has the form of one; anything else could be a path out of the store.

    Raises:
        StoreError: When it is not 64 hexadecimal digits.
    """
    if not ID.fullmatch(identifier):
        raise StoreError(f"an id is 64 hexadecimal digits; given {identifier!r}.")
    return identifier


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
