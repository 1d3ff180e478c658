import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import pointbiserialr
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from dubio.core.weights import Weights
from dubio.metrics.areas import auroc, average_precision, correlation, fpr_at_tpr, roc_area
from dubio.metrics.quantities import uncertainty
from dubio.metrics.ranking import Marked, ordered
from tests.metrics.helpers import of_probs, seeds


def tied_scores(seed, rows=80, levels=7):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, rows) / levels
    flags = rng.random(rows) < 0.3 + 0.4 * scores
    flags[:2] = [True, False]
    return scores, flags


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_areas_equal_scikit_learn_with_ties(seed):
    scores, flags = tied_scores(seed)
    assert auroc(scores, flags) == pytest.approx(roc_auc_score(flags, scores), abs=1e-12)
    assert average_precision(scores, flags) == pytest.approx(average_precision_score(flags, scores), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_fpr_is_the_lowest_of_scikit_learns_points_that_reach_the_level(seed):
    scores, flags = tied_scores(seed)
    fpr, tpr, _ = roc_curve(flags, scores, drop_intermediate=False)
    assert fpr_at_tpr(scores, flags) == pytest.approx(fpr[tpr >= 0.95 - 1e-12].min(), abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_weighted_auroc_equals_scikit_learn(seed):
    scores, flags = tied_scores(seed)
    weights = np.random.default_rng(seed).random(len(scores))
    assert auroc(scores, flags, weights) == pytest.approx(
        roc_auc_score(flags, scores, sample_weight=weights), abs=1e-12
    )


def test_correlation_is_signed_and_equals_scipy():
    scores, flags = tied_scores(3)
    assert correlation(scores, flags) == pytest.approx(pointbiserialr(flags, scores).statistic, abs=1e-7)
    assert correlation(-scores, flags) == pytest.approx(-correlation(scores, flags))
    assert np.isnan(correlation(np.full(5, 0.1 + 0.2), np.array([1, 0, 1, 0, 1], dtype=bool)))


@pytest.mark.parametrize("flags", [[True, True], [False, False]])
@pytest.mark.parametrize("area", [auroc, average_precision, fpr_at_tpr, correlation])
def test_one_kind_only_is_undefined_not_zero_or_one(area, flags):
    assert np.isnan(area(np.array([0.1, 0.9]), np.array(flags)))


def test_scores_equal_but_for_rounding_are_tied_and_tiny_ones_are_kept_apart():
    assert len(ordered(np.array([0.1 + 0.2, 0.3, 0.300001])).starts) == 2
    assert len(ordered(np.array([1e-300, 2e-300, 0.0, -1e-300])).starts) == 4
    assert len(ordered(np.array([np.inf, -np.inf, np.inf, 1e308, -np.inf])).starts) == 3
    assert len(ordered(np.array([1e-9, -1e-9, 0.0]), unit=1.0).starts) == 1
    assert len(ordered(np.array([0.5])).starts) == 1


def test_rows_given_the_same_confidence_are_tied_whatever_the_rest_of_their_row_is():
    rng = np.random.default_rng(0)
    thousandths = np.array([rng.multinomial(1000, p) for p in rng.dirichlet([2, 1, 1, 1], 4000)])
    predictions = of_probs(thousandths / 1000, np.zeros(4000, dtype=int))
    exact = thousandths.max(axis=1)
    assert len(ordered(uncertainty(predictions)).starts) == len(np.unique(exact))
    flags = rng.random(4000) < 0.5
    assert auroc(uncertainty(predictions), flags) == pytest.approx(roc_auc_score(flags, -exact), abs=1e-12)


def test_a_long_run_of_close_scores_is_not_one_block():
    scores = np.linspace(0.5, 0.6, 1_000_001)
    blocks = ordered(scores).sizes
    assert blocks.max() < 25
    flags = np.random.default_rng(1).random(len(scores)) < scores
    assert auroc(scores, flags) == pytest.approx(roc_auc_score(flags, scores), abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "starts"),
    [
        ([0.1, np.inf, np.inf], [0, 1]),
        ([-np.inf, -np.inf, 0.1], [0, 2]),
        ([-np.inf, 1e308, np.inf, np.inf], [0, 1, 2]),
        ([-5.0, 1e-7, 2e-7], [0, 1, 2]),  # the size of two scores decides, not that of a third
    ],
)
def test_blocks_begin_where_scores_differ(scores, starts):
    assert ordered(np.array(scores)).starts.tolist() == starts


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_run_of_close_scores_is_cut_into_pieces_of_four_steps(sign):
    run = 1.0 + 3.1e-7 * np.arange(20)  # each within a step (4e-7) of the next; a piece spans 1.6e-6
    starts = ordered(sign * np.concatenate([[0.5, 0.5], run, [2.0]])).starts.tolist()
    assert starts == ([0, 2, 8, 13, 18, 22] if sign > 0 else [0, 1, 7, 12, 17, 21])


def test_weights_beyond_32_bits_are_added_exactly():
    scores, flags = np.array([0.1, 0.2, 0.3, 0.4]), np.array([True, False, True, False])
    weights = np.array([2**30, 2**30, 2**29, 7])
    expected = roc_auc_score(flags, scores, sample_weight=weights)
    both = roc_area(Marked(ordered(scores), flags), Weights.of(np.stack([weights, np.ones(4, dtype=np.int64)])))
    np.testing.assert_allclose(both, [expected, roc_auc_score(flags, scores)], atol=1e-12)


def test_marked_rows_of_tiny_scores_are_told_apart_unless_a_unit_is_given():
    tiny, flags = np.array([1e-9, 2e-9, 3e-9]), np.array([True, False, False])
    assert len(Marked.fewer(tiny, flags).ordering.starts) == 3
    assert len(Marked.fewer(tiny, flags, unit=1.0).ordering.starts) == 1
