"""The deep-ensemble equivalent: by hand, against the metrics, and against itself."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubio.calibration.cross_validation import cross_validate
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.scoring import accuracy
from dubio.reporting.ensemble_curves import EnsembleCurves
from dubio.statistics.ensemble_equivalent import (
    SCORES,
    Equivalent,
    GrowthCurve,
    average_equivalent,
    equivalent,
    equivalent_curve,
    equivalent_range,
    growth_curve,
    random_orders,
)


def ensemble(members=5, rows=300, classes=4, seed=0, per_member=1, **more):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    shared = rng.normal(size=(rows, classes))
    shared[np.arange(rows), labels] += 1.5
    logits = shared + rng.normal(size=(members * per_member, rows, classes)) * 1.5
    return Predictions(logits.astype(np.float32), labels, member=np.repeat(np.arange(members), per_member), **more)


def test_equivalent_by_hand():
    curve = np.array([1.0, 0.6, 0.5, 0.45])
    assert equivalent(curve, 1.2).size == 1.0
    assert equivalent(curve, 1.0).size == 1.0
    assert equivalent(curve, 0.8).size == pytest.approx(1.5)
    assert equivalent(curve, 0.6).size == 2.0
    assert equivalent(curve, 0.475).size == pytest.approx(3.5)
    beyond = equivalent(curve, 0.4)
    assert beyond.beyond
    assert str(beyond) == "> 4"
    assert equivalent(np.array([np.inf, 0.5]), 0.7).size == 2.0  # no slope to interpolate along


def test_first_crossing_counts_where_a_curve_turns_back():
    assert equivalent(np.array([1.0, 0.5, 0.8, 0.4]), 0.5).size == 2.0


@pytest.mark.parametrize("value", [1e-6, 0.5, 1e6])
def test_scores_that_differ_by_rounding_are_equal(value):
    unit = 1e-10 * max(1.0, value)
    assert equivalent(np.array([4 * value, value + unit / 2]), value).size == 2.0
    assert equivalent(np.array([4 * value, value + 1.5 * unit]), value).beyond


def test_bounds_enclose_the_centre():
    mean, std = np.array([1.0, 0.6, 0.5, 0.45]), np.array([0.1, 0.05, 0.02, 0.01])
    curve = GrowthCurve(dict.fromkeys(SCORES, mean), dict.fromkeys(SCORES, std), 5)
    found = equivalent_range(curve, "nll", 0.52)
    assert found.lower.size < found.central.size < found.upper.size
    assert found.lower.size == equivalent(mean - std, 0.52).size


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12))
def test_a_strictly_improving_ensemble_is_worth_its_own_size(steps):
    mean = 20.0 - np.cumsum(steps)
    curve = GrowthCurve(dict.fromkeys(SCORES, mean), dict.fromkeys(SCORES, np.zeros_like(mean)), 1)
    for size, found in enumerate(equivalent_curve(curve, curve, "nll"), start=1):
        assert found.central.size == size


def test_a_real_ensemble_is_worth_its_own_size():
    curve = growth_curve(ensemble(), orders=4)
    assert (np.diff(curve.mean["nll"]) < 0).all()
    sizes = [found.central.size for found in equivalent_curve(curve, curve, "nll")]
    assert sizes == [1, 2, 3, 4, 5]
    # all orders end in the same ensemble: rounding alone must not put its bound beyond the longest
    assert not equivalent_range(curve, "nll", float(curve.mean["nll"][-1])).upper.beyond
    other = growth_curve(ensemble(), orders=4, seed=1)
    assert equivalent_range(curve, "error", float(other.mean["error"][-1])).central.size <= 5


@pytest.mark.parametrize("per_member", [1, 3])
def test_longest_ensemble_scores_as_the_pooled_predictions(per_member):
    predictions = ensemble(per_member=per_member)
    curve, whole = growth_curve(predictions, orders=3), cross_validate(predictions)
    assert len(curve) == 5
    for name in ("nll", "brier", "aurc"):
        assert curve.mean[name][-1] == pytest.approx(getattr(whole, name).mean, abs=1e-7)
        assert curve.std[name][-1] == pytest.approx(0.0, abs=1e-7)
    assert curve.mean["error"][-1] == pytest.approx(1 - accuracy(predictions))


def test_multilabel_ensembles():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, (120, 3))
    logits = (2 * labels - 1) + rng.normal(size=(4, 120, 3)) * 2
    predictions = Predictions(logits.astype(np.float32), labels, target="multilabel", member=np.arange(4))
    curve = growth_curve(predictions, orders=2)
    assert curve.mean["nll"][-1] == pytest.approx(cross_validate(predictions).nll.mean, abs=1e-7)


def test_first_sizes_average_the_single_members():
    predictions = ensemble(members=2)
    single = [cross_validate(Predictions(predictions.logits[[i]], predictions.labels)).nll.mean for i in range(2)]
    curve = growth_curve(predictions, orders=40)
    assert min(single) - 1e-7 <= curve.mean["nll"][0] <= max(single) + 1e-7


def test_the_spread_over_orders_is_a_sample_deviation_and_zero_for_one_order():
    predictions = ensemble(members=2, rows=60)
    single = [1 - accuracy(Predictions(predictions.logits[[i]], predictions.labels)) for i in range(2)]
    for count, seed in ((2, 0), (2, 1), (2, 2), (7, 3)):
        firsts = [single[order[0]] for order in random_orders(2, orders=count, seed=seed)]
        curve = growth_curve(predictions, orders=count, seed=seed)
        assert curve.mean["error"][0] == pytest.approx(statistics.mean(firsts))
        assert curve.std["error"][0] == pytest.approx(statistics.stdev(firsts))
    assert growth_curve(predictions, orders=1).std["nll"].tolist() == [0.0, 0.0]
    assert growth_curve(predictions).orders == 3


def test_orders_are_random_but_one_where_there_is_one_unit():
    assert [len(random_orders(count, orders=5)) for count in (1, 2, 3)] == [1, 5, 5]
    assert [order.tolist() for order in random_orders(4, orders=2)] == [
        order.tolist() for order in random_orders(4, orders=2, seed=0)
    ]


def test_samples_as_units_and_one_unit():
    predictions = ensemble(members=1, per_member=4)
    assert len(growth_curve(predictions, orders=2)) == 1
    assert growth_curve(predictions, orders=2).orders == 1
    assert len(growth_curve(predictions, unit="sample", orders=2)) == 4


def test_averaging_over_architectures():
    assert average_equivalent([Equivalent(2.0, 10), Equivalent(5.0, 8)]) == Equivalent(3.5, 8)
    assert average_equivalent([Equivalent(2.0, 10), Equivalent(np.inf, 8)]).beyond


def test_refusals():
    with pytest.raises(UserError, match="orders"):
        growth_curve(ensemble(), orders=0)
    with pytest.raises(UserError, match="unit"):
        growth_curve(ensemble(), unit="head")
    with pytest.raises(UserError, match="score"):
        equivalent_range(growth_curve(ensemble(members=1, rows=20)), "nl", 0.5)
    with pytest.raises(UserError, match="average"):
        average_equivalent([])
    with pytest.raises(UserError, match="unlabelled"):
        growth_curve(Predictions(np.zeros((2, 3, 2), dtype=np.float32), np.full(3, -1)))


def test_bounds_over_orders_are_no_confidence_interval():
    """Three networks are equivalent to three, and bounds over orders of five others rarely hold that."""
    held, draws = 0, 18
    for seed in range(draws):
        rows = ensemble(members=8, rows=200, seed=seed)
        others = growth_curve(rows.take_samples(np.arange(8) < 5), orders=5, seed=seed, repeats=1)
        own = growth_curve(rows.take_samples(np.arange(8) >= 5), orders=1, seed=seed, repeats=1).mean["nll"][-1]
        bounds = equivalent_range(others, "nll", own)
        held += bounds.lower.size <= 3 <= bounds.upper.size
    assert held < 0.7 * draws
    curves = EnsembleCurves("", others, {})
    assert "The bounds are no confidence interval: other networks, another training" in curves.reading
