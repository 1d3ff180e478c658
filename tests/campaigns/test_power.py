"""Lost power: the model of a disk knows the classic mistakes, and dubio's writes survive it. `make faults` does all."""

from __future__ import annotations

import random

import pytest
from campaigns.faults import run_faults
from campaigns.power import Disk, disk_after, history, losses
from campaigns.shim import Effect


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    return tmp_path


def contents(folder, effects, cut=None):
    """What may be under the name ``a`` after a cut."""
    past = history(Disk(folder), folder, effects)
    at = past.length if cut is None else cut
    found = set()
    for disk in (disk_after(past, loss) for loss in losses(past, at, random.Random(0))):
        entries = disk.inodes[disk.root].entries
        found.add(bytes(disk.inodes[entries["a"]].data) if "a" in entries else None)
    return found


def replacing(folder, *, file_flushed, folder_flushed):
    """The effects of writing a file aside and renaming it over ``a``."""
    aside, inode = str(folder / "aside"), 987654321
    effects = [Effect("C", inode, 0, aside, b""), Effect("W", inode, 0, "", b"new!")]
    effects += [Effect("F", inode, 0, "", b"")] * file_flushed
    effects += [Effect("R", 0, 0, aside, str(folder / "a").encode())]
    return effects + [Effect("F", folder.stat().st_ino, 0, "", b"")] * folder_flushed


def test_a_rename_before_the_data_are_flushed_may_leave_nothing_or_half(folder):
    found = contents(folder, replacing(folder, file_flushed=False, folder_flushed=True))
    assert {b"", b"ne\0\0"} <= found
    assert b"old" not in found


def test_a_rename_that_is_not_flushed_may_be_lost(folder):
    assert contents(folder, replacing(folder, file_flushed=True, folder_flushed=False)) == {b"old", b"new!"}


def test_flushed_in_order_the_old_is_replaced_by_the_new_at_one_moment(folder):
    effects = replacing(folder, file_flushed=True, folder_flushed=True)
    assert [contents(folder, effects, cut) for cut in range(6)] == [{b"old"}] * 4 + [{b"old", b"new!"}, {b"new!"}]


def test_a_file_in_a_new_directory_is_lost_with_the_name_of_the_directory(folder):
    effects = [Effect("M", 1001, 0, str(folder / "new"), b""), Effect("C", 1002, 0, str(folder / "new" / "x"), b"")]
    effects += [Effect("F", 1001, 0, "", b"")]
    past = history(Disk(folder), folder, effects)
    disks = [disk_after(past, loss) for loss in losses(past, past.length, random.Random(0))]
    assert {"new" in disk.inodes[disk.root].entries for disk in disks} == {True, False}


def test_what_dubio_writes_survives_lost_power():
    only = "a fit$|write pred|split|save a checkpoint|create|aside|refer fit$|of a grid|log of a server"
    figures = run_faults("--disks", "15", "--only", only)["lost power"]
    assert figures["problems"] == []
    assert sum(figures["checked"].values()) > 80
