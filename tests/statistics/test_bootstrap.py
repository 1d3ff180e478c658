"""The bootstrap against scipy, closed forms, repeated rows and simulated coverage."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Metric
from dubio.metrics.naming import metric_named
from dubio.statistics.bootstrap import (
    bca_interval,
    bootstrap,
    centred_interval,
    mean_statistic,
    percentile_interval,
    replicate,
    resolvable,
)
from dubio.statistics.resampling import Units, Weights, units_of
from dubio.statistics.weighted_forms import weighted_form


def made(rows=200, classes=3, seed=0, coarse=False, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, rows, classes)) * 2
    if coarse:  # many ties
        logits = np.round(logits)[:1]
    labels = rng.integers(0, classes, rows)
    return Predictions(logits.astype(np.float32), labels, **more)


FORMS = ["aurc", "au_arc", "augrc", "misclassification_auroc", "ece", "ece(bins=4)",
         'aurc(quantity="predictive_entropy")', "ood_auroc", "ood_aupr", "id_aupr", "class_auroc"]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("coarse", [False, True])
def test_weighted_forms_equal_the_metric_on_repeated_rows(name, coarse):
    rng = np.random.default_rng(1)
    predictions = made(rows=60, coarse=coarse, ood=np.arange(60) % 3 == 0)
    metric = metric_named(name)
    form = weighted_form(metric, predictions)
    assert form is not None
    weights = rng.multinomial(60, np.full(60, 1 / 60), size=12).astype(float)
    expected = [metric.compute(predictions.take(np.repeat(np.arange(60), row.astype(int)))) for row in weights]
    np.testing.assert_allclose(form(Weights.of(weights)), expected, atol=1e-12)


def test_weighted_ece_of_labels():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(1, 40, 3)).astype(np.float32)
    predictions = Predictions(logits, rng.integers(0, 2, (40, 3)), target="multilabel")
    metric = metric_named("ece")
    weights = rng.multinomial(40, np.full(40, 1 / 40), size=5).astype(float)
    expected = [metric.compute(predictions.take(np.repeat(np.arange(40), row.astype(int)))) for row in weights]
    np.testing.assert_allclose(weighted_form(metric, predictions)(Weights.of(weights)), expected, atol=1e-12)
    area = metric_named("class_auroc")
    expected = [area.compute(predictions.take(np.repeat(np.arange(40), row.astype(int)))) for row in weights]
    np.testing.assert_allclose(weighted_form(area, predictions)(Weights.of(weights)), expected, atol=1e-12)


def test_weighted_areas_are_undefined_where_a_side_is_missing():
    predictions = made(rows=6, ood=np.arange(6) < 3)
    weights = np.array([[2.0, 2, 2, 0, 0, 0], [0, 0, 0, 1, 2, 3], [1, 1, 1, 1, 1, 1]])
    for name in ("ood_auroc", "ood_aupr", "id_aupr"):
        found = weighted_form(metric_named(name), predictions)(Weights.of(weights))
        assert np.isnan(found).tolist() == [True, True, False]
    labels = np.array([0, 0, 1, 1, 2, 2])
    predictions = Predictions(predictions.logits, labels)
    found = weighted_form(metric_named("class_auroc"), predictions)(Weights.of(weights))
    assert np.isnan(found).tolist() == [True, True, False]


def test_a_metric_of_the_same_name_but_another_meaning_gets_no_form():
    assert weighted_form(Metric("aurc", "lower", lambda p: 0.123), made()) is None
    assert weighted_form(Metric("aurc(depth=3)", "lower", lambda p: 0.0), made()) is None
    assert weighted_form(metric_named("ece_smooth"), made()) is None


def test_metrics_without_a_form_are_computed_again():
    found = bootstrap({"m": metric_named("ece_smooth")}, made(rows=40), replicates=20)["m"]
    assert found.low <= found.high
    assert found.error > 0


def test_mean_interval_agrees_with_scipy():
    values = np.random.default_rng(3).exponential(size=400)
    units = Units(np.arange(400), 400)
    draws = replicate({"m": mean_statistic(values)}, units, replicates=4000, seed=0)["m"]
    assert draws.std() == pytest.approx(values.std() / 20, rel=0.05)
    for kind, ours in (("percentile", percentile_interval(values.mean(), draws)),
                       ("BCa", bca_interval(values, units, draws))):
        reference = stats.bootstrap((values,), np.mean, method=kind, n_resamples=4000, rng=1).confidence_interval
        assert (ours.low, ours.high) == pytest.approx((reference.low, reference.high), abs=0.012)


def test_percentile_interval_covers_at_its_level():
    rng = np.random.default_rng(4)
    units, hits = Units(np.arange(60), 60), 0
    for index in range(150):
        values = rng.normal(size=60)
        draws = replicate({"m": mean_statistic(values)}, units, replicates=300, seed=index)["m"]
        found = percentile_interval(values.mean(), draws, level=0.9)
        hits += found.low <= 0 <= found.high
    assert stats.binomtest(hits, 150, 0.88).pvalue > 0.001


def test_groups_are_resampled_whole():
    """Ten copies of every value: the error is that of the ten-fold smaller sample."""
    values = np.random.default_rng(5).normal(size=50)
    names = np.repeat([f"g{i:02d}" for i in range(50)], 10)
    units = units_of(made(rows=500, group=names))
    assert units.count == 50
    draws = replicate({"m": mean_statistic(np.repeat(values, 10))}, units, replicates=3000, seed=0)["m"]
    assert draws.std() == pytest.approx(values.std() / np.sqrt(50), rel=0.07)


def test_seeded_shared_and_independent_of_blocks(monkeypatch):
    values = np.random.default_rng(6).normal(size=30)
    units, form = Units(np.arange(30), 30), mean_statistic(values)
    both = replicate({"a": form, "b": form}, units, replicates=50, seed=9)
    np.testing.assert_array_equal(both["a"], both["b"])
    monkeypatch.setattr("dubio.statistics.resampling.BLOCK_CELLS", 30 * 7)
    np.testing.assert_allclose(replicate({"a": form}, units, replicates=50, seed=9)["a"], both["a"], rtol=1e-12)
    assert not np.array_equal(replicate({"a": form}, units, replicates=50, seed=10)["a"], both["a"])


def test_one_defined_replicate_has_no_spread():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = percentile_interval(0.5, np.array([np.nan, 0.4, np.nan]))
    assert (found.low, found.high) == (0.4, 0.4)
    assert np.isnan(found.error)


def test_infinite_contributions_give_an_infinite_end():
    values = np.ones(20)
    values[0] = np.inf
    draws = replicate({"m": mean_statistic(values)}, Units(np.arange(20), 20), replicates=400, seed=0)["m"]
    assert set(np.unique(draws)) == {1.0, np.inf}
    found = percentile_interval(np.inf, draws)
    assert (found.low, found.high) == (1.0, np.inf)


def test_unlabelled_rows_are_left_out_where_labels_are_needed():
    plain = made(rows=50)
    padded = Predictions(np.concatenate([plain.logits, plain.logits[:, :9]], axis=1),
                         np.concatenate([plain.labels, np.full(9, -1)]))
    one, two = (bootstrap({"nll": metric_named("nll")}, each, replicates=30)["nll"] for each in (plain, padded))
    assert one == two


@settings(max_examples=20)
@given(st.integers(0, 200))
def test_interval_holds_most_replicates_and_the_value(seed):
    found = bootstrap({"b": metric_named("brier")}, made(rows=40, seed=seed), replicates=200)["b"]
    assert found.low <= found.value <= found.high


def test_refusals_and_the_resolvable_difference():
    assert resolvable(0.5) == pytest.approx(1.959964 * 0.5, abs=1e-6)
    with pytest.raises(UserError, match="percentile"):
        bootstrap({"a": metric_named("aurc")}, made(), replicates=5, kind="bca")
    with pytest.raises(UserError, match="level"):
        resolvable(1.0, level=95)
    with pytest.raises(UserError, match="replicates"):
        bootstrap({"a": metric_named("brier")}, made(), replicates=1)
    with pytest.raises(UserError, match="NaN"):
        mean_statistic(np.array([1.0, np.nan]))


def test_a_centred_interval_has_the_spread_of_the_replicates_around_the_estimate():
    draws = np.random.default_rng(0).gamma(9.0, 1.0, 4000)
    plain, centred = percentile_interval(2.0, draws), centred_interval(2.0, draws)
    assert centred.high - plain.high == pytest.approx(2.0 - draws.mean())
    assert centred.low == 0.0  # an error is not below zero
    assert centred.error == pytest.approx(plain.error)
    signed = centred_interval(-1.0, draws - 12.0)
    assert signed.low < -1.0 < signed.high
    infinite = np.append(draws, np.inf)
    assert centred_interval(2.0, infinite) == percentile_interval(2.0, infinite)
    assert np.isnan(centred_interval(2.0, np.array([np.nan])).low)


BINNED = ("ece", "ece_adaptive", "classwise_ece", "sce", "ace", "tace", "ece_smooth", "ece_pooled")


def test_intervals_of_binned_errors_hold_the_estimate():
    for name in BINNED:
        assert metric_named(name).interval == "centred", name
    rng = np.random.default_rng(3)
    for seed in range(5):
        labels = rng.integers(0, 3, 120)
        logits = rng.normal(size=(1, 120, 3)) + 2.0 * np.eye(3)[labels]
        predictions = Predictions(logits.astype(np.float32), labels)
        chosen = {name: metric_named(name) for name in BINNED if name != "ece_pooled"}
        for name, found in bootstrap(chosen, predictions, replicates=60, seed=seed).items():
            assert found.low <= found.value <= found.high, name


def test_centred_intervals_of_ece_cover_what_the_estimator_gives_on_average():
    """Test sets drawn from a calibrated classifier: every estimate above zero is noise, and intervals must know it."""
    metric, rng, rows = metric_named("ece(bins=60)"), np.random.default_rng(5), 200
    values, centred, percentile = [], [], []
    for _ in range(150):
        p = rng.uniform(0.5, 1.0, rows)
        labels = (rng.random(rows) > p).astype(np.int64)
        predictions = Predictions(np.log(np.c_[p, 1 - p])[None].astype(np.float32), labels)
        draws = replicate({"x": weighted_form(metric, predictions)}, units_of(predictions), replicates=200, seed=1)["x"]
        values.append(metric.compute(predictions))
        centred.append(centred_interval(values[-1], draws))
        percentile.append(percentile_interval(values[-1], draws))
    expected = np.mean(values)
    covered = np.mean([each.low <= expected <= each.high for each in centred])
    assert covered > 0.88
    assert np.mean([each.low <= expected <= each.high for each in percentile]) < covered - 0.1
