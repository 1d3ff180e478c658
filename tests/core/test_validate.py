"""Decoding plain data into dataclasses: what is accepted, what an error names, and the schema."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.validate import (
    ASCENDING,
    DISTINCT,
    Finite,
    NullAs,
    Positive,
    Share,
    between,
    decode,
    decode_arguments,
    describe_type,
    document,
    encode,
    entries,
    from_json,
    json_schema,
    matching,
    read_json,
    strictly_between,
    to_json,
)
from tests.core.helpers import schema_fault


@dataclass(frozen=True)
class Limit:
    """A limit.

    Attributes:
        value: Where it lies, a text that
            goes on in a second line.
        name: How it is called.
    """

    value: Annotated[float, strictly_between(0, 10)]
    name: Annotated[str, matching("[a-z]+", "of small letters")] = "limit"


@dataclass(frozen=True)
class Ramp:
    """Another form of a limit."""

    start: Finite
    end: Finite


@document("test rule", schema=2)
@dataclass(frozen=True)
class Rule:
    """A rule with every kind of field."""

    risk: Share
    kind: Literal["risk", "capacity"] = "risk"
    count: Positive | None = None
    notes: tuple[str, ...] = ()
    seen: Annotated[tuple[Finite, ...], ASCENDING, entries(1)] = (0.0,)
    pair: tuple[int, str] = (0, "")
    limits: Annotated[tuple[Limit | Ramp, ...], DISTINCT] = ()
    by_name: Mapping[str, Positive] = field(default_factory=dict)
    threshold: Annotated[float, NullAs(math.inf)] = math.inf
    task: str = field(default="", metadata={"key": "class"})
    others: Mapping[str, Any] = field(default_factory=dict, metadata={"extra": True})

    def __post_init__(self) -> None:
        if self.kind == "capacity" and self.count is None:
            raise UserError("count must be given for a capacity.")


HEADER = {"dubio": "test rule", "schema": 1}
FULL = {
    **HEADER,
    "risk": 1,
    "kind": "capacity",
    "count": 3,
    "notes": ["a"],
    "seen": [1, 1, 2.5],
    "pair": [1, "x"],
    "limits": [{"value": 2}, {"start": 0, "end": 1}],
    "by_name": {"n": 4},
    "threshold": None,
    "class": "digits",
    "more": [1, {"a": None}],
}


def test_decodes_every_kind_of_field() -> None:
    rule = decode(Rule, FULL)
    assert rule.risk == 1.0
    assert isinstance(rule.risk, float)
    assert rule.seen == (1.0, 1.0, 2.5)
    assert rule.pair == (1, "x")
    assert rule.limits == (Limit(2.0), Ramp(0.0, 1.0))
    assert rule.threshold == math.inf
    assert rule.task == "digits"
    assert rule.others == {"more": [1, {"a": None}]}


def test_an_encoded_value_decodes_to_an_equal_one() -> None:
    rule = decode(Rule, FULL)
    assert from_json(Rule, to_json(rule), "rule.json") == rule
    assert encode(rule)["schema"] == 2
    assert encode(rule)["threshold"] is None


@pytest.mark.parametrize(
    ("change", "place", "allowed"),
    [
        ({"risk": "x"}, "'risk'", "a number between 0 and 1"),
        ({"risk": 1.5}, "'risk'", "between 0 and 1"),
        ({"risk": True}, "'risk'", "a number"),
        ({"risk": math.nan}, "'risk'", "between 0 and 1"),
        ({"risk": 10**400}, "'risk'", "a number"),
        ({"kind": "rsik"}, "'kind'", "Did you mean 'risk'"),
        ({"count": 0}, "'count'", "a whole number of at least 1 or null"),
        ({"count": 1.0}, "'count'", "a whole number"),
        ({"notes": "text"}, "'notes'", "a list of texts"),
        ({"notes": ["a", 1]}, r"'notes\[1\]'", "a text"),
        ({"seen": [2, 1]}, "'seen'", "ascending"),
        ({"seen": []}, "'seen'", "not empty"),
        ({"seen": [0, "a"]}, r"'seen\[1\]'", "a number"),
        ({"pair": [1]}, "'pair'", "2 entries"),
        ({"limits": [{"value": 0}]}, r"'limits\[0\].value'", "strictly between 0 and 10"),
        ({"limits": [{"value": 1, "name": "A"}]}, r"'limits\[0\].name'", "small letters"),
        ({"limits": [{"value": 1}, {"value": 1}]}, "'limits'", "repetitions"),
        ({"limits": [{"start": 0}]}, r"'limits\[0\]'", "'end'"),
        ({"by_name": {"n": 0}}, "'by_name.n'", "at least 1"),
        ({"by_name": [1]}, "'by_name'", "table"),
        ({"kind": "capacity"}, "rule.json", "count must be given"),
    ],
)
def test_an_error_names_the_place_and_what_is_allowed(change: dict[str, Any], place: str, allowed: str) -> None:
    with pytest.raises(UserError, match=rf"rule\.json.*{allowed}") as caught:
        decode(Rule, {**HEADER, "risk": 0.5, **change}, "rule.json")
    assert caught.match(place)


def test_unknown_and_missing_fields_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'value'"):
        decode(Limit, {"valeu": 1})
    with pytest.raises(UserError, match="needs the field 'value'"):
        decode(Limit, {"name": "a"})
    with pytest.raises(UserError, match="table with the fields value, name"):
        decode(Limit, [1])


def test_other_documents_and_newer_schemas_are_refused(tmp_path: Any) -> None:
    for text, reason in [
        ('{"dubio": "policy", "schema": 1, "risk": 0}', "not a test rule"),
        ('{"dubio": "test rule", "schema": 3, "risk": 0}', "schema 3"),
        ('{"dubio": "test rule", "schema": true, "risk": 0}', "schema"),
        ('{"dubio": "test rule", "schema": 1, "risk": NaN}', "NaN"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested deeper than 100 levels"),
    ]:
        with pytest.raises(BadFile, match=reason):
            from_json(Rule, text, "rule.json")
    with pytest.raises(BadFile, match="missing"):
        read_json(Rule, tmp_path / "missing.json")


def test_arguments_of_a_function_are_checked_and_completed() -> None:
    def make(n: int, *, lr: float, depth: Positive = 2, names: tuple[str, ...] = (), mode: str | None = None) -> None:
        """Make it."""

    parameters = {p.name: p for p in inspect.signature(make, eval_str=True).parameters.values() if p.name != "n"}
    assert decode_arguments(parameters, {"lr": 1, "names": ["a"]}, "net") == {
        "lr": 1.0, "depth": 2, "names": ("a",), "mode": None,
    }  # fmt: skip
    with pytest.raises(UnknownName, match=r"argument of net 'detph'.*'depth'"):
        decode_arguments(parameters, {"lr": 1, "detph": 3}, "net")
    with pytest.raises(UserError, match="net needs the argument 'lr'"):
        decode_arguments(parameters, {}, "net")
    with pytest.raises(UserError, match='net: lr must be a number; given "x"'):
        decode_arguments(parameters, {"lr": "x"}, "net")


def test_the_schema_accepts_what_decoding_accepts_and_describes_the_fields() -> None:
    schema = json_schema(Rule)
    assert schema_fault(schema, {**FULL, "schema": 2}) is None
    assert schema_fault(schema, json.loads(to_json(decode(Rule, FULL)))) is None
    for change in ({"risk": 2}, {"kind": "x"}, {"count": 0}, {"seen": []}, {"pair": [1]}, {"by_name": {"n": 0}}):
        assert schema_fault(schema, {**FULL, "schema": 2, **change}) is not None
    assert schema_fault(json_schema(Limit), {"valeu": 1}) is not None
    assert json_schema(Limit)["properties"]["value"]["description"].endswith("a text that goes on in a second line.")


def test_types_in_words() -> None:
    assert describe_type(tuple[Positive, ...]) == "a list of whole numbers of at least 1"
    assert describe_type(Annotated[float, between(0, 1)] | None) == "a number between 0 and 1 or null"
    assert describe_type(Mapping[str, float]) == "a table of numbers by name"
