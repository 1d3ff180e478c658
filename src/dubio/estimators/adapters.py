"""Predictions of an estimator of any framework: called batch by batch, its answers checked and never guessed.

For a batch of B rows of a task with K classes, probabilities (log-probabilities, logits) may be

    [B] or [B, 1]          of class 1, where the task has two classes
    [B, K]                 of every class (multi-label: of every label)
    [S, B, K], [S, B, 1]   S samples of either, the samples first

The last two axes are rows and classes whatever the numbers are. S must be the same in every batch. Uncertainty is
[B] or [B, 1], higher = more uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Inputs, Split, Task
from dubio.formats.values import Values, as_logits

GIVEN = "given"
"""The name, among the scores of predictions, of the uncertainty an estimator returns beside its probabilities."""

BATCH = 256
"""Rows per call of an estimator."""


def predict_split(
    estimator: Any, task: Task, split: Split, *, values: Values = "probs", batch: int = BATCH
) -> Predictions:
    """Call an estimator on every row of a split.

    Args:
        estimator: Called with a batch of raw inputs (texts as a list, tables and images as an array); or an object with
            ``predict_proba``.
        task: Its classes are predicted.
        split: The rows.
        values: What the estimator's numbers are; those of ``predict_proba`` are probabilities.
        batch: Rows per call.

    Returns:
        Predictions whose scores hold the estimator's own uncertainty, where it returns one, as ``given``.

    Raises:
        UserError: For an answer that cannot be predictions, naming the split, the row and the column.
    """
    if batch < 1:
        raise UserError(f"batch must be at least 1; given {batch}.")
    call, values = _callable(estimator, task, values)
    numbers: list[NDArray[Any]] = []
    scores: list[FloatArray] = []
    for start, inputs in batches(split.data.inputs, batch):
        source = f"split {split.name!r}, rows {start} to {start + len(inputs) - 1}: the estimator's"
        block, score = _answer(call, inputs, start, task, source)
        for axis, name in ((0, "samples"), (2, "columns")):
            own, earlier = block.shape[axis], (numbers or [block])[0].shape[axis]
            if own != earlier:
                raise UserError(f"{source} {values} have {own} {name}, those of earlier rows have {earlier}.")
        if numbers and (score is None) != (not scores):
            raise UserError(f"{source} answer must include an uncertainty for every batch, or for none.")
        numbers.append(block)
        scores += [] if score is None else [score]
    logits = _logits(np.concatenate(numbers, axis=1), values, task, split.name)
    return predictions_on(split, task, logits, {GIVEN: np.concatenate(scores)} if scores else {})


def predictions_on(
    split: Split, task: Task, logits: NDArray[np.float32], scores: dict[str, FloatArray] | None = None
) -> Predictions:
    """Return predictions about the rows of a split; none is flagged as out of distribution."""
    data = split.data
    return Predictions(
        logits,
        data.labels,
        target=task.target,
        ids=data.ids,
        group=data.group,
        classes=task.classes,
        kind=split.kind,
        scores=scores or {},
        empty_decision=task.empty_decision,
    )


def batches(inputs: Inputs, batch: int) -> Iterator[tuple[int, Any]]:
    """Yield the first row and the inputs of every batch: a list of texts, or a copy that may be written to."""
    for start in range(0, len(inputs), batch):
        rows = slice(start, start + batch)
        yield start, list(inputs[rows]) if isinstance(inputs, tuple) else np.array(inputs[rows])


def _answer(
    call: Callable[[Any], Any], inputs: Any, start: int, task: Task, source: str
) -> tuple[NDArray[Any], FloatArray | None]:
    """Return [S, B, K] and, where there is one, the uncertainty [B] of one batch."""
    rows = len(inputs)
    answer = _call(call, inputs, source)
    values, score = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if isinstance(values, tuple):
        raise UserError(f"{source} answer must be p or (p, uncertainty); given a tuple of {len(values)}.")
    array = to_numpy(values, f"{source} answer")
    block = _with_samples(array, rows, task, f"{source} answer")
    if array.ndim == 3 and array.shape[0] == rows > 1:
        _refuse_swapped(_call(call, inputs[:-1], source), array.shape, source)
    return block, None if score is None else _uncertainty(score, rows, start, f"{source} uncertainty")


def _refuse_swapped(answer: Any, shape: tuple[int, ...], source: str) -> None:
    """Refuse samples in the second axis: where their number is that of the rows, a call with one row less shows it.

    Args:
        answer: The answer about one row less.
        shape: The shape of the answer about all rows.
        source: The beginning of the message.
    """
    smaller = to_numpy(answer[0] if isinstance(answer, tuple) else answer, f"{source} answer")
    if smaller.shape[:2] != (shape[0], shape[1] - 1):
        raise UserError(
            f"{source} answer must have the samples first, [S, {shape[1]}, K]: with one row less, its shape "
            f"{list(shape)} became {list(smaller.shape)}."
        )


def _call(call: Callable[[Any], Any], inputs: Any, source: str) -> Any:
    try:
        return call(inputs)
    except Exception as error:
        error.add_note(f"(raised by the estimator on {source.partition(':')[0]})")
        raise


def _logits(numbers: NDArray[Any], values: Values, task: Task, split: str) -> NDArray[np.float32]:
    source = f"the estimator's {values} on split {split!r}"
    if numbers.shape[2] > 1 or len(task.classes) != 2:
        return as_logits(numbers, values, task.target, name=source)
    names = [f"{source}, sample {sample}" if len(numbers) > 1 else source for sample in range(len(numbers))]
    columns = zip(numbers[:, :, 0], names, strict=True)
    return np.concatenate([as_logits(column, values, task.target, name=name) for column, name in columns])


def _callable(estimator: Any, task: Task, values: Values) -> tuple[Callable[[Any], Any], Values]:
    """Return the function to call, and what its numbers are."""
    if hasattr(estimator, "predict_proba"):
        return _Classifier(estimator, task), "probs"
    if callable(estimator):
        return estimator, values
    allowed = "be a function of a batch of inputs, or have predict_proba"
    raise UserError(f"estimator must {allowed}; given a {type(estimator).__name__}.")


class _Classifier:
    """``predict_proba`` of a classifier, its columns in the order of the task's classes."""

    def __init__(self, estimator: Any, task: Task) -> None:
        self.estimator, self.task = estimator, task
        self.columns = _class_columns(getattr(estimator, "classes_", None), task)

    def __call__(self, inputs: Any) -> Any:
        probs = self.estimator.predict_proba(inputs)
        if isinstance(probs, list):
            raise UserError("predict_proba returned a list, one array per label; wrap it to return one array [B, K].")
        if self.columns is None:
            return probs
        numbers = to_numpy(probs, "predict_proba")
        if numbers.shape != (len(inputs), len(self.columns)):
            raise UserError(
                f"predict_proba must have shape {[len(inputs), len(self.columns)]} for its {len(self.columns)} "
                f"classes; given {list(numbers.shape)}."
            )
        full = np.zeros((len(inputs), len(self.task.classes)), dtype=numbers.dtype)
        full[:, self.columns] = numbers  # a class it never saw has probability zero
        return full


def _class_columns(classes: Any, task: Task) -> list[int] | None:
    """Return the task's index of every column; None where the classifier does not name its classes.

    Raises:
        UserError: For a class that the task does not have.
    """
    if classes is None:
        return None
    count = len(task.classes)
    columns = []
    for name in classes:
        integral = isinstance(name, int | float | np.number | np.bool_) and float(name) == int(name)
        if integral and 0 <= int(name) < count:
            columns.append(int(name))
        elif isinstance(name, str) and name in task.classes:
            columns.append(task.classes.index(name))
        else:
            allowed = f"indices from 0 to {count - 1} or names of classes"
            raise UserError(f"the classifier's classes_ must be {allowed}; given {name!r}.")
    return columns


def to_numpy(value: Any, name: str) -> NDArray[Any]:
    """Return an array of any framework as a numpy array: detached, on the CPU, by ``__array__`` or DLPack.

    Args:
        value: Of numpy, torch, JAX, TensorFlow, Keras, pandas, or plain numbers.
        name: Its name in an error message.

    Raises:
        UserError: When it does not hold real numbers.
    """
    for step in ("detach", "cpu"):  # a tensor with gradients, or on another device
        if callable(getattr(value, step, None)):
            value = getattr(value, step)()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # numpy has no such type
        value = value.float()
    try:
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except Exception as error:  # frameworks refuse with errors of many types
        raise UserError(f"{name} cannot be converted to a numpy array: {error}") from error
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiu":
        raise UserError(f"{name} must be numbers; given an array of type {array.dtype}.")
    return array


def _with_samples(array: NDArray[Any], rows: int, task: Task, name: str) -> NDArray[Any]:
    """Return one batch as [S, B, K], or [S, B, 1] of class 1.

    Raises:
        UserError: For any other shape, with those that are allowed.
    """
    one_column = task.target != "multilabel" and len(task.classes) == 2  # p of class 1 determines both
    widths = (1, len(task.classes)) if one_column else (len(task.classes),)
    wide = array[:, None] if array.ndim == 1 and one_column else array
    wide = wide[None] if wide.ndim == 2 else wide
    if wide.ndim != 3 or wide.shape[0] < 1 or wide.shape[1] != rows or wide.shape[2] not in widths:
        allowed = ", ".join([f"[{rows}]"] * one_column + [f"[{rows}, {width}]" for width in widths])
        samples = " or ".join(f"[S, {rows}, {width}]" for width in widths)
        raise UserError(f"{name} must have shape {allowed} or, for S samples, {samples}; given {list(array.shape)}.")
    return wide


def _uncertainty(value: Any, rows: int, start: int, name: str) -> FloatArray:
    """Return the uncertainty of one batch, ``[B]``.

    Raises:
        UserError: For another shape, or a number that is not finite.
    """
    array = to_numpy(value, name)
    flat = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if flat.shape != (rows,):
        raise UserError(f"{name} must have shape [{rows}] or [{rows}, 1]; given {list(array.shape)}.")
    scores = flat.astype(np.float64)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise UserError(f"{name} must be finite; row {start + row}, column 0 is {scores[row]} (rows count from 0).")
    return scores
