"""Forecast the cost of a plan from a few training steps: one measurement for all fits that differ only in their seed.

A forecast takes seconds whatever the plan: one fit of every network is measured, and others as long as time is left.
The rest is extrapolated from the time that an example takes in a step of the most similar fit that was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import identity, restore
from dubio.runner.executors import CPU, Executor, Finished, Noted
from dubio.runner.plan import Node, Plan
from dubio.runner.prepare import PreparedTask
from dubio.runner.trainer import Trainer
from dubio.store import Store

Cost = Mapping[str, float]

UNKNOWN: Cost = {"seconds": 0.0, "bytes": 0.0, "pass": 0.0}
"""The cost of a fit that cannot be measured; fitting it will fail too, with the reason."""

MEASURING_SECONDS = 5.0
"""Time after which a forecast measures no further fits than one of every network."""

REPORT_BASE, REPORT_PER_SPLIT, REPORT_PER_VALUE = 5.0, 0.1, 2e-7
"""Seconds of a report: in any case, for each prediction of a split, and for each stored probability that it reads."""

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
        seconds: Estimated time of what is left: the following three.
        training_seconds: Estimated time of the fits that are left.
        prediction_seconds: Estimated time of the predictions that are left.
        report_seconds: Estimated time of the report.
        not_timed: Methods whose cost only they know: the time is without them.
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
    training_seconds: float
    prediction_seconds: float
    report_seconds: float
    not_timed: tuple[str, ...]
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
    fits_left = {node.id: node for node in missing if node.kind == "fit"}
    used = {fit: nodes[fit] for node in predictions if (fit := node.spec.get("fit")) in nodes}
    costs = _measure({**fits_left, **used}.values(), trainer, device)
    seconds = {fit_id: costs[fit_id]["seconds"] for fit_id in fits_left}
    seconds |= {node.id: prediction_seconds(node, nodes, costs) for node in predictions}
    training = sum(seconds[fit_id] for fit_id in fits_left) / jobs
    predicting = sum(seconds[node.id] for node in predictions) / jobs
    size = sum(costs[fit_id]["bytes"] for fit_id in fits_left)
    size += sum(FLOAT_BYTES * _samples(node, nodes) * _rows(node) * len(node.task.task.classes) for node in predictions)
    return Forecast(
        trainings=len(plan.of_kind("fit")),
        asked=plan.unshared,
        trials=trials,
        predictions=len(plan.of_kind("predict", "method")),
        trainings_left=len(fits_left),
        predictions_left=len(predictions),
        seconds=training + predicting + (report := _report_seconds(plan)),
        training_seconds=training,
        prediction_seconds=predicting,
        report_seconds=report,
        not_timed=tuple(dict.fromkeys(node.method for node in predictions if node.spec.get("fit") not in costs)),
        bytes=int(size),
        tasks=tuple(_task_forecast(task, nodes.values(), seconds, jobs) for task in tasks),
    )


def _task_forecast(task: PreparedTask, nodes: Iterable[Node], seconds: Mapping[str, float], jobs: int) -> TaskForecast:
    own = [node for node in nodes if node.task is task]
    fits = [node.id for node in own if node.kind == "fit"]
    total = sum(seconds.get(node.id, 0.0) for node in own) / jobs
    return TaskForecast(task.name, task.entry.network, len(fits), sum(fit_id in seconds for fit_id in fits), total)


def _rows(node: Node) -> int:
    return sum(map(len, node.predicted))


def _samples(node: Node, nodes: Mapping[str, Node]) -> int:
    fit = nodes.get(node.spec.get("fit", ""))
    return stored_samples(node.spec, None if fit is None else fit.spec)


def prediction_seconds(node: Node, nodes: Mapping[str, Node], costs: Mapping[str, Cost]) -> float:
    """Return the estimated seconds of a prediction: a forward pass for every example and sample.

    It is an upper limit where noise acts late in a network: the layers before it then run once for all samples.
    """
    fit = nodes.get(node.spec.get("fit", ""))
    per_pass = costs.get(node.spec.get("fit", ""), UNKNOWN).get("pass", 0.0)  # of all members inside one network
    return per_pass * _rows(node) * _samples(node, nodes) / (1 if fit is None else _sets(fit.spec))


def _report_seconds(plan: Plan) -> float:
    """Return the estimated seconds of a report, which reads every prediction of every test split once.

    A part of a run has no report.
    """
    if not plan.runs:
        return 0.0
    reported = {run.id: plan.nodes[run.id] for run in plan.runs}.values()
    splits = [(node, split) for node in reported for split in node.predicted if split.kind != "val"]
    values = sum(
        len(split) * len(node.task.task.classes) * _samples(node, plan.nodes) * max(1, len(node.needs))
        for node, split in splits
    )
    return REPORT_BASE + REPORT_PER_SPLIT * len(splits) + REPORT_PER_VALUE * values


def stored_samples(prediction: Mapping[str, Any], fit: Mapping[str, Any] | None) -> int:
    """Return the samples of every example that a prediction stores: weight states × noise draws × views × members.

    Members are those of an ensemble inside one network.

    Args:
        prediction: Its specification.
        fit: That of the fit it is drawn from; None for a method that is not a recipe, for which one is assumed.
    """
    states, sets = (1, 1) if fit is None else (int(getattr(restore(fit["recipe"]), "states", 1)), _sets(fit))
    views = restore(prediction["views"]).each if prediction.get("views") else 1
    return states * sets * max(1, int(prediction.get("samples", 1))) * int(views)


def _sets(fit: Mapping[str, Any]) -> int:
    """Return the members inside the network of a fit."""
    return int(getattr(restore(fit["recipe"]), "sets", 1)) if "recipe" in fit else 1


def missing_nodes(store: Store | None, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are not in the store."""
    return [node for node in nodes if store is None or not store.layout.directory(node.folder, node.id).is_dir()]


def check_fits(nodes: Iterable[Node], trainer: Trainer) -> None:
    """Refuse fits that are certain to fail before hours are spent on the trainings that they start from.

    Raises:
        UserError: Naming task, network and method.
    """
    for node in {_equal_cost(node): node for node in nodes if node.kind == "fit"}.values():
        try:
            trainer.check(node.spec, node.task.task)
        except UserError as error:
            name = f"{node.task.name} with {node.task.entry.network}, method {node.method!r}"
            raise UserError(f"{name} (--set {node.method}.KEY=VALUE): {error}") from error
        except Exception:
            continue  # a bug in a network: its fits fail, are recorded, and do not stop the others


def _equal_cost(node: Node) -> str:
    """Return the identity that fits of equal cost share: everything but seed, member and the fit they start from."""
    return identity({key: value for key, value in node.spec.items() if key not in ("seed", "member", "start")})


def _measure(nodes: Iterable[Node], trainer: Trainer, device: str) -> dict[str, Cost]:
    """Return id → cost of these fits: those that a few seconds allow are measured in this process, the rest estimated.

    A fit that is not measured has the pace of one with the same network and encoding, of the same task where one was.
    """
    kinds = {_equal_cost(node): node for node in nodes}
    costs: dict[str, Cost] = {}
    paces: dict[str, float] = {}
    started = time.monotonic()
    for required, keys_of in ((True, _network_key), (False, setup_key), (False, _equal_cost)):
        for kind, node in kinds.items():
            late = time.monotonic() - started > MEASURING_SECONDS
            if keys_of(node) in paces or (late and not required):
                continue
            costs[kind] = trainer.estimate(node.spec, node.task.task, device=device)
            for key in (_network_key(node), setup_key(node), _equal_cost(node)):
                paces.setdefault(key, costs[kind].get("pace", 0.0))
    for kind, node in kinds.items():
        if kind not in costs:
            pace = paces.get(setup_key(node), paces[_network_key(node)])
            costs[kind] = trainer.estimate(node.spec, node.task.task, device=device, pace=pace)
    return {node.id: costs[_equal_cost(node)] for node in nodes}


def _network_key(node: Node) -> str:
    """Return the identity that fits with the same network and encoding share."""
    return identity({**{key: node.spec[key] for key in ("network", "encoding")}, **_changes(node)})


def setup_key(node: Node) -> str:
    """Return the identity that fits with the same network and encoding on the same task share."""
    return identity({**{key: node.spec[key] for key in ("network", "encoding", "task")}, **_changes(node)})


def _changes(node: Node) -> dict[str, Any]:
    """Return the slots of a fit that change the pace of its network: members inside it, a head with random weights."""
    members = {"edits": node.spec["recipe"]["edits"]} if _sets(node.spec) > 1 else {}
    head = getattr(restore(node.spec["recipe"]), "head", None) if "recipe" in node.spec else None
    return {**members, "head": node.spec["recipe"]["head"]} if getattr(head, "random", False) else members


def nominal_costs(nodes: Sequence[Node], trainer: Trainer) -> dict[str, Cost]:
    """Return id → cost of these fits if an example took one second in a step: the same on every machine."""
    kinds = {_equal_cost(node): node for node in nodes}
    costs = {}
    for kind, node in kinds.items():
        try:
            costs[kind] = trainer.estimate(node.spec, node.task.task, device=CPU, pace=1.0)
        except Exception:
            costs[kind] = UNKNOWN  # a bug in a network: its fits fail, and are recorded
    return {node.id: costs[_equal_cost(node)] for node in nodes}


def measure_in_workers(nodes: Sequence[Node], executor: Executor, note: Callable[[str], None]) -> dict[str, Cost]:
    """Return id → cost of these fits, measured in the workers, which keep the data they read and encode for it.

    Args:
        nodes: The fits.
        executor: Runs the measurements.
        note: Shows a message.
    """
    kinds = {_equal_cost(node): node for node in nodes}
    waiting = list(kinds)
    measured: dict[str, Cost] = {}
    while len(measured) < len(kinds):
        while waiting and executor.free() > 0:
            key = waiting.pop()
            executor.submit(kinds[key].job(kind="estimate", id=key, splits=[]))
        for event in executor.wait(1.0):
            if isinstance(event, Noted):
                note(event.text)
            if not isinstance(event, Finished):
                continue
            if event.result["status"] == "lost":
                note(f"worker died while the cost of {kinds[event.id]} was measured: {event.result['error']}")
                if not event.result.get("blame", True):
                    waiting.append(event.id)
                    continue
            measured[event.id] = event.result.get("cost", UNKNOWN)
    return {node.id: measured[_equal_cost(node)] for node in nodes}
