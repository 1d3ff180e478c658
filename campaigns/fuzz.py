"""Read very many damaged files with every reader of dubio: ``python -m campaigns.fuzz --cases 100000``.

A case passes if its command succeeds with valid output, or refuses the file in words, within the limits of time and
memory; a traceback, exit code 70, a warning of a library, a hang, a memory bomb or half an output is a failure. Cases
run in forked processes that have imported dubio before, a few through ``python -m dubio``; a watchdog ends those that
hang. Case and seed determine the bytes: ``--case 1234`` runs one again and says what happened.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from campaigns.cases import (
    SECONDS,
    WALL,
    Case,
    Outcome,
    drawn_reader,
    make_case,
    run_as_command,
    run_case,
    usable_actions,
)
from campaigns.corpus import entry_case, read_entries, write_entry
from campaigns.forks import processor_seconds
from campaigns.readers import BY_NAME

BATCH = 200
"""Cases that one forked process runs."""
AS_COMMAND = 500
"""One case of so many runs as a command of its own."""
DATA = 4 << 30
"""Bytes that a process may take beyond what it has after imports, so that no bomb takes the machine along."""
MOST_UNPACKED = "250MB"
"""The limit that the cases set on what a file may unpack to; a bomb is some times larger."""
INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
KEPT = 3
"""Failures of one kind that are written as entries of a corpus."""


def load_dubio() -> None:
    """Import all of dubio and make the valid files, before processes are forked; build the command line once."""
    import importlib
    import pkgutil

    import torch
    from typer.main import get_command

    import dubio
    from dubio.cli import app

    for module in pkgutil.walk_packages(dubio.__path__, "dubio."):
        if not module.name.endswith(("__main__", ".ray_executor")):
            importlib.import_module(module.name)
    for name in ("altair", "pyarrow.parquet", "scipy.optimize", "scipy.stats", "PIL.Image", "rich.table"):
        importlib.import_module(name)
    torch.set_num_threads(1)
    for reader in BY_NAME.values():
        reader.trees()
    app.app = get_command(app.app)  # type: ignore[assignment]  # typer builds it again for every command
    gc.collect()
    gc.freeze()  # else every collection in a fork copies the pages of all these objects


def run_cases(numbers: Sequence[int], make: Callable[[int], Case], folder: Path) -> Iterator[Outcome]:
    """Run cases in forked processes, one after the other; a process that hangs or dies is replaced.

    Args:
        numbers: The cases.
        make: Makes a case of its number.
        folder: For files.
    """
    rest = list(numbers)
    while rest:
        batch = rest[:BATCH]
        read, write = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # until the child can be ended
        if (child := os.fork()) == 0:
            os.close(read)
            _run_batch(batch, make, folder, write)
        done = 0
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
            os.close(write)
            for outcome in _watched(child, read):
                done += 1
                yield outcome
        except BaseException:  # an interrupt, or nobody wants the rest: no process outlives the campaign
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.close(read)
            reason = _end(child)
        if done < len(batch):  # it was ended, or ended itself, in the case after the last report
            case = make(batch[done])
            yield Outcome(case.number, case.reader.name, reason, case.title)
            done += 1
        rest = rest[done:]


def _run_batch(batch: Sequence[int], make: Callable[[int], Case], folder: Path, pipe: int) -> None:
    """Run cases and report each; the process ends with it."""
    _leave_interrupts_to_the_first()
    # Data, not address space: the engine that draws pictures reserves addresses that it never uses.
    size = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (size + DATA, resource.RLIM_INFINITY))
    code = 1
    try:
        for number in batch:
            case = make(number)
            run = run_as_command if case.number % AS_COMMAND == AS_COMMAND - 1 else run_case
            os.write(pipe, run(case, folder / str(number)).line())
        code = 0
    except BaseException as error:
        import traceback

        traceback.print_exc()
        print(f"case {number} stopped the campaign: {error!r}", file=sys.stderr)
    finally:
        os._exit(code)


def _leave_interrupts_to_the_first() -> None:
    """Ignore Ctrl-C, which reaches all processes: the first one ends the others, with a signal to terminate."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)


def _watched(child: int, pipe: int) -> Iterator[Outcome]:
    """Yield the reports of a process until it ends; end it when a case takes too long."""
    rest, started, used = b"", time.monotonic(), processor_seconds(child)
    while True:
        ready, _, _ = select.select([pipe], [], [], 1.0)
        if not ready:
            if time.monotonic() - started > WALL or processor_seconds(child) - used > SECONDS:
                os.kill(child, signal.SIGKILL)
                return
            continue
        received = os.read(pipe, 1 << 20)
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            yield Outcome(**json.loads(line))
        started, used = time.monotonic(), processor_seconds(child)


def _end(child: int) -> str:
    """Wait for a process; return how it ended, as the failure of the case it was running."""
    _, status = os.waitpid(child, 0)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return "hang" if number == signal.SIGKILL else f"signal {number}" if number else "the campaign itself"


def run_parallel(numbers: Sequence[int], make: Callable[[int], Case], jobs: int, folder: Path) -> Iterator[Outcome]:
    """Run cases in several processes; outcomes come in any order."""
    if jobs == 1:
        yield from run_cases(numbers, make, folder)
        return
    pipes = {}
    signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    for job in range(jobs):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            _run_share(numbers[job::jobs], make, folder / str(job), write)
        os.close(write)
        pipes[read] = (child, [b""])
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        while pipes:
            for pipe in select.select(list(pipes), [], [])[0]:
                child, rest = pipes[pipe]
                received = os.read(pipe, 1 << 20)
                *lines, rest[0] = (rest[0] + received).split(b"\n")
                yield from (Outcome(**json.loads(line)) for line in lines)
                if not received:
                    os.close(pipe)
                    os.waitpid(child, 0)
                    del pipes[pipe]
    finally:
        for child, _ in pipes.values():  # those of an interrupted campaign
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)


def _run_share(numbers: Sequence[int], make: Callable[[int], Case], folder: Path, pipe: int) -> None:
    """Run cases and report each, until the campaign is interrupted; the process ends with it."""
    _leave_interrupts_to_the_first()
    try:
        for outcome in run_cases(numbers, make, folder):
            os.write(pipe, outcome.line())
    except KeyboardInterrupt:
        pass
    finally:
        os._exit(0)


def keep(case: Case, outcome: Outcome, folder: Path) -> Path:
    """Write a failed case as an entry of the corpus, and beside it what happened."""
    place = write_entry(case, outcome.failure, folder)
    place.with_suffix(".txt").write_text(outcome.details, encoding="utf-8", errors="backslashreplace")
    return place


def by_reader(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Return reader → cases, of them read, refused and failed, longest time in seconds, and peak memory in MB."""
    figures: dict[str, dict[str, float]] = {}
    for name in [*BY_NAME, "all"]:
        if own := [item for item in outcomes if name in (item.reader, "all")]:
            failed = sum(bool(item.failure) for item in own)
            good = sum(not item.failure and item.exit == 0 for item in own)
            longest, peak = max(item.seconds for item in own), max(item.megabytes for item in own)
            counts = {"cases": len(own), "read": good, "refused": len(own) - failed - good, "failed": failed}
            figures[name] = {**counts, "seconds": round(longest, 2), "megabytes": round(peak)}
    return figures


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Return the figures of a campaign as text."""
    lines = [f"{'reader':<22}{'cases':>8}{'read':>8}{'refused':>9}{'failed':>8}{'longest s':>11}{'peak MB':>9}"]
    for name, row in by_reader(outcomes).items():
        counts = f"{row['cases']:>8}{row['read']:>8}{row['refused']:>9}{row['failed']:>8}"
        lines.append(f"{name:<22}{counts}{row['seconds']:>11.2f}{row['megabytes']:>9.0f}")
    kinds = Counter((item.failure, item.reader) for item in outcomes if item.failure)
    numbers = {(item.failure, item.reader): item.number for item in reversed(outcomes) if item.failure}
    lines += [
        f"{count:>6} × {kind} ({reader}), first in case {numbers[kind, reader]}"
        for (kind, reader), count in kinds.most_common()
    ]
    return "\n".join([*lines, f"{len(outcomes)} cases in {seconds:.0f} s"])


def run_valid(folder: Path) -> int:
    """Run every command and function on files that are not damaged; print those that fail, and return 1 if one does."""
    cases = [
        Case(0, reader, tree, next(iter(tree)), action)
        for reader in BY_NAME.values()
        for tree in reader.trees()
        for action in usable_actions(reader, tree)
    ]
    bad = 0
    for case, outcome in zip(cases, run_cases(range(len(cases)), cases.__getitem__, folder / "cases"), strict=True):
        if outcome.failure or outcome.exit != 0:
            bad += 1
            print(
                f"{case.reader.name}: {case.title}: exit {outcome.exit} {outcome.failure} {outcome.details}", flush=True
            )
    print(f"{len(cases)} commands and functions on valid files, {bad} failed")
    return int(bad > 0)


def run_corpus(folder: Path) -> int:
    """Run every entry of the corpus and print its outcome; return 1 when one failed."""
    entries = read_entries()
    names = list(entries)
    failed = False
    cases = run_cases(range(len(names)), lambda k: entry_case(names[k], entries[names[k]]), folder / "cases")
    for name, outcome in zip(names, cases, strict=True):
        right = not outcome.failure and outcome.exit in entries[name].exits
        failed |= not right
        print(json.dumps({"name": name, "right": right, **asdict(outcome)}), flush=True)
    return int(failed)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Damaged files for every reader of dubio.")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reader", choices=BY_NAME, action="append", help="Only this reader; may be repeated.")
    parser.add_argument("--again", choices=BY_NAME, action="append", help="Of the cases only those of this reader.")
    parser.add_argument("--case", type=int, help="Only this case, and print what happened.")
    parser.add_argument("--first", type=int, default=0, help="The first case.")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="Folder for cases that failed.")
    parser.add_argument("--figures", type=Path, help="Write the figures to this file, as JSON.")
    parser.add_argument("--valid", action="store_true", help="First, every command on valid files.")
    parser.add_argument("--corpus", action="store_true", help="Run the corpus, and print each outcome as JSON.")
    return parser.parse_args(arguments)


def run_campaign(options: argparse.Namespace, folder: Path) -> int:
    """Run the cases that the options name, print what fails and the figures; return 1 when a case failed."""

    def make(number: int) -> Case:
        return make_case(options.seed, number, options.reader or ())

    started = time.monotonic()
    numbers: Sequence[int] = range(options.first, options.first + options.cases)
    if options.case is not None:
        numbers = [options.case]
    if options.again:
        numbers = [k for k in numbers if drawn_reader(options.seed, k, options.reader or ()).name in options.again]
    outcomes: list[Outcome] = []
    seen: Counter[str] = Counter()
    try:
        for outcome in run_parallel(numbers, make, min(options.jobs, len(numbers)), folder):
            outcomes.append(outcome)
            seen[outcome.failure] += 1
            if outcome.failure and seen[outcome.failure] <= KEPT:
                place = keep(make(outcome.number), outcome, options.failures)
                print(f"case {outcome.number} ({outcome.reader}): {outcome.failure}: {place}", flush=True)
            if options.case is not None:
                result = f"exit {outcome.exit}; {outcome.failure or 'passed'}"
                print(make(outcome.number).title, result, outcome.details, sep="\n")
            if len(outcomes) % 5000 == 0:
                print(f"{len(outcomes)} cases in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("Interrupted; so far:")
    print(summary(outcomes, time.monotonic() - started))
    if options.figures is not None:
        options.figures.write_text(json.dumps({"hostile files": by_reader(outcomes)}, indent=1))
    return int(any(outcome.failure for outcome in outcomes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign or the corpus; return 1 when a case failed."""
    options = parse_options(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started it in the background
    folder = Path(tempfile.mkdtemp(prefix="dubio-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    os.environ.update(OMP_NUM_THREADS="1", DUBIO_CACHE=str(folder / "cache"), DUBIO_MAX_UNPACKED=MOST_UNPACKED)
    try:
        load_dubio()
        if options.corpus:
            return run_corpus(folder)
        bad = run_valid(folder) if options.valid else 0
        return bad or run_campaign(options, folder / "cases")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
