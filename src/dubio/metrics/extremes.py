"""The examples at the ends: most and least certain, among the right and among the wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import IntArray
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import uncertainty


@dataclass(frozen=True, eq=False)
class Extremes:
    """Rows of predictions, each list in order: the most certain first, and the least certain first."""

    sure_right: IntArray
    sure_wrong: IntArray
    unsure_right: IntArray
    unsure_wrong: IntArray

    @property
    def rows(self) -> IntArray:
        """All of them, each once, in ascending order."""
        return np.unique(np.concatenate([self.sure_right, self.sure_wrong, self.unsure_right, self.unsure_wrong]))


def extreme_rows(predictions: Predictions, *, count: int, quantity: str = "predictive_entropy") -> Extremes:
    """The labelled rows of highest and of lowest certainty, of equally certain ones the first.

    Where there are fewer than twice as many right (or wrong) rows as asked for, the sure and the unsure share them.

    Args:
        predictions: Of any target; rows without a label are passed over.
        count: How many rows of each sort.
        quantity: What certainty is measured by.
    """
    known = np.flatnonzero(np.ones(len(predictions)) if predictions.target == "multilabel" else predictions.labels >= 0)
    if len(known) == 0:
        return Extremes(*(np.empty(0, dtype=np.int64) for _ in range(4)))
    here = predictions.labelled
    order = np.argsort(uncertainty(here, quantity), kind="stable")
    right = correct(here)[order]
    sides = [known[order[right]], known[order[~right]]]
    sure = [side[: min(count, (len(side) + 1) // 2)] for side in sides]
    unsure = [side[max(len(side) - count, (len(side) + 1) // 2) :][::-1] for side in sides]
    return Extremes(sure[0], sure[1], unsure[0], unsure[1])
