"""Fail every n-th system call of every operation, and look at what is left.

Each case: a prepared folder, one call of the operation failed (or that one and all later ones), the folder read again
by a fork that never saw the fault, and the operation repeated. It must hold that

- an interrupted or a short call goes unnoticed: the operation succeeds;
- otherwise the operation succeeds, or ends with a sentence and exit code 1 or 2;
- every entry and every file is the old one or the new one, and the new one where success was reported;
- the operation, repeated, leaves what an undisturbed one leaves, and nothing in scratch directories.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from campaigns.exports import export_operations, is_scratch, run_quietly
from campaigns.forks import Ending, in_fork
from campaigns.operations import Operation, State, store_operations
from campaigns.shim import Call, read_record, watching
from dubio.store.locks import sweep

TRANSPARENT = ("EINTR", "short")


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
        cases: Kind of fault → faults injected.
        refused: Kind of fault → operations that ended with a sentence; all others succeeded.
        problems: What must not happen, one line each, with the fault that shows it.
    """

    calls: dict[str, int] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Trial:
    """One operation: its prepared folder, and the states before and after."""

    def __init__(self, operation: Operation, work: Path) -> None:
        self.operation, self.work = operation, work
        self.base = work / "base"
        self.base.mkdir(parents=True)
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
            operation.prepare(self.base)
            self.old = operation.observe(self.base)
            folder = self.copy()
            run_quietly(operation.act, folder)  # not in a fork: what it imports, every fork has then
            self.new = operation.observe(folder)

    def copy(self) -> Path:
        """Return a fresh copy of the prepared folder, always at the same path."""
        folder = self.work / "case"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(self.base, folder))

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
        problems += self._after(ending, fault) + self._left_aside(folder, fault, call)
        return ending, problems + self._again(folder)

    def _after(self, ending: Ending, fault: Fault) -> list[str]:
        if ending.code not in (0, 1, 2) or "Traceback" in ending.words:
            return [f"no sentence: {ending.words.strip()[-600:]}"]
        if ending.code and fault.kind in TRANSPARENT:
            return [f"not gone unnoticed: {ending.words.strip()}"]
        if ending.code and not ending.words.strip():
            return ["ended without a word"]
        seen = in_fork(lambda: self.operation.observe(self.work / "case"))
        if seen.code:
            return [f"cannot be read afterwards: {seen.words.strip()[-600:]}"]
        return self.differences(seen.value, must_be_new=ending.code == 0)

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


def run_operation(operation: Operation, work: Path, every: int, tally: Tally) -> None:
    """Inject every fault into one operation."""
    trial = Trial(operation, work)
    calls = trial.calls()
    tally.calls[operation.name] = len(calls)
    for fault in faults(calls, every):
        ending, problems = trial.case(fault, calls[fault.at - 1])
        name = fault.kind + " from there on" * fault.onwards
        tally.cases[name] += 1
        tally.refused[name] += ending.code in (1, 2)
        tally.problems += [f"{operation.name}, {fault} ({calls[fault.at - 1].name}): {line}" for line in problems]


def _must(ending: Ending) -> Ending:
    if ending.code:
        raise RuntimeError(f"the undisturbed operation fails: {ending.words}")
    return ending


def main() -> None:
    """Run the campaign in this process, which must have the library preloaded; print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth call")
    parser.add_argument("--only", default="", help="only operations whose name matches this regular expression")
    parser.add_argument("--figures", type=Path, required=True)
    options = parser.parse_args()
    tally, started = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dubio-calls-") as folder:
        for number, operation in enumerate([*store_operations(), *export_operations()]):
            if re.search(options.only, operation.name):
                run_operation(operation, Path(folder) / str(number), options.every, tally)
                seconds = round(time.monotonic() - started, 1)
                print(f"{operation.name}: {tally.calls[operation.name]} calls, {seconds} s", flush=True)
                options.figures.write_text(json.dumps({**vars(tally), "seconds": seconds}, indent=1))


if __name__ == "__main__":
    main()
