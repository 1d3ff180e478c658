"""Merging stores: whole entries, verified, repeatable; what is damaged or differs is named."""

from __future__ import annotations

import errno
import io
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from dubio.cli.app import app
from dubio.core.errors import StoreError, UserError
from dubio.core.specs import identity
from dubio.runner.examples import thumbnail
from dubio.store import Store
from dubio.store.maintenance import rebuild_index
from dubio.store.merging import merge
from dubio.store.records import RECORD, read_record, seal
from dubio.store.verification import verify
from tests.store.helpers import FIT, SPEC, dump_index, predicted, split, write_fit, write_prediction

PNG = thumbnail(np.zeros((2, 2, 1), np.uint8))


@pytest.fixture
def store(tmp_path):
    def opened(name: str) -> Store:
        return Store.open(tmp_path / name)

    return opened


def files(store: Store) -> dict[str, bytes]:
    kinds = ("fits", "predictions", "runs", "pictures", "examples")
    paths = [path for kind in kinds for path in (store.path / kind).rglob("*.*")]
    return {str(path.relative_to(store.path)): path.read_bytes() for path in paths}


def fill(store: Store, seed: int) -> tuple[str, str]:
    """Store a fit, a prediction and an ensemble of it; return the ids of the first two."""
    fit, prediction = write_fit(store, seed=seed), write_prediction(store, seed)
    store.write_ensemble({"schema": 1, "kind": "prediction", "members": [prediction]})
    store.write_examples("f" * 64, {seed: f"text {seed}"})
    store.scratch.write_file(store.layout.pictures / ("f" * 64) / f"{seed}.png", PNG)
    return fit, prediction


def test_a_merged_store_holds_the_files_of_all(store):
    one, two = store("one"), store("two")
    fill(one, 1)
    fill(two, 2)
    two.write_manifest({"name": "run", "tasks": [], "methods": [], "runs": []}, "a" * 64)
    merged = merge(store("all"), [one, two])
    assert merged.copied == {"fits": 2, "predictions": 4, "runs": 1}
    assert files(store("all")) == {**files(one), **files(two)}
    assert verify(store("all")) == ()


def test_the_index_is_that_of_one_store(store):
    for seed in (1, 2):
        fill(store("single"), seed)
        fill(store(f"part-{seed}"), seed)
    rebuild_index(store("single"))
    merge(store("all"), [store("part-1"), store("part-2")])
    assert dump_index(store("all")) == dump_index(store("single"))


def test_a_second_merge_changes_nothing(store):
    fill(store("one"), 1)
    merge(store("all"), [store("one")])
    before = files(store("all"))
    again = merge(store("all"), [store("one"), store("one")])
    assert again.copied == {"fits": 0, "predictions": 0, "runs": 0}
    assert again.present == {"fits": 2, "predictions": 4, "runs": 0}
    assert files(store("all")) == before


def test_a_merge_that_was_stopped_is_taken_up(store, monkeypatch):
    for seed in range(4):
        fill(store("one"), seed)
    original, calls = shutil.copyfileobj, []

    def copy(source, target):
        calls.append(source)
        if len(calls) == 5:
            target.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with pytest.raises(StoreError, match=r"cannot write .*: the disk is full"), store("all") as target:
        merge(target, [store("one")])
    assert verify(store("all")) == ()  # what is there is whole
    merged = merge(store("all"), [store("one")])
    assert merged.present["fits"] == 2
    assert files(store("all")) == files(store("one"))


@pytest.mark.parametrize("name", ["weights.safetensors", "encoder.json", "record.json", "spec.json"])
def test_a_damaged_fit_is_named_and_left_out(store, name):
    fit, prediction = fill(store("one"), 1)
    path = store("one").layout.directory("fits", fit) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (damage,) = merge(store("all"), [store("one")]).damaged
    assert (damage.kind, damage.id) == ("fits", fit)
    assert str(path) in damage.error
    assert store("all").ids("fits") == ()
    assert prediction in store("all").ids("predictions")


def test_a_damaged_prediction_is_named_and_left_out(store):
    _, prediction = fill(store("one"), 1)
    (path,) = store("one").layout.directory("predictions", prediction).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    (damage,) = merge(store("all"), [store("one")]).damaged
    assert (damage.kind, damage.id) == ("predictions", prediction)
    assert prediction not in store("all").ids("predictions")


def test_damaged_examples_are_named_and_left_out(store):
    fill(store("one"), 1)
    (path,) = store("one").layout.examples.glob("*/*.json")
    path.write_bytes(path.read_bytes()[:-1])
    (damage,) = merge(store("all"), [store("one")]).damaged
    assert (damage.kind, damage.id) == ("examples", f"{'f' * 64}/{path.name}")
    assert not [*store("all").layout.examples.glob("*/*.json")]


def test_examples_that_the_disk_does_not_give_end_the_merge(store, monkeypatch):
    """The merge succeeded without them, and nobody was told."""
    fill(store("one"), 1)
    (path,) = store("one").layout.examples.glob("*/*.json")
    opened = io.open

    def broken(file, *arguments, **options):
        if file == path:
            raise OSError(errno.EIO, "Input/output error", str(file))
        return opened(file, *arguments, **options)

    monkeypatch.setattr(io, "open", broken)
    with pytest.raises(StoreError, match=path.name):
        merge(store("all"), [store("one")])


def test_a_sound_copy_replaces_a_damaged_one(store):
    fit, _ = fill(store("one"), 1)
    merge(store("all"), [store("one")])
    weights = store("all").layout.directory("fits", fit) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert merge(store("all"), [store("one")]).copied["fits"] == 1
    assert files(store("all")) == files(store("one"))


def test_different_weights_under_one_id_are_named_and_the_first_are_kept(store):
    one, two = store("one"), store("two")
    fit = write_fit(one)
    two.write_fit(SPEC, {"a": np.ones(3)}, {"words": ["ä"]}, {"seconds": 1.0})
    (conflict,) = merge(store("all"), [one, two]).conflicts
    assert f"fit {fit}, weights.safetensors" in conflict
    assert str(two.path) in conflict
    assert files(store("all")) == files(one)


def test_timings_and_environment_are_no_conflict(store):
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        store(name).write_fit(SPEC, {"a": np.ones(3)}, {}, {"seconds": seconds})
    assert merge(store("all"), [store("one"), store("two")]).conflicts == []
    assert store("all").record(FIT)["seconds"] == 1.0


def test_splits_that_one_store_lacks_are_added(store):
    first, second = split("test", 0), split("more", 1)
    prediction = write_prediction(store("one"), 0, first)
    write_prediction(store("two"), 0, first, second)
    merged = merge(store("all"), [store("one"), store("two")])
    assert (merged.copied["predictions"], merged.conflicts) == (2, [])
    for part in (first, second):
        stored = store("all").read_predictions(prediction, part.name, part.fingerprint)
        assert np.array_equal(stored.logits, predicted(0).logits)


def test_different_predictions_on_one_split_are_named(store):
    spec = {"schema": 1, "kind": "prediction", "fit": FIT, "seed": 0}
    for name, seed in (("one", 0), ("two", 1)):
        with store(name).prediction_writer(spec, {}) as writer:
            writer.add(split(), predicted(seed), 0.1)
    (conflict,) = merge(store("all"), [store("one"), store("two")]).conflicts
    assert f"prediction {identity(spec)}, test-" in conflict
    stored = store("all").read_predictions(identity(spec), "test", split().fingerprint)
    assert np.array_equal(stored.logits, predicted(0).logits)


def test_different_manifests_of_one_run_are_named(store):
    for name, advice in (("one", []), ("two", ["beware"])):
        store(name).write_manifest({"name": "run", "tasks": [], "methods": [], "runs": [], "advice": advice}, "a" * 64)
    (conflict,) = merge(store("all"), [store("one"), store("two")]).conflicts
    assert conflict.startswith("run run-aaaaaaaa:")
    assert store("all").manifest("run")["advice"] == []


@pytest.mark.parametrize("name", ["../../../outside.safetensors", "/etc/hostname", "sub/file"])
def test_a_record_cannot_reach_out_of_its_directory(store, tmp_path, name):
    prediction = write_prediction(store("one"))
    (tmp_path / "outside.safetensors").write_bytes(b"private")
    directory = store("one").layout.directory("predictions", prediction)
    record = read_record(directory)
    (facts,) = record["files"].values()
    (directory / RECORD).write_bytes(seal({**record, "files": {name: facts}}))
    (damage,) = merge(store("all"), [store("one")]).damaged
    assert damage.id == prediction
    assert store("all").ids("predictions") == ()


@pytest.mark.parametrize("facts", [[], {}, {"sha256": "0"}, None])
def test_a_record_that_says_nothing_about_a_file_is_damage(store, facts):
    prediction = write_prediction(store("one"))
    directory = store("one").layout.directory("predictions", prediction)
    (directory / RECORD).write_bytes(seal({"files": {"test": facts}}))
    (damage,) = merge(store("all"), [store("one")]).damaged
    assert f"{RECORD}: file 'test':" in damage.error


def test_a_link_is_not_followed(store, tmp_path):
    fit = write_fit(store("one"))
    weights = store("one").layout.directory("fits", fit) / "weights.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    assert [row.id for row in merge(store("all"), [store("one")]).damaged] == [fit]


def test_a_file_that_cannot_be_read_is_named_as_such(store, monkeypatch):
    fit = write_fit(store("one"))
    weights = store("one").layout.directory("fits", fit) / "weights.safetensors"
    original = type(weights).open

    def refuse(path, *arguments, **options):
        if path == weights:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(type(weights), "open", refuse)
    with pytest.raises(UserError, match=r"weights.safetensors' cannot be read"):
        merge(store("all"), [store("one")])


def test_no_entry_is_written_while_a_run_makes_it(store):
    fit, _ = fill(store("one"), 1)
    words = r"a run is making .*merge again"
    with store("all") as target, store("all").lock(fit), pytest.raises(StoreError, match=words):
        merge(target, [store("one")])


def test_a_store_is_not_merged_into_itself(store, tmp_path):
    fill(store("one"), 1)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    with pytest.raises(UserError, match="cannot be merged into itself"):
        merge(store("link"), [store("one")])


# --- the command ----------------------------------------------------------------------------------------------------


def command(*words: object):
    return CliRunner().invoke(app, ["store", "merge", *map(str, words)])


def test_the_command_counts_what_it_copied(store, tmp_path):
    fill(store("one"), 1)
    result = command(tmp_path / "one", "--into", tmp_path / "all", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["copied"]) == (0, {"fits": 1, "predictions": 2, "runs": 0})
    again = command(tmp_path / "one", "--into", tmp_path / "all")
    assert "0 fits (1 there), 0 predictions (2 there)" in again.stdout


def test_the_command_names_damage_and_conflicts(store, tmp_path):
    fit = write_fit(store("one"))
    weights = store("one").layout.directory("fits", fit) / "weights.safetensors"
    weights.write_bytes(b"")
    result = command(tmp_path / "one", "--into", tmp_path / "all")
    assert (result.exit_code, f"damaged, left out: fits {fit}" in result.stdout) == (1, True)


@pytest.mark.parametrize("header", [None, b"{}", b'{"dubio": "store", "schema": 99}'])
def test_the_command_refuses_what_is_no_store_and_makes_nothing(store, tmp_path, header):
    store("one")
    (tmp_path / "odd").mkdir()
    if header is not None:
        (tmp_path / "odd" / "store.json").write_bytes(header)
    result = command(tmp_path / "one", tmp_path / "odd", "--into", tmp_path / "all")
    assert isinstance(result.exception, StoreError)
    assert "odd" in str(result.exception)
    assert not (tmp_path / "all").exists()
