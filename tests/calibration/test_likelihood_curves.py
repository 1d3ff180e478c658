"""The calibrated area of replicates against cross-validation of the repeated rows."""

import numpy as np
import pytest

from dubio.calibration import likelihood_curves
from dubio.calibration.cross_validation import calibrated_aurc, cross_validate, fit_folds, random_halves, score_folds
from dubio.calibration.likelihood_curves import Curves
from dubio.calibration.temperature import evidence_of
from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import metric_statistic, replicate, units_of


def made(rows=300, scale=3.0, seed=0, coarse=False, **more):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, rows)
    logits = scale * (rng.normal(size=(1, rows, 4)) + 1.2 * np.eye(4)[labels])
    return Predictions((np.round(logits) if coarse else logits).astype(np.float32), labels, **more)


def by_repeated_rows(predictions, weights, repeats=5, seed=0):
    """Cross-validation of the rows as often as they were drawn, copies in the half of their original."""
    evidence = evidence_of(predictions)
    halves = random_halves(predictions, repeats=repeats, seed=seed)
    centre = Curves.of(evidence, units_of(predictions).index).centre
    found = []
    for rows in weights.replicates():
        drawn = evidence.take(rows)
        folds = fit_folds(drawn, tuple(half[rows] for half in halves), start=centre)
        found.append(score_folds(drawn, folds).aurc.mean)
    return np.array(found)


CASES = {
    "plain": {},
    "ties": {"coarse": True},
    "groups": {"group": np.array([f"g{index % 40}" for index in range(300)])},
    "overconfident": {"scale": 30.0},
    "diffuse": {"scale": 0.2},
    "few": {"rows": 12},
}


@pytest.mark.parametrize("case", CASES)
def test_replicates_are_cross_validations_of_the_repeated_rows(case):
    predictions = made(**CASES[case])
    weights = next(units_of(predictions).weights(15, 1))
    found = calibrated_aurc(predictions, repeats=5, seed=0, weights=weights)
    np.testing.assert_allclose(found, by_repeated_rows(predictions, weights), rtol=1e-9)


def test_multi_label():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, (200, 3))
    logits = (2 * labels - 1 + 2 * rng.normal(size=(1, 200, 3))).astype(np.float32)
    predictions = Predictions(logits, labels, target="multilabel")
    weights = next(units_of(predictions).weights(8, 1))
    found = calibrated_aurc(predictions, repeats=2, seed=7, weights=weights)
    np.testing.assert_allclose(found, by_repeated_rows(predictions, weights, 2, 7), rtol=1e-9)


def test_every_row_once_is_the_metric():
    predictions = made()
    once = calibrated_aurc(predictions, repeats=3, seed=5, weights=Weights.of(np.ones((1, 300))))[0]
    assert once == pytest.approx(cross_validate(predictions, repeats=3, seed=5).aurc.mean, rel=1e-9)


@pytest.mark.parametrize("reach", [0.0, 0.3])
def test_rows_and_temperatures_beyond_the_interval_are_computed_as_they_are(monkeypatch, reach):
    """The narrower the interval, the more replicates leave it; a point holds none. The values do not change."""
    predictions = made()
    weights = next(units_of(predictions).weights(10, 2))
    wide = calibrated_aurc(predictions, repeats=2, seed=0, weights=weights)
    monkeypatch.setattr(likelihood_curves, "REACH", reach)
    narrow = calibrated_aurc(predictions, repeats=2, seed=0, weights=weights)
    np.testing.assert_allclose(narrow, wide, rtol=1e-9)


def test_most_rows_are_interpolated_and_the_others_are_right(monkeypatch):
    predictions = made(rows=4000)
    curves = Curves.of(evidence_of(predictions), units_of(predictions).index)
    assert len(curves.exact) < 40
    for b in np.linspace(curves.low, curves.high, 7):
        exact = curves.evidence.scores(b).doubt
        np.testing.assert_allclose(curves.doubts(np.array([b]))[0], exact, rtol=1e-9)
    monkeypatch.setattr(likelihood_curves, "TOLERANCE", 3e-16)
    strict = Curves.of(evidence_of(predictions), units_of(predictions).index)
    assert len(strict.exact) > 0
    np.testing.assert_allclose(strict.doubts(np.array([b]))[0], exact, rtol=1e-9)


def test_certain_rows_and_separable_halves():
    """Doubt of exactly zero, and halves whose temperature runs into the bound."""
    logits = np.zeros((1, 20, 3), dtype=np.float32)
    labels = np.arange(20) % 3
    logits[0, np.arange(20), labels] = np.where(np.arange(20) < 6, np.float32(3e38), 5.0)
    predictions = Predictions(logits, labels)
    weights = next(units_of(predictions).weights(6, 0))
    found = calibrated_aurc(predictions, repeats=2, seed=0, weights=weights)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    uniform = Predictions(np.zeros((1, 20, 3), dtype=np.float32), labels)
    found = calibrated_aurc(uniform, repeats=2, seed=0, weights=weights)
    np.testing.assert_allclose(found, by_repeated_rows(uniform, weights, 2), rtol=1e-9)


def test_a_half_without_weight_is_undefined():
    predictions = made(rows=2)
    found = calibrated_aurc(predictions, repeats=1, seed=0, weights=Weights.of(np.array([[2, 0], [1, 1]])))
    assert np.isnan(found).tolist() == [True, False]


def test_the_interval_has_about_the_spread_of_new_test_sets():
    metric, predictions = metric_named("calibrated_aurc(repeats=2)"), made(rows=300)
    statistics = {"a": metric_statistic(metric, predictions)}
    error = replicate(statistics, units_of(predictions), replicates=120, seed=0)["a"].std()
    again = [metric.compute(made(rows=300, seed=seed)) for seed in range(1, 100)]
    assert error == pytest.approx(np.std(again), rel=0.3)
