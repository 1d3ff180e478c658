"""Plan a benchmark: a directed graph of fits and predictions, each identified by its id and therefore made once.

Rows of a table share what they have in common: member k of seed s is one fit whatever the size of the ensemble,
Monte Carlo sampling on or off is two predictions from one fit, and an ensemble is a list of its members' predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from dubio.core.errors import UserError
from dubio.core.registry import METHODS, Entry
from dubio.core.specs import describe, identity
from dubio.core.types import Split
from dubio.runner.benchmark_file import Benchmark, Table
from dubio.runner.prepare import PreparedTask, make_method
from dubio.runner.trainer import Trainer
from dubio.store.predictions import SplitKey
from dubio.store.records import EntryKind

NodeKind = Literal["fit", "predict", "ensemble", "method"]

SCHEMA = 1


@dataclass(frozen=True)
class Node:
    """One artefact of the store to make.

    Attributes:
        id: Its identity.
        kind: A fit, a prediction from a fit, an ensemble of predictions, or a complete method that is not a recipe.
        spec: What its id is the hash of.
        needs: Ids of the artefacts it is made from.
        task: The prepared task.
        method: The first method that uses it.
        label: Description in a few words.
        others: Further tasks whose splits it predicts: they train on the same data and are tested on other data.
    """

    id: str
    kind: NodeKind
    spec: Mapping[str, Any]
    needs: tuple[str, ...]
    task: PreparedTask
    method: str
    label: str
    others: tuple[PreparedTask, ...] = ()

    @property
    def folder(self) -> EntryKind:
        """The folder of the store that holds it."""
        return "fits" if self.kind == "fit" else "predictions"

    @property
    def predicted(self) -> tuple[Split, ...]:
        """Every split to predict, those with the same name and content once."""
        if self.kind == "fit":
            return ()
        splits = (split for task in (self.task, *self.others) for split in task.predicted)
        return tuple({(split.name, split.fingerprint): split for split in splits}.values())

    @property
    def splits(self) -> tuple[SplitKey, ...]:
        """Name and fingerprint of every split to predict."""
        return tuple((split.name, split.fingerprint) for split in self.predicted)

    def job(self, **changes: Any) -> dict[str, Any]:
        """Return the job that makes it, as :mod:`dubio.runner.worker` describes it, with some keys changed."""
        first, *others = ((task.entry.name, task.entry.arguments) for task in (self.task, *self.others))
        job = {"kind": self.kind, "id": self.id, "spec": self.spec, "task": first, "others": others}
        return {**job, "splits": self.splits, **changes}

    def shared_with(self, other: Node) -> Node:
        """Return the node with the splits of the same artefact on another task."""
        if self.kind == "fit" or set(other.splits) <= set(self.splits):
            return self
        return replace(self, others=(*self.others, other.task, *other.others))

    def __str__(self) -> str:
        return f"{self.kind} of {self.label}"


@dataclass(frozen=True)
class PlannedRun:
    """One row of a benchmark: a method on a task with a seed.

    Attributes:
        id: The prediction's id.
        task: Name of the task in the results.
        network: Name of the network.
        method: The method's name in the benchmark.
        seed: The benchmark's seed.
        member: Which independent fit of that seed, or None for a method that uses several.
        fits: Ids of the fits it draws from.
        spec: What its id is the hash of.
    """

    id: str
    task: str
    network: str
    method: str
    seed: int
    member: int | None
    fits: tuple[str, ...]
    spec: Mapping[str, Any]


@dataclass
class Plan:
    """Nodes in an order in which needs come first.

    Attributes:
        nodes: Id → node.
        runs: The rows of the benchmark.
        unshared: Number of trainings if nothing were shared.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    runs: list[PlannedRun] = field(default_factory=list)
    unshared: int = 0

    def of_kind(self, *kinds: NodeKind) -> tuple[Node, ...]:
        """Return the nodes of these kinds, in order."""
        return tuple(node for node in self.nodes.values() if node.kind in kinds)

    def add(self, node: Node) -> str:
        """Add a node; one that is there predicts the new one's splits too. Return its id."""
        present = self.nodes.get(node.id)
        self.nodes[node.id] = node if present is None else present.shared_with(node)
        return node.id


def is_recipe(method: Any) -> bool:
    """Return whether a method is made of fits that can be shared."""
    return callable(getattr(method, "fit_part", None))


def make_plan(
    benchmark: Benchmark, tasks: Iterable[PreparedTask], trainer: Trainer, chosen: Mapping[tuple[int, str], Table]
) -> Plan:
    """Plan a benchmark.

    Args:
        benchmark: The benchmark.
        tasks: Its prepared tasks.
        trainer: Writes the specifications.
        chosen: (index of the task, method) → arguments chosen by tuning. A method with a ``[tune]`` table for which
            nothing could be chosen is not planned.
    """
    plan = Plan()
    for task in tasks:
        methods = {
            name: _limited(
                make_method(benchmark, name, task.method_arguments[name], chosen.get((task.index, name), {})),
                task.entry.most_samples,
            )
            for name in task.methods
            if name not in benchmark.tune or (task.index, name) in chosen
        }
        once = {name for name in methods if not _entry(benchmark, name).facts.get("trainings_vary", True)}
        for seed in benchmark.seeds:
            planned = methods if seed == benchmark.seeds[0] else {n: m for n, m in methods.items() if n not in once}
            SeedPlanner(plan, task, trainer, seed, benchmark).add_all(planned)
    return plan


def _entry(benchmark: Benchmark, name: str) -> Entry[Any]:
    """Return the registered method behind a name of a benchmark."""
    return METHODS.entry(benchmark.base(name))


def with_possible_methods(benchmark: Benchmark, task: PreparedTask, trainer: Trainer) -> PreparedTask:
    """Return a task without the methods that cannot be fitted with its network or target; its notes say why."""
    possible: dict[str, Mapping[str, Any]] = {}
    reasons = []
    for name, arguments in task.method_arguments.items():
        draft = Plan()
        try:
            method = make_method(benchmark, name, arguments, {})
            if is_recipe(method):
                SeedPlanner(draft, task, trainer, 0, benchmark).add_fit(name, method, 0)
            for node in draft.nodes.values():
                trainer.check(node.spec, task.task)
        except UserError as error:
            reasons.append(f"{name} is left out: {error}")
        else:
            possible[name] = arguments
    return replace(task, method_arguments=possible, left_out=tuple(reasons))


def method_rows(benchmark: Benchmark, tasks: Iterable[PreparedTask], plan: Plan) -> list[dict[str, Any]]:
    """Return the methods of the prepared tasks as the manifest lists them.

    ``members`` and ``samples`` are those of the first task that has the method; ``family`` is the single-fit method
    that an ensemble is made of; ``method`` is the registered name, and ``arguments`` are those of a variant; ``facts``
    are what its registration declares for reports.
    """
    first_runs = {run.method: run for run in reversed(plan.runs)}
    singles = {run.id: run.method for run in reversed(plan.runs) if run.member is not None}
    first_arguments: dict[str, Mapping[str, Any]] = {}
    for task in tasks:
        first_arguments = {**task.method_arguments, **first_arguments}
    rows = []
    for name in (name for name in benchmark.all_methods if name in first_arguments):
        method = make_method(benchmark, name, first_arguments[name], {})
        members = first_runs[name].spec.get("members", ()) if name in first_runs else ()
        entry = _entry(benchmark, name)
        rows.append(
            {
                "name": name,
                "title": _title(benchmark, name, method),
                "summary": entry.summary,
                "members": int(getattr(method, "members", 1)),
                "samples": int(getattr(method, "pooled", getattr(method, "samples", 0))),
                "family": singles.get(members[0]) if members else name,
                "method": entry.name,
                "arguments": describe(benchmark.variants[name].arguments) if name in benchmark.variants else {},
                "facts": dict(entry.facts),
            }
        )
    return rows


def _title(benchmark: Benchmark, name: str, method: Any) -> str:
    title = str(getattr(method, "title", "")) or default_title(benchmark.base(name))
    if name not in benchmark.variants:
        return title
    variant = benchmark.variants[name]
    arguments = ", ".join(f"{key} = {value}" for key, value in variant.arguments.items())
    return variant.title or (f"{title}, {arguments}" if arguments else title)


def default_title(name: str) -> str:
    """Return ``MC noise ensemble`` for ``mc-noise-ensemble``."""
    first, *others = ["MC" if piece == "mc" else piece for piece in name.split("-")]
    return " ".join([first[:1].upper() + first[1:], *others])


class SeedPlanner:
    """Adds every method of one task and seed to a plan."""

    def __init__(self, plan: Plan, task: PreparedTask, trainer: Trainer, seed: int, benchmark: Benchmark) -> None:
        """Make a planner.

        Args:
            plan: The plan to add to.
            task: The prepared task.
            trainer: Writes the specifications.
            seed: The seed.
            benchmark: The benchmark that names the methods.
        """
        self._plan, self._task, self._trainer, self._seed, self._benchmark = plan, task, trainer, seed, benchmark

    def add_all(self, methods: Mapping[str, Any]) -> None:
        """Add the methods in order; a single-fit method gets every member that is trained for some ensemble anyway."""
        ensembles = {name: method for name, method in methods.items() if is_recipe(method) and method.members > 1}
        most = max((recipe.members for recipe in ensembles.values()), default=1)
        draft = SeedPlanner(Plan(), self._task, self._trainer, self._seed, self._benchmark)
        trained = {draft.add_fit(name, recipe, k) for name, recipe in ensembles.items() for k in range(recipe.members)}
        for name, method in methods.items():
            self._plan.unshared += int(getattr(method, "members", 1)) * _trainings(method)
            if name in ensembles:
                self._plan.runs.append(self._ensemble(name, method))
            elif is_recipe(method):
                members = [k for k in range(most) if k == 0 or draft.add_fit(name, method, k) in trained]
                self._plan.runs += [self._single(name, method, member) for member in members]
            else:
                self._plan.runs.append(self._opaque(name, method))

    def add_fit(self, name: str, recipe: Any, member: int, remark: str = "") -> str:
        """Add a fit and, before it, the fit it starts from; ``remark`` is added to the label."""
        start_id = None if recipe.start is None else self.add_fit(name, recipe.start, member, remark)
        task = self._task
        network = self._trainer.NetworkSpec(task.entry.network, task.network_of(name))
        spec = self._trainer.fit_spec(
            recipe, task.task, task.encoding, network, seed=self._seed, member=member, start_id=start_id
        )
        return self._add("fit", spec, name, () if start_id is None else (start_id,), member, remark)

    def _predict(self, name: str, recipe: Any, member: int) -> tuple[str, str]:
        """Add the prediction of one member; return its id and its fit's."""
        fit_id = self.add_fit(name, recipe, member)
        spec = self._trainer.pred_spec(recipe, fit_id, seed=self._seed, member=member)
        return self._add("predict", spec, name, (fit_id,), member), fit_id

    def _single(self, name: str, recipe: Any, member: int) -> PlannedRun:
        pred_id, fit_id = self._predict(name, recipe, member)
        return self._run(name, pred_id, member, (fit_id,))

    def _ensemble(self, name: str, recipe: Any) -> PlannedRun:
        pairs = [self._predict(name, recipe, member) for member in range(recipe.members)]
        members = tuple(pred_id for pred_id, _ in pairs)
        spec = {"schema": SCHEMA, "kind": "prediction", "members": list(members)}
        pred_id = self._add("ensemble", spec, name, members, None)
        return self._run(name, pred_id, None, tuple(fit_id for _, fit_id in pairs))

    def _opaque(self, name: str, method: Any) -> PlannedRun:
        if not callable(getattr(method, "fit", None)):
            raise UserError(f"method {name!r} is not a recipe and has no fit(task, network, seed, context).")
        base, version = self._benchmark.base(name), int(getattr(method, "version", 1))
        spec = self._task.opaque_spec(name, base, version, self._seed)
        return self._run(name, self._add("method", spec, name, (), None), 0, ())

    def _add(
        self, kind: NodeKind, spec: Mapping[str, Any], name: str, needs: tuple[str, ...], member: int | None,
        remark: str = "",
    ) -> str:  # fmt: skip
        task = self._task
        seed = f"seed {self._seed}" if member is None else f"seed {self._seed}, member {member}"
        label = f"{task.name}/{task.entry.network}: {name}{remark}, {seed}"
        return self._plan.add(Node(identity(spec), kind, spec, needs, task, name, label))

    def _run(self, name: str, pred_id: str, member: int | None, fits: tuple[str, ...]) -> PlannedRun:
        spec = self._plan.nodes[pred_id].spec
        return PlannedRun(pred_id, self._task.name, self._task.entry.network, name, self._seed, member, fits, spec)


def _limited(method: Any, most: int | None) -> Any:
    """Return a recipe that predicts with at most that number of samples; methods that cannot sample are unchanged."""
    limits = is_recipe(method) and "most" in {field.name for field in fields(method)}
    return replace(method, most=most) if most and limits else method


def _trainings(method: Any) -> int:
    """Return the number of trainings of a fit: its own and those of the fits that it starts from."""
    start = getattr(method, "start", None) if is_recipe(method) else None
    return 1 if start is None else 1 + _trainings(start)
