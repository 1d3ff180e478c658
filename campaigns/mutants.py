"""Mutation testing: change the code in one place at a time, and see whether a test notices.

``python -m campaigns.mutants referral`` makes every mutant of a package (:mod:`campaigns.mutations`), runs the tests
that reach the changed lines, the quickest first, until one fails, and lists the mutants that no test killed. A survivor
that means the same as the original, or whose difference nobody could observe, is explained in
``campaigns/mutants.toml``; an explanation that fits no survivor of a complete run is named: the list stays true.

The tests run once unchanged, with a trace of the lines that each of them reaches. After that one process is forked per
mutant: it inherits everything that is imported, exchanges the code of the changed function in place, and calls pytest.
A change that takes effect on import (a constant, a default, a decorator) is tried in a fresh process instead.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.machinery
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import pytest

from campaigns.forks import processor_seconds
from campaigns.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dubio"
EXPLANATIONS = ROOT / "campaigns" / "mutants.toml"

TESTS: dict[str, tuple[str, ...]] = {
    "referral": ("tests/referral", "tests/cli/test_refer.py"),
    "statistics": ("tests/statistics", "tests/cli/test_compare.py", "tests/cli/test_dee.py"),
    "metrics": ("tests/metrics", "tests/scenarios/test_every_name.py"),
}
"""Package → the tests that answer for it."""

SLACK, LEAST_SECONDS = 8.0, 20.0
"""A mutant has this many times the time of the unchanged tests before it counts as hanging, and at least this long.

The time is that of the processor: on a busy machine a mutant that only waits its turn would count as killed.
"""
WALL = 30.0
"""Times as long, a mutant may take by the clock: one that waits for ever uses no processor."""

NOT_CHANGED = 90

Outcome = Literal["killed", "hangs", "survived", "not reached"]


@dataclass
class Reach:
    """What the unchanged tests do.

    Attributes:
        seconds: Test → its duration.
        tests: (File, line) → the tests that run it.
        importers: File → the tests that run any line of it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    importers: dict[str, set[str]] = field(default_factory=dict)

    def of(self, mutation: Mutation) -> list[str]:
        """Return the tests that can notice a mutation, the quickest first."""
        path = str(mutation.path)
        tests = self.tests.get((path, mutation.line), set()) if mutation.function else self.importers.get(path, set())
        return sorted(tests, key=lambda test: (self.seconds[test], test))


class _Tracer:
    """A pytest plugin that notes which lines of some files each test runs."""

    def __init__(self, files: set[str], reach: Reach) -> None:
        self._files, self._reach, self._test = files, reach, ""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, started = item.nodeid, time.perf_counter()
        sys.settrace(self._enter)
        yield
        sys.settrace(None)
        self._reach.seconds[item.nodeid] = time.perf_counter() - started

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line(frame, event, argument) if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        self._reach.tests.setdefault((path, frame.f_lineno), set()).add(self._test)
        self._reach.importers.setdefault(path, set()).add(self._test)
        return self._line


def _pytest(arguments: Sequence[str], plugins: Sequence[object] = ()) -> int:
    """Run pytest in this process without a word."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], plugins=list(plugins)))
    if code and plugins:
        sys.exit(f"the unchanged tests fail:\n{output.getvalue()[-3000:]}")
    return code


# One mutant.


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _functions(constant)


def exchange_code(module: CodeType) -> int:
    """Give every function of a file the code that a new compilation has for it; return how many were exchanged."""
    fresh = {(code.co_qualname, code.co_firstlineno): code for code in _functions(module)}
    count = 0
    for item in gc.get_objects():
        if isinstance(item, FunctionType) and item.__code__.co_filename == module.co_filename:
            code = fresh.get((item.__code__.co_qualname, item.__code__.co_firstlineno))
            if code is not None and len(code.co_freevars) == len(item.__code__.co_freevars):
                item.__code__ = code
                count += 1
    return count


def in_child(work: Callable[[], int], seconds: float) -> Outcome:
    """Call a function in a child of this process; its exit code says whether the mutant was killed.

    Raises:
        RuntimeError: If the child reports that nothing was changed.
    """
    child = os.fork()
    if not child:
        os.setsid()
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        try:
            os._exit(work())
        except BaseException:
            os._exit(1)
    return _outcome(child, seconds)


def _outcome(child: int, seconds: float) -> Outcome:
    end = time.monotonic() + WALL * seconds
    while time.monotonic() < end and processor_seconds(child) < seconds:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code == NOT_CHANGED:
                raise RuntimeError("no function has the changed code; a mutant that changes nothing proves nothing.")
            return "killed" if code else "survived"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


def run_as_mutant(path: Path, source: str, tests: Sequence[str]) -> int:
    """Run tests with other source for one file."""

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            return compile(source, str(path), "exec")

    class Finder:
        @staticmethod
        def find_spec(name: str, search: Any = None, target: Any = None) -> Any:
            spec = importlib.machinery.PathFinder.find_spec(name, search, target)
            if spec is not None and spec.origin == str(path):
                spec.loader = Loader(name, str(path))
                return spec
            return None

    sys.meta_path.insert(0, Finder)
    return _pytest(["-x", *tests])


# The campaign.


@dataclass(frozen=True)
class Figures:
    """The result for one package: how many mutants had each outcome, and the survivors."""

    package: str
    outcomes: Counter[str]
    survivors: list[str]
    explained: int
    seconds: float

    @property
    def share_killed(self) -> float:
        """Killed or hanging mutants among those that are not explained."""
        total = sum(self.outcomes.values()) - self.explained
        return (self.outcomes["killed"] + self.outcomes["hangs"]) / total if total else 1.0


def campaign(
    package: str, *, share: float, seed: int, jobs: int, files: Sequence[str], again: Sequence[str], longest: float
) -> Figures:
    """Make the mutants of a package and try them."""
    started = time.monotonic()
    paths = [path for path in sorted((SOURCE / package).glob("*.py")) if not files or path.stem in files]
    reach = Reach()
    _pytest(TESTS[package], [_Tracer({str(path) for path in paths}, reach)])
    trees = {path: mutations(path) for path in paths}
    chosen = [mutation for _, mutants in trees.values() for mutation in mutants if _drawn(mutation, share, seed)]
    if again:
        chosen = [mutation for mutation in chosen if mutation.key(ROOT) in again]
    print(f"{package}: {len(chosen)} mutants, {len(reach.seconds)} tests", flush=True)
    outcomes: Counter[str] = Counter()
    survivors: list[str] = []
    for mutation, outcome in _tried(chosen, trees, reach, jobs, longest):
        outcomes[outcome] += 1
        if outcome in ("survived", "not reached"):
            survivors.append(mutation.key(ROOT))
            print(f"  {outcome}: {mutation.key(ROOT)} (line {mutation.line})", flush=True)
    explanations = tomllib.loads(EXPLANATIONS.read_text("utf-8")).get(package, {})
    unused = [key for key in explanations if key not in survivors]
    if share == 1 and not files and not again and unused:
        print("explained, but no survivor; remove the explanation:", *unused, sep="\n  ")
    left = [key for key in survivors if key not in explanations]
    return Figures(package, outcomes, left, len(survivors) - len(left), time.monotonic() - started)


def _drawn(mutation: Mutation, share: float, seed: int) -> bool:
    return share >= 1 or random.Random(f"{seed} {mutation.key(ROOT)}").random() < share


def _tried(
    chosen: Sequence[Mutation], trees: Mapping[Path, tuple[ast.Module, object]], reach: Reach, jobs: int, longest: float
) -> Iterator[tuple[Mutation, Outcome]]:
    """Yield the mutants with their outcomes; ``jobs`` processes share them."""
    pipes = []
    for worker in range(jobs):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            for index in range(worker, len(chosen), jobs):
                outcome = _try(chosen[index], trees[chosen[index].path][0], reach, longest)
                os.write(writer, json.dumps([index, outcome]).encode() + b"\n")
            os._exit(0)
        os.close(writer)
        pipes.append((child, reader))
    for child, reader in pipes:
        with os.fdopen(reader) as lines:
            for line in lines:
                index, outcome = json.loads(line)
                yield chosen[index], outcome
        os.waitpid(child, 0)


def _try(mutation: Mutation, tree: ast.Module, reach: Reach, longest: float) -> Outcome:
    tests: list[str] = []
    total = 0.0
    for test in reach.of(mutation):
        if tests and total + reach.seconds[test] > longest:
            break
        tests.append(test)
        total += reach.seconds[test]
    if not tests:
        return "not reached"
    with mutation.applied():
        module = compile(tree, str(mutation.path), "exec")
        source = ast.unparse(tree)

    def in_place() -> int:
        return _pytest(["-x", *tests]) if exchange_code(module) else NOT_CHANGED

    def on_import() -> int:
        with tempfile.TemporaryFile() as file:
            file.write(source.encode())
            file.seek(0)
            os.dup2(file.fileno(), 0)
        os.chdir(ROOT)
        module = "campaigns.mutants"
        os.execv(sys.executable, [sys.executable, "-m", module, "--as-mutant", str(mutation.path), *tests])

    return in_child(in_place if mutation.function else on_import, max(LEAST_SECONDS, SLACK * total))


def main() -> None:
    """Run the campaign from the command line."""
    parser = argparse.ArgumentParser(prog="campaigns.mutants", description="Mutation testing of dubio's packages.")
    parser.add_argument("packages", nargs="*", default=[])
    parser.add_argument("--as-mutant", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--share", type=float, default=1.0, help="share of the mutants to try, drawn by hash")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", default="", help="only these modules, by name, with commas")
    parser.add_argument("--again", type=Path, help="only the survivors that this file of figures lists")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds of unchanged tests per mutant")
    parser.add_argument("--figures", type=Path, help="write the figures to this file, as JSON")
    options = parser.parse_args()
    if options.as_mutant:
        sys.exit(run_as_mutant(Path(options.as_mutant), sys.stdin.read(), options.packages))
    packages = options.packages or list(TESTS)
    if unknown := sorted(set(packages) - set(TESTS)):
        parser.error(f"packages are {', '.join(TESTS)}; given: {', '.join(unknown)}")
    figures = []
    for package in packages:
        result = campaign(
            package, share=options.share, seed=options.seed, jobs=options.jobs, longest=options.longest,
            files=[name for name in options.files.split(",") if name],
            again=[key for row in json.loads(options.again.read_text("utf-8")) for key in row["survivors"]]
            if options.again else (),
        )  # fmt: skip
        figures.append({
            "package": package, **result.outcomes, "explained": result.explained, "share_killed": result.share_killed,
            "seconds": round(result.seconds), "survivors": result.survivors,
        })  # fmt: skip
        print(f"{package}: {dict(result.outcomes)}, explained {result.explained}, killed {result.share_killed:.1%}")
    if options.figures:
        options.figures.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
