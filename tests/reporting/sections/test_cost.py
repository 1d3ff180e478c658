"""The table of costs, and quality against cost."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting import build_report
from dubio.reporting.build import Report
from dubio.reporting.section import Figure
from dubio.reporting.sections.cost import cost_table, round_numbers
from tests.reporting.helpers import blocks, of_kind, part_of_run, sort_values
from tests.reporting.sections.helpers import rows_of
from tests.reporting.stored_runs import METHODS, World, make_world, task_of


def test_cost_has_an_epoch_and_the_epoch_of_convergence() -> None:
    store, manifest = make_world((0,))
    for place, record in enumerate(store.records.values()):
        if "parameters" in record:
            record |= {"seconds_per_epoch": 0.5 + place, "best_epoch": 3 + place, "environment": {"device": "cpu"}}
    run = build_report(store, part_of_run(manifest, "screening")).run
    table = cost_table(run, run.tasks[0])
    fits = next(run["fits"] for run in manifest["runs"] if run["task"] == "screening" and len(run["fits"]) == 2)
    epochs = [store.records[fit]["seconds_per_epoch"] for fit in fits]
    assert float(sort_values(table, "Epoch")["Deep ensemble"]) == pytest.approx(np.mean(epochs))
    assert float(sort_values(table, "Converged")["Deep ensemble"]) == pytest.approx(np.mean(epochs) + 2.5)
    assert next(head.sub for head in table.columns if head.title == "Inference") == "examples per second, cpu"
    assert table.caption == "One run; mean ± standard deviation over runs"  # of networks that were trained twice
    alone = build_report(store, part_of_run(manifest, "screening", methods=("deep-ensemble",))).run
    assert cost_table(alone, alone.tasks[0]).caption == "One run"


def test_trainings_that_a_fit_continues_are_part_of_its_cost() -> None:
    """A Gaussian around a network seemed to cost seconds: the training of the network was left out."""
    store, manifest = make_world((0,))
    fits = next(run["fits"] for run in manifest["runs"] if run["task"] == "screening" and len(run["fits"]) == 2)
    for place, fit in enumerate(fits):  # member ← tail ← network; the member itself is fitted for no epoch
        tail, network = f"tail-{place}", f"network-{place}"
        store.records[fit] |= {"seconds": 1.0, "epochs": 0}
        store.specs |= {fit: {"start": tail}, tail: {"start": network}, network: {"start": None}}
        store.records |= {tail: {"seconds": 10.0, "epochs": 2}, network: {"seconds": 100.0, "epochs": 5}}
    run = build_report(store, part_of_run(manifest, "screening")).run
    table = cost_table(run, run.tasks[0])
    assert float(sort_values(table, "Training")["Deep ensemble"]) == pytest.approx(222.0)
    assert float(sort_values(table, "Trainings")["Deep ensemble"]) == 4


def test_points_are_seconds_of_training_and_of_predicting_many_examples(world: World, report: Report) -> None:
    store, manifest = world
    (figure,) = of_kind(blocks(report, "cost", task_of(report.run, "digits")), Figure)
    rows = {row["method"]: row for row in rows_of(figure)}
    assert set(rows) == {title for _, title, *_ in METHODS}
    for name, title, *_ in METHODS:
        runs = [run for run in manifest["runs"] if (run["task"], run["method"]) == ("digits", name)]
        training = np.mean([sum(store.records[fit]["seconds"] for fit in run["fits"]) for run in runs])
        records = [store.records[run["id"]] for run in runs]
        prediction = np.mean([100_000 * record["seconds"] / record["examples"] for record in records])
        assert rows[title]["seconds"] == pytest.approx(training + prediction, rel=1e-3)
        cell = report.run.scores.cells["digits", "test", name, "calibrated_nll"]
        assert rows[title]["mean"] == pytest.approx(np.mean(cell.values), rel=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(5.3, 14, [5, 10, 20]), (5, 10, [5, 10]), (0.3, 2.0, [0.2, 0.5, 1, 2]), (3, 3, [2, 5])]
)
def test_ticks_are_round_and_surround_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert round_numbers(low, high) == ticks
