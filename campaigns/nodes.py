"""Lose nodes of a Ray cluster in the middle of runs, and compare what the runs made with a run on this machine alone.

``python -m campaigns.nodes --rounds 20 --seed 0`` starts a cluster of three nodes for every round, a run on it in a
process of its own, and removes one node and then another at random moments while trainings run; in every other round
the node that stays has cores to spare, and in every third one a node joins. The fits are the fake ones of the tests,
which take seconds and checkpoint at every epoch. It ends with 1 if a run fails, hangs, or makes other bits.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.pieces import Piece

ROOT = Path(__file__).resolve().parents[1]
SEEDS = (0, 1)
METHODS = ("plain-ensemble", "mc-drop", "child")
FITS = 10
"""Trainings of these methods and seeds: three members, one, and one that starts from a member, for each seed."""

RUN_SECONDS = 600.0
"""Longest time of a run, on a busy machine too; a longer one counts as hanging."""

ATTEMPTS = 3
"""Attempts at a round: a cluster that Ray cannot start on a busy machine says nothing about a run."""

SMALL_NODE = {"object_store_memory": 80_000_000}


def drive(store: Path, jobs: int, executor: str, seconds: float) -> dict[str, int]:
    """Run the fake benchmark in this process; return how many jobs were made, lost and failed."""
    from tests.runner import fake_trainer

    from dubio.core.registry import METHODS as REGISTERED
    from dubio.core.registry import NETWORKS, TASKS
    from dubio.runner import benchmark_run
    from dubio.runner.benchmark_file import Benchmark, TaskEntry
    from dubio.runner.executors import Event, Finished
    from dubio.runner.prepare import prepare_available
    from dubio.runner.ray_executor import RayExecutor
    from dubio.store import Store

    for registry in (REGISTERED, NETWORKS, TASKS):
        registry._entries = {}
    fake_trainer.register()
    counts: Counter[str] = Counter()

    class CountingExecutor(RayExecutor):
        def wait(self, seconds: float) -> list[Event]:
            events = super().wait(seconds)
            counts.update(event.result["status"] for event in events if isinstance(event, Finished))
            return events

    benchmark_run.EXECUTORS = {**benchmark_run.EXECUTORS, "ray": CountingExecutor}
    training = {"seconds": seconds, "epochs": 10}
    benchmark = Benchmark("nodes", (TaskEntry("toy", "toy-net", training=training),), METHODS, SEEDS)
    tasks = prepare_available(benchmark).tasks
    with Store.open(store) as opened:
        outcome = benchmark_run.PreparedBenchmark(benchmark, tasks, fake_trainer).run(
            opened, jobs, executor, checkpoint_seconds=0
        )
    return {**counts, "failed": len(outcome.outcome.failures)}


def content(store: Path) -> dict[str, str]:
    """Return the hash of every file of a store's fits and predictions but the records, which hold timings."""
    paths = (path for kind in ("fits", "predictions") for path in (store / kind).rglob("*") if path.is_file())
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if path.name != "record.json"
    }


class Driver:
    """A run in a process of its own."""

    def __init__(self, folder: Path, store: str, jobs: int, executor: str, seconds: float, address: str = "") -> None:
        self.store, self._log, self._figures = folder / store, folder / "log", folder / f"{store}.json"
        self._errors = folder / f"{store}.err"
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        variables = {"DUBIO_FAKE_LOG": str(folder), "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}
        words = ["--drive", self.store, "--jobs", jobs, "--executor", executor, "--seconds", seconds]
        environment = {**os.environ, **variables}
        environment.pop("LD_PRELOAD", None)
        with self._figures.open("wb") as figures, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "campaigns.nodes", *map(str, words)],
                env=environment, cwd=ROOT, stdout=figures, stderr=errors,
            )  # fmt: skip

    def begun(self) -> int:
        """Return the number of trainings that have begun, every attempt counted."""
        return self._log.read_text().count("begin ") if self._log.exists() else 0

    def wait_for(self, trainings: int) -> bool:
        """Wait until that many trainings have begun; return whether the run still works."""
        deadline = time.monotonic() + RUN_SECONDS
        while self.process.poll() is None and self.begun() < trainings and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.process.poll() is None

    def finish(self) -> dict[str, Any]:
        """Wait for the end and return its figures; a run that hangs is ended."""
        try:
            code = self.process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return {"hung": 1, "errors": self.errors()}
        text = self._figures.read_text()
        return json.loads(text) if not code else {"crashed": 1, "errors": self.errors()}

    def errors(self) -> str:
        """Return what it has said."""
        return self._errors.read_text("utf-8", "replace")


def lose_nodes(folder: Path, seed: int, seconds: float, expected: Mapping[str, str]) -> dict[str, Any]:
    """Run once on three nodes of which two are lost; return the figures of the round.

    Args:
        folder: An empty folder.
        seed: Decides how much room there is, when nodes are lost, and whether one joins.
        seconds: Duration of a training.
        expected: The content of a store that was made without losses.
    """
    utilities: Any = importlib.import_module("ray.cluster_utils")  # untyped
    wait_longer_for_nodes()
    draw = random.Random(seed)
    spare, joins = seed % 2 == 1, seed % 3 == 2
    head = {"num_cpus": 3 if spare else 1, "include_dashboard": False, **SMALL_NODE}
    cluster = utilities.Cluster()
    figures: Counter[str] = Counter()
    try:
        cluster.add_node(**head)
        nodes = [cluster.add_node(num_cpus=1, **SMALL_NODE) for _ in range(2)]
        driver = Driver(folder, "ray", 3, "ray", seconds, cluster.address)
        try:
            moments = sorted(draw.sample(range(2, FITS + 1), 2))
            for node, moment in zip(draw.sample(nodes, 2), moments, strict=True):
                if driver.wait_for(moment):
                    time.sleep(draw.uniform(0.0, 1.0))
                    figures["nodes lost in mid-run"] += driver.process.poll() is None
                    cluster.remove_node(node, allow_graceful=draw.random() < 0.3)
            if joins:
                cluster.add_node(num_cpus=1, **SMALL_NODE)
                figures["nodes joined"] += 1
            ended = driver.finish()
        finally:
            driver.process.kill()
    finally:
        cluster.shutdown()
    if "errors" in ended:
        print(ended.pop("errors"), file=sys.stderr)
    same = content(driver.store) == expected
    problems = [] if same else [f"seed {seed}: other bits than without losses"]
    problems += [f"seed {seed}: {word} {ended[word]}" for word in ("failed", "hung", "crashed") if ended.get(word)]
    figures.update({f"jobs {status}": count for status, count in ended.items()})
    return {"runs": 1, "runs with equal bits": int(same), **figures, "problems": problems}


def wait_longer_for_nodes() -> None:
    """Let Ray wait until a node has started: its own 30 s are too few on a busy machine."""
    services: Any = importlib.import_module("ray._private.services")
    look = services.get_node

    def get_node(*arguments: Any) -> Any:
        deadline = time.monotonic() + RUN_SECONDS
        while True:
            try:
                return look(*arguments)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise

    services.get_node = get_node


def main() -> int:
    """Run the campaign and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    for option, kind in (("--drive", Path), ("--jobs", int), ("--executor", str), ("--seconds", float)):
        parser.add_argument(option, type=kind, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.drive is not None:
        print(json.dumps(drive(words.drive, words.jobs, words.executor, words.seconds)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clusters are shut down
    rounds = []
    for seed in range(words.seed, words.seed + words.rounds):
        with tempfile.TemporaryDirectory(prefix="dubio-nodes-campaign-") as folder:
            rounds.append(run_round(Path(folder), seed))
        print(json.dumps(rounds[-1]), flush=True)
    return int(any(figures["problems"] for figures in rounds))


def node_pieces(rounds: int, seed: int) -> list[Piece]:
    """Return the rounds as pieces of a campaign, each in a new process, whose environment Ray gives to its nodes.

    One at a time: clusters that start side by side on two cores keep each other from starting in time.
    """
    seeds = range(seed, seed + rounds)
    return [Piece(f"lost nodes, seed {one}", partial(run_alone, one), lane="nodes") for one in seeds]


def run_alone(seed: int) -> dict[str, Any]:
    """Run one round in a new process; return its figures."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "TMPDIR")}
    command = [sys.executable, "-m", "campaigns.nodes", "--rounds", "1", "--seed", str(seed)]
    for _ in range(ATTEMPTS):
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            answer = process.communicate()[0]
        finally:
            process.terminate()
        if answer:
            return dict(json.loads(answer.splitlines()[-1]))
    raise RuntimeError(f"Ray did not start a cluster in {ATTEMPTS} attempts.")


def run_round(folder: Path, seed: int) -> dict[str, Any]:
    """Make a store without losses and one with; return the figures of the second."""
    seconds = random.Random(f"seconds {seed}").uniform(0.5, 2.0)
    local = Driver(folder, "local", 2, "local", seconds)
    ended = local.finish()
    if ended.get("failed") != 0:
        raise RuntimeError(f"the run without losses failed: {ended}")
    (folder / "log").unlink()
    return lose_nodes(folder, seed, seconds, content(local.store))


if __name__ == "__main__":
    sys.exit(main())
