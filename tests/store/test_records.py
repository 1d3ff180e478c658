"""The form of a manifest: real ones satisfy it and its JSON Schema, damaged ones are refused by place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dubio.core.errors import CorruptFile
from dubio.core.validate import json_schema
from dubio.store.records import Manifest, read_manifest
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
