"""Multi-label decisions: one rule for every metric, and the most probable label where no label is above one half."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from dubio.calibration.cross_validation import cross_validate
from dubio.calibration.temperature import evidence_of
from dubio.calibration.thresholds import asserted
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Examples, SourceCard, Split, Task, empty_decision_for
from dubio.metrics.decisions import (
    binary_problems,
    class_scores,
    correct,
    decided,
    grade_scores,
    labels_asserted,
    predicted_labels,
)
from dubio.metrics.scoring import accuracy, accuracy_at_half, error, macro_f1, macro_f1_at_half, micro_f1
from dubio.metrics.selective import aurc
from dubio.referral.application import apply_policy
from dubio.referral.risk import fit_risk_policy
from tests.metrics.helpers import drawn_multilabel, of_probs


def low(seed, rows=200, classes=4):
    """Predictions of which many rows have no label above one half; every row has a label."""
    rng = np.random.default_rng(seed)
    labels = np.eye(classes, dtype=np.int64)[rng.integers(0, classes, rows)] | (rng.random((rows, classes)) < 0.1)
    logits = (3 * labels - 3.2 + rng.normal(0, 1, (1, rows, classes))).astype(np.float32)
    return Predictions(logits, labels.astype(np.int64), target="multilabel")


def brute(predictions):
    """Return the decisions row by row: the labels above one half, else the first of the most probable."""
    rows = []
    for probs in predictions.probs:
        above = probs > 0.5
        rows.append(above if above.any() else np.arange(len(probs)) == np.argmax(probs))
    return np.array(rows)


@pytest.mark.parametrize("seed", range(3))
def test_every_metric_uses_the_decision_with_the_fall_back(seed):
    plain = low(seed)
    predictions = replace(plain, empty_decision="argmax")
    wanted, truth = brute(predictions), predictions.labels.astype(bool)
    assert not (predictions.probs > 0.5).any(axis=1).all()
    assert (predicted_labels(predictions) == wanted).all()
    right = (wanted == truth).all(axis=1)
    assert (correct(predictions) == right).all()
    assert (evidence_of(predictions).wrong() == ~right).all()
    assert accuracy(predictions) == pytest.approx(right.mean())
    assert error(predictions) == pytest.approx(1 - right.mean())
    assert micro_f1(predictions) == pytest.approx(f1_score(truth, wanted, average="micro"))
    assert macro_f1(predictions) == pytest.approx(f1_score(truth, wanted, average="macro"))
    assert accuracy(predictions) > accuracy(plain) == accuracy_at_half(predictions) == accuracy_at_half(plain)
    assert macro_f1_at_half(predictions) == macro_f1(plain)
    assert aurc(predictions) < aurc(plain)
    assert cross_validate(predictions).aurc.mean < cross_validate(plain).aurc.mean
    at_half = asserted(predictions, np.full(4, 0.5))
    assert (at_half == wanted).all()
    assert not (asserted(plain, np.full(4, 0.999))).any()
    assert (asserted(predictions, np.full(4, 0.999)).sum(axis=1) == 1).all()


def test_equally_probable_labels_give_the_first_and_certain_ones_do_not_overflow():
    logits = np.array([[[-1, -1, -2], [-np.inf, -np.inf, -np.inf], [np.inf, -3, -3]]], dtype=np.float32)
    predictions = Predictions(logits, np.eye(3, dtype=np.int64), target="multilabel", empty_decision="argmax")
    assert predicted_labels(predictions).tolist() == [[True, False, False]] * 3


def test_the_decision_stays_with_rows_and_parts_must_agree():
    predictions = replace(low(0), empty_decision="argmax")
    assert predictions.take(np.arange(0, 50, 7)).empty_decision == "argmax"
    assert join([predictions, predictions.as_ood()]).empty_decision == "argmax"
    with pytest.raises(UserError, match="empty_decision is argmax in one and empty in another"):
        join([predictions, low(1)])
    with pytest.raises(UserError, match=r"argmx.*argmax"):
        replace(predictions, empty_decision="argmx")
    with pytest.raises(UserError, match="is for multilabel predictions; these are multiclass"):
        replace(of_probs([[0.5, 0.5]], [0]), empty_decision="argmax")


def test_a_task_falls_back_where_every_training_row_has_a_label():
    labels, none = drawn_multilabel(0).labels, np.zeros((60, 4), dtype=np.int64)
    each = np.maximum(labels, np.eye(4, dtype=np.int64)[np.arange(60) % 4])
    card = SourceCard("s", "r", "l", "c")

    def decision(train):
        parts = {"train": train, "val": none, "id": none}
        splits = tuple(Split.of(kind, kind, Examples(np.zeros((60, 1)), own)) for kind, own in parts.items())
        return Task("t", "table", "multilabel", tuple("abcd"), splits, card).empty_decision

    assert decision(each) == "argmax"
    assert decision(np.vstack([each[:-1], none[:1]])) == "empty"
    assert empty_decision_for(np.array([0, 1, 2])) == "empty"


def test_a_policy_decides_as_its_calibration_set_did():
    predictions = replace(low(3, 2000), empty_decision="argmax")
    policy = fit_risk_policy(predictions, max_risk=0.4)
    assert type(policy).from_json(policy.to_json()).empty_decision == "argmax"
    applied = apply_policy(policy, predictions)
    assert all(applied.predicted)
    assert applied.retained_error == pytest.approx(1 - correct(predictions)[applied.retained].mean())
    with pytest.raises(UserError, match="empty_decision is empty, the policy's is argmax"):
        apply_policy(policy, low(3, 2000))


@pytest.mark.slow
def test_the_fall_back_adds_to_the_exact_match_of_a_linear_model_on_reuters(data_dir):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    import dubio

    bench = dubio.benchmark("reuters", data_dir=str(data_dir))
    assert bench.task.empty_decision == "argmax"
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    model = OneVsRestClassifier(LogisticRegression(C=10, solver="liblinear"))
    model.fit(words.fit_transform(bench.train.inputs), bench.train.labels)
    metrics = ("accuracy", "accuracy_at_half")
    scores = bench.evaluate(lambda x: model.predict_proba(words.transform(x)), metrics=metrics, replicates=0)
    assert scores["accuracy"] == pytest.approx(0.833, abs=0.01)
    assert scores["accuracy_at_half"] == pytest.approx(0.757, abs=0.01)


def test_only_a_row_without_any_label_takes_its_most_probable_one():
    above, scores = np.array([[True, False], [False, False]]), np.array([[0.1, 0.9], [0.3, 0.2]])
    assert decided(above, scores, "argmax").tolist() == [[True, False], [True, False]]
    assert decided(above, scores, "empty").tolist() == above.tolist()
    half = np.log([[0.5, 0.501]])
    assert labels_asserted(half, np.log1p(-np.exp(half))).tolist() == [[False, True]]


def test_log_odds_of_grades_and_classes_by_hand():
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.ones(4), 20), rng.integers(0, 4, 20)
    grades = of_probs(probs, labels, target="ordinal")
    for grade in (1, 2, 3):
        expected = np.log(probs[:, grade:].sum(axis=1) / probs[:, :grade].sum(axis=1))
        np.testing.assert_allclose(grade_scores(grades, grade), expected, atol=1e-5)
    for k in range(4):
        np.testing.assert_allclose(class_scores(grades, k), np.log(probs[:, k] / (1 - probs[:, k])), atol=1e-5)
    (problem,) = binary_problems(grades)
    assert problem.positive_class == "grade 2 or above"
    np.testing.assert_array_equal(problem.positive, labels >= 2)
    two = of_probs(probs[:, :2] / probs[:, :2].sum(axis=1, keepdims=True), labels % 2, target="ordinal")
    (problem,) = binary_problems(two)
    assert problem.positive_class == "class 1"
    np.testing.assert_array_equal(problem.positive, labels % 2 == 1)
