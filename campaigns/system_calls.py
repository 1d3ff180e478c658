"""Fail every n-th system call of every operation, and look at what is left.

Each case: a prepared folder, one call of the operation failed (or that one and all later ones), the folder read again
by a fork that never saw the fault, and the operation repeated. It must hold that

- an interrupted or a short call goes unnoticed: the operation succeeds;
- otherwise the operation succeeds, or ends with a sentence and exit code 1 or 2;
- every entry and every file is the old one or the new one, and the new one where success was reported;
- the operation, repeated, leaves what an undisturbed one leaves, and nothing in scratch directories.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from campaigns.exports import is_scratch, run_quietly
from campaigns.forks import Ending, in_fork
from campaigns.operations import Operation, State
from campaigns.pieces import Figures, Piece
from campaigns.shim import Call, read_record, watching
from dubio.store.locks import sweep

TRANSPARENT = ("EINTR", "short")
SHARES = 2
"""Pieces that the faults of an operation are cut into."""


class Fault(NamedTuple):
    """A fault to inject: the number of the call, what happens to it, and whether to all later ones too."""

    at: int
    kind: str
    onwards: bool

    def __str__(self) -> str:
        return f"call {self.at}: {self.kind}{' from there on' if self.onwards else ''}"


@dataclass
class Tally:
    """What a campaign has counted.

    Attributes:
        calls: Operation → its watched calls.
        faults: Operation → faults injected.
        folders: Operation → different contents of its folder that the faults have left.
        cases: Kind of fault → faults injected.
        refused: Kind of fault → operations that ended with a sentence; all others succeeded.
        problems: What must not happen, one line each, with the fault that shows it.
    """

    calls: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    folders: dict[str, int] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


Tree = dict[str, tuple[bytes, int] | None]
"""Path below a folder → content and time of change of a file, None for a directory; directories come first."""


def read_tree(folder: Path) -> Tree:
    """Return everything below a folder."""
    tree: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        tree[name] = None if path.is_dir() else (path.read_bytes(), path.stat().st_mtime_ns)
    return tree


def lay_out(tree: Tree, folder: Path) -> Path:
    """Make a folder anew with this content, which takes a tenth of the time of a copy."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, entry in tree.items():
        path = f"{folder}/{name}"
        if entry is None:
            os.mkdir(path)
        else:
            with open(path, "wb", buffering=0) as sink:
                sink.write(entry[0])
            os.utime(path, ns=(entry[1], entry[1]))
    return folder


def tree_digest(tree: Tree) -> str:
    """Return a hash of names and contents."""
    digest = hashlib.sha256()
    for name, entry in tree.items():
        digest.update(f"{name}\0{'' if entry is None else len(entry[0])}\0".encode() + (entry[0] if entry else b""))
    return digest.hexdigest()


class Trial:
    """One operation: its prepared folder, and the states before and after.

    What a reader sees in a folder, and what the repeated operation makes of it, follow from its content: equal folders
    are looked at once.
    """

    def __init__(self, operation: Operation, work: Path) -> None:
        self.operation, self.work = operation, work
        base = work / "base"
        base.mkdir(parents=True)
        self.looked: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            operation.prepare(base)
            self.base = read_tree(base)
            self.old = operation.observe(base)
            folder = self.copy()
            run_quietly(operation.act, folder)  # not in a fork: what it imports, every fork has then
            self.new = operation.observe(folder)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page of this process

    def copy(self) -> Path:
        """Return a fresh copy of the prepared folder, always at the same path."""
        return lay_out(self.base, self.work / "case")

    def calls(self) -> list[Call]:
        """Return the watched calls of the undisturbed operation."""
        folder, record = self.copy(), self.work / "record"
        record.unlink(missing_ok=True)

        def act() -> None:
            with watching(folder, record=record):
                self.operation.act(folder)

        _must(in_fork(act))
        return read_record(record)[0]

    def case(self, fault: Fault, call: Call) -> tuple[Ending, list[str]]:
        """Inject one fault; return how the operation ended, and what is wrong."""
        folder, failed_file = self.copy(), self.work / "failed"
        failed_file.unlink(missing_ok=True)

        def act() -> None:
            try:
                with watching(folder, at=fault.at, fault=fault.kind, onwards=fault.onwards) as failed:
                    self.operation.act(folder)
            finally:
                failed_file.write_text(" ".join(failed))

        ending = in_fork(act)
        failed_name = failed_file.read_text() if failed_file.exists() else ""
        problems = [] if failed_name == call.name else [f"{failed_name or 'no call'} failed, not {call.name}"]
        problems += self._words(ending, fault) + self._left_aside(folder, fault, call)
        return ending, problems + self.look(must_be_new=ending.code == 0)

    def _words(self, ending: Ending, fault: Fault) -> list[str]:
        if ending.code not in (0, 1, 2) or "Traceback" in ending.words:
            return [f"no sentence: {ending.words.strip()[-600:]}"]
        if ending.code and fault.kind in TRANSPARENT:
            return [f"not gone unnoticed: {ending.words.strip()}"]
        if ending.code and not ending.words.strip():
            return ["ended without a word"]
        return []

    def look(self, *, must_be_new: bool, complete: Sequence[str] = ()) -> list[str]:
        """Return what is wrong with the folder, and with what the operation, repeated, makes of it.

        Args:
            must_be_new: Whether the operation has reported success.
            complete: Entries that it has reported as complete.
        """
        folder = self.work / "case"
        key = (tree_digest(read_tree(folder)), must_be_new, tuple(complete))
        if key not in self.looked:
            self.looked[key] = self._look(folder, must_be_new, complete)
        return self.looked[key]

    def _look(self, folder: Path, must_be_new: bool, complete: Sequence[str]) -> list[str]:
        seen = in_fork(lambda: self.operation.observe(folder))
        if seen.code:
            return [f"cannot be read afterwards: {seen.words.strip()[-600:]}", *self._again(folder)]
        problems = self.differences(seen.value, must_be_new=must_be_new)
        for entry in complete:
            if seen.value.get(entry) != self.new[entry]:
                problems.append(f"{entry} was complete and is {seen.value.get(entry, 'absent')}")
        return problems + self._again(folder)

    def differences(self, state: State, *, must_be_new: bool) -> list[str]:
        """Return the entries that are neither old nor new, or not new where they must be."""
        problems = []
        # A run saves checkpoints and removes them: those in between need not be old or new, only whole, and they are
        # read by their hashes.
        passing = {key for key in state if key.startswith("checkpoints/")} - {*self.old, *self.new}
        for key in sorted({*state, *self.old, *self.new} - passing):
            allowed = {self.new.get(key)} if must_be_new else {self.old.get(key), self.new.get(key)}
            if (value := state.get(key)) not in allowed:
                problems.append(f"{key} is {value or 'absent'}; allowed: {', '.join(sorted(map(str, allowed)))}")
        return problems

    def _left_aside(self, folder: Path, fault: Fault, call: Call) -> list[str]:
        """Files aside may stay only where their removal was what failed."""
        if fault.onwards or call.name in ("unlink", "rmdir") or not (folder / "out").exists():
            return []
        return [f"left aside: {path.name}" for path in (folder / "out").rglob("*") if is_scratch(path)]

    def _again(self, folder: Path) -> list[str]:
        def act() -> State:
            run_quietly(self.operation.act, folder)
            sweep(folder / "store" / "tmp")
            return self.operation.observe(folder)

        again = in_fork(act)
        if again.code:
            return [f"cannot be repeated: {again.words.strip()[-600:]}"]
        scratch = folder / "store" / "tmp"
        left = sorted(os.listdir(scratch)) if scratch.is_dir() else []
        return [f"repeated: {line}" for line in self.differences(again.value, must_be_new=True)] + [
            f"scratch left: {name}" for name in left
        ]


def faults(calls: Sequence[Call], every: int) -> Iterator[Fault]:
    """Yield the faults that the calls of an operation can meet; of each kind, those at every so-manieth call."""
    for number, call in enumerate(calls, 1):
        if number % every:
            continue
        for kind in ("EIO", "ENOSPC", "EINTR", "short"):
            if call.can(kind):
                yield Fault(number, kind, onwards=False)
        for kind in ("EIO", "ENOSPC"):
            if call.can(kind):
                yield Fault(number, kind, onwards=True)


def run_operation(operation: Operation, every: int, share: tuple[int, int]) -> Figures:
    """Inject a share of all faults into one operation: the i-th of n."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="dubio-calls-") as folder:
        trial = Trial(operation, Path(folder))
        calls = trial.calls()
        tally.calls[operation.name] = len(calls) if share[0] == 0 else 0
        for fault in islice(faults(calls, every), share[0], None, share[1]):
            ending, problems = trial.case(fault, calls[fault.at - 1])
            name = fault.kind + " from there on" * fault.onwards
            tally.cases[name] += 1
            tally.faults[operation.name] += 1
            tally.refused[name] += ending.code in (1, 2)
            tally.problems += [f"{operation.name}, {fault} ({calls[fault.at - 1].name}): {line}" for line in problems]
        tally.folders[operation.name] = len(trial.looked)
    return vars(tally)


def call_pieces(operations: Sequence[Operation], every: int) -> list[Piece]:
    """Return the operations as pieces of a campaign."""
    return [
        Piece(f"system calls, {operation.name}, {share + 1} of {SHARES}",
              partial(run_operation, operation, every, (share, SHARES)))
        for operation in operations
        for share in range(SHARES)
    ]  # fmt: skip


def _must(ending: Ending) -> Ending:
    if ending.code:
        raise RuntimeError(f"the undisturbed operation fails: {ending.words}")
    return ending
