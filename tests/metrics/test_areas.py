"""Weighted metrics against scikit-learn, plain loops over repeated rows, and the metric of those rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pointbiserialr
from sklearn.metrics import average_precision_score, roc_auc_score

from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.metrics.areas import (
    auroc,
    correlation,
    correlations,
    excess_risk_area,
    fpr_at_tpr,
    generalised_risk_area,
    precision_area,
    risk_area,
    roc_area,
)
from dubio.metrics.calibration_error import Gaps, MassBins
from dubio.metrics.metric import metric_named
from dubio.metrics.ranking import Marked, PrefixSums, ordered
from dubio.statistics.bootstrap import bootstrap, mean_statistic, metric_statistic, replicate, units_of
from tests.metrics.test_calibration_error import brute_mass

FORMS = (
    "aurc",
    "au_arc",
    "e_aurc",
    "augrc",
    "misclassification_auroc",
    "misclassification_aupr",
    "ood_auroc",
    "ood_aupr",
    "id_aupr",
    "class_auroc",
    "ece",
    "ece(bins=4)",
    "ece_adaptive",
    "ece_adaptive(bins=200)",
    "classwise_ece",
    "sce(bins=3)",
    "ace",
    "ace(bins=7)",
    "tace",
    "tace(threshold=0.4)",
    "tace(bins=2)",
    "ece_smooth",
    "referral_gain",
    "referral_accuracy",
    "referral_accuracy(retained=0.55)",
    "referral_auc",
    "sensitivity_at_specificity",
    "sensitivity_at_specificity(specificity=0.5, retained=0.7)",
    "specificity_at_sensitivity",
    'specificity_at_sensitivity(retained=0.6, quantity="predictive_entropy")',
    "ood_fpr95",
    "ood_correlation",
    "generalisation_gap",
    "macro_f1",
    "accuracy",
    "nll",
    "brier",
    'aurc(quantity="predictive_entropy")',
    'ood_auroc(quantity="mutual_information")',
)


@st.composite
def problems(draw):
    """Scores from few levels or many, marks, and weights of several replicates, some rows without any."""
    count = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    levels = draw(st.sampled_from([1, 2, 5, 1000]))
    scores = rng.integers(0, levels, count) / 7.0
    marks = rng.random(count) < draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    weights = rng.multinomial(count, rng.dirichlet(np.full(count, 0.5)), size=4)
    return scores, marks, weights


def repeated(row, *columns):
    return tuple(np.repeat(column, row) for column in columns)


def kept_errors(scores, wrong):
    """e(k) by hand: a row of a block of ties that straddles k is kept in part."""
    return [
        sum(
            wrong[scores < level].sum() + wrong[scores == level].mean() * (k - (scores < level).sum())
            for level in np.unique(scores)
            if (scores < level).sum() < k <= (scores <= level).sum()
        )
        for k in range(1, len(scores) + 1)
    ]


@settings(max_examples=60, deadline=None)
@given(problems())
def test_areas_of_roc_and_precision_are_those_of_scikit_learn(problem):
    scores, positive, weights = problem
    areas = roc_area(Marked.fewer(scores, positive), Weights.of(weights))
    precisions = precision_area(Marked(ordered(-scores), positive), Weights.of(weights))
    for row, area, precision in zip(weights, areas, precisions, strict=True):
        drawn_scores, drawn = repeated(row, scores, positive)
        if drawn.all() or not drawn.any():
            assert np.isnan(area)
            assert np.isnan(precision)
            continue
        assert area == pytest.approx(roc_auc_score(drawn, drawn_scores), abs=1e-12)
        assert area == pytest.approx(roc_auc_score(positive, scores, sample_weight=row), abs=1e-12)
        assert precision == pytest.approx(average_precision_score(drawn, drawn_scores), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_risk_areas_are_those_of_plain_loops(problem):
    scores, wrong, weights = problem
    marked = Marked.fewer(scores, wrong)
    areas = [area(marked, Weights.of(weights)) for area in (risk_area, excess_risk_area, generalised_risk_area)]
    for row, aurc, excess, augrc in zip(weights, *areas, strict=True):
        drawn_scores, drawn = repeated(row, scores, wrong)
        n, kept = len(drawn), np.arange(1, len(drawn) + 1)
        errors = np.array(kept_errors(drawn_scores, drawn))
        ideal = np.maximum(0, kept - (n - drawn.sum()))
        assert aurc == pytest.approx(np.mean(errors / kept), abs=1e-12)
        assert excess == pytest.approx(max(0.0, np.mean((errors - ideal) / kept)), abs=1e-12)
        assert augrc == pytest.approx(np.trapezoid(np.append(0.0, errors), dx=1.0) / n**2, abs=1e-12)


def brute_widths(stated, truth, bins):
    """Rows in right-closed bins of equal width, values within 5e-7 of an edge on it."""
    edges = np.arange(1, bins) / bins
    which = np.array([(value - 5e-7 > edges).sum() for value in stated])
    return sum(abs((truth - stated)[which == b].sum()) for b in range(bins)) / len(stated)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 60))
def test_bins_are_those_of_repeated_rows(problem, bins):
    scores, truth, weights = problem
    stated = scores / max(scores.max(), 1.0)
    widths = Gaps.of(stated, truth.astype(float), bins).error(Weights.of(weights))
    masses = MassBins.of(stated, truth.astype(float)).error(bins, Weights.of(weights))
    above = MassBins.of(stated, truth.astype(float), 0.4).error(bins, Weights.of(weights))
    for row, *found in zip(weights, widths, masses, above, strict=True):
        drawn_stated, drawn = repeated(row, stated, truth.astype(float))
        kept = drawn_stated > 0.4
        expected = (
            brute_widths(drawn_stated, drawn, bins),
            brute_mass(drawn_stated, drawn, bins),
            brute_mass(drawn_stated[kept], drawn[kept], bins) * kept.mean() if kept.any() else 0.0,
        )
        assert found == pytest.approx(expected, abs=1e-12)


def test_bins_of_equal_mass_by_hand():
    """Rows 0.1 ×3, 0.3 ×0, 0.5 ×2, 0.9 ×1 in three bins of two: the first bin ends within the first row."""
    stated, truth = np.array([0.1, 0.3, 0.5, 0.9]), np.array([1.0, 0.0, 0.0, 1.0])
    found = MassBins.of(stated, truth).error(3, Weights.of(np.array([[3, 0, 2, 1]])))
    assert found[0] == pytest.approx((abs(0.9 + 0.9) + abs(0.9 - 0.5) + abs(-0.5 + 0.1)) / 6)


def made(rows, coarse=False, classes=3, **more):
    rng = np.random.default_rng(rows)
    logits = rng.normal(size=(2, rows, classes)) * 2
    if coarse:
        logits = np.repeat(np.round(logits)[:1], 2, axis=0) + np.array([0.0, 1.0])[:, None, None]
    return Predictions(logits.astype(np.float32), rng.integers(0, classes, rows), ood=np.arange(rows) % 3 == 0, **more)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("coarse", [False, True])
def test_forms_are_the_metric_on_repeated_rows_also_of_groups(name, coarse):
    groups = np.array([f"g{index % 23 if index < 40 else 99}" for index in range(70)])  # one group of thirty
    predictions, metric = made(70, coarse, group=groups), metric_named(name)
    for weights in units_of(predictions).weights(12, 3):
        assert weights.totals.max() > 70  # a replicate may have more rows than there are
        expected = [metric.compute(predictions.take(rows)) for rows in weights.replicates()]
        np.testing.assert_allclose(metric.weighted(predictions, weights), expected, atol=1e-12)


MANY = (
    "accuracy", "nll", "brier", "micro_f1", "macro_f1", "ece_smooth", "referral_auc", "ece", "ece_pooled",
    "ece_adaptive", "classwise_ece", "ace", "tace", "class_auroc", "aurc",
)  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_forms_of_multi_label_predictions(name):
    rng = np.random.default_rng(2)
    predictions = Predictions(
        rng.normal(size=(1, 40, 3)).astype(np.float32), rng.integers(0, 2, (40, 3)), target="multilabel"
    )
    metric = metric_named(name)
    weights = Weights.of(rng.multinomial(40, np.full(40, 1 / 40), size=6))
    expected = [metric.compute(predictions.take(rows)) for rows in weights.replicates()]
    np.testing.assert_allclose(metric.weighted(predictions, weights), expected, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 17, 100, 1023])
def test_prefix_sums(count):
    rng = np.random.default_rng(count)
    order, counts = rng.permutation(count), rng.integers(0, 9, (count, 3)).astype(np.uint8)
    for replicates in (1, 3):
        layout = PrefixSums(order, replicates=replicates)
        slots = layout.slots(np.arange(count))
        for weights, kind in (
            (Weights(counts[:, :replicates]), np.int32),
            (Weights(counts[:, :replicates].astype(np.uint64) * (1 << 30)), np.int64),
            (Weights(counts[:, :replicates] / 2), np.float64),
        ):
            found = layout.weights(weights)
            assert found.dtype == kind or weights.counts.max() == 0
            np.testing.assert_array_equal(found[slots], np.cumsum(weights.counts[order].astype(found.dtype), axis=0))
    marked = Marked(ordered(np.zeros(count)), np.zeros(count, dtype=bool))
    assert marked.beside(Weights(counts))[0].shape == (0, 3)


def test_infinite_contributions_of_both_signs_have_no_mean():
    """Whichever was drawn more often: inf − inf is no number."""
    form = mean_statistic(np.array([np.inf, -np.inf, 1.0]))
    found = form(Weights.of(np.array([[2, 1, 0], [1, 1, 1], [0, 2, 1], [3, 0, 0], [0, 0, 3]])))
    np.testing.assert_array_equal(found, [np.nan, np.nan, -np.inf, np.inf, 1.0])


def test_rows_of_one_kind_are_refused_by_name_or_undefined():
    plain = Predictions(made(9).logits, made(9).labels)
    with pytest.raises(Exception, match="ood_auroc cannot be computed"):
        bootstrap({"a": metric_named("ood_auroc")}, plain, replicates=5)


def test_statistics_share_their_replicates_whatever_their_way():
    """A metric computed again on every replicate and its weighted values see the same rows."""
    predictions = made(50)
    metric = metric_named("ece_adaptive")
    ways = {
        "weights": metric_statistic(metric, predictions),
        "rows": lambda weights: np.array([metric.compute(predictions.take(rows)) for rows in weights.replicates()]),
    }
    draws = replicate(ways, units_of(predictions), replicates=40, seed=2)
    np.testing.assert_allclose(draws["weights"], draws["rows"], atol=1e-12)


def test_areas_are_undefined_where_a_side_has_no_weight():
    predictions = Predictions(made(6).logits, made(6).labels, ood=np.arange(6) < 3)
    weights = Weights.of(np.array([[2, 2, 2, 0, 0, 0], [0, 0, 0, 1, 2, 3], [1, 1, 1, 1, 1, 1]]))
    for name in ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95"):
        assert np.isnan(metric_named(name).weighted(predictions, weights)).tolist() == [True, True, False]
    labels = np.array([0, 0, 1, 1, 2, 2])
    found = metric_named("class_auroc").weighted(Predictions(predictions.logits, labels), weights)
    assert np.isnan(found).tolist() == [True, True, False]


def test_grades_weighted_and_repeated():
    rng = np.random.default_rng(4)
    predictions = Predictions(rng.normal(size=(1, 50, 4)).astype(np.float32), rng.integers(0, 4, 50), target="ordinal")
    weights = Weights.of(rng.multinomial(50, np.full(50, 1 / 50), size=6))
    for name in ("quadratic_kappa", "rps", "auc_from_grade", "referral_auc(retained=0.7)"):
        metric = metric_named(name)
        expected = [metric.compute(predictions.take(rows)) for rows in weights.replicates()]
        np.testing.assert_allclose(metric.weighted(predictions, weights), expected, atol=1e-12)


def test_scores_of_any_size_are_told_apart_unless_a_unit_is_given():
    tiny, flags = np.array([1e-9, 2e-9, 3e-9, 4e-9]), np.array([False, True, False, True])
    assert auroc(tiny, flags) == roc_auc_score(flags, tiny) == 0.75
    assert auroc(tiny, flags, unit=1.0) == 0.5


def test_the_false_positive_rate_is_at_95_per_cent_unless_another_level_is_given():
    scores, flags = np.arange(40.0), np.arange(40) % 2 == 0
    # 19 of 20 positives score at least 2; of the 20 negatives all but the one that scores 1
    assert fpr_at_tpr(scores, flags) == fpr_at_tpr(scores, flags, 0.95) == 0.95
    assert fpr_at_tpr(scores, flags, 0.5) == 0.5


def test_a_correlation_depends_on_no_shift_and_is_undefined_where_only_rounding_varies():
    rng = np.random.default_rng(1)
    flags = rng.random(60) < 0.4
    scores = rng.normal(size=60) + flags
    for shift in (0.0, 1e6, -1e6):
        expected = pointbiserialr(flags, scores).statistic
        assert correlation(scores + shift, flags) == pytest.approx(expected, abs=1e-7)
    assert np.isnan(correlation(np.array([0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3]), np.array([True, False, True, False])))
    assert correlation(np.array([0.0, 1.0, 0.0]), np.array([False, True, False])) == pytest.approx(1.0)
    one, two = np.array([-1.0, 0.0, 1.0]), np.array([False, False, True])
    for scale in (1e-200, 1.0, 1e150):  # squares of squares would leave the range of a double
        assert correlation(scale * one, two) == pytest.approx(pointbiserialr(two, one).statistic)


def test_a_replicate_without_the_extreme_score_has_its_own_correlation():
    scores, flags = np.array([0.0, 0.1, 0.2, 100.0]), np.array([False, True, True, False])
    (found,) = correlations(scores, flags, Weights.of(np.array([[1, 2, 1, 0]])))
    assert found == pytest.approx(pointbiserialr(flags[[0, 1, 1, 2]], scores[[0, 1, 1, 2]]).statistic)
