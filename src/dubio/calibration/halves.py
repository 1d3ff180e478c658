"""Random halves of a set of examples: seeded, groups kept together, the same for every method.

A half is drawn over what the examples *are*, never over what was predicted for them, so that two methods scored on the
same test set are cut at the same place. With groups the groups are drawn; with ids the draw is over the sorted ids and
does not depend on the order of rows; without either, the position of a row is its identity.
"""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, IntArray


def random_halves(predictions: Predictions, *, repeats: int, seed: int) -> tuple[BoolArray, ...]:
    """One mask a repeat: True where the example lies in the first half.

    Groups stay together; they are drawn in random order and cut where the two sides are most nearly equal.

    Args:
        predictions: What to halve.
        repeats: How many times.
        seed: Draw r comes from ``SeedSequence([seed, r])``, whatever ``repeats`` is.

    Raises:
        UserError: When there are not two examples (groups) to part, or ``repeats`` is below one.
    """
    if repeats < 1:
        raise UserError(f"repeats must be at least 1; given {repeats}.")
    unit = _units(predictions)
    sizes = np.bincount(unit)
    if len(sizes) < 2:
        what = "examples" if predictions.group is None else "groups"
        raise UserError(f"test-time cross-validation needs at least two {what} to part into halves; "
                        f"given {len(sizes)} ({len(predictions)} labelled examples).")
    return tuple(_first_half(sizes, np.random.SeedSequence([seed, index]))[unit] for index in range(repeats))


def _first_half(sizes: IntArray, seed: np.random.SeedSequence) -> BoolArray:
    """Which units lie in the first half."""
    order = np.random.default_rng(seed).permutation(len(sizes))
    filled = np.cumsum(sizes[order])[:-1]
    cut = 1 + int(np.argmin(np.abs(2 * filled - sizes.sum())))
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[:cut]] = True
    return chosen


def _units(predictions: Predictions) -> IntArray:
    """The unit each example belongs to: its group, else its place among the sorted ids, else its row."""
    if predictions.group is not None:
        return np.unique(predictions.group, return_inverse=True)[1].astype(np.int64)
    rows = np.arange(len(predictions), dtype=np.int64)
    if predictions.ids is None:
        return rows
    unit = np.empty_like(rows)
    unit[np.argsort(predictions.ids, kind="stable")] = rows
    return unit
