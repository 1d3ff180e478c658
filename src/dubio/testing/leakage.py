"""What two splits of a task must not share: rows, groups, ids."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import combinations

import numpy as np

from dubio.core.lazy_rows import row_keys
from dubio.core.types import Split, StrArray, Task
from dubio.tasks.duplicates import plain
from dubio.testing.findings import Problem

LEARNED = ("train", "val", "cal")


def _pairs(task: Task) -> Iterator[tuple[Split, Split]]:
    """Every split that training, selection or calibration sees, with every split that comes after it."""
    return (pair for pair in combinations(_in_order(task), 2) if pair[0].kind in LEARNED)


def _in_order(task: Task) -> list[Split]:
    return sorted(task.splits, key=lambda split: LEARNED.index(split.kind) if split.kind in LEARNED else len(LEARNED))


def shared_content(task: Task) -> Iterator[Problem]:
    """Rows whose content two splits share; the words of a text count, not its case or punctuation."""
    keys = {split.name: _contents(split) for split in task.splits}
    for earlier, later in _pairs(task):
        first: dict[Hashable, int] = {}
        for row, key in enumerate(keys[earlier.name]):
            first.setdefault(key, row)
        shared = [row for row, key in enumerate(keys[later.name]) if key in first]
        if shared:
            here, there = shared[0], first[keys[later.name][shared[0]]]
            yield Problem(
                f"{len(shared)} rows of split {later.name!r} are also in split {earlier.name!r}: row {here} of "
                f"{later.name} is row {there} of {earlier.name}.",
                "Drop duplicates before splitting, or give them one group and split by groups.",
            )


def _contents(split: Split) -> list[Hashable]:
    inputs = split.data.inputs
    if isinstance(inputs, tuple):
        return [plain(text) for text in inputs]
    return list(row_keys(inputs))


def shared_groups(task: Task) -> Iterator[Problem]:
    """Groups (patients, documents) that two splits share."""
    for earlier, later in _pairs(task):
        shared = _common(earlier.data.group, later.data.group)
        if shared:
            yield Problem(
                f"{len(shared)} groups of split {later.name!r} are also in split {earlier.name!r}, for example "
                f"{shared[0]!r}.",
                "Keep every group in one split.",
            )


def shared_ids(task: Task) -> Iterator[Problem]:
    """Ids that occur twice, in one split or in two."""
    for split in task.splits:
        if split.data.ids is not None:
            names, counts = np.unique(split.data.ids, return_counts=True)
            if (counts > 1).any():
                yield Problem(
                    f"The id {str(names[counts > 1][0])!r} occurs {int(counts.max())} times in split {split.name!r}.",
                    "An id names one example: it aligns the predictions of two systems.",
                )
    for one, other in combinations(task.splits, 2):
        shared = _common(one.data.ids, other.data.ids)
        if shared:
            yield Problem(
                f"The id {shared[0]!r} is in split {one.name!r} and in split {other.name!r}.",
                "Make ids unique in the whole data set, for example by adding the split's name.",
            )


def _common(one: StrArray | None, other: StrArray | None) -> list[str]:
    if one is None or other is None:
        return []
    return [str(name) for name in np.intersect1d(one, other)]
