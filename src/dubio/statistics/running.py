"""Prefix sums over rows in a fixed order, for many replicates at once.

A prefix sum goes from row to row, one addition waiting for the other, unless many sums run side by side. Here the
order is cut into about √N stretches, and row j of every stretch lies beside row j of the others: the j-th step adds one
long contiguous vector, all stretches of all replicates, to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import BoolArray, IntArray
from dubio.metrics.ranking import Ordering

SMALL = 1 << 30
"""Sums below this are kept in 32 bits, and so are sums of two of them."""


class Stretches:
    """Where each place of an order lies when it is cut into stretches.

    Attributes:
        count: How many places there are.
        rows: ``[depth · stretches]``, the row at every slot; some row or other at the slots past the last place.
    """

    def __init__(self, order: IntArray) -> None:
        self.count = len(order)
        self._depth = max(1, int(np.sqrt(self.count)))
        self._stretches = -(-self.count // self._depth)
        padded = np.zeros(self._depth * self._stretches, dtype=np.int64)
        padded[: self.count] = order
        self.rows = np.ascontiguousarray(padded.reshape(self._stretches, self._depth).T).ravel()
        self._past = self.slots(np.arange(self.count, len(padded)))

    def slots(self, places: IntArray) -> IntArray:
        """The slots of places in the order."""
        return (places % self._depth) * self._stretches + places // self._depth

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums up to and with every place, by slot ``[slots, R]``, of values by slot, which are overwritten."""
        values[self._past] = 0
        steps = values.reshape(self._depth, self._stretches, *values.shape[1:])
        totals = steps.sum(axis=0, dtype=values.dtype)
        steps[0, 1:] += np.cumsum(totals[:-1], axis=0, dtype=values.dtype)
        for step in range(1, self._depth):
            np.add(steps[step], steps[step - 1], out=steps[step])
        return values

    def counted(self, counts: NDArray[np.unsignedinteger], most: float) -> NDArray[np.signedinteger]:
        """Sums of the counts ``[N, R]`` of all rows up to and with every place, by slot.

        Args:
            counts: By row.
            most: No sum is above this.
        """
        placed = counts.take(self.rows, axis=0).astype(np.int32 if most < SMALL else np.int64)
        return self.sums(placed)


class Marked:
    """The marked rows of an ordering, and the weight that lies below and beside each of them.

    Attributes:
        rows: ``[M]``, the marked rows, lowest score first.
        tied: Places in ``rows`` of those that share their block with another row, marked or not.
    """

    def __init__(self, ordering: Ordering, marks: BoolArray) -> None:
        at = np.flatnonzero(marks[ordering.order])
        ends = np.append(ordering.starts[1:], len(ordering.order))
        own = ordering.block[at]
        start, end = ordering.starts[own], ends[own]
        self.rows = ordering.order[at]
        self.tied = np.flatnonzero(end - start > 1)
        self._stretches = Stretches(ordering.order)
        self._lowest = np.flatnonzero(start == 0)
        self._before, self._upto = self._stretches.slots(np.maximum(start - 1, 0)), self._stretches.slots(end - 1)
        self._among = Stretches(self.rows)
        self._last = self._among.slots(np.searchsorted(at, end) - 1)

    def beside(
        self, counts: NDArray[np.unsignedinteger], most: float
    ) -> tuple[NDArray[np.signedinteger], NDArray[np.signedinteger]]:
        """For each marked row, ``[M, R]``: all weight in lower blocks, and all weight up to the end of its own."""
        sums = self._stretches.counted(counts, most)
        before = sums.take(self._before, axis=0)
        before[self._lowest] = 0
        return before, sums.take(self._upto, axis=0)

    def marked_upto(self, counts: NDArray[np.unsignedinteger], most: float) -> NDArray[np.signedinteger]:
        """For each marked row, the weight of the marked rows up to the end of its block, ``[M, R]``."""
        return self._among.counted(counts, most).take(self._last, axis=0)
