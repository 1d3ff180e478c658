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


KEPT_ELEMENTS = 1 << 26
"""Draws remembered at most, 256 MB: masks over the units of large images are drawn again rather than kept."""


class BlockDraws:
    """Draws for one prediction, remembered for the blocks in use."""

    def __init__(self, seed: int) -> None:
        """Draw everything from this seed."""
        self._seed = seed
        self._kept: dict[tuple[str, range], OrderedDict[int, NDArray[np.float32]]] = {}
        self._shared: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._elements = 0

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
                self._elements += kept[block].size
            mine = np.flatnonzero(inverse == j)
            out[:, mine] = kept[block][:, rows[mine] % BLOCK]
        while kept and (len(kept) > KEPT_BLOCKS or self._elements > KEPT_ELEMENTS):
            self._elements -= kept.popitem(last=False)[1].size
        return torch.from_numpy(out)

    def shared(self, place: str, size: int, sample: int) -> Tensor:
        """Standard normal draws of one sample that all examples share, ``[size]`` float32.

        Args:
            place: The layer that uses them.
            size: How many.
            sample: Which sample.
        """
        found = self._shared.get((place, sample))
        if found is None:
            words = np.random.SeedSequence([self._seed, sample, zlib.crc32(place.encode())], spawn_key=(1,))
            found = np.empty(size, dtype=np.float32)
            _normal(np.random.Generator(np.random.SFC64(words)), found)
            if self._elements + size <= KEPT_ELEMENTS:
                self._shared[place, sample] = found
                self._elements += size
        return torch.from_numpy(found)

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
