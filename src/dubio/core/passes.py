"""Passes over blocks of rows: small enough for the cache, in one thread or several, and in bounded memory.

An array ``[S, N, K]`` of logits may be far larger than memory. It is worked through in blocks of rows with all samples
and classes of each; a pass keeps about one number per row between blocks. Pages of a memory-mapped file are given back
as the pass goes on, so that resident memory does not grow with the file.

*Exponentials.* One exponential per value is all that pooling and entropies need: with e = exp(z) and t = Σ_k e_k, the
probability is e/t and its entropy log t − Σ_k e_k z_k / t. Logits within ±69 are not even shifted. Every row is summed
on its own, so its result does not depend on which block it is in.

*Pooling.* The predictive distribution of a method with S samples is the mean of probabilities, p̄ = (1/S) Σ_s p_s, never
the softmax of mean logits. p = 0 and p = 1 stay exact; a mean too small for a double is found in log space,
log p̄ = logsumexp_s log p_s − log S.

*Summary.* Most metrics need five numbers per row of a multi-class prediction, found in one pass. With w the pooled
log-probabilities of a row up to a constant, c the decided class, and r = Σ_{k≠c} exp(w_k − w_c)::

    top p̄_c = 1/(1 + r)      complement 1 − p̄_c = r/(1 + r)      log p̄_y = (w_y − w_c) − log(1 + r)

No digits are lost where p̄_c is near one: the complement is summed from the other classes, never subtracted from one.
Logits in float32 are exponentiated in float32, which moves r by 1e-7 of itself, less than any score resolves.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.types import FloatArray, IntArray

BLOCK_BYTES = 5 << 17
"""Bytes of float64 logits that one block of rows may hold: it and its exponentials stay in the second-level cache."""

SHARED_BLOCKS = 8
"""Blocks are larger by this factor when threads share them: each call then outlasts the handing over of Python's lock,
which costs more than the second-level cache saves."""

MAPPED_BYTES = 1 << 26
"""Bytes of a mapped file that one thread reads before its pages are given back."""

_LINE = 64
"""Bytes of a cache line: vectors that straddle two lines take a sixth longer."""

_THREADS: ContextVar[int] = ContextVar("threads", default=1)


def row_blocks(samples: int, rows: int, classes: int, *, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices over rows such that one block of all samples and classes stays small.

    Args:
        samples: Samples per row.
        rows: Number of rows.
        classes: Classes per row.
        block_bytes: Bytes of float64 values a block may hold.
    """
    step = max(1, block_bytes // max(1, 8 * samples * classes))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Share the blocks of passes within the block among this number of threads; results do not change.

    Args:
        count: At least one; one is the default.

    Raises:
        UserError: For fewer.
    """
    if count < 1:
        raise UserError(f"threads must be at least 1; given {count}.")
    token = _THREADS.set(count)
    try:
        yield
    finally:
        _THREADS.reset(token)


class Scratch:
    """Memory that one thread uses again for every block, so that a pass allocates once."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type[np.floating] = np.float64) -> FloatArray:
        """Return an uninitialised array, valid until the same name is requested again."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            raw = np.empty(size + _LINE, dtype=np.uint8)
            buffer = self._buffers[name] = raw[-raw.ctypes.data % _LINE :][:size]
        return buffer[:size].view(dtype).reshape(shape)


Work = Callable[[slice, Scratch], None]


def over_rows(array: NDArray[Any], work: Work, *, block_bytes: int = BLOCK_BYTES) -> None:
    """Call a function for every block of rows of an array ``[S, N, K]``.

    Args:
        array: The array that the function reads; if it is mapped from a file, its pages are given back on the way.
        work: Called with the rows of a block and the scratch memory of its thread; must write to these rows alone.
        block_bytes: Bytes of float64 values a block may hold.
    """
    available = _THREADS.get()
    size = block_bytes if available == 1 else SHARED_BLOCKS * block_bytes
    blocks = list(row_blocks(*array.shape, block_bytes=size))
    count = min(available, len(blocks))
    if count == 1:
        _run(array, work, blocks)
        return
    cuts = [len(blocks) * index // count for index in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(_run, array, work, blocks[cuts[i] : cuts[i + 1]]) for i in range(count)]
        for future in futures:
            future.result()


def _run(array: NDArray[Any], work: Work, blocks: list[slice]) -> None:
    scratch, mapping = Scratch(), mapping_of(array)
    row_bytes = array.nbytes // array.shape[1]
    unreleased = 0
    for rows in blocks:
        work(rows, scratch)
        unreleased += (rows.stop - rows.start) * row_bytes
        if mapping is not None and unreleased >= MAPPED_BYTES:
            mapping.madvise(mmap.MADV_DONTNEED)
            unreleased = 0
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the read-only file mapping that an array is a view of, or None; only its pages can be dropped safely."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode != "r":
            return None
        base = base.base
    # Windows cannot give pages back on request; there the system itself trims them.
    return base if isinstance(base, mmap.mmap) and hasattr(base, "madvise") else None


FAR = 69.0
"""Logits up to this size are exponentiated as they are: nothing overflows, and squares do not either."""

_LOW, _HIGH = float(np.exp(-FAR)), float(np.exp(FAR))


class Exponentials(NamedTuple):
    """Of a block: logits ``[S, n, K]`` in float64 (shifted where needed), their exponentials, and ``[S, n]`` totals."""

    logits: FloatArray
    values: FloatArray
    totals: FloatArray


def exponentials(block: NDArray[Any], scratch: Scratch) -> Exponentials:
    """Return the exponentials of logits ``[S, n, K]``; every row must have a finite one."""
    logits, values = scratch.array("logits", block.shape), scratch.array("values", block.shape)
    np.copyto(logits, block)
    with np.errstate(over="ignore", under="ignore"):
        np.exp(logits, out=values)
        totals = row_sums(values)
        if not (totals.min() > _LOW and totals.max() < _HIGH):
            logits -= logits.max(axis=-1, keepdims=True)
            np.exp(logits, out=values)
            totals = row_sums(values)
    return Exponentials(logits, values, totals)


def row_sums(values: FloatArray) -> FloatArray:
    """Return Σ_k over the last axis."""
    return np.asarray(np.matmul(values[..., None, :], np.ones((values.shape[-1], 1), values.dtype))[..., 0, 0])


def row_products(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Σ_k a_k b_k over the last axis."""
    return np.asarray(np.matmul(first[..., None, :], second[..., :, None])[..., 0, 0])


def mean_over_samples(block: Exponentials) -> FloatArray:
    """Return p̄ = mean_s e_s / t_s of a block, ``[n, K]``."""
    weights = 1.0 / (block.totals * len(block.totals))
    return np.asarray(np.matmul(weights.T[:, None, :], block.values.transpose(1, 0, 2))[:, 0])


TINY = 1e-280
"""Mean probabilities below this are found again in log space: they may have lost samples that are too small."""


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return the log-softmax over the last axis; −inf logits give −inf, never NaN."""
    top = np.max(logits, axis=-1, keepdims=True)
    shifted = logits - np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        shifted -= np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return shifted


def log_sigmoid(logits: FloatArray) -> FloatArray:
    """Return log σ(z) = −log(1 + e^{−z}), without overflow; −inf gives −inf."""
    return -np.logaddexp(0.0, -logits)


def log_mean_exp(values: FloatArray) -> FloatArray:
    """Return the logarithm of the mean of exponentials over the first axis."""
    top = np.max(values, axis=0, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out: FloatArray = np.log(np.mean(np.exp(values - safe), axis=0)) + safe[0]
    return out


def pool_softmax(logits: NDArray[Any], temperature: float, scratch: Scratch | None = None) -> FloatArray:
    """Return log p̄ of a block [S, n, K] of softmax logits, at a temperature applied after pooling.

    Args:
        logits: Every row of every sample has a finite one.
        temperature: Applied to log p̄.
        scratch: Memory to work in.
    """
    if len(logits) == 1:
        pooled = log_softmax(logits[0].astype(np.float64))
    else:
        mean = mean_over_samples(exponentials(logits, Scratch() if scratch is None else scratch))
        lost = (mean < TINY).any(axis=1)
        with np.errstate(divide="ignore"):
            pooled = np.log(mean, out=mean)
        if lost.any():
            pooled[lost] = log_mean_exp(log_softmax(logits[:, lost].astype(np.float64)))
    return pooled if temperature == 1.0 else log_softmax(pooled / temperature)


def pool_sigmoid(logits: FloatArray, temperature: float) -> tuple[FloatArray, FloatArray]:
    """Return (log p̄, log(1 − p̄)) of a block [S, n, K] of per-label logits, at a temperature applied after pooling."""
    wide = logits.astype(np.float64)
    yes, no = log_mean_exp(log_sigmoid(wide)), log_mean_exp(log_sigmoid(-wide))
    if temperature == 1.0:
        return yes, no
    with np.errstate(invalid="ignore"):
        odds = (yes - no) / temperature
    return log_sigmoid(odds), log_sigmoid(-odds)


TIE = 1e-12
"""Log-probabilities this close to the highest count as equal to it: pooling in another order moves the last bit."""

SPACED = 2.0**-15
"""From this size on, neighbouring float32 numbers differ by more than ``TIE``: only equal ones tie."""

NEAR = (-10.0, 38.0)
"""Where the highest logit of a row may lie for its float32 exponentials, and their squares, to be in range."""

FAINT = 1e-25
"""Sums of float32 exponentials below this are found again in float64, which reaches further down."""

SUMMARY_BYTES = 1 << 21
"""Bytes a block would have in float64; in float32, it and its exponentials stay in the second-level cache."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Decision and probabilities of a multi-class or ordinal prediction, every array ``[N]``.

    Attributes:
        chosen: The most probable class; of equally probable ones the first in class order.
        top: max_k p̄_k.
        complement: 1 − max_k p̄_k, summed from the other classes: exact also where the first is near one.
        other_squares: Σ_k p̄_k² without the chosen class.
        log_label: log p̄_y; NaN where the row is unlabelled.
    """

    chosen: IntArray
    top: FloatArray
    complement: FloatArray
    other_squares: FloatArray
    log_label: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Summary]) -> Summary:
        """Return the summaries of several sets of rows as one."""
        return cls(*(np.concatenate([getattr(item, field.name) for item in parts]) for field in fields(cls)))

    def take(self, rows: IntArray | slice) -> Summary:
        """Return the summary of these rows."""
        return Summary(*(getattr(self, field.name)[rows] for field in fields(self)))


class RowSums:
    """The sums that a pass over blocks of rows collects for the summary, every array ``[N]``.

    Attributes:
        chosen: c, the decided class.
        highest: w_c, as it was exponentiated.
        margin: w_y − w_c.
        others: Σ_{k≠c} e^{w_k}.
        squares: Σ_{k≠c} e^{2 w_k}.
    """

    def __init__(self, rows: int) -> None:
        self.chosen = np.empty(rows, dtype=np.int64)
        self.highest, self.margin, self.others, self.squares = (np.empty(rows) for _ in range(4))

    def fill(
        self, rows: slice, logs: NDArray[Any], labels: IntArray, scratch: Scratch, highest: IntArray | None = None
    ) -> None:
        """Collect a block of rows.

        Args:
            rows: The rows of the block.
            logs: ``[n, K]`` log-probabilities up to a constant per row, float32 or float64; a finite one in every row.
            labels: ``[n]`` class index, negative where there is none.
            scratch: Memory to work in.
            highest: ``[n]`` the class of the highest log-probability, where it is known.
        """
        starts = np.arange(0, logs.size, logs.shape[1])
        chosen = logs.argmax(axis=1) if highest is None else highest
        top = logs.ravel()[starts + chosen]
        chosen = decided(logs, chosen, top)
        self.chosen[rows], self.highest[rows] = chosen, top
        self.margin[rows] = logs.ravel()[starts + np.maximum(labels, 0)]
        self.margin[rows] -= self.highest[rows]
        if logs.dtype == np.float32 and NEAR[0] <= top.min() and top.max() <= NEAR[1]:
            values = scratch.array("values", logs.shape, np.float32)
            self.others[rows], self.squares[rows] = sums_of_others(logs, starts + chosen, values)
            faint = np.flatnonzero(self.others[rows] < FAINT)
            if len(faint) == 0:
                return
            rows, chosen, logs = rows.start + faint, chosen[faint], logs[faint]
            starts = starts[: len(faint)]
        wide = logs.astype(np.float64, copy=False)
        if np.abs(self.highest[rows]).max() > FAR:
            wide = wide - self.highest[rows][:, None]
            self.highest[rows] = 0.0
        values = scratch.array("values", wide.shape)
        self.others[rows], self.squares[rows] = sums_of_others(wide, starts + chosen, values)

    def summary(self, labels: IntArray) -> Summary:
        """Return the summary of all rows."""
        scale = np.exp(-self.highest)
        ratio = self.others * scale
        top = 1.0 / (1.0 + ratio)
        log_label = self.margin - np.log1p(ratio)
        log_label[labels < 0] = np.nan
        return Summary(self.chosen, top, ratio * top, self.squares * np.square(scale * top), log_label)


def sums_of_others(
    logs: NDArray[Any], chosen: IntArray, values: NDArray[Any] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of the exponentials, and of their squares, without those at the flat indices ``chosen``.

    Args:
        logs: ``[n, K]``, float32 or float64; the sums are of the same type.
        chosen: ``[n]``.
        values: Memory to work in, ``[n, K]``.
    """
    values = np.exp(logs, out=values)
    values.ravel()[chosen] = 0.0
    ones = np.ones(logs.shape[1], logs.dtype)
    sums = values @ ones
    return sums, np.square(values, out=values) @ ones


def decided(logs: NDArray[Any], highest: IntArray, top: NDArray[Any]) -> IntArray:
    """Return the first class within ``TIE`` of the highest of each row, ``[n]``.

    Args:
        logs: ``[n, K]``, float32 or float64.
        highest: ``[n]`` the index of the first highest value of each row.
        top: ``[n]`` that value.
    """
    if logs.dtype != np.float32:
        return np.asarray(np.argmax(logs >= top[:, None] - TIE, axis=1))
    close, chosen = np.flatnonzero(np.abs(top) < SPACED), highest.copy()
    if len(close):
        chosen[close] = np.argmax(logs[close] >= top[close, None].astype(np.float64) - TIE, axis=1)
    return chosen
