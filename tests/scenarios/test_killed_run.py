"""Killed at any moment, a run goes on where it was; two runs never make a thing twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.store import Store
from dubio.store.locks import is_held
from dubio.store.maintenance import litter
from dubio.store.verification import verify
from tests.store.helpers import dump_index

HERE = Path(__file__).parent

PATIENCE = 300.0
"""Seconds after which something hangs: starting a few processes on a machine with other work may take a minute."""


def start(store: Path, jobs: int = 2, seconds: float = 0.15) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parents[1])])
    command = [sys.executable, "-m", "tests.scenarios.fake_run", str(store), str(jobs), str(seconds)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> str:
    _, words = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, words.decode()
    return words.decode()


@pytest.mark.slow  # tests/campaigns/test_kills.py kills a few runs on every change
def test_killed_at_random_moments_the_store_ends_the_same(fake_world):
    end(start(fake_world.path / "whole", seconds=0.6))
    wanted = dump_index(fake_world.store("whole"))
    (fake_world.path / "log").unlink()
    moments = np.random.default_rng(0).uniform(0.2, 0.9, size=5)  # after the first training of that run has begun
    finished: set[str] = set()
    for moment in [*moments, None]:
        lines = len(fake_world.log())
        process = start(fake_world.path / "killed", seconds=0.6)
        if moment is None:
            end(process)
        else:
            wait_for_begin(fake_world, lines)
            time.sleep(moment)
            process.kill()
            process.communicate()
            wait_for_silence(fake_world)
        assert not finished & begun(fake_world.log()[lines:])  # no finished training is repeated
        finished = kept(fake_world.path / "killed")
    store = fake_world.store("killed")
    assert dump_index(store) == wanted
    assert verify(store) == ()
    assert [row for row in litter(store) if row.reason != "temporary"] == []
    assert len(finished) == 12
    assert any(line.startswith("resume") for line in fake_world.log())


def test_workers_go_when_their_parent_is_killed(fake_world):
    process = start(fake_world.path / "store", seconds=30)
    deadline = time.monotonic() + PATIENCE
    while sum(line.startswith("begin") for line in fake_world.log()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20  # less than a training takes
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def test_two_runs_on_one_store_make_nothing_twice(fake_world):
    first, second = start(fake_world.path / "store", jobs=1), start(fake_world.path / "store", jobs=1)
    said = end(first) + end(second)
    assert len(re.findall("done in [^:]+: fit of", said)) == 12  # each training is claimed by the one that made it
    assert len(fake_world.ended()) == 12
    assert set(Counter(fake_world.ended()).values()) == {1}
    end(start(fake_world.path / "alone"))
    assert dump_index(fake_world.store()) == dump_index(fake_world.store("alone"))


def test_an_interrupt_stops_promptly_and_leaves_nothing_half_made(fake_world):
    process = start(fake_world.path / "store", seconds=30)
    deadline = time.monotonic() + PATIENCE
    while not fake_world.log() and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    process.communicate(timeout=20)
    assert time.monotonic() - before < 5
    assert not any(map(alive, workers))
    assert list(fake_world.store().layout.scratch.iterdir()) == []


def begun(lines: list[str]) -> set[str]:
    return {line.removeprefix("begin ") for line in lines if line.startswith("begin ")}


def kept(path: Path) -> set[str]:
    """The trainings whose fits are whole, named as in the log."""
    if not (path / "fits").is_dir():
        return set()
    store = Store.open(path, create=False)
    specs = [store.spec("fits", fit_id) for fit_id in store.ids("fits")]
    return {f"{s['recipe']['family']} {s['recipe']['lr']} {s['seed']} {s['member']}" for s in specs}


def wait_for_begin(world: Any, lines: int) -> None:
    """Until a training of this run is under way, however long the processes took to start."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not begun(world.log()[lines:]):
        time.sleep(0.01)


def wait_for_silence(world: Any) -> None:
    """Until the workers of a killed run are gone too."""
    locks = world.path / "killed" / "locks"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(map(is_held, locks.glob("*.lock"))):
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
