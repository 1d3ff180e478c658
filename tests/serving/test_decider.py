"""Decisions are those of ``dubio refer apply`` about each row alone; rows and probabilities are checked by name."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import apply_policy, fit_capacity_policy, fit_risk_policy
from dubio.serving.decider import REFER_ALL, Decider
from dubio.serving.messages import RowRequest
from tests.serving.helpers import CLASSES, Logistic, calibration, capacity_policy, logistic, rows


def items(decider, requests):
    return [decider.item(RowRequest(**request), number) for number, request in enumerate(requests)]


@pytest.mark.parametrize("policy", [capacity_policy(), fit_risk_policy(calibration(2000), max_risk=0.15)])
def test_decisions_are_those_of_refer_apply_about_each_row_alone(policy):
    decider, requests = Decider(Logistic(), policy), rows(60)
    decisions = decider.decide(items(decider, requests))
    predictions = logistic(np.array([[own["row"]["a"], own["row"]["b"]] for own in requests]))
    assert {own["decision"] for own in decisions} == {"refer", "retain"}
    for index, decision in enumerate(decisions):
        applied = apply_policy(policy, predictions.take(np.array([index])))
        (expected,) = applied.rows()
        assert decision["id"] == requests[index]["id"]
        assert decision["answer"] == expected["predicted"]
        assert {name: decision[name] for name in ("decision", "reason", "uncertainty")} == {
            name: expected[name] for name in ("decision", "reason", "uncertainty")
        }
        values = [requests[index]["row"][name] for name in "ab"]
        spam = 1 / (1 + np.exp(-(1.5 * values[0] - 2 * values[1])))
        assert decision["probabilities"] == pytest.approx({"ham": 1 - spam, "spam": spam}, abs=1e-6)


def test_probabilities_of_another_program_are_decided_like_those_of_the_model():
    decider = Decider(Logistic(), capacity_policy())
    own = decider.decide(items(decider, rows(20)))
    given = [{"id": row["id"], "probabilities": row["probabilities"]} for row in own]
    for one, other in zip(own, decider.decide(items(decider, given)), strict=True):
        assert (one["answer"], one["decision"]) == (other["answer"], other["decision"])
        assert one["uncertainty"] == pytest.approx(other["uncertainty"], rel=1e-4)


def test_without_a_model_probabilities_are_needed_and_the_policy_names_the_classes():
    decider = Decider(None, capacity_policy())
    assert decider.classes == CLASSES
    with pytest.raises(UserError, match=r"rows\[0\] needs 'probabilities': this server has no model"):
        items(decider, rows(1))
    shown = items(decider, [{"row": {"text": "shown"}, "probabilities": {"ham": 0.5, "spam": 0.5}}])
    assert decider.decide(shown)[0]["decision"] == "refer"
    assert shown[0].row == {"text": "shown"}
    with pytest.raises(UserError, match="needs a policy that names its classes"):
        Decider(None, None)


def test_every_row_is_referred_without_a_policy():
    decider = Decider(Logistic(), None)
    decisions = decider.decide(items(decider, rows(5)))
    assert {own["decision"] for own in decisions} == {"refer"}
    assert {own["reason"] for own in decisions} == {REFER_ALL}
    for own in decisions:
        assert own["uncertainty"] == pytest.approx(min(own["probabilities"].values()), rel=1e-4)


def test_a_policy_of_other_classes_is_refused():
    other = Logistic()
    other.classes = ("ham", "eggs")
    with pytest.raises(UserError, match="class 1 is 'eggs', the policy's is 'spam'"):
        Decider(other, capacity_policy())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"row": {"a": 1}}, r"rows\[0\] needs the column 'b'"),
        ({"row": {"a": 1, "b": 2, "c": 3}}, r"unknown column of rows\[0\] 'c'"),
        ({"probabilities": {"ham": 1.0}}, "probabilities need the class 'spam'"),
        ({"probabilities": {"ham": 0.5, "spam": 0.3, "spma": 0.2}}, "Did you mean 'spam'"),
        ({"probabilities": {"ham": 0.5, "spam": 0.4}}, r"rows\[0\].probabilities"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(request_, message):
    with pytest.raises(UserError, match=message):
        items(Decider(Logistic(), capacity_policy()), [request_])


def test_an_uncertainty_of_samples_needs_their_number():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 200, 2)).astype(np.float32)
    labels = rng.integers(0, 2, 200)
    predictions = Predictions(logits, labels, classes=CLASSES, kind="cal")
    policy = fit_capacity_policy(predictions, capacity=0.4, quantity="mutual_information")
    decider = Decider(None, policy)
    with pytest.raises(UserError, match="must have 3 samples, as the policy's mutual_information"):
        items(decider, [{"probabilities": {"ham": 0.5, "spam": 0.5}}])
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)).astype(float)
    requests = [
        {"probabilities": tuple(dict(zip(CLASSES, row, strict=True)) for row in probs[:, index].tolist())}
        for index in range(20)
    ]
    decided = decider.decide(items(decider, requests))
    applied = apply_policy(policy, predictions.take(np.arange(20)))
    assert [own["decision"] == "retain" for own in decided] == applied.retained.tolist()


def test_images_are_decoded_from_base64():
    model = Logistic()
    model.inputs, model.columns = "image", ("image",)
    decider = Decider(model, capacity_policy())
    (item,) = items(decider, [{"row": {"image": base64.b64encode(b"\x89PNG...").decode()}}])
    assert item.cells == {"image": b"\x89PNG..."}
    for value, message in (("not base64!", "is not base64"), (3, "must be the base64 of a PNG or JPEG; given 3")):
        with pytest.raises(UserError, match=message):
            items(decider, [{"row": {"image": value}}])


def test_equal_contents_have_equal_hashes_and_others_not():
    decider = Decider(Logistic(), capacity_policy())
    requests = [{"row": {"a": 1, "b": 2}}, {"row": {"b": 2, "a": 1}}, {"row": {"a": 1, "b": 3}}]
    requests.append({"row": {"a": 1, "b": 2}, "probabilities": {"ham": 0.5, "spam": 0.5}})
    first, second, third, fourth = items(decider, requests)
    assert first.content == second.content
    assert len({first.content, third.content, fourth.content}) == 3
    assert len({first.id, second.id, third.id}) == 3
