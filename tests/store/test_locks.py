"""What is put in place is whole, also when the store is closed at that very moment by another thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dubio.core import files
from dubio.core.errors import StoreError
from dubio.store.locks import ScratchDirectory

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
