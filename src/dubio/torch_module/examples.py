"""Examples as a user has them: arrays, tensors, a PyTorch dataset or its loader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows
from dubio.core.types import Target
from dubio.encoders import ArrayRows
from dubio.tasks.splitting import stratified_parts
from dubio.torch_module.datasets import Collate, DatasetRows, Source, dataset_rows
from dubio.torch_module.inputs import ONE_INPUT, are_tensors, check_finite, converts, inputs_array, labels_array

HELD_OUT = 0.1
"""The share of the training examples that validates where no validation examples are given."""


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

    def like(self, shape: tuple[int, ...], dtype: str, what: str, other: str) -> Given:
        """The same examples, their inputs of the type of others.

        Args:
            shape: Of one of the other inputs.
            dtype: Of the others.
            what: The argument's name, for messages.
            other: What the others are called in messages.

        Raises:
            UserError: When they are of another shape, or a type that does not convert.
        """
        if self.shape != shape:
            raise UserError(f"{what}: an input has shape {list(self.shape)}; {other} {list(shape)}.")
        values: NDArray[Any] | LazyRows = self.rows.values
        wanted = np.dtype(dtype)
        if not converts(values.dtype, wanted):
            raise UserError(f"{what}: inputs have type {values.dtype}; {other} {wanted}. Convert them in the same way.")
        if isinstance(values, DatasetRows):
            return self._replace(rows=_encoded(replace(values, wanted=wanted)))
        return self._replace(rows=_encoded(np.asarray(values).astype(wanted, copy=False)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.rows.values.shape[1:])


def read(data: Any, what: str) -> Given:
    """Examples in any of the ways in which they may be given.

    Args:
        data: ``(inputs, labels)``, inputs alone, a dataset or a loader.
        what: The argument's name, for messages.

    Raises:
        UserError: When it is none of these.
    """
    if isinstance(data, DataLoader):
        if data.batch_sampler is None and not isinstance(data.dataset, IterableDataset):
            raise UserError(
                f"{what}: a DataLoader with batch_size=None makes no batches of examples; give it a batch size, or "
                "give the dataset itself."
            )
        return _of_dataset(data.dataset, data.collate_fn, what)._replace(batch=data.batch_size)
    if isinstance(data, Dataset):
        return _of_dataset(data, default_collate, what)
    if not isinstance(data, tuple):
        return _checked(inputs_array(data, what), None, what)
    if len(data) != 2:
        raise UserError(f"{what}: a tuple must be (inputs, labels); given one of {len(data)}.")
    values, labels = inputs_array(data[0], what), np.atleast_1d(labels_array(data[1], what))
    if values.shape[:1] != labels.shape[:1]:
        hint = f" {ONE_INPUT}" if are_tensors(data[0]) else ""
        raise UserError(f"{what}: {len(np.atleast_1d(values))} inputs, but {len(labels)} labels.{hint}")
    return _checked(values, labels, what)


def _of_dataset(dataset: Any, collate: Collate, what: str) -> Given:
    if isinstance(dataset, TensorDataset) and collate is default_collate:
        return read(dataset.tensors if len(dataset.tensors) > 1 else dataset.tensors[0], what)
    rows, labels = dataset_rows(Source(dataset, collate, what))
    return Given(_encoded(rows), labels)


def _encoded(values: NDArray[Any] | LazyRows) -> ArrayRows:
    """Rows as a training takes them; their type is the module's affair."""
    return ArrayRows(cast(NDArray[np.float32], values))


def _checked(values: NDArray[Any], labels: NDArray[Any] | None, what: str) -> Given:
    if values.ndim == 0 or len(values) == 0:
        raise UserError(f"{what}: there are no examples.")
    check_finite(values, what)
    return Given(_encoded(values), labels)


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
    try:
        parts = stratified_parts(labels, fractions=(1.0 - HELD_OUT, HELD_OUT, 0.0, 0.0), seed=0)
    except UserError as few:
        raise UserError(
            f"train: {len(labels)} examples are too few to hold a tenth of them out for validation; give more, or "
            "give val."
        ) from few
    return np.flatnonzero(parts == 0), np.flatnonzero(parts == 1)
