"""Lose the power at every moment of every operation: what an operating system had not been told to flush may be gone.

The preloaded library records what an operation does to the disk. The model of the disk is a cautious one:

- data of a file are safe once that file was flushed (fsync), or everything was (sync);
- a name (made, renamed, removed) is safe once the directory that holds it was flushed; a rename is one thing: it has
  happened or it has not, and it is safe once the directory of its new name was flushed;
- everything else is on the disk or not, each independently of the others; a write may also be there by half, and a
  file may have its new length without its new data (zeros).

A cut after each recorded effect gives many possible disks: nothing that is unsafe, all of it, all but one, one alone,
and random choices. Each is laid out and read again. It must hold that every entry and file is old or new, that what
was reported as complete before the cut is there, and that the operation, repeated, leaves what it leaves otherwise.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.exports import run_quietly
from campaigns.forks import in_fork
from campaigns.operations import Operation
from campaigns.pieces import Figures, Piece
from campaigns.shim import Effect, mark, read_record, watching
from campaigns.system_calls import Trial

RETURNED = "returned"
"""The mark that an operation has ended: from there on everything is new."""


# --- the model of a disk --------------------------------------------------------------------------------------------


@dataclass
class Inode:
    """A file (its data) or a directory (its entries)."""

    data: bytearray | None
    entries: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One thing that is on the disk or is not.

    Attributes:
        effect: Its number among the effects.
        inode: The file whose data, or the directory whose entries it changes: flushing that one makes it safe.
        data: Offset and bytes written; or the new length and None.
        name: The name in the directory that is bound.
        target: The inode that the name is bound to; None if it is removed.
        old: Directory and name that a rename takes away.
    """

    effect: int
    inode: int
    data: tuple[int, bytes | None] | None = None
    name: str = ""
    target: int | None = None
    old: tuple[int, str] | None = None


class Disk:
    """Files and directories below a folder, as they were flushed before the operation."""

    def __init__(self, folder: Path) -> None:
        self.inodes: dict[int, Inode] = {}
        self.by_number: dict[int, int] = {}
        self.root = self._read(folder)

    def _read(self, path: Path) -> int:
        key = self.new(path.stat().st_ino, None if path.is_dir() else bytearray(path.read_bytes()))
        if path.is_dir():
            self.inodes[key].entries = {item.name: self._read(item) for item in sorted(path.iterdir())}
        return key

    def new(self, number: int, data: bytearray | None) -> int:
        """Add a file or directory under the number that the system gave it (numbers are given anew later)."""
        key = len(self.inodes)
        self.inodes[key] = Inode(data)
        self.by_number[number] = key
        return key

    def copy(self) -> Disk:
        """Return a copy that can be changed."""
        other = Disk.__new__(Disk)
        other.root, other.by_number = self.root, self.by_number
        other.inodes = {
            key: Inode(None if node.data is None else bytearray(node.data), dict(node.entries))
            for key, node in self.inodes.items()
        }
        return other

    def find(self, parts: Sequence[str]) -> int:
        """Return the file or directory at a path below the folder."""
        key = self.root
        for part in parts:
            key = self.inodes[key].entries[part]
        return key

    def apply(self, change: Change, *, half: bool = False) -> None:
        """Make a change; of a write perhaps only half."""
        node = self.inodes[change.inode]
        if change.data is not None:
            assert node.data is not None
            offset, data = change.data
            length = offset if data is None else max(len(node.data), offset + len(data))
            node.data[:] = node.data[:length].ljust(length, b"\0")
            if data is not None:
                kept = data[: len(data) // 2] if half else data
                node.data[offset : offset + len(kept)] = kept
            return
        if change.old is not None:
            self.inodes[change.old[0]].entries.pop(change.old[1], None)
        if change.target is None:
            node.entries.pop(change.name, None)
        else:
            node.entries[change.name] = change.target

    def lay_out(self, folder: Path) -> None:
        """Write it into an empty folder."""
        self._write(self.root, folder)

    def _write(self, key: int, path: Path) -> None:
        node = self.inodes[key]
        if node.data is not None:
            path.write_bytes(node.data)
            return
        path.mkdir(exist_ok=True)
        for name, child in node.entries.items():
            self._write(child, path / name)


@dataclass
class History:
    """The changes that an operation made to a disk, when each became safe, and its marks.

    Attributes:
        before: The disk before it.
        changes: In order.
        safe: Number of the effect that made each change safe; absent if none did.
        marks: Number of the effect → text.
        length: Number of effects.
    """

    before: Disk
    changes: list[Change]
    safe: dict[int, int]
    marks: dict[int, str]
    length: int


def history(before: Disk, folder: Path, effects: Sequence[Effect]) -> History:
    """Return the changes behind the recorded effects."""
    now, start = before, before.copy()
    changes: list[Change] = []
    safe: dict[int, int] = {}
    marks: dict[int, str] = {}
    for number, effect in enumerate(effects):
        if effect.kind == "X":
            marks[number] = effect.path
        elif effect.kind == "A":
            now.new(effect.inode, bytearray())
        elif effect.kind in "FS":
            inode = now.by_number.get(effect.inode)
            for index, change in enumerate(changes):
                if effect.kind == "S" or change.inode == inode:
                    safe.setdefault(index, number)
        else:
            changes.append(_change(now, folder, number, effect))
            now.apply(changes[-1])
    for key, node in now.inodes.items():
        start.inodes.setdefault(key, Inode(None if node.data is None else bytearray()))
    return History(start, changes, safe, marks, len(effects))


def _change(now: Disk, folder: Path, number: int, effect: Effect) -> Change:
    if effect.kind in "WT":
        data = (effect.offset, effect.data if effect.kind == "W" else None)
        return Change(number, now.by_number[effect.inode], data=data)
    *above, name = Path(effect.path).relative_to(folder).parts
    directory = now.find(above)
    if effect.kind in "CM":
        target = now.new(effect.inode, bytearray() if effect.kind == "C" else None)
        return Change(number, directory, name=name, target=target)
    if effect.kind == "L":
        return Change(number, directory, name=name, target=now.by_number[effect.inode])
    if effect.kind == "U":
        return Change(number, directory, name=name)
    *new_above, new_name = Path(effect.data.decode()).relative_to(folder).parts
    target = now.inodes[directory].entries[name]
    return Change(number, now.find(new_above), name=new_name, target=target, old=(directory, name))


# --- possible disks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """What is lost when the power goes before an effect.

    Attributes:
        cut: The number of the effect.
        lost: The changes that are not on the disk.
        half: The write of which only half is.
    """

    cut: int
    lost: frozenset[int]
    half: int = -1

    def __str__(self) -> str:
        return f"cut {self.cut}, changes {sorted(self.lost)} lost" + f", half of {self.half}" * (self.half >= 0)


def losses(past: History, cut: int, rng: random.Random, draws: int = 4) -> Iterator[Loss]:
    """Yield what may be lost when the power goes before an effect."""
    done = [index for index, change in enumerate(past.changes) if change.effect < cut]
    open_ = [index for index in done if past.safe.get(index, past.length) >= cut]
    choices = [frozenset(open_), frozenset[int]()]
    for index in open_:
        choices += [frozenset([index]), frozenset(open_) - {index}]
    choices += [frozenset(index for index in open_ if rng.random() < 0.5) for _ in range(draws)]
    yield from (Loss(cut, lost) for lost in dict.fromkeys(choices))
    if open_ and past.changes[open_[-1]].data is not None:
        yield Loss(cut, frozenset(), half=open_[-1])


def disk_after(past: History, loss: Loss) -> Disk:
    """Return the disk as the cut leaves it."""
    disk = past.before.copy()
    for index, change in enumerate(past.changes):
        if change.effect < loss.cut and index not in loss.lost:
            disk.apply(change, half=index == loss.half)
    return disk


# --- the campaign ---------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the campaign has counted.

    Attributes:
        cuts: Operation → moments at which the power goes.
        possible: Operation → disks that are possible then.
        drawn: Operation → those drawn from them, in a random order.
        checked: Operation → the different ones among those drawn.
        problems: What must not happen.
    """

    cuts: dict[str, int] = field(default_factory=dict)
    possible: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class PowerTrial(Trial):
    """An operation whose effects are recorded."""

    def past(self) -> History:
        """Record the undisturbed operation and return what it did to the disk.

        Raises:
            RuntimeError: When the record does not explain what is on the disk.
        """
        folder, record = self.copy(), self.work / "record"
        record.unlink(missing_ok=True)
        before = Disk(folder)

        def act() -> None:
            with watching(folder, record=record):
                run_quietly(self.operation.act, folder)
                mark(RETURNED)

        if (ending := in_fork(act)).code:
            raise RuntimeError(ending.words)
        past = history(before, folder, read_record(record)[1])
        replayed, real = disk_after(past, Loss(past.length, frozenset())), Disk(folder)
        if _tree(replayed, replayed.root) != _tree(real, real.root):
            raise RuntimeError(f"{self.operation.name}: the record does not explain what is on the disk.")
        return past

    def check(self, disk: Disk, marks: Sequence[str]) -> list[str]:
        """Read a possible disk, and repeat the operation on it; return what is wrong."""
        shutil.rmtree(self.work / "case", ignore_errors=True)
        disk.lay_out(self.work / "case")
        return self.look(must_be_new=RETURNED in marks, complete=[mark for mark in marks if mark != RETURNED])


def _tree(disk: Disk, key: int) -> Any:
    node = disk.inodes[key]
    if node.data is not None:
        return bytes(node.data)
    return {name: _tree(disk, child) for name, child in node.entries.items()}


def run_operation(operation: Operation, most: int, seed: int) -> Figures:
    """Cut the power at every moment of one operation, and check the possible disks, at most so many different ones."""
    rng, tally = random.Random(f"{seed} {operation.name}"), Tally()
    with tempfile.TemporaryDirectory(prefix="dubio-power-") as folder:
        trial = PowerTrial(operation, Path(folder))
        past = trial.past()
        possible = [loss for cut in range(past.length + 1) for loss in losses(past, cut, rng)]
        rng.shuffle(possible)
        tally.cuts[operation.name], tally.possible[operation.name] = past.length + 1, len(possible)
        for drawn, loss in enumerate(possible, 1):
            marks = [text for number, text in past.marks.items() if number < loss.cut]
            lines = trial.check(disk_after(past, loss), marks)
            tally.problems += [f"{operation.name}, {loss}: {line}" for line in lines]
            tally.drawn[operation.name], tally.checked[operation.name] = drawn, len(trial.looked)
            if len(trial.looked) == most:
                break
    return vars(tally)


def power_pieces(operations: Sequence[Operation], most: int, seed: int) -> list[Piece]:
    """Return the operations as pieces of a campaign."""
    return [
        Piece(f"lost power, {operation.name}", partial(run_operation, operation, most, seed))
        for operation in operations
    ]
