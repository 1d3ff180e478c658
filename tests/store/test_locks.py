"""What is put in place is whole, also when the store is closed at that very moment by another thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dubio.core import files
from dubio.core.errors import StoreError
from dubio.store import locks
from dubio.store.locks import GATE, BusyError, ScratchDirectory, is_held, locked, sweep

NAMES = ["a", "b", "c"]


def made(scratch: ScratchDirectory) -> Path:
    fresh = scratch.new()
    fresh.mkdir()
    for name in NAMES:
        (fresh / name).write_text(name)
    return fresh


def test_a_directory_being_put_in_place_is_whole_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = ScratchDirectory(tmp_path / "tmp")
    closing = threading.Thread(target=scratch.close)
    sync = files.sync_directory

    def close_meanwhile(path: Path) -> None:
        if not closing.ident:
            closing.start()
            closing.join(0.3)
        sync(path)

    monkeypatch.setattr(files, "sync_directory", close_meanwhile)
    scratch.adopt_directory(made(scratch), tmp_path / "place")
    closing.join()
    assert sorted(path.name for path in (tmp_path / "place").iterdir()) == NAMES
    assert not scratch.path.exists()


def test_nothing_is_put_in_place_after_closing(tmp_path: Path) -> None:
    scratch = ScratchDirectory(tmp_path / "tmp")
    scratch.close()
    scratch.path.mkdir()
    fresh = made(scratch)
    with pytest.raises(StoreError, match="closed"):
        scratch.adopt_directory(fresh, tmp_path / "place")
    with pytest.raises(StoreError, match="closed"):
        scratch.adopt(fresh / "a", tmp_path / "file")
    assert not (tmp_path / "place").exists()
    assert not (tmp_path / "file").exists()


def test_scratch_without_a_lock_is_swept_and_that_of_a_living_process_is_not(tmp_path: Path) -> None:
    parent = tmp_path / "tmp"
    mine = ScratchDirectory(parent)
    (parent / "orphan" / "deep").mkdir(parents=True)
    (parent / "file").write_bytes(b"x")
    (parent / "dead").mkdir()
    (parent / "dead.lock").touch()
    (parent / "alone.lock").touch()
    other = ScratchDirectory(parent)
    expected = {mine.path.name, f"{mine.path.name}.lock", other.path.name, f"{other.path.name}.lock"}
    assert {path.name for path in parent.iterdir()} - {GATE} == expected
    mine.close()
    other.close()
    sweep(parent)
    assert list(parent.iterdir()) == []


def test_a_lock_that_is_released_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked(path):
        assert is_held(path)
    assert not path.exists()
    path.touch()
    assert not is_held(path)


HOLD = """
import sys, time
from pathlib import Path
from dubio.store.locks import BusyError, locked
path, log, deadline = Path(sys.argv[1]), Path(sys.argv[2]), time.monotonic() + float(sys.argv[3])
taken = 0
while time.monotonic() < deadline:
    try:
        with locked(path):
            holder = log / "holder"
            holder.touch(exist_ok=False)  # fails if another process is in this block
            holder.unlink()
            taken += 1
    except BusyError:
        pass
print(taken)
"""


def test_two_processes_never_hold_one_lock_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a.lock"), str(tmp_path), "1.0"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert min(counts) > 0


def test_nobody_opens_the_store_while_it_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SWEEP_PATIENCE", 0.2)
    mine = ScratchDirectory(tmp_path / "tmp")
    with mine.alone(), pytest.raises(StoreError, match="being cleaned"):
        ScratchDirectory(tmp_path / "tmp")
    other = ScratchDirectory(tmp_path / "tmp")
    with pytest.raises(BusyError), mine.alone():
        pass
    other.close()
    with mine.alone():
        pass
    mine.close()
