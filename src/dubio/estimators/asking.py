"""An estimator asked about every row of a split, batch by batch, and its answers as checked predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Inputs, Split, Task
from dubio.estimators.frameworks import shaped, to_numpy, uncertainty_of
from dubio.formats.values import Values, as_logits
from dubio.metrics.quantities import applicable_quantities, uncertainty

GIVEN = "given"
"""The quantity that an estimator itself returns beside its probabilities."""

ENTROPY = "predictive_entropy"
"""The quantity that stands in where it returns none (R §2.4)."""

BATCH = 256
"""Rows an estimator is asked about at a time."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a system said about one split.

    Attributes:
        predictions: No row is flagged as out of distribution: what a split stands against is decided when it is scored.
        uncertainty: ``[N]`` what the system itself says of how uncertain it is, higher = more; None where it does not.
    """

    predictions: Predictions
    uncertainty: FloatArray | None = None

    @cached_property
    def columns(self) -> dict[str, FloatArray]:
        """Quantity to uncertainty, higher = more uncertain: the system's own first, then all its predictions give."""
        own = {} if self.uncertainty is None else {GIVEN: self.uncertainty}
        names = [name for name in applicable_quantities(self.predictions) if name != "random"]
        return own | {name: uncertainty(self.predictions, name) for name in names}

    @property
    def labelled(self) -> Answers:
        """The rows whose label is known, with what was known of them all.

        Raises:
            UserError: When there is none.
        """
        if self.predictions.labelled is self.predictions:
            return self
        rows = self.predictions.labels >= 0
        taken = Answers(self.predictions.labelled, None if self.uncertainty is None else self.uncertainty[rows])
        taken.__dict__["columns"] = {name: column[rows] for name, column in self.columns.items()}
        return taken

    @property
    def has_labels(self) -> bool:
        """Whether any row has a label among the classes."""
        return self.predictions.target == "multilabel" or bool((self.predictions.labels >= 0).any())

    @property
    def own(self) -> str:
        """The quantity a system is referred by: its own uncertainty, else the entropy of its prediction."""
        return ENTROPY if self.uncertainty is None else GIVEN


def ask(estimator: Any, task: Task, split: Split, *, values: Values = "probs", batch: int = BATCH) -> Answers:
    """Ask an estimator about a split.

    Args:
        estimator: Called with a batch of raw inputs (texts as a list, tables and images as an array); or an object with
            ``predict_proba``.
        task: Whose classes are predicted.
        split: Whose rows are asked about.
        values: What the estimator's numbers are; those of ``predict_proba`` are probabilities.
        batch: Rows at a time.

    Raises:
        UserError: Naming the split, the row and the column, for what cannot be predictions.
    """
    if batch < 1:
        raise UserError(f"batch must be at least 1; given {batch}.")
    call, stated = _asked(estimator, task, values)
    parts: list[NDArray[Any]] = []
    doubts: list[FloatArray | None] = []
    for start, inputs in batches(split.data.inputs, batch):
        what = f"split {split.name!r}, rows {start} to {start + len(inputs) - 1}: the estimator's"
        part, doubt = _answer(call, inputs, start, task, what)
        for place, axis in ((0, "samples"), (2, "columns")):
            if parts and part.shape[place] != parts[0].shape[place]:
                raise UserError(
                    f"{what} {stated} have {part.shape[place]} {axis}, those of earlier rows {parts[0].shape[place]}."
                )
        if doubts and (doubt is None) != (doubts[0] is None):
            raise UserError(f"{what} answer must come with an uncertainty for every batch, or for none.")
        parts.append(part)
        doubts.append(doubt)
    logits = _logits(np.concatenate(parts, axis=1), stated, task, split.name)
    known = [doubt for doubt in doubts if doubt is not None]
    return Answers(predictions_on(split, task, logits), np.concatenate(known) if known else None)


def predictions_on(split: Split, task: Task, logits: NDArray[np.float32]) -> Predictions:
    """Predictions about the rows of a split."""
    data = split.data
    return Predictions(
        logits,
        data.labels,
        target=task.target,
        ids=data.ids,
        group=data.group,
        classes=task.classes,
        kind=split.kind,
    )


def batches(inputs: Inputs, batch: int) -> Iterator[tuple[int, Any]]:
    """(first row, inputs) of every batch: a list of texts, or an array of its own that may be written to."""
    for start in range(0, len(inputs), batch):
        rows = slice(start, start + batch)
        yield start, list(inputs[rows]) if isinstance(inputs, tuple) else np.array(inputs[rows])


def _answer(
    call: Callable[[Any], Any], inputs: Any, start: int, task: Task, what: str
) -> tuple[NDArray[Any], FloatArray | None]:
    """[S, B, K] and, where given, uncertainty [B] of one batch."""
    rows = len(inputs)
    answer = _call(call, inputs, what)
    given, doubt = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if isinstance(given, tuple):
        raise UserError(f"{what} answer must be p or (p, uncertainty); given a tuple of {len(given)}.")
    found = to_numpy(given, f"{what} answer")
    part = shaped(found, rows, task, f"{what} answer")
    if found.ndim == 3 and found.shape[0] == rows > 1:
        _refuse_swapped(_call(call, inputs[:-1], what), found.shape, what)
    return part, None if doubt is None else uncertainty_of(doubt, rows, start, f"{what} uncertainty")


def _refuse_swapped(answer: Any, shape: tuple[int, ...], what: str) -> None:
    """As many samples as rows: one row fewer tells which of the two axes is which."""
    fewer = to_numpy(answer[0] if isinstance(answer, tuple) else answer, f"{what} answer")
    if fewer.shape[:2] != (shape[0], shape[1] - 1):
        raise UserError(
            f"{what} answer must have the samples first, [S, {shape[1]}, K]: asked about one row fewer, its shape "
            f"{list(shape)} became {list(fewer.shape)}."
        )


def _call(call: Callable[[Any], Any], inputs: Any, what: str) -> Any:
    try:
        return call(inputs)
    except Exception as fault:
        fault.add_note(f"(while asking about {what.partition(':')[0]})")
        raise


def _logits(numbers: NDArray[Any], values: Values, task: Task, split: str) -> NDArray[np.float32]:
    called = f"the estimator's {values} on split {split!r}"
    if numbers.shape[2] == 1 and len(task.classes) == 2:
        many = len(numbers) > 1
        names = [f"{called}, sample {sample}" if many else called for sample in range(len(numbers))]
        columns = zip(numbers[:, :, 0], names, strict=True)
        return np.concatenate([as_logits(column, values, task.target, name=name) for column, name in columns])
    return as_logits(numbers, values, task.target, name=called)


def _asked(estimator: Any, task: Task, values: Values) -> tuple[Callable[[Any], Any], Values]:
    """What to call, and what its numbers are."""
    if hasattr(estimator, "predict_proba"):
        return _Classifier(estimator, task), "probs"
    if callable(estimator):
        return estimator, values
    raise UserError(
        f"an estimator must be a function of a batch of inputs, or have predict_proba; given a "
        f"{type(estimator).__name__}."
    )


class _Classifier:
    """``predict_proba`` of a classifier, its columns in the order of the task's classes."""

    def __init__(self, estimator: Any, task: Task) -> None:
        self.estimator, self.task = estimator, task
        self.places = _places(getattr(estimator, "classes_", None), task)

    def __call__(self, inputs: Any) -> Any:
        found = self.estimator.predict_proba(inputs)
        if isinstance(found, list):
            raise UserError(
                "predict_proba gave a list, one array a label; wrap it in a function that returns one array [B, K]."
            )
        if self.places is None:
            return found
        numbers = to_numpy(found, "predict_proba")
        if numbers.shape != (len(inputs), len(self.places)):
            raise UserError(
                f"predict_proba must give {[len(inputs), len(self.places)]} for its {len(self.places)} classes; "
                f"given {list(numbers.shape)}."
            )
        full = np.zeros((len(inputs), len(self.task.classes)), dtype=numbers.dtype)
        full[:, self.places] = numbers  # a class it never saw has probability zero
        return full


def _places(classes: Any, task: Task) -> list[int] | None:
    """The task's index of every column; None where the classifier does not name them.

    Raises:
        UserError: For a class that the task does not have.
    """
    if classes is None:
        return None
    count = len(task.classes)
    places = []
    for name in classes:
        whole = isinstance(name, int | float | np.number | np.bool_) and float(name) == int(name)
        if whole and 0 <= int(name) < count:
            places.append(int(name))
        elif isinstance(name, str) and name in task.classes:
            places.append(task.classes.index(name))
        else:
            raise UserError(
                f"the classifier's classes_ must be indices from 0 to {count - 1} or names of classes; given {name!r}."
            )
    return places
