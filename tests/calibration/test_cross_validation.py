"""Test-time cross-validation against a plain loop over halves, and its invariances."""

from hashlib import shake_256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.calibration.cross_validation import calibrated_brier, cross_validate, random_halves
from dubio.calibration.temperature import apply_temperature, fit_temperature
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, row_names
from dubio.core.registry import METRICS
from dubio.metrics.scoring import brier, nll
from dubio.metrics.selective import aurc


def made(rows=120, classes=4, seed=0, samples=2, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(samples, rows, classes)).astype(np.float32) * 2
    labels = logits.mean(axis=0).argmax(axis=1)
    flipped = rng.random(rows) < 0.4
    labels[flipped] = rng.integers(0, classes, flipped.sum())
    return Predictions(logits, labels.astype(np.int64), **more)


def made_multilabel(rows=80, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, rows, 3)).astype(np.float32) * 2
    labels = (logits.mean(axis=0) + rng.normal(size=(rows, 3)) * 3 > 0).astype(np.int64)
    return Predictions(logits, labels, target="multilabel")


@pytest.mark.parametrize("predictions", [made(), made_multilabel(), made(rows=121), made(classes=2)])
def test_equals_a_plain_loop(predictions):
    """Every half scored by the registered metrics with the temperature fitted on the other."""
    found = cross_validate(predictions, repeats=3, seed=7)
    expected = {"nll": [], "brier": [], "aurc": []}
    temperatures = []
    for half in random_halves(predictions, repeats=3, seed=7):
        total = dict.fromkeys(expected, 0.0)
        for fitted in (half, ~half):
            temperatures.append(fit_temperature(predictions.take(fitted)).temperature)
            rest = apply_temperature(predictions.take(~fitted), temperatures[-1])
            for name, metric in (("nll", nll), ("brier", brier), ("aurc", aurc)):
                total[name] += metric(rest) * (~fitted).mean()
        for name, value in total.items():
            expected[name].append(value)
    np.testing.assert_allclose(found.temperatures, temperatures, rtol=1e-6)
    for name, values in expected.items():
        spread = getattr(found, name)
        np.testing.assert_allclose(spread.values, values, atol=1e-8)
        assert spread.mean == pytest.approx(np.mean(values), abs=1e-8)
        assert spread.std == pytest.approx(np.std(values, ddof=1), abs=1e-8)


def test_halves_are_equal_seeded_and_different():
    halves = random_halves(made(rows=101), repeats=5, seed=3)
    assert all(half.sum() in (50, 51) for half in halves)
    assert len({half.tobytes() for half in halves}) == 5
    again = random_halves(made(rows=101), repeats=2, seed=3)
    np.testing.assert_array_equal(again[1], halves[1])


def test_groups_stay_together():
    group = np.array([f"g{i % 17}" for i in range(120)])
    for half in random_halves(made(group=group), repeats=20, seed=0):
        assert 0 < half.sum() < 120
        for name in np.unique(group):
            assert half[group == name].all() or not half[group == name].any()


def test_one_example_or_one_group_is_refused():
    with pytest.raises(UserError, match="two examples"):
        cross_validate(made(rows=1))
    with pytest.raises(UserError, match="two groups"):
        cross_validate(made(group=np.full(120, "one")))
    with pytest.raises(UserError, match="repeats"):
        cross_validate(made(), repeats=0)


def test_two_examples_have_an_answer_with_bounds_reported():
    predictions = Predictions(np.array([[[0.0, 1.0], [0.0, 2.0]]], dtype=np.float32), np.array([1, 1]))
    found = cross_validate(predictions)
    assert found.bound_hits == 10
    assert np.isfinite(found.nll.mean)


def test_registered_metrics_and_their_contributions():
    predictions = made()
    whole = cross_validate(predictions)
    for name in ("nll", "brier", "aurc"):
        metric = METRICS.make(f"calibrated_{name}")
        assert metric.better == "lower"
        assert metric.comparable
        assert metric.compute(predictions) == pytest.approx(getattr(whole, name).mean, rel=1e-13)
        if metric.per_example is not None:
            assert metric.per_example(predictions).mean() == pytest.approx(metric.compute(predictions), abs=1e-12)
    assert METRICS.make("calibrated_nll", repeats=2).name == "calibrated_nll(repeats=2)"
    assert calibrated_brier.per_example(predictions).shape == (120,)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 500), st.floats(0.6, 1.7))
def test_tempering_first_changes_nothing(seed, factor):
    predictions = made(rows=80, seed=seed)
    plain, tempered = cross_validate(predictions), cross_validate(apply_temperature(predictions, factor))
    if plain.bound_hits == tempered.bound_hits == 0:
        assert tempered.nll.mean == pytest.approx(plain.nll.mean, abs=1e-7)
        assert tempered.brier.mean == pytest.approx(plain.brier.mean, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 500))
def test_row_order_does_not_matter_beside_ids(seed):
    ids = np.array([f"e{i:03d}" for i in range(60)])
    predictions = made(rows=60, seed=seed, ids=ids)
    order = np.random.default_rng(seed).permutation(60)
    plain, moved = cross_validate(predictions), cross_validate(predictions.take(order))
    for name in ("nll", "brier", "aurc"):
        assert getattr(moved, name).mean == pytest.approx(getattr(plain, name).mean, abs=1e-12)


def test_halves_go_by_the_hash_of_ids_or_groups_and_not_by_predictions_or_other_rows():
    ids = np.array([f"e{i}" for i in range(101)])
    group = np.array([f"g{i % 30}" for i in range(101)])
    first, second = (random_halves(made(101, seed=seed, ids=ids), repeats=3, seed=4) for seed in (0, 1))
    np.testing.assert_array_equal(first, second)
    for repeat, half in enumerate(first):
        streams = [shake_256(f"4\0{name}".encode()).digest(24)[8 * repeat : 8 * repeat + 8] for name in ids]
        numbers = np.array([int.from_bytes(stream, "little") for stream in streams])
        assert numbers[half].max() < numbers[~half].min()
    # without twenty of the examples the cut moves a little and all others stay on their side of it
    few = random_halves(made(101, ids=ids).take(np.arange(81)), repeats=3, seed=4)
    for half, fewer in zip(first, few, strict=True):
        assert (half[:81] != fewer).sum() <= 15
        assert (half[:81] & ~fewer).sum() * (~half[:81] & fewer).sum() == 0
    by_group = random_halves(made(101, ids=ids, group=group), repeats=3, seed=4)
    np.testing.assert_array_equal(by_group, random_halves(made(101, seed=1, group=group), repeats=3, seed=4))


def test_without_ids_the_position_of_a_row_is_its_name():
    numbered = made(ids=row_names(120))
    assert cross_validate(made()).nll == cross_validate(numbered).nll


def test_sample_order_does_not_matter():
    predictions = made(samples=5)
    moved = Predictions(predictions.logits[::-1].copy(), predictions.labels)
    assert cross_validate(moved).nll.mean == pytest.approx(cross_validate(predictions).nll.mean, rel=1e-9)


def test_good_temperature_beats_the_wrong_one():
    """Labels drawn from the predictions: five times too sharp must cost, and calibration must bring it back."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(1, 2000, 4))
    probs = np.exp(logits[0]) / np.exp(logits[0]).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(4, p=row) for row in probs])
    honest, sharp = (Predictions((logits * factor).astype(np.float32), labels) for factor in (1, 5))
    assert nll(sharp) > nll(honest) + 0.5
    assert cross_validate(sharp).nll.mean == pytest.approx(cross_validate(honest).nll.mean, abs=1e-5)
    assert np.mean(cross_validate(sharp).temperatures) == pytest.approx(5.0, rel=0.1)
