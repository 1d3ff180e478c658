"""A benchmark run as the report reads it: the manifest's tasks, methods, runs and failures, typed.

A manifest is decoded by its form in the store (:class:`dubio.store.records.Manifest`); the views add what the report
derives from it. Nothing here touches a store or a metric.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Protocol, TypeVar, cast, get_args

import numpy as np

from dubio.core.documents import parse_toml
from dubio.core.errors import BadFile, UserError, one_of
from dubio.core.predictions import Predictions
from dubio.core.types import Kind, StrArray, families_by_name
from dubio.core.validate import decode
from dubio.statistics.verdicts import Question
from dubio.store.examples import Content
from dubio.store.records import (
    EntryKind,
    ManifestColumn,
    ManifestMethod,
    ManifestRun,
    ManifestSplit,
    ManifestTask,
    ManifestTuning,
)
from dubio.store.records import Manifest as StoredManifest

MethodRun = ManifestRun
"""One set of predictions: a method on a task (by its key in the view) with a seed, and a member for single fits."""

SplitView = ManifestSplit
"""A split of a task."""

Entry = TypeVar("Entry")

_UNPRINTABLE = re.compile("[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

FEW_CORRUPTIONS = 3
"""More families of corruptions than these are averaged, not shown one by one."""


class Source(Protocol):
    """The part of a store that the report reads."""

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        """Return the predictions of one run on one split."""

    def record(self, identifier: str) -> dict[str, Any]:
        """Return timings, environment and bytes of a fit or a prediction."""

    def spec(self, kind: EntryKind, identifier: str) -> dict[str, Any]:
        """Return the specification of a fit or a prediction."""

    def read_examples(self, fingerprint: str) -> Mapping[int, Content]:
        """Return texts, table rows or PNG images of some rows of a split, by row; empty where there are none."""
        return {}


@dataclass(frozen=True)
class TestSet:
    """OOD or shifted test splits that belong together: one split, or the severities of one or several corruptions."""

    __test__ = False  # not a test class of pytest

    title: str
    splits: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True)
class TaskView(ManifestTask):
    """A task of a run.

    Attributes:
        key: Its name, unique within the run: with the network where one task meets several.
        tuned: One sentence per method that was tuned.
        columns: Split → name of a column beside the labels, such as a site → its value in each row.
    """

    key: str = ""
    tuned: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, StrArray]] = field(default_factory=dict)

    @property
    def corpus(self) -> str:
        """The name the task is registered under."""
        return self.task or self.name

    def read(self, source: Source, run: MethodRun, split: SplitView) -> Predictions:
        """Return the predictions of a run of this task on one of its splits.

        Raises:
            DubioError: When they cannot be read.
        """
        predictions = source.read_predictions(run.id, split.name, split.fingerprint)
        same = predictions.empty_decision == self.empty_decision
        return predictions if same else predictions.with_checked(empty_decision=self.empty_decision)

    @property
    def is_own(self) -> bool:
        """Whether its data is a file or folder that the user named, on which no paper has numbers."""
        return "data" in self.arguments

    def of_kind(self, *kinds: Kind) -> tuple[SplitView, ...]:
        """Return the splits of these kinds, in the task's order."""
        return tuple(split for split in self.splits if split.kind in kinds)

    @property
    def in_domain(self) -> SplitView:
        """The (first) in-domain test split."""
        return self.of_kind("id")[0]

    @property
    def training_data(self) -> str:
        """The fingerprint of its training split; its key where it has none, as in a report of prediction files."""
        return next((split.fingerprint for split in self.of_kind("train")), self.key)

    @property
    def severities(self) -> dict[str, tuple[SplitView, ...]]:
        """Shift splits of a family in several severities: family → its splits, mildest first."""
        families: dict[str, dict[int, SplitView]] = {}
        for split in self.of_kind("shift"):
            if split.family is not None and split.severity is not None:
                families.setdefault(split.family, {})[split.severity] = split
        return {
            family: tuple(levels[level] for level in sorted(levels))
            for family, levels in families.items()
            if len(levels) > 1 and max(levels) == len(levels)
        }

    @property
    def many_corruptions(self) -> bool:
        """Whether there are too many corruptions to show one by one."""
        return len(self.severities) > FEW_CORRUPTIONS

    @property
    def farthest(self) -> tuple[SplitView, ...]:
        """The OOD and shifted splits, of a corruption its worst severity alone, of many corruptions none."""
        last = None if self.many_corruptions else -1
        milder = {split for splits in self.severities.values() for split in splits[:last]}
        return tuple(split for split in self.of_kind("ood", "shift") if split not in milder)

    @property
    def test_sets(self) -> tuple[TestSet, ...]:
        """The OOD and shifted test sets, the severities of a corruption taken together, many corruptions all."""
        graded = {family: tuple(split.name for split in splits) for family, splits in self.severities.items()}
        within = {name for names in graded.values() for name in names}
        single = [TestSet(s.name, (s.name,), s.kind) for s in self.of_kind("ood", "shift") if s.name not in within]
        if self.many_corruptions:
            graded = {f"{len(graded)} corruptions": tuple(name for names in graded.values() for name in names)}
        return (*single, *(TestSet(family, names, "shift") for family, names in graded.items()))

    @property
    def binary(self) -> bool:
        """Whether there are two classes, one of which is the positive one."""
        return len(self.classes) == 2 and self.target != "multilabel"

    @property
    def has_positive_side(self) -> bool:
        """Whether it has two sides, so that a ROC curve is defined: two classes, or grades that are referred or not."""
        return self.binary or (self.target == "ordinal" and len(self.classes) > 2)


@dataclass(frozen=True)
class MethodView(ManifestMethod):
    """A method of a run; ``family`` is its own name where it is no ensemble."""

    family: str = ""

    @property
    def registered(self) -> str:
        """The name the method is registered under."""
        return self.method or self.name

    @property
    def ensemble(self) -> bool:
        """Whether it pools several independent fits."""
        return self.members > 1

    @property
    def baseline(self) -> bool:
        """Whether it is a plain method that stands first in every comparison."""
        return self.facts.get("role") == "baseline"

    @property
    def reference(self) -> bool:
        """Whether it is the plain network, which is registered as the reference, and no variant of it."""
        return self.facts.get("role") == "reference" and self.name == self.registered and not self.ensemble

    @property
    def simplicity(self) -> tuple[int | bool | str, ...]:
        """A key that sorts the simpler of two methods first: fewer networks, fewer samples, the reference."""
        return self.members, self.samples, self.views, not self.reference, bool(self.settings), self.name

    @property
    def trainings_vary(self) -> bool:
        """Whether another seed gives another fit; where not, one run suffices and its variance over trainings is 0."""
        return bool(self.facts.get("trainings_vary", True))

    @property
    def views(self) -> int:
        """The number of random views of an input that it predicts, for test-time augmentation."""
        return int(self.arguments.get("views", 0))

    @property
    def settings(self) -> str:
        """The other arguments that make it a variant of the registered method, as JSON; empty if there are none."""
        others = {name: value for name, value in self.arguments.items() if name != "views"}
        return json.dumps(others, sort_keys=True) if others else ""


@dataclass(frozen=True)
class Skipped:
    """A task that was not run, and the reason."""

    task: str
    network: str = ""
    reason: str = ""


@dataclass(frozen=True)
class PartView:
    """One of several runs that are reported together; ``data`` is the file or folder of its user's own data."""

    name: str
    benchmark: str
    data: str
    preset: str
    command: str
    tasks: tuple[str, ...]
    methods: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Failure:
    """A fit or prediction that is missing, and the reason."""

    what: str
    task: str
    method: str
    error: str
    id: str = ""


@dataclass(frozen=True)
class Manifest:
    """A benchmark run, or several reported together: then ``parts`` has one entry per run.

    ``command`` makes the run again; it is empty where only Python can, and in manifests that do not state it.
    ``plugins`` were loaded for the run. ``examples`` is False where no example of its data may be shown. ``question``
    is what its comparisons ask: of prediction files, whether these trained systems differ.
    """

    name: str
    benchmark: Mapping[str, Any]
    tasks: tuple[TaskView, ...]
    methods: tuple[MethodView, ...]
    runs: tuple[MethodRun, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[Skipped, ...] = ()
    cautions: tuple[str, ...] = ()
    parts: tuple[PartView, ...] = ()
    command: str = ""
    plugins: tuple[str, ...] = ()
    examples: bool = True
    question: Question = "methods"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that occurs, sorted."""
        return tuple(sorted({run.seed for run in self.runs}))

    def runs_of(self, task: str, method: str | None = None) -> tuple[MethodRun, ...]:
        """Return the runs on a task (by key), of one method or of all."""
        return tuple(run for run in self.runs if run.task == task and method in (None, run.method))

    def reference(self, task: TaskView) -> str | None:
        """Return the method that others are compared with, of those with a run on the task.

        It is the one that is registered as the reference, else the first single fit; a baseline only where the run has
        nothing else.
        """
        present = {run.method for run in self.runs_of(task.key)}
        names = [
            method.name
            for method in sorted(self.methods, key=lambda own: (own.baseline, own.ensemble, not own.reference))
        ]
        return next((name for name in names if name in present), None)

    def simplest_first(self, cells: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return what methods have, the simplest method first, in whatever order a command named them.

        Of two methods with the same value the first is then always the same.
        """
        plain = {method.name: method.simplicity for method in self.methods}
        listed = sorted(cells.keys() & plain.keys(), key=plain.__getitem__)
        return {name: cells[name] for name in (*listed, *(name for name in cells if name not in plain))}

    @property
    def network_methods(self) -> frozenset[str]:
        """Names of methods that are one network, whose ensembles are deep ensembles.

        They are registered with the role ``reference``; a variant, which has a name of its own, is another network.
        """
        return frozenset(method.name for method in self.methods if method.reference)

    def single_networks(self, task: TaskView) -> tuple[MethodRun, ...]:
        """Return the runs that are single networks of a deep ensemble; none where the run has no deep ensemble."""
        names, runs = self.network_methods, self.runs_of(task.key)
        pooled = {method.name for method in self.methods if method.ensemble and method.family in names}
        return tuple(run for run in runs if run.method in names) if any(run.method in pooled for run in runs) else ()


def printable(text: str) -> str:
    """Return a text that any page or figure can hold: characters that cannot be printed are replaced."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _printable_data(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {printable(str(key)): _printable_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_printable_data(value) for value in data]
    return printable(data) if isinstance(data, str) else data


def read_manifest(raw: Mapping[str, Any]) -> Manifest:
    """Return the view of a manifest.

    Raises:
        BadFile: If a field is missing or of another type, or fields contradict each other.
    """
    try:
        data = _printable_data(raw)
        stored = decode(StoredManifest, data)
        keys = _task_keys(stored.tasks)
        graded = [any("severity" in split for split in task.get("splits", ())) for task in data["tasks"]]
        tuned = _tuned(stored.tuning)
        views = zip(stored.tasks, keys.values(), graded, strict=True)
        return Manifest(
            name=stored.name,
            benchmark=stored.benchmark or {},
            tasks=tuple(_task(task, key, tuned, stated) for task, key, stated in views),
            methods=tuple(_method(method) for method in stored.methods),
            runs=_runs(stored.runs, keys),
            failures=tuple(_failure(entry) for entry in stored.failures),
            skipped=decode(tuple[Skipped, ...], stored.skipped),
            cautions=stored.advice,
            parts=decode(tuple[PartView, ...], stored.others.get("parts", ())),
            command=str(stored.others.get("command", "")),
            plugins=decode(tuple[str, ...], stored.others.get("plugins", ())),
            examples=decode(bool, stored.others.get("examples", True)),
            question=cast(Question, one_of("question", stored.others.get("question", "methods"), get_args(Question))),
        )
    except UserError as fault:
        raise BadFile(f"the run's manifest: {fault}") from fault


def _task_keys(tasks: Sequence[ManifestTask]) -> dict[tuple[str, str], str]:
    """Return (task, network) → its key: the task's name, with the network where one task meets several."""
    counts = Counter(task.name for task in tasks)
    keys = {(t.name, t.network): t.name if counts[t.name] == 1 else f"{t.name} ({t.network})" for t in tasks}
    if len(keys) < len(tasks):
        raise UserError("a task occurs twice with the same network.")
    return keys


def _runs(runs: Sequence[MethodRun], keys: Mapping[tuple[str, str], str]) -> tuple[MethodRun, ...]:
    """Return the runs with the keys of their tasks; each stands once."""
    views: dict[tuple[str, str, int, int | None], MethodRun] = {}
    for run in runs:
        view = replace(run, task=_key_of(run, keys))
        if views.setdefault((view.task, view.method, view.seed, view.member), view) is not view:
            raise UserError(f"method {run.method!r} occurs twice on task {view.task!r} with seed {run.seed}.")
    return tuple(views.values())


def _key_of(run: MethodRun, keys: Mapping[tuple[str, str], str]) -> str:
    if (run.task, run.network) not in keys:
        raise UserError(f"run {run.id}: the manifest has no task {run.task!r} with network {run.network!r}.")
    return keys[run.task, run.network]


def _task(task: ManifestTask, key: str, tuned: Mapping[tuple[str, str], list[str]], graded: bool) -> TaskView:
    """Return the view of a task; ``graded`` says whether its splits state their family and severity."""
    if not any(split.kind == "id" for split in task.splits):
        raise UserError(f"task {key} has no in-domain test split.")
    splits = task.splits if graded else _graded_by_name(task.splits)
    sizes = {split.name: split.examples for split in splits}
    columns = {
        split: {name: _column(split, name, column, sizes.get(split)) for name, column in facts.items()}
        for split, facts in task.facts.items()
    }
    sentences = tuple(tuned.get((task.name, task.network), ()))
    return TaskView(**{**vars(task), "splits": splits}, key=key, tuned=sentences, columns=columns)


def _graded_by_name(splits: Sequence[SplitView]) -> tuple[SplitView, ...]:
    """Return splits with family and severity, which manifests of version 0.1 state by the names alone."""
    families = families_by_name({split.name: split.examples for split in splits if split.kind == "shift"})
    grades = {split.name: families.get(split.name, (None, None)) for split in splits}
    return tuple(replace(s, family=grades[s.name][0], severity=grades[s.name][1]) for s in splits)


def _column(split: str, name: str, column: ManifestColumn, size: int | None) -> StrArray:
    values, rows = np.array(column.values, dtype=np.str_), column.rows.split()
    if len(rows) != size or not all(row.isdecimal() and len(row) < 19 and int(row) < len(values) for row in set(rows)):
        raise UserError(f"fact {name!r} of split {split!r} does not fit its rows.")
    return np.asarray(values[np.array(rows, dtype=np.int64)])


def _tuned(tuning: Sequence[ManifestTuning]) -> dict[tuple[str, str], list[str]]:
    """Return (task, network) → a sentence per method that was tuned on it."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for choice in tuning:
        values = ", ".join(f"{name} = {value}" for name, value in choice.chosen.items())
        best = min((trial.val_nll for trial in choice.trials if trial.val_nll is not None), default=math.nan)
        sentence = f"{choice.method}: {values}, the lowest validation NLL ({best:.4g}) of {len(choice.trials)} trials"
        sentences.setdefault((choice.task, choice.network), []).append(sentence)
    return sentences


@cache
def _facts_of_version_0_1() -> dict[str, dict[str, Any]]:
    """Return method → its facts, for manifests of version 0.1, which do not state them."""
    return parse_toml((files("dubio.reporting") / "methods-0.1.toml").read_bytes(), "methods-0.1.toml")


def _method(method: ManifestMethod) -> MethodView:
    facts = method.facts or _facts_of_version_0_1().get(method.method or method.name, {})
    stated = {"title": method.title or method.name, "family": method.family or method.name, "facts": facts}
    return MethodView(**{**vars(method), **stated})


def _failure(entry: Mapping[str, Any]) -> Failure:
    texts = {name: str(entry.get(name) or "") for name in ("what", "task", "method", "error", "id")}
    blocked = "; ".join(map(str, entry.get("blocked") or ()))
    after = f" Not made because of it: {blocked}." if blocked else ""
    error = (texts["error"] or "no reason was recorded") + after
    return Failure(**{**texts, "what": texts["what"] or "run", "error": error})


def tta_pairs(methods: Sequence[MethodView]) -> dict[str, str]:
    """Return method with test-time augmentation → the same method without it.

    Both are registered under one name with the same further arguments; a method without such a pair is not listed.
    """
    plain: dict[tuple[str, str], str] = {}
    for method in methods:
        if not method.views:
            plain.setdefault((method.registered, method.settings), method.name)
    pairs = {method.name: plain.get((method.registered, method.settings)) for method in methods if method.views}
    return {name: base for name, base in pairs.items() if base is not None}
