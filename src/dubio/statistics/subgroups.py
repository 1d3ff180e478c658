"""Subgroups of rows by the values of a column (a site, a device), and which are too small for a conclusion."""

from __future__ import annotations

import numpy as np

from dubio.core.types import BoolArray, StrArray

UNDERPOWERED = 50
"""A test set, or a part of one, with fewer groups (examples, where there are no groups) is marked as underpowered."""

MOST_SUBGROUPS = 12
"""Values of a column that are shown on their own, the most frequent ones; the others are taken together."""

OTHERS = "all others"


def parts_of(column: StrArray) -> dict[str, BoolArray]:
    """Return value → the rows that have it, the most frequent first; rare ones beyond a dozen are one subgroup."""
    names, counts = np.unique(column, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")].tolist()
    shown = order if len(order) <= MOST_SUBGROUPS else order[: MOST_SUBGROUPS - 1]
    others = {OTHERS: ~np.isin(column, shown)} if len(shown) < len(order) else {}
    return {name: column == name for name in shown} | others
