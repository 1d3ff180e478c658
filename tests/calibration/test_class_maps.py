"""Vector scaling and isotonic recalibration against scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from dubio.calibration.class_maps import WEIGHT_RANGE, IsotonicMaps, MonotoneMap, VectorScaling
from dubio.calibration.temperature import fit_temperature
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import confidence
from dubio.metrics.scoring import nll


def made(rows=500, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, rows, classes)) * 2
    skewed = logits.mean(axis=0) * np.linspace(0.3, 1.5, classes) + np.linspace(-1, 1, classes)
    probs = np.exp(skewed) / np.exp(skewed).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=row) for row in probs])
    return Predictions(logits.astype(np.float32), labels)


def made_multilabel(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1, rows, 3)) * 2
    truth = 1 / (1 + np.exp(-(0.5 * logits[0] + [-1.0, 0.0, 1.0])))
    labels = (rng.random((rows, 3)) < truth).astype(np.int64)
    return Predictions(logits.astype(np.float32), labels, target="multilabel")


def test_vector_scaling_improves_on_temperature():
    predictions = made()
    scaled = VectorScaling.fit(predictions).apply(predictions)
    assert nll(scaled) < fit_temperature(predictions).nll_after < nll(predictions)


def test_vector_scaling_is_a_stationary_point():
    """Residuals are uncorrelated with the features and sum to zero in every class."""
    predictions = made()
    scaled = VectorScaling.fit(predictions).apply(predictions)
    residual = scaled.probs - np.eye(4)[predictions.labels]
    np.testing.assert_allclose(residual.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose((residual * predictions.log_probs).mean(axis=0), 0, atol=2e-5)


def test_multilabel_vector_scaling_is_logistic_regression_a_label():
    predictions = made_multilabel()
    found = VectorScaling.fit(predictions)
    odds = predictions.log_probs - predictions.log_complements
    for label in range(3):
        model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        model.fit(odds[:, [label]], predictions.labels[:, label])
        assert found.weights[label] == pytest.approx(model.coef_[0, 0], rel=1e-3)
        assert found.biases[label] == pytest.approx(model.intercept_[0], abs=1e-3)


def test_separable_vector_scaling_stays_in_its_range():
    predictions = Predictions(np.tile([0.0, 2.0], (1, 6, 1)).astype(np.float32), np.ones(6, dtype=np.int64))
    found = VectorScaling.fit(predictions)
    assert nll(found.apply(predictions)) <= nll(predictions)
    assert min(found.weights) >= WEIGHT_RANGE[0]
    assert max(found.weights) <= WEIGHT_RANGE[1]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40))
def test_map_equals_scikit_learn(pairs):
    x = np.array([p for p, _ in pairs]) / 20
    y = np.array([o for _, o in pairs], dtype=float)
    ours = MonotoneMap.fit(x, y)
    reference = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    points = np.linspace(-0.1, 1.1, 61)
    np.testing.assert_allclose(ours(points), reference.predict(points), atol=1e-6)


def test_isotonic_one_against_the_rest():
    predictions = made()
    calibrated = IsotonicMaps.fit(predictions).apply(predictions)
    np.testing.assert_allclose(calibrated.probs.sum(axis=1), 1, atol=1e-6)
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(p, predictions.labels == k).predict(p)
        for k, p in enumerate(predictions.probs.T)
    ]
    expected = np.stack(columns, axis=1)
    expected[expected.sum(axis=1) == 0] = 1
    np.testing.assert_allclose(calibrated.probs, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


def test_isotonic_of_labels_needs_no_normalising_and_survives_certainty():
    predictions = made_multilabel()
    calibrated = IsotonicMaps.fit(predictions).apply(predictions)
    for label, p in enumerate(predictions.probs.T):
        expected = IsotonicRegression(out_of_bounds="clip").fit(p, predictions.labels[:, label]).predict(p)
        np.testing.assert_allclose(calibrated.probs[:, label], expected, atol=1e-6)
    assert expected.max() == 1.0


def test_a_map_from_confidence_to_accuracy_is_scikit_learns():
    predictions = made()
    found = MonotoneMap.fit(confidence(predictions), correct(predictions).astype(float))
    expected = IsotonicRegression(out_of_bounds="clip").fit(confidence(predictions), correct(predictions))
    np.testing.assert_allclose(found(confidence(predictions)), expected.predict(confidence(predictions)), atol=1e-6)
