"""Small encoded examples to pass through a network, one kind per modality."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import Modality
from dubio.encoders import ArrayRows, Encoded, TokenRows
from dubio.inference.batches import Batch, collate

VOCABULARY = 40
SHAPES: dict[Modality, tuple[int, ...]] = {"table": (7,), "image": (1, 8, 8), "text": (VOCABULARY,)}
"""The shape that a network's function is called with."""


def batch_of(encoded: Encoded, rows: Sequence[int] | range | None = None) -> Batch:
    """Return rows (all by default) as one batch."""
    return collate(encoded, np.array(range(len(encoded)) if rows is None else rows, dtype=np.int64))


def random_rows(inputs: Modality, rows: int, seed: int) -> Encoded:
    """Return random examples; texts all have eight tokens."""
    generator = np.random.default_rng(seed)
    if inputs == "text":
        return texts(np.full(rows, 8), generator)
    return ArrayRows(generator.standard_normal((rows, *SHAPES[inputs])).astype(np.float32))


def of_mixed_length(inputs: Modality, rows: int, seed: int) -> Encoded:
    """Return random examples; texts have one to twelve tokens."""
    generator = np.random.default_rng(seed)
    if inputs == "text":
        return texts(generator.integers(1, 13, rows), generator)
    return random_rows(inputs, rows, seed)


def texts(lengths: NDArray[np.int64], generator: np.random.Generator) -> TokenRows:
    """Return random texts of these lengths, without padding."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tokens = generator.integers(1, VOCABULARY, int(offsets[-1])).astype(np.int32)
    return TokenRows(tokens, offsets)


def short_and_long(seed: int) -> TokenRows:
    """Return a text of three tokens and one of thirty."""
    return texts(np.array([3, 30]), np.random.default_rng(seed))
