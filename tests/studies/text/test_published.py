"""Published numbers beside ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Score
from dubio.studies.published_numbers import published_numbers
from dubio.studies.text.published import agreement_sentence, agreement_table, agreements
from tests.reporting.helpers import on_tasks, run_with, task_view, with_scores


def as_clinc(run: RunView, shifted: float) -> RunView:
    """The first task as CLINC, its deterministic accuracy that far from the published one."""
    task = replace(run.tasks[0], name="clinc", network="textcnn", classes=tuple(map(str, range(150))))
    value = next(
        n.value
        for n in published_numbers("text")
        if (n.task, n.method, n.metric) == ("clinc", "deterministic", "accuracy")
    )
    scores = [s for s in run.scores.scores if not (s.metric == "accuracy" and s.split == "test")]
    scores += [Score(task.key, "test", "id", "deterministic", seed, 0, "accuracy", value + shifted) for seed in (0, 1)]
    return with_scores(on_tasks(run, (task,)), scores)


def test_the_shipped_figures_are_those_of_the_paper() -> None:
    figures = {(f.task, f.setting, f.method, f.metric): f.value for f in published_numbers("text")}
    assert len(figures) == len(published_numbers("text")) == 5 * 18 * 4 + 5
    for method, accuracy, area in (
        ("deterministic", 0.876, 0.878), ("mc-dropout", 0.859, 0.866), ("deep-ensemble", 0.898, 0.897),
        ("concrete-dropout-ensemble", 0.915, 0.912), ("mc-concrete-dropout-ensemble", 0.917, 0.917)):  # fmt: skip
        assert figures["clinc", "in-domain", method, "accuracy"] == pytest.approx(accuracy, abs=6e-4)
        assert figures["clinc", "novelty", method, "ood_auroc"] == area


@pytest.mark.parametrize(("shifted", "outcome"), [(0.019, "within"), (0.03, "better"), (-0.03, "worse")])
def test_ours_beside_published(run: RunView, shifted: float, outcome: str) -> None:
    ours = as_clinc(run, shifted)
    task = ours.tasks[0]
    found = [
        a for a in agreements(ours, task) if (a.published.method, a.published.metric) == ("deterministic", "accuracy")
    ]
    assert [each.outcome for each in found] == [outcome]
    assert found[0].difference == pytest.approx(shifted)
    table = agreement_table(ours, task)
    assert table is not None
    cell = table.rows[0].cells[2]
    assert cell.text == f"{shifted:+.3f}".replace("-", "−")
    assert cell.spread == outcome
    assert "Accuracy: " in agreement_sentence(ours, task)


def test_within_the_published_spread_ours_is_neither_better_nor_worse() -> None:
    """NLL 0.416 was called worse than a published 0.389 ± 0.032."""
    ours = {"heteroscedastic-concrete-dropout": (0.416, 0.420), "deep-ensemble": (0.43,)}
    view = run_with([replace(task_view("clinc", 150), network="textcnn")], {("clinc", "test", "nll"): ours})
    found = {each.published.method: each for each in agreements(view, view.tasks[0])}
    assert found["heteroscedastic-concrete-dropout"].published.std == pytest.approx(0.032, abs=1e-3)
    assert found["heteroscedastic-concrete-dropout"].outcome == "within"
    assert (found["deep-ensemble"].published.std, found["deep-ensemble"].outcome) == (None, "worse")


def test_other_tasks_and_other_numbers_of_classes_are_not_compared(run: RunView) -> None:
    assert all(agreement_table(run, task) is None for task in run.tasks)
    ours = as_clinc(run, 0.0)
    fewer = replace(ours.tasks[0], classes=tuple(map(str, range(149))))
    assert agreements(ours, fewer) == ()


def test_calibration_error_is_compared_only_under_its_published_definition(run: RunView) -> None:
    ours = as_clinc(run, 0.0)
    task = ours.tasks[0]
    assert "ece" not in {each.published.metric for each in agreements(ours, task)}
    score = Score(task.key, "test", "id", "deterministic", 0, 0, "ece_as_published", 0.05)
    again = agreements(replace(ours, extra_scores=[score]), task)
    assert [a.ours.mean for a in again if a.published.metric == "ece"] == [0.05]
