import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, log_loss
from torchmetrics.functional.classification import multilabel_exact_match

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.weights import Weights
from dubio.metrics.scoring import accuracy, brier, macro_f1, micro_f1, nll
from tests.metrics.helpers import coarse, drawn, drawn_multilabel, of_probs, score


def softmax_mean(predictions):
    z = predictions.logits.astype(np.float64)
    e = np.exp(z - z.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).mean(0)


@pytest.mark.parametrize("seed", range(5))
def test_scoring_rules_equal_scikit_learn(seed):
    predictions = drawn(seed)
    probs, labels = softmax_mean(predictions), predictions.labels
    assert accuracy(predictions) == accuracy_score(labels, probs.argmax(1))
    assert nll(predictions) == pytest.approx(log_loss(labels, probs, labels=range(4)), abs=1e-12)
    assert brier(predictions) == pytest.approx(((np.eye(4)[labels] - probs) ** 2).sum(1).mean(), abs=1e-12)
    assert score(predictions, ["brier_per_class"])["brier_per_class"] == pytest.approx(brier(predictions) / 4)


@pytest.mark.parametrize("seed", range(3))
def test_multilabel_scores_equal_their_definitions_and_outside_libraries(seed):
    predictions = drawn_multilabel(seed)
    probs = (1 / (1 + np.exp(-predictions.logits.astype(np.float64)))).mean(0)
    truth = predictions.labels
    loss = -(truth * np.log(probs) + (1 - truth) * np.log1p(-probs)).sum(1).mean()
    assert nll(predictions) == pytest.approx(loss, abs=1e-10)
    assert score(predictions, ["nll_per_label"])["nll_per_label"] == pytest.approx(loss / 4, abs=1e-10)
    assert brier(predictions) == pytest.approx(((truth - probs) ** 2).sum(1).mean(), abs=1e-12)
    match = multilabel_exact_match(torch.tensor(probs), torch.tensor(truth), num_labels=4)
    assert accuracy(predictions) == pytest.approx(float(match))
    assert micro_f1(predictions) == pytest.approx(f1_score(truth, probs > 0.5, average="micro"))
    assert macro_f1(predictions) == pytest.approx(f1_score(truth, probs > 0.5, average="macro"))


def test_macro_f1_leaves_out_labels_never_seen_like_scikit_learn_with_nan():
    labels = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0]])
    logits = np.array([[[2, -2, 1], [-1, -3, 2], [3, -1, -2]]], dtype=np.float32)
    predictions = Predictions(logits, labels, target="multilabel")
    wanted = f1_score(labels, logits[0] > 0, average="macro", zero_division=np.nan)
    assert macro_f1(predictions) == pytest.approx(wanted)
    nothing = Predictions(np.full((1, 2, 2), -3, np.float32), np.zeros((2, 2), int), target="multilabel")
    assert np.isnan(macro_f1(nothing))
    assert np.isnan(micro_f1(nothing))


def test_zero_and_one_are_exact():
    predictions = of_probs([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], [0, 1, 1])
    assert nll(predictions) == pytest.approx(np.log(2) / 3)
    assert brier(predictions) == pytest.approx(0.5 / 3)
    wrong = of_probs([[1.0, 0.0]], [1])
    assert nll(wrong) == np.inf
    assert brier(wrong) == 2.0
    sure = Predictions(np.array([[[np.inf, -np.inf]]], np.float32), np.array([[1, 0]]), target="multilabel")
    assert nll(sure) == 0.0
    assert nll(Predictions(sure.logits, np.array([[0, 0]]), target="multilabel")) == np.inf


def test_unlabelled_rows_are_left_out_and_their_absence_is_refused():
    predictions = of_probs([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], [0, -1, 0])
    assert accuracy(predictions) == 0.5
    assert len(nll.per_example(predictions)) == 2
    with pytest.raises(UserError, match="every row is unlabelled"):
        accuracy(of_probs([[0.9, 0.1]]))


def test_per_example_parts_average_to_the_value_over_many_blocks():
    predictions = drawn(1, rows=3000, classes=50, samples=2)
    assert brier.per_example(predictions).mean() == pytest.approx(brier(predictions))
    assert nll.per_example(predictions).mean() == pytest.approx(nll(predictions))


def test_equally_probable_classes_are_decided_for_the_first():
    predictions = of_probs([[0.4, 0.4, 0.2]] * 3, [0, 1, 2])
    assert accuracy(predictions) == pytest.approx(1 / 3)
    assert 0 <= accuracy(coarse(0)) <= 1


def test_macro_f1_of_classes_and_its_weighted_form_are_scikit_learns():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 7, 60)  # of nine classes two are never true, and some never asserted
    logits = rng.normal(size=(1, 60, 9)).astype(np.float32) + 2 * np.eye(9, dtype=np.float32)[labels]
    predictions, chosen = Predictions(logits, labels), logits[0].argmax(axis=1)
    assert macro_f1(predictions) == pytest.approx(f1_score(labels, chosen, average="macro"))
    counts = rng.integers(0, 3, (4, 60))
    drawn = [f1_score(np.repeat(labels, c), np.repeat(chosen, c), average="macro") for c in counts]
    assert macro_f1(predictions, weights=Weights.of(counts)) == pytest.approx(drawn)
