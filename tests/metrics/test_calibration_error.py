from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from dubio.core.errors import UserError
from dubio.core.weights import Weights
from dubio.metrics.calibration_error import (
    Gaps,
    MassBins,
    ace,
    classwise_ece,
    ece,
    ece_adaptive,
    ece_pooled,
    ece_smooth,
    smooth_error,
    smoothed_gaps,
    stated_and_true,
    tace,
    width_bins,
)
from dubio.metrics.metric import all_metrics
from tests.metrics.helpers import coarse, drawn, drawn_multilabel, of_probs, plain_tace, seeds


@pytest.mark.parametrize("bins", [1, 10, 15, 100])
@pytest.mark.parametrize("seed", range(3))
def test_ece_equals_torchmetrics(seed, bins):
    predictions = drawn(seed, rows=500, samples=2)
    probs = torch.tensor(predictions.probs)
    theirs = multiclass_calibration_error(
        probs, torch.tensor(predictions.labels), num_classes=4, n_bins=bins, norm="l1"
    )
    assert ece(predictions, bins=bins) == pytest.approx(float(theirs), abs=1e-6)


def test_classwise_and_multilabel_ece_equal_torchmetrics_per_column():
    predictions = drawn(1, rows=400)
    parts = [
        float(
            binary_calibration_error(
                torch.tensor(predictions.probs[:, k]), torch.tensor((predictions.labels == k) * 1), n_bins=15
            )
        )
        for k in range(4)
    ]
    assert classwise_ece(predictions) == pytest.approx(np.mean(parts), abs=1e-6)
    several = drawn_multilabel(2, rows=400)
    stated, truth = torch.tensor(several.probs), torch.tensor(several.labels)
    parts = [float(binary_calibration_error(stated[:, k], truth[:, k], n_bins=15)) for k in range(4)]
    assert ece(several) == pytest.approx(np.mean(parts), abs=1e-6)
    pooled = float(binary_calibration_error(stated.flatten(), truth.flatten(), n_bins=15))
    assert ece_pooled(several) == pytest.approx(pooled, abs=1e-6)


def test_bins_are_closed_on_the_right_even_after_a_round_trip_through_float32_logarithms():
    # 0.6 = 9/15 and 0.8 = 12/15 lie on edges: each belongs to the bin below it.
    predictions = of_probs([[0.6, 0.4], [0.8, 0.2], [0.61, 0.39], [1.0, 0.0]], [0, 0, 1, 0])
    stated, truth = stated_and_true(predictions)
    assert width_bins(stated, 15).tolist() == [8, 11, 9, 14]
    assert stated == pytest.approx([0.6, 0.8, 0.61, 1.0])
    assert truth.tolist() == [1, 1, 0, 1]
    assert Gaps.of(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 15).error(Weights.once(2)) == 0.0


def test_calibration_error_by_hand():
    predictions = of_probs([[0.7, 0.3], [0.7, 0.3], [0.9, 0.1], [0.9, 0.1]], [0, 1, 0, 0])
    assert ece(predictions, bins=10) == pytest.approx(0.5 * 0.2 + 0.5 * 0.1, abs=1e-6)
    assert ece(predictions, bins=1) == pytest.approx(abs(0.75 - 0.8), abs=1e-6)
    assert ece_adaptive(predictions, bins=2) == pytest.approx(0.15, abs=1e-6)


def brute_mass(stated, truth, bins):
    """Average over tied rows by giving each the mean truth of its ties, then cut the sorted rows into equal parts."""
    stated, truth = np.asarray(stated), np.asarray(truth, dtype=float)
    shared = np.array([truth[np.abs(stated - s) < 1e-9].mean() for s in stated])
    order = np.argsort(stated, kind="stable")
    used = min(bins, len(stated))
    cuts = [(b * len(stated)) // used for b in range(used + 1)]
    parts = [order[a:b] for a, b in pairwise(cuts)]
    return sum(len(p) * abs(shared[p].mean() - stated[p].mean()) for p in parts) / len(stated)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_equal_mass_error_equals_brute_force_with_ties(seed):
    rng = np.random.default_rng(seed)
    stated = rng.integers(1, 8, 37) / 8
    truth = (rng.random(37) < stated).astype(float)
    for bins in (5, 100):
        found = MassBins.of(stated, truth).error(bins, Weights.once(37))
        assert found == pytest.approx([brute_mass(stated, truth, bins)], abs=1e-7)


def test_tace_equals_the_published_weights_and_is_defined_for_few_survivors():
    predictions = drawn(5, rows=300, scale=4)
    n, k = predictions.probs.shape
    total = 0.0
    for c in range(k):
        kept = predictions.probs[:, c] > 1e-3
        stated, truth = predictions.probs[kept, c], predictions.labels[kept] == c
        total += brute_mass(stated, truth, 15) * kept.sum() / (n * k)
    assert tace(predictions) == pytest.approx(total, abs=1e-7)
    assert tace(predictions, threshold=0.0) == pytest.approx(ace(predictions))
    assert tace(of_probs([[1.0, 0.0]], [0]), threshold=0.5) == 0.0
    assert tace(of_probs([[0.9, 0.1]], [0]), threshold=0.95) == 0.0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("threshold", "bins"), [(0.0, 15), (1e-3, 10), (1e-2, 20), (0.1, 3)])
def test_tace_equals_a_plain_loop(seed, threshold, bins):
    predictions = drawn(seed)
    expected = plain_tace(predictions.probs, predictions.labels, threshold, bins)
    assert tace(predictions, threshold=threshold, bins=bins) == pytest.approx(expected, abs=1e-12)


def kernel_brute(stated, truth, sigma, points=2001):
    grid = (np.arange(points) + 0.5) / points
    total = np.zeros(points)
    for s, y in zip(stated, truth, strict=True):
        for image in range(-3, 4):
            for centre in (2 * image + s, 2 * image - s):
                total += (y - s) * np.exp(-0.5 * ((grid - centre) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    return np.abs(total).mean() / len(stated)


def test_smooth_error_equals_the_reflected_gaussian_by_quadrature():
    rng = np.random.default_rng(0)
    stated = rng.random(40)
    truth = (rng.random(40) < stated**2).astype(float)
    smece = smoothed_gaps(stated, truth, Weights.once(40))
    for sigma in (0.03, 0.1, 0.4):
        assert smece(np.array([sigma])) == pytest.approx([kernel_brute(stated, truth, sigma)], abs=2e-4)
    fixed = smooth_error(stated, truth, Weights.once(40))
    assert smece(fixed) == pytest.approx(fixed, abs=1e-6)


def test_smooth_error_of_calibrated_and_of_always_wrong():
    half = np.full(1000, 0.5)
    assert smooth_error(half, np.tile([0.0, 1.0], 500), Weights.once(1000)) < 1e-6
    assert smooth_error(np.ones(10), np.zeros(10), Weights.once(10)) == pytest.approx([1.0], abs=1e-6)
    assert 0 <= ece_smooth(drawn_multilabel(0)) <= 1


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_row_order_never_matters_with_ties(seed):
    predictions = coarse(seed)
    mixed = predictions.take(np.random.default_rng(seed + 1).permutation(len(predictions)))
    for error in (ece, ece_adaptive, classwise_ece, ace, tace, ece_smooth):
        assert error(predictions) == pytest.approx(error(mixed), abs=1e-12)


def test_none_of_them_ranks_and_each_says_why():
    errors = [m for m in all_metrics() if "ece" in m.name or m.name in ("sce", "ace", "tace")]
    assert len(errors) >= 8
    assert all(not m.comparable and m.why_not.endswith(".") for m in errors)


def test_bins_below_one_are_refused():
    with pytest.raises(UserError, match="1 to 10,000; given 0"):
        ece(drawn(0), bins=0)
    with pytest.raises(UserError, match="1 to 10,000; given 10001"):
        ece_adaptive(drawn(0), bins=10_001)
    assert 0 < ece(drawn(0), bins=1) < ece(drawn(0), bins=10_000) <= 1


def test_only_what_is_above_the_threshold_counts():
    bins = MassBins.of(np.array([0.5, 0.2, 0.1]), np.array([1.0, 0.0, 0.0]), 0.2)
    assert bins.rows.tolist() == [0]
    assert MassBins.of(np.array([0.5, 0.0]), np.array([1.0, 0.0])).rows.tolist() == [1, 0]  # all, unless one is given


def test_the_smooth_error_of_several_labels_is_the_mean_of_theirs():
    several = drawn_multilabel(1)
    own = [smooth_error(several.probs[:, k], several.labels[:, k], Weights.once(len(several)))[0]
           for k in range(several.class_count)]  # fmt: skip
    assert ece_smooth(several) == pytest.approx(np.mean(own))
