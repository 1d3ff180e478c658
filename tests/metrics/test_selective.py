from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from mapie.metrics.uncertainty import auarc
from sklearn.metrics import average_precision_score, roc_auc_score

from dubio.core.errors import UserError
from dubio.core.registry import METRICS
from dubio.core.weights import Weights
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import extreme_rows, uncertainty
from dubio.metrics.referral_curve import referral_curve, retained_roc
from dubio.metrics.selective import (
    au_arc,
    augrc,
    aurc,
    e_aurc,
    expected_errors,
    misclassification_aupr,
    misclassification_auroc,
    referral_gain,
    rejection_curve,
)
from dubio.statistics.bootstrap import metric_statistic
from tests.metrics.helpers import coarse, drawn, of_probs, seeds


def brute(scores, wrong, measure):
    """The mean of a measure over every order of the rows that the scores allow."""
    found = []
    for order in permutations(range(len(scores))):
        if all(scores[a] <= scores[b] for a, b in pairwise(order)):
            found.append(measure(np.asarray(wrong, dtype=float)[list(order)]))
    return np.mean(found)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_curves_equal_the_mean_over_all_orders_of_tied_rows(seed):
    rng = np.random.default_rng(seed)
    scores, wrong = rng.integers(0, 3, 6) / 3, rng.random(6) < 0.5
    kept = np.arange(1, 7)
    mean_risk = brute(scores, wrong, lambda e: np.mean(np.cumsum(e) / kept))
    errors = expected_errors(scores, wrong)
    assert np.mean(errors / kept) == pytest.approx(mean_risk)
    generalised = brute(scores, wrong, lambda e: np.trapezoid(np.append(0, np.cumsum(e)) / 6, dx=1 / 6))
    assert (errors.sum() - errors[-1] / 2) / 36 == pytest.approx(generalised)


@pytest.mark.parametrize("seed", range(4))
def test_au_arc_equals_mapie_where_nothing_is_tied(seed):
    predictions = drawn(seed, rows=200)
    right = correct(predictions)
    assert au_arc(predictions) == pytest.approx(auarc(right, predictions.probs.max(1)), abs=1e-9)
    assert aurc(predictions) == pytest.approx(1 - au_arc(predictions))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [drawn, coarse])
def test_augrc_equals_its_closed_form(seed, make):
    predictions = make(seed, rows=150)
    accuracy = correct(predictions).mean()
    area = roc_auc_score(~correct(predictions), np.float32(1.0 - predictions.probs.max(axis=1)))
    wanted = (1 - area) * accuracy * (1 - accuracy) + 0.5 * (1 - accuracy) ** 2
    assert augrc(predictions) == pytest.approx(wanted, abs=1e-9)
    assert misclassification_auroc(predictions) == pytest.approx(area, abs=1e-9)
    wanted = average_precision_score(~correct(predictions), np.float32(1.0 - predictions.probs.max(axis=1)))
    assert misclassification_aupr(predictions) == pytest.approx(wanted, abs=1e-9)


def test_e_aurc_is_zero_for_the_ideal_order_and_for_no_errors():
    ideal = of_probs([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], [0, 0, 0])
    assert e_aurc(ideal) == pytest.approx(0.0, abs=1e-12)
    assert aurc(ideal) == pytest.approx((0 + 0 + 1 / 3) / 3)
    assert e_aurc(of_probs([[0.9, 0.1]], [0])) == 0.0
    worst = of_probs([[0.4, 0.6], [0.45, 0.55]], [0, 1])
    assert e_aurc(worst) == pytest.approx((1 + 0.5) / 2 - (0 + 0.5) / 2)


def test_rejection_curve_goes_by_number_and_one_row_is_enough():
    curve = rejection_curve(of_probs([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], [0, 0, 0]))
    assert curve.rejected.tolist() == [0, 1, 2]
    assert curve.accuracy == pytest.approx([2 / 3, 1, 1])
    assert curve.coverage == pytest.approx([1, 2 / 3, 1 / 3])
    single = of_probs([[0.9, 0.1]], [1])
    assert aurc(single) == 1.0
    assert augrc(single) == 0.5
    assert np.isnan(misclassification_auroc(single))


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_row_order_never_matters(seed):
    predictions = coarse(seed, samples=2)
    mixed = predictions.take(np.random.default_rng(seed + 1).permutation(len(predictions)))
    for quantity in ("confidence", "predictive_entropy", "mutual_information"):
        for area in (aurc, e_aurc, augrc):
            assert area(predictions, quantity=quantity) == pytest.approx(area(mixed, quantity=quantity), abs=1e-12)


def test_a_monotone_change_of_confidence_changes_nothing():
    predictions = drawn(2, samples=1)
    cooled = predictions.__class__(predictions.logits, predictions.labels, temperature=3.0)
    binary = drawn(3, classes=2, samples=1)
    tempered = binary.__class__(binary.logits, binary.labels, temperature=3.0)
    assert aurc(tempered) == pytest.approx(aurc(binary))
    assert correct(cooled).tolist() == correct(predictions).tolist()


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
        with pytest.raises(UserError, match="undefined"):
            retained_roc(predictions, fraction=0.5, quantity="predictive_entropy")
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
