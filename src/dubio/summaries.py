"""What most metrics need of a multi-class prediction: five numbers a row, found in one pass.

With w the pooled log-probabilities of a row up to a constant, c the decided class, and r = Σ_{k≠c} exp(w_k − w_c)::

    top p̄_c = 1/(1 + r)      rest 1 − p̄_c = r/(1 + r)      log p̄_y = (w_y − w_c) − log(1 + r)

No digits are lost where p̄_c is near one: the rest is summed from the other classes, never taken from one. Logits in
float32 are exponentiated in float32, which moves r by 1e-7 of itself, less than scores are told apart by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.blocks import FloatArray, Room
from dubio.exponentials import FAR
from dubio.kinds import BoolArray, IntArray

TIE = 1e-12
"""Log-probabilities this close to the highest count as equal to it: pooling in another order moves the last bit."""

SPACED = 2.0**-15
"""From this size on, neighbouring float32 numbers differ by more than ``TIE``: only equal ones tie."""

NEAR = (-10.0, 38.0)
"""Where the highest logit of a row may lie for its float32 exponentials, and their squares, to be in range."""

FAINT = 1e-25
"""Sums of float32 exponentials below this are found again in float64, which has room for smaller ones."""

SUMMARY_BYTES = 1 << 21
"""Bytes a block would have in float64; in float32, it and its exponentials stay in the second-level cache."""


@dataclass(frozen=True, eq=False)
class Summary:
    """What a multi-class or ordinal prediction comes down to, every array ``[N]``.

    Attributes:
        chosen: The most probable class; of equally probable ones the first in class order.
        top: max_k p̄_k.
        rest: 1 − max_k p̄_k, summed from the others: exact also where the first is near one.
        rest_squares: Σ_k p̄_k² without the chosen class.
        log_label: log p̄_y; NaN where the row is unlabelled.
    """

    chosen: IntArray
    top: FloatArray
    rest: FloatArray
    rest_squares: FloatArray
    log_label: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Summary]) -> Summary:
        """Summaries one after another."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def take(self, rows: IntArray | slice) -> Summary:
        """The same of these rows."""
        return Summary(*(getattr(self, field.name)[rows] for field in fields(self)))


class Sums:
    """What a pass over blocks of rows collects for the summary, every array ``[N]``.

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
        self, rows: slice, logs: NDArray[Any], labels: IntArray, room: Room, highest: IntArray | None = None
    ) -> None:
        """Collect a block of rows.

        Args:
            rows: Which.
            logs: ``[n, K]`` log-probabilities up to a constant a row, float32 or float64; a finite one in every row.
            labels: ``[n]`` class index, negative where there is none.
            room: Memory to work in.
            highest: ``[n]`` the place of the highest log-probability, where it is known.
        """
        starts = np.arange(0, logs.size, logs.shape[1])
        chosen = logs.argmax(axis=1) if highest is None else highest
        top = logs.ravel()[starts + chosen]
        chosen = decided(logs, chosen, top)
        self.chosen[rows], self.highest[rows] = chosen, top
        self.margin[rows] = logs.ravel()[starts + np.maximum(labels, 0)]
        self.margin[rows] -= self.highest[rows]
        if logs.dtype == np.float32 and NEAR[0] <= top.min() and top.max() <= NEAR[1]:
            self.others[rows], self.squares[rows] = _others(logs, starts + chosen, room, np.float32)
            faint = np.flatnonzero(self.others[rows] < FAINT)
            if len(faint) == 0:
                return
            rows, chosen, logs = rows.start + faint, chosen[faint], logs[faint]
            starts = starts[: len(faint)]
        wide = logs.astype(np.float64)
        if np.abs(self.highest[rows]).max() > FAR:
            wide -= self.highest[rows][:, None]
            self.highest[rows] = 0.0
        self.others[rows], self.squares[rows] = _others(wide, starts + chosen, room, np.float64)

    def summary(self, labels: IntArray) -> Summary:
        """What the sums of all rows come down to."""
        scale = np.exp(-self.highest)
        ratio = self.others * scale
        top = 1.0 / (1.0 + ratio)
        log_label = self.margin - np.log1p(ratio)
        log_label[labels < 0] = np.nan
        return Summary(self.chosen, top, ratio * top, self.squares * np.square(scale * top), log_label)


def _others(
    logs: NDArray[Any], chosen: IntArray, room: Room, dtype: type[np.floating]
) -> tuple[FloatArray, FloatArray]:
    """Sums of the exponentials, and of their squares, but for those at the flat places ``chosen``."""
    values = room.array("values", logs.shape, dtype)
    np.exp(logs, out=values)
    values.ravel()[chosen] = 0.0
    ones = np.ones(logs.shape[1], dtype)
    sums = values @ ones
    return sums, np.square(values, out=values) @ ones


def decided(logs: NDArray[Any], highest: IntArray, top: NDArray[Any]) -> IntArray:
    """The first class within ``TIE`` of the highest of each row, ``[n]``.

    Args:
        logs: ``[n, K]``, float32 or float64.
        highest: ``[n]`` the place of the first highest value of each row.
        top: ``[n]`` that value.
    """
    if logs.dtype == np.float32 and np.abs(top).min() >= SPACED:
        return highest
    close: BoolArray = np.abs(top) < SPACED if logs.dtype == np.float32 else np.ones(len(logs), dtype=bool)
    near = logs[close].astype(np.float64)
    chosen = highest.copy()
    chosen[close] = np.argmax(near >= near.max(axis=1, keepdims=True) - TIE, axis=1)
    return chosen
