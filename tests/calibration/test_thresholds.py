"""Thresholds per label, against trying every cut there is; the metrics at them against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from dubio.calibration.thresholds import TUNED, asserted, fit_thresholds, metrics_at
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions


def multilabel(probs, labels) -> Predictions:
    clipped = np.clip(np.asarray(probs, dtype=np.float64), 1e-6, 1 - 1e-6)
    logits = np.log(clipped / (1 - clipped)).astype(np.float32)
    return Predictions(logits[None], np.asarray(labels), target="multilabel")


def f1(said, truth) -> float:
    total = said.sum() + truth.sum()
    return 2 * (said & truth).sum() / total if total else 0.0


rows = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_no_cut_has_a_better_f1(pairs):
    """Few distinct probabilities, so that ties abound."""
    probs = np.array([(step + 1) / 14 for step, _ in pairs])[:, None]
    truth = np.array([label for _, label in pairs])[:, None]
    predictions = multilabel(probs, truth.astype(int))
    found = fit_thresholds(predictions, least=1)
    if not truth.any():
        assert found.tolist() == [0.5]
        return
    reached = f1(asserted(predictions, found), truth)
    exact = predictions.probs
    tried = [f1(exact > cut, truth) for cut in (*np.unique(exact), -1.0)]
    assert reached == pytest.approx(max(tried))


def test_every_label_has_its_own():
    probs = [[0.9, 0.2], [0.8, 0.1], [0.3, 0.05], [0.2, 0.01]]
    labels = [[1, 1], [0, 1], [0, 0], [0, 0]]
    found = fit_thresholds(multilabel(probs, labels), least=1)
    assert found == pytest.approx([0.85, 0.075], abs=1e-6)


def test_neighbouring_floats_are_told_apart():
    close = np.nextafter(np.float32(0.3), np.float32(1))
    predictions = Predictions(np.array([[[close], [np.float32(0.3)]]]), np.array([[1], [0]]), target="multilabel")
    said = asserted(predictions, fit_thresholds(predictions, least=1))
    assert said[:, 0].tolist() == [True, False] or len(np.unique(predictions.probs)) == 1


def test_a_label_that_hardly_any_row_carries_keeps_one_half():
    """Its only row is ranked last: the best F1 would assert it everywhere."""
    probs = np.linspace(0.6, 0.01, 40)[:, None]
    rare, common = np.zeros((40, 1), dtype=int), (probs > 0.3).astype(int)
    rare[-1] = 1
    found = fit_thresholds(multilabel(np.hstack([probs, probs]), np.hstack([rare, common])))
    assert found[0] == 0.5
    assert found[1] == pytest.approx(0.3, abs=0.02)
    assert fit_thresholds(multilabel(probs, rare), least=1)[0] < 0.01
    with pytest.raises(UserError, match="given 0"):
        fit_thresholds(multilabel(probs, rare), least=0)


def test_metrics_at_thresholds_are_scikit_learns():
    generator = np.random.default_rng(0)
    labels = (generator.random((200, 5)) < 0.3).astype(int)
    probs = np.clip(0.2 * labels + 0.6 * generator.random((200, 5)), 0.01, 0.99)
    validation, test = multilabel(probs[:100], labels[:100]), multilabel(probs[100:], labels[100:])
    thresholds = fit_thresholds(validation)
    values = {metric.name.removesuffix(TUNED): metric.compute(test) for metric in metrics_at(thresholds)}
    said = (test.probs > thresholds).astype(int)
    assert values["micro_f1"] == pytest.approx(f1_score(labels[100:], said, average="micro"))
    assert values["macro_f1"] == pytest.approx(f1_score(labels[100:], said, average="macro"))
    assert values["accuracy"] == pytest.approx((said == labels[100:]).all(axis=1).mean())
    half = {metric.name.removesuffix(TUNED): metric.compute(test) for metric in metrics_at(np.full(5, 0.5))}
    assert values["macro_f1"] > half["macro_f1"]


def test_what_is_not_multilabel_is_refused():
    predictions = Predictions(np.zeros((1, 3, 2), dtype=np.float32), np.array([0, 1, 0]))
    with pytest.raises(UserError, match="multi-label"):
        fit_thresholds(predictions)
    with pytest.raises(UserError, match="each of 2 labels"):
        asserted(multilabel([[0.5, 0.5]], [[1, 0]]), np.array([0.5]))
