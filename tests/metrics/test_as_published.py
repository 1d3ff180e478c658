"""Published mistakes, against a plain transcription of what each published code or formula does."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.metrics.as_published import (
    aurc_as_published,
    doubt_of_highest,
    model_uncertainty_as_published,
    retained_shares,
    threshold_auc,
)
from dubio.metrics.detection import ood_auroc
from dubio.metrics.metric import PUBLISHED, all_metrics, metric_named
from dubio.metrics.selective import aurc
from tests.metrics.helpers import coarse, drawn, drawn_multilabel, of_probs, score, seeds


def value(name, predictions):
    return metric_named(name).compute(predictions)


def flagged(seed, rows=60):
    ood = np.random.default_rng(seed + 7).random(rows) < 0.3
    ood[:2] = True, False
    return drawn(seed, rows=rows, ood=ood)


def samples_of(predictions):
    z = predictions.logits.astype(np.float64)
    if predictions.target == "multilabel":
        return 1 / (1 + np.exp(-z))
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_none_is_ranked_or_computed_unless_named():
    names = [name for name in METRICS.names() if name.endswith(PUBLISHED)]
    assert len(names) == 11
    for name in names:
        metric = metric_named(name)
        assert not metric.comparable
        assert "mistake" in metric.why_not
        assert name.removesuffix(PUBLISHED).removeprefix("mean_") != name
    assert not [metric.name for metric in all_metrics() if PUBLISHED in metric.name]
    assert not [name for name in score(flagged(0)) if PUBLISHED in name]


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_detection_takes_the_ordinary_rows_with_an_inverted_index(seed):
    predictions = flagged(seed)
    top = predictions.probs.max(axis=1)
    unknown = np.where(predictions.ood)[0]
    known_scores, unknown_scores = top[~unknown], top[unknown]  # ~ of a whole number is −i − 1
    truth = np.r_[np.zeros(len(known_scores)), np.ones(len(unknown_scores))]
    scores = np.r_[known_scores, unknown_scores]
    assert value("ood_auroc_as_published", predictions) == pytest.approx(1 - roc_auc_score(truth, scores), abs=1e-9)
    assert value("ood_aupr_as_published", predictions) == pytest.approx(
        1 - average_precision_score(truth, scores), abs=1e-9
    )


def test_the_inverted_index_is_harmless_where_strange_rows_come_last_and_few():
    rows = 200
    ood = np.arange(rows) >= 150
    predictions = drawn(3, rows=rows, ood=ood)
    first = predictions.take(np.r_[0:50, 150:200])
    assert value("ood_auroc_as_published", predictions) == pytest.approx(ood_auroc(first), abs=1e-12)
    interleaved = predictions.take(np.random.default_rng(0).permutation(rows))
    assert ood_auroc(interleaved) == pytest.approx(ood_auroc(predictions), abs=1e-12)
    assert value("ood_auroc_as_published", interleaved) != value("ood_auroc_as_published", predictions)


@pytest.mark.parametrize("world", [flagged, lambda seed: drawn_multilabel(seed, ood=np.arange(60) % 3 == 0)])
def test_model_uncertainty_was_three_quantities(world):
    predictions = world(5)
    p = samples_of(predictions)
    wanted = {
        "dropout": np.sqrt(p.var(axis=0).sum(axis=-1)),
        "heteroscedastic": predictions.logits.astype(float).var(axis=0).mean(axis=-1),
        "ensemble": np.mean([s.var(axis=-1) + s.mean(axis=-1) ** 2 for s in p], axis=0)
        - p.mean(axis=0).mean(axis=-1) ** 2,
    }
    for kind, expected in wanted.items():
        found = model_uncertainty_as_published(predictions, kind=kind)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        name = f"mean_model_uncertainty_as_published(kind={kind})"
        assert value(name, predictions) == pytest.approx(expected.mean(), abs=1e-9)
        correlation = stats.pointbiserialr(~predictions.ood, expected).statistic
        name = f"ood_correlation_as_published(quantity=model_uncertainty, kind={kind})"
        assert value(name, predictions) == pytest.approx(abs(correlation), abs=1e-9)


def test_what_published_quantities_need_is_named():
    one_sample = drawn(0, samples=1, ood=np.arange(60) % 3 == 0, rows=60)
    with pytest.raises(UserError, match="model_uncertainty_as_published cannot be computed: it needs at least two"):
        model_uncertainty_as_published(one_sample, kind="dropout")
    with pytest.raises(UserError, match="ood_correlation_as_published cannot be computed: it needs at least two"):
        value("ood_correlation_as_published(quantity=mutual_information)", one_sample)
    logits = np.zeros((2, 3, 2), dtype=np.float32)
    logits[0, 0, 1] = -np.inf
    with pytest.raises(UserError, match="needs finite logits"):
        model_uncertainty_as_published(Predictions(logits, np.zeros(3, dtype=np.int64)), kind="heteroscedastic")


def test_of_several_labels_the_highest_probability_was_the_confidence():
    predictions = drawn_multilabel(2)
    np.testing.assert_allclose(doubt_of_highest(predictions), 1 - predictions.probs.max(axis=1), atol=1e-9)


def test_for_ensembles_it_was_sharpness_not_disagreement():
    sharp = of_probs([[[0.98, 0.01, 0.01]]] * 2, [0])
    flat = of_probs([[[1 / 3, 1 / 3, 1 / 3]]] * 2, [0])
    high, none = (model_uncertainty_as_published(each, kind="ensemble")[0] for each in (sharp, flat))
    assert high > 0.2  # although the members agree entirely
    assert none == pytest.approx(0.0, abs=1e-12)


def test_entropy_was_the_expected_entropy_and_correlations_lost_their_sign():
    predictions = flagged(2)
    p = samples_of(predictions)
    entropy = (-p * np.log(np.clip(p, 1e-12, 1))).sum(axis=-1).mean(axis=0)
    pooled = p.mean(axis=0)
    mutual = (-pooled * np.log(pooled)).sum(axis=-1) - entropy
    for name, quantity in (("entropy", entropy), ("confidence", pooled.max(-1)), ("mutual_information", mutual)):
        wanted = abs(stats.pointbiserialr(~predictions.ood, quantity).statistic)
        assert value(f"ood_correlation_as_published(quantity={name})", predictions) == pytest.approx(wanted, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_multilabel_likelihood_ignored_negatives_and_renormalised(seed):
    predictions = drawn_multilabel(seed)
    rows = predictions.probs / predictions.probs.sum(axis=1, keepdims=True)
    assert value("nll_as_published", predictions) == pytest.approx(
        log_loss(predictions.labels, rows), rel=1e-7, abs=1e-9
    )


def test_bins_classes_and_double_averages():
    predictions = drawn(4, rows=500)
    top, right = predictions.probs.max(1), predictions.probs.argmax(1) == predictions.labels
    error, edges = 0.0, np.linspace(0, 1, 101)
    for low, high in pairwise(edges):
        inside = (top > low) & (top <= high)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - top[inside].mean())
    assert value("ece_as_published", predictions) == pytest.approx(error, abs=1e-6)
    squares = ((np.eye(4)[predictions.labels] - predictions.probs) ** 2).mean(axis=1)  # 1/C Σ_c
    assert value("brier_as_published", predictions) == pytest.approx(squares.mean(), abs=1e-9)
    bins, total = 10, 0.0
    for k in range(4):
        order = np.argsort(predictions.probs[:, k])
        stated, truth = predictions.probs[order, k], predictions.labels[order] == k
        for part in np.array_split(np.flatnonzero(stated > 0.0), bins):
            total += len(part) / 500 * abs(truth[part].mean() - stated[part].mean())
    wanted = total / (4 * bins)  # the 1/(C M) before both sums of P eq. 2
    assert value(f"tace_as_published(bins={bins}, threshold=0.0)", predictions) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("rows", [1000, 1700, 2500, 5000])
def test_risk_coverage_with_the_published_step(rows):
    predictions = drawn(6, rows=rows, samples=1)
    order = np.argsort(predictions.probs.max(1))
    right = (predictions.probs.argmax(1) == predictions.labels)[order]
    step = int(rows / 1000)
    accuracies = np.array([right[start:].mean() for start in range(1, rows, step)])
    trapezoids = ((accuracies[1:] + accuracies[:-1]) / 2).sum()
    # scores alike in float32 are one block here and in the order of rows there
    assert aurc_as_published(predictions) == pytest.approx(1 - trapezoids / 1000, abs=2e-6)


def test_the_ends_of_the_published_curve_count_half():
    top = np.linspace(0.55, 0.95, 1000)
    labels = (np.random.default_rng(0).random(1000) < 0.3).astype(int)
    labels[:2] = 1, 0  # the first two accuracies differ
    predictions = of_probs(np.stack([top, 1 - top], axis=1), labels)
    accuracies = np.array([np.mean(labels[start:] == 0) for start in range(1, 1000)])
    expected = 1 - np.trapezoid(accuracies) / 1000
    assert aurc_as_published(predictions) == pytest.approx(expected, abs=1e-12)


def test_risk_coverage_as_published_means_something_only_near_whole_thousands():
    assert aurc_as_published(drawn(6, rows=5000)) == pytest.approx(aurc(drawn(6, rows=5000)), abs=2e-3)
    assert aurc_as_published(drawn(6, rows=1700)) < 0  # 1,699 steps counted as 1,000
    with pytest.raises(UserError, match="at least 1000 rows; given 999"):
        aurc_as_published(drawn(6, rows=999))


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_referral_counted_the_smaller_fractions_too(seed):
    """``BinaryAccuracy`` of Keras 2.6 adds the mean of a vector that it is called with, as one value."""
    predictions = drawn(seed, rows=53, classes=2, samples=1)
    p, y = predictions.probs[:, 1], predictions.labels
    doubt = np.minimum(p, 1 - p)
    seen_p, seen_y, accuracies = [], [], []
    for fraction in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        kept = np.argsort(doubt)[: int(53 * fraction)]
        seen_p.extend(p[kept])  # the metric was not reset: what was seen stays
        seen_y.extend(y[kept])
        pooled_p, pooled_y = np.array(seen_p), np.array(seen_y)
        accuracies.append(((p[kept] > 0.5) == y[kept]).mean())
        accuracy = sum(accuracies) / len(accuracies)
        assert value(f"referral_accuracy_as_published(retained={fraction})", predictions) == pytest.approx(accuracy)
        thresholds = np.r_[-1e-7, np.arange(1, 199) / 199, 1 + 1e-7]
        tpr = np.array([(pooled_p[pooled_y == 1] > t).mean() if pooled_y.any() else 0.0 for t in thresholds])
        fpr = np.array([(pooled_p[pooled_y == 0] > t).mean() if not pooled_y.all() else 0.0 for t in thresholds])
        area = ((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:]) / 2).sum()
        assert value(f"referral_auc_as_published(retained={fraction})", predictions) == pytest.approx(area, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_area_over_thresholds_equals_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    scores = np.concatenate(
        [rng.integers(0, 200, 400) / 199, rng.random(400), [0.0, 0.0, 1.0, 1.0]]
    )  # on the thresholds, too
    positive, weights = rng.random(804) < 0.5, rng.integers(0, 3, 804).astype(float)
    thresholds = [-1e-7, *(k / 199 for k in range(1, 199)), 1 + 1e-7]
    rates = []
    for side in (positive, ~positive):
        total = weights[side].sum()
        rates.append(
            [sum(w for w, s in zip(weights[side], scores[side], strict=True) if s > t) / total for t in thresholds]
        )
    expected = sum(
        (f[0] - f[1]) * (t[0] + t[1]) / 2 for t, f in zip(pairwise(rates[0]), pairwise(rates[1]), strict=True)
    )
    assert threshold_auc(scores, positive, weights) == pytest.approx(expected)


def test_published_referral_of_two_classes_is_of_the_second_also_where_they_are_ordered():
    for target in ("multiclass", "ordinal"):
        two = drawn(3, classes=2, target=target)
        weights = np.sum(retained_shares(two, quantity="confidence", retained=0.8, name="x"), axis=0)
        expected = threshold_auc(two.probs[:, 1], two.labels == 1, weights)
        assert value("referral_auc_as_published", two) == pytest.approx(expected, abs=1e-12)


def test_tied_rows_were_retained_in_equal_parts():
    tied = of_probs([[0.7, 0.3]] * 10, [0] * 10)
    for retained, share in ((0.5, 0.5), (0.6, 0.5 + 0.6), (0.7, 0.5 + 0.6 + 0.7)):
        weights = np.sum(retained_shares(tied, quantity="confidence", retained=retained, name="x"), axis=0)
        np.testing.assert_allclose(weights, np.full(10, share))


def test_published_referral_refuses_what_it_cannot_do():
    with pytest.raises(UserError, match=r"one of 0\.5, .* 1\.0; given 0\.55"):
        value("referral_auc_as_published(retained=0.55)", drawn(0, classes=2))
    with pytest.raises(UserError, match="of 1 rows none is retained"):
        value("referral_auc_as_published", drawn(0, classes=2, rows=1))
    one = np.ones(3)
    assert threshold_auc(np.array([0.2, 0.5, 0.9]), np.array([True] * 3), one) == 0.0


def test_published_referral_of_more_classes_and_of_grades():
    grades = drawn(0, classes=5, target="ordinal", samples=1)
    halves = of_probs(np.c_[grades.probs[:, :2].sum(1), grades.probs[:, 2:].sum(1)], grades.labels >= 2)
    everything = np.full(60, 6.0)
    whole = threshold_auc(halves.probs[:, 1], grades.labels >= 2, everything)
    # random referral keeps no row by its confidence, which the two differ in
    name = "referral_auc_as_published(quantity=random, retained=1.0)"
    assert value(name, grades) == pytest.approx(value(name, halves), abs=1e-6)
    assert value(name, grades) == pytest.approx(whole, abs=0.1)
    several = coarse(0)
    assert 0 <= value("referral_auc_as_published", several) <= 1
    assert 0 <= value("referral_accuracy_as_published", several) <= 1
