"""Kill running benchmarks at random moments (``kill -9``), resume them, and compare with undisturbed ones.

A series starts one run, or two on one store, and kills again and again: the parent, a worker, or parent and workers at
once. Most kills wait until a fit is under way; whether it was, and had saved a checkpoint, is read from the kernel's
list of locks at the moment of the kill. Then the runs are resumed to their end, and it must hold that

- every fit, prediction, manifest and index has the bits of the undisturbed run, and so have the scores;
- no finished training was begun again; nothing is damaged; no scratch and no process is left.

Every series prints its seed; ``--series N`` repeats one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from campaigns.logged_trainer import FAKE, LOG, TORCH
from campaigns.operations import observe_store
from campaigns.pieces import Figures, Piece, total
from campaigns.shim import IN_MEMORY
from dubio.reporting.stored_run import open_run
from dubio.store import Store
from dubio.store.locks import sweep
from dubio.store.maintenance import litter
from dubio.store.verification import verify

Victim = Literal["parent", "worker", "group"]
PATIENCE = 600.0
"""Seconds within which a run starts, reaches a fit, or ends; more is a hang, on a busy machine too."""

KILLS = 8
"""Kills of a series."""

INTERVALS = {FAKE: 0.0, TORCH: 0.05}
"""Trainer → seconds between checkpoints."""


@dataclass(frozen=True)
class Series:
    """A series of kills.

    Attributes:
        number: Its number, which with the seed fixes all random choices.
        trainer: What makes the fits.
        runs: Runs on the store at a time.
        victims: What is killed, drawn anew for each kill.
        kills: Kills at most; fewer if the runs end before.
    """

    number: int
    trainer: str
    runs: int
    victims: tuple[Victim, ...]
    kills: int


@dataclass
class Tally:
    """What the campaign has counted.

    Attributes:
        kills: Victim → kills that hit a living process.
        of_two: Kills while two runs shared the store.
        in_fit: Kills while a fit was under way.
        with_checkpoint: Those of a fit that had saved a checkpoint.
        missed: Kills whose victim had just ended.
        trainings: Begun anew, resumed and ended trainings.
        series: Series and what came of them: the same bits, or not.
        torch_kills: Kills in series of torch fits.
        problems: What must not happen, with the series that shows it.
    """

    kills: Counter[str] = field(default_factory=Counter)
    of_two: int = 0
    in_fit: int = 0
    with_checkpoint: int = 0
    missed: int = 0
    trainings: Counter[str] = field(default_factory=Counter)
    series: Counter[str] = field(default_factory=Counter)
    torch_kills: int = 0
    problems: list[str] = field(default_factory=list)


# --- processes ------------------------------------------------------------------------------------------------------


class World:
    """A folder with a store and a log, and the processes that work there, told by a token in their environment."""

    def __init__(self, folder: Path, trainer: str) -> None:
        self.folder, self.store, self.trainer = folder, folder / "store", trainer
        self.token = uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> subprocess.Popen[bytes]:
        """Start a run in a session of its own."""
        here = Path(__file__).resolve().parents[1]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(here / "src"), str(here)]), "DUBIO_TRIAL": self.token,
            "DUBIO_TRIAL_TRAINER": self.trainer, "DUBIO_TRIAL_STORE": str(self.store), "OMP_NUM_THREADS": "1",
            "DUBIO_TRIAL_INTERVAL": str(INTERVALS[self.trainer]), "DUBIO_TRIAL_LOG": str(self.folder),
        }  # fmt: skip
        for name in ("DUBIO_FAKE_LOG", "LD_PRELOAD"):
            environment.pop(name, None)
        if self.trainer == FAKE:
            environment["DUBIO_FAKE_LOG"] = str(self.folder)  # by which it takes the registries over
        command = [sys.executable, "-m", "campaigns.logged_trainer", str(self.store), "2"]
        with (self.folder / "words").open("ab") as sink:
            return subprocess.Popen(command, env=environment, stderr=sink, stdout=sink, start_new_session=True)

    def log(self) -> list[str]:
        """Return the lines of the trainings."""
        path = self.folder / LOG
        return path.read_text().splitlines() if path.exists() else []

    def finished(self) -> set[str]:
        """Return the ids of the fits that are in the store."""
        fits = self.store / "fits"
        return set(os.listdir(fits)) if fits.is_dir() else set()

    def under_way(self) -> set[str]:
        """Return the ids of the fits that are being made, by the locks that the kernel lists; no lock is touched."""
        held = {line.split(":")[-1].split()[0] for line in Path("/proc/locks").read_text().splitlines()}
        begun = {line.split()[1] for line in self.log()}
        inodes = {}
        for path in (self.store / "locks").glob("*.lock"):
            with suppress(OSError):
                inodes[path.stem] = str(path.stat().st_ino)
        return {name for name, inode in inodes.items() if inode in held and name in begun} - self.finished()

    def has_checkpoint(self, fits: set[str]) -> bool:
        """Return whether any of these fits has saved a checkpoint."""
        return any((self.store / "checkpoints" / name / "latest.json").exists() for name in fits)

    def processes(self) -> list[int]:
        """Return the ids of all living processes of this world, whoever their parent is by now."""
        living = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.token.encode() in (path / "environ").read_bytes() and is_alive(int(path.name)):
                    living.append(int(path.name))
        return living


def children(pid: int) -> list[int]:
    """Return the ids of the living children of a process."""
    with suppress(OSError):
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [child for child in map(int, listed) if is_alive(child)]
    return []


def is_alive(pid: int) -> bool:
    """Return whether a process lives; one that is dead and not yet buried does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition: Any, seconds: float = PATIENCE) -> bool:
    """Wait for a condition; return whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- one series -----------------------------------------------------------------------------------------------------


class Trial:
    """One series in its world."""

    def __init__(self, series: Series, world: World, seed: int, tally: Tally) -> None:
        self.series, self.world, self.tally = series, world, tally
        self.rng = random.Random(f"{seed} {series.number}")
        self.runs: list[subprocess.Popen[bytes]] = []
        self.finished: set[str] = set()
        self.lines = 0

    def problem(self, words: str) -> None:
        """Note what must not happen."""
        self.tally.problems.append(f"series {self.series.number}: {words}")

    def run(self, expected: dict[str, str]) -> None:
        """Kill, resume, compare."""
        try:
            self.kill_and_resume()
        finally:
            for process in self.world.processes() if any(run.poll() is None for run in self.runs) else ():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)  # this campaign was interrupted, or the run hangs
        self.check_repeats()
        self.compare(expected)

    def kill_and_resume(self) -> None:
        """Kill again and again, then let the runs come to their end."""
        self.runs = [self.world.start() for _ in range(self.series.runs)]
        for _ in range(self.series.kills):
            run = self.rng.choice(self.runs)
            if not self.reach_moment(run):
                break
            self.kill(run, self.rng.choice(self.series.victims))
            self.check_repeats()
            self.runs = [run if run.poll() is None else self.world.start() for run in self.runs]
        for attempt in range(4):  # a job whose worker was killed three times has failed, and is tried again
            ended = wait_until(lambda: all(run.poll() is not None for run in self.runs))
            if not ended or all(run.returncode == 0 for run in self.runs):
                break
            self.runs = [self.world.start() for run in self.runs if run.returncode]
            if attempt == 3:
                self.problem("the resumed run does not end well")
        if not ended:
            self.problem("hangs")

    def reach_moment(self, run: subprocess.Popen[bytes]) -> bool:
        """Wait for the moment of a kill: mostly one in which a fit is under way; False if the run has ended."""
        wish = self.rng.random()
        if wish < 0.9:
            wanted = self.world.has_checkpoint if wish < 0.6 else bool
            if not wait_until(lambda: run.poll() is not None or wanted(self.world.under_way())):
                self.problem("no fit begins")
        time.sleep(self.rng.uniform(0, 0.25) if wish < 0.9 else self.rng.uniform(0, 1.5))
        return run.poll() is None

    def kill(self, run: subprocess.Popen[bytes], victim: Victim) -> None:
        """Kill, and count what it hit."""
        workers = children(run.pid)
        if victim == "worker" and not workers:
            victim = "parent"
        targets = {"parent": [run.pid], "worker": [self.rng.choice(workers or [run.pid])], "group": [run.pid, *workers]}
        fits = self.world.under_way()
        saved = self.world.has_checkpoint(fits)
        living = [pid for pid in targets[victim] if is_alive(pid)]
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not living:
            self.tally.missed += 1
            return
        self.tally.kills[victim] += 1
        self.tally.of_two += self.series.runs > 1
        self.tally.torch_kills += self.series.trainer == TORCH
        self.tally.in_fit += bool(fits)
        self.tally.with_checkpoint += saved
        if victim != "worker":
            run.wait()
            if not wait_until(lambda: not any(map(is_alive, workers)), 60):
                self.problem(f"workers {workers} outlive their parent")

    def check_repeats(self) -> None:
        """No training may begin that had finished at the last look."""
        lines = self.world.log()
        begun = {line.split()[1] for line in lines[self.lines :] if not line.startswith("end")}
        if repeated := begun & self.finished:
            self.problem(f"finished trainings were begun again: {sorted(repeated)}")
        self.finished, self.lines = self.world.finished(), len(self.world.log())

    def compare(self, expected: dict[str, str]) -> None:
        """Compare the store with that of the undisturbed run."""
        state = results(self.world)
        same = state == expected
        self.tally.series["the same bits" if same else "other bits"] += 1
        if not same:
            keys = sorted(key for key in {*state, *expected} if state.get(key) != expected.get(key))
            self.problem(f"differs from the undisturbed run in {len(keys)} places: {keys[:4]}")
        store = Store.open(self.world.store, create=False)
        for damage in verify(store):
            self.problem(f"damaged: {damage.error}")
        sweep(store.layout.scratch)
        left = [*litter(store), *(path for path in store.layout.scratch.iterdir() if path.suffix != ".lock")]
        if left:
            self.problem(f"left behind: {left}")
        if not wait_until(lambda: not self.world.processes(), 30):
            self.problem(f"processes left: {self.world.processes()}")
        lines = Counter(line.split()[0] for line in self.world.log())
        self.tally.trainings.update(lines)
        if lines["end"] < len(store.ids("fits")):
            self.problem("fits that nobody trained")


def results(world: World) -> dict[str, str]:
    """Return the hashes of everything in the store, and the table of scores."""
    state = observe_store(world.folder)
    if world.trainer == TORCH and any(key.startswith("runs/") for key in state):
        state["scores"] = str(open_run(store=world.store))
    return state


# --- the campaign ---------------------------------------------------------------------------------------------------

KINDS: Sequence[tuple[int, tuple[Victim, ...]]] = (
    (1, ("parent",)), (1, ("group",)), (1, ("worker",)), (2, ("parent", "worker", "group")),
)  # fmt: skip


def plan_series(kills: int, torch_share: float) -> Iterator[Series]:
    """Yield series without end; whoever runs them stops after enough kills."""
    number, with_torch = 0, 0.0
    while True:
        for runs, victims in KINDS:
            with_torch += torch_share
            trainer = TORCH if with_torch >= 1 else FAKE
            with_torch -= with_torch >= 1
            yield Series(number, trainer, runs, victims, min(kills, KILLS))
            number += 1


def reference(trainer: str) -> Figures:
    """Return the results of an undisturbed run."""
    with in_memory() as folder:
        world = World(folder / "world", trainer)
        if world.start().wait(PATIENCE * 2):
            raise RuntimeError((world.folder / "words").read_text()[-2000:])
        return {"trainer": trainer, "state": results(world), "problems": []}


@contextmanager
def in_memory() -> Iterator[Path]:
    """Make a folder in memory, where there is such, for as long as the block runs."""
    kept_in = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dubio-kills-", dir=kept_in) as folder:
        yield Path(folder)


def undisturbed_pieces(kills: int, torch_share: float) -> list[Piece]:
    """Return the undisturbed runs that series are compared with."""
    trainers = sorted({series.trainer for series in islice(plan_series(kills, torch_share), -(-kills // KILLS))})
    return [Piece(f"undisturbed, {trainer}", partial(reference, trainer)) for trainer in trainers]


def run_kills(
    kills: int, seed: int, torch_share: float, run: Callable[[list[Piece]], list[Figures]], only: int | None = None
) -> Figures:
    """Run series until enough kills have hit; return the figures.

    Args:
        kills: Kills in all.
        seed: Seed of all random choices.
        torch_share: Share of series whose fits are of torch.
        run: Runs pieces and returns their figures.
        only: Run this series alone.
    """
    planned = plan_series(kills, torch_share)
    figures: list[Figures] = []
    expected = {one["trainer"]: one["state"] for one in run(undisturbed_pieces(kills, torch_share))}
    while (missing := kills - sum(total(figures).get("kills", {}).values())) > 0:
        chosen = islice(planned, -(-missing // KILLS)) if only is None else islice(planned, only, only + 1)
        figures += run([
            Piece(f"kills, seed {seed}, {series}", partial(run_series, series, seed, expected[series.trainer]))
            for series in chosen
        ])  # fmt: skip
        if only is not None:
            break
    return total(figures)


def run_series(series: Series, seed: int, expected: dict[str, str]) -> Figures:
    """Run one series; return its figures."""
    tally = Tally()
    with in_memory() as folder:
        Trial(series, World(folder / "world", series.trainer), seed, tally).run(expected)
    return vars(tally)
