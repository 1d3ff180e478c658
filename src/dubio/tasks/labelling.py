"""From the names of labels to what is predicted: the target, the classes and their order, the label array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError, listing
from dubio.core.types import IntArray, Target
from dubio.tasks.rows import Rows


@dataclass(frozen=True, eq=False)
class Labelled:
    """What is predicted.

    Attributes:
        target: How.
        classes: Names, in the order of the label index.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        notes: What was decided by looking at the data.
    """

    target: Target
    classes: tuple[str, ...]
    labels: IntArray
    notes: tuple[str, ...] = ()


def labelled(rows: Rows, *, target: Target | None, order: Sequence[str]) -> Labelled:
    """Decide the target and number the classes.

    Unless given, the target is ordinal where an order is given, multi-label where rows carry lists of which one has not
    exactly one label, else multi-class. Classes are in the given order, else by number where all are numbers, else
    alphabetical.

    Raises:
        UserError: When a row has no label or several and the target allows one, or there are fewer than two classes.
    """
    single = all(len(names) == 1 for names in rows.labels)
    resolved: Target = target or ("ordinal" if order else "multilabel" if rows.listed and not single else "multiclass")
    if resolved != "multilabel" and not single:
        row = next(row for row, names in enumerate(rows.labels) if len(names) != 1)
        raise UserError(f"a {resolved} target has one label a row; {rows.places[row]} has {len(rows.labels[row])}.")
    classes = _ordered({name for names in rows.labels for name in names}, order)
    if len(classes) < 2:
        raise UserError(f"there must be at least two classes; the data has {len(classes)}: {', '.join(classes)}.")
    index = {name: number for number, name in enumerate(classes)}
    if resolved != "multilabel":
        notes = ("Every row has exactly one label: taken as multi-class.",) if rows.listed and target is None else ()
        return Labelled(resolved, classes, np.array([index[names[0]] for names in rows.labels], dtype=np.int64), notes)
    hot = np.zeros((len(rows), len(classes)), dtype=np.int64)
    for row, names in enumerate(rows.labels):
        hot[row, [index[name] for name in names]] = 1
    bare = int((hot.sum(axis=1) == 0).sum())
    return Labelled(resolved, classes, hot, (f"Rows without any label: {bare:,}.",) if bare else ())


def _ordered(names: set[str], order: Sequence[str]) -> tuple[str, ...]:
    if order:
        if len(set(order)) != len(order):
            raise UserError(f"order must name each class once; given {', '.join(order)}.")
        missing = sorted(names - set(order))
        if missing:
            raise UserError(f"order must name every class; it lacks {listing(missing)} (given: {listing(order)}).")
        return tuple(name for name in order if name in names)
    try:
        # sorted twice: 'nan' is a number to float, compares with none, and a set's own order differs between processes
        return tuple(sorted(sorted(names), key=float))
    except ValueError:
        return tuple(sorted(names))


def refuse_single_rows(given: Labelled, kept: IntArray, rows: Rows) -> None:
    """Refuse a class of which only one row is left to be split.

    Args:
        given: Classes and labels.
        kept: The rows that will be split.
        rows: What was read, for the message.

    Raises:
        UserError: Naming the first such class and its row.
    """
    counts = np.bincount(given.labels[kept], minlength=len(given.classes))
    lonely = np.flatnonzero(counts == 1)
    if len(lonely):
        first = int(lonely[0])
        row = int(kept[given.labels[kept] == first][0])
        more = f" (and {len(lonely) - 1} other classes have one row each)" if len(lonely) > 1 else ""
        raise UserError(
            f"class {given.classes[first]!r} has one row, {rows.places[row]}{more}; a class needs at least two, one to "
            "train on and one to test. Add rows, merge it with another class, remove it, or hold it out with novel."
        )
