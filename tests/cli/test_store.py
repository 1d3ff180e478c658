"""``dubio store`` on a small store."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from dubio.cli.store import app
from dubio.core.errors import CorruptFile, UserError
from dubio.core.specs import identity
from dubio.store import Store
from tests.store.helpers import FIT, SPEC, write_fit, write_prediction


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store.open(tmp_path / "dubio-store") as opened:
        write_fit(opened)
        pred_id = write_prediction(opened)
        run = {"id": pred_id, "fits": [FIT], "spec": {}, "task": "toy", "network": "net", "method": "m", "seed": 0}
        manifest = {"name": "run", "tasks": [{"name": "toy"}], "methods": [{"name": "m"}], "runs": [run]}
        manifest["failures"] = []
        opened.write_manifest(manifest, "a" * 64)
        yield opened


def call(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_ls(store):
    assert "run-aaaaaaaa: 1 run of 1 method on toy" in call("ls")
    found = json.loads(call("ls", "--json"))
    assert (found["fits"], found["predictions"], found["runs"][0]["run"]) == (1, 1, "run-aaaaaaaa")


def test_verify(store):
    assert json.loads(call("verify", "--json"))["damaged"] == []
    assert "1 fit, 1 prediction, 1 run" in call("verify")
    (store.layout.directory("fits", FIT) / "encoder.json").write_text("{}")
    assert "1 damaged" in call("verify", code=1)
    assert json.loads(call("verify", "--json", code=1))["damaged"][0]["id"] == FIT


@pytest.mark.parametrize("content", ["[]", "{}", '{"tasks": 5}', '{"name": "run", "runs": []', ""])
def test_a_damaged_manifest_is_reported_and_the_other_runs_are_listed(store, content):
    (store.layout.manifests / "other-bbbbbbbb.json").write_text(content)
    said = call("ls", code=1)
    assert "run-aaaaaaaa: 1 run of" in said
    assert re.search(r"other-bbbbbbbb\.json(:| is) not", said)
    listed = json.loads(call("ls", "--json", code=1))
    assert ([run["run"] for run in listed["runs"]], listed["damaged"][0]["id"]) == (["run-aaaaaaaa"], "other-bbbbbbbb")
    assert [row["kind"] for row in json.loads(call("verify", "--json", code=1))["damaged"]] == ["runs"]
    with pytest.raises(CorruptFile, match="other-bbbbbbbb"):
        call("gc", "--unreferenced")


def test_gc_lists_first_and_removes_on_demand(store):
    write_fit(store, seed=9)
    store.close()  # a store that someone has open for writing is not cleaned
    stray = identity({**SPEC, "seed": 9})
    assert "0 to remove" in call("gc")
    assert f"fits/{stray}: unreferenced" in call("gc", "--unreferenced")
    assert store.has_fit(stray)
    assert json.loads(call("gc", "--unreferenced", "--delete", "--json"))["removed"] is True
    assert not store.has_fit(stray)
    assert store.has_fit(FIT)


def test_export(store, tmp_path):
    files = json.loads(call("export", "out.zip", "--run", "run", "--json"))["files"]
    assert f"fits/{FIT}/weights.safetensors" in files
    assert (tmp_path / "out.zip").exists()
    with pytest.raises(UserError, match="exists already"):
        call("export", "out.zip")


def test_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("ls", "verify", "gc"):
        with pytest.raises(UserError, match="no dubio store"):
            call(command)
