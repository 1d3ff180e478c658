"""A user's examples: arrays, tensors, a PyTorch dataset or its loader.

Arrays are checked at once. Of a dataset the inputs are read when a batch asks for them, and the labels once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows, iterate_blocks
from dubio.core.types import IntArray, Target
from dubio.encoders import ArrayRows
from dubio.tasks.splitting import SplitOptions, assign_parts

HELD_OUT = 0.1
"""Fraction of the training examples that validates where no validation examples are given."""

LABEL_BATCH = 256
"""Examples of a dataset read at once where only their labels are needed."""

ONE_INPUT = "A module takes one input tensor: join several into one, and split it in the module."

PAD = "Inputs must be of one shape: pad them, or give a DataLoader with a collate_fn that does."

Collate = Callable[[list[Any]], Any]


class UserExamples(NamedTuple):
    """Examples that a user gave.

    Attributes:
        rows: The inputs.
        labels: As they were given, or None.
        batch: The batch size of their loader, if they have one.
    """

    rows: ArrayRows
    labels: NDArray[Any] | None
    batch: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.rows.values.shape[1:])

    def take(self, indices: NDArray[np.int64]) -> ArrayRows:
        """Return some of the inputs; of a dataset nothing is read."""
        values: Any = self.rows.values
        lazy = isinstance(values, LazyRows)
        return ArrayRows(values.take(indices) if lazy else values[indices])

    def convert(self, shape: tuple[int, ...], dtype: str, argument: str, reference: str) -> UserExamples:
        """Return the same examples with inputs of another type.

        Args:
            shape: Shape that each input must have.
            dtype: The type to convert to.
            argument: The argument's name, for messages.
            reference: Words for where shape and type come from, for messages.

        Raises:
            UserError: For another shape, or a type that does not convert.
        """
        if self.shape != shape:
            raise UserError(f"{argument}: an input has shape {list(self.shape)}; {reference} {list(shape)}.")
        values: Any = self.rows.values
        if not _converts(values.dtype, np.dtype(dtype)):
            hint = "Convert them in the same way."
            raise UserError(f"{argument}: inputs have type {values.dtype}; {reference} {dtype}. {hint}")
        return self._replace(rows=ArrayRows(values.astype(dtype, copy=False)))


def read_examples(data: Any, argument: str) -> UserExamples:
    """Read examples in any of the supported forms.

    Args:
        data: ``(inputs, labels)``, inputs alone, a dataset or a loader.
        argument: The argument's name, for messages.

    Raises:
        UserError: For anything else.
    """
    if isinstance(data, DataLoader):
        if data.batch_sampler is None and not isinstance(data.dataset, IterableDataset):
            raise UserError(f"{argument}: a DataLoader with batch_size=None makes no batches; give the dataset itself.")
        return _read_dataset(data.dataset, data.collate_fn, argument)._replace(batch=data.batch_size)
    if isinstance(data, Dataset):
        return _read_dataset(data, default_collate, argument)
    if not isinstance(data, tuple):
        return _checked(_inputs_array(data, argument), None, argument)
    if len(data) != 2:
        raise UserError(f"{argument}: a tuple must be (inputs, labels); given a tuple of {len(data)}.")
    inputs, labels = _inputs_array(data[0], argument), np.atleast_1d(_labels_array(data[1], argument))
    if inputs.shape[:1] != labels.shape[:1]:
        several = isinstance(data[0], tuple | list) and any(isinstance(x, Tensor | np.ndarray) for x in data[0])
        hint = f" {ONE_INPUT}" if several else ""
        raise UserError(f"{argument}: {len(np.atleast_1d(inputs))} inputs, but {len(labels)} labels.{hint}")
    return _checked(inputs, labels, argument)


def check_labels(labels: NDArray[Any] | None, rows: int, classes: int, target: Target, argument: str) -> IntArray:
    """Return the labels of examples.

    Raises:
        UserError: When there are none, or they do not match the number of rows and classes.
    """
    if labels is None:
        raise UserError(f"{argument}: labels are needed: give (inputs, labels), or a dataset of (input, label).")
    shape = (rows, classes) if target == "multilabel" else (rows,)
    if labels.shape != shape:
        raise UserError(f"{argument}: labels must have shape {list(shape)} ({target}); given {list(labels.shape)}.")
    high = 1 if target == "multilabel" else classes - 1
    if labels.min() < 0 or labels.max() > high:
        span = f"{labels.min()} to {labels.max()}"
        raise UserError(f"{argument}: labels must lie between 0 and {high} with {classes} logits; given {span}.")
    return labels


def hold_out(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows to train on and rows to validate on, stratified by class; the same for the same labels."""
    try:
        parts = assign_parts(labels, SplitOptions((1.0 - HELD_OUT, HELD_OUT, 0.0, 0.0)))
    except UserError as fault:
        few = f"{len(labels)} examples are too few to hold out a tenth"
        raise UserError(f"train: {few} for validation; give more, or give val.") from fault
    return np.flatnonzero(parts == 0), np.flatnonzero(parts == 1)


# --- arrays -----------------------------------------------------------------------------------------------------------


def _checked(inputs: NDArray[Any], labels: NDArray[Any] | None, argument: str) -> UserExamples:
    if inputs.ndim == 0 or len(inputs) == 0:
        raise UserError(f"{argument}: there are no examples.")
    _check_finite(inputs, argument)
    return UserExamples(ArrayRows(inputs), labels)


def _array(value: Any) -> NDArray[Any]:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _inputs_array(value: Any, argument: str) -> NDArray[Any]:
    """Return inputs as an array; floating types become float32."""
    try:
        array = _array(value)
    except (ValueError, TypeError) as fault:
        hint = ONE_INPUT if isinstance(value, tuple) else "Give inputs and labels as a tuple."
        raise UserError(f"{argument}: the inputs are not an array ({fault}). {hint}") from fault
    if array.dtype.kind not in "fiub":
        raise UserError(f"{argument}: the inputs must be numbers; given {array.dtype}.")
    if array.dtype.kind != "f" or array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # a value that is too large becomes infinite, and is refused by its row
        return array.astype(np.float32)


def _labels_array(value: Any, argument: str, first: int = 0) -> NDArray[Any]:
    """Return labels as whole numbers; ``first`` is the number of the first row, for messages."""
    array = _array(value)
    rule = f"{argument}: labels must be class indices, or 0 and 1 for each label"
    if array.dtype.kind not in "fiub":
        raise UserError(f"{rule}; given {array.dtype}.")
    invalid = np.argwhere(np.atleast_1d(~np.isfinite(array) | (array != np.round(array))))
    if len(invalid):
        row = int(invalid[0][0])
        raise UserError(f"{rule}; that of row {first + row} (counted from 0) is {np.atleast_1d(array)[row]}.")
    return array.astype(np.int64)


def _check_finite(values: NDArray[Any], argument: str, numbers: Sequence[int] | None = None) -> None:
    """Refuse NaN and infinity, naming the first row with one; ``numbers`` are those of the rows, 0, 1, … by default."""
    first = 0
    for block in iterate_blocks(values) if values.dtype.kind == "f" else ():
        invalid = np.argwhere(~np.isfinite(block))
        if len(invalid):
            row, *index = (int(i) for i in invalid[0])
            number = first + row if numbers is None else numbers[first + row]
            position = "" if not index else f" at {index[0] if len(index) == 1 else index}"
            value = f"row {number} (counted from 0) is {block[tuple(invalid[0])]}{position}"
            hint = "Fill in missing values, or leave the row out."
            raise UserError(f"{argument}: {value}; inputs must be finite {values.dtype} numbers. {hint}")
        first += len(block)


def _converts(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether inputs of one type mean the same numbers in another type.

    Whole numbers do in float32, except bytes: these are mostly pixels, which were scaled before the fit.
    """
    if target.kind == "f":
        return source.kind in "fib" or (source.kind == "u" and source != np.uint8)
    return source.kind in "iub" and np.can_cast(source, target, "safe")


# --- datasets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DatasetRows(LazyRows):
    """The inputs of a dataset, each read when it is asked for.

    Attributes:
        dataset: Anything with ``len`` and ``[]``.
        collate: From examples to a batch.
        argument: The argument's name, for messages.
        rows: Which of its examples, in which order.
        input_shape: The shape of the first input. It is read only once: a random view takes numbers from torch's
            generator, and another one during a fit would change all that follow.
        element_type: The type to return the inputs in.
    """

    dataset: Any
    collate: Collate
    argument: str
    rows: NDArray[np.int64]
    input_shape: tuple[int, ...] = ()
    element_type: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009

    def batch(self, rows: Sequence[int]) -> Any:
        """Return examples as one batch.

        Raises:
            UserError: When they cannot be collated.
        """
        examples = [self.dataset[row] for row in rows]
        try:
            return self.collate(examples)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as fault:
            name = getattr(self.collate, "__name__", "collate")
            reason = _unequal_shapes(examples, rows) or f"{name} fails: {type(fault).__name__}: {fault}"
            numbers = ", ".join(map(str, rows[:3])) + (", …" if len(rows) > 3 else "")
            which = f"row{'s' if len(rows) > 1 else ''} {numbers} (counted from 0)"
            raise UserError(f"{self.argument}: {which} cannot be put into one batch: {reason}") from fault

    def inputs(self, batch: Any, rows: Sequence[int]) -> NDArray[Any]:
        """Return the inputs of a batch of these rows.

        Raises:
            UserError: When they are not one tensor of finite numbers.
        """
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(inputs, Tensor | np.ndarray):
            several = isinstance(inputs, tuple | list | Mapping)
            kind = f"{len(inputs)} parts" if several else type(inputs).__name__
            raise UserError(f"{self.argument}: the input of an example must be one tensor; given {kind}. {ONE_INPUT}")
        values = _inputs_array(inputs, self.argument)
        _check_finite(values, self.argument, rows if len(values) == len(rows) else None)
        return values

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read an example (an index) or examples (a slice, a mask, an index array)."""
        rows = np.asarray(self.rows[key])
        examples = self._read(rows.reshape(-1).tolist())
        return examples if rows.ndim else cast(NDArray[Any], examples[0])

    def _read(self, rows: list[int]) -> NDArray[Any]:
        if not rows:
            return np.empty((0, *self.input_shape), self.element_type)
        values = self.inputs(self.batch(rows), rows)
        if self.collate is default_collate and values.shape[1:] != self.input_shape:  # another one may pad
            other = f"that of row {rows[0]} {list(values.shape[1:])}"
            raise UserError(f"{self.argument}: an input has shape {list(self.input_shape)}, {other}. {PAD}")
        return values.astype(self.element_type, copy=False)

    def astype(self, dtype: str, *, copy: bool) -> DatasetRows:
        """Return the examples in another type; nothing is read."""
        return replace(self, element_type=np.dtype(dtype))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.input_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.element_type

    def take(self, rows: NDArray[Any]) -> DatasetRows:
        """Return these examples in this order; nothing is read."""
        return replace(self, rows=self.rows[rows])


def _read_dataset(dataset: Any, collate: Collate, argument: str) -> UserExamples:
    if isinstance(dataset, TensorDataset) and collate is default_collate:
        return read_examples(dataset.tensors if len(dataset.tensors) > 1 else dataset.tensors[0], argument)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        hint = "Give one with len() and [], or arrays."
        raise UserError(f"{argument}: a dataset that only streams cannot be read in the seed's order. {hint}")
    if len(dataset) == 0:
        raise UserError(f"{argument}: there are no examples.")
    rows = DatasetRows(dataset, collate, argument, np.arange(len(dataset)))
    first = rows.batch([0])
    pair = isinstance(first, tuple | list)
    if not isinstance(first, Tensor) and not (pair and len(first) == 2):
        kind = f"{len(first)} parts" if pair else type(first).__name__
        raise UserError(f"{argument}: an example must be (input, label), or an input alone; given {kind}.")
    values = rows.inputs(first, [0])
    inputs: Any = replace(rows, input_shape=values.shape[1:], element_type=values.dtype)
    return UserExamples(ArrayRows(inputs), _dataset_labels(rows, first[1]) if pair else None)


def _dataset_labels(source: DatasetRows, first: Any) -> NDArray[Any]:
    """Return every label: the dataset's ``targets`` where nothing transforms them, else by reading all examples."""
    dataset, argument = source.dataset, source.argument
    targets = getattr(dataset, "targets", None)
    if targets is not None and getattr(dataset, "target_transform", None) is None and len(targets) == len(dataset):
        labels = _labels_array(targets, argument)
        if np.array_equal(labels[:1], _labels_array(first, argument)):
            return labels
    batches = []
    for start in range(0, len(dataset), LABEL_BATCH):
        rows = range(start, min(len(dataset), start + LABEL_BATCH))
        batch = source.batch(rows)
        source.inputs(batch, rows)  # they are read anyway: invalid ones are refused before anything is trained
        batches.append(_labels_array(batch[1], argument, start))
    return np.concatenate(batches)


def _unequal_shapes(examples: Sequence[Any], rows: Sequence[int]) -> str | None:
    """Return a sentence about the first input whose shape differs from the first one's, or None."""
    inputs = [example[0] if isinstance(example, tuple | list) and example else example for example in examples]
    shapes = [tuple(value.shape) for value in inputs if isinstance(value, Tensor | np.ndarray)]
    if len(shapes) < len(inputs):
        return None
    for row, shape in zip(rows, shapes, strict=True):
        if shape != shapes[0]:
            return f"the input of row {rows[0]} has shape {list(shapes[0])}, that of row {row} {list(shape)}. {PAD}"
    return None
