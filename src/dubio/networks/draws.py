"""Random draws for predictions: a function of (seed, sample, block of examples, site) and of nothing else.

Noise at prediction does not depend on the batch size, the order of batches or the number of devices: it is drawn for
fixed blocks of example indices, and a batch takes the rows it needs.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Law = Literal["uniform", "normal"]

BLOCK = 128
"""Examples per block. Changing it changes every sampled prediction."""

CACHED_BLOCKS = 8
"""Blocks cached per site: the window within which batches are sorted by length."""

CACHED_ELEMENTS = 1 << 26
"""Draws cached at most, 256 MB: masks over the units of large images are drawn again instead."""


class BlockDraws:
    """Draws for one prediction, with a cache of the blocks in use."""

    def __init__(self, seed: int) -> None:
        """Draw everything from this seed."""
        self._seed = seed
        self._cache: dict[tuple[str, range], OrderedDict[int, NDArray[np.float32]]] = {}
        self._shared: dict[tuple[str, int], NDArray[np.float32]] = {}
        self._elements = 0

    def rows(self, site: str, law: Law, width: int, samples: range, rows: NDArray[np.int64]) -> Tensor:
        """Return draws ``[samples, rows, width]`` float32.

        Args:
            site: Name of the site (or head) that uses them.
            law: Uniform on [0, 1), or standard normal.
            width: Draws per example.
            samples: Sample numbers.
            rows: Example indices.
        """
        cache = self._cache.setdefault((site, samples), OrderedDict())
        out = np.empty((len(samples), len(rows), width), dtype=np.float32)
        blocks, inverse = np.unique(rows // BLOCK, return_inverse=True)
        for j, block in enumerate(blocks.tolist()):
            if block not in cache:
                cache[block] = self._draw(site, law, width, samples, block)
                self._elements += cache[block].size
            positions = np.flatnonzero(inverse == j)
            out[:, positions] = cache[block][:, rows[positions] % BLOCK]
        while cache and (len(cache) > CACHED_BLOCKS or self._elements > CACHED_ELEMENTS):
            self._elements -= cache.popitem(last=False)[1].size
        return torch.from_numpy(out)

    def shared(self, layer: str, size: int, sample: int) -> Tensor:
        """Return standard normal draws ``[size]`` float32 of one sample that all examples share.

        Args:
            layer: Name of the layer that uses them.
            size: Number of draws.
            sample: Sample number.
        """
        normals = self._shared.get((layer, sample))
        if normals is None:
            seeds = np.random.SeedSequence([self._seed, sample, zlib.crc32(layer.encode())], spawn_key=(1,))
            normals = np.empty(size, dtype=np.float32)
            np.random.Generator(np.random.SFC64(seeds)).standard_normal(dtype=np.float32, out=normals)
            if self._elements + size <= CACHED_ELEMENTS:
                self._shared[layer, sample] = normals
                self._elements += size
        return torch.from_numpy(normals)

    def _draw(self, site: str, law: Law, width: int, samples: range, block: int) -> NDArray[np.float32]:
        out = np.empty((len(samples), BLOCK, width), dtype=np.float32)
        for i, sample in enumerate(samples):
            seeds = np.random.SeedSequence([self._seed, sample, block, zlib.crc32(site.encode())])
            generator = np.random.Generator(np.random.SFC64(seeds))
            (generator.random if law == "uniform" else generator.standard_normal)(dtype=np.float32, out=out[i])
        return out
