from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import kendalltau, pearsonr, spearmanr

from dubio.calibration.cross_validation import random_halves
from dubio.calibration.temperature import fit_evidence
from dubio.core.predictions import Predictions
from dubio.metrics.calibration_error import tace
from dubio.studies.ensembles.orders import Reordering, taces_of
from dubio.studies.ensembles.prefixes import MEASURES, fixed_order, prefix_evidence, prefix_scores, sizes_of
from dubio.studies.ensembles.scatters import beside_of
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.thresholded import SETTINGS, thresholded_errors


def sampled(seed: int = 0, samples: int = 6, rows: int = 120, classes: int = 3) -> Predictions:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows)
    logits = generator.normal(0, 2, (samples, rows, classes)) + np.eye(classes)[labels]
    return Predictions(logits=logits.astype(np.float32), labels=labels.astype(np.int64))


def pooled(predictions: Predictions, chosen: list[int]) -> np.ndarray:
    """The explicit mean of probabilities."""
    return np.asarray(softmax(predictions.logits[chosen].astype(np.float64), axis=-1).mean(axis=0))


def tempered(probs: np.ndarray, temperature: float) -> np.ndarray:
    powers = probs ** (1 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def best_temperature(probs: np.ndarray, labels: np.ndarray) -> float:
    def loss(log_t: float) -> float:
        return float(-np.log(tempered(probs, np.exp(log_t))[np.arange(len(labels)), labels]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x))


def plain_aurc(probs: np.ndarray, labels: np.ndarray) -> float:
    order = np.argsort(-probs.max(axis=1), kind="stable")
    wrong = (probs.argmax(axis=1) != labels)[order]
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


def test_every_prefix_is_scored_as_the_explicit_mean_of_its_probabilities() -> None:
    predictions, sizes = sampled(), (1, 2, 5, 6)
    order = np.array([4, 0, 3, 1, 5, 2])
    found = prefix_scores(predictions, [order], sizes)[0]
    halves = random_halves(predictions, repeats=5, seed=0)
    labels, rows = predictions.labels, np.arange(len(predictions))
    for place, size in enumerate(sizes):
        probs = pooled(predictions, list(order[:size]))
        scores = dict(zip(MEASURES, found[place], strict=True))
        truth = np.eye(probs.shape[1])[labels]
        assert scores["error"] == pytest.approx(np.mean(probs.argmax(axis=1) != labels))
        assert scores["nll"] == pytest.approx(-np.log(probs[rows, labels]).mean(), rel=1e-6)
        assert scores["brier"] == pytest.approx(((truth - probs) ** 2).sum(axis=1).mean(), rel=1e-6)
        assert scores["aurc"] == pytest.approx(plain_aurc(probs, labels), abs=1e-9)
        nll, brier, aurc, temperatures = [], [], [], []
        for half in halves:
            for fitted, scored in ((half, ~half), (~half, half)):
                temperature = best_temperature(probs[fitted], labels[fitted])
                temperatures.append(temperature)
                own = tempered(probs[scored], temperature)
                share = scored.mean() / len(halves)
                nll.append(share * -np.log(own[np.arange(len(own)), labels[scored]]).mean())
                brier.append(share * ((truth[scored] - own) ** 2).sum(axis=1).mean())
                aurc.append(share * plain_aurc(own, labels[scored]))
        assert scores["calibrated_nll"] == pytest.approx(sum(nll), abs=2e-6)
        assert scores["calibrated_brier"] == pytest.approx(sum(brier), abs=2e-5)
        assert scores["calibrated_aurc"] == pytest.approx(sum(aurc), abs=1e-9)
        assert scores["temperature"] == pytest.approx(np.median(temperatures), rel=2e-3)


def test_several_labels_at_once_are_pooled_label_by_label() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, (60, 4))
    logits = (generator.normal(0, 1.5, (3, 60, 4)) + 2 * labels - 1).astype(np.float32)
    predictions = Predictions(logits=logits, labels=labels.astype(np.int64), target="multilabel")
    found = dict(zip(MEASURES, prefix_scores(predictions, [np.arange(3)], (3,))[0, 0], strict=True))
    probs = (1 / (1 + np.exp(-logits.astype(np.float64)))).mean(axis=0)
    expected = -(labels * np.log(probs) + (1 - labels) * np.log(1 - probs)).sum(axis=1).mean()
    assert found["nll"] == pytest.approx(expected, rel=1e-6)
    assert found["error"] == pytest.approx(((probs > 0.5) != (labels == 1)).any(axis=1).mean())


def test_sizes_are_the_common_ones_and_all_samples() -> None:
    assert sizes_of(1) == (1,)
    assert sizes_of(15) == (1, 2, 3, 5, 10, 15)
    assert sizes_of(100) == (1, 2, 3, 5, 10, 20, 50, 100)


def test_members_are_taken_in_turn_and_of_one_training_the_latest_first() -> None:
    predictions = sampled(samples=5)
    assert list(fixed_order(predictions)) == [4, 3, 2, 1, 0]
    two = predictions.with_checked(member=np.array([0, 0, 0, 1, 1]))
    assert list(fixed_order(two)) == [2, 4, 1, 3, 0]


def plain_tace(probs: np.ndarray, labels: np.ndarray, threshold: float, bins: int) -> float:
    """A plain loop over classes and bins of equal mass."""
    total, (rows, classes) = 0.0, probs.shape
    for k in range(classes):
        kept = sorted((p, float(y == k)) for p, y in zip(probs[:, k], labels, strict=True) if p > threshold)
        used = min(bins, len(kept))
        for b in range(used):
            part = kept[b * len(kept) // used : (b + 1) * len(kept) // used]
            total += abs(sum(hit - p for p, hit in part))
    return total / (rows * classes)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 40))
def test_tace_in_every_setting_is_a_plain_loop(seed: int, classes: int, rows: int) -> None:
    generator = np.random.default_rng(seed)
    probs = softmax(generator.normal(0, 4, (rows, classes)), axis=1)
    labels = generator.integers(0, classes, rows)
    found = thresholded_errors(probs, labels)
    for value, (threshold, bins) in zip(found, SETTINGS, strict=True):
        assert value == pytest.approx(plain_tace(probs, labels, threshold, bins), abs=1e-12)


def test_tace_at_the_best_temperature_is_that_of_the_registered_metric(study: Study) -> None:
    predictions = sampled(samples=2, rows=50)
    (evidence,) = prefix_evidence(predictions, np.arange(2), [2])
    warm = predictions.with_checked(temperature=fit_evidence(evidence).temperature)
    probs = tempered(pooled(predictions, [0, 1]), warm.temperature)
    at = SETTINGS.index((1e-3, 15))
    assert thresholded_errors(probs, predictions.labels)[at] == pytest.approx(tace(warm), abs=1e-6)
    assert taces_of(study.chosen("method")).values.shape == (len(study.chosen("method")), len(SETTINGS))


def test_swapped_pairs_and_tau_are_counted_by_hand() -> None:
    found = Reordering({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, {"a": 1.5, "b": 4.0, "c": 3.0, "d": 2.0})
    assert {frozenset(pair) for pair in found.swapped} == {frozenset("bc"), frozenset("bd"), frozenset("cd")}
    assert found.pairs == 6
    assert found.tau == pytest.approx(kendalltau([1, 2, 3, 4], [1.5, 4, 3, 2]).statistic)
    assert found.ranks()[1] == {"a": 1.0, "b": 4.0, "c": 3.0, "d": 2.0}


def test_correlations_are_scipys_over_all_methods_samples_and_runs(study: Study) -> None:
    lines = study.chosen("method", "pool", "network")
    found = beside_of(lines)
    nll = np.concatenate([line.of("calibrated_nll").ravel() for line in lines])
    right = 1 - np.concatenate([line.of("error").ravel() for line in lines])
    assert found[3].pearson == pytest.approx(pearsonr(nll, right).statistic)
    assert found[3].spearman == pytest.approx(spearmanr(nll, right).statistic)
