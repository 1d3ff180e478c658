"""Policies as values: how they are written, read and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.validate import json_schema
from dubio.referral import (
    Policy,
    apply_policy,
    fit_capacity_policy,
)
from tests.core.helpers import schema_fault
from tests.referral.helpers import FITS, easy


@pytest.mark.parametrize("kind", FITS)
def test_json_there_and_back(kind):
    policy = FITS[kind](easy(classes=("a", "b"), group=np.arange(400).astype(str)))
    assert Policy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2"),
        ({"dubio": "predictions"}, "is not a referral policy"),
        ({"kind": "luck"}, "field 'kind' must be one of"),
        ({"quantity": "random"}, "field 'quantity' must be"),
        ({"quantity": ["confidence"]}, "field 'quantity' must be"),
        ({"threshold": "0.2"}, "field 'threshold' must be a number"),
        ({"threshold": True}, "field 'threshold' must be a number"),
        ({"confidence": 95}, "field 'confidence' must be .* between 0 and 1"),
        ({"seen": []}, "field 'seen' must be a list of numbers"),
        ({"seen": [0.2, 0.1]}, "field 'seen' must be .* ascending"),
        ({"classes": ["a"]}, "field 'classes' must name 2 classes; given 1"),
        ({"positive": 1}, "field 'positive' must be given for a screening policy"),
        ({"target": {}}, "field 'target' must be one of"),
        ({"samples": 0}, "field 'samples' must be"),
        ({"treshold": 1}, "'treshold'.*'threshold'"),
    ],
)
def test_bad_documents_are_refused_by_name(change, message):
    document = {**fit_capacity_policy(easy(), capacity=0.2).as_dict(), **change}
    with pytest.raises(BadFile, match=message):
        Policy.from_json(json.dumps(document), name="'p.json'")


@pytest.mark.parametrize("kind", FITS)
def test_policies_satisfy_their_json_schema(kind):
    document = json.loads(FITS[kind](easy(classes=("a", "b"))).to_json())
    schema = json_schema(Policy)
    assert schema_fault(schema, document) is None
    assert schema["properties"]["threshold"]["description"]
    for change in ({"schema": 2}, {"kind": "luck"}, {"confidence": 95}, {"seen": []}, {"treshold": 1}, {"goals": {}}):
        assert schema_fault(schema, {**document, **change}) is not None


@pytest.mark.parametrize("text", ["", "[]", "{", "NaN", "[" * 100_000, '{"dubio": "referral policy", "schema": 1}'])
def test_what_is_no_policy_is_refused(text):
    with pytest.raises(BadFile, match=r"'p\.json'"):
        Policy.from_json(text, name="'p.json'")


def test_missing_fields_and_numbers_that_are_none():
    document = fit_capacity_policy(easy(), capacity=0.2).as_dict()
    for key in document.keys() - {"empty_decision", "family", "system"}:  # older policies do not state them
        lacking = {name: value for name, value in document.items() if name != key}
        with pytest.raises(BadFile):
            Policy.from_json(json.dumps(lacking))
    with pytest.raises(BadFile, match="NaN"):
        Policy.from_json(json.dumps({**document, "threshold": float("nan")}))


def test_a_policy_on_the_systems_own_score_is_read_and_applied_where_the_score_is_there():
    own = replace(easy(), scores={"mine": np.linspace(0.0, 1.0, 400)})
    policy = fit_capacity_policy(own, capacity=0.3, quantity="mine")
    assert Policy.from_json(policy.to_json()) == policy
    assert apply_policy(policy, own).retained.mean() == pytest.approx(0.7, abs=0.02)
    with pytest.raises(UserError, match="mine"):
        apply_policy(policy, easy())


def test_a_policy_prints_its_guarantee_and_decisions_are_a_data_frame():
    policy = fit_capacity_policy(easy(), capacity=0.3)
    assert policy.guarantee in str(policy)
    frame = apply_policy(policy, easy()).to_frame()
    assert list(frame.columns) == ["id", "decision", "predicted", "probability", "uncertainty", "shift", "reason"]
    assert (frame["decision"] == "refer").sum() == (frame["uncertainty"] > policy.threshold).sum()


@pytest.mark.parametrize("given", ["mine.npz", None])
def test_a_path_in_place_of_predictions_is_refused_with_the_function_that_reads_it(given):
    with pytest.raises(UserError, match=r"calibration must be .*read_predictions"):
        fit_capacity_policy(given, capacity=0.3)


@pytest.mark.parametrize("given", ["a", None, 0.0, 1.0])
def test_a_goal_that_is_no_share_is_refused_by_its_name(given):
    with pytest.raises(UserError, match="capacity"):
        fit_capacity_policy(easy(), capacity=given)


@pytest.mark.parametrize(("positive", "valid"), [(0, True), (1, True), (2, False)])
def test_the_positive_class_is_one_of_the_classes(positive, valid):
    policy = FITS["screening"](easy(2000))
    if valid:
        assert replace(policy, positive=positive).positive == positive
    else:
        with pytest.raises(UserError, match=r"positive.*index of one of 2 classes"):
            replace(policy, positive=positive)
