"""A benchmark run as the report reads it: the manifest's tasks, methods, runs and failures, typed.

The manifest is JSON that anyone may have edited; here its fields become frozen values once, and everything behind works
on those. Nothing here touches a store or a metric.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast

from dubio.core.errors import BadFile
from dubio.core.predictions import Predictions
from dubio.core.types import Kind, Target
from dubio.reporting.scope import PartView, Skipped, read_part, read_skipped, read_tuned
from dubio.reporting.scope import printable as _text
from dubio.reporting.screening.facts import Facts, read_facts

SCHEMA = 1
"""The manifest schema this report reads."""

SEVERITY = re.compile(r"(.+)-([1-9][0-9]*)")

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
    def severities(self) -> dict[str, tuple[SplitView, ...]]:
        """Shift splits that come in several severities: base name → its splits, mildest first.

        They are called ``noise-1``, ``noise-2`` and so on without a gap and hold as many examples each: the same ones,
        spoilt more and more. Other domains may end in numbers too (``hospital-2``), but are of different sizes.
        """
        found: dict[str, dict[int, SplitView]] = {}
        for split in self.of_kind("shift"):
            if name := SEVERITY.fullmatch(split.name):
                found.setdefault(name[1], {})[int(name[2])] = split
        return {
            base: tuple(levels[level] for level in sorted(levels))
            for base, levels in found.items()
            if len(levels) > 1
            and max(levels) == len(levels)
            and len({split.examples for split in levels.values()}) == 1
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
    def binary(self) -> bool:
        """Whether there are two classes, one of which is the positive one."""
        return len(self.classes) == 2 and self.target != "multilabel"

    @property
    def screened(self) -> bool:
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
class RunView:
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
    runs: tuple[RunView, ...]
    failures: tuple[Failure, ...]
    skipped: tuple[Skipped, ...] = ()
    cautions: tuple[str, ...] = ()
    parts: tuple[PartView, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that occurs, sorted."""
        return tuple(sorted({run.seed for run in self.runs}))

    def runs_of(self, task: str, method: str | None = None) -> tuple[RunView, ...]:
        """The runs on a task (by key), of one method or of all."""
        return tuple(run for run in self.runs if run.task == task and method in (None, run.method))


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
            name=_text(raw["name"]),
            benchmark=dict(raw.get("benchmark") or {}),
            tasks=tuple(
                replace(task, tuned=read_tuned(raw.get("tuning") or (), task.name, task.network)) for task in tasks
            ),
            methods=tuple(_method(entry) for entry in raw["methods"]),
            runs=tuple(_run(entry, keys) for entry in raw["runs"]),
            failures=tuple(_failure(entry) for entry in raw.get("failures") or ()),
            skipped=tuple(read_skipped(entry) for entry in raw.get("skipped") or ()),
            cautions=tuple(_text(words) for words in raw.get("advice") or ()),
            parts=tuple(read_part(entry) for entry in raw.get("parts") or ()),
        )
    except (KeyError, TypeError, ValueError) as fault:
        raise BadFile(f"the run's manifest cannot be read: {type(fault).__name__}: {fault}.") from fault


def _task_keys(entries: list[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """(task, network) → what to call it: the task's name, with the network where one task meets several."""
    names = [_text(entry["name"]) for entry in entries]
    pairs = [(_text(entry["name"]), _text(entry["network"])) for entry in entries]
    if len(set(pairs)) < len(pairs):
        raise ValueError("a task occurs twice with the same network")
    return {(name, network): name if names.count(name) == 1 else f"{name} ({network})" for name, network in pairs}


def _task(entry: Mapping[str, Any], key: str) -> TaskView:
    splits = tuple(
        SplitView(_text(split["name"]), split["kind"], _text(split["fingerprint"]), int(split["examples"]))
        for split in entry["splits"]
    )
    if not any(split.kind == "id" for split in splits):
        raise ValueError(f"task {key} has no in-domain test split")
    return TaskView(
        key=key,
        name=_text(entry["name"]),
        inputs=_text(entry["inputs"]),
        target=cast(Target, entry["target"]),
        classes=tuple(_text(name) for name in entry["classes"]),
        network=_text(entry["network"]),
        splits=splits,
        arguments=dict(entry.get("arguments") or {}),
        network_arguments=dict(entry.get("network_arguments") or {}),
        card={_text(name): _text(value) for name, value in (entry.get("card") or {}).items()},
        notes=tuple(_text(note) for note in entry.get("notes") or ()),
        corpus=_text(entry.get("task") or entry["name"]),
        thresholds=_text(entry.get("thresholds") or "half"),
        facts=read_facts(entry, {split.name: split.examples for split in splits}),
    )


def _method(entry: Mapping[str, Any]) -> MethodView:
    name, own = _text(entry["name"]), dict(entry.get("arguments") or {})
    return MethodView(
        name=name,
        title=_text(entry.get("title") or name),
        members=int(entry.get("members") or 1),
        samples=int(entry.get("samples") or 0),
        family=_text(entry.get("family") or name),
        summary=_text(entry.get("summary") or ""),
        pools=_text(entry.get("pools") or ""),
        registered=_text(entry.get("method") or name),
        views=int(own.pop("views", 0)),
        settings=_text(json.dumps(own, sort_keys=True)) if own else "",
    )


def _run(entry: Mapping[str, Any], keys: Mapping[tuple[str, str], str]) -> RunView:
    member = entry.get("member")
    return RunView(
        id=_text(entry["id"]),
        task=keys[_text(entry["task"]), _text(entry["network"])],
        method=_text(entry["method"]),
        seed=int(entry["seed"]),
        member=None if member is None else int(member),
        fits=tuple(str(fit) for fit in entry["fits"]),
    )


def _failure(entry: Mapping[str, Any]) -> Failure:
    blocked = [_text(what) for what in entry.get("blocked") or ()]
    after = f" Not made because of it: {'; '.join(blocked)}." if blocked else ""
    return Failure(
        what=_text(entry.get("what") or "run"),
        task=_text(entry.get("task") or ""),
        method=_text(entry.get("method") or ""),
        error=_text(entry.get("error") or "no reason was recorded") + after,
        id=_text(entry.get("id") or ""),
    )
