"""Referral over all orders of tied rows by enumeration, the gain over random referral, and the rows at the ends."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings

from dubio.core.registry import METRICS
from dubio.metrics.extremes import extreme_rows
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import uncertainty
from dubio.metrics.referral_curve import referral_curve
from dubio.metrics.referral_gain import referral_gain
from dubio.statistics.bootstrap import metric_statistic
from dubio.statistics.resampling import Weights
from tests.metrics.metric_world import coarse, drawn, of_probs, seeds


def orders(predictions):
    """Every order of the rows, least uncertain first, that the ties allow."""
    score = uncertainty(predictions, "predictive_entropy").round(5)
    rows = range(len(predictions))
    return [order for order in permutations(rows) if all(np.diff(score[list(order)]) >= 0)]


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_area_and_gain_are_means_over_all_orders_of_tied_rows(seed):
    predictions = coarse(seed, rows=6, classes=2)
    right = correct(predictions)
    curves = [np.cumsum(right[list(order)]) / np.arange(1, 7) for order in orders(predictions)]
    wanted = np.mean(curves, axis=0)
    assert referral_gain(predictions, quantity="predictive_entropy") == pytest.approx(wanted.mean() - right.mean())
    curve = referral_curve(predictions, quantity="predictive_entropy", fractions=(1 / 3, 0.5, 1.0))
    assert curve.accuracy == pytest.approx(wanted[[1, 2, 5]])


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_area_of_the_kept_counts_pairs_and_is_undefined_with_one_class(seed):
    predictions = coarse(seed, rows=6, classes=2)
    found = referral_curve(predictions, quantity="predictive_entropy", fractions=(0.5,))
    chance = np.mean([np.isin(np.arange(6), order[:3]) for order in orders(predictions)], axis=0)
    score = (predictions.logits[0, :, 1] - predictions.logits[0, :, 0]).round(5)
    ill, well = np.flatnonzero(predictions.labels == 1), np.flatnonzero(predictions.labels == 0)
    pairs = [
        (chance[i] * chance[j], float(score[i] > score[j]) + 0.5 * (score[i] == score[j])) for i in ill for j in well
    ]
    weight = sum(w for w, _ in pairs)
    if weight == 0:
        assert np.isnan(found.auc[0])
        assert found.undefined[0]
    else:
        assert found.auc[0] == pytest.approx(sum(w * value for w, value in pairs) / weight)


def test_the_weighted_gain_is_that_of_the_rows_repeated():
    predictions = drawn(3, rows=50, classes=2, group=np.repeat([f"g{i}" for i in range(25)], 2))
    metric = METRICS.make("referral_gain", quantity="predictive_entropy")
    form = metric_statistic(metric, predictions)
    counts = np.random.default_rng(0).integers(0, 3, (4, 50))
    wanted = [metric.compute(predictions.take(np.repeat(np.arange(50), row))) for row in counts]
    assert form(Weights.of(counts)) == pytest.approx(wanted)
    assert not metric.comparable


def test_the_rows_at_the_ends_are_shared_where_there_are_few():
    probs = [[0.99, 0.01], [0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.55, 0.45], [0.8, 0.2]]
    predictions = of_probs(probs, [0, 0, 0, 0, 1, -1])
    found = extreme_rows(predictions, count=2)
    assert found.sure_right.tolist() == [0, 2]
    assert found.unsure_right.tolist() == [1]
    assert found.sure_wrong.tolist() == [3]
    assert found.unsure_wrong.tolist() == [4]
    assert found.rows.tolist() == [0, 1, 2, 3, 4]
    assert extreme_rows(of_probs(probs), count=2).rows.tolist() == []
