import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.metrics.decisions import predicted
from dubio.metrics.ordinal import auc_from_grade, quadratic_kappa, rps
from dubio.metrics.scoring import brier
from tests.metrics.helpers import drawn, of_probs


@pytest.mark.parametrize("seed", range(4))
def test_kappa_equals_scikit_learn(seed):
    predictions = drawn(seed, classes=5, target="ordinal")
    wanted = cohen_kappa_score(predictions.labels, predicted(predictions), weights="quadratic")
    assert quadratic_kappa(predictions) == pytest.approx(wanted, abs=1e-12)


def test_kappa_of_one_grade_only():
    assert np.isnan(quadratic_kappa(of_probs([[0.9, 0.1]], [0], target="ordinal")))
    assert quadratic_kappa(of_probs([[0.9, 0.1]] * 2, [1, 1], target="ordinal")) == 0.0


def test_ranked_probability_score_by_its_sum():
    predictions = drawn(1, classes=4, target="ordinal")
    total = 0.0
    for row, label in zip(predictions.probs, predictions.labels, strict=True):
        total += sum((row[: k + 1].sum() - (label <= k)) ** 2 for k in range(3)) / 3
    assert rps(predictions) == pytest.approx(total / 60)
    binary = drawn(1, classes=2, target="ordinal")
    assert rps(binary) == pytest.approx(brier(binary) / 2)
    assert rps(of_probs([[0.0, 0.0, 1.0]], [0], target="ordinal")) == 1.0


def test_area_from_a_grade_equals_scikit_learn():
    predictions = drawn(2, classes=5, target="ordinal")
    for grade in (1, 2, 4):
        wanted = roc_auc_score(predictions.labels >= grade, predictions.probs[:, grade:].sum(1))
        assert auc_from_grade(predictions, grade=grade) == pytest.approx(wanted, abs=1e-9)
    with pytest.raises(UserError, match="between 1 and 4; given 5"):
        auc_from_grade(predictions, grade=5)


def test_unordered_classes_are_refused():
    with pytest.raises(UserError, match="rps is defined for ordinal predictions; these are multiclass"):
        rps(drawn(0))


def test_kappa_is_undefined_in_a_replicate_of_one_grade():
    grades = of_probs([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.1, 0.1, 0.8]], [0, 0, 2], target="ordinal")
    found = quadratic_kappa(grades, weights=Weights.of(np.array([[2, 1, 0], [1, 0, 1]])))
    assert np.isnan(found[0])
    assert found[1] == 1.0


def test_ranked_probabilities_need_two_grades():
    one = Predictions(np.zeros((1, 3, 1), dtype=np.float32), np.zeros(3, dtype=np.int64), target="ordinal")
    with pytest.raises(UserError, match="at least two grades"):
        rps(one)
