"""Policies as values: what they are fitted on, how they are written, read and applied."""

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.core.validate import json_schema
from dubio.referral import (
    Policy,
    apply_policy,
    fit_capacity_policy,
    fit_risk_policy,
    fit_screening_policy,
    operating_point,
    shift_test,
)
from dubio.referral.units import just_below, rounded, rounded_uncertainty
from tests.core.helpers import schema_fault
from tests.referral.helpers import draw, of_doubts, shuffled, without_labels


def easy(rows=400, seed=0, **given):
    return replace(draw(np.random.default_rng(seed), rows, lambda doubts: doubts), **given)


FITS = {
    "risk": lambda p, **more: fit_risk_policy(p, max_risk=0.25, **more),
    "capacity": lambda p, **more: fit_capacity_policy(p, capacity=0.2, **more),
    "screening": lambda p, **more: fit_screening_policy(p, specificity=0.8, **more),
}


@pytest.mark.parametrize("kind", FITS)
def test_order_of_rows_does_not_matter(kind):
    rng = np.random.default_rng(3)
    for predictions in (easy(), easy(group=rng.integers(0, 150, 400).astype(str))):
        first, second = FITS[kind](predictions), FITS[kind](shuffled(predictions))
        assert first.threshold == second.threshold
        assert first.evidence == pytest.approx(second.evidence)


@pytest.mark.parametrize("kind", FITS)
def test_what_selection_has_seen_is_refused_unless_forced(kind):
    fit = FITS[kind]
    for split in ("train", "val"):
        with pytest.raises(UserError, match=f"this one is '{split}'.*--force"):
            fit(easy(kind=split))
        forced = fit(easy(kind=split), allow_selected=True)
        assert forced.guarantee.startswith(f"No guarantee: fitted by force on a '{split}' split")
        assert forced.guarantee in apply_policy(forced, easy(seed=1)).warnings
    assert fit(easy(kind="cal")).notes == ()
    assert "cannot know" in fit(easy(kind=None)).notes[0]
    assert "no longer a test set" in fit(easy(kind="id")).notes[0]


def test_the_whole_is_kept_where_the_whole_is_good_enough():
    policy = fit_risk_policy(draw(np.random.default_rng(0), 500, lambda doubts: 0 * doubts), max_risk=0.05)
    assert policy.threshold == inf
    assert policy.evidence["coverage"] == 1.0
    assert json.loads(policy.to_json())["threshold"] is None
    assert apply_policy(policy, easy()).retained.all()


def test_rows_that_are_equally_certain_stay_together_and_do_not_stop_the_search():
    rng = np.random.default_rng(1)
    doubts = np.where(rng.random(1000) < 0.6, 0.0, 0.4)
    policy = fit_risk_policy(of_doubts(doubts, rng.random(1000) < doubts), max_risk=0.05)
    assert 0 <= policy.threshold < 0.4
    assert policy.evidence["retained"] == (doubts == 0).sum()


def test_refusal_states_what_could_be_guaranteed():
    with pytest.raises(UserError, match=r"below max_risk 0.01 .* best that can be guaranteed is an error below 0\.\d+"):
        fit_risk_policy(easy(), max_risk=0.01)
    with pytest.raises(UserError, match=r"no threshold on these 4 rows .* below 0\.\d+"):
        fit_risk_policy(easy(4), max_risk=0.05)
    with pytest.raises(UserError, match=r"on these 130 groups .* guaranteed is an error below"):
        fit_risk_policy(easy(260, group=np.repeat(np.arange(130), 2).astype(str)), max_risk=0.01)
    truth = np.arange(400) % 2
    hard = of_doubts(np.linspace(0.1, 0.5, 400), np.random.default_rng(0).random(400) < 0.3, truth=truth)
    with pytest.raises(UserError, match=r"guaranteed is sensitivity above 0\.\d+ .* and specificity above 0\.\d+"):
        fit_screening_policy(hard, sensitivity=0.9, specificity=0.9)
    with pytest.raises(UserError, match=r"0\.001 needs at least 999 independent calibration rows; given 400"):
        fit_capacity_policy(easy(), capacity=0.001)


def test_mistakes_are_named():
    for bad in (0, 1, -0.1, float("nan")):
        with pytest.raises(UserError, match=r"max_risk .* must lie between 0 and 1"):
            fit_risk_policy(easy(), max_risk=bad)
        with pytest.raises(UserError, match=r"confidence .* must lie between 0 and 1"):
            fit_capacity_policy(easy(), capacity=0.2, confidence=bad)
    with pytest.raises(UnknownName, match="Did you mean 'predictive_entropy'"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="predictive_entropie")
    with pytest.raises(UserError, match="'random' is a control"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="random")
    with pytest.raises(UserError, match="mutual_information cannot be computed"):
        fit_risk_policy(easy(), max_risk=0.1, quantity="mutual_information")
    with pytest.raises(UserError, match="every row is unlabelled"):
        fit_risk_policy(without_labels(easy()), max_risk=0.1)
    with pytest.raises(UserError, match="at least two independent"):
        fit_risk_policy(easy(4, group=np.array(["a"] * 4)), max_risk=0.1)
    with pytest.raises(UserError, match="give sensitivity, specificity or both"):
        fit_screening_policy(easy())
    with pytest.raises(UnknownName, match="positive class 'ill'"):
        fit_screening_policy(easy(classes=("well", "sick")), specificity=0.5, positive="ill")
    with pytest.raises(UserError, match="no row of the class"):
        fit_screening_policy(easy(), sensitivity=0.5, positive=1)
    three = Predictions(np.zeros((1, 5, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    with pytest.raises(UserError, match="needs two classes; these predictions are multiclass with 3"):
        fit_screening_policy(three, sensitivity=0.5)


def test_positive_class_by_name_or_number():
    truth = np.arange(600) % 2
    given = replace(of_doubts(np.linspace(0.01, 0.2, 600), np.zeros(600), truth=truth), classes=("well", "sick"))
    named = fit_screening_policy(given, sensitivity=0.8, positive="sick")
    assert named == fit_screening_policy(given, sensitivity=0.8, positive=1)
    assert named.positive == 1


def test_capacity_needs_no_labels_and_ties_are_told():
    plain = fit_capacity_policy(without_labels(easy()), capacity=0.2)
    assert plain.evidence["referred"] == pytest.approx(0.2, abs=0.01)
    tied = of_doubts(np.repeat([0.1, 0.3], [50, 150]), np.zeros(200))
    policy = fit_capacity_policy(tied, capacity=0.2)
    assert policy.evidence["referred"] == 0
    assert "150 calibration rows" in policy.notes[-1]


def test_uncertainties_that_differ_by_rounding_are_equal():
    probs = np.array([0.7, 0.7 + 1e-8, 0.9])
    given = Predictions(np.log(np.stack([probs, 1 - probs], 1))[None].astype(np.float32), np.zeros(3, dtype=np.int64))
    graded = rounded_uncertainty(given, "confidence")
    assert graded[0] == graded[1] != graded[2]
    assert graded == pytest.approx(1 - probs, rel=2**-16)


@pytest.mark.parametrize("value", [1.0, 0.5, 2.0**-1000, 0.3, 1e-9, 7.0])
def test_just_below_is_the_next_graded_number(value):
    (value,) = rounded(np.array([value]))
    below = just_below(value)
    assert below < value
    assert rounded(np.array([below])) == [below]
    between = rounded(np.linspace(below, value, 101))
    assert set(between) == {below, value}


def test_decisions_by_the_definition_and_ties_at_the_threshold_are_kept():
    policy = fit_capacity_policy(easy(), capacity=0.3, quantity="predictive_entropy")
    new = without_labels(easy(300, seed=9, ids=np.array([f"r{k}" for k in range(300)])))
    applied = apply_policy(policy, new)
    entropy = -(new.probs * np.log(new.probs)).sum(axis=1)
    assert applied.uncertainty == pytest.approx(entropy, rel=2**-15)
    assert (applied.retained == (applied.uncertainty <= policy.threshold)).all()
    assert applied.retained_error is None
    assert applied.probability == pytest.approx(new.probs.max(axis=1))
    assert set(applied.predicted) == {"0", "1"}
    assert "is above the threshold" in applied.reasons[int(np.argmin(applied.retained))]
    at = replace(policy, threshold=float(applied.uncertainty[5]))
    assert apply_policy(at, new).retained[5]


def test_operating_point_on_labelled_rows():
    policy, new = fit_capacity_policy(easy(), capacity=0.3), easy(300, seed=9)
    keep = apply_policy(policy, new).retained
    point = operating_point(policy, new)
    assert (point.retained, point.rows) == (keep.sum(), 300)
    assert point.accuracy == pytest.approx((new.probs.argmax(1) == new.labels)[keep].mean())
    assert apply_policy(policy, new).retained_error == pytest.approx(1 - point.accuracy)


def test_other_systems_are_refused():
    policy = fit_capacity_policy(easy(classes=("no", "yes")), capacity=0.2)
    three = Predictions(np.zeros((1, 5, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    with pytest.raises(UserError, match="number of classes is 3, the policy's is 2"):
        apply_policy(policy, three)
    with pytest.raises(UserError, match="class 0 is 'yes', the policy's is 'no'"):
        apply_policy(policy, easy(classes=("yes", "no")))
    with pytest.raises(UserError, match="temperature is 2"):
        apply_policy(policy, easy(temperature=2.0))
    with pytest.raises(UserError, match="target is ordinal"):
        apply_policy(policy, easy(target="ordinal"))
    twice = easy()
    twice = replace(twice, logits=np.concatenate([twice.logits, twice.logits]), member=None)
    assert "2 samples" in apply_policy(policy, twice).warnings[0]


def test_shift_is_scipys_test_and_says_which_way():
    policy = fit_capacity_policy(easy(), capacity=0.2)
    same, other = shift_test(policy, easy(seed=5)), of_doubts(0.3 + 0.2 * np.random.default_rng(0).random(80), [0] * 80)
    assert not same.significant
    assert 0.4 < same.more_uncertain < 0.6
    found = shift_test(policy, other)
    reference = ks_2samp(rounded_uncertainty(other, "confidence"), policy.seen)
    assert (found.statistic, found.p_value) == pytest.approx((reference.statistic, reference.pvalue))
    assert found.significant
    assert found.more_uncertain > 0.75
    assert "more uncertain" in found.sentence()
    assert found.sentence() in apply_policy(policy, other).warnings
    with pytest.raises(UserError, match="shift-level"):
        shift_test(policy, other, level=0)


def test_shift_test_rejects_at_most_at_its_level_also_with_groups():
    rng, rejected = np.random.default_rng(0), 0
    for run in range(200):
        base = np.repeat(rng.random(120) / 2, 4)
        group = np.repeat(np.arange(120), 4)
        both = of_doubts(base, np.zeros(480), group)
        policy = fit_capacity_policy(both.take(group < 60), capacity=0.2, seed=run)
        rejected += shift_test(policy, both.take(group >= 60), level=0.05, seed=run).significant
    assert rejected <= 20  # 0.05 of 200, and chance


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
    for key in list(document):
        lacking = {name: value for name, value in document.items() if name != key}
        with pytest.raises(BadFile):
            Policy.from_json(json.dumps(lacking))
    with pytest.raises(BadFile, match="NaN"):
        Policy.from_json(json.dumps({**document, "threshold": float("nan")}))


def test_multilabel_rows_are_right_as_a_whole():
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 3)) < 0.5).astype(np.int64)
    logits = (6.0 * (2 * labels - 1))[None].astype(np.float32)
    policy = fit_risk_policy(Predictions(logits, labels, "multilabel", kind="cal"), max_risk=0.05)
    applied = apply_policy(policy, Predictions(logits, labels, "multilabel"))
    assert applied.retained_error == 0
    assert applied.predicted[0] == ";".join(str(k) for k in np.flatnonzero(labels[0]))
