"""Results of constructed numbers, of which the right advice is known."""

from __future__ import annotations

from typing import Any

from dubio.reporting.manifest_view import Manifest, MethodRun, MethodView, SplitView, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import Cost, RunView
from dubio.reporting.score_table import Score, ScoreTable
from tests.reporting.world import FakeStore

TITLES = {
    "deterministic": ("Deterministic", 1, 0),
    "mc-dropout": ("MC dropout", 1, 10),
    "mc-concrete-dropout": ("MC concrete dropout", 1, 10),
    "deep-ensemble": ("Deep ensemble", 5, 0),
}


AUROC = detection_name("ood_auroc", "confidence")
ENTROPY = detection_name("ood_auroc", "predictive_entropy")


def task(name: str, classes: int, target: str = "multiclass", away: tuple[tuple[str, str], ...] = ()) -> TaskView:
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


def made(tasks: list[TaskView], values: dict[tuple[str, str, str], dict[str, tuple[float, ...]]]) -> RunView:
    """A run with these values: (task, split, metric) → method → one value a run."""
    names = list(dict.fromkeys(name for cells in values.values() for name in cells))
    methods = tuple(
        MethodView(
            name,
            title=TITLES[name][0],
            members=TITLES[name][1],
            samples=TITLES[name][2],
            family=name if name != "deep-ensemble" else "deterministic",
        )
        for name in names
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
            one(TITLES[name][1]), one(10.0 * TITLES[name][1]), one(1.0), one(3), one(500.0), one(1e3), one(2e6)
        )
        for t in tasks
        for name in names
    }
    runs = (MethodRun("r", (), {}, task=tasks[0].key, method=names[0]),)
    view = Manifest("made", {}, tuple(tasks), methods, runs, ())
    better: Any = {RANKED_BY: "lower", AUROC: "higher", "accuracy": "higher", ENTROPY: "higher"}
    table = ScoreTable(view, better)
    table.extend(scores)
    table.extend(Score(t.key, "test", "id", name, 0, None, "present", 1.0) for t in tasks for name in names)
    run = RunView(view, FakeStore({}), table)
    run.__dict__["costs"] = costs
    return run
