"""Measure the cost of fits on a few training steps: one measurement for all fits that differ only in their seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import identity, restore
from dubio.runner.executors import Executor, Finished
from dubio.runner.plan import Node, Plan
from dubio.runner.prepare import PreparedTask
from dubio.runner.trainer import Trainer
from dubio.store import Store

Cost = Mapping[str, float]

UNKNOWN: Cost = {"seconds": 0.0, "bytes": 0.0}
"""The cost of a fit that cannot be measured; fitting it will fail too, with the reason."""

FLOAT_BYTES = 4


@dataclass(frozen=True)
class TaskForecast:
    """The cost of one task with one network; what two tasks share is counted with the first."""

    task: str
    network: str
    trainings: int
    trainings_left: int
    seconds: float


@dataclass(frozen=True)
class Forecast:
    """The cost of a plan.

    Attributes:
        trainings: Fits in the plan.
        asked: Fits if nothing were shared.
        trials: Fits of the tuning; those that are not part of the plan are not counted in ``trainings``.
        predictions: Sets of predictions in the plan.
        trainings_left: Fits not yet in the store.
        predictions_left: Predictions not yet in the store.
        seconds: Estimated time of what is left.
        bytes: Estimated size of what is left.
        tasks: The same for each task.
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


def forecast(
    plan: Plan, trial_plan: Plan, trials: int, tasks: Iterable[PreparedTask], trainer: Trainer,
    *, store: Store | None, jobs: int, device: str,
) -> Forecast:  # fmt: skip
    """Return the cost of a plan and of the trials of its tuning.

    Args:
        plan: The plan.
        trial_plan: The plan of the trials.
        trials: Number of trials.
        tasks: The prepared tasks.
        trainer: Measures the fits.
        store: What may hold some of it already.
        jobs: Processes that share the work.
        device: Where fits are measured.
    """
    nodes = {**trial_plan.nodes, **plan.nodes}
    missing = missing_nodes(store, nodes.values())
    check_fits(missing, trainer)
    predictions = [node for node in missing if node.kind in ("predict", "method")]
    costs = _measure([node for node in missing if node.kind == "fit"], trainer, device)
    size = sum(cost["bytes"] for cost in costs.values()) + sum(_prediction_bytes(node, nodes) for node in predictions)
    return Forecast(
        trainings=len(plan.of_kind("fit")),
        asked=plan.unshared,
        trials=trials,
        predictions=len(plan.of_kind("predict", "method")),
        trainings_left=len(costs),
        predictions_left=len(predictions),
        seconds=sum(cost["seconds"] for cost in costs.values()) / jobs,
        bytes=int(size),
        tasks=tuple(_task_forecast(task, nodes.values(), costs, jobs) for task in tasks),
    )


def _task_forecast(task: PreparedTask, nodes: Iterable[Node], costs: Mapping[str, Cost], jobs: int) -> TaskForecast:
    fits = [node.id for node in nodes if node.kind == "fit" and node.task is task]
    missing = [costs[fit_id] for fit_id in fits if fit_id in costs]
    seconds = sum(cost["seconds"] for cost in missing) / jobs
    return TaskForecast(task.name, task.entry.network, len(fits), len(missing), seconds)


def _prediction_bytes(node: Node, nodes: Mapping[str, Node]) -> int:
    rows = sum(len(split) for split in node.task.predicted)
    fit = nodes[node.spec["fit"]].spec if "fit" in node.spec else None
    return FLOAT_BYTES * stored_samples(node.spec, fit) * rows * len(node.task.task.classes)


def stored_samples(prediction: Mapping[str, Any], fit: Mapping[str, Any] | None) -> int:
    """Return the samples of every example that a prediction stores: weight states × noise draws × views.

    Args:
        prediction: Its specification.
        fit: That of the fit it is drawn from; None for a method that is not a recipe, for which one is assumed.
    """
    states = 1 if fit is None else int(getattr(restore(fit["recipe"]), "states", 1))
    views = restore(prediction["views"]).each if prediction.get("views") else 1
    return states * max(1, int(prediction.get("samples", 1))) * int(views)


def missing_nodes(store: Store | None, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are not in the store."""
    return [node for node in nodes if store is None or not store.layout.directory(node.folder, node.id).is_dir()]


def check_fits(nodes: Iterable[Node], trainer: Trainer) -> None:
    """Refuse fits that are certain to fail before hours are spent on the trainings that they start from.

    Raises:
        UserError: Naming task, network and method.
    """
    for node in {_equal_cost(node.spec): node for node in nodes if node.kind == "fit"}.values():
        try:
            trainer.check(node.spec, node.task.task)
        except UserError as error:
            name = f"{node.task.name} with {node.task.entry.network}, method {node.method!r}"
            raise UserError(f"{name} (--set {node.method}.KEY=VALUE): {error}") from error
        except Exception:
            continue  # a bug in a network: its fits fail, are recorded, and do not stop the others


def _equal_cost(spec: Mapping[str, Any]) -> str:
    """Return the identity that fits of equal cost share: everything but seed, member and the fit they start from."""
    return identity({key: value for key, value in spec.items() if key not in ("seed", "member", "start")})


def _measure(nodes: Iterable[Node], trainer: Trainer, device: str) -> dict[str, Cost]:
    """Return id → cost of these fits, measured in this process on a device."""
    measured: dict[str, Cost] = {}
    costs = {}
    for node in nodes:
        key = _equal_cost(node.spec)
        if key not in measured:
            measured[key] = trainer.estimate(node.spec, node.task.task, device=device)
        costs[node.id] = measured[key]
    return costs


def measure_in_workers(nodes: Sequence[Node], executor: Executor) -> dict[str, Cost]:
    """Return id → cost of these fits, measured in the workers, which keep the data they read and encode for it."""
    waiting = {_equal_cost(node.spec): node for node in nodes}
    count = len(waiting)
    measured: dict[str, Cost] = {}
    while len(measured) < count:
        while waiting and executor.free() > 0:
            key, node = waiting.popitem()
            executor.submit(node.job(kind="estimate", id=key, splits=[]))
        for event in executor.wait(1.0):
            if isinstance(event, Finished):
                measured[event.id] = event.result.get("cost", UNKNOWN)
    return {node.id: measured[_equal_cost(node.spec)] for node in nodes}
