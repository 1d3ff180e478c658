"""Texts that are nearly the same: MinHash over five-byte shingles, checked by the exact Jaccard similarity.

Each text becomes the set of its five-byte windows, and that set a signature of 64 minima by one-permutation hashing
(Li, Owen and Zhang 2012) with empty bins filled by rotation (Shrivastava and Li 2014): one hash a window, whatever the
size of the signature. Bands of four minima find candidates (a pair of similarity 0.8 is missed with probability
0.0002), and only the likeliest candidate of a text is checked exactly, so that time grows with the length of all texts
and not with the number of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import IntArray

Codes = NDArray[np.uint64]

NEAR = 0.8
"""The Jaccard similarity from which two texts count as nearly the same."""

SHINGLE = 5
_BINS, _BAND = 64, 4
_CANDIDATES = 4  # of one band, for one text: boilerplate shared by thousands must not make thousands of pairs
_BLOCK_BYTES = 1 << 22
_EMPTY = np.uint64(2**64 - 1)


def signatures(texts: Sequence[str]) -> Codes:
    """MinHash signatures ``[N, 64]``; the share of equal entries estimates the Jaccard similarity."""
    made = np.full((len(texts), _BINS), _EMPTY, dtype=np.uint64)
    encoded = [_bytes(text) for text in texts]
    start = 0
    while start < len(encoded):
        stop, size = start, 0
        while stop < len(encoded) and (size == 0 or size + len(encoded[stop]) <= _BLOCK_BYTES):
            size += len(encoded[stop])
            stop += 1
        _fill(made[start:stop], encoded[start:stop])
        start = stop
    return _without_gaps(made)


def jaccard(one: str, other: str) -> float:
    """|A ∩ B| / |A ∪ B| of the sets of five-byte windows of two texts."""
    a, b = (np.unique(_windows(np.frombuffer(_bytes(text), dtype=np.uint8))) for text in (one, other))
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)


def near_matches(
    earlier: Sequence[str], earlier_signatures: Codes, later: Sequence[str], later_signatures: Codes
) -> IntArray:
    """For each later text an earlier one that is nearly the same, or −1."""
    best = np.full(len(later), -1, dtype=np.int64)
    score = np.zeros(len(later))
    for band in range(0, _BINS, _BAND):
        for rows, matches in _candidates(earlier_signatures, later_signatures, slice(band, band + _BAND)):
            estimate = (later_signatures[rows] == earlier_signatures[matches]).mean(axis=1)
            better = estimate > score[rows]
            best[rows[better]] = matches[better]
            score[rows[better]] = estimate[better]
    for row in np.flatnonzero(best >= 0).tolist():
        # 64 minima estimate 0.8 with a deviation of 0.05: below 0.6 an exact check is not worth its time
        if score[row] < NEAR - 0.2 or jaccard(later[row], earlier[best[row]]) < NEAR:
            best[row] = -1
    return best


def _candidates(earlier: Codes, later: Codes, band: slice) -> list[tuple[IntArray, IntArray]]:
    """Pairs (later row, earlier row) that agree on a whole band."""
    keys, asked = _band_keys(earlier[:, band]), _band_keys(later[:, band])
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], asked, side="left")
    last = np.searchsorted(keys[order], asked, side="right")
    found = []
    for step in range(_CANDIDATES):
        rows = np.flatnonzero(first + step < last)
        if len(rows):
            found.append((rows, order[first[rows] + step]))
    return found


def _band_keys(values: Codes) -> Codes:
    key = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        key = _mixed(key ^ column)
    return key


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").ljust(SHINGLE)


def _windows(raw: NDArray[np.uint8]) -> Codes:
    """Every window of five bytes as one number."""
    count = len(raw) - SHINGLE + 1
    codes = np.zeros(count, dtype=np.uint64)
    for offset in range(SHINGLE):
        codes = (codes << np.uint64(8)) | raw[offset : offset + count]
    return codes


def _mixed(codes: Codes) -> Codes:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the code."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


def _fill(rows: Codes, encoded: list[bytes]) -> None:
    """Put the least hash of every bin into the rows of these texts."""
    lengths = np.array([len(raw) for raw in encoded])
    codes = _mixed(_windows(np.frombuffer(b"".join(encoded), dtype=np.uint8)) + np.uint64(0x9E3779B97F4A7C15))
    owner = np.repeat(np.arange(len(encoded)), lengths)[: len(codes)]
    ends = np.repeat(np.cumsum(lengths), lengths)[: len(codes)]
    inside = np.arange(len(codes)) + SHINGLE <= ends  # a window across two texts belongs to neither
    codes, owner = codes[inside], owner[inside]
    bins = (codes >> np.uint64(58)).astype(np.int64)
    np.minimum.at(rows.reshape(-1), owner * _BINS + bins, codes)


def _without_gaps(made: Codes) -> Codes:
    """An empty bin takes the nearest filled one to its right, marked by the distance."""
    filled = made.copy()
    for distance in range(1, _BINS):
        gaps = filled == _EMPTY
        if not gaps.any():
            break
        moved = np.roll(made, -distance, axis=1)
        take = gaps & (moved != _EMPTY)
        filled[take] = _mixed(moved[take] + np.uint64(distance))
    return filled
