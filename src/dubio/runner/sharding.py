"""Divide a plan among machines that share nothing: each makes one part in a store of its own; the stores are merged.

Every machine computes the same division from the plan alone: no clock, no store and no number of processors takes part.
What belongs together stays together: a fit, the fits that start from it, and the predictions drawn from them; and all
trials of a task's tuning with the fits that the choice decides. Ensembles, which only list predictions, are left to the
run on the merged store. Fits are compared with fits of the same network on the same task alone, since how much longer
another network takes depends on the machine: the parts of each such set-up differ by one fit at most where all cost the
same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dubio.core.errors import UserError
from dubio.runner.costs import nominal_costs, prediction_seconds, setup_key
from dubio.runner.plan import Node, Plan
from dubio.runner.trainer import Trainer
from dubio.runner.tuning import Trial


@dataclass(frozen=True)
class Shard:
    """One of several parts of a run.

    Attributes:
        number: Which part, from 1.
        count: Number of parts.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a text such as ``2/3``.

        Raises:
            UserError: For anything else.
        """
        match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--shard must be I/N with I from 1 to N, such as 2/3, and N at most 9999; given {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class Part:
    """The share of a run that one shard makes.

    Attributes:
        nodes: Ids of the nodes that do not depend on tuning.
        tuned: Indices of the tasks whose tuned methods it makes.
    """

    nodes: frozenset[str]
    tuned: frozenset[int]

    def of(self, plan: Plan, untuned: Plan) -> Plan:
        """Return the part of a plan, whose tuned methods are those of this part's tasks.

        Args:
            plan: The plan with the values that were chosen for them.
            untuned: The plan of all methods without a ``[tune]`` table.
        """
        return closed(plan, (i for i in plan.nodes if i in self.nodes or i not in untuned.nodes))


@dataclass(frozen=True)
class _Unit:
    """Nodes that are made on one machine, or the tuning of a task."""

    setup: str
    cost: float
    name: str
    nodes: frozenset[str] = frozenset()
    tuned: frozenset[int] = frozenset()


def own_part(shard: Shard, untuned: Plan, trial_plan: Plan, trials: Sequence[Trial], trainer: Trainer) -> Part:
    """Return what a shard makes.

    Args:
        shard: Which one.
        untuned: The plan of all methods without a ``[tune]`` table.
        trial_plan: The plan of the trials.
        trials: The trials.
        trainer: Knows what a fit costs.
    """
    costs = nominal_costs([*untuned.of_kind("fit"), *trial_plan.of_kind("fit")], trainer)
    nodes = {**untuned.nodes, **trial_plan.nodes}
    seconds = {node.id: costs[node.id]["seconds"] if node.id in costs else prediction_seconds(node, nodes, costs)
               for node in nodes.values()}  # fmt: skip
    units = [
        _Unit(setup_key(group[0]), sum(seconds[node.id] for node in group), group[0].id, _ids(group))
        for group in _groups(untuned)
    ]
    for task in dict.fromkeys(trial.task.index for trial in trials):
        own = closed(trial_plan, (trial.fit for trial in trials if trial.task.index == task)).nodes.values()
        first = next(iter(own))
        units.append(_Unit(setup_key(first), sum(seconds[node.id] for node in own), first.id, tuned=frozenset({task})))
    mine = [unit for unit, number in _assigned(units, shard.count) if number == shard.number]
    return Part(frozenset().union(*(unit.nodes for unit in mine)), frozenset().union(*(unit.tuned for unit in mine)))


def closed(plan: Plan, ids: Iterable[str]) -> Plan:
    """Return the plan of some nodes and all that they need; ensembles and the rows of the benchmark are left out."""
    chosen = {identifier for identifier in ids if plan.nodes[identifier].kind != "ensemble"}
    for node in reversed(plan.nodes.values()):  # what a node needs comes before it
        if node.id in chosen:
            chosen.update(node.needs)
    nodes = {node.id: node for node in plan.nodes.values() if node.id in chosen}
    return Plan(nodes, unshared=sum(node.kind == "fit" for node in nodes.values()))


def _groups(plan: Plan) -> list[list[Node]]:
    """Return the nodes that are made on one machine: a fit that starts from no other, and all that derives from it."""
    groups: dict[str, list[Node]] = {}
    roots: dict[str, str] = {}
    for node in plan.of_kind("fit", "predict", "method"):
        roots[node.id] = roots[node.needs[0]] if node.needs else node.id
        groups.setdefault(roots[node.id], []).append(node)
    return list(groups.values())


def _ids(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(node.id for node in nodes)


def _assigned(units: Iterable[_Unit], count: int) -> list[tuple[_Unit, int]]:
    """Return each unit with the number of its shard: the most expensive first, to the one with least of its set-up."""
    loads: dict[str, dict[int, float]] = {}
    sizes = dict.fromkeys(range(1, count + 1), 0)
    assigned = []
    for unit in sorted(units, key=lambda unit: (-unit.cost, unit.name)):
        load = loads.setdefault(unit.setup, dict.fromkeys(sizes, 0.0))
        number = min(sizes, key=lambda number: (load[number], sizes[number], number))
        load[number] += unit.cost
        sizes[number] += 1
        assigned.append((unit, number))
    return assigned
