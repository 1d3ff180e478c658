"""The bootstrap against scipy, closed forms, repeated rows and simulated coverage."""

import warnings
from dataclasses import replace
from itertools import pairwise, product
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import (
    UNDECIDED,
    RunIntervals,
    ShortPoisson,
    Units,
    bootstrap,
    centred_interval,
    check_replicates,
    deciding_units,
    mean_statistic,
    metric_statistic,
    percentile_interval,
    replicate,
    replicates_for,
    share_interval,
    units_of,
    units_of_errors,
    units_of_smaller_side,
)


def made(rows=200, classes=3, seed=0, coarse=False, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, rows, classes)) * 2
    if coarse:  # many ties
        logits = np.round(logits)[:1]
    labels = rng.integers(0, classes, rows)
    return Predictions(logits.astype(np.float32), labels, **more)


def test_metrics_without_weights_are_computed_again():
    metric = metric_named("conformal_set_size")
    assert metric.weighted is None
    found = bootstrap({"m": metric}, made(rows=40), replicates=20)["m"]
    assert found.low < found.high


def test_mean_interval_agrees_with_scipy():
    values = np.random.default_rng(3).exponential(size=400)
    units = Units(np.arange(400), 400)
    draws = replicate({"m": mean_statistic(values)}, units, replicates=4000, seed=0)["m"]
    assert draws.std() == pytest.approx(values.std() / 20, rel=0.05)
    ours = percentile_interval(values.mean(), draws)
    reference = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1).confidence_interval
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
    monkeypatch.setattr("dubio.statistics.bootstrap.BLOCK_CELLS", 30 * 7)
    np.testing.assert_allclose(replicate({"a": form}, units, replicates=50, seed=9)["a"], both["a"], rtol=1e-12)
    assert not np.array_equal(replicate({"a": form}, units, replicates=50, seed=10)["a"], both["a"])


def test_replicates_that_are_mostly_undefined_give_no_interval():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for interval in (percentile_interval, centred_interval):
            few = interval(0.5, np.array([np.nan, 0.4, np.nan]))
            half = interval(0.4, np.array([np.nan, 0.4, 0.4 - 1e-9, np.nan]))
            assert np.isnan([few.low, few.high]).all()
            assert (half.low, half.high) == pytest.approx((0.4, 0.4))


def test_replicates_that_are_all_equal_give_no_interval():
    """Five rows that are all right had the interval (1, 1) of macro F1, and met any lower bound."""
    right = Predictions(np.array([[[2.0, 0.0]] * 5], dtype=np.float32), np.zeros(5, dtype=np.int64))
    for name in ("macro_f1", "aurc", "nll", "ece"):
        found = bootstrap({name: metric_named(name)}, right, replicates=20)[name]
        assert np.isnan([found.low, found.high]).all()


def in_two_classes(rng, rows, accuracy, group=None):
    """Rows of class 0 of which about this share is right; with groups a group is likely to be alike."""
    share = accuracy if group is None else np.repeat(rng.beta(accuracy, 1 - accuracy, len(set(group))), 10)
    right = rng.random(rows) < share
    logits = np.where(right[:, None], [1.0, 0.0], [0.0, 1.0])[None].astype(np.float32)
    return Predictions(logits, np.zeros(rows, dtype=np.int64), group=group)


@pytest.mark.parametrize(("rows", "accuracy"), [(5, 0.9), (20, 0.95), (100, 0.99)])
def test_intervals_of_accuracy_hold_where_few_rows_are_wrong(rows, accuracy):
    """Percentiles held in 36, 67 and 64 % of cases: rows that are all right have replicates that are."""
    rng, hits, draws = np.random.default_rng(0), 0, 300
    for _ in range(draws):
        found = bootstrap({"a": metric_named("accuracy")}, in_two_classes(rng, rows, accuracy), replicates=2)["a"]
        hits += found.low <= accuracy <= found.high
    assert hits >= draws * 0.95 - 2 * np.sqrt(draws * 0.95 * 0.05)


def test_intervals_of_accuracy_hold_where_rows_of_a_group_are_alike():
    """Percentiles held in 74 %, and intervals of rows as if they were independent in fewer."""
    rng, hits, draws, group = np.random.default_rng(0), 0, 200, np.repeat(np.arange(10).astype(str), 10)
    for _ in range(draws):
        rows = in_two_classes(rng, 100, 0.85, group)
        found = bootstrap({"a": metric_named("accuracy")}, rows, replicates=200)["a"]
        hits += found.low <= 0.85 <= found.high
    assert hits >= draws * 0.95 - 3 * np.sqrt(draws * 0.95 * 0.05)


@pytest.mark.parametrize("flipped", [False, True])
def test_the_smaller_side_of_a_detection_decides(flipped):
    ood = (np.arange(20) < 6) != flipped
    assert units_of_smaller_side(ood, None) == 6
    group = np.array(["a"] * 3 + ["b"] * 3 + [f"g{k % 5}" for k in range(14)])
    assert units_of_smaller_side(ood, group) == 2


def test_the_units_of_an_area_follow_from_the_sides():
    def rows_of(positives, rows):
        return made(rows, classes=2).with_checked(labels=(np.arange(rows) < positives).astype(np.int64))

    two, one = rows_of(2, 10), rows_of(1, 10)
    freedom = (1 / 2 + 1 / 8) ** 2 / (1 / 4 / 1 + 1 / 64 / 7)
    metric = metric_named("class_auroc")
    assert deciding_units(metric, two) == pytest.approx(1 + freedom)
    assert deciding_units(metric, one) == 1
    assert deciding_units(metric_named("aurc"), one) == 10
    pairs = replace(two, group=np.array(["a", "a", "b", "b", *"cccddd"]))
    assert deciding_units(metric, pairs) == 1  # both positives are of one patient
    assert deciding_units(metric, rows_of(200, 400)) == pytest.approx(399)


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    units, draws = Units(np.arange(40), 40), np.array([0.9, 1.0])
    for hits in (0, 1, 39, 40):
        exact = stats.binomtest(hits, 40).proportion_ci(0.9, method="exact")
        found = share_interval(hits / 40, draws, units, level=0.9)
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    alone = share_interval(1.0, draws, Units(np.zeros(40, dtype=np.int64), 1))
    assert np.isnan([alone.low, alone.high]).all()


def test_groups_that_are_alike_within_count_like_their_number():
    """Korn and Graubard: the number of independent rows with the same variance, corrected for degrees of freedom."""
    units = Units(np.repeat(np.arange(30), 4), 30)
    variance, correction = 0.2 * 0.8 / 30, (stats.t.ppf(0.025, 119) / stats.t.ppf(0.025, 29)) ** 2
    draws = 0.2 + np.array([1, -1]) * np.sqrt(variance / 2)  # whose variance (n − 1) is this one
    hits, count = 0.2 * 30 * correction, 30 * correction
    ends = stats.beta.ppf([0.025, 0.975], [hits, hits + 1], [count - hits + 1, count - hits])
    found = share_interval(0.2, draws, units)
    assert (found.low, found.high) == pytest.approx(tuple(ends))


def test_percentiles_of_few_units_are_expanded_like_student_s_t():
    draws = np.random.default_rng(0).normal(size=20_000)
    for units in (5, 30):
        found = percentile_interval(0.0, draws, units=units)
        half = np.sqrt(units / (units - 1)) * stats.t.ppf(0.975, units - 1)
        shares = stats.norm.cdf([-half, half])
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, shares)))
    assert percentile_interval(0.0, draws, units=10**9).low == pytest.approx(percentile_interval(0.0, draws).low)
    assert np.isnan(percentile_interval(0.0, draws, units=1).low)


@pytest.mark.parametrize(("rare", "least"), [(1, None), (5, 0.9)])
def test_intervals_of_an_area_count_the_rarer_class(rare, least):
    """Of one positive 11 % of intervals held, of five 80 to 88 %."""
    rng, labels, defined = np.random.default_rng(0), np.r_[np.ones(rare, dtype=int), np.zeros(100, dtype=int)], []
    for _ in range(100):
        odds = rng.normal(size=100 + rare)
        rows = Predictions(np.stack([0 * odds, odds], axis=1)[None].astype(np.float32), labels)
        found = bootstrap({"a": metric_named("class_auroc")}, rows, replicates=100)["a"]
        defined += [] if np.isnan(found.low) else [found.low <= 0.5 <= found.high]
    assert len(defined) == (0 if least is None else 100)
    assert least is None or np.mean(defined) >= least


def test_where_few_errors_decide_a_gain_from_referral_is_rarely_found():
    """Of uncertainty that says nothing 11 to 14 % of intervals left out zero, with 4 to 10 errors."""
    rng, metric, found = np.random.default_rng(0), metric_named("referral_gain"), 0
    for _ in range(100):
        doubt, wrong = rng.random(200), rng.random(200) < 6 / 200
        odds = np.where(wrong, doubt, -doubt)
        rows = Predictions(np.stack([0 * odds, odds], axis=1)[None].astype(np.float32), np.zeros(200, dtype=int))
        runs = RunIntervals()
        runs.add(("kind", "task", "split", "m"), rows, {"gain": metric_statistic(metric, rows)}, units_of_errors(rows))
        interval = runs.interval(("kind", "task", "split", "m", "gain"))
        found += interval.low > 0 or interval.high < 0
    assert found <= 100 * 0.05 + 2 * np.sqrt(100 * 0.05 * 0.95)


def test_infinite_contributions_give_an_infinite_end():
    values = np.ones(20)
    values[0] = np.inf
    draws = replicate({"m": mean_statistic(values)}, Units(np.arange(20), 20), replicates=400, seed=0)["m"]
    assert set(np.unique(draws)) == {1.0, np.inf}
    found = percentile_interval(np.inf, draws)
    assert (found.low, found.high) == (1.0, np.inf)


def test_unlabelled_rows_are_left_out_where_labels_are_needed():
    plain = made(rows=50)
    padded = Predictions(
        np.concatenate([plain.logits, plain.logits[:, :9]], axis=1), np.concatenate([plain.labels, np.full(9, -1)])
    )
    one, two = (bootstrap({"nll": metric_named("nll")}, each, replicates=30)["nll"] for each in (plain, padded))
    assert one == two


@settings(max_examples=20)
@given(st.integers(0, 200))
def test_interval_holds_most_replicates_and_the_value(seed):
    found = bootstrap({"b": metric_named("brier")}, made(rows=40, seed=seed), replicates=200)["b"]
    assert found.low <= found.value <= found.high


def test_refusals():
    with pytest.raises(UserError, match="level"):
        bootstrap({"a": metric_named("brier")}, made(), replicates=10, level=95)
    with pytest.raises(UserError, match="replicates"):
        bootstrap({"a": metric_named("brier")}, made(), replicates=1)
    with pytest.raises(UserError, match="NaN"):
        mean_statistic(np.array([1.0, np.nan]))(Weights.of(np.array([[2, 0], [1, 1]])))


def test_a_centred_interval_has_the_spread_of_the_replicates_around_the_estimate():
    draws = np.random.default_rng(0).gamma(9.0, 1.0, 4000)
    plain, centred = percentile_interval(2.0, draws), centred_interval(2.0, draws)
    assert centred.high - plain.high == pytest.approx(2.0 - draws.mean())
    assert centred.low == 0.0  # an error is not below zero
    signed = centred_interval(-1.0, draws - 12.0)
    assert signed.low < -1.0 < signed.high
    infinite = np.append(draws, np.inf)
    assert centred_interval(2.0, infinite) == percentile_interval(2.0, infinite)
    assert np.isnan(centred_interval(2.0, np.array([np.nan])).low)


BINNED = ("ece", "ece_adaptive", "classwise_ece", "sce", "ace", "tace", "ece_smooth", "ece_pooled")


def test_the_ends_of_an_interval_are_quantiles_of_the_replicates():
    found = percentile_interval(7.0, np.arange(101.0), level=0.9)
    assert (found.value, found.low, found.high) == pytest.approx((7.0, 5.0, 95.0))
    beside_infinity = percentile_interval(1.0, np.array([1.0, 2.0, 3.0, 4.0, np.inf]), level=0.6)
    assert (beside_infinity.low, beside_infinity.high) == (1.0, np.inf)  # positions 0.8 and 3.2, rounded outwards


@pytest.mark.parametrize(
    ("value", "draws", "low"),
    [
        (0.0, [0.0, 1.0, 2.0], 0.0),  # an error: neither the estimate nor a replicate is below zero
        (0.5, [0.5, 1.0, 1.5], 0.0),
        (0.5, [-0.5, 1.0, 5.5], -2.0),  # a difference: it may be
        (-0.5, [0.5, 1.0, 1.5], -1.0),
    ],
)
def test_a_centred_interval_is_cut_at_zero_only_where_nothing_is_below(value, draws, low):
    assert centred_interval(value, np.array(draws), level=1 - 1e-9).low == pytest.approx(low, abs=1e-6)


def test_two_replicates_are_the_fewest():
    assert len(replicate({"m": mean_statistic(np.arange(3.0))}, Units(np.arange(3), 3), replicates=2, seed=0)["m"]) == 2
    for allowed in (0, 2, 1_000_000):
        check_replicates(allowed)
    for refused in (-1, 1, 1_000_001, 20.0):
        with pytest.raises(UserError, match=r"replicates must be 0 \(no intervals\) or 2 to 1,000,000"):
            check_replicates(refused)
    assert [replicates_for(rows) for rows in (0, 4000, 4001, 5000, 20_000, 10**9)] == [1000, 1000, 999, 800, 200, 200]


def test_the_seed_is_zero_unless_another_is_asked_for():
    metrics = {"brier": metric_named("brier")}
    assert bootstrap(metrics, made(), replicates=20) == bootstrap(metrics, made(), replicates=20, seed=0)
    assert bootstrap(metrics, made(), replicates=20) != bootstrap(metrics, made(), replicates=20, seed=1)


@pytest.mark.parametrize("group", [None, np.repeat(["a", "b", "c", "d"], 10)])
def test_the_interval_of_a_mean_over_runs_is_that_of_the_mean_contribution(group):
    """Runs share their replicates: the mean over runs of weighted means is the weighted mean of the runs' mean."""
    rows, values = made(rows=40, group=group), np.random.default_rng(1).normal(size=(3, 40))
    runs = RunIntervals()
    for own in values:
        runs.add(
            ("kind", "task", "split", "method"), rows, {"m": mean_statistic(own), "twice": mean_statistic(2 * own)}
        )
    runs.add(("kind", "task", "split", "other"), rows, {"m": mean_statistic(values[0])})
    units = units_of(rows)
    draws = replicate({"m": mean_statistic(values.mean(axis=0))}, units, replicates=1000, seed=0)["m"]
    key = ("kind", "task", "split", "method", "m")
    for kind, interval in (("percentile", percentile_interval), ("centred", centred_interval)):
        expected, found = interval(values.mean(), draws, units=units.count), runs.interval(key, kind)
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert runs.interval(key) == runs.interval(key, "percentile")
    assert runs.interval((*key[:-1], "twice")).high == pytest.approx(2 * runs.interval(key).high)
    assert runs.interval(("kind", "task", "split", "other", "m")).value == pytest.approx(values[0].mean())
    assert runs.units(key) == units.count


def test_the_draws_of_a_task_are_kept_until_another_task_begins():
    runs, rows = RunIntervals(), made(rows=20)
    for task, split in (("one", "test"), ("one", "shift"), ("two", "test")):
        runs.add(("kind", task, split, "method"), rows, {"m": mean_statistic(np.arange(20.0))})
        kept = {key[1:] for key in runs.draws}
        assert kept == ({("two", "test")} if task == "two" else {("one", "test"), ("one", split)})


def test_two_units_have_an_interval_of_the_mean_over_runs():
    runs, rows = RunIntervals(), made(rows=6, group=np.repeat(["one", "two"], 3))
    runs.add(("kind", "task", "split", "method"), rows, {"m": mean_statistic(np.arange(6.0))})
    found = runs.interval(("kind", "task", "split", "method", "m"))
    assert (found.low, found.high) == (1.0, 4.0)  # one unit was drawn twice in half of the replicates


def test_a_single_unit_has_a_mean_over_runs_and_no_interval():
    runs, rows = RunIntervals(), made(rows=6, group=np.repeat(["only"], 6))
    runs.add(("kind", "task", "split", "method"), rows, {"m": mean_statistic(np.arange(6.0))})
    found = runs.interval(("kind", "task", "split", "method", "m"))
    assert found.value == 2.5
    assert np.isnan([found.low, found.high]).all()


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
        statistics = {"x": metric_statistic(metric, predictions)}
        draws = replicate(statistics, units_of(predictions), replicates=200, seed=1)["x"]
        values.append(metric.compute(predictions))
        centred.append(centred_interval(values[-1], draws))
        percentile.append(percentile_interval(values[-1], draws))
    expected = np.mean(values)
    covered = np.mean([each.low <= expected <= each.high for each in centred])
    assert covered > 0.88
    assert np.mean([each.low <= expected <= each.high for each in percentile]) < covered - 0.1


def drawn(units, replicates, seed=0):
    """``[R, N]``."""
    return np.concatenate([weights.counts.T for weights in units.weights(replicates, seed)]).astype(np.int64)


def examples(count):
    return Units(np.arange(count), count)


@pytest.fixture(params=[0, 1 << 20])
def few(request, monkeypatch):
    """Counts from the table of bytes wherever they can be, and nowhere."""
    monkeypatch.setattr("dubio.statistics.bootstrap.FEW", request.param)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 11, 40, 257, 3000])
def test_every_replicate_draws_as_many_as_there_are(few, count):
    assert (drawn(examples(count), 50).sum(axis=1) == count).all()


@pytest.mark.parametrize("count", [3, 4])
def test_all_outcomes_of_a_few_units_have_their_probabilities(few, count, monkeypatch):
    """Σ over all outcomes: n! / (Π w_i! nⁿ)."""
    monkeypatch.setattr("dubio.statistics.bootstrap.SHORTFALL", 0.5)  # some of so few come from the table as well
    outcomes = [w for w in product(range(count + 1), repeat=count) if sum(w) == count]
    chance = [factorial(count) / np.prod([factorial(k) for k in w]) / count**count for w in outcomes]
    found = drawn(examples(count), 12_000)
    times = dict.fromkeys(outcomes, 0)
    for row in map(tuple, found.tolist()):
        times[row] += 1
    assert stats.chisquare(list(times.values()), np.array(chance) * len(found)).pvalue > 1e-4


@pytest.mark.parametrize("count", [12, 30, 1000])
def test_parts_of_many_units_are_multinomial(few, count):
    """Counts of three parts of the units, of most of which the Poisson table decides: chi-square over all cells."""
    cuts = np.array([0, 2, count // 3, count])
    replicates = 4000
    found = drawn(examples(count), replicates)
    parts = np.stack([found[:, low:high].sum(axis=1) for low, high in pairwise(cuts)], axis=1)
    one = parts[:, 0]
    edges = np.arange(6)
    expected = stats.binom.pmf(edges, count, 2 / count)
    cells = np.append(np.bincount(np.minimum(one, 6), minlength=7)[:6], (one > 5).sum())
    assert stats.chisquare(cells, np.append(expected, 1 - expected.sum()) * replicates).pvalue > 1e-4
    share = np.diff(cuts) / count
    covariance = count * (np.diag(share) - np.outer(share, share))
    assert np.abs(parts.mean(axis=0) - count * share).max() < 5 * np.sqrt(covariance.max() / replicates)
    np.testing.assert_allclose(np.cov(parts.T), covariance, atol=6 * covariance.max() / np.sqrt(replicates))


def test_single_units_have_the_binomial_law_far_into_the_tail():
    found = drawn(examples(2500), 400, seed=3)
    times = np.bincount(found.ravel(), minlength=8)
    expected = stats.binom.pmf(np.arange(7), 2500, 1 / 2500) * found.size
    # units of one replicate are nearly independent: their correlation is −1/(n − 1)
    seen, rest = np.append(times[:7], times[7:].sum()), found.size - expected.sum()
    assert stats.chisquare(seen, np.append(expected, rest)).pvalue > 1e-4


@pytest.mark.parametrize("count", [1, 9, 10, 50, 50_000])
def test_the_table_and_its_remainder_make_up_a_poisson_law(monkeypatch, count):
    monkeypatch.setattr("dubio.statistics.bootstrap.FEW", 0)
    law = ShortPoisson.of(count)
    mean = max(0.0, 1 - 3 / np.sqrt(count))
    assert law.mean == pytest.approx(mean)
    table = np.frombuffer(law.table, dtype=np.uint8)
    settled = np.bincount(table[table != UNDECIDED], minlength=40)[:40]
    share = np.diff(law.remainder, prepend=0.0) * (table == UNDECIDED).sum()
    np.testing.assert_allclose((settled + share) / 256, stats.poisson.pmf(np.arange(40), mean), atol=1e-15)


def test_seeded_and_independent_of_blocks(few, monkeypatch):
    units = examples(30)
    one = drawn(units, 25, seed=4)
    monkeypatch.setattr("dubio.statistics.bootstrap.BLOCK_CELLS", 30 * 7)
    np.testing.assert_array_equal(drawn(units, 25, seed=4), one)
    np.testing.assert_array_equal(drawn(units, 9, seed=4), one[:9])
    assert (drawn(units, 25, seed=5) != one).any()


def test_a_group_has_one_weight():
    names = np.array(["a", "b", "a", "c", "c", "c"])
    units = units_of(Predictions(np.zeros((1, 6, 2), dtype=np.float32), np.zeros(6, dtype=np.int64), group=names))
    found = drawn(units, 100)
    assert (found[:, 0] == found[:, 2]).all()
    assert (found[:, 3:] == found[:, 3:4]).all()
    assert (found[:, 0] + found[:, 1] + found[:, 3] == 3).all()
    weights = Weights.of(found)
    np.testing.assert_array_equal(weights.totals, found.sum(axis=1))
    assert [list(rows) for rows in weights.replicates()] == [list(np.repeat(np.arange(6), row)) for row in found]


def test_weights_beyond_a_byte_are_kept():
    weights = Weights.of(np.array([[300, 0], [1, 70_000]]))
    np.testing.assert_array_equal(weights.totals, [300, 70_001])
