"""Random draws for predictions: a function of (seed, sample, row, site) and of nothing else.

Noise at prediction does not depend on the batch size, the order of batches or the number of devices. The rows of a
stored split are known by their index: noise is drawn for fixed blocks of indices, and a batch takes the rows it needs.
The rows of a deployed model have no index. They are known by a key, a 64-bit hash of their content, and each has draws
of its own: the same alone or in any batch.

The draws of a key are those of SplitMix64 (Steele, Lea & Flood, 2014), started at a state that mixes seed, site, sample
and key: draw j is mix(state + (j + 1)·γ). All rows of a batch are computed at once.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Law = Literal["uniform", "normal"]

Keys: TypeAlias = NDArray[np.uint64]
"""Rows by the hash of their content."""

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

    def rows(self, site: str, law: Law, width: int, samples: range, rows: NDArray[np.int64] | Keys) -> Tensor:
        """Return draws ``[samples, rows, width]`` float32.

        Args:
            site: Name of the site (or head) that uses them.
            law: Uniform on [0, 1), or standard normal.
            width: Draws per example.
            samples: Sample numbers.
            rows: Example indices, or keys: unsigned numbers.
        """
        if rows.dtype == np.uint64:
            return torch.from_numpy(keyed_draws(self._seed, site, law, width, samples, rows.astype(np.uint64)))
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


GAMMA = 0x9E3779B97F4A7C15
"""The increment of SplitMix64, the odd number nearest to 2⁶⁴ divided by the golden ratio."""


def keyed_draws(seed: int, site: str, law: Law, width: int, samples: range, keys: Keys) -> NDArray[np.float32]:
    """Return draws ``[samples, keys, width]``, each row's from (seed, site, sample, key) alone.

    Normal draws are √(−2 ln u) cos(2π v) of two uniforms each (Box & Muller, 1958).

    Args:
        seed: The seed.
        site: Name of the site that uses them.
        law: Uniform on [0, 1), or standard normal.
        width: Draws per row.
        samples: Sample numbers.
        keys: The rows.
    """
    first = _mixed(np.array([seed & (2**64 - 1)], dtype=np.uint64)) ^ np.uint64(zlib.crc32(site.encode()))
    numbers: Keys = np.arange(samples.start, samples.stop).astype(np.uint64)
    of_sample = _mixed(_mixed(first) + numbers)
    state = _mixed(of_sample[:, None] ^ _mixed(keys)[None])[..., None]
    count = width if law == "uniform" else 2 * width
    steps: Keys = np.arange(1, count + 1).astype(np.uint64) * np.uint64(GAMMA)
    bits = _mixed(state + steps)
    if law == "uniform":
        return np.asarray((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24))
    lengths = ((bits[..., :width] >> np.uint64(11)) + np.uint64(1)) * 2.0**-53  # in (0, 1]
    angles = (bits[..., width:] >> np.uint64(11)) * (2.0**-52 * np.pi)
    normals: NDArray[np.float32] = (np.sqrt(-2.0 * np.log(lengths)) * np.cos(angles)).astype(np.float32)
    return normals


def _mixed(bits: Keys) -> Keys:
    """Return the output function of SplitMix64, a bijection of 64-bit numbers."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
