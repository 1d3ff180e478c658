"""The form of a manifest: real ones satisfy it and its JSON Schema, damaged ones are refused by place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dubio.core.errors import CorruptFile
from dubio.core.validate import json_schema
from dubio.store.records import (
    RECORD,
    Manifest,
    StoredSplit,
    read_json,
    read_manifest,
    read_record,
    read_spec,
    seal,
    with_defaults,
)
from tests.core.helpers import schema_fault

PATH = Path(__file__).parent / "data" / "store-0.1" / "store" / "runs" / "quick-a4f56c7a.json"


def changed(place: list[Any], value: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    inner: Any = manifest
    for key in place[:-1]:
        inner = inner[key]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return manifest


def test_a_manifest_of_version_0_1_is_read_unchanged_and_satisfies_the_schema() -> None:
    manifest = json.loads(PATH.read_text("utf-8"))
    assert read_manifest(PATH) == manifest
    assert schema_fault(json_schema(Manifest), manifest) is None


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["schema"], 2, "'schema'"),
        (["runs"], {}, "'runs'"),
        (["runs"], None, "'runs'"),
        (["runs", 1, "id"], None, "'id'"),
        (["runs", 1, "fits"], [3], r"'runs\[1\].fits\[0\]'"),
        (["runs", 1, "seed"], -1, r"'runs\[1\].seed'"),
        (["tasks", 0, "splits", 0, "kind"], "tset", r"'tasks\[0\].splits\[0\].kind'.*'train'"),
        (["tasks", 0, "target"], "multi", r"'tasks\[0\].target'"),
    ],
)
def test_a_damaged_manifest_is_refused_by_place_and_by_the_schema(
    tmp_path: Path, place: list[Any], value: Any, message: str
) -> None:
    manifest = changed(place, value)
    path = tmp_path / "run-00000000.json"
    path.write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match=rf"run-00000000\.json.*{message}"):
        read_manifest(path)
    assert schema_fault(json_schema(Manifest), manifest) is not None


HOSTILE: tuple[Any, ...] = (None, True, -1, 1.5, 1e308, 2**62, "x", [], {}, [1], [[]], [{}], {"a": 1})


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = _with(value[path[0]], path[1:], new)
    return changed


def test_a_manifest_with_any_value_at_any_place_is_read_or_refused(tmp_path: Path) -> None:
    manifest = json.loads(PATH.read_text())
    file = tmp_path / "run.json"
    outcomes = set()
    parts = ("tasks", "methods", "runs", "benchmark")
    for place in _places({name: manifest[name] for name in parts if name in manifest}):
        for value in HOSTILE:
            file.write_text(json.dumps(_with(manifest, place, value)))
            try:
                filled = with_defaults(read_manifest(file))
                assert {"failures", "skipped", "advice", "benchmark"} <= filled.keys()
                fields = {"task", "network", "method", "seed", "member", "fits"}
                assert all(fields <= run.keys() for run in filled["runs"])
                outcomes.add("read")
            except CorruptFile as refusal:
                assert str(file) in str(refusal)  # noqa: PT017
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(
    "text", ['{"runs": [1]}', "[" * 100_000, '{"schema": 1e999}', f'{{"schema": {"9" * 400}}}', '{"name": NaN}']
)
def test_hostile_documents_of_a_store_are_damaged_files(text: str, tmp_path: Path) -> None:
    for read, name in ((read_manifest, "run.json"), (read_record, "record.json"), (read_spec, "spec.json")):
        (tmp_path / name).write_text(text)
        with pytest.raises(CorruptFile):
            read(tmp_path / name if read is read_manifest else tmp_path)


def test_a_long_document_keeps_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    document = {"data": "caf\udce9.csv", "rows": [[index] for index in range(200)]}
    path = tmp_path / "run.json"
    path.write_bytes(seal(document))
    assert read_json(path)["data"] == "caf\udce9.csv"


def test_a_record_of_predictions_states_its_environment(tmp_path: Path) -> None:
    """That of an ensemble is read from its first member's."""
    document = {"files": {}, "bytes": 0, "seconds": 0.0, "examples": 0}
    (tmp_path / RECORD).write_bytes(seal(document))
    with pytest.raises(CorruptFile, match="'environment' is no object"):
        read_record(tmp_path, StoredSplit)
    (tmp_path / RECORD).write_bytes(seal({**document, "environment": {}}))
    assert read_record(tmp_path, StoredSplit)["environment"] == {}
