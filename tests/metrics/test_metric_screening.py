"""Screening figures against torchmetrics, plain search and the NHS point."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torchmetrics.functional import classification as tm

from dubio.core.errors import UserError
from dubio.metrics.naming import metric_named
from dubio.metrics.referral_curve import referral_curve, retained_roc
from dubio.metrics.screening import best_sensitivity, best_specificity, meets_nhs
from tests.metrics.metric_world import coarse, drawn, of_probs, seeds


def value(name, predictions):
    return metric_named(name).compute(predictions)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_binary_figures_equal_torchmetrics(seed):
    predictions = drawn(seed, rows=80, classes=2)
    given_, truth = torch.tensor(predictions.probs[:, 1]), torch.tensor(predictions.labels)
    theirs, _ = tm.binary_sensitivity_at_specificity(given_, truth, min_specificity=0.8)
    assert value("sensitivity_at_specificity", predictions) == pytest.approx(float(theirs), abs=1e-6)
    theirs, _ = tm.binary_specificity_at_sensitivity(given_, truth, min_sensitivity=0.85)
    assert value("specificity_at_sensitivity", predictions) == pytest.approx(float(theirs), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_ties_are_never_split_and_row_order_never_matters(seed):
    predictions = coarse(seed, rows=60, classes=2)
    score, truth = predictions.probs[:, 1].round(6), predictions.labels == 1
    found = max(
        (score[truth] >= t).mean() for t in (*np.unique(score), 2.0) if (score[~truth] < t).mean() >= 0.8 - 1e-12
    )
    assert value("sensitivity_at_specificity", predictions) == pytest.approx(found)
    order = np.random.default_rng(seed).permutation(60)
    assert value("sensitivity_at_specificity", predictions.take(order)) == pytest.approx(found)


def test_grades_are_screened_from_the_second_and_classes_one_by_one():
    grades = drawn(1, classes=5, target="ordinal", samples=1)
    two = of_probs(np.c_[grades.probs[:, :2].sum(1), grades.probs[:, 2:].sum(1)], (grades.labels >= 2).astype(int))
    assert value("sensitivity_at_specificity", grades) == pytest.approx(value("sensitivity_at_specificity", two))
    several = drawn(1, classes=3, samples=1)
    parts = [
        value(
            "sensitivity_at_specificity",
            of_probs(np.c_[1 - several.probs[:, k], several.probs[:, k]], (several.labels == k).astype(int)),
        )
        for k in range(3)
    ]
    assert value("sensitivity_at_specificity", several) == pytest.approx(np.mean(parts))


def test_retained_rows_alone_count():
    predictions = drawn(2, rows=200, classes=2)
    kept = np.argsort(1 - predictions.probs.max(1))[:100]
    name = "sensitivity_at_specificity(retained=0.5)"
    assert value(name, predictions) == pytest.approx(value("sensitivity_at_specificity", predictions.take(kept)))
    assert referral_curve(predictions, fractions=(0.5,)).kept[0] == 100


def test_the_nhs_point():
    labels = np.array([1] * 20 + [0] * 20)
    good = of_probs(np.c_[1 - np.r_[[0.9] * 17, [0.1] * 3, [0.8] * 4, [0.05] * 16],
                          np.r_[[0.9] * 17, [0.1] * 3, [0.8] * 4, [0.05] * 16]], labels)  # fmt: skip
    curve = retained_roc(good)
    assert best_sensitivity(curve, 0.8) == pytest.approx(1.0)
    assert meets_nhs(curve)
    assert best_specificity(curve, 0.85) == pytest.approx(1.0)
    chance = of_probs(np.full((40, 2), 0.5), labels)
    assert not meets_nhs(retained_roc(chance))
    assert value("sensitivity_at_specificity", chance) == 0.0
    assert value("specificity_at_sensitivity", chance) == 0.0


def test_undefined_and_refused():
    assert np.isnan(value("sensitivity_at_specificity(retained=0.01)", drawn(0, classes=2, rows=100)))
    with pytest.raises(UserError, match="specificity must lie between 0 and 1; given 1"):
        metric_named("sensitivity_at_specificity(specificity=1.0)")
