"""Run a benchmark from beginning to end: prepare, tune, plan, execute, write the manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubio.core.errors import UserError, one_of
from dubio.core.registry import load_entry_points, load_plugin
from dubio.core.types import Task
from dubio.reporting.stored_run import Run
from dubio.runner.benchmark_file import Benchmark, benchmark_files, load_benchmark
from dubio.runner.costs import Forecast, check_fits, forecast, measure_in_workers, missing_nodes
from dubio.runner.execute import Outcome, execute, survey
from dubio.runner.executor import CPU, Executor, WorkerOrders
from dubio.runner.gallery import store_thumbnails
from dubio.runner.local import LocalExecutor
from dubio.runner.manifest import benchmark_warnings, fit_warnings, make_manifest, manifest_key
from dubio.runner.overrides import Overrides, first_seeds, own_data_benchmark, parse_seeds, verified_tasks
from dubio.runner.plan import Plan, make_plan
from dubio.runner.prepare import PreparedTask, Skipped, prepare_available
from dubio.runner.progress import make_progress
from dubio.runner.ray_cluster import RayExecutor
from dubio.runner.trainer import Trainer, load_trainer
from dubio.runner.tuning import Trial, choose, combinations, plan_trials, tuning_failures
from dubio.store import Store
from dubio.store.index import rebuild
from dubio.store.locks import sweep

EXECUTORS: Mapping[str, Callable[[int, WorkerOrders, Path], Executor]] = {"local": LocalExecutor, "ray": RayExecutor}

CHECKPOINT_SECONDS = 600.0

BENCHMARK_ONLY = ("shift", "shift_data")
"""Data options that only tasks of benchmarks have."""


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a benchmark run.

    Attributes:
        manifest: What was run and made.
        path: The file of the manifest.
        outcome: What was found, made and failed.
        damaged: Other damaged artefacts in the store.
        warnings: Reasons to distrust the results that its fits have shown.
    """

    manifest: dict[str, Any]
    path: Path
    outcome: Outcome
    damaged: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PreparedBenchmark:
    """A benchmark whose tasks have been read.

    Attributes:
        benchmark: The benchmark.
        tasks: Its prepared tasks.
        trainer: Fits and predicts.
        skipped: Its tasks that this machine cannot run.
    """

    benchmark: Benchmark
    tasks: Sequence[PreparedTask]
    trainer: Trainer
    skipped: Sequence[Skipped] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to distrust the results that are known before the run."""
        return benchmark_warnings(self.benchmark)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences to show before the run: skipped tasks, notes on the data, warnings."""
        notes = [f"{task.name}: {note}" for task in self.tasks for note in task.task.notes]
        skipped = skipped_sentences(item.to_json() for item in self.skipped)
        return (*skipped, *dict.fromkeys(notes), *(f"caution: {warning}" for warning in self.warnings))

    def forecast(self, store: Store | None, jobs: int, device: str = CPU) -> Forecast:
        """Return the cost of the run; changes nothing. Before tuning, the first values stand for the chosen ones.

        Args:
            store: What may hold some of it already.
            jobs: Processes that share the work.
            device: Where fits are measured.
        """
        trial_plan, trials, plan = self._plans()
        return forecast(plan, trial_plan, len(trials), self.tasks, self.trainer, store=store, jobs=jobs, device=device)

    def run(self, store: Store, jobs: int, executor: str, orders: WorkerOrders, *, show: bool = True) -> RunOutcome:
        """Make everything that is not in the store, and write the manifest and the index.

        Args:
            store: Where results are written.
            jobs: Processes at a time.
            executor: Name of the executor.
            orders: Configuration of the workers.
            show: Whether progress is shown on standard error.
        """
        trial_plan, trials, plan = self._plans()
        check_fits(missing_nodes(store, [*trial_plan.nodes.values(), *plan.nodes.values()]), self.tasks, self.trainer)
        logs = store.scratch.new()
        logs.mkdir()
        workers = EXECUTORS[one_of("--executor", executor, EXECUTORS)](jobs, orders, logs)
        try:
            tuned = self._execute(trial_plan, store, workers, show)
            choices = choose(trials, store)
            if trials:
                chosen = {key: choice.trial.arguments for key, choice in choices.items()}
                plan = make_plan(self.benchmark, self.tasks, self.trainer, chosen)
            outcome = self._execute(plan, store, workers, show)
        finally:
            workers.close()
            sweep(store.layout.scratch)
        failures = {**tuned.failures, **tuning_failures(trials, choices), **outcome.failures}
        outcome = Outcome(tuned.stored + outcome.stored, tuned.completed + outcome.completed, failures, outcome.blocked)
        manifest = make_manifest(
            self.benchmark, self.tasks, plan, choices.values(), outcome, skipped=self.skipped, warnings=self.warnings
        )
        warnings = fit_warnings(store, manifest["runs"])
        manifest["advice"] += warnings
        path = store.write_manifest(manifest, manifest_key(self.benchmark, self.tasks))
        store_thumbnails(store, self.tasks, manifest["runs"])
        return RunOutcome(manifest, path, outcome, damaged=rebuild(store), warnings=warnings)

    def _plans(self) -> tuple[Plan, tuple[Trial, ...], Plan]:
        """Return the plan of the trials, the trials, and the plan with the first values of every ``[tune]`` table."""
        trial_plan, trials = plan_trials(self.benchmark, self.tasks, self.trainer)
        first = {
            (task.index, method): combinations(lists)[0]
            for task in self.tasks
            for method, lists in self.benchmark.tune.items()
            if method in task.methods
        }
        return trial_plan, trials, make_plan(self.benchmark, self.tasks, self.trainer, first)

    def _execute(self, plan: Plan, store: Store, executor: Executor, show: bool) -> Outcome:
        if not plan.nodes:
            return Outcome()
        estimates: dict[str, float] = {}
        display = make_progress(estimates, show=show)
        try:
            complete = survey(plan, store, display)
            fits = [node for node in plan.of_kind("fit") if node.id not in complete]
            if fits:
                count = "1 training" if len(fits) == 1 else f"{len(fits)} trainings"
                display.note(f"{count} to do; measuring a few steps of each kind first")
            costs = measure_in_workers(fits, executor)
            estimates |= {fit_id: cost["seconds"] for fit_id, cost in costs.items()}
            return execute(plan, store, executor, display, estimates, complete)
        finally:
            display.close()


def prepare_run(
    benchmark: str | Path | Benchmark | None = None,
    *,
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    networks: Sequence[str] = (),
    seeds: int | str | Sequence[int] | None = None,
    preset: str | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    data: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    verify: bool = False,
) -> PreparedBenchmark:
    """Read a benchmark, or a user's own data, with everything it names; arguments as of :func:`dubio.run`."""
    options = {**({"data": str(data)} if data is not None else {}), **(data_options or {})}
    if benchmark is None:
        _check_own_data(options, preset=preset, data_dir=data_dir, verify=verify or None)
    load_entry_points()
    for path in plugins:
        load_plugin(Path(path))
    read: dict[int, Task] = {}
    if benchmark is None:
        plain, read[0] = own_data_benchmark(options)
        options = {}
    else:
        plain = benchmark if isinstance(benchmark, Benchmark) else load_benchmark(str(benchmark), preset, methods)
    changed = Overrides(
        tasks=tasks,
        methods=methods,
        seeds=_seeds(seeds),
        networks=networks,
        settings=settings,
        data_dir=None if data_dir is None else Path(data_dir),
        data_options=options,
    ).apply(plain)
    if changed.tasks[0].arguments != plain.tasks[0].arguments:
        read = {}
    prepared = prepare_available(changed, verified_tasks(changed) if verify else read)
    return PreparedBenchmark(changed, prepared.tasks, load_trainer(), prepared.skipped)


def run(
    benchmark: str | Path | Benchmark | None = None,
    *,
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    networks: Sequence[str] = (),
    seeds: int | str | Sequence[int] | None = None,
    preset: str | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    data: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    data_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    verify: bool = False,
    store: str | Path = "dubio-store",
    jobs: int | None = None,
    devices: str | Sequence[str] | None = None,
    executor: str = "local",
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: bool = True,
) -> Run:
    """Train, predict and evaluate the methods of a benchmark; what the store holds is not made again.

    Args:
        benchmark: Name or TOML file of a benchmark; None for your own ``data``.
        tasks: Only these tasks, such as ``"digits"`` or ``"amazon-books"``.
        methods: These methods instead of the benchmark's.
        networks: Only the tasks with these networks; a network that no task has is used for every task.
        seeds: Number of seeds, or the seeds, or a text such as ``"0-4"``.
        preset: A preset of the benchmark.
        settings: ``{"epochs": 10, "network.width": 64, "deep-ensemble.members": 5}``, or texts such as
            ``"epochs=10"``: arguments of every method, of the ``task``, ``network`` or ``encoding``, or of one method.
        data: Your own table, texts or images; or the data of a benchmark whose tasks ask for it.
        data_options: Further options of the data, such as ``{"text": "review", "label": "stars"}``.
        data_dir: A folder with the data of the benchmark's tasks.
        plugins: Python files that register tasks, networks, methods or metrics.
        verify: Whether tasks read every file again instead of trusting their cache.
        store: Folder of the store; it is created if necessary.
        jobs: Processes at a time; one per core (or per device) if omitted.
        devices: Where trainings run, such as ``"cuda:0,cuda:1"``; the CPU if omitted.
        executor: ``"local"`` or ``"ray"``.
        checkpoint_seconds: Interval at which a running fit is saved.
        progress: Whether progress is shown on standard error.

    Returns:
        The run. Fits and predictions that failed are in ``run.failures``; all others have been made.

    Raises:
        UserError: For an unknown name or argument, or if this machine lacks what every task needs.
    """
    prepared = prepare_run(
        benchmark, tasks=tasks, methods=methods, networks=networks, seeds=seeds, preset=preset, settings=settings,
        data=data, data_options=data_options, data_dir=data_dir, plugins=plugins, verify=verify,
    )  # fmt: skip
    outcome = run_prepared(
        prepared, store=store, jobs=jobs, devices=devices, executor=executor, plugins=plugins,
        checkpoint_seconds=checkpoint_seconds, progress=progress,
    )  # fmt: skip
    return Run(outcome.path.stem, outcome.manifest, Path(store))


def run_prepared(
    prepared: PreparedBenchmark,
    *,
    store: str | Path,
    jobs: int | None = None,
    devices: str | Sequence[str] | None = None,
    executor: str = "local",
    plugins: Sequence[str | Path] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: bool = True,
) -> RunOutcome:
    """Run a prepared benchmark; arguments as of :func:`dubio.run`."""
    names = check_devices(devices)
    with Store.open(store) as opened:
        orders = WorkerOrders(opened.path, [Path(path) for path in plugins], checkpoint_seconds, devices=names)
        return prepared.run(opened, jobs or default_jobs(devices), executor, orders, show=progress)


def skipped_sentences(skipped: Iterable[Mapping[str, str]]) -> list[str]:
    """Return one sentence for each reason that some tasks were skipped."""
    reasons: dict[str, list[str]] = {}
    for item in skipped:
        reasons.setdefault(item["reason"], []).append(f"{item['task']} with {item['network']}")
    return [f"skipped: {', '.join(tasks)}: {reason}" for reason, tasks in reasons.items()]


def _check_own_data(options: Mapping[str, Any], **benchmark_options: Any) -> None:
    """Refuse arguments that do not go together: a benchmark, or the user's own data."""
    if "data" not in options:
        names = ", ".join(benchmark_files())
        raise UserError(f"give either a benchmark ({names}, or a TOML file) or --data.")
    benchmark_options |= {name: options.get(name) for name in BENCHMARK_ONLY}
    for name, value in benchmark_options.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is an option of a benchmark; it cannot be used with --data alone.")


def _seeds(seeds: int | str | Sequence[int] | None) -> Sequence[int]:
    if seeds is None:
        return ()
    if isinstance(seeds, int):
        return first_seeds(seeds)
    return parse_seeds(seeds) if isinstance(seeds, str) else seeds


def check_devices(devices: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the devices, each of them available on this machine.

    Args:
        devices: Names, or one text with commas; None for the CPU.

    Raises:
        UserError: For a device that cannot be used here.
    """
    if devices is None:
        return (CPU,)
    from dubio.methods.fitting import check_device

    names = devices.split(",") if isinstance(devices, str) else devices
    return tuple(check_device(name.strip()) for name in names)


def default_jobs(devices: str | Sequence[str] | None) -> int:
    """Return one job per named device, or per core that this process may use."""
    if devices is not None:
        return len(check_devices(devices))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
