"""A store under several processes that die, stop and work at once, against a model of what it must hold.

Every operation runs in a fork of this process. A fork may be killed (SIGKILL) at any of its steps that touch the disk,
be stopped there while others go on, or run beside another one. After each operation the store is read again: what was
reported as done is there, what was cut off is there as a whole or not at all, what nobody touched is as it was, and
``verify`` names exactly what was damaged.

    python -m campaigns.store_machine --examples 1000 --seed 1
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from safetensors.numpy import load_file
from tests.store.helpers import SPEC, predicted, split, write_fit

from dubio.core.errors import CorruptFile, StoreError
from dubio.core.specs import identity
from dubio.store import BusyError, Store, locks
from dubio.store.checkpoints import POINTER, read_pointer
from dubio.store.maintenance import litter, rebuild_index, remove, unreferenced
from dubio.store.merging import merge
from dubio.store.verification import examine

Key = tuple[str, Any]
State = dict[Key, Any]
Operation = tuple[Any, ...]

DAMAGED = "damaged"
NUMBERS, SPLITS, RUNS = (0, 1, 2), ("test", "shift"), ("quick", "text")
FITS = {k: identity({**SPEC, "seed": k}) for k in NUMBERS}
PREDICTION_SPECS = {k: {"schema": 1, "kind": "prediction", "fit": FITS[k], "seed": k} for k in NUMBERS}
PREDICTIONS = {k: identity(spec) for k, spec in PREDICTION_SPECS.items()}
ENSEMBLE_SPEC = {"schema": 1, "kind": "prediction", "members": [PREDICTIONS[0], PREDICTIONS[1]]}
ENSEMBLE = identity(ENSEMBLE_SPEC)
NUMBER_OF = {**{i: k for k, i in FITS.items()}, **{i: k for k, i in PREDICTIONS.items()}, ENSEMBLE: "ensemble"}
FOLDERS = {"fit": "fits", "prediction": "predictions", "checkpoint": "checkpoints", "run": "runs"}

SOURCE, SOURCE_FITS = "source", (0, 1)
"""The store that is merged, and its fits; it also has a prediction and a run."""

MEMORY = "/dev/shm"
"""Where the stores are, if there is such a folder: what a flush costs is of no interest here."""

PATIENCE = 2.0
"""Seconds that a process waits here for one that cleans the store, or that a busy machine keeps from going on."""


# --- operations -----------------------------------------------------------------------------------------------------


def perform(store: Store, operation: Operation) -> None:
    """Do an operation as the runner and the commands do it."""
    match operation:
        case "fit", k:
            with store.lock(FITS[k]):
                if not store.has_fit(FITS[k]):
                    write_fit(store, seed=k)
        case "predict", k, names:
            with store.lock(PREDICTIONS[k]):
                wanted = [split(name) for name in names]
                missing = store.missing_splits(PREDICTIONS[k], [(s.name, s.fingerprint) for s in wanted])
                with store.prediction_writer(PREDICTION_SPECS[k], {}) as writer:
                    for part in (s for s in wanted if (s.name, s.fingerprint) in missing):
                        writer.add(part, predicted(k), 0.1)
        case "ensemble", _:
            store.write_ensemble(ENSEMBLE_SPEC)
        case "save", k, epoch:
            with store.lock(FITS[k]):
                if not store.has_fit(FITS[k]):
                    checkpoint = store.checkpoint(FITS[k])
                    checkpoint.load()
                    checkpoint.save({"w": np.full(3, epoch)}, {"epoch": epoch}, {"0/": {"w": np.full(2, k)}})
        case "fail", k, text:
            store.write_failure(FITS[k], {"id": FITS[k], "error": text})
        case "run", name, numbers:
            store.write_manifest(manifest(name, numbers), f"{RUNS.index(name)}" * 64)
        case "index", _:
            rebuild_index(store)
        case "clean", everything:
            remove(store, litter(store) + (unreferenced(store) if everything else ()))
        case "aside", kind, k:
            store.set_aside("fits" if kind == "fit" else "predictions", (FITS if kind == "fit" else PREDICTIONS)[k])
        case "merge", _:
            merge(store, [Store.open(store.path.with_name(SOURCE), create=False)])
        case "open", _:
            store.scratch.new()


def manifest(name: str, numbers: Iterable[int]) -> dict[str, Any]:
    """Return the manifest of a run of some predictions."""
    runs = [{"id": PREDICTIONS[k], "fits": [FITS[k]], "spec": {}, "seed": k} for k in sorted(numbers)]
    return {"name": name, "tasks": [], "methods": [], "runs": runs, "failures": []}


def effect(operation: Operation, before: State) -> State:
    """Return what the store holds after an operation, by the model."""
    after = dict(before)
    match operation:
        case "fit", k:
            if ("fit", k) not in before:
                after[("fit", k)] = "whole"
                after.pop(("checkpoint", k), None)
                after.pop(("failure", k), None)
        case "predict", k, names:
            if before.get(("prediction", k)) != DAMAGED:
                after[("prediction", k)] = before.get(("prediction", k), frozenset()) | set(names)
        case "ensemble", _:
            after.setdefault(("prediction", "ensemble"), "whole")
        case "save", k, epoch:
            if ("fit", k) not in before:
                after[("checkpoint", k)] = epoch
        case "fail", k, text:
            after[("failure", k)] = text
        case "run", name, numbers:
            after[("run", name)] = frozenset(numbers)
        case "clean", everything:
            after = _cleaned(before, everything)
        case "merge", _:
            for k in SOURCE_FITS:
                if before.get(("fit", k), DAMAGED) == DAMAGED:
                    after[("fit", k)] = "whole"
                    after.pop(("checkpoint", k), None)
                    after.pop(("failure", k), None)
            kept = before.get(("prediction", 0), frozenset())
            after[("prediction", 0)] = (frozenset() if kept == DAMAGED else kept) | {"test"}
            after.setdefault(("run", "quick"), frozenset({0}))
        case "aside", kind, k:
            if before.get((kind, k)) == DAMAGED:
                del after[(kind, k)]
    return after


def _cleaned(before: State, everything: bool) -> State:
    after = {key: v for key, v in before.items() if not (key[0] == "failure" and ("fit", key[1]) in before)}
    if everything:
        needed = {k for key, value in before.items() if key[0] == "run" for k in value}
        after = {key: v for key, v in after.items() if key[0] in ("run", "failure") or key[1] in needed}
        after = {key: v for key, v in after.items() if key[0] != "checkpoint"}
    return after


# --- what a reader sees ---------------------------------------------------------------------------------------------


def observe(root: Path) -> State:
    """Return what a reader of the store sees; every value is compared with the bits it must have."""
    store = Store.open(root, create=False)
    state: State = {}
    for fit_id in store.ids("fits"):
        state[("fit", NUMBER_OF[fit_id])] = _sound(_fit, store, fit_id)
    for pred_id in store.ids("predictions"):
        state[("prediction", NUMBER_OF[pred_id])] = _sound(_prediction, store, pred_id)
    for name in store.manifests():
        state[("run", name.partition("-")[0])] = _sound(_run, store, name)
    for failure in store.failures():
        state[("failure", NUMBER_OF[failure["id"]])] = failure["error"]
    for path in sorted(store.layout.checkpoints.glob("*")):
        if not store.has_fit(path.name) and (path / POINTER).exists():  # else nobody reads it
            state[("checkpoint", NUMBER_OF[path.name])] = _sound(_checkpoint, path)
    return state


def _sound(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except CorruptFile:
        return DAMAGED


def _fit(store: Store, fit_id: str) -> str:
    fit = store.read_fit(fit_id)
    assert fit.tensors["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert fit.spec["seed"] == NUMBER_OF[fit_id]
    return "whole"


def _prediction(store: Store, pred_id: str) -> Any:
    store.verify("predictions", pred_id)
    if pred_id == ENSEMBLE:
        return "whole"
    files = store.record(pred_id)["files"].values()
    for facts in files:
        logits = store.read_predictions(pred_id, facts["split"], facts["fingerprint"]).logits
        assert np.array_equal(logits, predicted(NUMBER_OF[pred_id]).logits)
    return frozenset(facts["split"] for facts in files)


def _run(store: Store, name: str) -> frozenset[int]:
    return frozenset(run["seed"] for run in store.manifest(name)["runs"])


def _checkpoint(directory: Path) -> int:
    pointer = read_pointer(directory)
    (epoch,) = set(load_file(directory / pointer["file"])["w"].tolist())
    return int(epoch)


# --- processes ------------------------------------------------------------------------------------------------------


class Process:
    """A fork that does one operation, and dies or stops at one of its steps if it is told to."""

    def __init__(self, root: Path, operation: Operation, die_at: int | None = None, stop_at: int | None = None) -> None:
        self.operation = operation
        self._answer, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._answer)
            _serve(root, operation, write, die_at, stop_at)
        os.close(write)
        self._ended = False

    def wait(self) -> str:
        """Return ``done``, ``busy``, ``refused``, ``corrupt``, ``died`` or ``stopped``."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return "stopped"
        self._ended = True
        with os.fdopen(self._answer, "r") as answer:
            said = answer.read()
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, said
            return "died"
        assert not said.startswith("bug"), f"{self.operation}: {said}"
        return said

    def go_on(self) -> str:
        """Let a stopped process go on to its end."""
        os.kill(self.pid, signal.SIGCONT)
        return self.wait()

    def kill(self) -> str:
        """Kill the process."""
        if self._ended:
            return "died"
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()


def _serve(root: Path, operation: Operation, answer: int, die_at: int | None, stop_at: int | None) -> None:
    try:
        locks.SWEEP_PATIENCE = PATIENCE
        _count_steps(die_at, stop_at)
        with Store.open(root, create=False) as store:
            perform(store, operation)
        said = "done"
    except BusyError:
        said = "busy"
    except StoreError:
        said = "refused"
    except CorruptFile:
        said = "corrupt"
    except BaseException:
        said = f"bug: {traceback.format_exc()}"
    os.write(answer, said.encode())
    os._exit(0)


def _count_steps(die_at: int | None, stop_at: int | None) -> None:
    """Count the calls that touch the disk; this process ends or stops before the given one."""
    steps = itertools.count(1)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            step = next(steps)
            if step in (die_at, stop_at):
                os.kill(os.getpid(), signal.SIGKILL if step == die_at else signal.SIGSTOP)
            return real(*arguments, **named)

        return call

    for name in ("open", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    io.open = counted(io.open)


# --- the machine ----------------------------------------------------------------------------------------------------

numbers = st.sampled_from(NUMBERS)
operations = st.one_of(
    st.tuples(st.just("fit"), numbers),
    st.tuples(st.just("predict"), numbers, st.sets(st.sampled_from(SPLITS), min_size=1).map(tuple)),
    st.tuples(st.just("ensemble"), st.none()),
    st.tuples(st.just("save"), numbers, st.integers(1, 99)),
    st.tuples(st.just("fail"), numbers, st.sampled_from(["out of memory", "nan"])),
    st.tuples(st.just("run"), st.sampled_from(RUNS), st.sets(numbers).map(tuple)),
    st.tuples(st.just("index"), st.none()),
    st.tuples(st.just("clean"), st.booleans()),
    st.tuples(st.just("aside"), st.sampled_from(["fit", "prediction"]), numbers),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("open"), st.none()),
)
steps = st.integers(1, 70)


class StoreMachine(RuleBasedStateMachine):
    """Operations of several processes on one store, and what it holds by the model."""

    counts: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="dubio-machine-", dir=memory))
        self.root = self.folder / "store"
        _create(self.root)
        self.state: State = {}
        self.saved: dict[int, set[int]] = {k: set() for k in NUMBERS}
        self.stopped: Process | None = None

    @rule(operation=operations)
    def one(self, operation: Operation) -> None:
        """Do an operation undisturbed."""
        self._settle([Process(self.root, operation)])

    @rule(operation=operations, step=steps)
    def cut_off(self, operation: Operation, step: int) -> None:
        """Kill a process at a step."""
        self._settle([Process(self.root, operation, die_at=step)])

    @rule(pair=st.tuples(operations, operations), deaths=st.tuples(st.none() | steps, st.none() | steps))
    def at_once(self, pair: tuple[Operation, Operation], deaths: tuple[int | None, int | None]) -> None:
        """Let two processes work at once; either may be killed."""
        self._settle([Process(self.root, operation, die_at=step) for operation, step in zip(pair, deaths, strict=True)])

    # Rules have no conditions: whether a process has stopped or something is there may depend on the moment, and what
    # hypothesis draws must not.

    @rule(operation=operations, step=steps)
    def stop(self, operation: Operation, step: int) -> None:
        """Stop a process at a step, unless one is stopped; the others go on beside it."""
        if self.stopped is None:
            self._settle([Process(self.root, operation, stop_at=step)])

    @rule(killed=st.booleans())
    def release(self, killed: bool) -> None:
        """Let the stopped process go on, or kill it."""
        if self.stopped is not None:
            process, self.stopped = self.stopped, None
            ending = process.kill() if killed else process.go_on()
            if (process.operation[0], ending) == ("clean", "done"):
                ending = "late"  # it listed what nobody needed before it stopped: what came since may stay
            self._compare([(process.operation, ending)])

    @rule(which=st.integers(0, 10**6), place=st.floats(0, 1), cut=st.booleans())
    def damage(self, which: int, place: float, cut: bool) -> None:
        """Turn or cut off a byte of a file of the store."""
        whole = [key for key, value in sorted(self.state.items(), key=repr) if value != DAMAGED and key[0] in FOLDERS]
        paths = [(key, path) for key in whole for path in self._files(key)]
        if not paths or self.stopped is not None:
            return
        key, path = paths[which % len(paths)]
        content = bytearray(path.read_bytes())
        where = int(place * (len(content) - 2))  # a document without its last line break is whole
        content[where] ^= 1
        path.write_bytes(content[:where] if cut else content)
        self.state[key] = DAMAGED
        self._count("damaged")
        assert (state := observe(self.root)) == self.state, (key, path, state, self.state)

    def _files(self, key: Key) -> list[Path]:
        kind, name = key
        if kind == "run":
            return [self.root / "runs" / f"{name}-{RUNS.index(name) * 11111111:08d}.json"]
        ids: dict[Any, str] = {**PREDICTIONS, "ensemble": ENSEMBLE} if kind == "prediction" else {**FITS}
        return sorted((self.root / FOLDERS[kind] / ids[name]).iterdir())

    def _settle(self, processes: list[Process]) -> None:
        endings = [(process.operation, process.wait()) for process in processes]
        for process, (_, ending) in zip(processes, endings, strict=True):
            if ending == "stopped":
                self.stopped = process
        self._compare(endings)

    def _compare(self, endings: list[tuple[Operation, str]]) -> None:
        """Compare the store with what these endings allow, and take what is there as the state."""
        for operation, ending in endings:
            self._count(ending)
            self._check_ending(operation, ending, endings)
            if operation[0] == "save":
                self.saved[operation[1]].add(operation[2])
        complete = [operation for operation, ending in endings if ending == "done"]
        # Setting aside gives way to a process that has the lock of the entry, and which may die before it does it.
        others = len(endings) > 1 or self.stopped is not None
        gave_way = [operation for operation in complete if operation[0] == "aside" and others]
        sure = [operation for operation in complete if operation not in gave_way]
        perhaps = [operation for operation, ending in endings if ending in ("died", "stopped", "late")] + gave_way
        perhaps += [operation for operation, ending in endings if (operation[0], ending) == ("merge", "refused")]
        if self.stopped is not None and self.stopped.operation not in perhaps:
            perhaps.append(self.stopped.operation)
        outcomes = list(_outcomes(self.state, sure, perhaps))
        state = observe(self.root)
        for key in {key for outcome in outcomes for key in outcome} | state.keys():
            allowed = {outcome.get(key) for outcome in outcomes}
            if perhaps and DAMAGED in allowed:
                allowed.add(None)  # set aside, and not made again yet
            if key[0] == "checkpoint" and ("fit", key[1]) in self.state:
                allowed |= {None, *self.saved[key[1]]}  # one of a fit that has been set aside since may still be there
            assert state.get(key) in allowed, (key, state.get(key), allowed, endings, self.state)
        self.state = state

    def _check_ending(self, operation: Operation, ending: str, endings: list[tuple[Operation, str]]) -> None:
        """Check that it gave way only to others, was refused only with reason, and met known damage.

        One is refused while another cleans or merges, or is stopped where it holds the gate of the scratch directories.
        """
        present = [own for own, _ in endings] + ([self.stopped.operation] if self.stopped is not None else [])
        if ending == "busy":
            assert len(present) > 1, operation
        elif ending == "refused":
            assert len(present) > 1, operation
            assert self.stopped is not None or any(other[0] in ("clean", "merge") for other in present), present
        elif ending == "corrupt":
            assert DAMAGED in self.state.values(), operation

    def _count(self, what: str) -> None:
        StoreMachine.counts[what] = StoreMachine.counts.get(what, 0) + 1

    @invariant()
    def verify_names_what_is_damaged_and_nothing_else(self) -> None:
        """Compare the damages that ``dubio store verify`` lists with those of the model."""
        result = examine(Store.open(self.root, create=False))
        listed = {(row.kind, row.id) for row in result.damages if row.kind != "index"}
        # the checkpoint of a finished fit, and one that a living process may be writing
        hidden = {("checkpoints", i) for k, i in FITS.items() if ("fit", k) in self.state or self.stopped is not None}
        assert listed - hidden == set(self._expected_damages()) - hidden, (listed, self.state)
        assert not any(row.kind == "index" and "agree" not in row.error for row in result.damages), result.damages

    def _expected_damages(self) -> Iterator[tuple[str, str]]:
        for (kind, name), value in self.state.items():
            if kind == "run":
                full = self._files((kind, name))[0].stem
                lacking = value != DAMAGED and any(
                    (part, k) not in self.state for k in value for part in ("prediction", "fit")
                )
                if value == DAMAGED or lacking:
                    yield "runs", full
            elif kind == "prediction" and name == "ensemble":
                if value == DAMAGED or any(("prediction", k) not in self.state for k in (0, 1)):
                    yield "predictions", ENSEMBLE
            elif value == DAMAGED:
                yield FOLDERS[kind], (PREDICTIONS if kind == "prediction" else FITS)[name]

    @invariant()
    def nothing_is_left_behind_by_the_dead(self) -> None:
        """Open the store once more where nobody works on it: scratch and locks of the dead are gone."""
        if self.stopped is None:
            assert Process(self.root, ("open", None)).wait() == "done"
            assert [path.name for path in (self.root / "tmp").iterdir() if path.name != locks.GATE] == []
            assert (state := observe(self.root)) == self.state, (state, self.state)

    def teardown(self) -> None:
        """End the stopped process and remove the store."""
        if self.stopped is not None:
            with suppress(ProcessLookupError):
                self.stopped.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _create(root: Path) -> None:
    """Make an empty store, and beside it one to be merged."""
    Store.open(root).close()
    with Store.open(root.with_name(SOURCE)) as source:
        for operation in (*(("fit", k) for k in SOURCE_FITS), ("predict", 0, ("test",)), ("run", "quick", (0,))):
            perform(source, operation)


def _outcomes(state: State, sure: list[Operation], perhaps: list[Operation]) -> Iterator[State]:
    """Yield the state after these operations in any order, with and without those that were cut off."""
    for count in range(len(perhaps) + 1):
        for some in itertools.combinations(perhaps, count):
            for order in itertools.permutations([*sure, *some]):
                after = state
                for operation in order:
                    after = effect(operation, after)
                yield after


def campaign(
    examples: int, first_seed: int, steps_each: int = 30, phases: tuple[Phase, ...] = (Phase.generate,)
) -> dict[str, int]:
    """Run the machine; return how operations ended, or raise what contradicts the model."""
    StoreMachine.counts = {}
    chosen = settings(
        max_examples=examples, stateful_step_count=steps_each, deadline=None, database=None, phases=phases,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(seed(first_seed)(StoreMachine), settings=chosen)
    return dict(sorted(StoreMachine.counts.items()))


def main() -> None:
    """Run the campaign of the command line and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--examples", type=int, default=200, help="series of operations")
    parser.add_argument("--steps", type=int, default=30, help="operations of a series, at most")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same series")
    parser.add_argument("--shrink", action="store_true", help="make a series that fails short; takes minutes")
    parser.add_argument("--figures", type=Path, help="write the figures to this file, as JSON")
    options = parser.parse_args()
    phases = (Phase.generate, Phase.shrink) if options.shrink else (Phase.generate,)
    endings = campaign(options.examples, options.seed, options.steps, phases)
    for ending, count in endings.items():
        print(f"{ending}: {count}")
    if options.figures is not None:
        figures = {"store machine": {"series": options.examples, "endings": endings}}
        options.figures.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
