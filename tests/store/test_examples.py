"""Examples in a store: what is written is read, what is damaged or hostile is left out, old pictures are read too."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dubio.core.errors import CorruptFile, StoreError
from dubio.store import Store
from dubio.store.examples import (
    LONGEST_CELL,
    LONGEST_TEXT,
    MOST_CELLS,
    PNG,
    encode_examples,
    read_examples_file,
    shortened,
)
from dubio.store.maintenance import export, remove, unreferenced
from dubio.store.verification import verify

SPLIT = "ab" * 32
HOSTILE = "</script><img src=x onerror=alert(1)>\u202eabc\u0000\u0007 &amp; {{7*7}} '\"\n\t日本"


def place(store: Store, document: Any, name: str = "") -> Path:
    """Put a file of examples into a store by hand, by default under the hash that its content has."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    path = store.layout.examples / SPLIT / f"{name or sha256(content).hexdigest()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


def test_texts_tables_and_images_are_read_as_they_were_written(store):
    contents = {12: PNG + b"\x00\xff", 3: HOSTILE, 7: {"z": "1", "a": HOSTILE[:50], "": "nan"}, 0: ""}
    store.write_examples(SPLIT, contents)
    assert store.read_examples(SPLIT) == contents
    assert list(store.read_examples(SPLIT)) == [0, 3, 7, 12]
    assert list(store.read_examples(SPLIT)[7]) == ["z", "a", ""]
    assert verify(store) == ()


def test_a_second_run_adds_rows_and_changes_none(store):
    store.write_examples(SPLIT, {1: "one", 2: "two"})
    (first,) = (store.layout.examples / SPLIT).iterdir()
    content = first.read_bytes()
    store.write_examples(SPLIT, {2: "other", 3: "three"})
    store.write_examples(SPLIT, {1: "one", 3: "three"})
    assert store.read_examples(SPLIT) == {1: "one", 2: "two", 3: "three"}
    assert len(list((store.layout.examples / SPLIT).iterdir())) == 2
    assert first.read_bytes() == content


def test_long_contents_are_cut_where_they_are_stored(store):
    wide = {f"{'c' * 80}{k}": "v" * 100 for k in range(50)} | {"late": "x"}
    store.write_examples(SPLIT, {0: "x" * 10_000, 1: {f"c{k}": "v" * 100 for k in range(500)}})
    stored = store.read_examples(SPLIT)
    assert stored[0] == "x" * (LONGEST_TEXT - 1) + "…"
    assert len(stored[1]) == MOST_CELLS
    assert {len(value) for value in stored[1].values()} == {LONGEST_CELL}
    assert "late" not in shortened(wide)
    (path,) = (store.layout.examples / SPLIT).iterdir()
    assert path.stat().st_size < 10_000


def test_a_store_of_pictures_alone_is_read(store):
    folder = store.layout.pictures / SPLIT
    folder.mkdir(parents=True)
    for name, content in {"3": PNG + b"one", "10": PNG + b"two", "note": PNG, "7": b"<svg>", "9" * 40: PNG}.items():
        (folder / f"{name}.png").write_bytes(content)
    assert store.read_examples(SPLIT) == {3: PNG + b"one", 10: PNG + b"two"}
    store.write_examples(SPLIT, {3: "never", 4: "text"})
    assert store.read_examples(SPLIT) == {3: PNG + b"one", 4: "text", 10: PNG + b"two"}


def test_a_split_without_examples_has_none_and_a_path_is_no_split(store):
    assert store.read_examples("cd" * 32) == {}
    store.write_examples(SPLIT, {})
    assert not store.layout.examples.exists()
    for act in (store.read_examples, lambda name: store.write_examples(name, {0: "x"})):
        with pytest.raises(StoreError):
            act("../../other")


@pytest.mark.parametrize(
    "document",
    [
        [], {"texts": {"1": 3}}, {"texts": {"-1": "x"}}, {"texts": {"1e3": "x"}}, {"texts": {"9" * 30: "x"}},
        {"texts": {"١": "x"}}, {"tables": {"1": [["a"]]}}, {"tables": {"1": {"a": "b"}}}, {"images": {"1": "%%%"}},
        {"images": {"1": "PHN2Zz4="}}, {"other": {}}, b"\x80\x04pickle", b"", b"[" * 100_000,
        b'{"texts": {"1": "a", "1": "b"}}', b'{"texts": {"1": "\\ud800"}}',
    ],
)  # fmt: skip
def test_a_hostile_file_is_left_out_and_named(store, document):
    store.write_examples(SPLIT, {1: "good"})
    path = place(store, document)
    with pytest.raises(CorruptFile, match=path.name):
        read_examples_file(path)
    assert store.read_examples(SPLIT) == {1: "good"}
    assert [(row.kind, row.id) for row in verify(store)] == [("examples", f"{SPLIT}/{path.name}")]


def test_a_file_under_another_name_than_its_hash_is_damaged(store):
    path = place(store, encode_examples({1: "x"}), "0" * 64)
    with pytest.raises(CorruptFile, match="not what was written"):
        read_examples_file(path)
    assert store.read_examples(SPLIT) == {}


def test_examples_go_where_their_split_goes(store, tmp_path):
    split = {"name": "test", "kind": "id", "fingerprint": SPLIT, "examples": 3}
    manifest = {"name": "run", "tasks": [{"name": "t", "splits": [split]}], "methods": [], "runs": []}
    path = store.write_manifest(manifest, "a" * 64)
    store.write_examples(SPLIT, {1: "one"})
    store.write_examples("cd" * 32, {1: "of no run"})
    files = export(store, [path.stem], tmp_path / "copy")
    assert [file.parts[1] for file in files if file.parts[0] == "examples"] == [SPLIT]
    assert Store.open(tmp_path / "copy").read_examples(SPLIT) == {1: "one"}
    remove(store, unreferenced(store))
    assert [folder.name for folder in store.layout.examples.iterdir()] == [SPLIT]
