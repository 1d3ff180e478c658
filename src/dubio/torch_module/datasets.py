"""The examples of a PyTorch dataset: inputs that are read when a batch asks for them, and labels, read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows, row_digests
from dubio.torch_module.inputs import ONE_INPUT, check_finite, inputs_array, labels_array

READ_TOGETHER = 256
"""Examples of a dataset read at once where only their labels are wanted."""

PAD = "Inputs must be of one shape: pad them, or give a DataLoader with a collate_fn that does."

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True, eq=False)
class Source:
    """Where examples come from.

    Attributes:
        dataset: Anything with ``len`` and ``[]``.
        collate: From examples to a batch.
        what: The argument's name, for messages.
    """

    dataset: Any
    collate: Collate
    what: str

    def batch(self, rows: Sequence[int]) -> Any:
        """Examples as one batch.

        Raises:
            UserError: When they cannot be one.
        """
        examples = [self.dataset[row] for row in rows]
        try:
            return self.collate(examples)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as fault:
            found = _unequal(examples, rows)
            said = found or f"{getattr(self.collate, '__name__', 'collate')} fails: {type(fault).__name__}: {fault}"
            raise UserError(f"{self.what}: {_few(rows)} cannot be put into one batch: {said}") from fault

    def inputs(self, batch: Any, rows: Sequence[int]) -> NDArray[Any]:
        """The inputs of a batch of these rows.

        Raises:
            UserError: When they are not one tensor of finite numbers.
        """
        part = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(part, Tensor | np.ndarray):
            several = f"{len(part)} parts" if isinstance(part, tuple | list | Mapping) else type(part).__name__
            raise UserError(f"{self.what}: the input of an example must be one tensor; given {several}. {ONE_INPUT}")
        values = inputs_array(part, self.what)
        check_finite(values, self.what, rows if len(values) == len(rows) else None)
        return values


@dataclass(frozen=True, eq=False)
class DatasetRows(LazyRows):
    """The inputs of a dataset, each read when it is asked for.

    Attributes:
        source: The dataset.
        rows: Which of its examples, in which order.
        form: The shape of the first input. It is read only once: a random view takes numbers from torch's generator,
            and another one while a fit is under way would change all that come after.
        wanted: The type to give the inputs in.
    """

    source: Source
    rows: NDArray[np.int64]
    form: tuple[int, ...]
    wanted: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read an example (an index) or examples (a slice, a mask, an index array)."""
        chosen = self.rows[key]
        if np.ndim(chosen) == 0:
            alone: NDArray[Any] = self._read([int(chosen)])[0]
            return alone
        return self._read(chosen.tolist()) if len(chosen) else np.empty((0, *self.form), self.wanted)

    def _read(self, rows: list[int]) -> NDArray[Any]:
        source = self.source
        values = source.inputs(source.batch(rows), rows)
        if source.collate is default_collate and values.shape[1:] != self.form:  # another may pad as it likes
            raise UserError(
                f"{source.what}: an input has shape {list(self.form)}, that of row {rows[0]} {list(values.shape[1:])}. "
                f"{PAD}"
            )
        return values.astype(self.wanted, copy=False)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self.form

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.wanted

    def take(self, rows: NDArray[Any]) -> DatasetRows:
        """These examples, in this order; nothing is read."""
        return replace(self, rows=self.rows[rows])

    def keys(self) -> list[bytes]:
        """SHA-256 of every example; reads all of them."""
        return [digest.tobytes() for digest in row_digests(self)]

    def content(self) -> bytes:
        """What the examples hold, in short; reads all of them."""
        return f"rows{self.shape}{self.dtype.str}".encode() + row_digests(self).tobytes()


def dataset_rows(source: Source) -> tuple[DatasetRows, NDArray[Any] | None]:
    """The inputs of a dataset, and its labels where it has any.

    Raises:
        UserError: When it only streams, has no examples, or examples that cannot be used.
    """
    dataset, what = source.dataset, source.what
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise UserError(
            f"{what}: a dataset that only streams cannot be used: examples are read in an order that the seed decides, "
            "many times, and noise is drawn by their number. Give one with len() and [], or arrays."
        )
    if len(dataset) == 0:
        raise UserError(f"{what}: there are no examples.")
    first = source.batch([0])
    if not isinstance(first, tuple | list | Tensor):
        raise UserError(f"{what}: an example must be (input, label), or an input alone; given {type(first).__name__}.")
    if not isinstance(first, Tensor) and len(first) != 2:
        raise UserError(f"{what}: an example must be (input, label); given {len(first)} parts.")
    values = source.inputs(first, [0])
    rows = DatasetRows(source, np.arange(len(dataset)), values.shape[1:], values.dtype)
    return rows, None if isinstance(first, Tensor) else _labels(source, first[1])


def _labels(source: Source, first: Any) -> NDArray[Any]:
    """Every label, from the dataset's list of them where it has one and no other rule, else by reading everything."""
    dataset, what = source.dataset, source.what
    listed = getattr(dataset, "targets", None)
    if listed is not None and getattr(dataset, "target_transform", None) is None and len(listed) == len(dataset):
        labels = labels_array(listed, what)
        if np.array_equal(labels[:1], labels_array(first, what)):
            return labels
    found = []
    for start in range(0, len(dataset), READ_TOGETHER):
        rows = range(start, min(len(dataset), start + READ_TOGETHER))
        batch = source.batch(rows)
        source.inputs(batch, rows)  # they are here: what cannot be used is known before anything is trained
        found.append(labels_array(batch[1], what, start))
    return np.concatenate(found)


def _unequal(examples: Sequence[Any], rows: Sequence[int]) -> str | None:
    """Which input has another shape than the first, if one has."""
    inputs = [part[0] if isinstance(part, tuple | list) and part else part for part in examples]
    if not all(isinstance(part, Tensor | np.ndarray) for part in inputs):
        return None
    shapes = [tuple(part.shape) for part in inputs]
    for row, shape in zip(rows, shapes, strict=True):
        if shape != shapes[0]:
            return f"the input of row {rows[0]} has shape {list(shapes[0])}, that of row {row} {list(shape)}. {PAD}"
    return None


def _few(rows: Sequence[int]) -> str:
    """The first of some rows, in words."""
    named = ", ".join(map(str, rows[:3])) + (", …" if len(rows) > 3 else "")
    return f"row{'s' if len(rows) > 1 else ''} {named} (counted from 0)"
