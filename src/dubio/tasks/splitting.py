"""Cutting rows into training, validation, calibration and test: stratified, by group, or by time.

Every function returns, for each row, the index of its part in :data:`PARTS`. What belongs together (a group) is never
torn apart; the same seed gives the same parts.

*Stratified* parts come from iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011), which serves one label
a row, many labels a row, and groups of rows alike: the label with the fewest rows left goes first, and its rows, the
largest groups first, go where that label is most wanting. Two rules are added: a label's first rows go to training,
and once every part has its whole rows of a label, the last, fractional row goes to the part that wants rows at all
most. Without groups and with one label a row, each part then has its share of each class to within one row.

Parts that the data itself names, in a column or as folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UnknownName, UserError
from dubio.core.types import BoolArray, IntArray, Kind, StrArray

PARTS = ("train", "val", "cal", "test")
"""The four parts, in the order of their index."""

TRAIN, VAL, CAL, TEST = range(4)


def checked_fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    """The fractions of :data:`PARTS`, refused unless they can be.

    Raises:
        UserError: When they are not four, negative, or do not sum to one, or leave training without rows.
    """
    given = tuple(float(fraction) for fraction in fractions)
    if len(given) != len(PARTS) or min(given) < 0 or abs(sum(given) - 1) > 1e-9 or given[TRAIN] == 0:
        raise UserError(
            "fractions must be four numbers (train, val, cal, test) that are not negative and sum to 1, with some for "
            f"train; given {list(fractions)}."
        )
    return given


def stratified_parts(
    labels: IntArray, *, fractions: Sequence[float], seed: int, group: StrArray | None = None
) -> IntArray:
    """Random parts with like shares of every label.

    Args:
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        fractions: Shares of train, val, cal and test.
        seed: Of the random order.
        group: What belongs together ``[N]``.

    Raises:
        UserError: When a part that should have rows gets none.
    """
    shares = checked_fractions(fractions)
    units = np.arange(len(labels)) if group is None else np.unique(group, return_inverse=True)[1]
    stratifier = _Stratifier.of(labels, units, shares, np.random.default_rng(seed))
    parts = stratifier.run()[units]
    refuse_empty(parts, shares, "rows" if group is None else "groups", int(units.max(initial=-1)) + 1)
    return parts


def parts_by_time(time: NDArray[np.float64], *, fractions: Sequence[float], group: StrArray | None = None) -> IntArray:
    """The oldest rows train, the newest test.

    Rows of the same time stay in the same part. A group goes where its latest row goes, so that nothing in training
    is newer than the training period.

    Args:
        time: When each row happened ``[N]``; only the order counts.
        fractions: Shares of train, val, cal and test.
        group: What belongs together ``[N]``.

    Raises:
        UserError: When a part that should have rows gets none.
    """
    shares = checked_fractions(fractions)
    latest = np.array(time, dtype=np.float64)
    if group is not None:
        _, units = np.unique(group, return_inverse=True)
        last = np.full(int(units.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(last, units, latest)
        latest = last[units]
    # a row's place is how many rows are strictly older, in the middle of those equally old: ties share one place
    moments, which, counts = np.unique(latest, return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / max(1, len(latest))
    parts = np.searchsorted(np.cumsum(shares)[:-1], middle[which], side="right").astype(np.int64)
    refuse_empty(parts, shares, "different times", len(moments))
    return parts


def balanced_rows(labels: IntArray, count: int, seed: int) -> IntArray:
    """So many rows, drawn at random, of every class its share to within a row (largest remainders), in their old order.

    Args:
        labels: Class index ``[N]``.
        count: How many, at most N.
        seed: Of the draw. Of a class, a larger number of rows holds every smaller one.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    whole, rest = np.divmod(count * sizes, max(1, len(labels)))
    whole[np.argsort(-rest, kind="stable")[: count - int(whole.sum())]] += 1
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    return np.sort(order[within < np.repeat(whole, sizes)])


def refuse_empty(parts: IntArray, shares: Sequence[float], what: str, available: int) -> None:
    """Refuse parts of which one has a share and no rows.

    Raises:
        UserError: Naming the part.
    """
    sizes = np.bincount(parts, minlength=len(PARTS))
    for index, share in enumerate(shares):
        if share > 0 and sizes[index] == 0:
            raise UserError(
                f"{PARTS[index]} would be empty: {available} {what} are too few for the fractions "
                f"{', '.join(f'{name} {part:g}' for name, part in zip(PARTS, shares, strict=True))}. "
                "Give more data or other fractions."
            )


@dataclass
class _Stratifier:
    """The state of one iterative stratification over units (rows or groups)."""

    counts: list[list[tuple[int, float]]]
    holders: list[list[int]]
    sizes: list[int]
    order: list[int]
    wanted: list[list[float]]
    room: list[float]
    trained: list[bool]

    @classmethod
    def of(cls, labels: IntArray, units: IntArray, shares: Sequence[float], rng: np.random.Generator) -> _Stratifier:
        """Start with every unit unplaced; ``units[i]`` is the unit of row i."""
        sizes = np.bincount(units)
        order = rng.permutation(len(sizes))
        order = order[np.argsort(-sizes[order], kind="stable")]
        rows, carried = np.nonzero(labels) if labels.ndim == 2 else (np.flatnonzero(labels >= 0), labels[labels >= 0])
        classes = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
        pairs, times = np.unique(units[rows] * classes + carried, return_counts=True)
        counts: list[list[tuple[int, float]]] = [[] for _ in sizes]
        totals = [0.0] * classes
        for pair, count in zip(pairs.tolist(), times.tolist(), strict=True):
            counts[pair // classes].append((pair % classes, float(count)))
            totals[pair % classes] += count
        holders: list[list[int]] = [[] for _ in totals]
        for unit in order.tolist():
            for label, _ in counts[unit]:
                holders[label].append(unit)
        return cls(
            counts=counts,
            holders=holders,
            sizes=sizes.tolist(),
            order=order.tolist(),
            wanted=[[total * share for share in shares] for total in totals],
            room=[float(sizes.sum()) * share for share in shares],
            trained=[False] * classes,
        )

    def run(self) -> IntArray:
        """Place every unit; the part of each."""
        parts = np.full(len(self.sizes), -1, dtype=np.int64)
        left = {label: len(units) for label, units in enumerate(self.holders) if units}
        while left:
            label = min(left, key=lambda name: (left[name], name))
            for unit in self.holders[label]:
                if parts[unit] >= 0:
                    continue
                parts[unit] = self._place(unit, label)
                for other, _ in self.counts[unit]:
                    left[other] -= 1
            del left[label]
        for unit in self.order:  # what carries no label at all only fills up
            if parts[unit] < 0:
                parts[unit] = self._settle(unit, max(range(len(PARTS)), key=lambda part: self.room[part]))
        return parts

    def _place(self, unit: int, label: int) -> int:
        wanted = self.wanted[label]
        mine = next(count for name, count in self.counts[unit] if name == label)
        if not self.trained[label]:
            return self._settle(unit, TRAIN)
        whole = [part for part in range(len(PARTS)) if wanted[part] >= mine]
        if whole:
            return self._settle(unit, max(whole, key=lambda part: (wanted[part], self.room[part])))
        wanting = [part for part in range(len(PARTS)) if wanted[part] > 1e-9] or range(len(PARTS))
        return self._settle(unit, max(wanting, key=lambda part: (self.room[part], wanted[part])))

    def _settle(self, unit: int, part: int) -> int:
        self.room[part] -= self.sizes[unit]
        for label, count in self.counts[unit]:
            self.wanted[label][part] -= count
            if part == TRAIN:
                self.trained[label] = True
        return part


PART_ALIASES: dict[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("cal", "calibration"), "cal"),
    **dict.fromkeys(("test", "testing", "id"), "test"),
}
"""What a part may be called, in lower case. Beside these, ``shift``, ``shift-…``, ``ood`` and ``ood-…`` make splits."""

_OUTSIDE = re.compile(r"(shift|ood)([-_.][\w.-]+)?")

OUTSIDE = -1
"""The part of a row that belongs to a given shift or ood split."""


@dataclass(frozen=True, eq=False)
class Given:
    """Rows by the part their data names.

    Attributes:
        parts: ``[N]`` index in ``PARTS``, or −1 for a shift or ood split.
        outside: Kind and rows of every given shift or ood split, by name.
    """

    parts: IntArray
    outside: dict[str, tuple[Kind, BoolArray]]


def given_parts(split: StrArray, places: Sequence[str]) -> Given:
    """Read a column of parts.

    Args:
        split: What each row says ``[N]``.
        places: How a message calls each row.

    Raises:
        UnknownName: For a word that names no part.
        UserError: When no row is for training.
    """
    parts = np.full(len(split), OUTSIDE, dtype=np.int64)
    outside: dict[str, tuple[Kind, BoolArray]] = {}
    for word in dict.fromkeys(split.tolist()):
        rows = split == word
        part = PART_ALIASES.get(word.lower())
        if part is not None:
            parts[rows] = PARTS.index(part)
        elif _OUTSIDE.fullmatch(word.lower()):
            outside[word.lower()] = ("shift" if word.lower().startswith("shift") else "ood", rows)
        else:
            where = places[int(np.flatnonzero(rows)[0])]
            raise UnknownName(f"part in {where}", word, [*PART_ALIASES, "shift", "shift-…", "ood", "ood-…"])
    if not (parts == TRAIN).any():
        raise UserError("split names no row for training; write 'train' for those.")
    return Given(parts, outside)


def fill_missing(
    parts: IntArray, fractions: Sequence[float], cut: Callable[[IntArray, tuple[float, ...]], IntArray]
) -> tuple[IntArray, tuple[str, ...]]:
    """Cut the parts that the data does not name out of its training rows.

    Args:
        parts: The given parts ``[N]``, −1 outside.
        fractions: Shares of train, val, cal and test; a missing part takes its share of the training rows.
        cut: From rows and four shares to the part of each of those rows.

    Returns:
        The parts, and the names of those that were cut.
    """
    missing = [index for index, share in enumerate(fractions) if share > 0 and not (parts == index).any()]
    if not missing:
        return parts, ()
    shares = [fractions[index] if index in missing else 0.0 for index in range(len(PARTS))]
    shares[TRAIN] = 1.0 - sum(shares)
    rows = np.flatnonzero(parts == TRAIN)
    filled = parts.copy()
    filled[rows] = cut(rows, tuple(shares))
    return filled, tuple(PARTS[index] for index in missing)
