"""A benchmark from beginning to end: tuned, planned, carried out, written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import one_of
from dubio.runner.benchmark import Benchmark
from dubio.runner.cautions import cautions_on
from dubio.runner.costs import Cost, check_fits, measure_here, measure_in_workers, stored_samples
from dubio.runner.execute import Outcome, execute, survey
from dubio.runner.executor import CPU, Executor, WorkerOrders
from dubio.runner.fit_bounds import bound_cautions
from dubio.runner.gallery import keep_pictures
from dubio.runner.left import Left
from dubio.runner.local import LocalExecutor
from dubio.runner.manifest import make_manifest, manifest_key
from dubio.runner.plan import Node, Plan, make_plan
from dubio.runner.progress import make_progress
from dubio.runner.ray_cluster import RayExecutor
from dubio.runner.setting import Setting, Skipped
from dubio.runner.tuning import Choice, Trial, choose, combinations, plan_trials
from dubio.store import Store
from dubio.store.atomic import sweep
from dubio.store.index import rebuild

EXECUTORS: Mapping[str, Callable[[int, WorkerOrders, Path], Executor]] = {"local": LocalExecutor, "ray": RayExecutor}

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Forecast:
    """What a plan would cost.

    Attributes:
        trainings: Fits in the plan.
        asked: Fits there would be if nothing were shared.
        trials: Fits of the plan's tuning; of these, those that are not part of the plan come on top of ``trainings``.
        predictions: Sets of predictions in the plan.
        trainings_left: Fits not yet in the store.
        predictions_left: Predictions not yet in the store.
        seconds: Estimated time of what is left.
        bytes: Estimated size of what is left.
        tasks: The same, task by task.
    """

    trainings: int
    asked: int
    trials: int
    predictions: int
    trainings_left: int
    predictions_left: int
    seconds: float
    bytes: int
    tasks: tuple[TaskForecast, ...]


@dataclass(frozen=True)
class TaskForecast:
    """What one task with one network would cost; what two tasks share is counted with the first."""

    task: str
    network: str
    trainings: int
    trainings_left: int
    seconds: float


@dataclass(frozen=True)
class Finish:
    """How a benchmark run ended.

    Attributes:
        manifest: What was run and made.
        path: Where that is written.
        outcome: What was found, made and failed.
        damaged: What else in the store is not what was written.
        cautions: What its fits have shown that one should know before the results are trusted.
    """

    manifest: dict[str, Any]
    path: Path
    outcome: Outcome
    damaged: tuple[str, ...]
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class BenchmarkRun:
    """A benchmark whose tasks have been read.

    Attributes:
        benchmark: What is to be run.
        settings: Its tasks, made ready.
        left: What fits and predicts.
        skipped: Its tasks that this machine cannot run.
    """

    benchmark: Benchmark
    settings: Sequence[Setting]
    left: Left
    skipped: Sequence[Skipped] = ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """What one should know before its results are trusted."""
        return cautions_on(self.benchmark)

    def forecast(self, store: Store | None, jobs: int, device: str = CPU) -> Forecast:
        """What is ahead; changes nothing. Where tuning is still to choose, the first values stand for the chosen.

        Args:
            store: What may hold some of it already.
            jobs: Processes that will share the work.
            device: Where fits are measured.
        """
        trial_plan, trials, plan = self._planned()
        nodes = {**trial_plan.nodes, **plan.nodes}
        left = _missing(store, nodes.values())
        check_fits(left, self.settings, self.left)
        fits = [node for node in left if node.kind == "fit"]
        predictions = [node for node in left if node.kind in ("predict", "method")]
        costs = measure_here(fits, self.settings, self.left, device)
        size = sum(cost["bytes"] for cost in costs.values())
        size += sum(self._prediction_bytes(node, nodes) for node in predictions)
        return Forecast(
            trainings=len(plan.of_kind("fit")),
            asked=plan.asked,
            trials=len(trials),
            predictions=len(plan.of_kind("predict", "method")),
            trainings_left=len(fits),
            predictions_left=len(predictions),
            seconds=sum(cost["seconds"] for cost in costs.values()) / jobs,
            bytes=int(size),
            tasks=tuple(self._forecast_of(setting, nodes.values(), costs, jobs) for setting in self.settings),
        )

    def _forecast_of(
        self, setting: Setting, nodes: Iterable[Node], costs: Mapping[str, Cost], jobs: int
    ) -> TaskForecast:
        own = [node.id for node in nodes if node.kind == "fit" and node.setting == setting.index]
        left = [identifier for identifier in own if identifier in costs]
        seconds = sum(costs[identifier]["seconds"] for identifier in left) / jobs
        return TaskForecast(setting.name, setting.entry.network, len(own), len(left), seconds)

    def run(self, store: Store, jobs: int, executor: str, orders: WorkerOrders) -> Finish:
        """Make everything that is not in the store and write the manifest and the index.

        Args:
            store: Where everything goes.
            jobs: Processes at a time.
            executor: Who does it.
            orders: What workers are told.
        """
        trial_plan, trials, plan = self._planned()
        check_fits(_missing(store, [*trial_plan.nodes.values(), *plan.nodes.values()]), self.settings, self.left)
        logs = store.scratch.new()
        logs.mkdir()
        hands = EXECUTORS[one_of("--executor", executor, EXECUTORS)](jobs, orders, logs)
        try:
            tried = self._carry_out(trial_plan, store, hands)
            choices = choose(trials, store)
            if trials:
                chosen = {key: choice.trial.arguments for key, choice in choices.items()}
                plan = make_plan(self.benchmark, self.settings, self.left, chosen)
            outcome = self._carry_out(plan, store, hands)
        finally:
            hands.close()
            sweep(store.layout.scratch)
        failures = {**tried.failures, **_unchosen(trials, choices), **outcome.failures}
        outcome = Outcome(tried.found + outcome.found, tried.made + outcome.made, failures, outcome.blocked)
        manifest = make_manifest(
            self.benchmark,
            self.settings,
            plan,
            choices.values(),
            outcome,
            skipped=self.skipped,
            cautions=self.cautions,
        )
        shown = bound_cautions(store, manifest["runs"])
        manifest["advice"] += shown
        path = store.write_manifest(manifest, manifest_key(self.benchmark, self.settings))
        keep_pictures(store, self.settings, manifest["runs"])
        return Finish(manifest, path, outcome, damaged=rebuild(store), cautions=shown)

    def _planned(self) -> tuple[Plan, tuple[Trial, ...], Plan]:
        """The trials of the tuning, and the plan with the first values in place of those it will choose."""
        trial_plan, trials = plan_trials(self.benchmark, self.settings, self.left)
        return trial_plan, trials, make_plan(self.benchmark, self.settings, self.left, self._first_choices())

    def _carry_out(self, plan: Plan, store: Store, hands: Executor) -> Outcome:
        if not plan.nodes:
            return Outcome()
        estimates: dict[str, float] = {}
        watcher = make_progress(estimates)
        try:
            sound = survey(plan, store, watcher)
            fits = [node for node in plan.of_kind("fit") if node.id not in sound]
            if fits:
                what = "1 training" if len(fits) == 1 else f"{len(fits)} trainings"
                watcher.note(f"{what} to do; measuring a few steps of each sort first")
            costs = measure_in_workers(fits, hands)
            estimates |= {identifier: cost["seconds"] for identifier, cost in costs.items()}
            return execute(plan, store, hands, watcher, estimates, sound)
        finally:
            watcher.close()

    def _first_choices(self) -> dict[tuple[int, str], Mapping[str, Any]]:
        return {
            (setting.index, method): combinations(lists)[0]
            for setting in self.settings
            for method, lists in self.benchmark.tune.items()
            if method in setting.methods
        }

    def _prediction_bytes(self, node: Node, nodes: Mapping[str, Node]) -> int:
        place = self.settings[node.setting]
        rows = sum(len(split) for split in place.predicted)
        fit = nodes[node.spec["fit"]].spec if "fit" in node.spec else None
        return FLOAT_BYTES * stored_samples(node.spec, fit) * rows * len(place.task.classes)


def _missing(store: Store | None, nodes: Iterable[Node]) -> list[Node]:
    """Those that are not in the store."""
    return [node for node in nodes if store is None or not _exists(store, node.id, node.kind)]


def _exists(store: Store, identifier: str, kind: str) -> bool:
    return store.layout.directory("fits" if kind == "fit" else "predictions", identifier).is_dir()


def _unchosen(trials: Sequence[Trial], choices: Mapping[tuple[int, str], Choice]) -> dict[str, dict[str, Any]]:
    """Methods that could not be tuned because every trial failed."""
    failures = {}
    for trial in trials:
        if (trial.setting.index, trial.method) not in choices:
            name, network = trial.setting.name, trial.setting.entry.network
            failures[f"tune-{name}-{network}-{trial.method}"] = {
                "id": "",
                "what": f"tuning of {name}/{network}: {trial.method}",
                "kind": "tuning",
                "task": name,
                "method": trial.method,
                "error": "not run, because every trial of its tuning failed.",
                "blocked": [],
            }
    return failures
