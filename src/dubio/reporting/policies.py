"""The referral policies of a task: what each method can promise of its error, and of how much it refers."""

from __future__ import annotations

from collections.abc import Mapping

from dubio.reporting.capacities import Capacity, capacity_of
from dubio.reporting.manifest_view import MethodRun, Source, TaskView
from dubio.reporting.promises import Promise, promise_of, target_of
from dubio.reporting.readings import readings_of


def policies_of(
    store: Source, task: TaskView, runs: Mapping[str, MethodRun], error: float
) -> tuple[dict[str, Promise], dict[str, Capacity]]:
    """Method → its promise, and its capacity; both empty without a calibration split.

    Args:
        store: Where the predictions are.
        task: The task.
        runs: Method → the run that stands for it.
        error: The reference method's error without referral, on the in-domain test set; without one no error is
            promised.
    """
    target, home = target_of(error), task.of_kind("id")[0].name
    promises: dict[str, Promise] = {}
    capacities: dict[str, Capacity] = {}
    for reading in readings_of(store, task, runs, task.farthest):
        if target is not None and (promise := promise_of(reading, target)) is not None:
            promises[reading.method] = promise
        if (capacity := capacity_of(reading, home)) is not None:
            capacities[reading.method] = capacity
    return promises, capacities
