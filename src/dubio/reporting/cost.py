"""What a method costs: training, number of trainings, speed of prediction, size (SPEC §2; T Tables 4–6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dubio.core.errors import DubioError
from dubio.reporting.aggregate import Cell
from dubio.reporting.manifest_view import MethodRun, Source


@dataclass(frozen=True)
class Cost:
    """The cost of one method on one task, for one run of it; cells hold a value for every run.

    A member that several methods share counts in full for each of them: it is what that method needs on its own.

    Attributes:
        trainings: Fits a run draws from.
        training_seconds: Their seconds, summed.
        seconds_per_epoch: Seconds an epoch of one of its fits takes, their mean.
        best_epoch: The epoch of convergence, whose weights were kept, the mean over its fits.
        examples_per_second: Speed of prediction of the whole method: all members, all samples.
        parameters: Parameters of all its fits together.
        stored_bytes: Bytes of its fits.
    """

    trainings: Cell
    training_seconds: Cell
    seconds_per_epoch: Cell
    best_epoch: Cell
    examples_per_second: Cell
    parameters: Cell
    stored_bytes: Cell


def cost_of(store: Source, runs: Sequence[MethodRun], cache: dict[str, Mapping[str, Any]]) -> Cost:
    """The cost of one method from the records of its runs; what no record tells is left out, not guessed.

    Args:
        store: Where the records are.
        runs: The method's runs on one task.
        cache: Records already read, by id; filled here.
    """
    seconds, epochs, best, speed, parameters, size = [], [], [], [], [], []
    for run in runs:
        fits = [_record(store, fit, cache) for fit in run.fits]
        seconds.append(_total(fits, "seconds"))
        epochs.append(_mean(fits, "seconds_per_epoch"))
        best.append(_mean(fits, "best_epoch"))
        parameters.append(_total(fits, "parameters"))
        size.append(_total(fits, "bytes"))
        prediction = _record(store, run.id, cache)
        taken, examples = _number(prediction, "seconds"), _number(prediction, "examples")
        speed.append(examples / taken if taken and examples else None)
    return Cost(
        trainings=Cell(tuple(float(len(run.fits)) for run in runs)),
        training_seconds=_known(seconds),
        seconds_per_epoch=_known(epochs),
        best_epoch=_known(best),
        examples_per_second=_known(speed),
        parameters=_known(parameters),
        stored_bytes=_known(size),
    )


def environment_of(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every name in the records' environments with the values it had, joined where runs differ."""
    found: dict[str, list[str]] = {}
    for record in records.values():
        for name, value in (record.get("environment") or {}).items():
            values = found.setdefault(str(name), [])
            if str(value) not in values:
                values.append(str(value))
    return {name: " / ".join(values) for name, values in sorted(found.items())}


def _record(store: Source, identifier: str, cache: dict[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A record; one that cannot be read is empty, since costs must not hide the scores they stand beside."""
    if identifier not in cache:
        try:
            cache[identifier] = store.record(identifier)
        except DubioError:
            cache[identifier] = {}
    return cache[identifier]


def _number(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, int | float) else None


def _total(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The sum over records, or None where one of them does not say."""
    values = [_number(record, name) for record in records]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    total = _total(records, name)
    return None if total is None else total / len(records)


def _known(values: Sequence[float | None]) -> Cell:
    known = tuple(value for value in values if value is not None)
    return Cell(known, undefined=len(values) - len(known))
