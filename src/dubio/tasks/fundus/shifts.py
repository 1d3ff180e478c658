"""Splits of photographs that no patient is divided between, and the shifts that training never sees.

A shift within one data set holds out photographs of bad quality, severe eyes, or other hospitals; another complete data
set may be the shift too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dubio.core.errors import UnknownName, UserError, listing
from dubio.core.types import UNLABELLED, BoolArray, Examples, IntArray, Kind, Split, Target
from dubio.tasks.fundus.labels import GRADES, UNKNOWN
from dubio.tasks.fundus.photographs import PhotographSet
from dubio.tasks.shift import JOINT, NONE
from dubio.tasks.sources.locate import DataMissing
from dubio.tasks.splitting import (
    CAL,
    LEARNED,
    TEST,
    TRAIN,
    UNASSIGNED,
    VAL,
    SplitOptions,
    check_training_shares,
    fill_parts,
    part_splits,
    read_parts,
    rows_of_new_groups,
)

Predicted = Literal["binary", "ordinal"]

REFERABLE = 2
"""The first grade that is referred: moderate retinopathy."""

SEVERE = 3
"""The first of the grades that a shift of severity holds out."""

TEST_SHARE = 0.2
"""Share of the patients for test, where a data set has no test part."""

ENOUGH_PATIENTS = 50
"""A shift with fewer patients is called underpowered."""


@dataclass(frozen=True)
class Shift:
    """A shift within a data set.

    Attributes:
        split: The name of its split.
        mask: Returns the photographs that training never sees ``[N]``.
        absent: Why a data set has none, for a message.
    """

    split: str
    mask: Callable[[PhotographSet], BoolArray]
    absent: str


def main_site(data: PhotographSet) -> str:
    """Return the site of most photographs; empty where none is named."""
    names, counts = np.unique(data.site[data.site != ""], return_counts=True)
    return str(names[counts.argmax()]) if len(names) else ""


SHIFTS: dict[str, Shift] = {
    "quality": Shift("bad-quality", lambda data: data.quality == 0, "names no photograph of bad quality"),
    "severity": Shift("severe", lambda data: data.grade >= SEVERE, "has no severe or proliferative grade"),
    "site": Shift(
        "other-sites", lambda data: (data.site != "") & (data.site != main_site(data)), "does not name two sites"
    ),
}
"""By the value of the argument ``shift``."""


def shift_names(shift: str | None, data: PhotographSet, *, other_data: bool) -> tuple[str, ...]:
    """Return the shifts that an argument names: one, several joined by +, or none.

    Args:
        shift: The argument; None means quality where the data names it and no other data set is the shift.
        data: The data set.
        other_data: Whether another data set is the shift.

    Raises:
        UnknownName: For an unknown shift.
        DataMissing: When the data has no such photographs: a benchmark of several shifts goes on with the others.
    """
    if shift is None:
        return ("quality",) if not other_data and SHIFTS["quality"].mask(data).any() else ()
    names = () if shift == NONE else tuple(dict.fromkeys(shift.split(JOINT)))
    for name in names:
        if name not in SHIFTS:
            raise UnknownName("value of shift", name, [*SHIFTS, NONE])
        if not SHIFTS[name].mask(data).any():
            raise DataMissing(f"shift {name!r}: {data.name} {SHIFTS[name].absent}.")
    return names


@dataclass(frozen=True)
class RetinaOptions:
    """How photographs become a task.

    Attributes:
        predicted: Referable or not, or the grade.
        shifts: Shifts within the data set, by name; a photograph belongs to the first that holds it out.
        val: Share of training patients for validation, where the data set has no such part.
        cal: Share of training patients for calibration, where the data set has no such part; 0 for none.
        seed: Seed of the split.
    """

    predicted: Predicted
    shifts: tuple[str, ...]
    val: float
    cal: float
    seed: int

    def __post_init__(self) -> None:
        check_training_shares(self.val, self.cal)

    @property
    def target(self) -> Target:
        """The kind of target of a network."""
        return "multiclass" if self.predicted == "binary" else "ordinal"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; grades that are never trained on are none."""
        if self.predicted == "binary":
            return ("not referable", "referable")
        return GRADES[:SEVERE] if "severity" in self.shifts else GRADES

    def labels(self, grade: IntArray) -> IntArray:
        """Return the class of each grade; −1 where it has none."""
        if self.predicted == "binary":
            return (grade >= REFERABLE).astype(np.int64)
        return np.where(grade < len(self.classes), grade, UNLABELLED).astype(np.int64)


def retina_splits(data: PhotographSet, options: RetinaOptions) -> tuple[list[Split], list[str], dict[str, int]]:
    """Return the splits of a data set, notes for the reader, and reason → photographs in no split.

    Raises:
        UserError: When the data puts a patient into two parts, or a split would be empty or lack a class.
    """
    parts, named = _named_parts(data)
    inside = parts != UNASSIGNED
    shifts: dict[str, BoolArray] = {}
    for name in options.shifts:
        mask = SHIFTS[name].mask(data) & inside
        shifts[SHIFTS[name].split] = mask
        inside = inside & ~mask
    notes = _fill(parts, np.flatnonzero(inside), data, options)
    examples = Examples(data.images, options.labels(data.grade), data.ids, data.patient, data.facts)
    try:
        splits = part_splits(examples, np.where(inside, parts, UNASSIGNED), required=("train", "val", "test"))
    except UserError as fault:
        raise UserError(f"{data.name}, without the photographs of the shift: {fault}") from fault
    for label, name in enumerate(options.classes):
        if not (splits[0].data.labels == label).any():
            raise UserError(f"{data.name}: no training photograph is {name!r}; a task needs some of every class.")
    notes += _site_and_quality_notes(data, options.shifts)
    learned = inside & np.isin(parts, LEARNED)
    left_out: dict[str, int] = {}
    for name, mask in (shifts | named).items():
        rows, lost = rows_of_new_groups(mask, data.patient, learned)
        if lost:
            left_out[f"because train, val or cal has the patients of these photographs of {name}"] = lost
        if len(rows) == 0:
            raise UserError(f"{data.name}: the split {name} would be empty: every patient in it is learned from.")
        chosen = examples.take(rows)
        kind: Kind = "ood" if (chosen.labels == UNLABELLED).all() or name.startswith("ood") else "shift"
        splits.append(Split.of(name, kind, chosen))
        notes += _shift_notes(splits[-1])
    return splits, notes, left_out


def other_data_split(data: PhotographSet, options: RetinaOptions) -> tuple[Split, list[str]]:
    """Return another complete data set as a shift; its ids and patients carry its name."""
    prefix = f"{data.name}/"
    ids, patients = np.char.add(prefix, data.ids), np.char.add(prefix, data.patient)
    split = Split.of(data.name, "shift", Examples(data.images, options.labels(data.grade), ids, patients, data.facts))
    return split, _shift_notes(split)


def _named_parts(data: PhotographSet) -> tuple[IntArray, dict[str, BoolArray]]:
    """Return the part of each photograph as far as the data names it, else training; and named shift and ood splits."""
    if not (data.subset != "").any():
        return np.full(len(data), TRAIN, dtype=np.int64), {}
    parts_of: dict[str, set[str]] = defaultdict(set)
    for patient, subset in zip(data.patient.tolist(), data.subset.tolist(), strict=True):
        parts_of[patient].add(subset)
    divided = [f"{patient} ({', '.join(sorted(names))})" for patient, names in parts_of.items() if len(names) > 1]
    if divided:
        counted = f"{len(divided):,} patients into more than one part, so that they are both learned from and tested on"
        raise UserError(f"{data.name} puts {counted}: {listing(divided)}.")
    parts, shifts = read_parts(data.subset, [f"photograph {name}" for name in data.ids.tolist()])
    return parts, {name: mask for name, (_, mask) in shifts.items()}


def _fill(parts: IntArray, pool: IntArray, data: PhotographSet, options: RetinaOptions) -> list[str]:
    """Cut the parts that the data lacks out of its training patients, in place; return notes."""
    present = np.bincount(parts[pool], minlength=4) > 0
    shares = SplitOptions.of_training(
        val=0.0 if present[VAL] else options.val,
        cal=0.0 if present[CAL] else options.cal,
        test=0.0 if present[TEST] else TEST_SHARE,
        seed=options.seed,
    )
    patients = len(np.unique(data.patient[pool[parts[pool] == TRAIN]]))
    missing = fill_parts(parts, pool, data.grade, shares, group=data.patient)
    how = f"at random, stratified by grade (seed {options.seed}), {patients:,} patients kept whole"
    return [f"Cut out of the training patients {how}: {', '.join(missing)}."] if missing else []


def _shift_notes(split: Split) -> list[str]:
    """Return warnings about a shift of few patients, and about one of a single class.

    The interval of an accuracy of 0.8 is that of a share among independent patients, ± 1.96 · √(0.8 · 0.2 / patients).
    """
    notes = []
    patients, classes = len(np.unique(np.asarray(split.data.group))), np.unique(split.data.labels)
    if patients < ENOUGH_PATIENTS:
        points = 100 * 1.96 * np.sqrt(0.8 * 0.2 / max(1, patients))
        notes.append(
            f"Underpowered: {split.name} has {len(split):,} photographs of {patients:,} patients; an accuracy of 0.8 "
            f"there is known to about ± {points:.0f} points."
        )
    if len(classes) == 1 and classes[0] != UNLABELLED:
        one = f"Every photograph of {split.name} is of one class"
        notes.append(f"{one}: accuracy is defined there, a ROC curve is not.")
    return notes


def _site_and_quality_notes(data: PhotographSet, shifts: tuple[str, ...]) -> list[str]:
    """Return notes on sites that are no shift, and on unknown values in those that are."""
    notes = []
    others = SHIFTS["site"].mask(data)
    patients = len(np.unique(data.patient[others]))
    if others.any() and "site" not in shifts and patients < ENOUGH_PATIENTS:
        sites, counts = np.unique(data.site[others], return_counts=True)
        listed = ", ".join(f"{site} {count}" for site, count in zip(sites, counts, strict=True))
        notes.append(
            f"Other sites than {main_site(data)}: {int(others.sum()):,} photographs of {patients:,} patients "
            f"({listed}), too few to judge a shift of site; they are used like all others."
        )
    unknown_sites, unknown_quality = int((data.site == "").sum()), int((data.quality == UNKNOWN).sum())
    if "site" in shifts and unknown_sites:
        notes.append(f"Photographs whose site is unknown count as {main_site(data)}'s: {unknown_sites:,}.")
    if "quality" in shifts and unknown_quality:
        notes.append(f"Photographs whose quality nobody judged count as good: {unknown_quality:,}.")
    return notes
