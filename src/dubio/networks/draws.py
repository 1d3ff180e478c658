"""Random draws for predictions: a function of (seed, sample, block of examples, place), and of nothing else.

Noise at prediction never depends on the batch size, the order of batches or the number of devices: it is drawn for
fixed blocks of example indices, and a batch takes the rows it needs.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Law = Literal["uniform", "normal"]

BLOCK = 128
"""Examples a block. Part of what a prediction is: changing it changes every sampled prediction."""

KEPT_BLOCKS = 8
"""Blocks remembered a place: the window within which batches are sorted by length."""


class BlockDraws:
    """Draws for one prediction, remembered for the blocks in use."""

    def __init__(self, seed: int) -> None:
        """Draw everything from this seed."""
        self._seed = seed
        self._kept: dict[tuple[str, range], OrderedDict[int, NDArray[np.float32]]] = {}

    def rows(self, place: str, law: Law, width: int, samples: range, rows: NDArray[np.int64]) -> Tensor:
        """Draws for these examples, ``[samples, rows, width]`` float32.

        Args:
            place: The site (or head) that uses them.
            law: Uniform on [0, 1), or standard normal.
            width: Draws an example.
            samples: Which samples.
            rows: Which examples.
        """
        kept = self._kept.setdefault((place, samples), OrderedDict())
        out = np.empty((len(samples), len(rows), width), dtype=np.float32)
        blocks, inverse = np.unique(rows // BLOCK, return_inverse=True)
        for j, block in enumerate(blocks.tolist()):
            if block not in kept:
                kept[block] = self._draw(place, law, width, samples, block)
            mine = np.flatnonzero(inverse == j)
            out[:, mine] = kept[block][:, rows[mine] % BLOCK]
        while len(kept) > KEPT_BLOCKS:
            kept.popitem(last=False)
        return torch.from_numpy(out)

    def _draw(self, place: str, law: Law, width: int, samples: range, block: int) -> NDArray[np.float32]:
        out = np.empty((len(samples), BLOCK, width), dtype=np.float32)
        for i, sample in enumerate(samples):
            words = np.random.SeedSequence([self._seed, sample, block, zlib.crc32(place.encode())])
            _FILL[law](np.random.Generator(np.random.SFC64(words)), out[i])
        return out


def _uniform(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    generator.random(dtype=np.float32, out=out)


def _normal(generator: np.random.Generator, out: NDArray[np.float32]) -> None:
    generator.standard_normal(dtype=np.float32, out=out)


_FILL: dict[Law, Callable[[np.random.Generator, NDArray[np.float32]], None]] = {
    "uniform": _uniform,
    "normal": _normal,
}
