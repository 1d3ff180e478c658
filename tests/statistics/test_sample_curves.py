from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from dubio.calibration.cross_validation import random_halves
from dubio.core.predictions import Predictions
from dubio.statistics.sample_curves import MEASURES, latest_first, sample_scores, sizes_up_to


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
    values = sample_scores(predictions, [order], sizes)[0]
    halves = random_halves(predictions, repeats=5, seed=0)
    labels, rows = predictions.labels, np.arange(len(predictions))
    for index, size in enumerate(sizes):
        probs = pooled(predictions, list(order[:size]))
        scores = dict(zip(MEASURES, values[index], strict=True))
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


def test_the_temperature_of_predictions_counts_in_plain_scores() -> None:
    cooled = sampled().with_checked(temperature=2.5)
    scores = dict(zip(MEASURES, sample_scores(cooled, [np.arange(6)], (6,))[0, 0], strict=True))
    own = tempered(pooled(cooled, list(range(6))), 2.5)
    assert scores["nll"] == pytest.approx(-np.log(own[np.arange(120), cooled.labels]).mean(), rel=1e-6)
    plain = dict(zip(MEASURES, sample_scores(sampled(), [np.arange(6)], (6,))[0, 0], strict=True))
    assert scores["calibrated_nll"] == pytest.approx(plain["calibrated_nll"])


def test_several_labels_at_once_are_pooled_label_by_label() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, (60, 4))
    logits = (generator.normal(0, 1.5, (3, 60, 4)) + 2 * labels - 1).astype(np.float32)
    predictions = Predictions(logits=logits, labels=labels.astype(np.int64), target="multilabel")
    values = dict(zip(MEASURES, sample_scores(predictions, [np.arange(3)], (3,))[0, 0], strict=True))
    probs = (1 / (1 + np.exp(-logits.astype(np.float64)))).mean(axis=0)
    expected = -(labels * np.log(probs) + (1 - labels) * np.log(1 - probs)).sum(axis=1).mean()
    assert values["nll"] == pytest.approx(expected, rel=1e-6)
    assert values["error"] == pytest.approx(((probs > 0.5) != (labels == 1)).any(axis=1).mean())


def test_sizes_are_the_common_ones_and_all_samples() -> None:
    assert sizes_up_to(1) == (1,)
    assert sizes_up_to(15) == (1, 2, 3, 5, 10, 15)
    assert sizes_up_to(100) == (1, 2, 3, 5, 10, 20, 50, 100)
    assert sizes_up_to(150) == (1, 2, 3, 5, 10, 20, 50, 100, 150)


def test_members_are_taken_in_turn_and_of_one_training_the_latest_first() -> None:
    predictions = sampled(samples=5)
    assert list(latest_first(predictions)) == [4, 3, 2, 1, 0]
    two = predictions.with_checked(member=np.array([0, 0, 0, 1, 1]))
    assert list(latest_first(two)) == [2, 4, 1, 3, 0]
    three = predictions.with_checked(member=np.array([0, 0, 1, 1, 2]))
    assert list(latest_first(three)) == [1, 3, 4, 0, 2]
