"""Parts and their JSON form, canonical JSON, and ids, some of which are pinned: stores depend on them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubio.core.errors import StoreError
from dubio.core.specs import added, canonical, check_id, describe, identity, part, restore, to_json, to_plain


@part("test-lens")
@dataclass(frozen=True)
class Lens:
    width: int = 3
    tint: str = added("clear")


def test_every_field_is_described_also_at_its_default():
    assert describe(Lens(tint="red")) == {"part": "test-lens", "version": 1, "width": 3, "tint": "red"}


def test_a_later_field_at_its_default_is_no_part_of_the_description():
    assert describe(Lens()) == {"part": "test-lens", "version": 1, "width": 3}
    assert describe(Lens(tint="clear")) == describe(Lens())


@pytest.mark.parametrize("lens", [Lens(), Lens(5), Lens(tint="red")])
def test_a_description_gives_the_same_value_back(lens):
    assert restore(describe(lens)) == lens


SPEC = {
    "schema": 1, "kind": "fit", "start": None, "seed": 0, "member": 2,
    "task": {"name": "digits", "classes": ["zéro", "一"], "train": "ab", "val": "cd"},
    "recipe": {"part": "recipe", "version": 1, "lr": 0.001, "p": 1e-07, "edits": [], "flag": True},
}  # fmt: skip


def test_canonical_json_is_this_text():
    assert canonical({"b": [1, 2.5, None, True], "a": "é"}) == '{"a":"é","b":[1,2.5,null,true]}'.encode()


def test_pinned():
    text = (
        '{"kind":"fit","member":2,"recipe":{"edits":[],"flag":true,"lr":0.001,"p":1e-07,"part":"recipe","version":1},'
        '"schema":1,"seed":0,"start":null,"task":{"classes":["zéro","一"],"name":"digits","train":"ab","val":"cd"}}'
    )
    assert identity(SPEC) == hashlib.sha256(text.encode()).hexdigest()
    assert identity(SPEC) == "05a54f4d9c1a0644f9c3c88a2309c527eed28249181cc4f2e9450b5a8ed32251"
    assert identity({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()))
def test_the_order_of_keys_does_not_count(table):
    assert identity(table) == identity(dict(reversed(list(table.items()))))


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="Out of range"):
        identity({"lr": float("nan")})
    with pytest.raises(TypeError):
        identity({"lr": object()})


@pytest.mark.parametrize("given_id", ["", "../" * 8, "A" * 64, "a" * 63, "a" * 64 + "/"])
def test_only_ids_are_ids(given_id):
    with pytest.raises(StoreError):
        check_id(given_id)


def test_readers_get_infinities_as_texts_and_undefined_numbers_as_null():
    text = to_json({"a": float("inf"), "b": [-float("inf"), float("nan")], "c": np.float64("inf"), "d": 1.5})
    wanted = {"a": "Infinity", "b": ["-Infinity", None], "c": "Infinity", "d": 1.5}
    assert json.loads(text, parse_constant=pytest.fail) == wanted
    assert to_plain([float("inf"), float("nan")]) == [None, None]
