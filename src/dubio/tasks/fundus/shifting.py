"""What of one data set training never sees: bad photographs, severe eyes, other hospitals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UnknownName
from dubio.core.types import BoolArray
from dubio.tasks.fundus.gathered import Gathered
from dubio.tasks.fundus.photographs import UNKNOWN
from dubio.tasks.sources.corpus import DataMissing

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
