"""What of one data set training never sees: bad photographs, severe eyes, other hospitals.

Splits of photographs that no patient is torn between.
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
from dubio.tasks.fundus.photographs import Gathered
from dubio.tasks.sources.locate import DataMissing
from dubio.tasks.splitting import CAL, OUTSIDE, PARTS, TEST, TRAIN, VAL, given_parts, stratified_parts

SEVERE = 3
"""The first of the grades that a shift of severity holds out."""

POWER = 50
"""A shift of fewer patients than this is called underpowered."""


@dataclass(frozen=True)
class Shift:
    """A shift within a data set.

    Attributes:
        split: What the split of its photographs is called.
        held: The photographs that training never sees ``[N]``.
        without: Why a data set has none, for a message.
    """

    split: str
    held: Callable[[Gathered], BoolArray]
    without: str


def main_site(data: Gathered) -> str:
    """The site that most photographs come from; empty where none is named."""
    names, counts = np.unique(data.site[data.site != ""], return_counts=True)
    return str(names[counts.argmax()]) if len(names) else ""


SHIFTS: dict[str, Shift] = {
    "quality": Shift("bad-quality", lambda data: data.quality == 0, "names no photograph of bad quality"),
    "severity": Shift("severe", lambda data: data.grade >= SEVERE, "has no severe or proliferative grade"),
    "site": Shift(
        "other-sites",
        lambda data: (data.site != "") & (data.site != main_site(data)),
        "does not name two sites",
    ),
}
"""By the word that asks for them."""

JOINT = "+"
NO_SHIFT = "none"


def shifts_asked(shift: str | None, data: Gathered, *, elsewhere: bool) -> tuple[str, ...]:
    """The shifts that a word asks for: one, several joined by +, or none.

    Args:
        shift: As given; None asks for quality where the data names it and no other data set is the shift.
        data: The data set.
        elsewhere: Whether another data set is the shift.

    Raises:
        UnknownName: For a word that names none.
        DataMissing: When the data has no such photographs: a benchmark of several shifts goes on with the others.
    """
    if shift is None:
        return ("quality",) if not elsewhere and SHIFTS["quality"].held(data).any() else ()
    names = () if shift == NO_SHIFT else tuple(dict.fromkeys(shift.split(JOINT)))
    for name in names:
        if name not in SHIFTS:
            raise UnknownName("value of shift", name, [*SHIFTS, NO_SHIFT])
        if not SHIFTS[name].held(data).any():
            raise DataMissing(f"shift {name!r}: {data.name} {SHIFTS[name].without}.")
    return names


def power_note(split: str, photographs: int, patients: int) -> str | None:
    """A warning about a shift of few patients: how wide an interval of an accuracy of 0.8 is there.

    The interval is that of a share among independent patients, ± 1.96 · √(0.8 · 0.2 / patients).
    """
    if patients >= POWER:
        return None
    points = 100 * 1.96 * np.sqrt(0.8 * 0.2 / max(1, patients))
    return (
        f"Underpowered: {split} has {photographs:,} photographs of {patients:,} patients; an accuracy of 0.8 there is "
        f"known to about ± {points:.0f} points."
    )


def unasked_notes(data: Gathered, names: tuple[str, ...]) -> list[str]:
    """What a reader must know of shifts that were not asked for, and of what is unknown in those that were."""
    notes = []
    away = SHIFTS["site"].held(data)
    patients = len(np.unique(data.patient[away]))
    if away.any() and "site" not in names and patients < POWER:
        sites, counts = np.unique(data.site[away], return_counts=True)
        listed = ", ".join(f"{site} {count}" for site, count in zip(sites, counts, strict=True))
        notes.append(
            f"Other sites than {main_site(data)}: {int(away.sum()):,} photographs of {patients:,} patients ({listed}), "
            "too few to judge a shift of site; they are used like all others."
        )
    unsaid = int((data.site == "").sum())
    if "site" in names and unsaid:
        notes.append(f"Photographs whose site is unknown count as {main_site(data)}'s: {unsaid:,}.")
    unjudged = int((data.quality == UNKNOWN).sum())
    if "quality" in names and unjudged:
        notes.append(f"Photographs whose quality nobody judged count as good: {unjudged:,}.")
    return notes


Predicted = Literal["binary", "ordinal"]

REFERABLE = 2
"""The first grade that is referred: moderate retinopathy."""

TEST_SHARE = 0.2
"""Of the patients, where a data set has no test part."""

_KINDS: tuple[Kind, ...] = ("train", "val", "cal", "id")


@dataclass(frozen=True)
class Wishes:
    """What is asked of photographs.

    Attributes:
        predicted: Referable or not, or the grade.
        shifts: Shifts within the data set, by name; a photograph belongs to the first that holds it.
        val: Share of training patients for validation, where the data set has no such part.
        cal: Share of training patients for calibration, where the data set has no such part; 0 for none.
        seed: Of the cut.
    """

    predicted: Predicted
    shifts: tuple[str, ...]
    val: float
    cal: float
    seed: int

    def __post_init__(self) -> None:
        if not (self.val > 0 and self.cal >= 0 and self.val + self.cal <= 0.8):
            raise UserError(
                f"val and cal are shares of training: val above 0, both together at most 0.8; given {self.val} and "
                f"{self.cal}."
            )

    @property
    def target(self) -> Target:
        """What a network predicts."""
        return "multiclass" if self.predicted == "binary" else "ordinal"

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names; grades that are never trained on are no classes."""
        if self.predicted == "binary":
            return ("not referable", "referable")
        return GRADES[:SEVERE] if "severity" in self.shifts else GRADES

    def labels(self, grade: IntArray) -> IntArray:
        """Class of each grade; −1 where it is none."""
        if self.predicted == "binary":
            return (grade >= REFERABLE).astype(np.int64)
        return np.where(grade < len(self.classes), grade, UNLABELLED).astype(np.int64)


def cut(data: Gathered, wishes: Wishes) -> tuple[list[Split], list[str]]:
    """The splits of a data set, and what a reader must know of them.

    Raises:
        UserError: When the data puts a patient into two parts, or a split would be empty or lack a class.
    """
    parts, outside = _given(data)
    held: dict[str, BoolArray] = {}
    inside = parts != OUTSIDE
    for name in wishes.shifts:
        mask = SHIFTS[name].held(data) & inside
        held[SHIFTS[name].split] = mask
        inside = inside & ~mask
    notes = _fill(parts, np.flatnonzero(inside), data, wishes)
    learned = np.unique(data.patient[inside & np.isin(parts, (TRAIN, VAL, CAL))])
    everything = Examples(data.images, wishes.labels(data.grade), data.ids, data.patient, data.facts)
    splits = []
    for code, part in enumerate(PARTS):
        chosen = np.flatnonzero(inside & (parts == code))
        if len(chosen):
            splits.append(Split.of(part, _KINDS[code], everything.take(chosen)))
        elif code != CAL:
            raise UserError(f"{data.name}: the split {part} would be empty once the shift is held out.")
    _check_classes(splits[0], wishes, data)
    notes += unasked_notes(data, wishes.shifts)
    for split, mask in (held | outside).items():
        chosen = np.flatnonzero(mask & ~np.isin(data.patient, learned))
        lost = int(mask.sum()) - len(chosen)
        if lost:
            notes.append(
                f"Left out of {split}, because training, validation or calibration has their patients: {lost:,}."
            )
        if len(chosen) == 0:
            raise UserError(f"{data.name}: the split {split} would be empty: every patient in it is learned from.")
        made = everything.take(chosen)
        kind: Kind = "ood" if (made.labels == UNLABELLED).all() or split.startswith("ood") else "shift"
        splits.append(Split.of(split, kind, made))
        notes += _shift_notes(splits[-1])
    return splits, notes


def elsewhere(data: Gathered, wishes: Wishes) -> tuple[Split, list[str]]:
    """Another data set, whole, as a shift; its ids and patients carry its name."""
    prefix = f"{data.name}/"
    ids, patients = np.char.add(prefix, data.ids), np.char.add(prefix, data.patient)
    split = Split.of(data.name, "shift", Examples(data.images, wishes.labels(data.grade), ids, patients, data.facts))
    return split, _shift_notes(split)


def _given(data: Gathered) -> tuple[IntArray, dict[str, BoolArray]]:
    """The part of each photograph as far as the data names it, else training; and given shift and ood splits."""
    if not (data.part != "").any():
        return np.full(len(data), TRAIN, dtype=np.int64), {}
    homes: dict[str, set[str]] = defaultdict(set)
    for patient, part in zip(data.patient.tolist(), data.part.tolist(), strict=True):
        homes[patient].add(part)
    torn = [f"{patient} ({', '.join(sorted(found))})" for patient, found in homes.items() if len(found) > 1]
    if torn:
        raise UserError(
            f"{data.name} puts {len(torn):,} patients into more than one part, so that their eyes would be both "
            f"learned from and tested on: {listing(torn)}. Put every patient into one part."
        )
    given = given_parts(data.part, [f"photograph {name}" for name in data.ids.tolist()])
    return given.parts, {name: mask for name, (_, mask) in given.outside.items()}


def _fill(parts: IntArray, pool: IntArray, data: Gathered, wishes: Wishes) -> list[str]:
    """Cut the parts that the data lacks out of its training patients, in place; what to note of it."""
    here = np.bincount(parts[pool], minlength=len(PARTS)) > 0
    rest = 1.0 if here[TEST] else 1 - TEST_SHARE
    val = 0.0 if here[VAL] else rest * wishes.val
    cal = 0.0 if here[CAL] else rest * wishes.cal
    fractions = (rest - val - cal, val, cal, 1 - rest)
    rows = pool[parts[pool] == TRAIN]
    missing = [name for name, share in zip(PARTS[1:], fractions[1:], strict=True) if share > 0]
    if not missing:
        return []
    parts[rows] = stratified_parts(data.grade[rows], fractions=fractions, seed=wishes.seed, group=data.patient[rows])
    whole = len(np.unique(data.patient[rows]))
    return [
        f"Cut out of the training patients at random, stratified by grade (seed {wishes.seed}), {whole:,} patients "
        f"kept whole: {', '.join(missing)}."
    ]


def _check_classes(train: Split, wishes: Wishes, data: Gathered) -> None:
    counts = np.bincount(train.data.labels, minlength=len(wishes.classes))
    for name, count in zip(wishes.classes, counts.tolist(), strict=True):
        if count == 0:
            raise UserError(f"{data.name}: no training photograph is {name!r}; a task needs some of every class.")


def _shift_notes(split: Split) -> list[str]:
    assert split.data.group is not None
    weak = power_note(split.name, len(split), len(np.unique(split.data.group)))
    notes = [] if weak is None else [weak]
    found = np.unique(split.data.labels)
    if len(found) == 1 and found[0] != UNLABELLED:
        notes.append(
            f"Every photograph of {split.name} is of one class: accuracy is defined there, a ROC curve is not."
        )
    return notes
