"""From the names of labels to what is predicted: the target, the classes and their order, the label array.

From labelled rows to a task's splits: parts, domains, novelty, and nothing in two places.

The classes of a task are those that training has. Every split that is not trained on keeps away from the groups
that training, validation and calibration use.

The user's own data: a table of texts or numbers, a folder of images, or arrays.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, UserError, listing
from dubio.core.registry import task
from dubio.core.types import BoolArray, Examples, IntArray, Kind, SourceCard, Split, Target, Task
from dubio.tasks.duplicates import shared_rows
from dubio.tasks.own.reading import Named, Rows, rows_of_folder, rows_of_npz, rows_of_table
from dubio.tasks.own.tables import read_table
from dubio.tasks.shift import hold_out, novel_names, other_domains
from dubio.tasks.splitting import (
    CAL,
    OUTSIDE,
    PARTS,
    TEST,
    TRAIN,
    VAL,
    checked_fractions,
    fill_missing,
    given_parts,
    parts_by_time,
    stratified_parts,
)


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


FOLDER_SIZE = 64
"""Both sides of an image from a folder, unless a size is given."""


@task("own")
def own(
    *,
    data: str,
    name: str = "own",
    text: str | None = None,
    label: str | None = None,
    features: tuple[str, ...] = (),
    label_separator: str | None = None,
    target: Target | None = None,
    order: tuple[str, ...] = (),
    id: str | None = None,
    group: str | None = None,
    time: str | None = None,
    domain: str | None = None,
    train_domain: str | None = None,
    split: str | None = None,
    novel: tuple[str, ...] = (),
    fractions: tuple[float, ...] = (0.6, 0.1, 0.15, 0.15),
    split_seed: int = 0,
    size: int | None = None,
) -> Task:
    """Your own data: CSV, TSV, JSON lines, Parquet, a folder of images, or npz.

    Splits: train, val, cal, test; ``novel`` (every row that carries a held-out class; with given parts those of test);
    one for each other domain; ``unseen`` (test rows of classes training lacks, where parts are given or go by time).
    Rows with an empty text are left out and noted. Rows that splits share are counted in the notes.

    Args:
        data: The file or folder.
        name: What the task is called in reports.
        text: The column of texts.
        label: The column of classes (npz: ``y`` unless named; a folder of images names its classes itself).
        features: Numeric columns; ``*`` for all that have no other use. Missing values may be empty.
        label_separator: What stands between labels where a cell holds several.
        target: What is predicted, where the data should not decide.
        order: The classes in their order; makes the target ordinal.
        id: The column of unique ids.
        group: The column of what belongs together; no group is torn between splits.
        time: The column of times; the oldest rows train, the newest test.
        domain: The column of domains.
        train_domain: The domain to train on; every other one is a shift.
        split: The column of given parts: train, val, cal, test, shift-…, ood-…; a part it lacks is cut
            out of train.
        novel: Classes to hold out of training, or ``auto``.
        fractions: Shares of train, val, cal and test.
        split_seed: Of random parts and automatic novelty.
        size: Both sides of every image (a folder: 64 unless given; npz: as they are).
    """
    path = Path(data).expanduser()
    named = Named(text, features, label, label_separator, id, group, time, domain, split)
    rows = _read(path, named, size)
    given = labelled(rows, target=target, order=order)
    cut = cut_rows(rows, given, Wishes(fractions, split_seed, novel, train_domain))
    examples = Examples(rows.inputs, cut.labels, rows.ids, rows.group)
    splits = tuple(Split.of(part, kind, examples.take(chosen)) for part, (kind, chosen) in cut.splits.items())
    shared = tuple(found.sentence() for found in shared_rows(splits, rows.modality))
    notes = (*rows.notes, *given.notes, *cut.notes, *shared)
    return Task(name, rows.modality, given.target, cut.classes, splits, _card(path, rows), notes)


def _read(path: Path, named: Named, size: int | None) -> Rows:
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.is_dir():
        _refuse_columns(named, path)
        return rows_of_folder(path, size=FOLDER_SIZE if size is None else size)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path, named, size=size)
    if size is not None:
        raise UserError(f"size is for images; {path.name} is a table.")
    return rows_of_table(read_table(path), named)


def _refuse_columns(named: Named, path: Path) -> None:
    for argument in ("text", "features", "label", "label_separator", "id", "group", "time", "domain", "split"):
        if getattr(named, argument):
            raise UserError(f"{argument} names a column; {path.name} is a folder of images, which has none.")


def _card(path: Path, rows: Rows) -> SourceCard:
    if path.is_dir():
        revision = f"{len(rows):,} images"
    else:
        with path.open("rb") as file:
            revision = "sha256 " + hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return SourceCard(
        source=path.name,
        revision=revision,
        licence="the owner's",
        citation="the owner's",
        description=f"The user's own data: {len(rows):,} rows.",
    )
