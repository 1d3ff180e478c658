"""Subgroups as a manifest tells them: for every row of a split, which hospital, which quality, and so on.

They are written as ``{split: {fact: {"values": [...], "rows": "0 0 1 …"}}}``: the rows of a split never change under
its fingerprint, so that a number a row says it all, in a line that stays short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dubio.core.types import StrArray
from dubio.reporting.scope import printable

MOST = 12
"""Values of a fact that are shown on their own, the most frequent ones; the others are taken together."""

OTHERS = "all others"

Facts = Mapping[str, Mapping[str, StrArray]]
"""Split → fact → value of each row."""


def read_facts(entry: Mapping[str, Any], sizes: Mapping[str, int]) -> Facts:
    """The facts of a task's manifest entry.

    Args:
        entry: The entry.
        sizes: Split → how many rows it has.

    Raises:
        ValueError: When a fact has another number of rows than its split, or a row names no value.
    """
    found: dict[str, dict[str, StrArray]] = {}
    for split, facts in (entry.get("facts") or {}).items():
        for fact, told in facts.items():
            values = np.array([printable(value) for value in told["values"]], dtype=np.str_)
            rows = np.array(str(told["rows"]).split(), dtype=np.int64)
            if len(rows) != sizes.get(split) or rows.min(initial=0) < 0 or rows.max(initial=0) >= len(values):
                raise ValueError(f"fact {fact!r} of split {split!r} does not fit its rows")
            found.setdefault(printable(split), {})[printable(fact)] = values[rows]
    return found


def parts_of(column: StrArray) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Value → which rows have it, the most frequent first; rare ones beyond a dozen are one part."""
    names, counts = np.unique(column, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")].tolist()
    kept = order if len(order) <= MOST else order[: MOST - 1]
    parts = {name: column == name for name in kept}
    if len(kept) < len(order):
        parts[OTHERS] = ~np.isin(column, kept)
    return parts
