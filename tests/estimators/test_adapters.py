"""Answers that estimators of any framework may give, and those that are refused with split, row and column."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from dubio.core.errors import UserError
from dubio.estimators import EstimatorBenchmark
from dubio.estimators.adapters import predict_split, to_numpy
from tests.estimators.helpers import make_task, softmax


def predict(estimator, task=None, **options):
    task = task or make_task(2)
    return predict_split(estimator, task, task.split("test"), **options)


def test_every_stated_shape_is_the_same_prediction():
    wanted = predict(softmax).log_probs
    second = [
        lambda x: softmax(x)[:, 1],
        lambda x: softmax(x)[:, 1:],
        lambda x: softmax(x)[None],
        lambda x: np.stack([softmax(x)] * 3),
        lambda x: np.stack([softmax(x)[:, 1:]] * 3),
        lambda x: pd.DataFrame(softmax(x)),
        lambda x: softmax(x).tolist(),
        lambda x: softmax(x).astype(np.float16).astype(np.float64) * 0 + softmax(x),
    ]
    for estimator in second:
        found = predict(estimator, batch=16)
        assert found.log_probs == pytest.approx(wanted, abs=1e-6)
    logs = predict(lambda x: np.log(softmax(x)), values="log_probs")
    raw = predict(lambda x: x, values="logits")
    odds = predict(lambda x: x[:, 1] - x[:, 0], values="logits")
    for found in (logs, raw, odds):
        assert found.log_probs == pytest.approx(wanted, abs=1e-6)
    samples = predict(lambda x: np.stack([softmax(x), softmax(2 * x)]))
    inputs = make_task(2).split("test").data.inputs
    assert samples.samples == 2
    assert samples.probs == pytest.approx((softmax(inputs) + softmax(2 * inputs)) / 2, abs=1e-6)


def set_at(p, row, column, value):
    p = p.copy()
    p[row, column] = value
    return p


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (lambda x: softmax(x)[:-1], r"split 'test', rows 0 to 15: .* \[16\], \[16, 1\], \[16, 2\]"),
        (lambda x: softmax(x).T, r"given \[2, 16\]"),
        (lambda x: np.stack([softmax(x)] * 3, axis=1), r"\[S, 16, 2\]; given \[16, 3, 2\]"),
        (lambda x: np.stack([softmax(x)] * 16, axis=1), "with one row less"),
        (lambda x: np.ones((len(x), 3)) / 3, r"given \[16, 3\]"),
        (lambda x: set_at(softmax(x), 3, 1, np.nan), "probs on split 'test' .* row 3, column 1 is nan"),
        (lambda x: x, "probs on split 'test' must lie between 0 and 1; row"),
        (lambda x: softmax(x) * 0.9, "every row must sum to one within 0.001; row 0"),
        (lambda x: softmax(x)[:, 1] * 3, "must lie between 0 and 1; row .*, column 0"),
        (lambda x: softmax(x) > 0.5, "must be numbers; given an array of type bool"),
        (lambda x: [object()] * len(x), "must be numbers"),
        (lambda x: np.stack([softmax(x)] * (2 if len(x) == 16 else 3)), "rows 32 to 39: .* 3 samples, .* 2"),
        (lambda x: (softmax(x), x[:, 0]) if len(x) == 16 else softmax(x), "every batch, or for none"),
        (lambda x: (softmax(x), x), r"uncertainty must have shape \[16\] or \[16, 1\]; given \[16, 2\]"),
        (lambda x: (softmax(x), set_at(x, 4, 0, np.inf)[:, 0]), "uncertainty must be finite; row 4, column 0 is inf"),
        (lambda x: (softmax(x), x, x), "tuple of 3"),
        (3, "estimator must be a function .* given a int"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_predictions_is_refused_with_its_position(estimator, words):
    with pytest.raises(UserError, match=words):
        predict(estimator, batch=16)


def test_samples_may_be_equal_in_number_to_rows():
    found = predict(lambda x: np.stack([softmax(x * (1 + s / 20)) for s in range(40)]), batch=40)
    assert found.samples == 40


def test_an_error_of_the_estimator_keeps_its_type_and_names_the_rows():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        predict(broken)
    assert "split 'test', rows 0 to 39" in caught.value.__notes__[0]


def test_tensors_of_any_framework_become_arrays():
    torch = pytest.importorskip("torch")
    numbers = np.array([0.25, 0.5], dtype=np.float32)

    class OnlyDlpack:
        def __dlpack__(self, **options):
            return numbers.__dlpack__(**options)

        def __dlpack_device__(self):
            return numbers.__dlpack_device__()

    class Array:
        def __array__(self, dtype=None, copy=None):
            return numbers

    for value in (
        torch.tensor(numbers, requires_grad=True),
        torch.tensor(numbers).bfloat16(),
        OnlyDlpack(),
        Array(),
        pd.Series(numbers),
        list(numbers),
    ):
        assert to_numpy(value, "it").tolist() == [0.25, 0.5]
    with pytest.raises(UserError, match="it must be numbers"):
        to_numpy("half", "it")


def test_columns_of_a_classifier_go_by_its_classes():
    task = make_task(3)
    x, y = EstimatorBenchmark(task).train
    whole = LogisticRegression().fit(x, y)
    named = LogisticRegression().fit(x, np.array(["c", "b", "a"])[2 - y])  # a, b, c again, as names
    assert predict(named, task).probs == pytest.approx(predict(whole, task).probs)
    part = LogisticRegression().fit(x[y != 1], y[y != 1])
    found = predict(part, task).probs
    assert (found[:, 1] == 0).all()
    assert found[:, [0, 2]] == pytest.approx(part.predict_proba(task.split("test").data.inputs), abs=1e-6)
    stranger = LogisticRegression().fit(x, np.array(["x", "y", "z"])[y])
    with pytest.raises(UserError, match="classes_ must be indices from 0 to 2 or names"):
        predict(stranger, task)
    several = SimpleNamespace(predict_proba=lambda x: [np.ones((len(x), 2)) / 2] * 3)
    with pytest.raises(UserError, match="a list"):
        predict(several, task)
