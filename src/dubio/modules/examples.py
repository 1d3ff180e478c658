"""Examples as a user has them: arrays, tensors, a PyTorch dataset or its loader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from dubio.encoders import ArrayRows
from dubio.errors import UserError
from dubio.mapped import LazyRows, row_digests
from dubio.tasks.splits import stratified_parts
from dubio.types import Target

HELD_OUT = 0.1
"""The share of the training examples that validates where no validation examples are given."""

READ_TOGETHER = 256
"""Examples of a dataset read at once where only their labels are wanted."""

Collate = Callable[[list[Any]], Any]


class Given(NamedTuple):
    """Examples that a user gave.

    Attributes:
        rows: The inputs.
        labels: As they were given, or None.
        batch: The batch size of their loader, if they have one.
    """

    rows: ArrayRows
    labels: NDArray[Any] | None
    batch: int | None = None

    def taken(self, chosen: NDArray[np.int64]) -> ArrayRows:
        """Some of the inputs; of a dataset nothing is read."""
        values: NDArray[Any] | LazyRows = self.rows.values
        return _encoded(values.take(chosen) if isinstance(values, LazyRows) else values[chosen])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.rows.values.shape[1:])


@dataclass(frozen=True, eq=False)
class DatasetRows(LazyRows):
    """The inputs of a dataset, each read when it is asked for.

    Attributes:
        dataset: Anything with ``len`` and ``[]``.
        collate: From examples to a batch.
        rows: Which of its examples, in which order.
    """

    dataset: Any
    collate: Collate
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read an example (an index) or examples (a slice, a mask, an index array)."""
        chosen = self.rows[key]
        if np.ndim(chosen) == 0:
            return self._one(int(chosen))
        return self._read(chosen.tolist()) if len(chosen) else np.empty((0, *self.row_shape), self.dtype)

    def _read(self, rows: list[int]) -> NDArray[Any]:
        batch = self.collate([self.dataset[row] for row in rows])
        return inputs_array(batch[0] if isinstance(batch, tuple | list) else batch, "a dataset's inputs")

    def _one(self, row: int) -> NDArray[Any]:
        alone: NDArray[Any] = self._read([row])[0]
        return alone

    @cached_property
    def _first(self) -> NDArray[Any]:
        return self._one(int(self.rows[0]))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self._first.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self._first.dtype

    def take(self, rows: NDArray[Any]) -> DatasetRows:
        """These examples, in this order; nothing is read."""
        return DatasetRows(self.dataset, self.collate, self.rows[rows])

    def keys(self) -> list[bytes]:
        """SHA-256 of every example; reads all of them."""
        return [digest.tobytes() for digest in row_digests(self)]

    def content(self) -> bytes:
        """What the examples hold, in short; reads all of them."""
        return f"rows{self.shape}{self.dtype.str}".encode() + row_digests(self).tobytes()


def read(data: Any, what: str) -> Given:
    """Examples in any of the ways in which they may be given.

    Args:
        data: ``(inputs, labels)``, inputs alone, a dataset or a loader.
        what: The argument's name, for messages.

    Raises:
        UserError: When it is none of these.
    """
    if isinstance(data, DataLoader):
        found = _of_dataset(data.dataset, data.collate_fn, what)
        return found._replace(batch=data.batch_size)
    if isinstance(data, Dataset):
        return _of_dataset(data, default_collate, what)
    if not isinstance(data, tuple):
        return _checked(inputs_array(data, what), None, what)
    if len(data) != 2:
        raise UserError(f"{what}: a tuple must be (inputs, labels); given one of {len(data)}.")
    return _checked(inputs_array(data[0], what), _labels_array(data[1], what), what)


def _of_dataset(dataset: Any, collate: Any, what: str) -> Given:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise UserError(
            f"{what}: a dataset that only streams cannot be used: examples are read in an order that the seed decides, "
            "many times, and noise is drawn by their number. Give one with len() and [], or arrays."
        )
    if len(dataset) == 0:
        raise UserError(f"{what}: there are no examples.")
    if isinstance(dataset, TensorDataset) and collate is default_collate:
        return read(dataset.tensors if len(dataset.tensors) > 1 else dataset.tensors[0], what)
    rows = DatasetRows(dataset, collate, np.arange(len(dataset)))
    return Given(_encoded(rows), _dataset_labels(dataset, collate, what))


def _dataset_labels(dataset: Any, collate: Any, what: str) -> NDArray[Any] | None:
    """Every label, from the dataset's list of them where it has one and no other rule, else by reading everything."""
    first = collate([dataset[0]])
    if not isinstance(first, tuple | list):
        if isinstance(first, Tensor):
            return None
        raise UserError(f"{what}: an example must be (input, label), or an input alone; given {type(first).__name__}.")
    if len(first) != 2:
        raise UserError(f"{what}: an example must be (input, label); given {len(first)} parts.")
    listed = getattr(dataset, "targets", None)
    if listed is not None and getattr(dataset, "target_transform", None) is None and len(listed) == len(dataset):
        labels = _labels_array(listed, what)
        if np.array_equal(labels[:1], _labels_array(first[1], what)):
            return labels
    blocks = [range(i, min(len(dataset), i + READ_TOGETHER)) for i in range(0, len(dataset), READ_TOGETHER)]
    return np.concatenate([_labels_array(collate([dataset[i] for i in block])[1], what) for block in blocks])


def _encoded(values: NDArray[Any] | LazyRows) -> ArrayRows:
    """Rows as a training takes them; their type is the module's affair."""
    return ArrayRows(cast(NDArray[np.float32], values))


def _checked(values: NDArray[Any], labels: NDArray[Any] | None, what: str) -> Given:
    if values.ndim == 0 or len(values) == 0:
        raise UserError(f"{what}: there are no examples.")
    if labels is not None and len(labels) != len(values):
        raise UserError(f"{what}: {len(values)} inputs, but {len(labels)} labels.")
    return Given(_encoded(values), labels)


def inputs_array(value: Any, what: str) -> NDArray[Any]:
    """Inputs in memory; floating ones as float32, others as they are.

    Raises:
        UserError: When they are no array of numbers.
    """
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except ValueError as fault:
        raise UserError(
            f"{what}: the inputs are no array ({fault}); inputs and labels are given as a tuple."
        ) from fault
    if array.dtype.kind not in "fiub":
        raise UserError(f"{what}: the inputs must be numbers; given {array.dtype}.")
    return array.astype(np.float32) if array.dtype.kind == "f" and array.dtype != np.float32 else array


def _labels_array(value: Any, what: str) -> NDArray[Any]:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "iub" and not (array.dtype.kind == "f" and np.array_equal(array, np.round(array))):
        raise UserError(f"{what}: labels must be class indices, or 0 and 1 for each label; given {array.dtype}.")
    return array.astype(np.int64)


def checked_labels(
    labels: NDArray[Any] | None, rows: int, classes: int, target: Target, what: str
) -> NDArray[np.int64]:
    """The labels of examples to learn from, or a refusal.

    Raises:
        UserError: When there are none, or they are not labels of that many classes.
    """
    if labels is None:
        raise UserError(f"{what}: labels are needed: give (inputs, labels), or a dataset of (input, label).")
    wanted = (rows, classes) if target == "multilabel" else (rows,)
    if labels.shape != wanted:
        raise UserError(f"{what}: labels must have shape {list(wanted)} ({target}); given {list(labels.shape)}.")
    high = 1 if target == "multilabel" else classes - 1
    if labels.min() < 0 or labels.max() > high:
        raise UserError(
            f"{what}: labels must lie between 0 and {high}, the module giving {classes} logits; given "
            f"{labels.min()} to {labels.max()}."
        )
    return labels


def hold_out(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows to validate on, every class in its share; always the same for the same labels."""
    parts = stratified_parts(labels, fractions=(1.0 - HELD_OUT, HELD_OUT, 0.0, 0.0), seed=0)
    return np.flatnonzero(parts == 0), np.flatnonzero(parts == 1)
