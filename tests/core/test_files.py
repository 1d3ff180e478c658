"""The atomic write: whole or not at all, whatever interrupts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dubio.core import files
from dubio.core.errors import StoreError, UserError
from dubio.core.files import atomic_directory, open_atomic, place_directory, write_file, writing


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    assert write_file(path, "ä\n") == path
    assert path.read_bytes() == b"\xc3\xa4\n"
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["b.txt"]


def test_a_file_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_file(tmp_path / "atomic", b"")
    assert (tmp_path / "plain").stat().st_mode == (tmp_path / "atomic").stat().st_mode


def test_an_interrupted_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a", b"old")

    def interrupted_file() -> None:
        with open_atomic(path) as sink:
            sink.write(b"half")
            raise KeyboardInterrupt

    def interrupted_directory() -> None:
        with atomic_directory(tmp_path / "d") as scratch:
            (scratch / "x").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_file()
    assert path.read_bytes() == b"old"
    with pytest.raises(KeyboardInterrupt):
        interrupted_directory()
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("flush"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b))[1])
    write_file(tmp_path / "a", b"x")
    assert calls[:2] == ["flush", "rename"]


@pytest.mark.parametrize("most", [0, 64])
def test_a_directory_appears_whole_and_one_that_exists_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(files, "MANY_FILES", most)
    target = tmp_path / "a" / "d"
    with atomic_directory(target) as scratch:
        (scratch / "sub").mkdir()
        (scratch / "sub" / "x").write_bytes(b"1")
        assert not target.exists()
    assert (target / "sub" / "x").read_bytes() == b"1"
    with atomic_directory(target) as scratch:
        (scratch / "y").write_bytes(b"2")
    assert os.listdir(target) == ["sub"]
    assert os.listdir(target.parent) == ["d"]


def test_an_error_names_the_file_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="file"):
        write_file(tmp_path / "file" / "a", b"x")
    with pytest.raises(StoreError, match="disk is full"), writing(tmp_path, StoreError):
        raise OSError(28, "No space left on device")


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    assert write_file(tmp_path / ("n" * 250), b"x").read_bytes() == b"x"


def test_placing_a_directory_over_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "t").write_bytes(b"")
    failure: Any = OSError
    with pytest.raises(failure):
        place_directory(tmp_path / "d", tmp_path / "t")


@pytest.mark.parametrize("most", [0, 64])
def test_every_directory_and_entry_is_flushed_before_the_rename_and_its_parents_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    calls: list[Any] = []
    rename, fsync, sync = os.rename, os.fsync, os.sync
    target = tmp_path / "new" / "parent" / "d"

    def flush(handle: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(files, "MANY_FILES", most)
    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "sync", lambda: (calls.append("everything"), sync())[1])
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append("rename"), rename(a, b))[1])
    with atomic_directory(target) as scratch:
        (scratch / "sub").mkdir()
        (scratch / "sub" / "x").write_bytes(b"1")
        content = {scratch, scratch / "sub", scratch / "sub" / "x"}
    before, after = calls[: calls.index("rename")], calls[calls.index("rename") :]
    assert content <= set(before) if most else "everything" in before
    assert {tmp_path, tmp_path / "new"} <= set(calls)  # a new directory is an entry of the one above
    assert target.parent in after


def test_of_two_that_place_the_same_directory_at_once_one_wins_and_the_other_is_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "t", os.rename

    def late(source: Path, place: Path) -> None:
        if not target.exists():  # the other one is faster by a hair
            target.mkdir()
            (target / "first").write_bytes(b"")
        rename(source, place)

    monkeypatch.setattr(os, "rename", late)
    with atomic_directory(target) as scratch:
        (scratch / "second").write_bytes(b"")
    assert os.listdir(tmp_path) == ["t"]
    assert os.listdir(target) == ["first"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="elsewhere a file that is written aside has a name")
def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a", b"old")
    code = (
        "import os, signal, sys; from pathlib import Path; from dubio.core.files import open_atomic\n"
        "with open_atomic(Path(sys.argv[1])) as sink:\n"
        "    sink.write(bytes(10_000_000)); sink.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_without_a_name_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot open one, the file that is written aside has a name, and is removed."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = write_file(tmp_path / "a", b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"new", ["a"])


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "real" / "a"
    write_file(target, b"old").chmod(0o600)
    (tmp_path / "link").symlink_to(target)
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o600)


def test_a_path_without_a_name_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("."), Path(""), Path("/")):
        with pytest.raises(UserError, match="it is a folder"):
            write_file(path, b"x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"old").chmod(0o400)
    with pytest.raises(UserError, match="permission denied"):
        write_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
