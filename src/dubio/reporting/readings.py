"""What policies are fitted on and looked at: a run's predictions on calibration rows, at home and away from home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions
from dubio.reporting.manifest_view import MethodRun, Source, SplitView, TaskView


@dataclass(frozen=True, eq=False)
class Reading:
    """One run of a method.

    Attributes:
        method: Which method.
        run: The run that stands for it.
        calibration: Its predictions on the examples kept aside.
        home: On the in-domain test set.
        away: Split → predictions, of those there are.
    """

    method: str
    run: MethodRun
    calibration: Predictions
    home: Predictions
    away: Mapping[str, Predictions]


def readings_of(
    store: Source, task: TaskView, runs: Mapping[str, MethodRun], places: tuple[SplitView, ...]
) -> Iterator[Reading]:
    """The readings of a task, one a method; none without a calibration split.

    Args:
        store: Where the predictions are.
        task: The task.
        runs: Method → the run that stands for it.
        places: Splits from elsewhere to look at.
    """
    for kept_aside in task.of_kind("cal")[:1]:
        for method, run in runs.items():
            calibration, home = (_read(store, run, split) for split in (kept_aside, task.of_kind("id")[0]))
            if calibration is None or home is None:
                continue
            away = {split.name: _read(store, run, split) for split in places}
            known = {name: predictions for name, predictions in away.items() if predictions is not None}
            yield Reading(method, run, calibration, home, known)


def _read(store: Source, run: MethodRun, split: SplitView) -> Predictions | None:
    """The predictions; None where they are not there, which scoring has already said of all but calibration."""
    try:
        return store.read_predictions(run.id, split.name, split.fingerprint)
    except DubioError:
        return None
