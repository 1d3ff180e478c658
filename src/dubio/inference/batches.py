"""Batches of encoded examples: padded little, in an order that a generator decides.

A batch of texts carries its distinct tokens once: what is linear in a token's embedding is then computed once a
distinct token, not once a position. Texts of like length share a batch, so that little of it is padding.

Examples as a training sees them: encoded, with their labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows
from dubio.encoders import Encoded, ImageRows, TokenRows

Rows = NDArray[np.int64]

BUCKET_BATCHES = 50
"""Batches drawn together and sorted by length while training: enough for tight buckets, few enough to stay random."""

WINDOW = 1024
"""Consecutive rows within which prediction may sort by length: bounds the noise that must be held at once."""


MOST_ELEMENTS = 1 << 23
"""Numbers that a batch of arrays may have where nothing is learned: larger images come fewer at a time."""


class TokenBatch(NamedTuple):
    """Texts as positions into the distinct tokens of the batch.

    Attributes:
        distinct: ``[U]`` token ids; the first is always PAD.
        places: ``[B, L]`` where each position's token is in ``distinct``; 0 past a text's end.
        lengths: ``[B]`` tokens of each text.
    """

    distinct: Tensor
    places: Tensor
    lengths: Tensor

    def to(self, device: torch.device) -> TokenBatch:
        """The same batch on a device."""
        return TokenBatch(*(tensor.to(device) for tensor in self))

    def repeat(self, times: int) -> TokenBatch:
        """The same texts again and again, sample by sample."""
        return TokenBatch(self.distinct, self.places.repeat(times, 1), self.lengths.repeat(times))

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once."""
        return self.places.numel()


Batch = Tensor | TokenBatch


def collate(encoded: Encoded, rows: Rows) -> Batch:
    """The examples at these rows as one batch."""
    if not isinstance(encoded, TokenRows):
        return torch.from_numpy(encoded.at(rows))
    starts, lengths = encoded.offsets[rows], encoded.lengths[rows]
    places = np.arange(int(lengths.max()))
    real = places < lengths[:, None]
    padded = np.zeros(real.shape, dtype=np.int64)
    padded[real] = encoded.tokens[(starts[:, None] + places)[real]]
    distinct, inverse = np.unique(np.append(padded.ravel(), 0), return_inverse=True)
    return TokenBatch(
        torch.from_numpy(distinct),
        torch.from_numpy(inverse[:-1].reshape(padded.shape)),
        torch.from_numpy(lengths.astype(np.int64)),
    )


def training_rows(encoded: Encoded, batch: int, generator: np.random.Generator, *, least: int = 1) -> list[Rows]:
    """The rows of each batch of one epoch, every row once, in a random order.

    Texts are shuffled, cut into stretches of :data:`BUCKET_BATCHES` batches, sorted by length within a stretch, and the
    batches shuffled again.

    Args:
        encoded: The training examples.
        batch: Examples a batch; the last may be smaller.
        generator: Decides the order.
        least: A batch with fewer examples joins its neighbour: one example alone has no batch statistics.

    Raises:
        UserError: When no batch has so many.
    """
    order = generator.permutation(len(encoded)).astype(np.int64)
    if isinstance(encoded, TokenRows):
        stretch = batch * BUCKET_BATCHES
        lengths = encoded.lengths
        pieces = [order[i : i + stretch] for i in range(0, len(order), stretch)]
        order = np.concatenate([piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces])
    batches = [order[i : i + batch] for i in range(0, len(order), batch)]
    return _announced(encoded, _joined([batches[i] for i in generator.permutation(len(batches))], least))


def _joined(batches: list[Rows], least: int) -> list[Rows]:
    """Batches of which none has fewer rows: such a one joins the one before it, the first the one after it."""
    if all(len(rows) < least for rows in batches):
        raise UserError(
            f"batch: batch-norm takes its statistics over a batch, which must have at least {least} examples; "
            f"given {max(map(len, batches), default=0)}."
        )
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
    """The rows of each batch for one pass over everything, like lengths together within each window.

    Args:
        encoded: The examples.
        batch: Examples a batch; fewer where they are so large that a batch would exceed :data:`MOST_ELEMENTS`.
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
    """Numbers of one example of a fixed shape; texts, whose batches are sorted by length, count as one."""
    if isinstance(encoded, TokenRows):
        return 1
    rows = encoded.images if isinstance(encoded, ImageRows) else encoded.values
    return max(1, math.prod(rows.row_shape if isinstance(rows, LazyRows) else rows.shape[1:]))


def _announced(encoded: Encoded, batches: list[Rows]) -> list[Rows]:
    """The batches, once images that stay in their files know of them: the next one is read while one is used."""
    if isinstance(encoded, ImageRows):
        encoded.expect(batches)
    return batches


EVALUATION_BATCH = 128
"""Examples a batch when nothing is learned."""


@dataclass(frozen=True)
class LabelledRows:
    """Encoded examples with their labels (class index, or multi-hot) among that many classes."""

    encoded: Encoded
    labels: NDArray[np.int64]
    classes: int


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch on a device."""
    return batch if device.type == "cpu" else batch.to(device)
