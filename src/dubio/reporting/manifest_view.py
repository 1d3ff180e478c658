"""What a report covers beside its results: the runs it is put together from, and tasks that were not run.

Subgroups as a manifest tells them: for every row of a split, which hospital, which quality, and so on.

They are written as ``{split: {fact: {"values": [...], "rows": "0 0 1 …"}}}``: the rows of a split never change under
its fingerprint, so that a number a row says it all, in a line that stays short.

A benchmark run as the report reads it: the manifest's tasks, methods, runs and failures, typed.

The manifest is JSON that anyone may have edited; here its fields become frozen values once, and everything behind works
on those. Nothing here touches a store or a metric.

Methods with and without test-time augmentation are pairs where they differ in their views alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast

import numpy as np

from dubio.core.errors import BadFile
from dubio.core.predictions import Predictions
from dubio.core.types import Kind, StrArray, Target, families_by_name

_UNPRINTABLE = re.compile("[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True)
class Skipped:
    """A task that was not run, and why."""

    task: str
    network: str
    reason: str


@dataclass(frozen=True)
class PartView:
    """One of several runs that are reported together: what it was about.

    ``data`` is the file or folder of the user's own that it was run on, or empty.
    """

    name: str
    benchmark: str
    data: str
    preset: str
    tasks: tuple[str, ...]
    methods: int
    seeds: tuple[int, ...]


def printable(value: object) -> str:
    """A text that any page or figure can hold: what cannot be printed is replaced."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))


def read_skipped(entry: Mapping[str, Any]) -> Skipped:
    """A skipped task as a manifest tells it."""
    return Skipped(printable(entry["task"]), printable(entry.get("network") or ""), printable(entry["reason"]))


def read_part(entry: Mapping[str, Any]) -> PartView:
    """A run as a merged manifest tells it."""
    return PartView(
        name=printable(entry["name"]),
        benchmark=printable(entry["benchmark"]),
        data=printable(entry["data"]),
        preset=printable(entry.get("preset") or ""),
        tasks=tuple(printable(task) for task in entry["tasks"]),
        methods=int(entry["methods"]),
        seeds=tuple(int(seed) for seed in entry["seeds"]),
    )


def read_tuned(entries: Iterable[Mapping[str, Any]], task: str, network: str) -> tuple[str, ...]:
    """What tuning chose on a task, a sentence a method."""
    sentences = []
    for entry in entries:
        if (printable(entry["task"]), printable(entry["network"])) == (task, network):
            chosen = ", ".join(f"{name} = {value}" for name, value in entry["chosen"].items())
            scores = [trial["val_nll"] for trial in entry["trials"] if trial["val_nll"] is not None]
            sentences.append(
                f"{printable(entry['method'])}: {printable(chosen)}, the lowest validation NLL ({min(scores):.4g}) of "
                f"{len(entry['trials'])} trials"
            )
    return tuple(sentences)


MOST = 12
"""Values of a fact that are shown on their own, the most frequent ones; the others are taken together."""

OTHERS = "all others"

Facts = Mapping[str, Mapping[str, StrArray]]
"""Split → fact → value of each row."""


def read_facts(entry: Mapping[str, Any], sizes: Mapping[str, int]) -> Facts:
    """The facts of a task's manifest entry.

    Args:
        entry: The entry.
        sizes: Split → how many rows it has.

    Raises:
        ValueError: When a fact has another number of rows than its split, or a row names no value.
    """
    found: dict[str, dict[str, StrArray]] = {}
    for split, facts in (entry.get("facts") or {}).items():
        for fact, told in facts.items():
            values = np.array([printable(value) for value in told["values"]], dtype=np.str_)
            rows = np.array(str(told["rows"]).split(), dtype=np.int64)
            if len(rows) != sizes.get(split) or rows.min(initial=0) < 0 or rows.max(initial=0) >= len(values):
                raise ValueError(f"fact {fact!r} of split {split!r} does not fit its rows")
            found.setdefault(printable(split), {})[printable(fact)] = values[rows]
    return found


def parts_of(column: StrArray) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Value → which rows have it, the most frequent first; rare ones beyond a dozen are one part."""
    names, counts = np.unique(column, return_counts=True)
    order = names[np.argsort(-counts, kind="stable")].tolist()
    kept = order if len(order) <= MOST else order[: MOST - 1]
    parts = {name: column == name for name in kept}
    if len(kept) < len(order):
        parts[OTHERS] = ~np.isin(column, kept)
    return parts


SCHEMA = 1
"""The manifest schema this report reads."""

FEW_CORRUPTIONS = 3
"""More families of corruptions than these are looked at together, not one by one."""


class Source(Protocol):
    """What the report asks of a store."""

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        """The predictions of one run on one split."""

    def record(self, identifier: str) -> dict[str, Any]:
        """Timings, environment and bytes of a fit or a prediction."""

    def spec(self, room: Literal["fits", "predictions"], identifier: str) -> dict[str, Any]:
        """The specification that a fit or a prediction is the result of."""

    def read_pictures(self, fingerprint: str) -> dict[int, bytes]:
        """Small copies of some examples of a split, PNG by row; empty where none are kept."""


@dataclass(frozen=True)
class SplitView:
    """A split as the manifest tells it."""

    name: str
    kind: Kind
    fingerprint: str
    examples: int
    family: str | None = None
    severity: int | None = None


@dataclass(frozen=True)
class TestSet:
    """OOD or shifted test splits that belong together: one split, or the severities of one or several corruptions."""

    __test__ = False  # not a test class of pytest

    title: str
    splits: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True)
class TaskView:
    """A task as the manifest tells it; ``key`` is unique within the run, ``corpus`` the name it is registered under."""

    key: str
    name: str
    inputs: str
    target: Target
    classes: tuple[str, ...]
    network: str
    splits: tuple[SplitView, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    network_arguments: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    corpus: str = ""
    thresholds: str = "half"
    facts: Facts = field(default_factory=dict)

    def of_kind(self, *kinds: Kind) -> tuple[SplitView, ...]:
        """The splits of these kinds, in the task's order."""
        return tuple(split for split in self.splits if split.kind in kinds)

    @property
    def in_domain(self) -> SplitView:
        """The (first) in-domain test split."""
        return self.of_kind("id")[0]

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
        """Whether corruptions are so many that they are looked at together."""
        return len(self.severities) > FEW_CORRUPTIONS

    @property
    def farthest(self) -> tuple[SplitView, ...]:
        """One split a place away from home: of a corruption its worst severity, of many corruptions none."""
        last = None if self.many_corruptions else -1
        milder = {split for splits in self.severities.values() for split in splits[:last]}
        return tuple(split for split in self.of_kind("ood", "shift") if split not in milder)

    @property
    def test_sets(self) -> tuple[TestSet, ...]:
        """The OOD and shifted test sets, the severities of a corruption taken together, many corruptions all."""
        graded = self.severities
        within = {split for splits in graded.values() for split in splits}
        single = [TestSet(s.name, (s.name,), s.kind) for s in self.of_kind("ood", "shift") if s not in within]
        if self.many_corruptions:
            names = tuple(split.name for splits in graded.values() for split in splits)
            return (*single, TestSet(f"{len(graded)} corruptions", names, "shift"))
        return (*single, *(TestSet(base, tuple(s.name for s in splits), "shift") for base, splits in graded.items()))

    @property
    def binary(self) -> bool:
        """Whether there are two classes, one of which is the positive one."""
        return len(self.classes) == 2 and self.target != "multilabel"

    @property
    def has_positive_side(self) -> bool:
        """Whether it has two sides, so that a ROC curve is defined: two classes, or grades that are referred or not."""
        return self.binary or (self.target == "ordinal" and len(self.classes) > 2)


@dataclass(frozen=True)
class MethodView:
    """A method as the manifest tells it.

    ``family`` is the single-fit method an ensemble is made of; ``pools`` says how many predictions are pooled where
    runs that are reported together differ in that. ``registered`` is the method behind a variant, ``views`` the random
    views it predicts, and ``settings`` what else makes it a variant.
    """

    name: str
    title: str
    members: int
    samples: int
    family: str
    summary: str = ""
    pools: str = ""
    registered: str = ""
    views: int = 0
    settings: str = ""

    @property
    def ensemble(self) -> bool:
        """Whether it pools several independent fits."""
        return self.members > 1


@dataclass(frozen=True)
class MethodRun:
    """One set of predictions: a method on a task with a seed (and a member, for single fits)."""

    id: str
    task: str
    method: str
    seed: int
    member: int | None
    fits: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """Something that was asked for and is not there, and why."""

    what: str
    task: str
    method: str
    error: str
    id: str = ""


@dataclass(frozen=True)
class Manifest:
    """A whole benchmark run, or several reported together (then ``parts`` tells of each)."""

    name: str
    benchmark: Mapping[str, Any]
    tasks: tuple[TaskView, ...]
    methods: tuple[MethodView, ...]
    runs: tuple[MethodRun, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[Skipped, ...] = ()
    cautions: tuple[str, ...] = ()
    parts: tuple[PartView, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that occurs, sorted."""
        return tuple(sorted({run.seed for run in self.runs}))

    def runs_of(self, task: str, method: str | None = None) -> tuple[MethodRun, ...]:
        """The runs on a task (by key), of one method or of all."""
        return tuple(run for run in self.runs if run.task == task and method in (None, run.method))

    def reference(self, task: TaskView) -> str | None:
        """Return the method that others are compared with: the first single-fit one with a run on the task."""
        present = {run.method for run in self.runs_of(task.key)}
        names = [method.name for method in sorted(self.methods, key=lambda method: method.ensemble)]
        return next((name for name in names if name in present), None)


def read_manifest(raw: Mapping[str, Any]) -> Manifest:
    """Type a manifest.

    Raises:
        BadFile: When its schema is another or a field is missing.
    """
    if raw.get("schema") != SCHEMA:
        raise BadFile(f"the run's manifest has schema {raw.get('schema')!r}; this dubio reads schema {SCHEMA}.")
    try:
        keys = _task_keys(raw["tasks"])
        tasks = [_task(entry, key) for entry, key in zip(raw["tasks"], keys.values(), strict=True)]
        return Manifest(
            name=printable(raw["name"]),
            benchmark=dict(raw.get("benchmark") or {}),
            tasks=tuple(
                replace(task, tuned=read_tuned(raw.get("tuning") or (), task.name, task.network)) for task in tasks
            ),
            methods=tuple(_method(entry) for entry in raw["methods"]),
            runs=tuple(_run(entry, keys) for entry in raw["runs"]),
            failures=tuple(_failure(entry) for entry in raw.get("failures") or ()),
            skipped=tuple(read_skipped(entry) for entry in raw.get("skipped") or ()),
            cautions=tuple(printable(words) for words in raw.get("advice") or ()),
            parts=tuple(read_part(entry) for entry in raw.get("parts") or ()),
        )
    except (KeyError, TypeError, ValueError) as fault:
        raise BadFile(f"the run's manifest cannot be read: {type(fault).__name__}: {fault}.") from fault


def _task_keys(entries: list[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """(task, network) → what to call it: the task's name, with the network where one task meets several."""
    names = [printable(entry["name"]) for entry in entries]
    pairs = [(printable(entry["name"]), printable(entry["network"])) for entry in entries]
    if len(set(pairs)) < len(pairs):
        raise ValueError("a task occurs twice with the same network")
    return {(name, network): name if names.count(name) == 1 else f"{name} ({network})" for name, network in pairs}


def _splits(entries: list[Mapping[str, Any]]) -> tuple[SplitView, ...]:
    """Return a task's splits; manifests of version 0.1 state family and severity by the names alone."""
    sizes = {entry["name"]: int(entry["examples"]) for entry in entries if entry["kind"] == "shift"}
    by_name = families_by_name(sizes) if not any("severity" in entry for entry in entries) else {}
    return tuple(
        SplitView(
            printable(entry["name"]),
            entry["kind"],
            printable(entry["fingerprint"]),
            int(entry["examples"]),
            *by_name.get(entry["name"], (entry.get("family"), entry.get("severity"))),
        )
        for entry in entries
    )


def _task(entry: Mapping[str, Any], key: str) -> TaskView:
    splits = _splits(entry["splits"])
    if not any(split.kind == "id" for split in splits):
        raise ValueError(f"task {key} has no in-domain test split")
    return TaskView(
        key=key,
        name=printable(entry["name"]),
        inputs=printable(entry["inputs"]),
        target=cast(Target, entry["target"]),
        classes=tuple(printable(name) for name in entry["classes"]),
        network=printable(entry["network"]),
        splits=splits,
        arguments=dict(entry.get("arguments") or {}),
        network_arguments=dict(entry.get("network_arguments") or {}),
        card={printable(name): printable(value) for name, value in (entry.get("card") or {}).items()},
        notes=tuple(printable(note) for note in entry.get("notes") or ()),
        corpus=printable(entry.get("task") or entry["name"]),
        thresholds=printable(entry.get("thresholds") or "half"),
        facts=read_facts(entry, {split.name: split.examples for split in splits}),
    )


def _method(entry: Mapping[str, Any]) -> MethodView:
    name, own = printable(entry["name"]), dict(entry.get("arguments") or {})
    return MethodView(
        name=name,
        title=printable(entry.get("title") or name),
        members=int(entry.get("members") or 1),
        samples=int(entry.get("samples") or 0),
        family=printable(entry.get("family") or name),
        summary=printable(entry.get("summary") or ""),
        pools=printable(entry.get("pools") or ""),
        registered=printable(entry.get("method") or name),
        views=int(own.pop("views", 0)),
        settings=printable(json.dumps(own, sort_keys=True)) if own else "",
    )


def _run(entry: Mapping[str, Any], keys: Mapping[tuple[str, str], str]) -> MethodRun:
    member = entry.get("member")
    return MethodRun(
        id=printable(entry["id"]),
        task=keys[printable(entry["task"]), printable(entry["network"])],
        method=printable(entry["method"]),
        seed=int(entry["seed"]),
        member=None if member is None else int(member),
        fits=tuple(str(fit) for fit in entry["fits"]),
    )


def _failure(entry: Mapping[str, Any]) -> Failure:
    blocked = [printable(what) for what in entry.get("blocked") or ()]
    after = f" Not made because of it: {'; '.join(blocked)}." if blocked else ""
    return Failure(
        what=printable(entry.get("what") or "run"),
        task=printable(entry.get("task") or ""),
        method=printable(entry.get("method") or ""),
        error=printable(entry.get("error") or "no reason was recorded") + after,
        id=printable(entry.get("id") or ""),
    )


def tta_pairs(methods: Sequence[MethodView]) -> dict[str, str]:
    """Return method with test-time augmentation → the same method without it.

    Both are registered under one name with the same further arguments; a method without such a pair is not listed.
    """
    plain: dict[tuple[str, str], str] = {}
    for method in methods:
        if not method.views:
            plain.setdefault((method.registered, method.settings), method.name)
    return {
        method.name: plain[method.registered, method.settings]
        for method in methods
        if method.views and (method.registered, method.settings) in plain
    }
