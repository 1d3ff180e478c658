"""``dubio dee --store``: deep-ensemble equivalents from the predictions of a benchmark run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dubio.core.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.reporting.manifest_view import Manifest, TaskView
    from dubio.statistics.ensemble_equivalent import GrowthCurve
    from dubio.store import Store


@dataclass(frozen=True, eq=False)
class StoredCurves:
    """One task of a run: how its deep ensembles grow, and how the other methods do."""

    task: str
    grown: GrowthCurve
    methods: dict[str, GrowthCurve]


def stored_curves(
    path: Path, run: str | None, tasks: Sequence[str], methods: Sequence[str], *, orders: int, seed: int
) -> tuple[StoredCurves, ...]:
    """The curves of a run, task by task, from the networks of its deep ensembles of all seeds.

    A method is shown by its first run: an ensemble grows by members, any other method by samples.

    Args:
        path: The store.
        run: Which run; may be None where the store has one.
        tasks: Which tasks; all that have at least two networks, if empty.
        methods: Which methods; all but single networks, if empty.
        orders: Random orders to average over.
        seed: Of the orders and halves.

    Raises:
        UserError: When no task has two networks of a deep ensemble.
        UnknownName: For a task or method that is not in the run.
    """
    from dubio.reporting.manifest_view import read_manifest
    from dubio.reporting.stored_run import open_run
    from dubio.store import Store

    with Store.open(path, create=False) as store:
        view = read_manifest(open_run(*([run] if run else ()), store=path).manifest)
        _known("task", tasks, [task.key for task in view.tasks])
        _known("method", methods, [method.name for method in view.methods])
        wanted = [task for task in view.tasks if not tasks or task.key in tasks]
        found = tuple(made for task in wanted for made in _curves(store, view, task, methods, orders, seed))
    if not found:
        raise UserError(f"run {view.name!r}: no task has a deep ensemble of two or more networks to compare with.")
    return found


def _curves(
    store: Store, view: Manifest, task: TaskView, methods: Sequence[str], orders: int, seed: int
) -> Iterator[StoredCurves]:
    from dubio.core.predictions import pool_members
    from dubio.reporting.worth import networks_of
    from dubio.statistics.ensemble_equivalent import Unit, growth_curve

    home = task.of_kind("id")[0]

    def read(identifier: str) -> Predictions:
        return store.read_predictions(identifier, home.name, home.fingerprint)

    networks = networks_of(view, task)
    single = [run.id for run in view.runs_of(task.key) if run.id in networks]
    if len(single) < 2:
        return
    grown = growth_curve(pool_members([read(identifier) for identifier in single]), orders=orders, seed=seed)
    made = {}
    for method in view.methods:
        runs = view.runs_of(task.key, method.name)
        if runs and (method.name in methods if methods else runs[0].id not in networks):
            unit: Unit = "member" if method.ensemble else "sample"
            made[method.name] = growth_curve(read(runs[0].id), unit=unit, orders=orders, seed=seed)
    yield StoredCurves(task.key, grown, made)


def _known(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownName(f"{what} of the run", name, known)
