"""What fits will cost, measured on a few steps: one measurement for all fits that differ only in their seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import identity, restore
from dubio.runner.executor import Executor, Finished
from dubio.runner.left import Left
from dubio.runner.plan import Node
from dubio.runner.setting import Setting

Cost = Mapping[str, float]

UNKNOWN: Cost = {"seconds": 0.0, "bytes": 0.0}
"""Of a fit that cannot even be measured: making it will fail too, and say why."""


def family(spec: Mapping[str, Any]) -> str:
    """What fits have in common that cost the same: all but seed, member and the fit they start from."""
    return identity({key: value for key, value in spec.items() if key not in ("seed", "member", "start")})


def check_fits(nodes: Iterable[Node], settings: Sequence[Setting], left: Left) -> None:
    """Refuse fits that are known to fail: hours of the trainings that they start from would be a bad way to find out.

    Raises:
        UserError: Naming task, network and method.
    """
    for node in {family(node.spec): node for node in nodes if node.kind == "fit"}.values():
        place = settings[node.setting]
        try:
            left.check(node.spec, place.task)
        except UserError as fault:
            raise UserError(
                f"{place.name} with {place.entry.network}, method {node.method!r} (--set {node.method}.KEY=VALUE): "
                f"{fault}"
            ) from fault
        except Exception:
            continue  # a network with a bug: making its fits fails, is recorded, and does not stop the others


def stored_samples(prediction: Mapping[str, Any], fit: Mapping[str, Any] | None) -> int:
    """Samples of every example that a prediction stores: weight states × noise draws × views.

    Args:
        prediction: Its specification.
        fit: That of the fit it is drawn from; None for a method that is not a recipe, of which one is assumed.
    """
    states = 1 if fit is None else int(getattr(restore(fit["recipe"]), "states", 1))
    views = restore(prediction["views"]).each if prediction.get("views") else 1
    return states * max(1, int(prediction.get("samples", 1))) * int(views)


def measure_here(nodes: Iterable[Node], settings: Sequence[Setting], left: Left, device: str) -> dict[str, Cost]:
    """Id → cost of these fits, measured in this process on a device."""
    found: dict[str, Cost] = {}
    costs = {}
    for node in nodes:
        key = family(node.spec)
        if key not in found:
            found[key] = left.estimate(node.spec, settings[node.setting].task, device=device)
        costs[node.id] = found[key]
    return costs


def measure_in_workers(nodes: Sequence[Node], executor: Executor) -> dict[str, Cost]:
    """Id → cost of these fits, measured where they will be made; what is read and encoded for it is kept there."""
    waiting = {family(node.spec): node for node in nodes}
    keys = list(waiting)
    found: dict[str, Cost] = {}
    while len(found) < len(keys):
        while waiting and executor.free() > 0:
            key, node = waiting.popitem()
            executor.submit({"kind": "estimate", "id": key, "spec": node.spec, "task": node.task, "splits": []})
        for event in executor.wait(1.0):
            if isinstance(event, Finished):
                found[event.id] = event.result.get("cost", UNKNOWN)
    return {node.id: found[family(node.spec)] for node in nodes}
