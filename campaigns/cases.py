"""One case: a damaged file made from its number, the command that reads it, and the judgement of what happened."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from campaigns.reader import Action, Reader
from campaigns.readers import BY_NAME, READERS
from campaigns.seeds import Tree

SECONDS = 10.0
"""Time of the processor that a case may use."""
STARTING = 20
"""Time of the processor that a command may take beyond that, to start."""
WALL = 60 * SECONDS
"""Seconds after which a case counts as a hang even if it uses no processor: a busy machine keeps it waiting."""
MEGABYTES = 1500
"""Memory that a case may use above the process after imports."""
REFUSED = 2
ALLOWED_EXITS = (0, 1, REFUSED, 3)
"""Success, damage found in a store, an error of the user, a case of ``refer apply --fail-on``."""

_WARNING = re.compile(rb"\b\w*Warning: ")
_SILENT = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


@dataclass(frozen=True)
class Case:
    """A damaged file and what reads it.

    Attributes:
        number: Its number; with the seed it determines everything else.
        reader: The kind of file.
        tree: The files of the case.
        damaged: The one that was damaged.
        action: What reads it.
    """

    number: int
    reader: Reader
    tree: Tree
    damaged: str
    action: Action

    @property
    def title(self) -> str:
        """Return the command or function, for people."""
        return action_title(self.action)


def action_title(action: Action) -> str:
    """Return a command, or the name of a function and the file it is about."""
    if isinstance(action, str):
        return action
    if isinstance(action, functools.partial):
        return " ".join([action.func.__name__, *action.args])
    return getattr(action, "__name__", repr(action))


@dataclass(frozen=True)
class Outcome:
    """What happened in a case.

    Attributes:
        number: The case.
        reader: The name of its reader.
        failure: The kind of failure; empty where the case passed.
        details: A traceback or the text that was printed, for people.
        exit: The exit code; of a function the one that its command would have.
        seconds: Time of the processor.
        megabytes: Peak memory above the process before it.
    """

    number: int
    reader: str
    failure: str
    details: str = ""
    exit: int | None = None
    seconds: float = 0.0
    megabytes: float = 0.0

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def make_case(seed: int, number: int, only: Sequence[str] = ()) -> Case:
    """Return a case; the same seed and number give the same bytes.

    Args:
        seed: The seed of the campaign.
        number: The number of the case.
        only: The names of the readers to draw from; all where empty.
    """
    reader = drawn_reader(seed, number, only)
    rng = Random(f"{seed}/{number}/{reader.name}")
    tree, damaged = reader.damage(rng)
    return Case(number, reader, tree, damaged, rng.choice(usable_actions(reader, tree)))


def drawn_reader(seed: int, number: int, only: Sequence[str] = ()) -> Reader:
    """Return the reader of a case, as :func:`make_case` draws it."""
    readers = [BY_NAME[name] for name in only] or READERS
    return Random(f"{seed}/{number}/reader").choices(readers, [item.share for item in readers])[0]


def usable_actions(reader: Reader, tree: Tree) -> list[Action]:
    """Return the actions of a reader that are about files of this tree."""
    tops = {Path(name).parts[0] for name in tree}
    return [action for action in reader.actions if not isinstance(action, str) or tops & set(action.split())]


def write_tree(tree: Tree, folder: Path) -> None:
    """Write the files of a case."""
    for name, raw in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def run_case(case: Case, folder: Path) -> Outcome:
    """Run a case in this process, in a new folder, with output and memory watched; the folder is removed.

    Args:
        case: The case.
        folder: A folder that does not exist.
    """
    folder.mkdir(parents=True)
    write_tree(case.tree, folder)
    before = set(_files(folder))
    base = _reset_peak()
    started = time.process_time()
    with _captured(folder.parent / f"{folder.name}.output") as printed:
        code, failure, details = _perform(case.action, folder)
    seconds, megabytes = time.process_time() - started, _peak() - base
    text = printed.read_bytes()
    printed.unlink()
    if not failure:
        failure, details = judge(case, folder, code, text, before)
    if not failure and megabytes > MEGABYTES:
        failure, details = "memory", f"{megabytes:.0f} MB"
    if not failure and seconds > SECONDS:
        failure, details = "slow", f"{seconds:.1f} s"
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(case.number, case.reader.name, failure, details, code, seconds, megabytes)


def _perform(action: Action, folder: Path) -> tuple[int | None, str, str]:
    """Run a command or a function; return its exit code, the kind of failure and its traceback."""
    from dubio.cli.app import main
    from dubio.core.errors import DubioError

    here, variables = Path.cwd(), dict(os.environ)
    try:
        os.chdir(folder)
        if callable(action):
            try:
                action(folder)
            except (DubioError, OSError):  # as the command line does
                return REFUSED, "", ""
            return 0, "", ""
        sys.argv = ["dubio", *action.split()]
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None), "", ""
    except BaseException as error:
        return None, signature(error), traceback.format_exc()[-6000:]
    finally:
        os.chdir(here)
        os.environ.clear()  # --max-unpacked sets one, which the next case must not inherit
        os.environ.update(variables)
    return 0, "", ""


def signature(error: BaseException) -> str:
    """Return the kind of an exception: its type and the innermost function of dubio that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/dubio/" in frame.filename]
    inner = frames[-1] if frames else None
    place = f" in {inner.filename.split('/dubio/')[-1]}:{inner.name}" if inner else ""
    return f"traceback: {type(error).__name__}{place}"


def judge(case: Case, folder: Path, code: int | None, text: bytes, before: set[str]) -> tuple[str, str]:
    """Return the kind of failure of a case that ended by itself, and its details; empty texts where it passed.

    Args:
        case: The case.
        folder: Its folder.
        code: The exit code.
        text: What was printed.
        before: The files before it ran.
    """
    shown = text[-3000:].decode("utf-8", "backslashreplace")
    command = isinstance(case.action, str)
    if code not in ALLOWED_EXITS:
        return f"exit {code}", shown
    if b"Traceback (most recent call last)" in text:
        return "traceback printed", shown
    if _WARNING.search(text):
        return f"warning printed: {_WARNING.search(text)[0].decode()}", shown  # type: ignore[index]
    if command and code != 0 and not text.strip():
        return "an error without a message", shown
    fresh = sorted(set(_files(folder)) - before)
    if not case.reader.writes:
        outputs = [name for name in fresh if name.startswith("OUT")]
        if stray := [name for name in fresh if name not in outputs]:
            return "stray file", ", ".join(stray)
        if code not in (0, 3) and outputs:
            return "output of a failed command", ", ".join(outputs)
        for name in outputs:
            if command and (problem := check_output(folder / name)):
                return f"output {Path(name).suffix}: {problem}", shown
    if code == 0 and isinstance(case.action, str) and "--json" in case.action.split():
        return (problem, shown) if (problem := _json_problem(_document(text))) else ("", "")
    return "", ""


def _document(text: bytes) -> bytes:
    """Return the JSON document in what was printed; messages of standard error stand before or after it."""
    start, end = (
        text.find(b"\n{") + 1 if not text.startswith((b"{", b"[")) else 0,
        max(text.rfind(b"}"), text.rfind(b"]")),
    )
    return text[start : end + 1]


def _json_problem(raw: bytes) -> str:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} in JSON")

    try:
        json.loads(raw, parse_constant=refuse)
    except (ValueError, RecursionError) as fault:
        return f"invalid JSON: {str(fault)[:40]}"
    return ""


def check_output(path: Path) -> str:
    """Return what is wrong with a file that a command wrote; empty where nothing is."""
    import numpy as np

    raw = path.read_bytes()
    if path.suffix == ".json":
        return _json_problem(raw)
    if path.suffix == ".npz":
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            probs = archive["probs"]
        return "" if np.isfinite(probs).all() and (probs >= 0).all() else "probabilities that are no numbers"
    if path.suffix == ".safetensors":
        from safetensors.numpy import load

        arrays = load(raw)
        bad = [name for name, array in arrays.items() if array.dtype.kind == "f" and np.isnan(array).any()]
        return f"NaN in {bad[0]}" if bad else ""
    return "" if raw or path.suffix not in (".csv", ".html") else "an empty file"


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names)


@contextlib.contextmanager
def _captured(path: Path) -> Iterator[Path]:
    """Send standard output and error into a file, warnings among them."""
    streams, kept = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    for stream in streams:
        stream.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    # as dubio.__main__ sets them
    sys.stdout, sys.stderr = (
        open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for number in (1, 2)
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for silent in _SILENT:
                warnings.simplefilter("ignore", silent)
            yield path
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
        sys.stdout, sys.stderr = streams
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def _reset_peak() -> float:
    """Forget the peak of this process's memory; return the present use in MB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def run_as_command(case: Case, folder: Path) -> Outcome:
    """Run a case as a process of its own, as a user does; functions of dubio have no command and run here."""
    if not isinstance(case.action, str):
        return run_case(case, folder)
    import dubio

    folder.mkdir(parents=True)
    write_tree(case.tree, folder)
    before = set(_files(folder))
    command = [sys.executable, "-m", "dubio", *case.action.split()]
    source = str(Path(dubio.__file__).parents[1])  # the same code, wherever the process starts
    environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent / "state"), "PYTHONPATH": source}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WALL,
            env=environment,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (STARTING + int(SECONDS), 2 * STARTING)),
        )
    except subprocess.TimeoutExpired:
        shutil.rmtree(folder, ignore_errors=True)
        return Outcome(case.number, case.reader.name, "hang", case.title)
    failure, details = judge(case, folder, done.returncode, done.stdout, before)
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(case.number, case.reader.name, failure, details, done.returncode)
