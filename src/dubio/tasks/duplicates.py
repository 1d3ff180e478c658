"""Rows that two splits share: the same content, or nearly the same.

*Images* are compared as grey thumbnails of at most 16×16 (block means); two are near when those differ by at most two
grey levels, root mean square: a copy saved again or resized is found, another picture of the same object is not.
*Table rows* are compared after standardising columns with the mean and deviation of the first split (missing values at
the mean); two are near when they differ by at most 0.01 deviations, root mean square.

*Texts* are compared by MinHash over five-byte shingles, checked by the exact Jaccard similarity. Each text becomes the
set of its five-byte windows, and that set a signature of 64 minima by one-permutation hashing (Li, Owen and Zhang 2012)
with empty bins filled by rotation (Shrivastava and Li 2014): one hash per window, whatever the size of the signature.
Bands of four minima find candidates (a pair of similarity 0.8 is missed with probability 0.0002), and only the
likeliest candidate of a text is checked exactly, so that time grows with the length of all texts and not with the
number of pairs.

Nothing is removed: shared rows are noted, for the reader to judge.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import LazyRows, row_keys
from dubio.core.types import Examples, IntArray, Modality, Split

Points = NDArray[np.float64]

SIDE = 16
IMAGE_TOLERANCE = 2.0
TABLE_TOLERANCE = 0.01
_BLOCK = 512


def grey_thumbnails(images: NDArray[np.uint8] | LazyRows) -> Points:
    """Return grey block means ``[N, h·w]`` of images ``[N, H, W, C]``, h and w at most 16."""
    count, height, width = images.shape[:3]
    rows = np.linspace(0, height, min(height, SIDE) + 1).astype(int)
    columns = np.linspace(0, width, min(width, SIDE) + 1).astype(int)
    areas = np.diff(rows)[:, None] * np.diff(columns)[None, :]
    means = np.empty((count, len(rows) - 1, len(columns) - 1))
    for start in range(0, count, _BLOCK):
        block = images[start : start + _BLOCK].astype(np.float32)
        grey = block if block.ndim == 3 else block.mean(axis=3)
        summed = np.add.reduceat(np.add.reduceat(grey, rows[:-1], axis=1), columns[:-1], axis=2)
        means[start : start + _BLOCK] = summed / areas
    return means.reshape(count, -1)


@np.errstate(over="ignore", invalid="ignore")
def standardize(values: NDArray[Any], reference: NDArray[Any]) -> Points:
    """Return columns in deviations of the reference rows; missing values and constant columns become 0."""
    filled = np.where(np.isnan(reference), 0.0, reference)
    count = np.maximum((~np.isnan(reference)).sum(axis=0), 1)
    mean = filled.sum(axis=0) / count
    deviation = np.sqrt(np.where(np.isnan(reference), 0.0, np.square(reference - mean)).sum(axis=0) / count)
    points = (values - mean) / np.where(deviation > 0, deviation, 1.0)
    return np.where(np.isnan(points), 0.0, points)


@np.errstate(over="ignore", invalid="ignore")  # a distance that overflows is not near
def near_points(earlier: Points, later: Points, tolerance: float) -> IntArray:
    """Return for each later point the nearest earlier one within the root mean square tolerance, or −1."""
    centre = earlier.mean(axis=0)  # far from zero, the expanded square would cancel
    fixed, moved = earlier - centre, later - centre
    lengths = np.square(fixed).sum(axis=1)
    best = np.full(len(later), -1, dtype=np.int64)
    limit = tolerance**2 * earlier.shape[1]
    for start in range(0, len(later), _BLOCK):
        block = moved[start : start + _BLOCK]
        nearest = np.argmin(lengths - 2 * block @ fixed.T, axis=1)
        # the product only ranks; whether the nearest is near is decided by the difference itself
        near = np.square(block - fixed[nearest]).sum(axis=1) <= limit
        best[start : start + _BLOCK] = np.where(near, nearest, -1)
    return best


Codes = NDArray[np.uint64]

NEAR = 0.8
"""The Jaccard similarity from which two texts count as nearly the same."""

SHINGLE = 5
_BINS, _BAND = 64, 4
_CANDIDATES = 4  # of one band, for one text: boilerplate shared by thousands must not make thousands of pairs
_BLOCK_BYTES = 1 << 22
_EMPTY = np.uint64(2**64 - 1)


def signatures(texts: Sequence[str]) -> Codes:
    """Return MinHash signatures ``[N, 64]``; the share of equal entries estimates the Jaccard similarity."""
    minima = np.full((len(texts), _BINS), _EMPTY, dtype=np.uint64)
    encoded = [_bytes(text) for text in texts]
    blocks = np.cumsum([len(raw) for raw in encoded], dtype=np.int64) // _BLOCK_BYTES
    bounds = np.flatnonzero(np.diff(blocks, prepend=-1, append=-1)).tolist()
    for start, stop in itertools.pairwise(bounds):
        _fill(minima[start:stop], encoded[start:stop])
    return _without_gaps(minima)


def jaccard(one: str, other: str) -> float:
    """Return |A ∩ B| / |A ∪ B| of the sets of five-byte windows of two texts."""
    a, b = (np.unique(_windows(np.frombuffer(_bytes(text), dtype=np.uint8))) for text in (one, other))
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)


def near_matches(
    earlier: Sequence[str], earlier_signatures: Codes, later: Sequence[str], later_signatures: Codes
) -> IntArray:
    """Return for each later text an earlier one that is nearly the same, or −1."""
    best = np.full(len(later), -1, dtype=np.int64)
    score = np.zeros(len(later))
    for band in range(0, _BINS, _BAND):
        for rows, matches in _candidates(earlier_signatures, later_signatures, slice(band, band + _BAND)):
            estimate = (later_signatures[rows] == earlier_signatures[matches]).mean(axis=1)
            better = estimate > score[rows]
            best[rows[better]] = matches[better]
            score[rows[better]] = estimate[better]
    for row in np.flatnonzero(best >= 0).tolist():
        # 64 minima estimate 0.8 with a deviation of 0.05: below 0.6 an exact check does not pay
        if score[row] < NEAR - 0.2 or jaccard(later[row], earlier[best[row]]) < NEAR:
            best[row] = -1
    return best


def _candidates(earlier: Codes, later: Codes, band: slice) -> list[tuple[IntArray, IntArray]]:
    """Return pairs (later row, earlier row) that agree on a whole band."""
    keys, queries = _band_keys(earlier[:, band]), _band_keys(later[:, band])
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], queries, side="left")
    last = np.searchsorted(keys[order], queries, side="right")
    steps = ((step, np.flatnonzero(first + step < last)) for step in range(_CANDIDATES))
    return [(rows, order[first[rows] + step]) for step, rows in steps if len(rows)]


def _band_keys(values: Codes) -> Codes:
    key = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        key = _mixed(key ^ column)
    return key


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").ljust(SHINGLE)


def _windows(raw: NDArray[np.uint8]) -> Codes:
    """Return every window of five bytes as one number."""
    count = len(raw) - SHINGLE + 1
    codes = np.zeros(count, dtype=np.uint64)
    for offset in range(SHINGLE):
        codes = (codes << np.uint64(8)) | raw[offset : offset + count]
    return codes


def _mixed(codes: Codes) -> Codes:
    """Apply the finaliser of SplitMix64: every bit of the result depends on every bit of the code."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


def _fill(rows: Codes, encoded: list[bytes]) -> None:
    """Write the least hash of every bin into the rows of these texts."""
    lengths = np.array([len(raw) for raw in encoded])
    codes = _mixed(_windows(np.frombuffer(b"".join(encoded), dtype=np.uint8)) + np.uint64(0x9E3779B97F4A7C15))
    owner = np.repeat(np.arange(len(encoded)), lengths)[: len(codes)]
    ends = np.repeat(np.cumsum(lengths), lengths)[: len(codes)]
    inside = np.arange(len(codes)) + SHINGLE <= ends  # a window across two texts belongs to neither
    codes, owner = codes[inside], owner[inside]
    bins = (codes >> np.uint64(58)).astype(np.int64)
    np.minimum.at(rows.reshape(-1), owner * _BINS + bins, codes)


def _without_gaps(minima: Codes) -> Codes:
    """Fill an empty bin from the nearest filled one to its right, marked by the distance."""
    filled = minima.copy()
    for distance in range(1, _BINS):
        gaps = filled == _EMPTY
        if not gaps.any():
            break
        moved = np.roll(minima, -distance, axis=1)
        take = gaps & (moved != _EMPTY)
        filled[take] = _mixed(moved[take] + np.uint64(distance))
    return filled


_WORDS = re.compile(r"\w+")
_FITTED = ("train", "val", "cal")


@dataclass(frozen=True)
class SharedRows:
    """The rows that a later split shares with an earlier one.

    Attributes:
        earlier: Name of the split that training, selection or calibration sees.
        later: Name of the split that comes after it.
        rows: Rows of the later split.
        exact: Number of them with the same content as an earlier row.
        near: Number of others that are nearly the same as an earlier row.
        example: Ids (or row numbers) of one such pair: earlier, later.
    """

    earlier: str
    later: str
    rows: int
    exact: int
    near: int
    example: tuple[str, str]

    def sentence(self) -> str:
        """Return a sentence for the notes of a task."""
        both = self.exact + self.near
        return (
            f"Rows of {self.later} that are also in {self.earlier}: {both:,} of {self.rows:,} "
            f"({100 * both / self.rows:.1f} %), {self.exact:,} the same and {self.near:,} nearly the same; for example "
            f"{self.example[1]} of {self.later} and {self.example[0]} of {self.earlier}."
        )


def shared_rows(splits: Sequence[Split], inputs: Modality) -> tuple[SharedRows, ...]:
    """Return every pair of splits that share rows, where the earlier one is train, val or cal.

    Args:
        splits: In the task's order.
        inputs: The modality of an example.
    """
    fitted = [split for split in splits if split.kind in _FITTED]
    keys = {split.name: _RowKeys.of(split.data, inputs, fitted[0].data) for split in splits if fitted}
    pairs = [(one, two) for one, two in itertools.combinations(splits, 2) if one.kind in _FITTED]
    shared = (_compare(one, two, keys[one.name], keys[two.name], inputs) for one, two in pairs)
    return tuple(item for item in shared if item is not None)


def shared_sentences(splits: Sequence[Split], inputs: Modality) -> list[str]:
    """Return a sentence on every pair of splits that share rows; rows that take hours to read are not compared."""
    if any(isinstance(split.data.inputs, LazyRows) and split.data.inputs.costly for split in splits):
        return ["Not checked for rows that two splits share: it would take hours."]
    return [pair.sentence() for pair in shared_rows(splits, inputs)]


@dataclass(frozen=True, eq=False)
class _RowKeys:
    """The keys of a split's rows: exact keys (texts: their words), and signatures or points to find near ones."""

    keys: list[Any]
    points: NDArray[Any]

    @classmethod
    def of(cls, data: Examples, inputs: Modality, reference: Examples) -> _RowKeys:
        if isinstance(data.inputs, tuple):
            texts = [normalize_text(text) for text in data.inputs]
            return cls(texts, signatures(texts))
        if inputs == "image":
            return cls(row_keys(data.inputs), grey_thumbnails(data.inputs))
        return cls(row_keys(data.inputs), standardize(np.asarray(data.inputs), np.asarray(reference.inputs)))


def normalize_text(text: str) -> str:
    """Return the words of a text in lower case, one space between them; the text itself where it has no word."""
    return " ".join(_WORDS.findall(text.lower())) or text.strip()


def _compare(earlier: Split, later: Split, old: _RowKeys, new: _RowKeys, inputs: Modality) -> SharedRows | None:
    first: dict[Any, int] = {}
    for row, key in enumerate(old.keys):
        first.setdefault(key, row)
    match = np.array([first.get(key, -1) for key in new.keys], dtype=np.int64)
    exact = int((match >= 0).sum())
    unmatched = np.flatnonzero(match < 0)
    if len(unmatched) and len(old.keys):
        match[unmatched] = _near(old, new, unmatched, inputs)
    rows = np.flatnonzero(match >= 0)
    if len(rows) == 0:
        return None
    pair = (_name(earlier.data, int(match[rows[0]])), _name(later.data, int(rows[0])))
    return SharedRows(earlier.name, later.name, len(later), exact, len(rows) - exact, pair)


def _near(old: _RowKeys, new: _RowKeys, rows: IntArray, inputs: Modality) -> IntArray:
    if inputs == "text":
        return near_matches(old.keys, old.points, [new.keys[row] for row in rows.tolist()], new.points[rows])
    tolerance = IMAGE_TOLERANCE if inputs == "image" else TABLE_TOLERANCE
    return near_points(old.points, new.points[rows], tolerance)


def _name(data: Examples, row: int) -> str:
    return f"row {row}" if data.ids is None else str(data.ids[row])
