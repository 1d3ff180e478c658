"""Conformance rules for a task: its splits, inputs and labels, and what two splits must not share; and small tasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import combinations
from typing import Any, get_args

import numpy as np

from dubio.core.lazy_rows import LazyRows, row_keys
from dubio.core.registry import TASKS, Entry
from dubio.core.types import (
    KINDS,
    TARGETS,
    UNLABELLED,
    Examples,
    Inputs,
    IntArray,
    Kind,
    Modality,
    SourceCard,
    Split,
    StrArray,
    Task,
)
from dubio.tasks.duplicates import normalize_text
from dubio.testing.rules import (
    SIGNATURE,
    Case,
    Outcome,
    Problem,
    Rule,
    apply_rules,
    case_of,
    findings_of,
    other_global_seed,
)

MODALITIES: tuple[Modality, ...] = get_args(Modality)

LEARNED: tuple[Kind, ...] = ("train", "val", "cal")
"""Kinds of split that training, selection or calibration sees, in this order."""

IN_DISTRIBUTION: tuple[Kind, ...] = (*LEARNED, "id")

TaskCase = Case[Task]


def examine_task(
    task: Task | Callable[[], Task] | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None
) -> list[Outcome]:
    """Check a task: :func:`examine_task` returns the outcome of every rule, :func:`check_task` the problems.

    Args:
        task: A registered name or entry, a function that makes the task, or the task itself.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    return apply_rules(RULES, case_of(Case, TASKS, task, arguments))


check_task = findings_of(examine_task)
"""Return the problems of a task, with the arguments of :func:`examine_task`; an empty list when it conforms."""


def _makes(case: TaskCase) -> Iterator[Problem]:
    with other_global_seed(1):
        succeeded = yield from case.made()
    if succeeded and not isinstance(case.subject, Task):
        problem = f"The function returned {type(case.subject).__name__}, not a Task."
        yield Problem(problem, "Return a dubio.core.types.Task.")


def _header(case: TaskCase) -> Iterator[Problem]:
    task = case.subject
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


def _splits(case: TaskCase) -> Iterator[Problem]:
    task = case.subject
    for split in task.splits:
        if split.kind not in KINDS:
            yield Problem(f"Split {split.name!r} has the kind {split.kind!r}.", f"Kinds are {', '.join(KINDS)}.")
        if len(split) == 0:
            yield Problem(f"Split {split.name!r} is empty.", "Leave out a split that has no rows.")
    if (count := len(task.of_kind("train"))) != 1:
        yield Problem(f"There are {count} splits of kind 'train'.", "There must be exactly one.")
    if (count := len(task.of_kind("val"))) > 1:
        yield Problem(f"There are {count} splits of kind 'val'.", "There must be at most one.")
    if not task.of_kind("id"):
        yield Problem("There is no split of kind 'id'.", "At least one test split must be in-domain.")
    names = [split.name for split in task.splits]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(f"Two splits are called {name!r}.", "Give every split a name of its own.")


def _inputs(case: TaskCase) -> Iterator[Problem]:
    shapes = set()
    for split in case.subject.splits:
        inputs, where = split.data.inputs, f"The inputs of split {split.name!r}"
        if case.subject.inputs == "text":
            if not isinstance(inputs, tuple) or not all(isinstance(text, str) for text in inputs):
                yield Problem(f"{where} are not a tuple of texts.", "Give a tuple of str, or another modality.")
            continue
        if not isinstance(inputs, np.ndarray | LazyRows):
            yield Problem(f"{where} are a {type(inputs).__name__}, not an array.", "Give a numpy array.")
            continue
        is_image = case.subject.inputs == "image"
        form = "images are uint8 [N, H, W, C]" if is_image else "tables are float [N, D]"
        typed = inputs.dtype == np.uint8 if is_image else inputs.dtype.kind == "f"
        if not typed or inputs.ndim != (4 if is_image else 2):
            yield Problem(f"{where} are {inputs.dtype} of shape {inputs.shape}.", f"In dubio {form}.")
        shapes.add(inputs.shape[1:])
    if len(shapes) > 1:
        problem = f"Examples have different shapes: {sorted(map(str, shapes))}."
        yield Problem(problem, "All splits must share one shape.")


def _numbers(case: TaskCase) -> Iterator[Problem]:
    for split in case.subject.splits:
        inputs = np.asarray(split.data.inputs)
        infinite = np.argwhere(np.isinf(inputs))
        if len(infinite):
            row, column = infinite[0].tolist()
            problem = f"Split {split.name!r} holds infinity, first in row {row}, column {column}."
            yield Problem(problem, "Give a finite number, or NaN where the value is missing.")
    train = np.asarray(case.subject.of_kind("train")[0].data.inputs)
    for column in np.flatnonzero(np.isnan(train).all(axis=0)).tolist():
        yield Problem(f"Column {column} is missing (NaN) in every training row.", "Leave the column out.")


def _labels(case: TaskCase) -> Iterator[Problem]:
    for split in case.subject.splits:
        yield from _split_labels(case.subject, split)


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
        problem = f"{where} must lie between {low} and {high}: row {first[0]} has {int(labels[first])}."
        advice = "A label is the index of a class in classes (−1: none of them), or 0 and 1 in a multi-hot row."
        yield Problem(problem, advice)
    elif split.kind in IN_DISTRIBUTION and (labels == UNLABELLED).any():
        problem = f"{where}: {int((labels == UNLABELLED).sum())} rows have the label −1, which stands for no class."
        yield Problem(problem, "Move them to a split of kind 'ood', or leave them out.")


def _every_class(case: TaskCase) -> Iterator[Problem]:
    task = case.subject
    labels = task.of_kind("train")[0].data.labels
    counts = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=len(task.classes))
    for index in np.flatnonzero(counts == 0).tolist():
        problem = f"Class {task.classes[index]!r} (index {index}) has no training row."
        yield Problem(problem, "Leave it out of classes, and label its rows −1 in a split of kind 'ood'.")


def _novel(case: TaskCase) -> Iterator[Problem]:
    for split in case.subject.of_kind("ood"):
        if (split.data.labels >= 0).all():
            problem = f"Every row of split {split.name!r}, of kind 'ood', carries a class of the task."
            yield Problem(problem, "Label rows of novel classes −1, or call the split's kind 'shift'.")


def _again(case: TaskCase) -> Iterator[Problem]:
    for split in case.subject.splits:
        if split.fingerprint != split.data.fingerprint():
            problem = f"The fingerprint of split {split.name!r} is not that of its data."
            yield Problem(problem, "Make splits with Split.of(…).")
    with other_global_seed(2):
        again: Task = case.make()
    if again.classes != case.subject.classes:
        yield Problem("Made twice, its classes differ.", "Sort whatever has no order of its own, such as a set.")
    second = {split.name: split.data.fingerprint() for split in again.splits}
    for split in case.subject.splits:
        if second.get(split.name) != split.data.fingerprint():
            advice = "Draw from np.random.default_rng(seed), where seed is an argument, never from global randomness."
            yield Problem(f"Made twice, split {split.name!r} holds different data.", advice)


def _card(case: TaskCase) -> Iterator[Problem]:
    for name in ("source", "revision", "licence", "citation"):
        if not str(getattr(case.subject.card, name, "")).strip():
            yield Problem(f"{name} is empty.", "Name the data's source and licence.")


# --- what two splits must not share -----------------------------------------------------------------------------------


def _pairs(task: Task) -> Iterator[tuple[Split, Split]]:
    """Return every split that training, selection or calibration sees, with every split after it."""
    order = sorted(task.splits, key=lambda split: LEARNED.index(split.kind) if split.kind in LEARNED else len(LEARNED))
    return (pair for pair in combinations(order, 2) if pair[0].kind in LEARNED)


def shared_content(task: Task) -> Iterator[Problem]:
    """Yield rows whose content two splits share; of a text the words count, not its case or punctuation."""
    keys = {split.name: _contents(split) for split in task.splits}
    for earlier, later in _pairs(task):
        first = {key: row for row, key in reversed(list(enumerate(keys[earlier.name])))}
        shared = [row for row, key in enumerate(keys[later.name]) if key in first]
        if shared:
            row, other = shared[0], first[keys[later.name][shared[0]]]
            example = f"row {row} of {later.name} is row {other} of {earlier.name}"
            problem = f"{len(shared)} rows of split {later.name!r} are also in split {earlier.name!r}: {example}."
            yield Problem(problem, "Drop duplicates before splitting, or give them one group and split by groups.")


def _contents(split: Split) -> list[Hashable]:
    inputs = split.data.inputs
    return [normalize_text(text) for text in inputs] if isinstance(inputs, tuple) else list(row_keys(inputs))


def shared_groups(task: Task) -> Iterator[Problem]:
    """Yield groups (patients, documents) that two splits share."""
    for earlier, later in _pairs(task):
        shared = _common(earlier.data.group, later.data.group)
        if shared:
            pair = f"split {later.name!r} are also in split {earlier.name!r}"
            problem = f"{len(shared)} groups of {pair}, for example {shared[0]!r}."
            yield Problem(problem, "Keep every group in one split.")


def shared_ids(task: Task) -> Iterator[Problem]:
    """Yield ids that occur twice, in one split or in two."""
    for split in task.splits:
        names, counts = np.unique([] if split.data.ids is None else split.data.ids, return_counts=True)
        if (counts > 1).any():
            name = str(names[counts > 1][0])
            problem = f"The id {name!r} occurs {int(counts.max())} times in split {split.name!r}."
            yield Problem(problem, "An id names one example: it aligns the predictions of two systems.")
    for one, other in combinations(task.splits, 2):
        shared = _common(one.data.ids, other.data.ids)
        if shared:
            problem = f"The id {shared[0]!r} is in split {one.name!r} and in split {other.name!r}."
            yield Problem(problem, "Make ids unique in the whole data set, for example by adding the split's name.")


def _common(one: StrArray | None, other: StrArray | None) -> list[str]:
    return [] if one is None or other is None else [str(name) for name in np.intersect1d(one, other)]


RULES: tuple[Rule[TaskCase], ...] = (
    SIGNATURE,
    Rule("it makes a Task", _makes, ends=True),
    Rule("inputs, target and classes are known and named", _header, ends=True),
    Rule("there is one train, one val and at least one id split", _splits, ends=True),
    Rule("the inputs are of the modality it names", _inputs, ends=True),
    Rule("table values are finite or missing", _numbers, applies=lambda case: case.subject.inputs == "table"),
    Rule("labels lie among the classes", _labels, ends=True),
    Rule("every class occurs in training", _every_class),
    # A multi-label row may carry known labels beside a novel one, so that nothing can be said of it.
    Rule("ood splits hold examples of no class", _novel, applies=lambda case: case.subject.target != "multilabel"),
    Rule("no row is both learned from and tested on", lambda case: shared_content(case.subject)),
    Rule("no group is both learned from and tested on", lambda case: shared_groups(case.subject)),
    Rule("every id occurs once", lambda case: shared_ids(case.subject)),
    Rule("made twice, it is the same", _again),
    Rule("the source card is filled in", _card),
)


# --- small tasks ------------------------------------------------------------------------------------------------------

CLASSES = ("one", "two", "three")
_SIZES: tuple[tuple[str, Kind, int], ...] = (("train", "train", 120), ("val", "val", 60), ("test", "id", 90))
_CARD = SourceCard("made up by dubio.testing", "1", "CC0-1.0", "none", "Three well-separated classes.")


def _table(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return three blobs, six standard deviations apart."""
    centres = 6.0 * np.eye(3, 5)
    return centres[labels] + generator.standard_normal((len(labels), 5))


def _image(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return dark 8×8 images with one bright stripe, whose position is the class."""
    images = generator.integers(0, 40, (len(labels), 8, 8, 1))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 200
    return images.astype(np.uint8)


def _text(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return texts of four to ten words, about half of them from the class's own vocabulary."""
    texts = []
    for label in labels.tolist():
        own = [f"{CLASSES[label]}{i}" for i in generator.integers(0, 6, generator.integers(2, 6))]
        common = [f"word{i}" for i in generator.integers(0, 12, generator.integers(2, 6))]
        texts.append(" ".join(generator.permutation(own + common)))
    return tuple(texts)


_MAKERS = {"table": _table, "image": _image, "text": _text}

SMALL_NETWORKS: dict[Modality, tuple[str, dict[str, Any]]] = {
    "table": ("mlp", {"hidden": [16, 16]}),
    "image": ("cnn", {"channels": [4, 4], "dense": 16}),
    "text": ("textcnn", {"embedding": 16, "maps": 8}),
}
"""A small built-in network for each modality: its name and arguments."""


def small_task(inputs: Modality) -> Task:
    """Return a task of 270 examples in three classes that a few training steps separate."""
    generator = np.random.default_rng(2026)
    splits = []
    for name, kind, rows in _SIZES:
        labels = np.arange(rows, dtype=np.int64) % len(CLASSES)
        ids = np.array([f"{name}-{row}" for row in range(rows)])
        splits.append(Split.of(name, kind, Examples(_MAKERS[inputs](labels, generator), labels, ids)))
    return Task(f"made-up-{inputs}", inputs, "multiclass", CLASSES, tuple(splits), _CARD)
