"""Conformance rules for a task: its splits, inputs and labels, and what two splits must not share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import numpy as np

from dubio.core.lazy_rows import LazyRows, row_keys
from dubio.core.registry import TASKS, Entry
from dubio.core.types import KINDS, TARGETS, UNLABELLED, Kind, Modality, Split, StrArray, Task
from dubio.tasks.duplicates import normalize_text
from dubio.testing.rules import (
    Finding,
    Outcome,
    Problem,
    Rule,
    all_findings,
    apply_rules,
    attempt,
    find_entry,
    other_global_seed,
    signature_problems,
)

MODALITIES: tuple[Modality, ...] = get_args(Modality)

LEARNED: tuple[Kind, ...] = ("train", "val", "cal")
"""Kinds of split that training, selection or calibration sees, in this order."""

IN_DISTRIBUTION: tuple[Kind, ...] = ("train", "val", "cal", "id")


@dataclass
class Case:
    """A task to check: how it is made, and the task itself."""

    make: Callable[[], Any]
    entry: Entry[Any] | None
    arguments: Mapping[str, Any]
    task: Task = None  # type: ignore[assignment]  # set by the rule that makes it, before any rule reads it


def check_task(
    task: Task | Callable[[], Task] | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Return the problems of a task; an empty list when it conforms.

    Args:
        task: A registered name or entry, a function that makes the task, or the task itself.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    return all_findings(examine_task(task, arguments=arguments))


def examine_task(
    task: Task | Callable[[], Task] | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None
) -> list[Outcome]:
    """Return the outcome of every rule; see :func:`check_task`."""
    values = dict(arguments or {})
    if isinstance(task, Task):
        return apply_rules(RULES, Case(lambda: task, None, values))
    if isinstance(task, str | Entry):
        entry = find_entry(TASKS, task)
        return apply_rules(RULES, Case(lambda: entry.make(**values), entry, values))
    return apply_rules(RULES, Case(task, None, values))


def _makes(case: Case) -> Iterator[Problem]:
    with other_global_seed(1):
        case.task, problems = attempt(case.make, case.entry, case.arguments)
    yield from problems
    if not problems and not isinstance(case.task, Task):
        kind = type(case.task).__name__
        yield Problem(f"The function returned {kind}, not a Task.", "Return a dubio.core.types.Task.")


def _signature(case: Case) -> Iterator[Problem]:
    if case.entry is not None:
        yield from signature_problems(case.entry)


def _header(case: Case) -> Iterator[Problem]:
    task = case.task
    if task.inputs not in MODALITIES:
        yield Problem(f"inputs is {task.inputs!r}.", f"It must be one of {', '.join(MODALITIES)}.")
    if task.target not in TARGETS:
        yield Problem(f"target is {task.target!r}.", f"It must be one of {', '.join(TARGETS)}.")
    if not isinstance(task.classes, tuple) or not all(isinstance(name, str) and name for name in task.classes):
        yield Problem(f"classes is {task.classes!r}.", "It must be a tuple of names.")
    elif len(task.classes) < (1 if task.target == "multilabel" else 2) or len(set(task.classes)) < len(task.classes):
        yield Problem(f"classes is {task.classes!r}.", "There must be at least two, each named once.")
    if any(not isinstance(note, str) for note in task.notes):
        yield Problem("notes holds something that is not a text.", "Each note is a sentence for the reader.")


def _splits(case: Case) -> Iterator[Problem]:
    task = case.task
    for split in task.splits:
        if split.kind not in KINDS:
            yield Problem(f"Split {split.name!r} has the kind {split.kind!r}.", f"Kinds are {', '.join(KINDS)}.")
        if len(split) == 0:
            yield Problem(f"Split {split.name!r} is empty.", "Leave out a split that has no rows.")
    for kind in ("train", "val"):
        count = len(task.of_kind(kind))
        if count != 1:
            yield Problem(f"There are {count} splits of kind {kind!r}.", "There must be exactly one.")
    if not task.of_kind("id"):
        yield Problem("There is no split of kind 'id'.", "At least one test split must be in-domain.")
    names = [split.name for split in task.splits]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(f"Two splits are called {name!r}.", "Give every split a name of its own.")


def _inputs(case: Case) -> Iterator[Problem]:
    shapes = set()
    for split in case.task.splits:
        inputs, where = split.data.inputs, f"The inputs of split {split.name!r}"
        if case.task.inputs == "text":
            if not isinstance(inputs, tuple) or not all(isinstance(text, str) for text in inputs):
                yield Problem(f"{where} are not a tuple of texts.", "Give a tuple of str, or another modality.")
            continue
        if not isinstance(inputs, np.ndarray | LazyRows):
            yield Problem(f"{where} are a {type(inputs).__name__}, not an array.", "Give a numpy array.")
            continue
        is_image = case.task.inputs == "image"
        form = "images are uint8 [N, H, W, C]" if is_image else "tables are float [N, D]"
        typed = inputs.dtype == np.uint8 if is_image else inputs.dtype.kind == "f"
        if not typed or inputs.ndim != (4 if is_image else 2):
            yield Problem(f"{where} are {inputs.dtype} of shape {inputs.shape}.", f"In dubio {form}.")
        shapes.add(inputs.shape[1:])
    if len(shapes) > 1:
        yield Problem(
            f"Examples have different shapes: {sorted(map(str, shapes))}.", "All splits must share one shape."
        )


def _numbers(case: Case) -> Iterator[Problem]:
    for split in case.task.splits:
        inputs = np.asarray(split.data.inputs)
        infinite = np.argwhere(np.isinf(inputs))
        if len(infinite):
            row, column = infinite[0].tolist()
            yield Problem(
                f"Split {split.name!r} holds infinity, first in row {row}, column {column}.",
                "Give a finite number, or NaN where the value is missing.",
            )
    train = np.asarray(case.task.of_kind("train")[0].data.inputs)
    for column in np.flatnonzero(np.isnan(train).all(axis=0)).tolist():
        yield Problem(f"Column {column} is missing (NaN) in every training row.", "Leave the column out.")


def _labels(case: Case) -> Iterator[Problem]:
    for split in case.task.splits:
        yield from _split_labels(case.task, split)


def _split_labels(task: Task, split: Split) -> Iterator[Problem]:
    labels, where = split.data.labels, f"The labels of split {split.name!r}"
    shape = (len(split), len(task.classes)) if task.target == "multilabel" else (len(split),)
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != shape:
        is_array = isinstance(labels, np.ndarray)
        form = f"{labels.dtype} of shape {labels.shape}" if is_array else type(labels).__name__
        yield Problem(f"{where} are {form}.", f"A {task.target} task of this size has int64 labels of shape {shape}.")
        return
    low, high = (0, 1) if task.target == "multilabel" else (UNLABELLED, len(task.classes) - 1)
    invalid = np.argwhere((labels < low) | (labels > high))
    if len(invalid):
        first = tuple(invalid[0].tolist())
        yield Problem(
            f"{where} must lie between {low} and {high}: row {first[0]} has {int(labels[first])}.",
            "A label is the index of a class in classes (−1: none of them), or 0 and 1 in a multi-hot row.",
        )
    elif split.kind in IN_DISTRIBUTION and (labels == UNLABELLED).any():
        yield Problem(
            f"{where}: {int((labels == UNLABELLED).sum())} rows have the label −1, which stands for no class.",
            "Move them to a split of kind 'ood', or leave them out.",
        )


def _every_class(case: Case) -> Iterator[Problem]:
    task = case.task
    labels = task.of_kind("train")[0].data.labels
    counts = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=len(task.classes))
    for index in np.flatnonzero(counts == 0).tolist():
        yield Problem(
            f"Class {task.classes[index]!r} (index {index}) has no training row.",
            "Leave a class that is never trained on out of classes, and label its rows −1 in a split of kind 'ood'.",
        )


def _novel(case: Case) -> Iterator[Problem]:
    for split in case.task.of_kind("ood"):
        if (split.data.labels >= 0).all():
            yield Problem(
                f"Every row of split {split.name!r}, of kind 'ood', carries a class of the task.",
                "Label rows of novel classes −1, or call the split's kind 'shift'.",
            )


def _again(case: Case) -> Iterator[Problem]:
    for split in case.task.splits:
        if split.fingerprint != split.data.fingerprint():
            yield Problem(
                f"The fingerprint of split {split.name!r} is not that of its data.", "Make splits with Split.of(…)."
            )
    with other_global_seed(2):
        again: Task = case.make()
    if again.classes != case.task.classes:
        yield Problem("Made twice, its classes differ.", "Sort whatever has no order of its own, such as a set.")
    second = {split.name: split.data.fingerprint() for split in again.splits}
    for split in case.task.splits:
        if second.get(split.name) != split.data.fingerprint():
            yield Problem(
                f"Made twice, split {split.name!r} holds different data.",
                "Draw from np.random.default_rng(seed) with a seed that is an argument, never from global randomness.",
            )


def _card(case: Case) -> Iterator[Problem]:
    for name in ("source", "revision", "licence", "citation"):
        if not str(getattr(case.task.card, name, "")).strip():
            yield Problem(f"{name} is empty.", "Name the data's source and licence.")


def _exclusive(case: Case) -> bool:
    # a multi-label row may carry known labels beside a novel one, so that nothing can be said of it
    return case.task.target != "multilabel"


def _is_table(case: Case) -> bool:
    return case.task.inputs == "table"


# --- what two splits must not share -----------------------------------------------------------------------------------


def _pairs(task: Task) -> Iterator[tuple[Split, Split]]:
    """Return every split that training, selection or calibration sees, with every split after it."""
    order = sorted(task.splits, key=lambda split: LEARNED.index(split.kind) if split.kind in LEARNED else len(LEARNED))
    return (pair for pair in combinations(order, 2) if pair[0].kind in LEARNED)


def shared_content(task: Task) -> Iterator[Problem]:
    """Yield rows whose content two splits share; of a text the words count, not its case or punctuation."""
    keys = {split.name: _contents(split) for split in task.splits}
    for earlier, later in _pairs(task):
        first: dict[Hashable, int] = {}
        for row, key in enumerate(keys[earlier.name]):
            first.setdefault(key, row)
        shared = [row for row, key in enumerate(keys[later.name]) if key in first]
        if shared:
            row, other = shared[0], first[keys[later.name][shared[0]]]
            yield Problem(
                f"{len(shared)} rows of split {later.name!r} are also in split {earlier.name!r}: row {row} of "
                f"{later.name} is row {other} of {earlier.name}.",
                "Drop duplicates before splitting, or give them one group and split by groups.",
            )


def _contents(split: Split) -> list[Hashable]:
    inputs = split.data.inputs
    if isinstance(inputs, tuple):
        return [normalize_text(text) for text in inputs]
    return list(row_keys(inputs))


def shared_groups(task: Task) -> Iterator[Problem]:
    """Yield groups (patients, documents) that two splits share."""
    for earlier, later in _pairs(task):
        shared = _common(earlier.data.group, later.data.group)
        if shared:
            yield Problem(
                f"{len(shared)} groups of split {later.name!r} are also in split {earlier.name!r}, for example "
                f"{shared[0]!r}.",
                "Keep every group in one split.",
            )


def shared_ids(task: Task) -> Iterator[Problem]:
    """Yield ids that occur twice, in one split or in two."""
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


RULES: tuple[Rule[Case], ...] = (
    Rule("its arguments are keyword-only, typed and have a docstring", _signature),
    Rule("it makes a Task", _makes, ends=True),
    Rule("inputs, target and classes are known and named", _header, ends=True),
    Rule("there is one train, one val and at least one id split", _splits, ends=True),
    Rule("the inputs are of the modality it names", _inputs, ends=True),
    Rule("table values are finite or missing", _numbers, applies=_is_table),
    Rule("labels lie among the classes", _labels, ends=True),
    Rule("every class occurs in training", _every_class),
    Rule("ood splits hold examples of no class", _novel, applies=_exclusive),
    Rule("no row is both learned from and tested on", lambda s: shared_content(s.task)),
    Rule("no group is both learned from and tested on", lambda s: shared_groups(s.task)),
    Rule("every id occurs once", lambda s: shared_ids(s.task)),
    Rule("made twice, it is the same", _again),
    Rule("the source card is filled in", _card),
)
