"""Random draws by hash: they depend on a seed and on what is drawn from, never on row order, process or platform.

A generator with a fixed seed gives the k-th row the same number in every data set. Where the order of rows depends on
their values (rows sorted by uncertainty, a file sorted by class), a split drawn so is a fixed function of the data, not
a random one, and a guarantee that assumes a random split fails for that seed. A hash of each row alone does not help
where rows have few distinct values: the j-th row of a value has the same number in every data set. So the numbers are
those of SHAKE-256, a hash function with output of any length, on the seed, the purpose and the *whole set* of rows.

**Why this is as good as a fresh random draw for every seed.** A cryptographic hash acts as a random oracle: its outputs
on different inputs are independent and uniform. The input here names the set of rows (id, group, label, predictions of
each) but not their order, and the numbers go to the rows in the order of their digests; rows of one digest are alike in
everything that is used of them, so that it does not matter which of them has which number. Given the set of rows, the
numbers are thus independent, uniform and independent of the data. Another calibration set differs somewhere, hence has
numbers of its own, and over calibration sets one seed behaves like a fresh draw for each.

A use that needs no labels draws from rows whose labels are all set to zero, so that it has one result whether or not
they are known. Rows of one digest then have the same id, group and predictions, which are all that such a use looks at.

Halves of a test set are drawn by name instead (:func:`name_numbers`), without looking at predictions: systems are
compared on the same halves, and no guarantee rests on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b, shake_256

import numpy as np
from numpy.typing import NDArray

from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import IntArray

Numbers = NDArray[np.uint64]

WORD = 8
"""Bytes of a number: of 100,000 numbers two are equal with a probability of 3e-10."""

SETS_IN_MEMORY = 4
"""Test sets whose names' numbers are kept."""


def name_numbers(names: Iterable[str], *, seed: int, count: int) -> Numbers:
    """Return random numbers of each name, ``[N, count]``; a name has the same in every set, the first ones first."""
    return _name_numbers(tuple(names), seed, count)


@lru_cache(maxsize=SETS_IN_MEMORY)
def _name_numbers(names: tuple[str, ...], seed: int, count: int) -> Numbers:
    """Return the same, drawn once for all systems that are scored on a test set."""
    numbers = _numbers(b"".join(_stream(f"{seed}", _encoded(name), count) for name in names)).reshape(-1, count)
    numbers.flags.writeable = False
    return numbers


def unit_numbers(predictions: Predictions, *, seed: int, purpose: str) -> Numbers:
    """Return a random number of each independent unit: of the groups, in the order of their names, else of the rows.

    Args:
        predictions: The rows.
        seed: The seed.
        purpose: Draws for different purposes are independent.
    """
    if predictions.group is None:
        return row_numbers(predictions, seed=seed, purpose=purpose)
    rows, _ = _row_set(predictions)
    return _numbers(_stream(f"{seed} {purpose}", rows, len(np.unique(predictions.group))))


def row_numbers(predictions: Predictions, *, seed: int, purpose: str) -> Numbers:
    """Return a random number of each row, ``[N]``; arguments as of :func:`unit_numbers`."""
    rows, order = _row_set(predictions)
    numbers = np.empty(len(order), dtype=np.uint64)
    numbers[order] = _numbers(_stream(f"{seed} {purpose}", rows, len(order)))
    return numbers


def independent_rows(predictions: Predictions, *, seed: int) -> IntArray:
    """Return one random row of each group, in the order of their names; every row where there are no groups."""
    if predictions.group is None:
        return np.arange(len(predictions))
    order = np.lexsort((row_numbers(predictions, seed=seed, purpose="row of a group"), predictions.group))
    _, first = np.unique(predictions.group[order], return_index=True)
    return order[first]


def _stream(head: str, rows: bytes, count: int) -> bytes:
    return shake_256(head.encode() + b"\0" + rows).digest(WORD * count)


def _numbers(stream: bytes) -> Numbers:
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def _row_set(predictions: Predictions) -> tuple[bytes, IntArray]:
    """Return the digests of the rows, sorted and joined, and the order that sorts them."""
    digests = np.frombuffer(b"".join(_row_digests(predictions)), dtype=">u8").reshape(-1, 2)
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    return digests[order].tobytes(), order


def _row_digests(predictions: Predictions) -> Iterable[bytes]:
    """Yield a digest of each row: of its id, group and label, and of all numbers that were predicted for it."""
    size = len(predictions)
    ids = [""] * size if predictions.ids is None else predictions.ids.tolist()
    groups = [""] * size if predictions.group is None else predictions.group.tolist()
    samples = [predictions.logits, predictions.data_variance]
    samples += [None if predictions.model_variance is None else predictions.model_variance[..., None]]
    for rows in row_blocks(predictions.samples, size, predictions.class_count):
        count = rows.stop - rows.start
        arrays = [array[:, rows].swapaxes(0, 1).astype("<f4", order="C") for array in samples if array is not None]
        arrays += [score[rows].astype("<f8") for _, score in sorted(predictions.scores.items())]
        arrays.append(predictions.labels[rows].astype("<i8"))
        data = np.hstack([array.reshape(count, -1).view(np.uint8) for array in arrays])
        for values, name, group in zip(data, ids[rows], groups[rows], strict=True):
            yield blake2b(_encoded(f"{name}\0{group}\0") + values.tobytes(), digest_size=2 * WORD).digest()


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")  # names of files need not be valid UTF-8
