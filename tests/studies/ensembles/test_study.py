from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.core.predictions import Predictions
from dubio.reporting import build_report
from dubio.reporting.build import ORDERS
from dubio.reporting.manifest_view import read_manifest, tta_pairs
from dubio.reporting.measures import AT_IN_DOMAIN_TEMPERATURE
from dubio.reporting.sections.shift import many_corruptions, severity_series
from dubio.reporting.style import styles_of
from dubio.statistics.sample_curves import latest_first, sample_scores
from dubio.studies.ensembles.study import TACE_SETTINGS, Study, has_study, tace_by_setting
from tests.metrics.helpers import plain_tace
from tests.reporting.stored_runs import FakeStore
from tests.studies.ensembles.helpers import NETWORKS, SAMPLES, make_study, study_section

World = tuple[FakeStore, dict[str, Any]]


def test_a_run_has_a_study_by_its_methods_samples_and_networks_alone(study_world: World) -> None:
    _, manifest = study_world
    view = read_manifest(manifest)
    assert has_study(view, view.tasks[0])
    fewer = replace(view, methods=tuple(m for m in view.methods if m.registered not in ("mc-dropout", "laplace")))
    assert not has_study(fewer, fewer.tasks[0])
    networks = [run for run in view.runs if run.method == "deterministic"]
    lone = replace(view, runs=tuple(run for run in view.runs if run not in networks[7:]))
    assert not has_study(lone, lone.tasks[0])


def test_augmented_pairs_differ_in_views_alone_and_share_their_colour(study_world: World) -> None:
    view = read_manifest(study_world[1])
    pairs = tta_pairs(view.methods)
    assert pairs == {
        "deterministic-views": "deterministic", "deep-ensemble-views": "deep-ensemble", "swag-views": "swag",
        "swa-views": "swa", "laplace-last-views": "laplace-last",
    }  # fmt: skip
    styles = styles_of(view.methods)
    assert styles["swag-views"].colour == styles["swag"].colour
    assert styles["swag-views"].dash != styles["swag"].dash
    other = [replace(m, arguments={**m.arguments, "lr": 1}) if m.name == "swag-views" else m for m in view.methods]
    assert "swag-views" not in tta_pairs(other)


def test_a_curve_holds_every_run_with_its_first_samples(study: Study, study_world: World) -> None:
    store, manifest = study_world
    curve = study.by_name["swag"]
    assert curve.sizes == (1, 2, 3, 5)
    runs = [run for run in manifest["runs"] if run["method"] == "swag"]
    assert curve.runs == tuple((run["seed"], run["member"]) for run in runs)
    for values, run in zip(curve.values, runs, strict=True):
        predictions = store.predictions[run["id"], "test"]
        assert np.allclose(values, sample_scores(predictions, [latest_first(predictions)], curve.sizes)[0])
    assert study.by_name["deterministic"].samples == 1
    assert study.by_name["deterministic-views"].samples == SAMPLES
    assert study.by_name["swag-ensemble"].role == "ensemble"


def test_the_deep_ensemble_grows_in_random_orders_of_all_networks(study: Study) -> None:
    (curve,) = study.select("deep_ensemble", augmented=False)
    assert curve.samples == NETWORKS + 1 == len(study.growth)  # nine of the first seed, one of the second
    assert len(curve.values) == ORDERS
    augmented = study.with_augmentation(curve)
    assert augmented is not None
    assert augmented.samples == NETWORKS
    for size, bounds in zip(curve.sizes, study.equivalents(curve), strict=True):
        # the last networks need not make it better, and then fewer are equivalent
        assert bounds.central.size <= size + 1e-6
        assert size > 5 or bounds.central.size == pytest.approx(size, abs=1e-6)


def test_predictions_that_cannot_be_read_leave_their_run_out(study: Study) -> None:
    store, manifest = make_study()
    runs = [run for run in manifest["runs"] if run["method"] == "swag"]
    del store.predictions[runs[0]["id"], "test"]
    other = study_section(build_report(store, manifest)).studies["pictures"]
    assert other.by_name["swag"].runs == study.by_name["swag"].runs[1:]
    assert np.array_equal(other.by_name["swag"].values, study.by_name["swag"].values[1:])
    assert np.array_equal(other.by_name["laplace"].values, study.by_name["laplace"].values)


def test_a_method_of_one_sample_has_its_value_in_every_row_and_others_up_to_their_samples(study: Study) -> None:
    single, sampled = study.by_name["deterministic"], study.by_name["swag"]
    assert single.at("error", 5) == single.at("error", 1)
    assert sampled.at("error", 10) is None
    assert study.compared_samples == 5


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(20, 60))
def test_tace_in_every_setting_is_a_plain_loop_at_the_optimal_temperature(seed: int, classes: int, rows: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows)
    logits = generator.normal(0, 2, (2, rows, classes)).astype(np.float32)
    logp = np.log(softmax(logits.astype(np.float64), axis=-1).mean(axis=0))

    def loss(inverse: float) -> float:
        scaled = inverse * logp
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(rows), labels]).mean())

    inverse = minimize_scalar(loss, bounds=(1e-3, 50), method="bounded", options={"xatol": 1e-10}).x
    probs = softmax(inverse * logp, axis=1)
    predictions = Predictions(logits=logits, labels=labels.astype(np.int64))
    errors = tace_by_setting(predictions)
    fitted = apply_temperature(predictions, fit_temperature(predictions).temperature).probs
    # rows that agree to the precision of float32 are ties, which neighbouring bins share; a plain loop parts them
    assume(np.diff(np.sort(fitted, axis=0), axis=0).min() > 1e-5)
    for value, (threshold, bins) in zip(errors, TACE_SETTINGS, strict=True):
        assert value == pytest.approx(plain_tace(fitted, labels, threshold, bins), abs=1e-12)
        near = np.abs(probs - threshold) < 1e-5  # the two temperatures differ in the last digits
        if inverse > 0.02 and not near.any():
            assert value == pytest.approx(plain_tace(probs, labels, threshold, bins), abs=1e-4)


def test_many_corruptions_are_averaged() -> None:
    store, manifest = make_study(corrupted=True)
    keep = ("deterministic", "swag")
    manifest["methods"] = [row for row in manifest["methods"] if row["name"] in keep]
    manifest["runs"] = [run for run in manifest["runs"] if run["method"] in keep and run["seed"] == 1]
    view = build_report(store, manifest).run
    task = view.tasks[0]
    assert task.many_corruptions
    assert task.farthest == ()
    assert [(test_set.title, len(test_set.splits)) for test_set in task.test_sets] == [("4 corruptions", 8)]
    series = severity_series(view, task, list(task.severities.values()), "accuracy")
    names = [splits[1].name for splits in task.severities.values()]
    expected = np.mean([view.scores.cells[task.key, name, "swag", "accuracy"].mean for name in names])
    assert series[1].mean[2] == pytest.approx(expected)
    run = next(run for run in manifest["runs"] if run["method"] == "swag")
    temperature = float(np.median(view.scores.temperatures[task.key, "swag"].values))
    shifted = store.predictions[run["id"], "fog-2"]
    powers = shifted.probs ** (1 / temperature)
    own = powers[np.arange(len(shifted)), shifted.labels] / powers.sum(axis=1)
    cell = view.scores.cells[task.key, "fog-2", "swag", AT_IN_DOMAIN_TEMPERATURE]
    assert cell.mean == pytest.approx(-np.log(own).mean(), rel=1e-5)
    figures = list(many_corruptions(view, task))
    assert [figure.name for figure in figures] == ["severity", "severity-each"]
    for figure in figures:
        assert figure.chart().to_dict()["datasets"]
