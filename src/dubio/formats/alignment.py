"""Align the predictions of several systems on the same examples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import StrArray


def align(systems: Mapping[str, Predictions]) -> dict[str, Predictions]:
    """Return the same examples in the same order for every system, by their ids where all have them.

    Raises:
        UserError: When the systems are not about the same examples, classes or target, saying which differ and how.
    """
    names = list(systems)
    if not names:
        raise UserError("there is no system to evaluate.")
    first = systems[names[0]]
    aligned = {names[0]: first}
    for name in names[1:]:
        other = systems[name]
        pair = f"systems {names[0]!r} and {name!r} cannot be compared"
        for fact, what in (("target", "target"), ("class_count", "number of classes")):
            if getattr(first, fact) != getattr(other, fact):
                values = f"{getattr(first, fact)} in one and {getattr(other, fact)} in the other"
                raise UserError(f"{pair}: the {what} is {values}.")
        if first.classes is not None and other.classes is not None and first.classes != other.classes:
            raise UserError(f"{pair}: they name different classes, or in another order.")
        if len(first) != len(other):
            raise UserError(f"{pair}: one has {len(first)} rows and the other {len(other)}.")
        if first.ids is not None and other.ids is not None:
            other = _in_order(first.ids, other, other.ids, pair)
        _check_same_rows(first, other, pair)
        aligned[name] = other
    return aligned


def _in_order(order: StrArray, other: Predictions, ids: StrArray, pair: str) -> Predictions:
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    missing = [name for name in order.tolist() if name not in row_of]
    if missing:
        raise UserError(f"{pair}: id {missing[0]!r} is in one and not in the other ({len(missing)} such).")
    rows = np.array([row_of[name] for name in order.tolist()], dtype=np.int64)
    return other if (rows == np.arange(len(rows))).all() else other.take(rows)


def _check_same_rows(first: Predictions, other: Predictions, pair: str) -> None:
    for column in ("labels", "ood"):
        differ = getattr(first, column) != getattr(other, column)
        if differ.any():
            row = int(np.argwhere(differ)[0][0])
            hint = "" if first.ids is not None and other.ids is not None else " Give ids to align them."
            raise UserError(f"{pair}: {column} differ, first in row {row} (from 0).{hint}")
