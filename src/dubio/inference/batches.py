"""Batches of encoded examples: with little padding, in an order that a generator decides.

A batch of texts holds its distinct tokens once: operations that are linear in a token's embedding then run once per
distinct token, not once per position. Texts of similar length share a batch, so that little of it is padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows
from dubio.encoders import Encoded, ImageRows, TokenRows
from dubio.networks.network import TokenBatch

Rows = NDArray[np.int64]

BUCKET_BATCHES = 50
"""Training batches drawn together and sorted by length: enough for tight buckets, few enough to stay random."""

WINDOW = 1024
"""Consecutive rows within which prediction may sort by length, which bounds the noise in memory."""

MOST_ELEMENTS = 1 << 23
"""Largest number of elements in an evaluation batch of arrays: batches of larger images have fewer examples."""

EVALUATION_BATCH = 128
"""Examples per batch when nothing is learned."""


Batch = Tensor | TokenBatch


@dataclass(frozen=True)
class LabelledRows:
    """Encoded examples with their labels (class index, or multi-hot) and the number of classes."""

    encoded: Encoded
    labels: NDArray[np.int64]
    classes: int

    def batches(self, size: int, device: torch.device) -> Iterator[tuple[Rows, Any, Tensor]]:
        """Return rows, examples and labels of each batch for one pass over all examples."""
        for rows in prediction_rows(self.encoded, size):
            labels = torch.from_numpy(self.labels[rows]).to(device)
            yield rows, to_device(collate(self.encoded, rows), device), labels


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device."""
    return batch if device.type == "cpu" else batch.to(device)


def collate(encoded: Encoded, rows: Rows) -> Batch:
    """Return the examples at these rows as one batch."""
    if not isinstance(encoded, TokenRows):
        return torch.from_numpy(encoded.at(rows))
    starts, lengths = encoded.offsets[rows], encoded.lengths[rows]
    places = np.arange(int(lengths.max()))
    real = places < lengths[:, None]
    padded = np.zeros(real.shape, dtype=np.int64)
    padded[real] = encoded.tokens[(starts[:, None] + places)[real]]
    distinct, inverse = np.unique(np.append(padded.ravel(), 0), return_inverse=True)
    arrays = (distinct, inverse[:-1].reshape(padded.shape), lengths.astype(np.int64))
    return TokenBatch(*map(torch.from_numpy, arrays))


def training_rows(
    encoded: Encoded, batch: int, generator: np.random.Generator, *, least: int = 1, order: Rows | None = None
) -> list[Rows]:
    """Return the rows of each batch of one epoch, every row once, in a random order.

    Texts are shuffled, cut into buckets of :data:`BUCKET_BATCHES` batches, sorted by length within a bucket, and the
    batches shuffled again. With an order of the rows all texts are one bucket, and the same order gives the same
    batches, in another order each time.

    Args:
        encoded: The training examples.
        batch: Examples per batch; the last may be smaller.
        generator: Source of the order.
        least: Smallest batch; a smaller one joins its neighbour, because one example has no batch statistics.
        order: All rows, in the order in which they are cut into batches, texts after sorting by length; None shuffles
            them.

    Raises:
        UserError: When every batch is smaller.
    """
    fixed, size = order is not None, len(encoded)
    if order is None:
        order, size = generator.permutation(len(encoded)).astype(np.int64), batch * BUCKET_BATCHES
    if isinstance(encoded, TokenRows):
        lengths = encoded.lengths
        buckets = [order[i : i + size] for i in range(0, len(order), size)]
        order = np.concatenate([bucket[np.argsort(lengths[bucket], kind="stable")] for bucket in buckets])
    batches = [order[i : i + batch] for i in range(0, len(order), batch)]
    if fixed:  # a small batch has the same neighbour every time
        batches = _joined(batches, least)
    batches = [batches[i] for i in generator.permutation(len(batches))]
    return _announced(encoded, batches if fixed else _joined(batches, least))


def _joined(batches: list[Rows], least: int) -> list[Rows]:
    """Return batches without small ones: these join the batch before them, or after them at the beginning."""
    if all(len(rows) < least for rows in batches):
        most = max(map(len, batches), default=0)
        raise UserError(f"batch: batch-norm needs batches of at least {least} examples; given {most}.")
    joined: list[Rows] = []
    waiting: list[Rows] = []
    for rows in batches:
        if len(rows) >= least:
            joined.append(np.concatenate([*waiting, rows]) if waiting else rows)
            waiting = []
        elif joined:
            joined[-1] = np.concatenate([joined[-1], rows])
        else:
            waiting.append(rows)
    return joined


def prediction_rows(encoded: Encoded, batch: int) -> Iterator[Rows]:
    """Return the rows of each batch for one pass over all examples, similar lengths together within each window.

    Args:
        encoded: The examples.
        batch: Examples per batch; fewer if a batch would exceed :data:`MOST_ELEMENTS`.
    """
    batch = min(batch, max(1, MOST_ELEMENTS // _elements(encoded)))
    lengths = encoded.lengths if isinstance(encoded, TokenRows) else np.zeros(len(encoded), dtype=np.int64)
    batches = []
    for start in range(0, len(encoded), WINDOW):
        window = np.arange(start, min(len(encoded), start + WINDOW))
        ordered = window[np.argsort(lengths[window], kind="stable")]
        batches += [ordered[i : i + batch] for i in range(0, len(ordered), batch)]
    return iter(_announced(encoded, batches))


def _elements(encoded: Encoded) -> int:
    """Return the elements of one example of a fixed shape; texts, sorted by length, count as 1."""
    if isinstance(encoded, TokenRows):
        return 1
    rows = encoded.images if isinstance(encoded, ImageRows) else encoded.values
    return max(1, math.prod(rows.row_shape if isinstance(rows, LazyRows) else rows.shape[1:]))


def _announced(encoded: Encoded, batches: list[Rows]) -> list[Rows]:
    """Return the batches after announcing them to images in files, which read the next one in advance."""
    if isinstance(encoded, ImageRows):
        encoded.expect(batches)
    return batches
