"""The plan: a directed graph of fits and predictions, each named by its id and therefore made once.

What two rows of a table have in common they share: member k of seed s is one fit whatever the size of the ensemble,
Monte Carlo sampling on or off is two predictions from one fit, and an ensemble is a list of its members' predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, identity
from dubio.core.types import Run
from dubio.runner.arguments import make_method
from dubio.runner.benchmark import Benchmark
from dubio.runner.left import Left
from dubio.runner.setting import Setting

NodeKind = Literal["fit", "predict", "ensemble", "method"]

SCHEMA = 1


@dataclass(frozen=True)
class Node:
    """One thing to make.

    Attributes:
        id: Its identity.
        kind: A fit, a prediction from a fit, an ensemble of predictions, or a whole method that is not a recipe.
        spec: What its id is the hash of.
        needs: Ids of what must exist before.
        task: Registered name and arguments of the task, from which a worker reads it.
        task_name: What results call the task.
        splits: Name and fingerprint of every split to predict.
        label: What it is, in a few words.
        method: The first method that asked for it.
        setting: Which task of the benchmark it belongs to.
    """

    id: str
    kind: NodeKind
    spec: Mapping[str, Any]
    needs: tuple[str, ...]
    task: tuple[str, Mapping[str, Any]]
    task_name: str
    splits: tuple[tuple[str, str], ...]
    label: str
    method: str
    setting: int


@dataclass(frozen=True)
class MethodRow:
    """A method as the manifest lists it.

    Attributes:
        name: What the benchmark calls it.
        title: What a report calls it.
        summary: One line.
        members: Independent fits, on the first task that has it.
        samples: Draws, likewise.
        family: The single-fit method an ensemble is made of.
        method: What it is registered as; another name than its own for a variant.
        arguments: What makes a variant one; empty for others.
    """

    name: str
    title: str
    summary: str
    members: int
    samples: int
    family: str | None
    method: str
    arguments: Mapping[str, Any]


@dataclass
class Plan:
    """Nodes in an order in which needs come first, the runs they add up to, and how many trainings were asked for."""

    nodes: dict[str, Node] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    asked: int = 0

    def of_kind(self, *kinds: NodeKind) -> tuple[Node, ...]:
        """The nodes of these kinds, in order."""
        return tuple(node for node in self.nodes.values() if node.kind in kinds)

    def add(self, node: Node) -> str:
        """Add a node unless it is there; returns its id."""
        self.nodes.setdefault(node.id, node)
        return node.id


def is_recipe(method: Any) -> bool:
    """Whether a method is made of fits that can be shared."""
    return callable(getattr(method, "fit_part", None))


def make_plan(
    benchmark: Benchmark, settings: Iterable[Setting], left: Left, chosen: Mapping[tuple[int, str], Mapping[str, Any]]
) -> Plan:
    """Plan a benchmark.

    Args:
        benchmark: What is to be run.
        settings: Its tasks, made ready.
        left: Writes the specifications.
        chosen: (index of the task, method) → arguments chosen by tuning. A method that is to be tuned and for which
            nothing could be chosen is not planned.
    """
    plan = Plan()
    for setting in settings:
        wanted = [name for name in setting.methods if name not in benchmark.tune or (setting.index, name) in chosen]
        methods = {
            name: _limited(
                make_method(benchmark, name, setting.method_arguments[name], chosen.get((setting.index, name), {})),
                setting.entry.most_samples,
            )
            for name in wanted
        }
        for seed in benchmark.seeds:
            SeedPlanner(plan, setting, left, seed, benchmark.base).add_all(methods)
    return plan


def method_rows(benchmark: Benchmark, settings: Iterable[Setting], plan: Plan) -> tuple[MethodRow, ...]:
    """The methods of the tasks that are run, each with the single-fit method its first member is a run of."""
    first = {run.method: run for run in reversed(plan.runs)}
    singles = {run.id: run.method for run in reversed(plan.runs) if run.member is not None}
    places: dict[str, Setting] = {}
    for setting in settings:
        for name in setting.methods:
            places.setdefault(name, setting)
    rows = []
    for name in (name for name in benchmark.all_methods if name in places):
        method = make_method(benchmark, name, places[name].method_arguments[name], {})
        members = first[name].spec.get("members", ()) if name in first else ()
        rows.append(
            MethodRow(
                name=name,
                title=_title(benchmark, name, method),
                summary=METHODS.entry(benchmark.base(name)).summary,
                members=int(getattr(method, "members", 1)),
                samples=int(getattr(method, "pooled", getattr(method, "samples", 0))),
                family=singles.get(members[0]) if members else name,
                method=benchmark.base(name),
                arguments=describe(benchmark.variants[name].arguments) if name in benchmark.variants else {},
            )
        )
    return tuple(rows)


def _title(benchmark: Benchmark, name: str, method: Any) -> str:
    own = str(getattr(method, "title", "")) or titled(benchmark.base(name))
    if name not in benchmark.variants:
        return own
    variant = benchmark.variants[name]
    told = ", ".join(f"{key} = {value}" for key, value in variant.arguments.items())
    return variant.title or (f"{own}, {told}" if told else own)


def titled(name: str) -> str:
    """``mc-dropout-ensemble`` → ``MC dropout ensemble``."""
    words = ["MC" if word == "mc" else word for word in name.split("-")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


class SeedPlanner:
    """Adds every method of one task and seed to a plan."""

    def __init__(self, plan: Plan, setting: Setting, left: Left, seed: int, registered: Callable[[str], str]) -> None:
        """Make it.

        Args:
            plan: What is added to.
            setting: The task.
            left: Writes the specifications.
            seed: The seed.
            registered: The registered method behind a name of the benchmark.
        """
        self._plan, self._setting, self._left, self._seed = plan, setting, left, seed
        self._registered = registered

    def add_all(self, methods: Mapping[str, Any]) -> None:
        """Add them in order; a single-model row gets every member that is trained for some ensemble anyway."""
        ensembles = {name: method for name, method in methods.items() if is_recipe(method) and method.members > 1}
        most = max((recipe.members for recipe in ensembles.values()), default=1)
        trained = {
            self._fit_id(name, recipe, member) for name, recipe in ensembles.items() for member in range(recipe.members)
        }
        for name, method in methods.items():
            self._plan.asked += int(getattr(method, "members", 1)) * _trainings(method)
            if is_recipe(method) and method.members > 1:
                self._plan.runs.append(self._ensemble(name, method))
            elif is_recipe(method):
                wanted = [k for k in range(most) if k == 0 or self._fit_id(name, method, k) in trained]
                self._plan.runs += [self._single(name, method, member) for member in wanted]
            else:
                self._plan.runs.append(self._opaque(name, method))

    def add_fit(self, name: str, recipe: Any, member: int, words: str = "") -> str:
        """Add a fit and, before it, the fit it starts from; ``words`` say more of it where it is shown."""
        start_id = None if recipe.start is None else self.add_fit(name, recipe.start, member, words)
        spec = self._fit_spec(name, recipe, member, start_id)
        needs = () if start_id is None else (start_id,)
        return self._add("fit", spec, name, needs=needs, member=member, words=words)

    def _fit_id(self, name: str, recipe: Any, member: int) -> str:
        start_id = None if recipe.start is None else self._fit_id(name, recipe.start, member)
        return identity(self._fit_spec(name, recipe, member, start_id))

    def _fit_spec(self, name: str, recipe: Any, member: int, start_id: str | None) -> dict[str, Any]:
        setting = self._setting
        network = self._left.NetworkSpec(setting.entry.network, setting.network_of(name))
        return self._left.fit_spec(
            recipe, setting.task, setting.encoding, network, seed=self._seed, member=member, start_id=start_id
        )

    def _predict(self, name: str, recipe: Any, member: int) -> tuple[str, str]:
        """Add the prediction of one member; returns its id and its fit's."""
        fit_id = self.add_fit(name, recipe, member)
        spec = self._left.pred_spec(recipe, fit_id, seed=self._seed, member=member)
        return self._add("predict", spec, name, needs=(fit_id,), member=member), fit_id

    def _single(self, name: str, recipe: Any, member: int) -> Run:
        pred_id, fit_id = self._predict(name, recipe, member)
        return self._run(name, pred_id, member, (fit_id,))

    def _ensemble(self, name: str, recipe: Any) -> Run:
        parts = [self._predict(name, recipe, member) for member in range(recipe.members)]
        members = tuple(pred_id for pred_id, _ in parts)
        spec = {"schema": SCHEMA, "kind": "prediction", "members": list(members)}
        pred_id = self._add("ensemble", spec, name, needs=members, member=None)
        return self._run(name, pred_id, None, tuple(fit_id for _, fit_id in parts))

    def _opaque(self, name: str, method: Any) -> Run:
        if not callable(getattr(method, "fit", None)):
            raise UserError(f"method {name!r} is neither a recipe nor has it a fit(task, network, seed, context).")
        spec = self._setting.opaque_spec(name, self._registered(name), int(getattr(method, "version", 1)), self._seed)
        return self._run(name, self._add("method", spec, name, needs=(), member=None), 0, ())

    def _add(
        self,
        kind: NodeKind,
        spec: Mapping[str, Any],
        name: str,
        *,
        needs: tuple[str, ...],
        member: int | None,
        words: str = "",
    ) -> str:
        setting = self._setting
        who = f"seed {self._seed}" if member is None else f"seed {self._seed}, member {member}"
        return self._plan.add(
            Node(
                id=identity(spec),
                kind=kind,
                spec=spec,
                needs=needs,
                task=(setting.entry.name, setting.entry.arguments),
                task_name=setting.name,
                splits=() if kind == "fit" else setting.split_keys,
                label=f"{setting.name}/{setting.entry.network}: {name}{words}, {who}",
                method=name,
                setting=setting.index,
            )
        )

    def _run(self, name: str, pred_id: str, member: int | None, fits: tuple[str, ...]) -> Run:
        spec = self._plan.nodes[pred_id].spec
        setting = self._setting
        return Run(pred_id, setting.name, setting.entry.network, name, self._seed, member, fits, spec)


def _limited(method: Any, most: int | None) -> Any:
    """A method that predicts with the first so many of its samples; one that is not a recipe as it is."""
    return replace(method, most=most) if most and is_recipe(method) else method


def _trainings(method: Any) -> int:
    """How many trainings a fit takes: its own and those of the fits that it continues."""
    start = getattr(method, "start", None) if is_recipe(method) else None
    return 1 if start is None else 1 + _trainings(start)
