"""Trainings with snapshots, cut off and resumed through a store: the same to the bit, every snapshot written once."""

import json
import os
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from dubio.core.errors import StoreError
from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec
from dubio.store import Store
from dubio.store.checkpoints import POINTER
from dubio.training.checkpoints import resume
from tests.methods.helpers import equal

FIT = "f" * 64
METHOD = {
    "snapshot-ensemble": {"epochs": 6, "cycles": 3, "batch": 8},
    "csgld": {"epochs": 6, "batch": 8, "cycles": 2, "sampling_epochs": 2, "samples_per_cycle": 2, "store": "float16"},
    "swag": {"epochs": 1, "batch": 8, "tail_epochs": 5, "rank": 2, "samples": 3, "collect": "last", "patience": 0},
}
SETTLED = {"snapshot-ensemble": 3, "csgld": 4, "swag": 2}
"""Snapshots at the end; of SWAG, the deviations that are held."""


def blobs():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, size=32)
    inputs = (labels[:, None] + generator.normal(size=(32, 2))).astype(np.float32)
    cuts = {"train": slice(0, 20), "val": slice(20, 32)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("blobs", "table", "multiclass", ("a", "b"), splits, SourceCard("made here", "1", "none", "none"))


def fitted(recipe, checkpoint=None):
    task, start = blobs(), None
    if recipe.start is not None:
        start = fitted(recipe.start).tensors
    spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec("mlp", {"hidden": [5]}), seed=0, member=0)
    return fit(spec, task, FitContext(start=start, checkpoint=checkpoint))


class CutOff:
    """The checkpoint of a store, whose user is interrupted after some savings."""

    every_seconds = 0.0

    def __init__(self, checkpoint, stop_after):
        self._checkpoint, self._left = checkpoint, stop_after
        self.load, self.set_aside = checkpoint.load, checkpoint.set_aside

    def save(self, tensors, state, settled):
        files = self._checkpoint.save(tensors, state, settled)
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return files


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


def cut_off(recipe, store, stop_after):
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, CutOff(store.checkpoint(FIT), stop_after))


def same(a, b):
    return equal(a.tensors, b.tensors) and all(a.record[k] == b.record[k] for k in ("val_nll", "history", "best_epoch"))


@pytest.mark.parametrize("name", METHOD)
def test_a_training_resumed_from_a_store_equals_the_uninterrupted_one(name, store):
    recipe = METHODS.make(name, **METHOD[name])
    whole = fitted(recipe)
    for stop_after in (1, 3, 5):
        cut_off(recipe, store, stop_after)
        with Store.open(store.path) as other:
            resumed = fitted(recipe, CutOff(other.checkpoint(FIT), 99))
            assert same(whole, resumed)
            assert len(other.checkpoint(FIT).load()["settled"]) == SETTLED[name]
            other.write_fit({"of": name, "cut": stop_after}, resumed.tensors, {}, {})  # from the mapped files
            other.checkpoint(FIT).remove()
        (fit_id,) = set(store.ids("fits"))
        assert equal(store.read_fit(fit_id).tensors, whole.tensors)
        os.rename(store.layout.directory("fits", fit_id), store.layout.scratch / fit_id)


@pytest.mark.parametrize("name", METHOD)
def test_every_snapshot_is_written_once(name, store):
    recipe, seen = METHODS.make(name, **METHOD[name]), {}

    class Watched(CutOff):
        def save(self, tensors, state, settled):
            assert not any(key.startswith(f"collected/{start}") for key in tensors for start in settled)
            files = super().save(tensors, state, settled)
            for start, path in files.items():
                which = (path, path.stat().st_ino, path.stat().st_mtime_ns)
                assert seen.setdefault(start, which) == which
            return files

    cut = Watched(store.checkpoint(FIT), 4)
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, cut)
    fitted(recipe, Watched(store.checkpoint(FIT), 99))
    assert len(seen) == {"swag": 5}.get(name, SETTLED[name])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_saved_snapshots_are_held_in_their_files(store):
    recipe = METHODS.make("snapshot-ensemble", **METHOD["snapshot-ensemble"])
    left = fitted(recipe, CutOff(store.checkpoint(FIT), 99))
    with open("/proc/self/maps") as lines:
        mapped = [line.split()[0].split("-") for line in lines if FIT in line]
    ranges = [(int(first, 16), int(last, 16)) for first, last in mapped]
    assert len(ranges) == 3
    for array in left.tensors.values():
        assert any(first <= array.__array_interface__["data"][0] < last for first, last in ranges)


def test_a_damaged_snapshot_means_training_from_the_start(store):
    recipe = METHODS.make("snapshot-ensemble", **METHOD["snapshot-ensemble"])
    whole = fitted(recipe)
    cut_off(recipe, store, 5)
    path = store.checkpoint(FIT).load()["settled"]["2/"]
    path.write_bytes(path.read_bytes()[:-1])
    assert store.checkpoint(FIT).load() is None
    cut_off(recipe, store, 5)
    path = store.checkpoint(FIT).load()["settled"]["4/"]
    path.unlink()
    assert same(whole, fitted(recipe, CutOff(store.checkpoint(FIT), 99)))


@pytest.mark.parametrize("name", METHOD)
def test_a_checkpoint_that_holds_everything_in_one_file_is_read(name, store):
    """As checkpoints were before snapshots had files of their own."""
    recipe = METHODS.make(name, **METHOD[name])
    whole = fitted(recipe)
    cut_off(recipe, store, 4)
    checkpoint = store.checkpoint(FIT)
    kept = checkpoint.load()
    more = {f"collected/{s}{key}": a for s, path in kept["settled"].items() for key, a in load_file(path).items()}
    checkpoint.save({**kept["tensors"], **more}, kept["state"])
    pointer = store.layout.checkpoint(FIT) / POINTER
    pointer.write_text(json.dumps({k: v for k, v in json.loads(pointer.read_text()).items() if k != "settled"}))
    assert same(whole, fitted(recipe, CutOff(store.checkpoint(FIT), 99)))


def resaved(**changes):
    """Return a harm that saves other content with hashes of its own: whole files that this training cannot use."""

    def harm(store, directory):
        checkpoint = store.checkpoint(FIT)
        kept = checkpoint.load()
        settled = {name: load_file(path) for name, path in kept["settled"].items()}
        changed = {name: change(kept[name]) for name, change in changes.items()}
        checkpoint.save(changed.get("tensors", kept["tensors"]), changed.get("state", kept["state"]), settled)

    return harm


def without(prefix):
    return lambda tensors: {name: array for name, array in tensors.items() if not name.startswith(prefix)}


def in_progress(**changes):
    return lambda state: {**state, "progress": {**state["progress"], **changes}}


def rewritten(content):
    return lambda store, directory: (directory / POINTER).write_bytes(content)


def pointing(**changes):
    def harm(store, directory):
        pointer = directory / POINTER
        pointer.write_text(json.dumps({**json.loads(pointer.read_text()), **changes}))

    return harm


def replaced_by_a_file(store, directory):
    shutil.rmtree(directory)
    directory.write_bytes(b"")


def replaced_by_directories(store, directory):
    (directory / POINTER).unlink()
    (directory / POINTER).mkdir()


HARMS = {
    "truncated": lambda store, directory: next(directory.glob("*.safetensors")).write_bytes(b"\0" * 9),
    "garbage": rewritten(b"\xff\0garbage"),
    "empty": rewritten(b""),
    "deep": rewritten(b"[" * 100_000),
    "a list": rewritten(b"[]"),
    "a file elsewhere": pointing(file="../../store.json"),
    "a number for a name": pointing(file=7),
    "settled nowhere": pointing(settled={"0/": 3}),
    "endless size": pointing(bytes=1e999),
    "of another fit": pointing(fit="0" * 64),
    "a file": replaced_by_a_file,
    "a directory": replaced_by_directories,
    "no weights": resaved(tensors=without("model/")),
    "no collection": resaved(tensors=without("collected/"), state=lambda state: {**state, "facts": {}}),
    "other shapes": resaved(tensors=lambda tensors: {name: array.reshape(-1)[:1] for name, array in tensors.items()}),
    "not a number": resaved(tensors=lambda tensors: {name: array * np.nan for name, array in tensors.items()}),
    "no state": resaved(state=lambda state: {}),
    "a list of states": resaved(state=lambda state: [1]),
    "unknown progress": resaved(state=in_progress(luck=1)),
    "a text for a number": resaved(state=in_progress(epoch="three")),
    "past the end": resaved(state=in_progress(epoch=10**9)),
}


@pytest.mark.parametrize("name", HARMS)
def test_a_checkpoint_that_cannot_be_used_is_set_aside_and_the_fit_equals_an_undisturbed_one(name, store):
    recipe = METHODS.make("deterministic", epochs=4, batch=8, patience=0)
    whole = fitted(recipe)
    cut_off(recipe, store, 3)
    HARMS[name](store, store.layout.checkpoint(FIT))
    checkpoint = store.checkpoint(FIT, every_seconds=0.0)
    assert same(whole, fitted(recipe, checkpoint))
    (note,) = checkpoint.notes
    (aside,) = store.layout.corrupt.iterdir()
    assert str(aside) in note
    assert same(whole, fitted(recipe, store.checkpoint(FIT)))  # from its own last checkpoint
    assert len(list(store.layout.corrupt.iterdir())) == 1


def test_a_fit_that_fails_without_a_checkpoint_is_not_tried_twice():
    calls = []

    def fail():
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        resume(None, fail)
    assert calls == [1]


@pytest.mark.parametrize("error", [StoreError("the disk is full"), MemoryError(), OSError(5, "I/O")])
def test_what_does_not_lie_in_the_checkpoint_keeps_it(store, error):
    checkpoint = store.checkpoint(FIT)
    checkpoint.save({"w": np.zeros(2)}, {})

    def fail():
        checkpoint.load()
        raise error

    with pytest.raises(type(error)):
        resume(checkpoint, fail)
    assert store.checkpoint(FIT).load() is not None
