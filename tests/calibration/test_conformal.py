"""Conformal sets: the guarantee by simulation, MAPIE where definitions coincide, and the edges."""

import warnings

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

from dubio.calibration.conformal import conformity, fit_conformal, prediction_sets, summarise_sets
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS


def made(rows=300, classes=6, seed=0, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1, rows, classes)) * 1.5
    probs = np.exp(logits[0] * 0.7) / np.exp(logits[0] * 0.7).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=row) for row in probs])
    return Predictions(logits.astype(np.float32), labels, **more)


class Fixed(ClassifierMixin, BaseEstimator):
    """A classifier whose input is the row of a table of probabilities."""

    def __init__(self, table=None):
        self.table = table

    def fit(self, x, y):
        self.classes_ = np.arange(self.table.shape[1])
        return self

    def predict_proba(self, x):
        return self.table[np.asarray(x)[:, 0].astype(int)]

    def predict(self, x):
        return self.predict_proba(x).argmax(axis=1)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_lac_sets_equal_mapie(alpha):
    """Its aps and raps draw random numbers for the scores; lac is the same."""
    calibration, test = made(seed=1), made(seed=2)
    sets = prediction_sets(fit_conformal(calibration, alpha=alpha, score="lac"), test)
    table = np.concatenate([calibration.probs, test.probs])
    x = np.arange(len(table))[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapie = SplitConformalClassifier(
            Fixed(table).fit(x, None), confidence_level=1 - alpha, conformity_score="lac", prefit=True
        )
        mapie.conformalize(x[: len(calibration)], calibration.labels)
        _, reference = mapie.predict_set(x[len(calibration) :])
    np.testing.assert_array_equal(sets, reference[:, :, 0])


@pytest.mark.parametrize(("score", "penalty", "free"), [("aps", 0.0, 0), ("raps", 0.05, 2)])
def test_cumulative_sets_equal_a_plain_loop(score, penalty, free):
    def scored(row, label):
        order = sorted(range(len(row)), key=lambda k: -row[k])
        place = order.index(label) + 1
        return sum(row[k] for k in order[:place]) + penalty * max(0, place - free)

    calibration, test = made(seed=1, rows=99), made(seed=2, rows=40)
    threshold = sorted(scored(row, y) for row, y in zip(calibration.probs, calibration.labels, strict=True))[89]
    sets = prediction_sets(fit_conformal(calibration, alpha=0.1, score=score, penalty=penalty, free_rank=free), test)
    for row, chosen in zip(test.probs, sets, strict=True):
        assert chosen.tolist() == [scored(row, k) <= threshold + 1e-12 for k in range(6)]


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_coverage_holds_over_many_draws(score):
    """The mean coverage over fresh calibration and test sets is at least 1 − α, and for lac at most 1/(n+1) above."""
    alpha, n, rounds = 0.2, 40, 150
    covered = []
    for index in range(rounds):
        everything = made(rows=n + 60, classes=4, seed=1000 + index)
        fitted = fit_conformal(everything.take(np.arange(n)), alpha=alpha, score=score)
        rest = everything.take(np.arange(n, n + 60))
        covered.append(summarise_sets(prediction_sets(fitted, rest), rest.labels).coverage)
    error = np.std(covered) / np.sqrt(rounds)
    assert np.mean(covered) > 1 - alpha - 3 * error
    if score == "lac":
        assert np.mean(covered) < 1 - alpha + 1 / (n + 1) + 3 * error


def test_scores_by_hand():
    predictions = Predictions(np.log([[[0.5, 0.2, 0.3]]]).astype(np.float32), np.array([1]))
    np.testing.assert_allclose(conformity(predictions, "lac"), [[0.5, 0.8, 0.7]], atol=1e-6)
    np.testing.assert_allclose(conformity(predictions, "aps"), [[0.5, 1.0, 0.8]], atol=1e-6)
    np.testing.assert_allclose(conformity(predictions, "raps", 0.1, 1), [[0.5, 1.2, 0.9]], atol=1e-6)


def test_tied_classes_share_their_score():
    predictions = Predictions(np.log([[[0.4, 0.2, 0.2, 0.2]]]).astype(np.float32), np.array([1]))
    np.testing.assert_allclose(conformity(predictions, "aps"), [[0.4, 1.0, 1.0, 1.0]], atol=1e-6)


def test_too_few_examples_keep_every_class():
    fitted = fit_conformal(made(rows=5), alpha=0.1)
    assert fitted.threshold == np.inf
    assert prediction_sets(fitted, made()).all()


def test_threshold_is_the_right_order_statistic():
    predictions = made(rows=19)
    scores = np.sort(1 - predictions.probs[np.arange(19), predictions.labels])
    assert fit_conformal(predictions, alpha=0.1).threshold == pytest.approx(scores[17])  # ceil(20 · 0.9) = 18th
    assert fit_conformal(predictions, alpha=0.05).threshold == pytest.approx(scores[18])


def test_one_example_a_group_calibrates():
    group = np.array([f"g{i // 10}" for i in range(300)])
    assert fit_conformal(made(group=group)).calibrated_on == 30


def test_summary():
    sets = np.array([[True, False, False], [True, True, False], [False, False, False], [True, True, True]])
    found = summarise_sets(sets, np.array([0, 2, 1, 2]))
    assert found.coverage == 0.5
    assert found.size == 1.5


def test_refusals():
    with pytest.raises(UserError, match="'val'"):
        fit_conformal(made(kind="val"))
    assert fit_conformal(made(kind="val"), allow_selected=True).calibrated_on == 300
    with pytest.raises(UserError, match="alpha"):
        fit_conformal(made(), alpha=0.0)
    with pytest.raises(UserError, match="lac"):
        fit_conformal(made(), score="laq")
    labels = np.zeros((4, 2), dtype=np.int64)
    with pytest.raises(UserError, match="multilabel"):
        fit_conformal(Predictions(np.zeros((1, 4, 2), dtype=np.float32), labels, target="multilabel"))
    with pytest.raises(UserError, match="label"):
        summarise_sets(np.ones((1, 2), dtype=bool), np.array([-1]))


def test_registered_metrics():
    predictions = made(rows=600)
    assert METRICS.make("conformal_coverage", alpha=0.2).compute(predictions) == pytest.approx(0.8, abs=0.03)
    assert not METRICS.make("conformal_coverage").comparable
    wide, narrow = (METRICS.make("conformal_set_size", alpha=a).compute(predictions) for a in (0.05, 0.3))
    assert 1 <= narrow < wide <= 6
