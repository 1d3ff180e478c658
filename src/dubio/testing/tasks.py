"""Rules for a task: its splits, labels, inputs and source card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from dubio.core.lazy_rows import LazyRows
from dubio.core.registry import TASKS, Entry
from dubio.core.types import KINDS, TARGETS, UNLABELLED, Kind, Modality, Split, Task
from dubio.testing.factories import entry_of, missing_arguments, signature_problems
from dubio.testing.findings import Finding, Outcome, Problem, Rule, flattened, follow, spoken
from dubio.testing.leakage import shared_content, shared_groups, shared_ids
from dubio.testing.randomness import other_global_seed

MODALITIES: tuple[Modality, ...] = get_args(Modality)

IN_DISTRIBUTION: tuple[Kind, ...] = ("train", "val", "cal", "id")


@dataclass
class Subject:
    """A task under examination: how it is made, and what was made."""

    make: Callable[[], Any]
    entry: Entry[Any] | None
    arguments: Mapping[str, Any]
    task: Task = None  # type: ignore[assignment]  # set by the rule that makes it, before any rule reads it


def check_task(
    task: Task | Callable[[], Task] | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None
) -> list[Finding]:
    """What is wrong with a task; empty when nothing is.

    Args:
        task: A registered name or entry, a function that makes the task, or the task itself.
        arguments: For the registered function, where its defaults will not do.
    """
    return flattened(examine_task(task, arguments=arguments))


def examine_task(
    task: Task | Callable[[], Task] | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None
) -> list[Outcome]:
    """The same as :func:`check_task`, rule by rule."""
    given = dict(arguments or {})
    if isinstance(task, Task):
        return follow(RULES, Subject(lambda: task, None, given))
    if isinstance(task, str | Entry):
        entry = entry_of(TASKS, task)
        return follow(RULES, Subject(lambda: entry.make(**given), entry, given))
    return follow(RULES, Subject(task, None, given))


def _made(subject: Subject) -> Iterator[Problem]:
    if subject.entry is not None:
        lacking = list(missing_arguments(subject.entry, subject.arguments))
        if lacking:
            yield from lacking
            return
    try:
        with other_global_seed(1):
            made = subject.make()
    except Exception as fault:
        yield Problem(f"Making it raised {spoken(fault)}", "Make it work with its default arguments.")
        return
    if not isinstance(made, Task):
        yield Problem(f"The function returned {type(made).__name__}, not a Task.", "Return a dubio.core.types.Task.")
        return
    subject.task = made


def _signature(subject: Subject) -> Iterator[Problem]:
    if subject.entry is not None:
        yield from signature_problems(subject.entry)


def _header(subject: Subject) -> Iterator[Problem]:
    task = subject.task
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


def _splits(subject: Subject) -> Iterator[Problem]:
    task = subject.task
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
        yield Problem("There is no split of kind 'id'.", "At least one test split is of the training distribution.")
    names = [split.name for split in task.splits]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(f"Two splits are called {name!r}.", "Give every split a name of its own.")


def _inputs(subject: Subject) -> Iterator[Problem]:
    shapes = set()
    for split in subject.task.splits:
        inputs, where = split.data.inputs, f"The inputs of split {split.name!r}"
        if subject.task.inputs == "text":
            if not isinstance(inputs, tuple) or not all(isinstance(text, str) for text in inputs):
                yield Problem(f"{where} are not a tuple of texts.", "Give a tuple of str, or another modality.")
            continue
        if not isinstance(inputs, np.ndarray | LazyRows):
            yield Problem(f"{where} are a {type(inputs).__name__}, not an array.", "Give a numpy array.")
            continue
        is_image = subject.task.inputs == "image"
        right = (
            inputs.dtype == np.uint8 and inputs.ndim == 4 if is_image else inputs.dtype.kind == "f" and inputs.ndim == 2
        )
        if not right:
            wanted = "images are uint8 [N, H, W, C]" if is_image else "tables are float [N, D]"
            yield Problem(f"{where} are {inputs.dtype} of shape {inputs.shape}.", f"In dubio {wanted}.")
        shapes.add(inputs.shape[1:])
    if len(shapes) > 1:
        yield Problem(
            f"Examples have different shapes: {sorted(map(str, shapes))}.", "All splits must share one shape."
        )


def _numbers(subject: Subject) -> Iterator[Problem]:
    for split in subject.task.splits:
        inputs = np.asarray(split.data.inputs)
        infinite = np.argwhere(np.isinf(inputs))
        if len(infinite):
            row, column = infinite[0].tolist()
            yield Problem(
                f"Split {split.name!r} holds infinity, first in row {row}, column {column}.",
                "Give a finite number, or NaN where the value is missing.",
            )
    train = np.asarray(subject.task.of_kind("train")[0].data.inputs)
    for column in np.flatnonzero(np.isnan(train).all(axis=0)).tolist():
        yield Problem(f"Column {column} is missing (NaN) in every training row.", "Leave the column out.")


def _labels(subject: Subject) -> Iterator[Problem]:
    for split in subject.task.splits:
        yield from _split_labels(subject.task, split)


def _split_labels(task: Task, split: Split) -> Iterator[Problem]:
    labels, where = split.data.labels, f"The labels of split {split.name!r}"
    wanted = (len(split), len(task.classes)) if task.target == "multilabel" else (len(split),)
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != wanted:
        is_array = isinstance(labels, np.ndarray)
        seen = f"{labels.dtype} of shape {labels.shape}" if is_array else type(labels).__name__
        yield Problem(f"{where} are {seen}.", f"A {task.target} task of this size has int64 labels of shape {wanted}.")
        return
    low, high = (0, 1) if task.target == "multilabel" else (UNLABELLED, len(task.classes) - 1)
    outside = np.argwhere((labels < low) | (labels > high))
    if len(outside):
        where_first = tuple(outside[0].tolist())
        yield Problem(
            f"{where} reach outside {low} … {high}: row {where_first[0]} has {int(labels[where_first])}.",
            "A label is the index of a class in classes (−1: none of them), or 0 and 1 in a multi-hot row.",
        )
    elif split.kind in IN_DISTRIBUTION and (labels == UNLABELLED).any():
        yield Problem(
            f"{where}: {int((labels == UNLABELLED).sum())} rows have the label −1, which stands for no class.",
            "Move them to a split of kind 'ood', or leave them out.",
        )


def _every_class(subject: Subject) -> Iterator[Problem]:
    task = subject.task
    labels = task.of_kind("train")[0].data.labels
    seen = labels.sum(axis=0) > 0 if labels.ndim == 2 else np.bincount(labels, minlength=len(task.classes)) > 0
    for index in np.flatnonzero(~seen).tolist():
        yield Problem(
            f"Class {task.classes[index]!r} (index {index}) has no training row.",
            "A class that is never trained on is no class of the task: leave it out and label its rows −1, kind 'ood'.",
        )


def _novel(subject: Subject) -> Iterator[Problem]:
    for split in subject.task.of_kind("ood"):
        if (split.data.labels >= 0).all():
            yield Problem(
                f"Every row of split {split.name!r}, of kind 'ood', carries a class of the task.",
                "Label what is novel −1, or call the split's kind 'shift'.",
            )


def _again(subject: Subject) -> Iterator[Problem]:
    for split in subject.task.splits:
        if split.fingerprint != split.data.fingerprint():
            yield Problem(
                f"The fingerprint of split {split.name!r} is not that of its data.", "Make splits with Split.of(…)."
            )
    with other_global_seed(2):
        again: Task = subject.make()
    if again.classes != subject.task.classes:
        yield Problem("Made twice, its classes differ.", "Sort whatever has no order of its own, such as a set.")
    second = {split.name: split.data.fingerprint() for split in again.splits}
    for split in subject.task.splits:
        if second.get(split.name) != split.data.fingerprint():
            yield Problem(
                f"Made twice, split {split.name!r} holds different data.",
                "Draw from np.random.default_rng(seed) with a seed that is an argument, never from global randomness.",
            )


def _card(subject: Subject) -> Iterator[Problem]:
    for name in ("source", "revision", "licence", "citation"):
        if not str(getattr(subject.task.card, name, "")).strip():
            yield Problem(f"{name} is empty.", "Say where the data comes from and on what terms.")


def _exclusive(subject: Subject) -> bool:
    # a multi-label row may carry known labels beside a novel one, so that nothing can be said of it
    return subject.task.target != "multilabel"


def _is_table(subject: Subject) -> bool:
    return subject.task.inputs == "table"


RULES: tuple[Rule[Subject], ...] = (
    Rule("its arguments are keyword-only, typed and have a docstring", _signature),
    Rule("it makes a Task", _made, ends=True),
    Rule("inputs, target and classes are known and named", _header, ends=True),
    Rule("there is one train, one val and at least one id split", _splits, ends=True),
    Rule("the inputs are of the modality it names", _inputs, ends=True),
    Rule("table values are finite or missing", _numbers, applies=_is_table),
    Rule("labels lie among the classes", _labels, ends=True),
    Rule("every class occurs in training", _every_class),
    Rule("ood splits hold what belongs to no class", _novel, applies=_exclusive),
    Rule("no row is both learned from and tested on", lambda s: shared_content(s.task)),
    Rule("no group is both learned from and tested on", lambda s: shared_groups(s.task)),
    Rule("every id occurs once", lambda s: shared_ids(s.task)),
    Rule("made twice, it is the same", _again),
    Rule("the source card is filled in", _card),
)
