"""Checkpoints with parts that never change: written once, compared on reading, whole wherever the writer dies."""

from __future__ import annotations

import os
import tracemalloc
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from dubio.store import Store
from tests.store.helpers import FIT, SPEC


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        yield opened


def group(k):
    return {"w": np.full((3, 2), k, np.float32).T, "n": np.array(k)}


def save(checkpoint, epoch, settled):
    return checkpoint.save({"w": np.full(2, epoch)}, {"epoch": epoch}, {f"{k}/": group(k) for k in settled})


def loaded(store):
    """Epoch and settled groups of a checkpoint, each group compared with what it was made of."""
    kept = store.checkpoint(FIT).load()
    if kept is None:
        return None
    assert kept["tensors"]["w"].tolist() == [kept["state"]["epoch"]] * 2
    for name, path in kept["settled"].items():
        expected = group(int(name[:-1]))
        assert {key: array.tolist() for key, array in load_file(path).items()} == {
            key: array.tolist() for key, array in expected.items()
        }
    return kept["state"]["epoch"], sorted(kept["settled"])


def files(store):
    """The tensor files of the checkpoint, and which writing of each it is."""
    paths = store.layout.checkpoint(FIT).glob("*.safetensors")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def test_what_never_changes_is_written_once_also_by_the_next_process(store):
    first = save(store.checkpoint(FIT), 1, [1, 2])
    before = files(store)
    assert len(before) == 3
    with Store.open(store.path) as other:
        checkpoint = other.checkpoint(FIT)
        assert checkpoint.load()["settled"] == first
        second = save(checkpoint, 2, [1, 2, 3])
    after = files(store)
    assert {name: second[name] for name in first} == first
    assert all(after[path] == before[path] for path in first.values())
    assert set(after) - set(before) >= {second["3/"]}
    assert len(after) == 4
    assert loaded(store) == (2, ["1/", "2/", "3/"])


def test_what_is_no_longer_wanted_goes(store):
    checkpoint = store.checkpoint(FIT)
    first = save(checkpoint, 1, [1, 2])
    save(checkpoint, 2, [2, 3])
    assert not first["1/"].exists()
    assert len(files(store)) == 3
    assert loaded(store) == (2, ["2/", "3/"])


def test_a_file_that_went_missing_meanwhile_is_written_again(store):
    checkpoint = store.checkpoint(FIT)
    save(checkpoint, 1, [1, 2])["1/"].unlink()
    save(checkpoint, 2, [1, 2])
    assert loaded(store) == (2, ["1/", "2/"])


@pytest.mark.parametrize("damage", ["missing", "truncated", "turned"])
def test_a_damaged_part_drops_the_whole_checkpoint(store, damage):
    path = save(store.checkpoint(FIT), 1, [1, 2])["2/"]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    harm = {
        "missing": path.unlink,
        "truncated": lambda: path.write_bytes(content[:-3]),
        "turned": lambda: path.write_bytes(content),
    }
    harm[damage]()
    checkpoint = store.checkpoint(FIT)
    assert checkpoint.load() is None
    assert not store.layout.checkpoint(FIT).exists()
    save(checkpoint, 1, [1, 2])
    assert loaded(store) == (1, ["1/", "2/"])


class Dead(BaseException):
    """The process is no more."""


def dying(monkeypatch, after):
    """From some step on, no call that changes the disk does anything: not the cleaning up either."""
    left = [after]

    def step(real, *arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise Dead
        return real(*arguments, **named)

    for name in ("replace", "rename", "fsync", "unlink"):
        monkeypatch.setattr(os, name, partial(step, getattr(os, name)))


def test_wherever_the_writer_dies_one_of_the_two_checkpoints_is_whole(tmp_path, monkeypatch):
    found, survived = [], False
    while not survived:
        with Store.open(tmp_path / str(len(found))) as store:
            checkpoint = store.checkpoint(FIT)
            save(checkpoint, 1, [1, 2])
            dying(monkeypatch, after=len(found))
            try:
                save(checkpoint, 2, [2, 3])
                survived = True
            except Dead:
                pass
            monkeypatch.undo()
            found.append(loaded(store))
            follower = store.checkpoint(FIT)
            follower.load()
            save(follower, 3, [2, 3, 4])
            assert loaded(store) == (3, ["2/", "3/", "4/"])
            assert len(files(store)) == 4
    old, new = (1, ["1/", "2/"]), (2, ["2/", "3/"])
    assert found == [old] * found.count(old) + [new] * found.count(new)
    assert min(found.count(old), found.count(new)) > 2


def test_a_fit_is_written_and_read_without_a_copy_in_memory(store):
    weights = {f"{k}/w": np.full(500_000, k, np.float32) for k in range(8)}  # 16 MB
    tracemalloc.start()
    try:
        store.write_fit(SPEC, weights, {}, {})
        kept = store.read_fit(FIT).tensors
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4e6
    assert all(np.array_equal(kept[name], array) for name, array in weights.items())
