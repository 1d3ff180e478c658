"""Tables of shifted and OOD test sets, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from dubio.core.predictions import join
from dubio.core.registry import METRICS
from dubio.metrics.quantities import uncertainty
from dubio.reporting import Report, build_report
from dubio.reporting.measures import DETECTED_BY, GAP, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Figure
from dubio.reporting.sections.shift import (
    correlation_table,
    detection_table,
    every_quantity_table,
    summary_table,
)
from tests.reporting.helpers import blocks, of_kind, run_ids, sort_values
from tests.reporting.sections.helpers import rows_of
from tests.reporting.stored_runs import METHODS, SEVERITIES, FakeStore, make_world, stored

World = tuple[FakeStore, dict[str, Any]]


def test_detection_against_scikit_learn(world: World, run: RunView) -> None:
    store, task = world[0], run.tasks[0]
    novel = task.test_sets[0]
    assert novel.title == "novel"
    table, more = detection_table(run, task, novel), every_quantity_table(run, task, novel)
    correlations = correlation_table(run, task, novel)
    for name, title, *_ in METHODS:
        found: dict[str, list[float]] = {}
        for made in run_ids(world[1], "digits", name):
            both = join([store.predictions[made, "test"], store.predictions[made, "novel"]])
            doubt, entropy = uncertainty(both, "confidence"), uncertainty(both, "predictive_entropy")
            found.setdefault("auroc", []).append(sk.roc_auc_score(both.ood, doubt))
            found.setdefault("foreign", []).append(sk.average_precision_score(both.ood, doubt))
            found.setdefault("home", []).append(sk.average_precision_score(~both.ood, -doubt))
            found.setdefault("entropy", []).append(sk.average_precision_score(both.ood, entropy))
            found.setdefault("correlation", []).append(np.corrcoef(1 - doubt, both.ood)[0, 1])
        mean = {key: np.mean(values) for key, values in found.items()}
        assert float(sort_values(table, "AUROC", "confidence")[title]) == pytest.approx(mean["auroc"], abs=1e-6)
        outside = sort_values(table, "AUPR", "confidence, OOD or shifted positive")[title]
        assert float(outside) == pytest.approx(mean["foreign"])
        assert float(sort_values(table, "AUPR", "confidence, in-domain positive")[title]) == pytest.approx(mean["home"])
        shown = sort_values(more, "AUPR", "predictive entropy, OOD or shifted positive")[title]
        assert float(shown) == pytest.approx(mean["entropy"], abs=1e-6)
        assert float(sort_values(correlations, "confidence")[title]) == pytest.approx(mean["correlation"], abs=1e-6)
        assert mean["correlation"] < 0
    assert table.caption.startswith("novel: ")
    assert "0.33 with OOD" in table.caption
    assert "0.67 with in-domain" in table.caption


def test_the_gap_is_in_domain_accuracy_minus_accuracy_under_shift(world: World, run: RunView) -> None:
    store, task = world[0], run.tasks[2]
    shown = sort_values(detection_table(run, task, task.test_sets[0]), "Gap")
    for name, title, *_ in METHODS:
        gaps = []
        for made in run_ids(world[1], "reviews", name):
            home, there = (store.predictions[made, split] for split in ("test", "elsewhere"))
            right = [np.mean(p.probs.argmax(1) == p.labels) for p in (home, there)]
            gaps.append(right[0] - right[1])
        assert float(shown[title]) == pytest.approx(np.mean(gaps))
    assert GAP in run.scores.not_ranked


def test_every_test_set_has_its_columns(run: RunView) -> None:
    table = summary_table(run, run.tasks[0])
    assert [head.sub for head in table.columns if head.title == "AUROC"] == ["novel", "blur", "noise"]
    assert [head.sub for head in table.columns if head.title == "Gap"] == ["blur", "noise"]


def test_one_run_of_each_ensemble_is_judged_by_its_fits_under_shift() -> None:
    store, manifest = make_world((0,))
    task = manifest["tasks"][0]
    kept = ("deep-ensemble", "mc-dropout-ensemble")
    chosen = [run for run in manifest["runs"] if run["task"] == task["name"] and run["method"] in kept]
    methods = [method for method in manifest["methods"] if method["name"] in kept]
    run = build_report(store, {**manifest, "tasks": [task], "methods": methods, "runs": chosen}).run
    verdicts = run.scores.verdicts(run.tasks[0], "novel", detection_name("ood_auroc", "confidence"))
    assert {verdict.place for verdict in verdicts.values()} <= {"best", "tied", "behind"}
    single = [{**run, "fits": run["fits"][:1]} for run in chosen]  # of one fit, samples do not say how trainings vary
    run = build_report(store, {**manifest, "tasks": [task], "methods": methods, "runs": single}).run
    verdicts = run.scores.verdicts(run.tasks[0], "novel", detection_name("ood_auroc", "confidence"))
    assert "unjudged" in {verdict.place for verdict in verdicts.values()}


@pytest.mark.parametrize("metric", ["ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation"])
@pytest.mark.parametrize("quantity", DETECTED_BY)
def test_every_quantity_is_scored_by_every_detection_metric(
    text_world: World, text_run: RunView, metric: str, quantity: str
) -> None:
    if quantity == "data_uncertainty":
        assert not any(score.metric == detection_name(metric, quantity) for score in text_run.scores.scores)
        return
    both = [
        join(list(pair))
        for pair in zip(
            stored(text_world, "digits", "mc-dropout-ensemble", "test"),
            stored(text_world, "digits", "mc-dropout-ensemble", "novel"),
            strict=True,
        )
    ]
    made = METRICS.make(metric, quantity=quantity)
    cell = text_run.scores.cells["digits", "novel", "mc-dropout-ensemble", made.name]
    assert cell.values == pytest.approx([made.compute(each) for each in both])
    assert text_run.scores.better[made.name] == made.better


def test_the_gap_is_the_accuracy_lost_under_shift_and_does_not_rank(text_world: World, text_run: RunView) -> None:
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-3"))
    expected = [
        np.mean(a.probs.argmax(axis=1) == a.labels) - np.mean(b.probs.argmax(axis=1) == b.labels)
        for a, b in zip(home, away, strict=True)
    ]
    assert text_run.scores.cells["digits", "blur-3", "deterministic", GAP].values == pytest.approx(expected)
    assert GAP in text_run.scores.not_ranked
    assert not any(score.metric == GAP and score.kind == "ood" for score in text_run.scores.scores)


def test_severity_curves_are_means_over_runs_from_the_in_domain_test_set_on(world: World, report: Report) -> None:
    (figure,) = of_kind(blocks(report, "shift", report.run.tasks[0]), Figure)
    spec = figure.chart().to_dict()
    assert [row["spec"]["layer"][1]["encoding"]["y"]["title"] for row in spec["vconcat"]] == ["accuracy", "NLL"]
    rows = [row for row in rows_of(figure) if (row["panel"], row["method"]) == ("blur", "MC dropout")]
    splits = ["test", *(f"blur-{level}" for level in SEVERITIES)]
    for level, split in enumerate(splits):
        runs = stored(world, "digits", "mc-dropout", split)
        right = [np.mean(p.probs.argmax(1) == p.labels) for p in runs]
        accuracy = next(row for row in rows[: len(splits)] if row["x"] == level)
        assert accuracy["y"] == pytest.approx(np.mean(right), rel=1e-5)
        assert accuracy["high"] - accuracy["y"] == pytest.approx(np.std(right, ddof=1), abs=1e-5)


def test_tables_of_one_test_set_name_it_and_columns_their_metric(run: RunView) -> None:
    task = run.tasks[0]
    table = detection_table(run, task, task.test_sets[1])
    assert table.split == "blur"
    metrics = [column.metric for column in table.columns]
    assert metrics[0] == "accuracy"
    assert detection_name("ood_auroc", "confidence") in metrics
    assert summary_table(run, task).split == ""
