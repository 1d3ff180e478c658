"""The one splitter: divide rows into training, validation, calibration and test: stratified, by group, or by time.

The part of a row is its index in :data:`PARTS`. A group (a patient, a document) is never divided between parts, and the
same seed gives the same parts. Parts that the data itself names are used as they are; those it lacks are cut out of its
training rows.

*Stratified* parts come from iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011), which serves one label
per row, several labels per row, and groups of rows alike: the label with the fewest remaining rows goes first, and its
rows, the largest groups first, go to the part with the highest demand for that label. Two rules are added: a label's
first rows go to training, and once every part has its integer number of rows of a label, the last, fractional row goes
to the part with the largest remaining capacity. Without groups and with one label per row, each part then has its share
of each class to within one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UnknownName, UserError
from dubio.core.types import UNLABELLED, BoolArray, Examples, IntArray, Kind, Split, StrArray, Target

PARTS = ("train", "val", "cal", "test")
"""The four parts, in the order of their index."""

PART_KINDS: dict[str, Kind] = {"train": "train", "val": "val", "cal": "cal", "test": "id"}
"""The kind of split that each part becomes."""

TRAIN, VAL, CAL, TEST = range(4)
LEARNED = (TRAIN, VAL, CAL)
"""The parts that training, selection or calibration uses."""

UNASSIGNED = -1
"""The part of a row that belongs to none of the four."""

PART_ALIASES: dict[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("cal", "calibration"), "cal"),
    **dict.fromkeys(("test", "testing", "id"), "test"),
}
"""Names of parts in data, in lower case; ``shift``, ``shift-…``, ``ood`` and ``ood-…`` name further splits."""

_SHIFT_NAME = re.compile(r"(shift|ood)([-_.][\w.-]+)?")


def check_seed(seed: int) -> None:
    """Refuse a seed of a split that no generator takes.

    Raises:
        UserError: When it is negative.
    """
    if seed < 0:
        raise UserError(f"split_seed must be 0 or more; given {seed}.")


@dataclass(frozen=True)
class SplitOptions:
    """How rows are divided.

    Attributes:
        fractions: Shares of train, val, cal and test, which sum to 1.
        seed: Seed of random parts.
    """

    fractions: tuple[float, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        shares = tuple(float(fraction) for fraction in self.fractions)
        possible = len(shares) == len(PARTS) and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-9  # NaN is not
        if not possible or shares[TRAIN] == 0:
            raise UserError(
                "fractions must be four numbers (train, val, cal, test), none negative, that sum to 1, with a positive "
                f"one for train; given {list(self.fractions)}."
            )
        object.__setattr__(self, "fractions", shares)
        check_seed(self.seed)

    @classmethod
    def of_training(cls, *, val: float, cal: float, seed: int, test: float = 0.0) -> SplitOptions:
        """Return options where ``val`` and ``cal`` are shares of what remains once ``test`` is taken away."""
        training = 1 - test
        return cls((training - training * val - training * cal, training * val, training * cal, 1 - training), seed)

    def for_missing(self, parts: IntArray) -> SplitOptions:
        """Return options in which every part that some row already has takes no share."""
        shares = [0.0 if (parts == index).any() else share for index, share in enumerate(self.fractions)]
        return replace(self, fractions=(1.0 - sum(shares[1:]), *shares[1:]))


def check_training_shares(val: float, cal: float) -> None:
    """Refuse shares of training that leave too little to train on; a share of 0 leaves the part out.

    Raises:
        UserError: Naming ``val`` and ``cal``.
    """
    if not (val >= 0 and cal >= 0 and val + cal <= 0.8):
        limits = "val and cal must be at least 0, their sum at most 0.8"
        raise UserError(f"{limits} (shares of training); given {val} and {cal}.")


def label_array(labels: Sequence[Sequence[str]], classes: Sequence[str], target: Target) -> IntArray:
    """Return the labels of each row as class indices ``[N]`` or multi-hot ``[N, K]``; a label that is no class is none.

    Args:
        labels: The labels of each row; one each, unless the target is multi-label.
        classes: The classes, in the order of their indices.
        target: The kind of target.
    """
    index = {name: number for number, name in enumerate(classes)}
    if target != "multilabel":
        return np.array([index.get(name, UNLABELLED) for (name,) in labels], dtype=np.int64)
    hot = np.zeros((len(labels), len(classes)), dtype=np.int64)
    for row, names in enumerate(labels):
        hot[row, [index[name] for name in names if name in index]] = 1
    return hot


def assign_parts(
    labels: IntArray, options: SplitOptions, *, group: StrArray | None = None, time: NDArray[np.float64] | None = None
) -> IntArray:
    """Return the part of each row: by time where times are given, else at random with equal shares of every label.

    By time, the oldest rows train and the newest test. Rows of the same time share a part. A group goes where its
    latest row goes, so that nothing in training is newer than the training period.

    Args:
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        options: Shares, and the seed of the random order.
        group: The group of each row ``[N]``.
        time: The time of each row ``[N]``; only the order counts.

    Raises:
        UserError: When a part with a share gets no rows.
    """
    units = np.arange(len(labels)) if group is None else np.unique(group, return_inverse=True)[1]
    if time is None:
        parts = _Stratifier(labels, units, options.fractions, np.random.default_rng(options.seed)).run()[units]
        available, unit = int(units.max(initial=-1)) + 1, "rows" if group is None else "groups"
    else:
        parts, available = _parts_by_time(time, units, options.fractions)
        unit = "different times"
    sizes = np.bincount(parts, minlength=len(PARTS)).tolist()
    for name, share, size in zip(PARTS, options.fractions, sizes, strict=True):
        if share > 0 and size == 0:
            shares = ", ".join(f"{key} {value:g}" for key, value in zip(PARTS, options.fractions, strict=True))
            raise UserError(f"{name} would be empty: {available} {unit} are too few for the fractions {shares}.")
    return parts


def _parts_by_time(time: NDArray[np.float64], units: IntArray, shares: Sequence[float]) -> tuple[IntArray, int]:
    """Return the part of each row, and the number of different times."""
    latest = np.full(int(units.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(latest, units, time)
    # the quantile of a row is the number of strictly older rows plus half of those equally old: ties share a part
    moments, inverse, counts = np.unique(latest[units], return_inverse=True, return_counts=True)
    quantiles = (np.cumsum(counts) - counts / 2) / max(1, len(units))
    return np.searchsorted(np.cumsum(shares)[:-1], quantiles[inverse], side="right").astype(np.int64), len(moments)


def fill_parts(
    parts: IntArray,
    pool: IntArray,
    labels: IntArray,
    options: SplitOptions,
    *,
    group: StrArray | None = None,
    time: NDArray[np.float64] | None = None,
) -> tuple[str, ...]:
    """Cut every part that has a share out of the training rows of a pool, in place.

    Args:
        parts: The part of each row ``[N]``; changed.
        pool: Rows that may be used.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        options: Shares; all other training rows stay in training.
        group: The group of each row ``[N]``.
        time: The time of each row ``[N]``.

    Returns:
        The names of the parts that were cut.
    """
    missing = tuple(PARTS[index] for index in (VAL, CAL, TEST) if options.fractions[index] > 0)
    if missing:
        rows = pool[parts[pool] == TRAIN]
        groups = None if group is None else group[rows]
        times = None if time is None else time[rows]
        parts[rows] = assign_parts(labels[rows], options, group=groups, time=times)
    return missing


def divide_further(
    parts: IntArray, rows: IntArray, labels: IntArray, options: SplitOptions, *, group: StrArray | None = None
) -> None:
    """Divide rows that come to others which have their parts already, in place; of few rows, a part may get none.

    Args:
        parts: The part of each row ``[N]``; changed at ``rows``.
        rows: The rows to divide.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        options: Shares and seed.
        group: The group of each row ``[N]``.
    """
    units = np.arange(len(rows)) if group is None else np.unique(group[rows], return_inverse=True)[1]
    parts[rows] = _Stratifier(labels[rows], units, options.fractions, np.random.default_rng(options.seed)).run()[units]


def balanced_rows(labels: IntArray, count: int, seed: int) -> IntArray:
    """Draw rows at random, of every class its share to within a row (largest remainders), in their original order.

    Args:
        labels: Class index ``[N]``.
        count: Number of rows, at most N.
        seed: Seed of the draw. The rows of a class are nested: a larger draw contains every smaller one.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    quotas, remainders = np.divmod(count * sizes, max(1, len(labels)))
    quotas[np.argsort(-remainders, kind="stable")[: count - int(quotas.sum())]] += 1
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    return np.sort(order[within < np.repeat(quotas, sizes)])


def subset_rows(argument: str, labels: IntArray, count: int | None, seed: int) -> IntArray:
    """Draw ``count`` rows equally of all classes; all rows where no number is given.

    Raises:
        UserError: Naming the argument, when there are not that many.
    """
    if count is not None and not 1 <= count <= len(labels):
        raise UserError(f"{argument} must be between 1 and {len(labels):,}, the number of images; given {count}.")
    return balanced_rows(labels, len(labels) if count is None else count, seed)


def read_parts(names: StrArray, references: Sequence[str]) -> tuple[IntArray, dict[str, tuple[Kind, BoolArray]]]:
    """Read a column of parts.

    Args:
        names: The part of each row, as written ``[N]``.
        references: What a message calls each row.

    Returns:
        The index of each row in :data:`PARTS`, or :data:`UNASSIGNED` for a row of a shift or ood split; and kind and
        rows of every shift or ood split, by name.

    Raises:
        UnknownName: For a name of no part.
        UserError: When no row is for training.
    """
    parts = np.full(len(names), UNASSIGNED, dtype=np.int64)
    shifts: dict[str, tuple[Kind, BoolArray]] = {}
    for written in dict.fromkeys(names.tolist()):
        rows, name = names == written, written.lower()
        if name in PART_ALIASES:
            parts[rows] = PARTS.index(PART_ALIASES[name])
        elif _SHIFT_NAME.fullmatch(name):
            shifts[name] = ("shift" if name.startswith("shift") else "ood", rows)
        else:
            reference = references[int(np.flatnonzero(rows)[0])]
            raise UnknownName(f"part in {reference}", written, [*PART_ALIASES, "shift", "shift-…", "ood", "ood-…"])
    if not (parts == TRAIN).any():
        raise UserError("split names no row for training; write 'train' for those.")
    return parts, shifts


def part_splits(examples: Examples, parts: IntArray, *, required: Sequence[str] = ()) -> list[Split]:
    """Return a split for each of the four parts that has rows.

    Args:
        examples: All examples.
        parts: The part of each ``[N]``.
        required: Parts that must have rows.

    Raises:
        UserError: Naming the first required part without rows.
    """
    splits = []
    for index, name in enumerate(PARTS):
        rows = np.flatnonzero(parts == index)
        if len(rows):
            splits.append(Split.of(name, PART_KINDS[name], examples.take(rows)))
        elif name in required:
            raise UserError(f"the split {name} would be empty; a task needs {', '.join(required)}.")
    return splits


def rows_of_new_groups(mask: BoolArray, group: StrArray | None, learned: BoolArray) -> tuple[IntArray, int]:
    """Return the rows of a split that is never trained on, and the number of rows left out of it.

    Args:
        mask: Rows of the split ``[N]``.
        group: The group of each row ``[N]``, or None.
        learned: Rows that training, selection or calibration uses ``[N]``; their groups are left out.
    """
    rows = np.flatnonzero(mask if group is None else mask & ~np.isin(group, group[learned]))
    return rows, int(mask.sum()) - len(rows)


class _Stratifier:
    """The state of one iterative stratification over units (rows or groups)."""

    def __init__(self, labels: IntArray, units: IntArray, shares: Sequence[float], rng: np.random.Generator) -> None:
        """Start with every unit unassigned; ``units[i]`` is the unit of row i."""
        sizes = np.bincount(units)
        order = rng.permutation(len(sizes))
        self.order: list[int] = order[np.argsort(-sizes[order], kind="stable")].tolist()
        self.sizes: list[int] = sizes.tolist()
        rows, carried = np.nonzero(labels) if labels.ndim == 2 else (np.flatnonzero(labels >= 0), labels[labels >= 0])
        classes = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
        pairs, times = np.unique(units[rows] * classes + carried, return_counts=True)
        self.counts: list[dict[int, float]] = [{} for _ in self.sizes]
        for pair, count in zip(pairs.tolist(), times.tolist(), strict=True):
            self.counts[pair // classes][pair % classes] = float(count)
        self.holders: list[list[int]] = [[] for _ in range(classes)]
        for unit in self.order:
            for label in self.counts[unit]:
                self.holders[label].append(unit)
        totals = np.bincount(pairs % classes, weights=times, minlength=classes).tolist() if classes else []
        self.demand = [[total * share for share in shares] for total in totals]
        self.capacity = [float(sizes.sum()) * share for share in shares]
        self.trained = [False] * classes

    def run(self) -> IntArray:
        """Assign every unit; return the part of each."""
        parts = np.full(len(self.sizes), UNASSIGNED, dtype=np.int64)
        remaining = {label: len(units) for label, units in enumerate(self.holders) if units}
        while remaining:
            label = min(remaining, key=lambda name: (remaining[name], name))
            for unit in self.holders[label]:
                if parts[unit] >= 0:
                    continue
                parts[unit] = self._place(unit, label)
                for other in self.counts[unit]:
                    remaining[other] -= 1
            del remaining[label]
        for unit in self.order:  # units without any label fill the parts up
            if parts[unit] < 0:
                parts[unit] = self._settle(unit, max(range(len(PARTS)), key=lambda index: self.capacity[index]))
        return parts

    def _place(self, unit: int, label: int) -> int:
        demand, count = self.demand[label], self.counts[unit][label]
        if not self.trained[label]:
            return self._settle(unit, TRAIN)
        fitting = [index for index in range(len(PARTS)) if demand[index] >= count]
        if fitting:
            return self._settle(unit, max(fitting, key=lambda index: (demand[index], self.capacity[index])))
        wanting = [index for index in range(len(PARTS)) if demand[index] > 1e-9] or range(len(PARTS))
        return self._settle(unit, max(wanting, key=lambda index: (self.capacity[index], demand[index])))

    def _settle(self, unit: int, index: int) -> int:
        self.capacity[index] -= self.sizes[unit]
        for label, count in self.counts[unit].items():
            self.demand[label][index] -= count
            self.trained[label] |= index == TRAIN
        return index
