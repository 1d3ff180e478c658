"""The task ``own``: from the user's rows to a target, classes and splits.

The classes of a task are those that training has. Every split that is not trained on leaves out the groups that
training, validation and calibration use.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, UserError, listing
from dubio.core.registry import task
from dubio.core.types import BoolArray, Examples, IntArray, Kind, SourceCard, Split, Target, Task, families_by_name
from dubio.tasks.data_options import DataOptions, takes_options
from dubio.tasks.duplicates import shared_rows
from dubio.tasks.own.reading import Rows, rows_of_folder, rows_of_npz, rows_of_table
from dubio.tasks.own.tables import read_table
from dubio.tasks.shift import hold_out, novel_names, other_domains
from dubio.tasks.splitting import (
    CAL,
    LEARNED,
    PART_KINDS,
    PARTS,
    TEST,
    TRAIN,
    UNASSIGNED,
    SplitOptions,
    fill_parts,
    read_parts,
    rows_of_new_groups,
)

FOLDER_SIZE = 64
"""Both sides of an image from a folder, unless a size is given."""


@task("own")
@takes_options(DataOptions)
def own(options: DataOptions) -> Task:
    """Your own data: CSV, TSV, JSON lines, Parquet, a folder of images, or npz.

    Splits: train, val, cal, test; ``novel`` (every row that carries a held-out class; where the data names parts, those
    of test); one for each other domain; ``unseen`` (test rows of classes that training lacks, where the data names
    parts or they go by time). Rows with an empty text are left out and noted. Rows that splits share are counted in the
    notes.

    Args:
        options: Its fields are this task's arguments.
    """
    path = Path(options.data).expanduser()
    rows = _read(path, options)
    labels = encode_labels(rows, target=options.target, order=options.order)
    division = divide_rows(rows, labels, options)
    examples = Examples(rows.inputs, division.labels, rows.ids, rows.group)
    families = families_by_name({name: len(division.splits[name][1]) for name in division.named_shifts})
    splits = tuple(
        Split.of(name, kind, examples.take(chosen), family=family, severity=severity)
        for name, (kind, chosen) in division.splits.items()
        for family, severity in [families.get(name, (None, None))]
    )
    shared = tuple(pair.sentence() for pair in shared_rows(splits, rows.modality))
    notes = (*rows.notes, *labels.notes, *division.notes, *shared)
    return Task(options.name, rows.modality, labels.target, division.classes, splits, _card(path, rows), notes)


def _read(path: Path, options: DataOptions) -> Rows:
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.is_dir():
        for argument in options.column_arguments():
            raise UserError(f"{argument} names a column; {path.name} is a folder of images, which has none.")
        return rows_of_folder(path, size=FOLDER_SIZE if options.size is None else options.size)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path, options)
    if options.size is not None:
        raise UserError(f"size is for images; {path.name} is a table.")
    return rows_of_table(read_table(path), options)


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


@dataclass(frozen=True, eq=False)
class EncodedLabels:
    """Labels as numbers.

    Attributes:
        target: The kind of target.
        classes: Names, in the order of the label index.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        notes: Decisions made by looking at the data.
    """

    target: Target
    classes: tuple[str, ...]
    labels: IntArray
    notes: tuple[str, ...] = ()


def encode_labels(rows: Rows, *, target: Target | None, order: Sequence[str]) -> EncodedLabels:
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
        raise UserError(
            f"a {resolved} target has one label per row; {rows.references[row]} has {len(rows.labels[row])}."
        )
    classes = _sorted_classes({name for names in rows.labels for name in names}, order)
    if len(classes) < 2:
        raise UserError(f"there must be at least two classes; the data has {len(classes)}: {', '.join(classes)}.")
    index = {name: number for number, name in enumerate(classes)}
    if resolved != "multilabel":
        notes = ("Every row has exactly one label: taken as multi-class.",) if rows.listed and target is None else ()
        numbers = np.array([index[names[0]] for names in rows.labels], dtype=np.int64)
        return EncodedLabels(resolved, classes, numbers, notes)
    hot = np.zeros((len(rows), len(classes)), dtype=np.int64)
    for row, names in enumerate(rows.labels):
        hot[row, [index[name] for name in names]] = 1
    bare = int((hot.sum(axis=1) == 0).sum())
    return EncodedLabels(resolved, classes, hot, (f"Rows without any label: {bare:,}.",) if bare else ())


def _sorted_classes(names: set[str], order: Sequence[str]) -> tuple[str, ...]:
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


@dataclass
class Division:
    """Rows divided into splits.

    Attributes:
        classes: The classes training has.
        labels: Labels among those, for every row.
        splits: Kind and rows of every split, by name, in order.
        named_shifts: Names of the shift splits that the data names.
        notes: Remarks for the reader.
    """

    classes: tuple[str, ...]
    labels: IntArray
    splits: dict[str, tuple[Kind, IntArray]] = field(default_factory=dict)
    named_shifts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, kind: Kind, rows: Rows, mask: BoolArray) -> None:
        """Add a split that is not trained on, without the groups that are."""
        learned = np.zeros(len(rows), dtype=bool)
        for subset in (PARTS[index] for index in LEARNED):
            if subset in self.splits:
                learned[self.splits[subset][1]] = True
        chosen, lost = rows_of_new_groups(mask, rows.group, learned)
        if lost:
            self.notes.append(f"Left out of {name}, because train, val or cal has their group: {lost:,} rows.")
        if len(chosen) == 0:
            raise UserError(f"the split {name!r} ({kind}) would be empty.")
        self.splits[name] = (kind, chosen)


def divide_rows(rows: Rows, encoded: EncodedLabels, options: DataOptions) -> Division:
    """Divide rows into splits.

    Raises:
        UserError: When these rows do not allow the options.
    """
    domains = _other_domains(rows, options)
    in_domain = ~_any_of(domains.values(), len(rows))
    parts, named = _named_parts(rows, in_domain)
    inside = in_domain & ~_any_of((mask for _, mask in named.values()), len(rows))
    counts = [int((_carries(encoded.labels, k) & inside).sum()) for k in range(len(encoded.classes))]
    held_out = novel_names(encoded.classes, counts, options.novel, seed=options.split_seed)
    novel = hold_out(encoded.classes, encoded.labels, held_out).novel
    notes = list(_fill(parts, rows, encoded, np.flatnonzero(inside & ~novel), options))
    trained = np.flatnonzero((parts == TRAIN) & inside & ~novel)
    present = [k for k in range(len(encoded.classes)) if _carries(encoded.labels[trained], k).any()]
    if len(present) < 2:
        raise UserError(f"training has {len(present)} class; it needs at least two.")
    absent = [name for k, name in enumerate(encoded.classes) if k not in present]
    final = hold_out(encoded.classes, encoded.labels, absent)
    division = Division(final.classes, final.labels, notes=notes)
    _add_parts(division, parts, inside & ~novel, final.novel)
    if held_out:
        division.notes.append(f"Classes never trained on (novel), {len(held_out)}: {_some(held_out)}.")
        division.add("novel", "ood", rows, novel & inside & ((parts == TEST) if rows.split is not None else True))
    for name, (kind, mask) in named.items():
        division.add(name, kind, rows, mask)
        division.named_shifts += [name] if kind == "shift" else []
    for name, mask in domains.items():
        division.add(_free_name(division, name), "shift", rows, mask & ~final.novel)
    _note_classes(division, domains, final.novel)
    return division


def _any_of(masks: Iterable[BoolArray], count: int) -> BoolArray:
    return np.asarray(np.any([np.zeros(count, dtype=bool), *masks], axis=0))


def _carries(labels: IntArray, k: int) -> BoolArray:
    return labels[:, k] > 0 if labels.ndim == 2 else np.equal(labels, k)


def _other_domains(rows: Rows, options: DataOptions) -> dict[str, BoolArray]:
    """Return the rows of every domain that is not trained on."""
    if rows.domain is None and options.train_domain is None:
        return {}
    if rows.domain is None:
        raise UserError("train_domain needs domain: the column that names the domain of a row.")
    if options.train_domain is None:
        raise UserError(f"domain needs train_domain: one of {listing(np.unique(rows.domain).tolist())}.")
    return other_domains(rows.domain, options.train_domain)


def _named_parts(rows: Rows, in_domain: BoolArray) -> tuple[IntArray, dict[str, tuple[Kind, BoolArray]]]:
    """Return the part of each row as far as the data names it, and the shift and ood splits that it names."""
    if rows.split is None:
        return np.full(len(rows), UNASSIGNED, dtype=np.int64), {}
    named = read_parts(rows.split, rows.references)
    return named.parts, {name: (kind, mask & in_domain) for name, (kind, mask) in named.shifts.items()}


def _fill(parts: IntArray, rows: Rows, encoded: EncodedLabels, pool: IntArray, options: DataOptions) -> tuple[str, ...]:
    """Give every row of the pool its part, in place; return notes."""
    shares = SplitOptions(options.fractions, options.split_seed)
    by_time = rows.time is not None
    how = "by time, oldest first" if by_time else f"at random, stratified by label (seed {options.split_seed})"
    if rows.split is None:
        if not by_time and encoded.labels.ndim == 1:
            _refuse_single_rows(encoded, pool, rows)
        parts[pool] = TRAIN
        fill_parts(parts, pool, encoded.labels, shares, group=rows.group, time=rows.time)
        groups = "" if rows.group is None else f", {len(np.unique(rows.group[pool])):,} groups kept whole"
        return (f"Split {how}{groups}.",)
    shares = shares.for_missing(parts[pool])
    missing = fill_parts(parts, pool, encoded.labels, shares, group=rows.group, time=rows.time)
    notes = [f"Cut out of the named training rows {how}: {', '.join(missing)}."] if missing else []
    if divided := _divided_groups(rows, parts, pool):
        notes.append(f"Groups with rows in more than one of the named parts: {divided:,}.")
    return tuple(notes)


def _refuse_single_rows(encoded: EncodedLabels, pool: IntArray, rows: Rows) -> None:
    """Refuse a class of which only one row can be divided, naming the class and its row."""
    counts = np.bincount(encoded.labels[pool], minlength=len(encoded.classes))
    lonely = np.flatnonzero(counts == 1)
    if len(lonely):
        first = int(lonely[0])
        row = int(pool[encoded.labels[pool] == first][0])
        more = f" (and {len(lonely) - 1} other classes have one row each)" if len(lonely) > 1 else ""
        raise UserError(
            f"class {encoded.classes[first]!r} has one row, {rows.references[row]}{more}; a class needs at least two, "
            "one to train on and one to test. Add rows, merge it with another class, remove it, or hold it out with "
            "novel."
        )


def _divided_groups(rows: Rows, parts: IntArray, pool: IntArray) -> int:
    if rows.group is None:
        return 0
    pairs = set(zip(rows.group[pool].tolist(), parts[pool].tolist(), strict=True))
    return sum(count > 1 for count in Counter(group for group, _ in pairs).values())


def _add_parts(division: Division, parts: IntArray, usable: BoolArray, unseen: BoolArray) -> None:
    """Add train, val, cal and test; test rows of classes that training lacks become a split of their own."""
    for index, name in enumerate(PARTS):
        chosen = np.flatnonzero((parts == index) & usable & ~unseen)
        if len(chosen):
            division.splits[name] = (PART_KINDS[name], chosen)
        elif index != CAL:
            raise UserError(f"{name} has no row of a class that training has; a task needs train, val and test.")
    dropped = int((np.isin(parts, LEARNED) & usable & unseen).sum())
    if dropped:
        division.notes.append(f"Left out of val and cal, because training lacks their classes: {dropped:,} rows.")
    tested = np.flatnonzero((parts == TEST) & usable & unseen)
    if len(tested):
        division.splits["unseen"] = ("ood", tested)
        division.notes.append(f"Test rows whose classes training lacks are the split unseen: {len(tested):,} rows.")


def _free_name(division: Division, domain: str) -> str:
    """Return a domain's name as the name of a split: valid in a file name, and not that of another split."""
    plain = re.sub(r"[^\w.-]+", "-", domain)[:60].strip("-.") or "domain"
    unclear = plain.isdigit() or plain.lower() in (*PARTS, "novel", "unseen")  # a bare number says nothing in a table
    preferred = f"domain-{plain}" if unclear else plain
    used = {name.lower() for name in division.splits}
    tries = (preferred if number == 1 else f"{preferred}-{number}" for number in itertools.count(1))
    return next(name for name in tries if name.lower() not in used)


def _note_classes(division: Division, domains: dict[str, BoolArray], unseen: BoolArray) -> None:
    lost = sum(int((mask & unseen).sum()) for mask in domains.values())
    if lost:
        division.notes.append(f"Left out of other domains, because training lacks their classes: {lost:,} rows.")
    tested = division.labels[division.splits["test"][1]]
    without = [name for k, name in enumerate(division.classes) if not _carries(tested, k).any()]
    if without:
        division.notes.append(f"Classes without a test row, {len(without)}: {_some(without)}.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
