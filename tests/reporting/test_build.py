from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from dubio.calibration.cross_validation import calibrated_nll
from dubio.core.errors import StoreError
from dubio.core.predictions import Predictions, join
from dubio.core.registry import METRICS
from dubio.reporting.build import Report, build_report
from dubio.reporting.measures import detection_name, referral_name
from dubio.reporting.page import render
from dubio.reporting.wording import RANDOM
from tests.reporting.helpers import figure_names, figures, part_of_run
from tests.reporting.stored_runs import SEEDS, FakeStore, make_world

World = tuple[FakeStore, dict[str, Any]]


def run_of(manifest: dict[str, Any], task: str, method: str, seed: int, member: int | None) -> str:
    wanted = {"task": task, "method": method, "seed": seed, "member": member}
    return next(run["id"] for run in manifest["runs"] if all(run[key] == value for key, value in wanted.items()))


def value_of(report: Report, *key: object) -> float:
    rows = [s for s in report.scores if (s.task, s.split, s.method, s.seed, s.member, s.metric) == key]
    assert len(rows) == 1
    return rows[0].value


@pytest.mark.parametrize(("method", "member"), [("mc-dropout", 1), ("mc-dropout-ensemble", None)])
@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "ece", "aurc", "diversity"])
def test_long_table_holds_the_registered_metric_of_that_run(
    world: World, report: Report, method: str, member: int | None, metric: str
) -> None:
    store, manifest = world
    predictions = store.predictions[run_of(manifest, "reviews", method, 1, member), "test"]
    expected = METRICS.make(metric).compute(predictions)
    assert value_of(report, "reviews", "test", method, 1, member, metric) == pytest.approx(expected)


def test_calibrated_nll_is_that_of_test_time_cross_validation(world: World, report: Report) -> None:
    store, manifest = world
    predictions = store.predictions[run_of(manifest, "screening", "deterministic", 0, 0), "test"]
    expected = calibrated_nll(predictions)
    assert value_of(report, "screening", "test", "deterministic", 0, 0, "calibrated_nll") == pytest.approx(expected)


@pytest.mark.parametrize("split", ["novel", "noise-3"])
def test_detection_equals_scikit_learn_on_the_joined_splits(world: World, report: Report, split: str) -> None:
    store, manifest = world
    run = run_of(manifest, "digits", "mc-dropout-ensemble", 0, None)
    both = join([store.predictions[run, "test"], store.predictions[run, split]])
    doubt = 1 - both.probs.max(axis=1)
    key = ("digits", split, "mc-dropout-ensemble", 0, None)
    assert value_of(report, *key, "ood_auroc") == pytest.approx(sk.roc_auc_score(both.ood, doubt))
    assert value_of(report, *key, "ood_aupr") == pytest.approx(sk.average_precision_score(both.ood, doubt))
    for quantity in ("predictive_entropy", "mutual_information"):
        for metric in ("ood_auroc", "ood_aupr", "ood_fpr95"):
            made = METRICS.make(metric, quantity=quantity)
            assert value_of(report, *key, made.name) == pytest.approx(made.compute(both))


def test_a_single_pass_has_neither_mutual_information_nor_diversity(report: Report) -> None:
    names = {score.metric for score in report.scores if score.method == "deterministic"}
    assert detection_name("ood_auroc", "mutual_information") not in names
    assert "diversity" not in names


def test_unlabelled_novelty_has_detection_and_nothing_else(report: Report) -> None:
    names = {score.metric for score in report.scores if score.split == "novel"}
    assert names
    assert all(name.startswith(("ood_", "id_aupr")) for name in names)


@pytest.mark.parametrize("retained", [0.5, 0.8, 1.0])
def test_referral_equals_the_registered_metrics(world: World, report: Report, retained: float) -> None:
    store, manifest = world
    predictions = store.predictions[run_of(manifest, "screening", "deep-ensemble", 1, None), "test"]
    for metric in ("referral_accuracy", "referral_auc"):
        made = METRICS.make(metric, quantity="predictive_entropy", retained=retained)
        found = value_of(report, "screening", "test", "deep-ensemble", 1, None, made.name)
        assert found == pytest.approx(made.compute(predictions))


def test_random_referral_leaves_accuracy_and_auc_where_they_are(world: World, report: Report) -> None:
    store, manifest = world
    predictions = store.predictions[run_of(manifest, "screening", "deterministic", 0, 1), "test"]
    whole = sk.accuracy_score(predictions.labels, predictions.probs.argmax(axis=1))
    area = sk.roc_auc_score(predictions.labels, predictions.probs[:, 1])
    for retained in (0.5, 0.7, 1.0):
        accuracy, auc = (referral_name(metric, retained) for metric in ("referral_accuracy", "referral_auc"))
        assert value_of(report, "screening", "test", RANDOM, 0, 1, accuracy) == pytest.approx(whole)
        assert value_of(report, "screening", "test", RANDOM, 0, 1, auc) == pytest.approx(area)


def test_the_control_is_what_drawing_at_random_gives_on_average(world: World) -> None:
    store, manifest = world
    predictions = store.predictions[run_of(manifest, "screening", "deterministic", 0, 1), "test"]
    right = predictions.labels == predictions.probs.argmax(axis=1)
    rng = np.random.default_rng(3)
    drawn = [right[rng.permutation(len(right))[:100]].mean() for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(right.mean(), abs=0.003)


def test_singles_average_over_seeds_and_members_ensembles_over_seeds(world: World, report: Report) -> None:
    store, manifest = world
    single = report.run.scores.cells["digits", "test", "mc-dropout", "accuracy"]
    values = [
        float((p.probs.argmax(axis=1) == p.labels).mean())
        for seed in SEEDS
        for member in (0, 1)
        for p in [store.predictions[run_of(manifest, "digits", "mc-dropout", seed, member), "test"]]
    ]
    assert single.n == 4
    assert single.mean == pytest.approx(sum(values) / 4)
    centre = sum(values) / 4
    assert single.std == pytest.approx((sum((value - centre) ** 2 for value in values) / 3) ** 0.5)
    assert report.run.scores.cells["digits", "test", "mc-dropout-ensemble", "accuracy"].n == len(SEEDS)


def test_every_prediction_is_read_once() -> None:
    store, manifest = make_world((0,))
    manifest = part_of_run(manifest, "digits", "screening", "reviews", methods=("deterministic", "deep-ensemble"))
    build_report(store, manifest)
    tested = {"digits": 8, "screening": 1, "reviews": 2}
    assert store.reads == sum(tested[run["task"]] for run in manifest["runs"])


def test_missing_predictions_are_reported_and_the_rest_is_scored() -> None:
    store, manifest = make_world((0,))
    lost = run_of(manifest, "digits", "deterministic", 0, 0)
    del store.predictions[lost, "test"]
    report = build_report(store, part_of_run(manifest, "digits", methods=("deterministic",)))
    (missing,) = report.run.missing
    assert (missing.what, missing.task, missing.method) == ("predictions on test", "digits", "deterministic")
    assert report.run.scores.cells["digits", "test", "deterministic", "accuracy"].n == 1


def test_a_disk_that_cannot_be_read_ends_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    store, manifest = make_world((0,))

    def refuse(*arguments: object) -> None:
        raise StoreError("'a' cannot be read: Input/output error.") from OSError(5, "Input/output error")

    monkeypatch.setattr(store, "read_predictions", refuse)
    with pytest.raises(StoreError, match="Input/output error"):
        build_report(store, manifest)


def test_costs_are_sums_over_the_fits_a_run_needs(world: World, report: Report) -> None:
    store, manifest = world
    runs = [r for r in manifest["runs"] if r["task"] == "digits" and r["method"] == "deep-ensemble"]
    seconds = [sum(store.records[fit]["seconds"] for fit in run["fits"]) for run in runs]
    cost = report.run.costs["digits", "deep-ensemble"]
    assert cost.training_seconds.values == pytest.approx(seconds)
    assert cost.trainings.mean == 2
    assert cost.parameters.mean == 2 * 12345
    assert cost.stored_bytes.mean == 100_000
    assert cost.examples_per_second.mean == pytest.approx(store.records[runs[0]["id"]]["examples"] / 0.04)


def _with_predictions(change: Any) -> Report:
    """One run of the task ``screening``, with its predictions changed."""
    store, manifest = make_world((0,))
    run = next(run for run in manifest["runs"] if run["task"] == "screening")
    store.predictions[run["id"], "test"] = change(store.predictions[run["id"], "test"])
    task = {**manifest["tasks"][1], "target": store.predictions[run["id"], "test"].target}
    return build_report(store, {**manifest, "tasks": [task], "runs": [run]})


def test_multilabel_predictions_are_scored_and_drawn() -> None:
    rng = np.random.default_rng(0)

    def several(p: Predictions) -> Predictions:
        return replace(p, target="multilabel", labels=rng.integers(0, 2, p.logits.shape[1:]))

    report = _with_predictions(several)
    names = {score.metric for score in report.scores}
    assert {"accuracy", "calibrated_nll", "brier", "ece", "aurc"} <= names
    assert not any(name.startswith("referral_auc") for name in names)
    assert "</html>" in render(report)


def test_one_test_example_leaves_what_needs_two_undefined() -> None:
    report = _with_predictions(lambda p: p.take(np.array([0])))
    cell = report.run.scores.cells["screening", "test", "deterministic", "calibrated_nll"]
    assert (cell.n, cell.undefined) == (0, 1)
    assert report.run.scores.cells["screening", "test", "deterministic", "accuracy"].n == 1
    assert "undefined" in render(report)


def test_certain_and_wrong_is_infinite_and_said_so() -> None:
    def certain(p: Predictions) -> Predictions:
        logits = np.where(np.arange(2) == (1 - p.labels)[:, None], 0.0, -np.inf).astype(np.float32)
        return replace(p, logits=logits[None])

    report = _with_predictions(certain)
    assert report.run.scores.cells["screening", "test", "deterministic", "nll"].mean == float("inf")
    assert "∞" in render(report)


def test_multilabel_scores_at_the_thresholds_of_validation() -> None:
    """Where a run's validation predictions say that every label is cut at 0.3, the test set is cut there."""
    store, manifest = make_world()
    run = next(run for run in manifest["runs"] if run["task"] == manifest["tasks"][1]["name"])
    old = store.predictions[run["id"], "test"]
    labels = np.tile([[1, 0], [0, 1]], (len(old) // 2, 1))
    probs = np.where(labels == 1, 0.4, 0.2)
    logits = np.log(probs / (1 - probs)).astype(np.float32)[None]
    cut = replace(old, logits=logits, labels=labels, target="multilabel", member=np.zeros(1, dtype=np.int64))
    store.predictions[run["id"], "test"] = store.predictions[run["id"], "val"] = cut
    val = {"name": "val", "kind": "val", "fingerprint": "v", "examples": len(old)}
    task = manifest["tasks"][1]
    task = {**task, "target": "multilabel", "thresholds": "validation", "splits": [*task["splits"], val]}
    report = build_report(store, {**manifest, "tasks": [task], "runs": [run]})
    values = {score.metric: score.value for score in report.scores}
    assert values["accuracy"] == 0.0
    assert values["accuracy_at_val_thresholds"] == values["micro_f1_at_val_thresholds"] == 1.0
    assert "Micro F1, tuned" in render(report)
    decided = build_report(store, {**manifest, "tasks": [{**task, "empty_decision": "argmax"}], "runs": [run]})
    assert {score.metric: score.value for score in decided.scores}["accuracy"] == 1.0


def test_each_task_has_the_figures_its_splits_allow(report: Report) -> None:
    slugs = {task.key: figure_names(report, task) for task in report.tasks}
    always = [
        "scores",
        "risk-coverage",
        "ranking",
        "variance",
        "reliability",
        "reliability-corp",
        "temperature",
        "equivalents",
        "diversity",
        "size",
        "referral",
        "rejection",
    ]
    home = ["roc-test", "certainty-test"]
    assert sorted(slugs["screening"]) == sorted([*always, *home, "cost"])
    studied = ["ridges-elsewhere", "correlation-elsewhere", "transfer"]
    screened = [*home, "referral-elsewhere", "roc-elsewhere", "certainty-elsewhere"]
    assert sorted(slugs["reviews"]) == sorted([*always, *screened, "density-elsewhere", *studied, "entropy", "cost"])
    studied = ["ridges-novel", "correlation-novel", "transfer"]
    away = ["density-novel", "density-blur", "density-noise", *studied, "entropy", "severity"]
    assert sorted(slugs["digits"]) == sorted([*always, *away, "cost"])


def test_figures_appear_only_where_their_data_are(report: Report, text_report: Report) -> None:
    drawn = {task.key: set(figures(text_report, task)) for task in text_report.tasks}
    bare = {task.key: set(figures(report, task)) for task in report.tasks}
    assert {"rates", "epochs"} <= drawn["digits"]
    assert not {"rates", "epochs", "spectral"} & bare["digits"]
    assert "spectral" in drawn["reviews (textcnn)"]
    assert "spectral" not in drawn["digits"]
    assert not {"transfer", "correlation-novel", "ridges-novel"} & drawn["screening"]
    assert {"correlation-novel", "ridges-novel", "transfer"} <= drawn["digits"]
    assert not {"size", "diversity"} & drawn["reviews (bert)"]
    across = set(figures(text_report))
    assert {"networks-reviews", "likelihood", "transfer", "correlation", "rates", "epochs"} <= across
    assert not {"networks-reviews", "rates", "epochs"} & set(figures(report))
