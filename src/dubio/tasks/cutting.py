"""From labelled rows to a task's splits: parts, domains, novelty, and nothing in two places.

The classes of a task are those that training has. Every split that is not trained on keeps away from the groups
that training, validation and calibration use.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dubio.core.errors import UserError, listing
from dubio.core.types import BoolArray, IntArray, Kind
from dubio.tasks.labelling import Labelled, refuse_single_rows
from dubio.tasks.parts_given import OUTSIDE, fill_missing, given_parts
from dubio.tasks.rows import Rows
from dubio.tasks.shift import hold_out, novel_names, other_domains
from dubio.tasks.splits import CAL, PARTS, TEST, TRAIN, VAL, checked_fractions, parts_by_time, stratified_parts

FITTED = (TRAIN, VAL, CAL)


@dataclass(frozen=True)
class Wishes:
    """How the user wants the rows cut.

    Attributes:
        fractions: Shares of train, val, cal and test.
        seed: Of random parts and of ``novel = ("auto",)``.
        novel: Classes to hold out of training.
        train_domain: The domain to train on.
    """

    fractions: tuple[float, ...]
    seed: int
    novel: tuple[str, ...]
    train_domain: str | None


@dataclass
class Cut:
    """What becomes of the rows.

    Attributes:
        classes: The classes training has.
        labels: Labels among those, for every row.
        splits: Kind and rows of every split, by name, in order.
        notes: What a reader must know.
    """

    classes: tuple[str, ...]
    labels: IntArray
    splits: dict[str, tuple[Kind, IntArray]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def cut_rows(rows: Rows, given: Labelled, wishes: Wishes) -> Cut:
    """Cut rows into splits.

    Raises:
        UserError: When the wishes cannot be met with these rows.
    """
    away = _domains(rows, wishes)
    home = ~np.any([np.zeros(len(rows), dtype=bool), *away.values()], axis=0)
    outside, parts = _given(rows, home)
    inside = home & ~np.any([np.zeros(len(rows), dtype=bool), *(mask for _, mask in outside.values())], axis=0)
    counts = [int((_carries(given.labels, k) & inside).sum()) for k in range(len(given.classes))]
    held = novel_names(given.classes, counts, wishes.novel, seed=wishes.seed)
    novel = hold_out(given.classes, given.labels, held).novel
    notes = list(_assign(parts, rows, given, np.flatnonzero(inside & ~novel), wishes))
    trained = np.flatnonzero((parts == TRAIN) & inside & ~novel)
    here = [k for k in range(len(given.classes)) if _carries(given.labels[trained], k).any()]
    if len(here) < 2:
        raise UserError(f"training has {len(here)} class; it needs at least two.")
    absent = [name for k, name in enumerate(given.classes) if k not in here]
    final = hold_out(given.classes, given.labels, absent)
    made = Cut(final.classes, final.labels, notes=notes)
    _add_parts(made, parts, inside & ~novel, final.novel)
    if held:
        made.notes.append(f"Classes never trained on (novel), {len(held)}: {_some(held)}.")
        tested = novel & inside & (np.isin(parts, (TEST,)) if rows.split is not None else True)
        _add_outside(made, rows, "novel", "ood", tested)
    for name, (kind, mask) in outside.items():
        _add_outside(made, rows, name, kind, mask)
    for name, mask in away.items():
        _add_outside(made, rows, _free_name(made, name), "shift", mask & ~final.novel)
    _note_classes(made, away, final.novel)
    return made


def _carries(labels: IntArray, k: int) -> BoolArray:
    return labels[:, k] > 0 if labels.ndim == 2 else np.equal(labels, k)


def _domains(rows: Rows, wishes: Wishes) -> dict[str, BoolArray]:
    """The rows of every domain that is not trained on."""
    if rows.domain is None and wishes.train_domain is None:
        return {}
    if rows.domain is None:
        raise UserError("train_domain needs domain: the column that says where a row comes from.")
    if wishes.train_domain is None:
        raise UserError(f"domain needs train_domain: one of {listing(np.unique(rows.domain).tolist())}.")
    return other_domains(rows.domain, wishes.train_domain)


def _given(rows: Rows, home: BoolArray) -> tuple[dict[str, tuple[Kind, BoolArray]], IntArray]:
    """Given shift and ood splits, and the part of each row as far as the data names it."""
    if rows.split is None:
        return {}, np.full(len(rows), OUTSIDE, dtype=np.int64)
    given = given_parts(rows.split, rows.places)
    return {name: (kind, mask & home) for name, (kind, mask) in given.outside.items()}, given.parts


def _assign(parts: IntArray, rows: Rows, given: Labelled, pool: IntArray, wishes: Wishes) -> tuple[str, ...]:
    """Give every row of the pool its part, in place; what to note of it."""
    fractions = checked_fractions(wishes.fractions)

    def cut(chosen: IntArray, shares: tuple[float, ...]) -> IntArray:
        group = None if rows.group is None else rows.group[chosen]
        if rows.time is not None:
            return parts_by_time(rows.time[chosen], fractions=shares, group=group)
        return stratified_parts(given.labels[chosen], fractions=shares, seed=wishes.seed, group=group)

    how = "by time, oldest first" if rows.time is not None else f"at random, stratified by label (seed {wishes.seed})"
    kept = "" if rows.group is None else f", {len(np.unique(rows.group[pool])):,} groups kept whole"
    if rows.split is None:
        if rows.time is None and given.labels.ndim == 1:
            refuse_single_rows(given, pool, rows)
        parts[pool] = cut(pool, fractions)
        return (f"Split {how}{kept}.",)
    filled, missing = fill_missing(parts[pool], fractions, lambda inner, shares: cut(pool[inner], shares))
    parts[pool] = filled
    notes = [f"Cut out of the given training rows {how}: {', '.join(missing)}."] if missing else []
    torn = _torn_groups(rows, parts, pool)
    if torn:
        notes.append(f"Groups with rows in more than one of the given parts: {torn:,}.")
    return tuple(notes)


def _torn_groups(rows: Rows, parts: IntArray, pool: IntArray) -> int:
    if rows.group is None:
        return 0
    pairs = set(zip(rows.group[pool].tolist(), parts[pool].tolist(), strict=True))
    return sum(count > 1 for count in Counter(group for group, _ in pairs).values())


def _add_parts(made: Cut, parts: IntArray, usable: BoolArray, unseen: BoolArray) -> None:
    """Train, val, cal and test; test rows of classes that training lacks become a split of their own."""
    kinds: tuple[Kind, ...] = ("train", "val", "cal", "id")
    for index, name in enumerate(PARTS):
        chosen = np.flatnonzero((parts == index) & usable & ~unseen)
        if len(chosen):
            made.splits[name] = (kinds[index], chosen)
        elif index != CAL:
            raise UserError(f"{name} has no row of a class that training has; a task needs train, val and test.")
    dropped = int((np.isin(parts, FITTED) & usable & unseen).sum())
    if dropped:
        made.notes.append(f"Left out of val and cal, because training lacks their classes: {dropped:,} rows.")
    tested = np.flatnonzero((parts == TEST) & usable & unseen)
    if len(tested):
        made.splits["unseen"] = ("ood", tested)
        made.notes.append(f"Test rows whose classes training lacks are the split unseen: {len(tested):,} rows.")


def _add_outside(made: Cut, rows: Rows, name: str, kind: Kind, mask: BoolArray) -> None:
    """A split that is not trained on, without the groups that are."""
    chosen = np.flatnonzero(mask)
    if rows.group is not None:
        fitted = [made.splits[part][1] for part in ("train", "val", "cal") if part in made.splits]
        known = np.isin(rows.group[chosen], rows.group[np.concatenate(fitted)])
        if known.any():
            lost = int(known.sum())
            made.notes.append(f"Left out of {name}, because train, val or cal has their group: {lost:,} rows.")
        chosen = chosen[~known]
    if len(chosen) == 0:
        raise UserError(f"the split {name!r} ({kind}) would be empty.")
    made.splits[name] = (kind, chosen)


def _free_name(made: Cut, domain: str) -> str:
    """A domain as the name of a split: fit for a file's name, and not taken by another split."""
    plain = re.sub(r"[^\w.-]+", "-", domain)[:60].strip("-.") or "domain"
    unclear = plain.isdigit() or plain.lower() in (*PARTS, "novel", "unseen")  # a bare number says nothing in a table
    wanted = f"domain-{plain}" if unclear else plain
    taken = {name.lower() for name in made.splits}
    tries = (wanted if number == 1 else f"{wanted}-{number}" for number in itertools.count(1))
    return next(name for name in tries if name.lower() not in taken)


def _note_classes(made: Cut, away: dict[str, BoolArray], unseen: BoolArray) -> None:
    lost = sum(int((mask & unseen).sum()) for mask in away.values())
    if lost:
        made.notes.append(f"Left out of other domains, because training lacks their classes: {lost:,} rows.")
    tested = made.labels[made.splits["test"][1]]
    without = [name for k, name in enumerate(made.classes) if not _carries(tested, k).any()]
    if without:
        made.notes.append(f"Classes without a test row, {len(without)}: {_some(without)}.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
