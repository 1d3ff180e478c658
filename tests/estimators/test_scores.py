"""Referral and detection by an uncertainty that an estimator gives itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.estimators import EstimatorBenchmark
from dubio.estimators.scores import DETECTION, detection_metrics, referral_metrics
from dubio.metrics.detection import detect
from dubio.metrics.quantities import uncertainty
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.metrics.selective import au_arc
from tests.estimators.helpers import make_task, softmax


def brute_accuracy(doubt, right, fraction):
    """Mean over many orders of tied rows of the accuracy of the least uncertain."""
    rng = np.random.default_rng(0)
    keep = max(1, int(np.floor(fraction * len(right) + 0.5)))
    values = []
    for _ in range(4000):
        order = np.lexsort((rng.random(len(right)), doubt))
        values.append(right[order[:keep]].mean())
    return np.mean(values)


def test_the_given_uncertainty_decides_which_rows_are_referred():
    bench = EstimatorBenchmark(make_task(2))
    doubt = np.random.default_rng(5).normal(size=40)
    x, y = bench.test
    doubts = dict(zip(map(bytes, x), doubt, strict=True))

    def estimator(batch):
        own = np.array([doubts.get(bytes(row), 0.5) for row in batch])
        return softmax(batch)[:, 1], own

    found = bench.evaluate(estimator, replicates=0, batch=9)
    right = softmax(x).argmax(1) == y
    order = np.argsort(doubt)
    points = found.referral()
    assert [point.fraction for point in points] == list(FRACTIONS)
    assert found.on().referred_by == ("given", "predictive_entropy")
    for point in points:
        kept = order[: int(np.floor(point.fraction * 40 + 0.5))]
        assert point.accuracy.value == pytest.approx(right[kept].mean())
        assert point.auc.value == pytest.approx(roc_auc_score(y[kept], softmax(x)[kept, 1]))
    entropy = found.referral(quantity="predictive_entropy")
    plain = bench.evaluate(lambda batch: softmax(batch)[:, 1], replicates=0).referral()
    assert [each.accuracy.value for each in entropy] == [each.accuracy.value for each in plain]
    assert [each.accuracy.value for each in entropy] != [each.accuracy.value for each in points]
    assert found['au_arc(quantity="given")'] == pytest.approx(np.mean([right[order[:k]].mean() for k in range(1, 41)]))
    gain = found['referral_gain(quantity="given")']
    assert gain == pytest.approx(found['au_arc(quantity="given")'] - found["accuracy"])
    strange = np.concatenate([doubt, np.full(25, 0.5)])
    wanted = roc_auc_score(np.repeat([0, 1], [40, 25]), strange)
    assert found['ood_auroc(quantity="given")', "far"] == pytest.approx(wanted)


def test_tied_uncertainties_are_retained_in_the_average_of_all_orders():
    bench = EstimatorBenchmark(make_task(2))
    x, y = bench.test
    found = bench.evaluate(lambda batch: (softmax(batch), np.round(batch[:, 0])), replicates=0, splits=[])
    right = softmax(x).argmax(1) == y
    for point in found.referral():
        wanted = brute_accuracy(np.round(x[:, 0]), right, point.fraction)
        assert point.accuracy.value == pytest.approx(wanted, abs=0.005)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), classes=st.sampled_from([2, 3]), rows=st.integers(4, 30))
def test_weighted_metrics_by_an_own_score_are_the_metrics_on_repeated_rows(seed, classes, rows):
    rng = np.random.default_rng(seed)
    logits = (rng.integers(-4, 5, (2, rows, classes)) / 2).astype(np.float32)
    plain = Predictions(logits, rng.integers(0, classes, rows), ood=np.arange(rows) % 3 == 0)
    predictions = plain.with_checked(scores={"own": uncertainty(plain, "predictive_entropy")})
    counts = rng.integers(0, 3, (1, rows))
    counts[0, :4] += 1
    repeated = plain.take(np.repeat(np.arange(rows), counts[0]))
    weights = Weights.of(counts)
    curve = referral_curve(repeated, quantity="predictive_entropy")
    values = {
        metric.name.replace(", retained=", " "): float(metric.weighted(predictions, weights)[0])
        for metric in referral_metrics(predictions, "own")
    }
    for index, fraction in enumerate(FRACTIONS):
        at = "" if fraction == 0.8 else f" {fraction}"
        assert values[f'referral_accuracy(quantity="own"{at})'] == pytest.approx(curve.accuracy[index])
        if classes == 2:
            assert values[f'referral_auc(quantity="own"{at})'] == pytest.approx(curve.auc[index], nan_ok=True)
    assert values['au_arc(quantity="own")'] == pytest.approx(au_arc(repeated, quantity="predictive_entropy"))
    detection = detect(repeated, "predictive_entropy")
    metrics = detection_metrics(predictions)[: len(DETECTION)]
    assert metrics[0].name == 'ood_auroc(quantity="own")'
    values = [float(metric.weighted(predictions, weights)[0]) for metric in metrics]
    expected = [detection.auroc, detection.aupr_ood, detection.aupr_id, detection.fpr95, detection.correlation]
    assert values == pytest.approx(expected, nan_ok=True, abs=1e-9)
