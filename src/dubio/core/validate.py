"""Decode plain TOML or JSON data into frozen dataclasses, with errors that name the place, and yield JSON Schemas.

The type hints of a dataclass are its schema. Constraints stand beside the type, in ``Annotated``::

    @document("referral rule", schema=1)            # optional: the header of a JSON file of ours
    @dataclass(frozen=True)
    class Rule:
        max_risk: Annotated[float, between(0, 1)]   # whole numbers become float
        kind: Literal["risk", "capacity"] = "risk"  # one of two
        notes: tuple[str, ...] = ()                 # a list in the document
        limits: Mapping[str, Finite] = field(default_factory=dict)
        parent: Rule | None = None                  # nested, or null

    rule = decode(Rule, parse_toml(text, "rule.toml"), "rule.toml")
    rule = from_json(Rule, text, "rule.json")       # BadFile for text that is not such a document
    text = to_json(rule)
    schema = json_schema(Rule)                      # JSON Schema, draft 2020-12

``decode(Rule, {"max_risk": "x"}, "rule.toml")`` fails with ``rule.toml: field 'max_risk' must be a number between 0 and
1; given "x".`` An unknown field is refused with the nearest name. Rules that concern several fields belong in
``__post_init__``; a :class:`~dubio.core.errors.UserError` from there is reported with the place in front. Where a
document calls a field otherwise, ``field(metadata={"key": "task"})`` says so; a field with ``metadata={"extra": True}``
is a mapping that collects the keys that no other field has. :func:`decode_arguments` does the same for the keyword
arguments of a function.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

from dubio.core.documents import parse_json, read_document
from dubio.core.errors import BadFile, UnknownName, UserError, nearest

T = TypeVar("T")
Table = Mapping[str, Any]

LONGEST_VALUE = 60
"""Characters of a refused value that a message shows."""

_REQUIRED: Any = dataclasses.MISSING


# --- constraints ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Constraint:
    """A condition on a decoded value beyond its type, to stand in ``Annotated``.

    Attributes:
        phrase: Words that follow the name of the type, e.g. ``between 0 and 1``.
        allows: Returns whether a value of the right type satisfies the condition.
        schema: The condition in the words of JSON Schema, as far as those go.
    """

    phrase: str
    allows: Callable[[Any], bool]
    schema: Mapping[str, Any] = field(default_factory=dict)


def between(low: float, high: float) -> Constraint:
    """Allow the numbers from ``low`` to ``high``, both included."""
    schema = {"minimum": low, "maximum": high}
    return Constraint(f"between {low:g} and {high:g}", lambda value: low <= value <= high, schema)


def strictly_between(low: float, high: float) -> Constraint:
    """Allow the numbers from ``low`` to ``high``, both excluded."""
    schema = {"exclusiveMinimum": low, "exclusiveMaximum": high}
    return Constraint(f"strictly between {low:g} and {high:g}", lambda value: low < value < high, schema)


def at_least(low: float) -> Constraint:
    """Allow finite numbers from ``low`` on."""
    return Constraint(f"of at least {low:g}", lambda value: low <= value < math.inf, {"minimum": low})


def above(low: float) -> Constraint:
    """Allow finite numbers larger than ``low``."""
    return Constraint(f"above {low:g}", lambda value: low < value < math.inf, {"exclusiveMinimum": low})


def below(high: float) -> Constraint:
    """Allow the numbers smaller than ``high``."""
    return Constraint(f"below {high:g}", lambda value: value < high, {"exclusiveMaximum": high})


def at_most(high: float) -> Constraint:
    """Allow the numbers up to ``high``."""
    return Constraint(f"of at most {high:g}", lambda value: value <= high, {"maximum": high})


def entries(least: int) -> Constraint:
    """Allow lists, tables and texts with at least this number of entries."""
    phrase = "that is not empty" if least == 1 else f"with at least {least} entries"
    schema = {"minItems": least, "minProperties": least, "minLength": least}  # each type heeds its own
    return Constraint(phrase, lambda value: len(value) >= least, schema)


def matching(expression: str, phrase: str) -> Constraint:
    """Allow the texts that a regular expression matches in full; the phrase says it in words."""
    pattern = re.compile(expression)
    return Constraint(phrase, lambda value: bool(pattern.fullmatch(value)), {"pattern": f"^(?:{expression})$"})


FINITE = Constraint("", math.isfinite)
DISTINCT = Constraint("without repetitions", lambda value: len(set(value)) == len(value), {"uniqueItems": True})
ASCENDING = Constraint("in ascending order", lambda value: all(low <= high for low, high in pairwise(value)))
RISING = Constraint("in strictly ascending order", lambda value: all(low < high for low, high in pairwise(value)))

Finite = Annotated[float, FINITE]
NonNegative = Annotated[int, at_least(0)]
Positive = Annotated[int, at_least(1)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Share = Annotated[float, between(0, 1)]


@dataclass(frozen=True)
class NullAs:
    """A number that JSON cannot hold, such as an infinity, written as null; to stand in ``Annotated``."""

    value: float


# --- the fields of a dataclass or of a function ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    """A field of a dataclass, or a keyword argument of a function."""

    name: str
    key: str
    hint: Any
    default: Any
    extra: bool


@lru_cache(maxsize=1024)
def _fields(cls: type[Any]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_dataclass_field(entry, hints[entry.name]) for entry in dataclasses.fields(cls) if entry.init)


def _dataclass_field(entry: dataclasses.Field[Any], hint: Any) -> _Field:
    default = entry.default if entry.default_factory is _REQUIRED else cast(Any, entry.default_factory)()
    return _Field(entry.name, entry.metadata.get("key", entry.name), hint, default, bool(entry.metadata.get("extra")))


def document(name: str | None, *, schema: int) -> Callable[[type[T]], type[T]]:
    """Mark a dataclass as a JSON document of dubio, with ``{"dubio": name, "schema": schema}`` as its header.

    Args:
        name: The kind of document, or None for a header that has the schema alone.
        schema: Raised by hand when documents written now can no longer be read by an older dubio.
    """

    def decorate(cls: type[T]) -> type[T]:
        cls.__document__ = ({} if name is None else {"dubio": name}) | {"schema": schema}  # type: ignore[attr-defined]
        return cls

    return decorate


def _header(target: Any) -> dict[str, Any]:
    return dict(getattr(target, "__document__", {}))


# --- decoding -------------------------------------------------------------------------------------------------------


class _Location(NamedTuple):
    """The place of a value: the document, what its entries are called, and the path to the value."""

    document: str
    noun: str
    path: str = ""

    def inside(self, key: str | int) -> _Location:
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self.path else key
        return _Location(self.document, self.noun, self.path + step)

    def __str__(self) -> str:
        name = f"{self.noun} {self.path!r}" if self.noun and self.path else self.path
        return ": ".join(filter(None, (self.document, name)))


def decode(hint: type[T], data: Any, document: str = "") -> T:
    """Turn plain data into a value of the hinted type.

    Args:
        hint: A dataclass, or any type made of scalars, Literal, unions, tuples, lists, mappings and dataclasses.
        data: As :mod:`dubio.core.documents` gives it.
        document: The file or object that a message names first.

    Raises:
        UserError: Naming the location, what is allowed there, and what was given.
        UnknownName: For a field that does not exist, with the nearest name.
    """
    return cast(T, _decode(hint, data, _Location(document, "field")))


def decode_arguments(parameters: Mapping[str, inspect.Parameter], arguments: Table, name: str) -> dict[str, Any]:
    """Check keyword arguments against the parameters of a function and fill in its defaults.

    Args:
        parameters: By name, their annotations resolved.
        arguments: By name.
        name: The function as a message calls it.

    Raises:
        UserError: For a missing argument, or a value of another type.
        UnknownName: For an argument it does not have, with the nearest name.
    """
    fields = tuple(_Field(p.name, p.name, p.annotation, _default(p), False) for p in parameters.values())
    return _decode_fields(fields, arguments, _Location(name, ""), "argument")


def _default(parameter: inspect.Parameter) -> Any:
    return _REQUIRED if parameter.default is parameter.empty else parameter.default


def check_fields(value: Any, name: str) -> None:
    """Check the fields of a dataclass whose types have constraints or are literals, for values made in Python.

    Args:
        value: The dataclass.
        name: The dataclass as a message calls it.

    Raises:
        UserError: Naming the field, what is allowed, and what was given.
    """
    for field_name, hint in _limited(cast(Any, type(value))).items():
        data, notes = getattr(value, field_name), _constraints(getattr(hint, "__metadata__", ()))
        # most numbers have their type and are within their limits; the decoder says what is wrong with others
        if not notes or type(data) is not hint.__origin__ or not all(note.allows(data) for note in notes):
            _decode(hint, data, _Location(name, "", field_name))


@lru_cache(maxsize=1024)
def _limited(cls: type[Any]) -> dict[str, Any]:
    """Return the hints with a constraint or a literal in them, also as one of several alternatives."""
    hints = {entry.name: (entry.hint, *typing.get_args(entry.hint)) for entry in _fields(cast(Any, cls))}
    return {name: own[0] for name, own in hints.items() if {Annotated, Literal} & set(map(typing.get_origin, own))}


def from_json(cls: type[T], text: str | bytes, document: str) -> T:
    """Decode JSON text into a dataclass.

    Raises:
        BadFile: When it is not JSON or not such a document, naming the location.
    """
    data = parse_json(text, document)
    try:
        return decode(cls, data, document)
    except UserError as fault:
        raise fault if isinstance(fault, BadFile) else BadFile(str(fault)) from fault


def read_json(cls: type[T], path: Path) -> T:
    """Decode a JSON file into a dataclass.

    Raises:
        BadFile: When it cannot be read, is not JSON or not such a document, naming the file and the location.
    """
    return from_json(cls, read_document(path), str(path))


class _Shape(NamedTuple):
    """A type hint taken apart: its form, its own type and its arguments.

    Forms: ``any``, ``annotated``, ``union``, ``literal``, ``table`` (a dataclass), ``mapping``, ``tuple`` (of a fixed
    length), ``list`` (any other sequence), ``scalar``.
    """

    form: str
    kind: Any
    arguments: tuple[Any, ...]


_SHAPES: dict[int, tuple[Any, _Shape]] = {}
"""Hints with their shapes, by identity: unions that differ in order alone are equal, and their order counts."""
MOST_SHAPES = 4096


def _shape(hint: Any) -> _Shape:
    """Return the shape of a hint; each is taken apart once, since a large document has many values of few types."""
    entry = _SHAPES.get(id(hint))
    if entry is None:
        if len(_SHAPES) >= MOST_SHAPES:
            _SHAPES.clear()
        entry = _SHAPES[id(hint)] = (hint, _taken_apart(hint))  # the hint stays alive, so that its id stays its own
    return entry[1]


def _taken_apart(hint: Any) -> _Shape:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    kind = type(None) if hint is None else origin or hint
    if hint is Any or hint is object:
        form = "any"
    elif origin in _FORMS:
        form = _FORMS[origin]
    elif dataclasses.is_dataclass(kind):
        form = "table"
    elif isinstance(kind, type) and issubclass(kind, Mapping):
        form = "mapping"
    elif kind in (tuple, list, Sequence):
        form = "tuple" if kind is tuple and arguments and arguments[-1] is not Ellipsis else "list"
    else:
        form = "scalar"
    return _Shape(form, kind, arguments)


_FORMS = {Annotated: "annotated", typing.Union: "union", types.UnionType: "union", Literal: "literal"}
_ACCEPTED: dict[str, Any] = {"table": dict, "mapping": Mapping, "tuple": (list, tuple), "list": (list, tuple)}


def _decode(hint: Any, data: Any, location: _Location) -> Any:
    """Return the value of the hint, or raise an error that says what is allowed."""
    form, kind, arguments = _shape(hint)
    if form == "table" and isinstance(data, kind):
        return data
    if form in _ACCEPTED and not isinstance(data, _ACCEPTED[form]):
        raise _refusal(hint, data, location)
    match form:
        case "any":
            return data
        case "annotated":
            return _decode_annotated(hint, data, location)
        case "union":
            return _decode_union(hint, arguments, data, location)
        case "table":
            return _decode_dataclass(kind, data, location)
        case "mapping":
            value_hint = arguments[1] if arguments else Any
            return {str(key): _decode(value_hint, value, location.inside(str(key))) for key, value in data.items()}
        case "tuple" | "list":
            hints = arguments if form == "tuple" else (arguments[0] if arguments else Any,) * len(data)
            if len(hints) != len(data):
                raise _refusal(hint, data, location)
            values = [_decode(hints[index], value, location.inside(index)) for index, value in enumerate(data)]
            return values if kind is list else tuple(values)
        case "literal":
            # True == 1, and a bool must not pass for a number
            allowed = any(data == choice and type(data) is type(choice) for choice in arguments)
        case _:
            if kind is float and type(data) is int and abs(data) < 2**1023:
                return float(data)
            allowed = not (isinstance(data, bool) and kind is not bool)
            allowed = allowed and not (isinstance(kind, type) and not isinstance(data, kind))
    if not allowed:
        raise _refusal(hint, data, location)
    return data


def _decode_annotated(hint: Any, data: Any, location: _Location) -> Any:
    base, *notes = typing.get_args(hint)
    null = _null_of(hint)
    if data is None and null is not None:
        return null.value
    try:
        value = _decode(base, data, location)
    except UserError as fault:
        if _shape(base).form in ("tuple", "list", "table"):
            raise  # it names the entry that is wrong
        raise _refusal(hint, data, location) from fault
    if not all(note.allows(value) for note in _constraints(notes)):
        raise _refusal(hint, data, location)
    return value


def _decode_union(hint: Any, choices: tuple[Any, ...], data: Any, location: _Location) -> Any:
    if data is None and type(None) in choices:
        return None
    faults: list[tuple[int, UserError]] = []
    for choice in choices:
        try:
            return _decode(choice, data, location)
        except UserError as fault:
            faults.append((_likeness(choice, data), fault))
    likeness, closest = max(faults, key=lambda item: item[0])
    raise closest if likeness > 0 else _refusal(hint, data, location)


def _likeness(hint: Any, data: Any) -> int:
    """Return how much the data looks like the hint: that alternative's error is the one to report."""
    form, kind, arguments = _shape(hint)
    if form == "annotated":
        return _likeness(arguments[0], data)
    if form == "table" and isinstance(data, dict):
        return 1 + sum(entry.key in data for entry in _fields(kind))
    fits = {"mapping": dict, "tuple": list, "list": list}
    return int(form in fits and isinstance(data, fits[form]))


def _decode_dataclass(cls: Any, data: dict[str, Any], location: _Location) -> Any:
    header = _header(cls)
    if header:
        data = _without_header(header, data, location)
    try:
        return cls(**_decode_fields(_fields(cls), data, location, "field"))
    except UserError as fault:
        if not location.document or str(fault).startswith(("unknown", location.document)):
            raise
        raise UserError(f"{location}: {fault}") from fault


def _without_header(header: dict[str, Any], data: dict[str, Any], location: _Location) -> dict[str, Any]:
    name = header.get("dubio")
    if name is not None and data.get("dubio") != name:
        raise BadFile(f"{location} is not a {name} of dubio (its field 'dubio' must be {name!r}).")
    schema = data.get("schema")
    if type(schema) is not int or not 1 <= schema <= header["schema"]:
        raise BadFile(f"{location} has schema {schema!r}; this dubio reads up to {header['schema']}.")
    return {key: value for key, value in data.items() if key not in header}


def _decode_fields(declared: tuple[_Field, ...], data: Table, location: _Location, noun: str) -> dict[str, Any]:
    fields = {entry.key: entry for entry in declared}
    extra = next((entry for entry in fields.values() if entry.extra), None)
    values: dict[str, Any] = {entry.name: entry.default for entry in fields.values() if entry.default is not _REQUIRED}
    unknown = {}
    for key, value in data.items():
        if key in fields and not fields[key].extra:
            values[fields[key].name] = _decode(fields[key].hint, value, location.inside(key))
        elif extra is None:
            raise UnknownName(f"{noun} of {location}" if str(location) else noun, key, fields)
        else:
            unknown[key] = value
    if extra is not None:
        values[extra.name] = _decode(extra.hint, unknown, location)
    for entry in fields.values():
        if entry.name not in values:
            raise UserError(f"{str(location) or 'the document'} needs the {noun} {entry.key!r}.")
    return values


def _refusal(hint: Any, data: Any, location: _Location) -> UserError:
    allowed = [str(name) for name in _names_allowed(hint)]
    close = nearest(data, allowed) if isinstance(data, str) and data not in allowed else None
    guess = f" Did you mean {close!r}?" if close else ""
    subject = str(location) or "the value"
    return UserError(f"{subject} must be {describe_type(hint)}; given {_shown(data)}.{guess}")


def _names_allowed(hint: Any) -> list[Any]:
    form, _, arguments = _shape(hint)
    inner = {"annotated": arguments[:1], "union": arguments}.get(form, ())
    return list(arguments) if form == "literal" else [name for item in inner for name in _names_allowed(item)]


def _shown(data: Any) -> str:
    try:
        text = json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(data)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def _constraints(notes: Iterable[Any]) -> list[Constraint]:
    return [note for note in notes if isinstance(note, Constraint)]


def _null_of(hint: Any) -> NullAs | None:
    """Return the number that null stands for in a hint, where it does."""
    return next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, NullAs)), None)


# --- types in words -------------------------------------------------------------------------------------------------

_NOUNS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("true or false", "truth values"),
    type(None): ("null", "nulls"),
    None: ("null", "nulls"),
    Any: ("a value", "values"),
}


def describe_type(hint: Any, *, plural: bool = False) -> str:
    """Return a type in words, e.g. ``a list of whole numbers of at least 1``."""
    if hint in _NOUNS:
        return _NOUNS[hint][plural]
    form, kind, arguments = _shape(hint)
    table, several = ("tables", "lists") if plural else ("a table", "a list")
    match form:
        case "annotated":
            base, *notes = arguments
            phrases = " and ".join(note.phrase for note in _constraints(notes) if note.phrase)
            null = " or null" if _null_of(hint) is not None else ""
            return " ".join(filter(None, (describe_type(base, plural=plural), phrases))) + null
        case "union":
            return " or ".join(describe_type(choice, plural=plural) for choice in arguments)
        case "literal":
            return ("one of " if len(arguments) > 1 else "") + ", ".join(map(repr, arguments))
        case "tuple":
            return f"{several} of {len(arguments)} entries"
        case "list":
            return f"{several} of {describe_type(arguments[0], plural=True)}" if arguments else several
        case "mapping":
            return f"{table} of {describe_type(arguments[1], plural=True)} by name" if arguments else table
        case "table":
            return f"{table} with the fields {', '.join(entry.key for entry in _fields(kind) if not entry.extra)}"
    return str(getattr(hint, "__name__", hint))


# --- encoding and schema --------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """Return plain data for JSON or TOML from which :func:`decode` makes an equal value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data = _header(type(value))
        for entry in _fields(type(value)):
            own, null = getattr(value, entry.name), _null_of(entry.hint)
            plain: Any = None if null is not None and own == null.value else encode(own)
            data |= plain if entry.extra else {entry.key: plain}
        return data
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    return [encode(item) for item in value] if isinstance(value, list | tuple) else value


def to_json(value: Any) -> str:
    """Return a dataclass as an indented JSON document.

    Raises:
        ValueError: For NaN or an infinity, which have no JSON form.
    """
    return json.dumps(encode(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_SCHEMA_TYPES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_LENGTHS = {"array": "minItems", "string": "minLength", "object": "minProperties"}
"""The word of :func:`entries` that means something for a type."""


def json_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a dataclass or of another hint."""
    form, kind, arguments = _shape(hint)
    match form:
        case "annotated":
            schema = json_schema(arguments[0])
            useless = set(_LENGTHS.values()) - {_LENGTHS.get(schema.get("type", ""))}
            for note in _constraints(arguments[1:]):
                schema |= {key: rule for key, rule in note.schema.items() if key not in useless}
            return schema if _null_of(hint) is None else {"anyOf": [schema, {"type": "null"}]}
        case "union":
            return {"anyOf": [json_schema(choice) for choice in arguments]}
        case "literal":
            return {"enum": list(arguments)}
        case "tuple":
            prefix = [json_schema(item) for item in arguments]
            return {"type": "array", "prefixItems": prefix, "minItems": len(prefix), "maxItems": len(prefix)}
        case "list":
            return {"type": "array", **({"items": json_schema(arguments[0])} if arguments else {})}
        case "mapping":
            return {"type": "object", **({"additionalProperties": json_schema(arguments[1])} if arguments else {})}
        case "table":
            return _object_schema(kind)
    return {"type": _SCHEMA_TYPES[kind]} if kind in _SCHEMA_TYPES else {}


def _object_schema(target: Any) -> dict[str, Any]:
    descriptions = section_texts(inspect.getdoc(target) or "", "Attributes")
    properties: dict[str, Any] = {key: {"const": value} for key, value in _header(target).items()}
    required = list(properties)
    others: Any = False
    for entry in _fields(target):
        if entry.extra:
            others = json_schema(entry.hint).get("additionalProperties", True)
            continue
        text = descriptions.get(entry.name)
        properties[entry.key] = json_schema(entry.hint) | ({"description": text} if text else {})
        if entry.default is _REQUIRED:
            required.append(entry.key)
    schema = {"title": target.__name__, "description": (inspect.getdoc(target) or "").partition("\n")[0]}
    schema |= {"type": "object", "properties": properties, "required": required}
    return schema | {"additionalProperties": others}


def section_texts(doc: str, title: str) -> dict[str, str]:
    """Return the text of each entry of a section of a Google docstring, such as its Attributes or Args."""
    section = re.search(rf"^{title}:\n((?:[ ]+.*\n?|\n)+)", doc, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE) if section else []
    return {name: re.sub(r"\s+", " ", text) for name, text in entries}
