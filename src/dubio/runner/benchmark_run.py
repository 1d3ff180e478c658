"""Run a benchmark from beginning to end: prepare, tune, plan, execute, write the manifest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dubio.core.errors import UserError, one_of
from dubio.core.registry import is_installed, load_plugins, plugin_title
from dubio.core.types import Task
from dubio.runner.benchmark_file import Benchmark, benchmark_files, load_benchmark
from dubio.runner.costs import Forecast, check_fits, forecast, measure_in_workers, missing_nodes, prediction_seconds
from dubio.runner.execute import Outcome, execute, survey
from dubio.runner.executors import CPU, Executor, LocalExecutor, WorkerOrders
from dubio.runner.manifest import benchmark_warnings, fit_warnings, make_manifest, manifest_key
from dubio.runner.overrides import ALL, Overrides, own_data_benchmark, verified_tasks
from dubio.runner.plan import Node, Plan, make_plan, with_possible_methods
from dubio.runner.prepare import PreparedTask, Skipped, prepare_available
from dubio.runner.progress import make_progress
from dubio.runner.ray_cluster import check_cluster
from dubio.runner.ray_executor import RayExecutor
from dubio.runner.resources import parse_resources
from dubio.runner.sharding import Part, Shard, closed, own_part
from dubio.runner.trainer import Trainer, load_trainer
from dubio.runner.tuning import Choice, Trial, choose, plan_trials, tuning_failures
from dubio.store import Store
from dubio.store.locks import storing, sweep
from dubio.store.maintenance import rebuild_index

if TYPE_CHECKING:
    from dubio.reporting.stored_run import Run

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


@dataclass(frozen=True)
class ExecutedPlan:
    """The outcome of a plan, the plan with the values that tuning chose, and these choices."""

    plan: Plan
    choices: tuple[Choice, ...]
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class PreparedBenchmark:
    """A benchmark whose tasks have been read.

    Attributes:
        benchmark: The benchmark.
        tasks: Its prepared tasks.
        trainer: Fits and predicts.
        skipped: Its tasks that this machine cannot run.
        command: The command that makes the same run; empty where only Python can name the benchmark.
        plugins: The plugins that were loaded for it, which every worker loads too.
        shard: The part of the run that is planned, forecast and made; None for all of it.
    """

    benchmark: Benchmark
    tasks: Sequence[PreparedTask]
    trainer: Trainer
    skipped: Sequence[Skipped] = ()
    command: str = ""
    plugins: Sequence[str] = ()
    shard: Shard | None = None

    @property
    def name(self) -> str:
        """The name of the run, which is that of its manifest, and of each of its shards."""
        return f"{self.benchmark.name}-{manifest_key(self.benchmark, self.tasks)[:8]}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to distrust the results that are known before the run."""
        return benchmark_warnings(self.benchmark)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences to show before the run: skipped tasks, plugins, notes on the data, warnings."""
        notes = [f"{t.name}: {note}" for t in self.tasks for note in (*filter(None, [t.task.account]), *t.notes)]
        skipped = skipped_sentences(item.to_json() for item in self.skipped)
        skipped += [f"plugins: {', '.join(map(plugin_title, self.plugins))}"] if self.plugins else []
        return (*skipped, *dict.fromkeys(notes), *(f"caution: {warning}" for warning in self.warnings))

    @property
    def row_accounts(self) -> list[dict[str, Any]]:
        """Where the rows of each task are, for those that know how many were read."""
        return [
            {"task": task.name, "read": task.task.rows, "left_out": dict(task.task.left_out)}
            | {"used": {split.name: len(split) for split in task.task.splits}}
            for task in self.tasks
            if task.task.rows is not None
        ]

    def forecast(self, store: Store | None, jobs: int, device: str = CPU) -> Forecast:
        """Return the cost of the run; changes nothing. Before tuning, the first values stand for the chosen ones.

        Args:
            store: What may hold some of it already.
            jobs: Processes that share the work.
            device: Where fits are measured.
        """
        trial_plan, trials, plan = self._plans()
        return forecast(plan, trial_plan, len(trials), self.tasks, self.trainer, store=store, jobs=jobs, device=device)

    def run(
        self, store: Store, jobs: int = 1, executor: str = "local", *, examples: bool = True, **options: Any
    ) -> RunOutcome:
        """Make everything that is not in the store, and write the manifest and the index.

        Args:
            store: Where results are written.
            jobs: Processes at a time.
            executor: Name of the executor.
            examples: Whether texts, table rows and small images of some test examples are stored for the report.
            options: Further arguments of :meth:`make`.
        """
        executed = self.make(store, jobs, executor, **options)
        manifest = make_manifest(
            self.benchmark, self.tasks, executed.plan, executed.choices, executed.outcome, skipped=self.skipped,
            warnings=self.warnings, command=self.command, plugins=map(plugin_title, self.plugins), examples=examples,
        )  # fmt: skip
        warnings = fit_warnings(store, manifest["runs"])
        manifest["advice"] += warnings
        path = store.write_manifest(manifest, manifest_key(self.benchmark, self.tasks))
        if examples:
            from dubio.runner.examples import store_examples  # loads the reports, which no training waits for

            store_examples(store, self.tasks, manifest["runs"], executed.outcome.completed)
        return RunOutcome(manifest, path, executed.outcome, damaged=rebuild_index(store), warnings=warnings)

    def make(
        self, store: Store, jobs: int = 1, executor: str = "local", *, devices: Sequence[str] = (CPU,),
        checkpoint_seconds: float = CHECKPOINT_SECONDS, show: bool = True,
        resources: Mapping[str, float] = MappingProxyType({}), meanwhile: Callable[[], Iterator[None]] | None = None,
    ) -> ExecutedPlan:  # fmt: skip
        """Make the fits and predictions that are not in the store; write no manifest.

        Args:
            store: Where results are written.
            jobs: Processes at a time.
            executor: Name of the executor.
            devices: Where trainings run; each worker uses one of them.
            checkpoint_seconds: Interval at which a running fit is saved.
            show: Whether progress is shown on standard error.
            resources: What a job takes of a Ray cluster, by name.
            meanwhile: Steps to take in a thread of its own while the workers are busy, if anything is missing; after an
                error or an interrupt the next step is not taken.
        """
        trial_plan, trials, plan = self._plans()
        missing = missing_nodes(store, [*trial_plan.nodes.values(), *plan.nodes.values()])
        logs = store.scratch.new()
        with storing(logs):
            logs.mkdir()
        installed = [plugin for plugin in self.plugins if is_installed(plugin)]
        files = [Path(plugin) for plugin in self.plugins if plugin not in installed]
        trainer = self.trainer.__name__
        orders = WorkerOrders(store.path, files, checkpoint_seconds, trainer, devices, installed, resources)
        workers = EXECUTORS[one_of("--executor", executor, EXECUTORS)](jobs, orders, logs)
        try:
            workers.start(_at_once(missing))
            check_fits(missing, self.trainer)
            # interrupted, the workers end first: the current step may take a second more
            with _beside(meanwhile if missing else None), closing(workers):
                tuned = self._execute(trial_plan, store, workers, show)
                choices = choose(trials, store)
                if trials:
                    plan = self._plan({key: choice.trial.arguments for key, choice in choices.items()})
                outcome = self._execute(plan, store, workers, show)
        finally:
            workers.close()
            sweep(store.layout.scratch)
        failures = {**tuned.failures, **tuning_failures(trials, choices), **outcome.failures}
        outcome = Outcome(tuned.stored + outcome.stored, tuned.completed + outcome.completed, failures, outcome.blocked)
        return ExecutedPlan(plan, tuple(choices.values()), outcome)

    def _plans(self) -> tuple[Plan, Sequence[Trial], Plan]:
        """Return the plan of the trials, the trials, and the plan with the first values of every ``[tune]`` table."""
        trial_plan, trials = plan_trials(self.benchmark, self.tasks, self.trainer)
        if self._part is not None:
            trials = [trial for trial in trials if trial.task.index in self._part.tuned]
            trial_plan = closed(trial_plan, (trial.fit for trial in trials))
        return trial_plan, trials, self._plan({trial.key: trial.arguments for trial in reversed(trials)})

    def _plan(self, chosen: Mapping[tuple[int, str], Mapping[str, Any]]) -> Plan:
        plan = make_plan(self.benchmark, self.tasks, self.trainer, chosen)
        return plan if self._part is None else self._part.of(plan, self._untuned)

    @cached_property
    def _untuned(self) -> Plan:
        return make_plan(self.benchmark, self.tasks, self.trainer, {})

    @cached_property
    def _part(self) -> Part | None:
        if self.shard is None:
            return None
        if self.skipped:
            lacking = skipped_sentences(item.to_json() for item in self.skipped)
            reason = "every machine must divide the same plan; provide what is missing, or name the tasks with --task"
            raise UserError(f"--shard: {reason}. {' '.join(lacking)}")
        return own_part(self.shard, self._untuned, *plan_trials(self.benchmark, self.tasks, self.trainer), self.trainer)

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
            costs = measure_in_workers(fits, executor, display.note)
            estimates |= {fit_id: cost["seconds"] for fit_id, cost in costs.items()}
            predictions = (node for node in plan.of_kind("predict") if node.id not in complete)
            estimates |= {node.id: prediction_seconds(node, plan.nodes, costs) for node in predictions}
            return execute(plan, store, executor, display, estimates, complete)
        finally:
            display.close()


@contextmanager
def _beside(steps: Callable[[], Iterator[None]] | None) -> Iterator[None]:
    """Take steps in a thread of its own during the block and wait for the last, where the block fails for the current.

    The thread is not left alone: a program that ends while a thread of it loads a library may crash.
    """
    if steps is None:
        yield
        return
    failed = threading.Event()
    thread = threading.Thread(target=lambda: any(failed.is_set() for _ in steps()), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        failed.set()
        raise
    finally:
        thread.join()


def _at_once(missing: Sequence[Node]) -> int:
    """Return how many jobs of a run can begin at once: those of nodes that need no other missing one."""
    lacking = {node.id for node in missing}
    return sum(node.kind != "ensemble" and lacking.isdisjoint(node.needs) for node in missing)


def prepare_run(
    benchmark: str | Path | Benchmark | None,
    overrides: Overrides,
    *,
    preset: str | None = None,
    plugins: Sequence[str | Path] = (),
    verify: bool = False,
) -> PreparedBenchmark:
    """Read a benchmark, or a user's own data, with everything it names.

    Args:
        benchmark: As for :func:`dubio.run`; None for the data that ``overrides.data_options`` name.
        overrides: Changes to the benchmark.
        preset: As for :func:`dubio.run`, like the others.
        plugins: Likewise.
        verify: Likewise.
    """
    if benchmark is None:
        _check_own_data(overrides.data_options, data_dir=overrides.data_dir, verify=verify or None)
    names = load_plugins(plugins)
    read: dict[int, Task] = {}
    requested, overrides = overrides, overrides.named()
    if benchmark is None:
        plain, read[0] = own_data_benchmark(overrides.data_options, preset, overrides.methods)
        overrides = replace(overrides, data_options={})
    elif isinstance(benchmark, Benchmark):
        plain = benchmark
    else:
        plain = load_benchmark(str(benchmark), preset, overrides.methods)
    changed = overrides.apply(plain)
    if changed.tasks[0].arguments != plain.tasks[0].arguments:
        read = {}
    prepared = prepare_available(changed, verified_tasks(changed) if verify else read)
    command = ""
    if not isinstance(benchmark, Benchmark):
        name = None if benchmark is None else str(benchmark)
        command = requested.command(name, changed.preset, names)
    tasks, trainer = prepared.tasks, load_trainer()
    if ALL in requested.methods:
        tasks = tuple(with_possible_methods(changed, task, trainer) for task in tasks)
    return PreparedBenchmark(changed, tasks, trainer, prepared.skipped, command, names)


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
    baselines: bool = True,
    store: str | Path = "dubio-store",
    jobs: int | None = None,
    devices: str | Sequence[str] | None = None,
    executor: str = "local",
    resources: str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: bool = True,
    examples: bool = True,
) -> Run:
    """Train, predict and evaluate the methods of a benchmark; what the store holds is not made again.

    Args:
        benchmark: Name or TOML file of a benchmark; None for your own ``data``.
        tasks: Only these tasks, such as ``"digits"`` or ``"amazon-books"``.
        methods: These methods instead of the benchmark's; ``["all"]`` for every registered one that applies.
        networks: Only the tasks with these networks; a network that no task has is used for every task.
        seeds: Number of seeds, or the seeds, or a text such as ``"0-4"``.
        preset: A preset of the benchmark.
        settings: ``{"epochs": 10, "network.width": 64, "deep-ensemble.members": 5}``, or texts such as
            ``"epochs=10"``: arguments of every method, of the ``task``, ``network`` or ``encoding``, or of one method.
        data: Your own table, texts or images; or the data of a benchmark whose tasks ask for it.
        data_options: Further options of the data, such as ``{"text": "review", "label": "stars"}``.
        data_dir: A folder with the data of the benchmark's tasks.
        plugins: Python files that register tasks, networks, methods or metrics, or names of installed plugins; those
            that the environment variable ``DUBIO_PLUGINS`` names are loaded too.
        verify: Whether tasks read every file again instead of trusting their cache.
        baselines: Whether the plain baselines (``dubio list methods`` marks them) join the comparison.
        store: Folder of the store; it is created if necessary.
        jobs: Processes at a time; one per core (or per device) if omitted.
        devices: Where trainings run, such as ``"cuda:0,cuda:1"``; the CPU if omitted.
        executor: ``"local"`` or ``"ray"``.
        resources: What a job takes of a Ray cluster, such as ``"cpu=2,gpu=0.5,memory=4GB"``; one core if omitted.
        checkpoint_seconds: Interval at which a running fit is saved.
        progress: Whether progress is shown on standard error.
        examples: Whether texts, table rows and small images of some test examples are stored for the report; without,
            nothing of the data is in the report.

    Returns:
        The run. Fits and predictions that failed are in ``run.failures``; all others have been made.

    Raises:
        UserError: For an unknown name or argument, or if this machine lacks what every task needs.
    """
    options = {**({} if data is None else {"data": str(data)}), **(data_options or {})}
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be at least 1; given {jobs}.")
    for argument, names in (("tasks", tasks), ("methods", methods), ("networks", networks), ("settings", settings)):
        if isinstance(names, str):
            raise UserError(f"{argument} must be a list of texts, such as [{names!r}]; given {names!r}.")
    job_resources = check_executor(executor, resources, devices)
    if executor == "ray":
        check_cluster()
    chosen_seeds = () if seeds is None else seeds
    overrides = Overrides(tasks, methods, networks, chosen_seeds, settings, options, data_dir, baselines)
    prepared = prepare_run(benchmark, overrides, preset=preset, plugins=plugins, verify=verify)
    count, device_names = workers_of(jobs, devices)
    with Store.open(store) as opened:
        outcome = prepared.run(
            opened, count, executor, devices=device_names, checkpoint_seconds=checkpoint_seconds,
            show=progress, resources=job_resources, examples=examples,
        )  # fmt: skip
    from dubio.reporting.stored_run import Run

    return Run(outcome.path.stem, outcome.manifest, Path(store))


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


def workers_of(jobs: int | None, devices: str | Sequence[str] | None) -> tuple[int, tuple[str, ...]]:
    """Return the number of processes and the devices that they use.

    Args:
        jobs: Number of processes; one per named device, or per core that this process may use, if omitted.
        devices: Names, or one text with commas; None for the CPU.

    Raises:
        UserError: For a device that cannot be used here.
    """
    if devices is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return jobs or cores, (CPU,)
    from dubio.methods.fitting import check_device

    separate = devices.split(",") if isinstance(devices, str) else devices
    names = tuple(check_device(name.strip()) for name in separate)
    return jobs or len(names), names


def check_executor(executor: str, resources: str | None, devices: str | Sequence[str] | None) -> dict[str, float]:
    """Check that an executor exists and takes these options; return the resources of a job by name.

    Raises:
        UserError: For an unknown executor, or options that it does not have.
    """
    one_of("--executor", executor, EXECUTORS)
    amounts = parse_resources(resources)
    if amounts and executor != "ray":
        raise UserError(
            f"--resources is an option of --executor ray; given --executor {executor}, whose jobs take one core each: "
            "--jobs sets their number, --devices where they run."
        )
    if amounts.get("gpu") and devices is not None:
        raise UserError("--devices cannot be used with gpu in --resources: Ray gives every job its own device.")
    return amounts
