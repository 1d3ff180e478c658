"""The task ``own``: from the user's rows to a target, classes and splits.

The classes of a task are those that training has. Every split that is not trained on leaves out the groups that
training, validation and calibration use.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, UserError, listing, plural
from dubio.core.registry import task
from dubio.core.specs import hash_file
from dubio.core.types import BoolArray, Examples, IntArray, Kind, SourceCard, Split, Target, Task, families_by_name
from dubio.tables import read_table
from dubio.tasks.data_options import DataOptions, takes_options
from dubio.tasks.duplicates import shared_sentences
from dubio.tasks.own.earlier_parts import earlier_novel, keep_earlier_parts
from dubio.tasks.own.reading import Rows, feature_names, rows_of_folder, rows_of_npz, rows_of_table
from dubio.tasks.shift import AUTO, hold_out, hold_out_untrained, novel_names, other_domains
from dubio.tasks.splitting import (
    LEARNED,
    PARTS,
    TEST,
    TRAIN,
    UNASSIGNED,
    SplitOptions,
    check_seed,
    fill_parts,
    label_array,
    part_splits,
    read_parts,
    rows_of_new_groups,
)

FOLDER_SIZE = 64
"""Both sides of an image from a folder, unless a size is given."""

Masks = Mapping[str, tuple[Kind, BoolArray]]
"""Kind and rows of splits, by name."""


@task("own")
@takes_options(DataOptions)
def own(options: DataOptions) -> Task:
    """Your own data: CSV, TSV, JSON lines, Parquet, a folder of images, or npz.

    Splits: train, val, cal, test; ``novel`` (every row that carries a held-out class, whatever part the data names for
    it); one for each other domain; ``unseen`` (test rows of classes that training lacks, where the data names parts or
    they go by time). Every row read is in one split or counted in ``left_out``. Rows that splits share are counted in
    the notes, and columns named there that look like groups, parts, times or domains and are not used as such.

    Args:
        options: Its fields are this task's arguments.
    """
    path = Path(options.data).expanduser()
    rows = _read(path, options)
    labels = encode_labels(rows, target=options.target, order=options.order)
    divided = divide_rows(rows, labels, options)
    splits, card = tuple(divided.splits), _card(path, rows)
    notes = (*rows.notes, *labels.notes, *divided.notes, *shared_sentences(splits, rows.modality))
    left_out = {**rows.left_out, **divided.left_out}
    read = len(rows) + sum(rows.left_out.values())
    return Task(
        options.name, rows.modality, labels.target, divided.classes, splits, card, notes, read, left_out, rows.features,
        divided.novel,
    )  # fmt: skip


def _read(path: Path, options: DataOptions) -> Rows:
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.is_dir():
        for argument in options.column_arguments():
            raise UserError(f"{argument} names a column; {str(path)!r} is a folder of images, which has none.")
        return rows_of_folder(path, size=FOLDER_SIZE if options.size is None else options.size)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path, options)
    if options.size is not None:
        raise UserError(f"size is for images; {path.name} is a table.")
    used = set(options.columns().values())

    def numeric(head: Collection[str]) -> Collection[str]:
        # With a column that is not named, or named wrongly, "*" would ask for numbers where there are labels.
        if options.label is None or not used <= set(head):
            return ()
        return set(feature_names(head, options)) - used

    return rows_of_table(read_table(path, numeric), options)


def _card(path: Path, rows: Rows) -> SourceCard:
    revision = f"{len(rows):,} images" if path.is_dir() else f"sha256 {hash_file(path)[:16]}"
    description = f"The user's own data: {len(rows):,} rows."
    return SourceCard(path.name, revision, licence="the owner's", citation="the owner's", description=description)


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
    several = next((row for row, names in enumerate(rows.labels) if len(names) != 1), None)
    automatic: Target = "multilabel" if rows.listed and several is not None else "multiclass"
    resolved = target or ("ordinal" if order else automatic)
    if resolved != "multilabel" and several is not None:
        reference, count = rows.references[several], len(rows.labels[several])
        raise UserError(f"a {resolved} target has one label per row; {reference} has {count}.")
    classes = _sorted_classes({name for names in rows.labels for name in names}, order)
    if len(classes) < 2:
        raise UserError(f"there must be at least two classes; the data has {len(classes)}: {', '.join(classes)}.")
    notes: tuple[str, ...] = ()
    if resolved != "multilabel" and rows.listed and target is None:
        notes = ("Every row has exactly one label: taken as multi-class.",)
    elif bare := sum(not names for names in rows.labels):
        notes = (f"Rows without any label: {bare:,}.",)
    return EncodedLabels(resolved, classes, label_array(rows.labels, classes, resolved), notes)


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
        classes: The classes that training has.
        splits: The splits.
        notes: Remarks for the reader.
        left_out: Reason → rows in no split.
        novel: Classes held out of training.
    """

    classes: tuple[str, ...]
    splits: list[Split]
    notes: list[str]
    left_out: dict[str, int] = field(default_factory=dict)
    novel: tuple[str, ...] = ()

    def leave_out(self, reason: str, count: int) -> None:
        """Count rows that are left out for a reason."""
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count


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
    check_seed(options.split_seed)
    chosen, novel_notes = _novel_options(options, encoded.classes)
    held_out = novel_names(encoded.classes, counts, chosen, seed=options.split_seed)
    novel = hold_out(encoded.classes, encoded.labels, held_out).novel
    pool = inside & ~novel
    notes = [*novel_notes, *_fill(parts, rows, encoded, np.flatnonzero(pool), options)]
    final = hold_out_untrained(encoded.classes, encoded.labels, (parts == TRAIN) & pool)
    if len(final.classes) < 2:
        raise UserError(f"training has {len(final.classes)} class; it needs at least two.")
    examples = Examples(rows.inputs, final.labels, rows.ids, rows.group)
    splits = part_splits(examples, np.where(pool & ~final.novel, parts, UNASSIGNED), required=("train", "val", "test"))
    division = Division(final.classes, splits, notes, novel=held_out)
    dropped = int((np.isin(parts, LEARNED) & pool & final.novel).sum())
    division.leave_out("because they are in val or cal and training lacks their classes", dropped)
    if len(tested := np.flatnonzero((parts == TEST) & pool & final.novel)):
        splits.append(Split.of("unseen", "ood", examples.take(tested)))
        notes.append(f"Test rows whose classes training lacks are the split unseen: {len(tested):,} rows.")
    others: dict[str, tuple[Kind, BoolArray]] = dict(named)
    if held_out:
        notes.append(f"Classes never trained on (novel), {len(held_out)}: {_some(held_out)}.")
        others = {"novel": ("ood", novel & inside), **named}
    for name, mask in domains.items():
        others[_free_name(name, [*others, *(split.name for split in splits)])] = ("shift", mask & ~final.novel)
    learned = pool & ~final.novel & np.isin(parts, LEARNED)
    severities = [name for name in named if named[name][0] == "shift"]
    splits += _shift_splits(examples, others, learned, severities, division)
    lost = sum(int((mask & final.novel).sum()) for mask in domains.values())
    division.leave_out("because they are of another domain and training lacks their classes", lost)
    test = next(split.data.labels for split in splits if split.name == "test")
    if without := [name for k, name in enumerate(final.classes) if not _carries(test, k).any()]:
        notes.append(f"Classes without a test row, {len(without)}: {_some(without)}.")
    return division


def _novel_options(options: DataOptions, classes: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the classes to hold out; where they are chosen and an earlier model has chosen, those, with a note."""
    if options.parts is None or tuple(options.novel) != (AUTO,):
        return options.novel, []
    earlier = earlier_novel(Path(options.parts).expanduser())
    if earlier is None:
        return options.novel, ["The earlier model does not say which classes it held out: they were chosen anew."]
    gone = [name for name in earlier if name not in classes]
    missing = f" Not in these data: {_some(gone)}." if gone else ""
    note = f"The classes held out of training are those of the earlier model.{missing}"
    return tuple(name for name in earlier if name in classes), [note]


def _shift_splits(
    examples: Examples, masks: Masks, learned: BoolArray, named: Sequence[str], division: Division
) -> list[Split]:
    """Return the splits that are not trained on, without the groups that are; what they lose is left out.

    Args:
        examples: All rows.
        masks: Kind and rows of each split.
        learned: Rows of train, val and cal.
        named: Shift splits that the data names; their names may state a severity.
        division: Counts what is left out; changed.
    """
    chosen: dict[str, IntArray] = {}
    for name, (kind, mask) in masks.items():
        chosen[name], lost = rows_of_new_groups(mask, examples.group, learned)
        division.leave_out(f"because train, val or cal has the group of these rows of {name}", lost)
        if len(chosen[name]) == 0:
            raise UserError(f"the split {name!r} ({kind}) would be empty.")
    families = families_by_name({name: len(chosen[name]) for name in named})
    splits = []
    for name, rows in chosen.items():
        family, severity = families.get(name, (None, None))
        splits.append(Split.of(name, masks[name][0], examples.take(rows), family=family, severity=severity))
    return splits


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


def _named_parts(rows: Rows, in_domain: BoolArray) -> tuple[IntArray, Masks]:
    """Return the part of each row as far as the data names it, and the shift and ood splits that it names."""
    if rows.split is None:
        return np.full(len(rows), UNASSIGNED, dtype=np.int64), {}
    parts, shifts = read_parts(rows.split, rows.references)
    return parts, {name: (kind, mask & in_domain) for name, (kind, mask) in shifts.items()}


def _fill(parts: IntArray, rows: Rows, encoded: EncodedLabels, pool: IntArray, options: DataOptions) -> list[str]:
    """Give every row of the pool its part, in place; return notes."""
    shares = SplitOptions(options.fractions, options.split_seed)
    random = f"at random, stratified by label (seed {options.split_seed})"
    how = random if rows.time is None else "by time, oldest first"
    if rows.split is None and rows.time is None and options.parts is not None:
        path = Path(options.parts).expanduser()
        return keep_earlier_parts(path, parts, pool, rows.inputs, encoded.labels, shares, rows.group)
    if rows.split is None:
        if rows.time is None and encoded.labels.ndim == 1:
            _refuse_single_rows(encoded, pool, rows)
        parts[pool] = TRAIN
        fill_parts(parts, pool, encoded.labels, shares, group=rows.group, time=rows.time)
        groups = "" if rows.group is None else f", {len(np.unique(rows.group[pool])):,} groups kept whole"
        return [f"Split {how}{groups}."]
    shares = shares.for_missing(parts[pool])
    missing = fill_parts(parts, pool, encoded.labels, shares, group=rows.group, time=rows.time)
    notes = [f"Cut out of the named training rows {how}: {', '.join(missing)}."] if missing else []
    if rows.group is not None:
        pairs = set(zip(rows.group[pool].tolist(), parts[pool].tolist(), strict=True))
        if divided := sum(count > 1 for count in Counter(group for group, _ in pairs).values()):
            notes.append(f"Groups with rows in more than one of the named parts: {divided:,}.")
    return notes


def _refuse_single_rows(encoded: EncodedLabels, pool: IntArray, rows: Rows) -> None:
    """Refuse a class of which only one row can be divided, naming the class and its row."""
    counts = np.bincount(encoded.labels[pool], minlength=len(encoded.classes))
    lonely = np.flatnonzero(counts == 1)
    if len(lonely):
        row = int(pool[encoded.labels[pool] == lonely[0]][0])
        others = len(lonely) - 1
        have = "has one row" if others == 1 else "have one row each"
        more = f" (and {others} other {plural('class', others)} {have})" if others else ""
        raise UserError(
            f"class {encoded.classes[lonely[0]]!r} has one row, {rows.references[row]}{more}; a class needs at least "
            "two, one to train on and one to test. Add rows, merge it with another class, remove it, or hold it out "
            "with novel."
        )


def _free_name(domain: str, used: Sequence[str]) -> str:
    """Return a domain's name as the name of a split: valid in a file name, and not that of another split."""
    plain = re.sub(r"[^\w.-]+", "-", domain)[:60].strip("-.") or "domain"
    unclear = plain.isdigit() or plain.lower() in (*PARTS, "novel", "unseen")  # a bare number says nothing in a table
    preferred = f"domain-{plain}" if unclear else plain
    lower = {name.lower() for name in used}
    tries = (preferred if number == 1 else f"{preferred}-{number}" for number in itertools.count(1))
    return next(name for name in tries if name.lower() not in lower)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
