"""Reliability diagrams against scikit-learn, and consistency bands against simulations of calibrated classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression

from dubio.calibration.reliability import GRID, LEVEL, REPLICATES, Cells, binary_or_top_label, binned, corp, pooled
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.calibration_error import ece, stated_and_true


def calibrated(seed: int, rows: int = 3000) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    stated = rng.beta(4, 1.5, rows)
    return stated, (rng.random(rows) < stated).astype(float)


def test_bins_are_scikit_learns_and_sum_to_the_expected_calibration_error() -> None:
    stated, truth = calibrated(0)
    diagram = binned(stated, truth, bins=10)
    observed, mean = calibration_curve(truth, stated, n_bins=10)
    filled = diagram.count > 0
    np.testing.assert_allclose(diagram.observed[filled], observed)
    np.testing.assert_allclose(diagram.stated[filled], mean)
    logits = np.log(np.stack([1 - stated, stated], axis=1))[None].astype(np.float32)
    predictions = Predictions(logits, truth.astype(np.int64))
    top = binned(*stated_and_true(predictions))
    gaps = np.nansum(top.count * abs(top.observed - top.stated)) / len(truth)
    assert gaps == pytest.approx(ece(predictions), abs=1e-9)
    assert np.isnan([top.stated[0], top.observed[0], top.low[0], top.high[0]]).all()  # of two classes, at least 1/2


def test_corp_is_scikit_learns_isotonic_regression() -> None:
    rng = np.random.default_rng(1)
    stated = rng.integers(60, 260, 4000) / 300  # on the cells: nothing moves
    truth = (rng.random(4000) < stated**2).astype(float)
    diagram = corp(stated, truth)
    reference = IsotonicRegression(out_of_bounds="clip").fit(stated, truth)
    inside = diagram.count > 0
    np.testing.assert_allclose(diagram.observed[inside], reference.predict(GRID[inside]), atol=1e-6)
    assert GRID[inside].min() == pytest.approx(0.2)
    assert GRID[inside].max() == pytest.approx(0.88)  # the highest lies between two points
    assert (np.diff(diagram.observed[inside]) >= 0).all()
    assert np.isnan(diagram.low[~inside]).all()


def test_rows_of_one_cell_move_corp_by_little() -> None:
    stated, truth = calibrated(2)
    reference = IsotonicRegression(out_of_bounds="clip").fit(stated, truth)
    diagram = corp(stated, truth)
    common = GRID > 0.4  # below there are few rows, and jumps between them that are steep
    assert np.abs(diagram.observed - reference.predict(GRID))[common].mean() < 0.01


@pytest.mark.parametrize("diagram", [binned, corp])
def test_a_calibrated_classifier_lies_within_its_band_as_often_as_the_level_says(diagram) -> None:  # type: ignore[no-untyped-def]
    within: list[NDArray[np.bool_]] = []
    for seed in range(60):
        result = diagram(*calibrated(seed), seed=seed)
        common = result.stated > 0.5  # of the others there are few rows, and their shares are discrete
        within.append(((result.low <= result.observed) & (result.observed <= result.high))[common & (result.count > 0)])
    assert np.concatenate(within).mean() == pytest.approx(LEVEL, abs=0.03)


def test_an_overconfident_classifier_lies_below_its_band() -> None:
    stated, _ = calibrated(3)
    truth = (np.random.default_rng(3).random(len(stated)) < stated - 0.2).astype(float)
    for diagram in (binned(stated, truth), corp(stated, truth)):
        common = (diagram.stated > 0.6) & (diagram.count > 0)
        assert (diagram.observed < diagram.low)[common].all()


def test_bands_narrow_as_the_square_root_of_the_rows() -> None:
    widths = []
    for rows in (2000, 32000):
        diagram = binned(np.full(rows, 0.7), np.zeros(rows))
        (width,) = (diagram.high - diagram.low)[diagram.count > 0]
        widths.append(width)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.25)
    assert widths[0] == pytest.approx(2 * 1.645 * np.sqrt(0.7 * 0.3 / 2000), rel=0.2)


def test_draws_depend_on_the_seed_alone() -> None:
    cells = Cells.of(*calibrated(4), 300)
    assert cells.resampled(7).shape == (REPLICATES, len(cells.count))
    assert (cells.resampled(7) == cells.resampled(7)).all()
    assert (cells.resampled(7) != cells.resampled(8)).any()
    assert cells.resampled(7).mean(axis=0) == pytest.approx(cells.stated, abs=0.2)


def test_runs_together_have_the_bins_of_all_rows_and_the_band_of_one_run() -> None:
    runs = [calibrated(seed, 500) for seed in (5, 6)]
    together = pooled([binned(*run) for run in runs])
    expected = binned(*(np.concatenate(side) for side in zip(*runs, strict=True)))
    np.testing.assert_allclose(together.count, expected.count)
    np.testing.assert_allclose(together.observed, expected.observed)
    np.testing.assert_allclose(together.stated, expected.stated)
    once, twice = pooled([binned(*runs[0])]), pooled([binned(*runs[0])] * 2)
    np.testing.assert_allclose(twice.low, once.low)
    np.testing.assert_allclose(twice.high, once.high)


def test_two_classes_state_the_second_and_three_the_most_probable() -> None:
    probs = np.array([[0.8, 0.2], [0.3, 0.7]])
    stated, truth = binary_or_top_label(Predictions(np.log(probs)[None].astype(np.float32), np.array([1, 1])))
    assert stated == pytest.approx([0.2, 0.7])
    assert truth.tolist() == [1, 1]
    three = Predictions(np.log([[[0.5, 0.2, 0.3]]]).astype(np.float32), np.array([2]))
    stated, truth = binary_or_top_label(three)
    assert (stated[0], truth[0]) == (pytest.approx(0.5), 0)
