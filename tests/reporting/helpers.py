"""Helpers of the report's tests: blocks of a section, runs of constructed numbers, the outline of a page."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, TypeVar

from dubio.reporting.build import Report
from dubio.reporting.detectors import DetectionVariances
from dubio.reporting.manifest_view import Manifest, MethodRun, MethodView, SplitView, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import Cost, RunView
from dubio.reporting.score_table import Score, ScoreTable
from dubio.reporting.section import Block, Cards, Figure, Text
from dubio.reporting.tables import Table
from dubio.statistics.verdicts import VarianceTerm
from tests.reporting.stored_runs import FakeStore, identifier

Kind = TypeVar("Kind")


def blocks(report: Report, section: str, task: TaskView | None = None) -> tuple[Block, ...]:
    placed = next(placed for placed in report.sections if placed.name == section)
    return report.blocks(placed, task)


def section_of(report: Report, kind: type[Kind]) -> Kind:
    return next(placed.section for placed in report.sections if isinstance(placed.section, kind))


def of_kind(found: tuple[Block, ...], kind: type[Kind]) -> list[Kind]:
    return [block for block in found if isinstance(block, kind)]


def texts(found: tuple[Block, ...]) -> list[str]:
    """Every paragraph and list item, and the texts of cards."""
    lines = []
    for block in found:
        if isinstance(block, Text):
            lines += [block.text] if isinstance(block.text, str) else list(block.text)
        if isinstance(block, Cards):
            lines += [text for card in block.cards for text in (card.title, *card.texts, *card.evidence)]
    return lines


def figure_names(report: Report, task: TaskView | None = None) -> list[str]:
    found = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
    return [block.name for block in found if isinstance(block, Figure)]


def figures(report: Report, task: TaskView | None = None) -> dict[str, Figure]:
    found = [block for placed in report.of_part("task") for block in report.blocks(placed, task)]
    return {block.name: block for block in found if isinstance(block, Figure)}


def with_manifest(report: Report, **changes: Any) -> Report:
    """The same report of a run that lists other tasks or methods."""
    run = report.run
    return Report(replace(run, manifest=replace(run.manifest, **changes)), report.sections)


def on_tasks(run: RunView, tasks: Iterable[TaskView]) -> RunView:
    """The same run with other tasks."""
    return replace(run, manifest=replace(run.manifest, tasks=tuple(tasks)))


def with_scores(run: RunView, scores: Iterable[Score]) -> RunView:
    """The same run with other scores."""
    table = ScoreTable(run.manifest, run.scores.better, run.scores.not_ranked)
    table.extend(scores)
    return replace(run, scores=table)


def sort_values(table: Table, title: str, sub: str = "") -> dict[str, str]:
    """Return row → what a column is sorted by; the column is found by its title, and by the text below it."""
    index = next(k for k, c in enumerate(table.columns) if c.title == title and (not sub or c.sub == sub))
    return {row.title: row.cells[index].sort_key for row in table.rows}


def run_ids(manifest: dict[str, Any], task: str, method: str) -> list[str]:
    """Return the ids of a method's runs on a task."""
    return [run["id"] for run in manifest["runs"] if run["task"] == task and run["method"] == method]


# -- runs of constructed numbers, of which the right advice is known

TITLES = {
    "deterministic": ("Deterministic", 1, 0),
    "mc-dropout": ("MC dropout", 1, 10),
    "mc-concrete-dropout": ("MC concrete dropout", 1, 10),
    "deep-ensemble": ("Deep ensemble", 5, 0),
}
AUROC = detection_name("ood_auroc", "confidence")
ENTROPY = detection_name("ood_auroc", "predictive_entropy")


def task_view(name: str, classes: int, target: str = "multiclass", away: tuple[tuple[str, str], ...] = ()) -> TaskView:
    """A task of so many classes with a test set, and others away from home."""
    splits = [("test", "id"), *away]
    return TaskView(
        key=name,
        name=name,
        inputs="text",
        target=target,  # type: ignore[arg-type]
        classes=tuple(map(str, range(classes))),
        network="textcnn",
        splits=tuple(SplitView(split, kind, split, 100) for split, kind in splits),  # type: ignore[arg-type]
    )


class KnownVariance(DetectionVariances):
    """Detection whose variance over examples is known."""

    def term(self, task: str, splits: Sequence[str], method: str, first: str, second: str = "") -> VarianceTerm:
        return 1e-6, 99


def run_with(
    tasks: list[TaskView],
    values: dict[tuple[str, str, str], dict[str, tuple[float, ...]]],
    seconds: Mapping[str, float] | None = None,
) -> RunView:
    """A run with these values, (task, split, metric) → method → one value a run, and seconds of training."""
    names = list(dict.fromkeys(name for cells in values.values() for name in cells))
    facts = {name: TITLES.get(name, (name, 1, 0)) for name in names}
    methods = tuple(
        MethodView(
            name,
            title=title,
            members=members,
            samples=samples,
            family=name if name != "deep-ensemble" else "deterministic",
        )
        for name, (title, members, samples) in facts.items()
    )
    scores = [
        Score(key, split, "id", name, seed, None, metric, value)
        for (key, split, metric), cells in values.items()
        for name, found in cells.items()
        for seed, value in enumerate(found)
    ]
    one: Any = lambda value: type("C", (), {"n": 1, "mean": value, "std": None})()  # noqa: E731
    costs: Any = {
        (t.key, name): Cost(
            one(facts[name][1]),
            one((seconds or {}).get(name, 10.0 * facts[name][1])),
            one(1.0),
            one(3),
            one(500.0),
            one(1e3),
            one(2e6),
        )
        for t in tasks
        for name in names
    }
    runs = (MethodRun("r", (), {}, task=tasks[0].key, method=names[0]),)
    view = Manifest("made", {}, tuple(tasks), methods, runs, ())
    better: Any = {RANKED_BY: "lower", "brier": "lower", AUROC: "higher", "accuracy": "higher", ENTROPY: "higher"}
    better |= {metric: "higher" for *_, metric in values if metric.startswith("referral_")}
    table = ScoreTable(view, better)
    table.detection = KnownVariance()
    table.extend(scores)
    table.extend(Score(t.key, "test", "id", name, 0, None, "present", 1.0) for t in tasks for name in names)
    run = RunView(view, FakeStore({}), table)
    run.__dict__["costs"] = costs
    return run


def part_of_run(
    manifest: dict[str, Any], *tasks: str, methods: tuple[str, ...] = (), **benchmark: Any
) -> dict[str, Any]:
    """A run of some tasks and methods of the world."""
    made = copy.deepcopy(manifest)
    made["tasks"] = [task for task in made["tasks"] if task["name"] in tasks]
    made["methods"] = [method for method in made["methods"] if not methods or method["name"] in methods]
    made["runs"] = [run for run in made["runs"] if run["task"] in tasks and (not methods or run["method"] in methods)]
    made["benchmark"] = {**made["benchmark"], **benchmark}
    made["failures"] = []
    return made


def with_scores_on_features(
    store: FakeStore, manifest: dict[str, Any], task: str, methods: tuple[str, ...]
) -> dict[str, Any]:
    """A run of a task with ``posthoc``, which continues the fits of ``deterministic`` and makes its predictions.

    Args:
        store: Its store; the further fits and predictions are added to it.
        manifest: The run without the method.
        task: The task.
        methods: The methods in the order of the command.
    """
    made = without_shift(part_of_run(manifest, task))
    made["methods"].append({"name": "posthoc", "title": "Post-hoc scores", "members": 1, "samples": 0})
    for run in [run for run in made["runs"] if run["method"] == "deterministic"]:
        (fit,) = run["fits"]
        own = {**run, "method": "posthoc", "id": identifier("posthoc", run["id"]), "fits": [identifier("post", fit)]}
        store.specs[own["fits"][0]] = {"start": fit}
        store.records |= {own["fits"][0]: store.records[fit], own["id"]: store.records[run["id"]]}
        for key in [key for key in store.predictions if key[0] == run["id"]]:
            store.predictions[own["id"], key[1]] = store.predictions[key]
        made["runs"].append(own)
    by_name = {method["name"]: method for method in made["methods"]}
    made["methods"] = [by_name[name] for name in methods]
    made["runs"] = [run for run in made["runs"] if run["method"] in methods]
    return made


def without_shift(manifest: dict[str, Any]) -> dict[str, Any]:
    """The run without its shifted test sets, most of what there is to score."""
    made = copy.deepcopy(manifest)
    for task in made["tasks"]:
        task["splits"] = [split for split in task["splits"] if split["kind"] != "shift"]
    return made


# -- pages

VOID = {"meta", "br", "link", "img", "input", "hr"}
EVIL = '<script>alert("x")</script>\'"><img src=x onerror=alert(1)>&$\\frac{$'


class Outline(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
