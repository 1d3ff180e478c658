"""Mutation testing: change the code in one place at a time, and see whether a test notices.

``python -m campaigns.mutants referral`` makes every mutant of a package (:mod:`campaigns.mutations`), runs the tests
that reach the changed lines, the quickest of the same module first, until one fails, and lists the mutants that no test
killed. A survivor that means the same as the original, or whose difference nobody could observe, is explained in
``campaigns/mutants.toml``; an explanation that fits no survivor of a complete run is named: the list stays true.

The tests are collected once and run once unchanged, with a trace of the lines that each of them reaches. After that one
process is forked per mutant: it inherits the collected tests and everything that is imported, exchanges the code of the
changed function in place, and runs the tests. A change that takes effect on import (a constant, a default, a decorator)
is tried in the fork of a process that has imported other packages, but nothing of dubio.
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
import select
import signal
import socket
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

import pytest
from _pytest.runner import runtestprotocol

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

WARM = (
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.linear_model",
    "pandas",
    "torch",
    "pyarrow",
    "hypothesis",
    "rich.table",
)
"""Packages that a process has imported before a mutant is tried in a fork of it."""

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
        """Return the tests that can notice a mutation, the quickest first; of a function those of its module first."""
        path = str(mutation.path)
        if not mutation.function:
            return sorted(self.importers.get(path, set()), key=lambda test: (self.seconds[test], test))
        own = f"{mutation.path.parent.name}/test_{mutation.path.name}::"
        tests = self.tests.get((path, mutation.line), set())
        return sorted(tests, key=lambda test: (own not in test, self.seconds[test], test))


class _Session:
    """A pytest plugin that notes which lines of some files each test runs, and then has the mutants tried."""

    def __init__(self, files: set[str], reach: Reach, then: Callable[[_Session], None]) -> None:
        self._files, self._reach, self._then, self._test = files, reach, then, ""
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            self._test, started = item.nodeid, time.process_time()
            sys.settrace(self._enter)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            self._reach.seconds[item.nodeid] = time.process_time() - started
        if not session.testsfailed:
            forget_results(self._files)
            for function in functions_of(self._files):
                self._functions.setdefault(function.__code__.co_filename, []).append(function)
            self._then(self)
        return True

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line(frame, event, argument) if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        self._reach.tests.setdefault((path, frame.f_lineno), set()).add(self._test)
        self._reach.importers.setdefault(path, set()).add(self._test)
        return self._line

    def run(self, module: CodeType, tests: Sequence[str], folder: Path) -> int:
        """Exchange the code of a file, and run tests until one fails; 0 where none does."""
        if not exchange_code(module, self._functions.get(module.co_filename, ())):
            return NOT_CHANGED
        items = [self._items[test] for test in tests]
        items[0].config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]  # the children's files apart
        for item, following in zip(items, [*items[1:], None], strict=True):
            if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
                return 1
        return 0


def _pytest(arguments: Sequence[str], plugins: Sequence[object] = ()) -> int:
    """Run pytest in this process without a word; output is captured in memory, which forks do not share."""
    fixed = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=sys"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = int(pytest.main([*fixed, *arguments], plugins=list(plugins)))
    if code and plugins:
        sys.exit(f"the unchanged tests fail:\n{output.getvalue()[-3000:]}")
    return code


def draw_nothing() -> None:
    """Give tests an empty picture for every chart.

    The threads that draw do not outlive a fork: a test that draws would wait for ever, and its mutant count as killed.
    """
    with contextlib.suppress(ImportError):
        drawing: Any = importlib.import_module("vl_convert")
        drawing.vegalite_to_svg = lambda *_, **__: "<svg></svg>"


# One mutant.


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _functions(constant)


def functions_of(files: Container[str]) -> list[FunctionType]:
    """Return the functions whose code is in some files, those too that the tests took out of the collector's sight."""
    gc.unfreeze()
    functions = (item for item in gc.get_objects() if type(item) is FunctionType)  # a proxy may warn when asked
    chosen = [function for function in functions if function.__code__.co_filename in files]
    gc.freeze()
    return chosen


def forget_results(files: Container[str]) -> None:
    """Empty what functions of some files remember: an answer of the unchanged code would hide a mutant."""
    for module in [module for module in sys.modules.values() if getattr(module, "__file__", None) in files]:
        for item in vars(module).values():
            if isinstance(item, WeakKeyDictionary):
                item.clear()
            elif hasattr(item, "cache_clear"):
                item.cache_clear()


def exchange_code(module: CodeType, functions: Iterable[FunctionType]) -> int:
    """Give functions of a file the code that a new compilation has for them; return how many were exchanged."""
    fresh = {(code.co_qualname, code.co_firstlineno): code for code in _functions(module)}
    count = 0
    for item in functions:
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


class _Importer:
    """A process that has imported other packages and nothing of dubio: mutants that act on import run in its forks."""

    def __init__(self) -> None:
        self._pipe, other = socket.socketpair()
        if not os.fork():
            self._serve(other)
        other.close()

    def _serve(self, pipe: socket.socket) -> None:
        self._pipe.close()
        for name in WARM:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        for name in [name for name in sys.modules if name.split(".")[0] in ("dubio", "tests")]:
            del sys.modules[name]
        os.chdir(ROOT)
        for line in pipe.makefile():
            path, source, tests, seconds = json.loads(line)
            outcome = in_child(lambda own=(Path(path), source, tests): run_as_mutant(*own), seconds)  # type: ignore[misc]
            pipe.sendall(outcome.encode() + b"\n")
        os._exit(0)

    def outcome(self, path: Path, source: str, tests: Sequence[str], seconds: float) -> Outcome:
        self._pipe.sendall(json.dumps([str(path), source, list(tests), seconds]).encode() + b"\n")
        return cast(Outcome, self._pipe.makefile().readline().strip())


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
    package: str, importers: Sequence[_Importer], *, share: float, seed: int, files: Sequence[str],
    again: Sequence[str], longest: float,
) -> Figures:  # fmt: skip
    """Make the mutants of a package and try them."""
    started = time.monotonic()
    paths = [path for path in sorted((SOURCE / package).glob("*.py")) if not files or path.stem in files]
    reach, say = Reach(), partial(print, file=os.fdopen(os.dup(1), "w"), flush=True)  # pytest keeps standard output
    trees = {path: mutations(path) for path in paths}
    chosen = [mutation for _, mutants in trees.values() for mutation in mutants if _drawn(mutation, share, seed)]
    if again:
        chosen = [mutation for mutation in chosen if mutation.key(ROOT) in again]
    outcomes: Counter[str] = Counter()
    survivors: list[str] = []

    def try_all(session: _Session) -> None:
        say(
            f"{package}: {len(chosen)} mutants, {len(reach.seconds)} tests, {time.monotonic() - started:.0f} s to trace"
        )
        for mutation, outcome in _tried(chosen, _Trial(session, trees, reach, longest), importers):
            outcomes[outcome] += 1
            if outcome in ("survived", "not reached"):
                survivors.append(mutation.key(ROOT))
                say(f"  {outcome}: {mutation.key(ROOT)} (line {mutation.line})")
            if sum(outcomes.values()) % 100 == 0:
                say(f"  {dict(outcomes)} after {time.monotonic() - started:.0f} s")

    _pytest(TESTS[package], [_Session({str(path) for path in paths}, reach, try_all)])
    explanations = tomllib.loads(EXPLANATIONS.read_text("utf-8")).get(package, {})
    unused = [key for key in explanations if key not in survivors]
    if share == 1 and not files and not again and unused:
        print("explained, but no survivor; remove the explanation:", *unused, sep="\n  ")
    left = [key for key in survivors if key not in explanations]
    return Figures(package, outcomes, left, len(survivors) - len(left), time.monotonic() - started)


def _drawn(mutation: Mutation, share: float, seed: int) -> bool:
    return share >= 1 or random.Random(f"{seed} {mutation.key(ROOT)}").random() < share


def _tried(
    chosen: Sequence[Mutation], trial: _Trial, importers: Sequence[_Importer]
) -> Iterator[tuple[Mutation, Outcome]]:
    """Yield the mutants with their outcomes; a process for each importer shares them."""
    pipes = {}
    for worker, importer in enumerate(importers):
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.close(reader)
            try:
                for index in range(worker, len(chosen), len(importers)):
                    os.write(writer, json.dumps([index, trial.outcome(chosen[index], importer)]).encode() + b"\n")
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
                os._exit(1)
            os._exit(0)
        os.close(writer)
        pipes[reader] = (child, os.fdopen(reader))
    while pipes:
        for reader in select.select(list(pipes), [], [])[0]:
            child, lines = pipes[reader]
            if line := lines.readline():
                index, outcome = json.loads(line)
                yield chosen[index], outcome
            else:
                if os.waitpid(child, 0)[1]:
                    raise RuntimeError("a process that tried mutants failed; the others count for nothing.")
                del pipes[reader]


@dataclass(frozen=True)
class _Trial:
    """What a process needs to try mutants."""

    session: _Session
    trees: Mapping[Path, tuple[ast.Module, object]]
    reach: Reach
    longest: float

    def outcome(self, mutation: Mutation, importer: _Importer) -> Outcome:
        """Run the tests that reach a mutant, within the time that is spent on one."""
        tests: list[str] = []
        total = 0.0
        for test in self.reach.of(mutation):
            if tests and total + self.reach.seconds[test] > self.longest:
                break
            tests.append(test)
            total += self.reach.seconds[test]
        if not tests:
            return "not reached"
        tree, seconds = self.trees[mutation.path][0], max(LEAST_SECONDS, SLACK * total)
        with mutation.applied():
            module = compile(tree, str(mutation.path), "exec")
            source = ast.unparse(tree)
        if not mutation.function:
            return importer.outcome(mutation.path, source, tests, seconds)
        with tempfile.TemporaryDirectory() as folder:
            return in_child(lambda: self.session.run(module, tests, Path(folder)), seconds)


def main() -> None:
    """Run the campaign from the command line."""
    parser = argparse.ArgumentParser(prog="campaigns.mutants", description="Mutation testing of dubio's packages.")
    parser.add_argument("packages", nargs="*", default=[])
    parser.add_argument("--share", type=float, default=1.0, help="share of the mutants to try, drawn by hash")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--files", default="", help="only these modules, by name, with commas")
    parser.add_argument("--again", type=Path, help="only the survivors that this file of figures lists")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds of unchanged tests per mutant")
    parser.add_argument("--figures", type=Path, help="write the figures to this file, as JSON")
    options = parser.parse_args()
    packages = options.packages or list(TESTS)
    if unknown := sorted(set(packages) - set(TESTS)):
        parser.error(f"packages are {', '.join(TESTS)}; given: {', '.join(unknown)}")
    draw_nothing()
    figures = []
    importers = [_Importer() for _ in range(options.jobs)]
    for package in packages:
        result = campaign(
            package, importers, share=options.share, seed=options.seed, longest=options.longest,
            files=[name for name in options.files.split(",") if name],
            again=[key for row in json.loads(options.again.read_text("utf-8"))["mutants"] for key in row["survivors"]]
            if options.again else (),
        )  # fmt: skip
        figures.append({
            "package": package, **result.outcomes, "explained": result.explained, "share_killed": result.share_killed,
            "seconds": round(result.seconds), "survivors": result.survivors,
        })  # fmt: skip
        print(f"{package}: {dict(result.outcomes)}, explained {result.explained}, killed {result.share_killed:.1%}")
    if options.figures:
        text = json.dumps({"mutants": figures}, indent=2, ensure_ascii=False)
        options.figures.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
