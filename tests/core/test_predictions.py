"""Predictions: values that are refused, rows that are taken, joined and pooled."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join, pool_members
from tests.core.helpers import some_predictions


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN or .inf"), (np.inf, "NaN or .inf")])
def test_bad_logits_are_named_by_place(value, words):
    logits = np.zeros((2, 3, 4), np.float32)
    logits[1, 2, 3] = value
    with pytest.raises(UserError, match=f"{words}; sample 1, row 2, column 3"):
        Predictions(logits, np.zeros(3, int))


def test_a_row_of_zero_probabilities_is_refused_but_a_certain_label_is_not():
    nothing = np.full((1, 1, 2), -np.inf, np.float32)
    with pytest.raises(UserError, match="-inf for every class; sample 0, row 0"):
        Predictions(nothing, np.zeros(1, int))
    none_of_them = Predictions(nothing, np.zeros((1, 2), int), target="multilabel")
    assert none_of_them.probs.tolist() == [[0, 0]]
    all_of_them = Predictions(-nothing, np.ones((1, 2), int), target="multilabel")
    assert all_of_them.probs.tolist() == [[1, 1]]
    with pytest.raises(UserError, match="must not be NaN; sample 0"):
        Predictions(nothing * np.nan, np.zeros((1, 2), int), target="multilabel")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits": np.zeros((3, 4), np.float32)}, "samples, examples, classes"),
        ({"logits": np.zeros((1, 0, 4), np.float32)}, "must not be empty"),
        ({"labels": np.array([0, 1, 2, 0, 3])}, "between -1 and 2; row 4 is 3"),
        ({"labels": np.array([0, -2, 2, 0, 1])}, "row 1 is -2"),
        ({"labels": np.zeros(4, int)}, "labels must have shape"),
        ({"ood": np.zeros(4, bool)}, "ood must have shape"),
        ({"member": np.zeros(3, int)}, "member must have shape"),
        ({"data_variance": np.zeros((2, 5), np.float32)}, "data_variance must have shape"),
        ({"temperature": 0.0}, "temperature must be finite and at least"),
        ({"temperature": float("nan")}, "temperature must be finite and at least"),
        ({"temperature": float("inf")}, "temperature must be finite and at least"),
        ({"classes": ("a", "b")}, "must name 3 classes; given 2"),
        ({"target": "multi-class"}, "Did you mean 'multiclass'"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    with pytest.raises(UserError, match=words):
        replace(some_predictions(), **change)


def test_take_and_labelled_keep_rows_together():
    predictions = some_predictions(ids=np.array(list("abcde")), group=np.array(list("xxyyz")))
    cut = replace(predictions, labels=np.array([0, -1, 2, -1, 1])).labelled
    assert cut.ids.tolist() == ["a", "c", "e"]
    assert cut.group.tolist() == ["x", "y", "z"]
    assert (cut.logits == predictions.logits[:, [0, 2, 4]]).all()
    assert predictions.labelled is predictions


def test_complements_belong_to_labels_only():
    with pytest.raises(UserError, match="defined for multilabel"):
        _ = some_predictions().log_complements


def test_joining_puts_rows_one_after_another_and_refuses_what_differs():
    one, other = some_predictions(1), some_predictions(2, ood=np.ones(5, bool))
    both = join([one, other])
    assert len(both) == 10
    assert both.ood.tolist() == [False] * 5 + [True] * 5
    for wrong in (
        some_predictions(2, samples=3),
        some_predictions(2, classes=4),
        some_predictions(2, temperature=2.0),
        some_predictions(2, member=np.array([0, 1])),
    ):
        with pytest.raises(UserError, match="cannot join"):
            join([one, wrong])
    with pytest.raises(UserError, match="classes is"):
        join([replace(one, classes=tuple("abc")), replace(other, classes=tuple("abd"))])


@pytest.mark.parametrize("name", ["group", "ids"])
@pytest.mark.parametrize("named_first", [True, False])
def test_joining_gives_rows_without_a_name_one_of_their_own(name, named_first):
    names = np.array(["ann", "ann", "row 06", "_row 9", "_row 9"])
    parts = [some_predictions(1, **{name: names}), some_predictions(2)]
    joined = getattr(join(parts if named_first else parts[::-1]), name)
    own, others = (joined[:5], joined[5:]) if named_first else (joined[5:], joined[:5])
    assert own.tolist() == names.tolist()
    assert len(set(others)) == 5
    assert not set(others) & set(own)
    assert sorted(others) == others.tolist()  # in the order of the rows, as without names
    assert getattr(join([some_predictions(1), some_predictions(2)]), name) is None


@pytest.mark.parametrize("more", [{"model_variance": np.ones((2, 5), np.float32)}, {"scores": {"u": np.arange(5.0)}}])
def test_joining_refuses_a_variance_or_score_of_some_parts_only(more):
    (name,) = more
    for parts in (
        [some_predictions(1), some_predictions(2, **more)],
        [some_predictions(2, **more), some_predictions(1)],
    ):
        with pytest.raises(UserError, match="model_variance" if name == "model_variance" else "score 'u'"):
            join(parts)


def test_joining_keeps_the_names_of_classes_that_one_part_has():
    assert join([some_predictions(1), replace(some_predictions(2), classes=tuple("abc"))]).classes == tuple("abc")


def test_pooling_members_pools_probabilities_and_remembers_members():
    one = some_predictions(1)
    other = replace(some_predictions(2, samples=3), labels=one.labels)
    ensemble = pool_members([one, other])
    assert ensemble.member.tolist() == [0, 0, 1, 1, 1]
    assert ensemble.probs == pytest.approx((2 * one.probs + 3 * other.probs) / 5)
    with pytest.raises(UserError, match="different examples"):
        pool_members([one, replace(some_predictions(2), labels=(one.labels + 1) % 3)])
    with pytest.raises(UserError, match="temperature is 1"):
        pool_members([one, replace(other, temperature=2.0)])
    with pytest.raises(UserError, match="model_variance"):
        pool_members([one, replace(other, model_variance=np.ones_like(other.logits))])


def with_columns(seed=0, rows=5):
    site = np.array(list("ababa"))[:rows]
    return some_predictions(seed, columns={"site": site}, scores={"distance": np.arange(rows) / 7})


def test_the_own_score_of_an_ensemble_is_its_mean_over_members():
    one, other = (some_predictions(1, scores={"distance": np.arange(5) * factor}) for factor in (1.0, 4.0))
    pooled = pool_members([one, other])
    assert pooled.scores["distance"].tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]
    with pytest.raises(UserError, match="only some of them have score 'distance'"):
        pool_members([one, some_predictions(1)])


def test_features_follow_their_rows_and_members():
    features = np.arange(2 * 5 * 3, dtype=np.float16).reshape(2, 5, 3)
    predictions = some_predictions(1, features=features)
    np.testing.assert_array_equal(predictions.take(np.array([3, 0])).features, features[:, [3, 0]])
    assert join([predictions, predictions]).features.shape == (2, 10, 3)
    assert pool_members([predictions, predictions]).features.shape == (4, 5, 3)
    assert predictions.take_samples(np.array([0])).features is None
    with pytest.raises(UserError, match=r"features must have shape \(states, 5, width\)"):
        some_predictions(1, features=features[:, :4])


def test_columns_and_scores_follow_their_rows():
    predictions = with_columns()
    for taken in (predictions.take(np.array([3, 0])), predictions.take(np.array([False, True, False, False, True]))):
        assert len(taken.columns["site"]) == len(taken.scores["distance"]) == 2
    assert predictions.take(np.array([3, 0])).columns["site"].tolist() == ["b", "a"]
    assert predictions.take(np.array([2, 3])).scores["distance"].tolist() == [2 / 7, 3 / 7]
    both = join([predictions, with_columns(1)])
    assert both.columns["site"].tolist() == list("ababaababa")
    assert both.scores["distance"].shape == (10,)
    assert join([predictions, some_predictions(1, scores=predictions.scores)]).columns["site"].tolist() == [
        *"ababa",
        *[""] * 5,
    ]
    assert pool_members([predictions, predictions]).columns["site"].tolist() == list("ababa")


def test_columns_and_scores_of_another_length_or_not_finite_are_refused():
    with pytest.raises(UserError, match="column 'site' must have shape"):
        some_predictions(columns={"site": np.array(["a"])})
    with pytest.raises(UserError, match="score 'u' must have shape"):
        some_predictions(scores={"u": np.zeros(4)})
    with pytest.raises(UserError, match="score 'u' must be finite; row 2"):
        some_predictions(scores={"u": np.array([0, 1, np.nan, 3, 4])})


def test_logits_of_taken_and_joined_rows_are_copied_when_they_are_read():
    predictions = some_predictions(rows=5)
    taken = predictions.take(np.array([4, 1]))
    assert (taken.samples, len(taken), taken.class_count) == (2, 2, 3)
    joined = join([taken, predictions])
    assert joined.class_count == 3
    assert (joined.logits == predictions.logits[:, [4, 1, 0, 1, 2, 3, 4]]).all()
    assert np.shares_memory(predictions.take(np.array([1, 2])).logits, predictions.logits)
    assert np.shares_memory(predictions.as_ood().logits, predictions.logits)
    assert joined.logits is joined.logits


def test_rows_taken_and_joined_survive_pickling():
    whole = some_predictions(seed=4)
    for predictions in (whole.take(np.array([2, 0])), join([whole, whole.take(np.array([1]))])):
        again = pickle.loads(pickle.dumps(predictions))
        np.testing.assert_array_equal(again.logits, predictions.logits)
        np.testing.assert_array_equal(again.labels, predictions.labels)
        np.testing.assert_array_equal(again.probs, predictions.probs)
