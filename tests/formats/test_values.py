import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from dubio.core.errors import UserError
from dubio.formats import predictions_from_arrays
from dubio.formats.values import as_logits


def probs_of(array, **more):
    return predictions_from_arrays({"probs": array}, **more).probs


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([np.float16, np.float32, np.float64]))
def test_probabilities_come_back(seed, dtype):
    p = np.random.default_rng(seed).dirichlet([0.3] * 4, 20).astype(dtype)
    wide = p.astype(np.float64)
    wide /= wide.sum(1, keepdims=True)
    assert probs_of(p, tolerance=0.01) == pytest.approx(wide, rel=3e-6, abs=1e-12)
    with np.errstate(divide="ignore"):
        logs = np.log(wide)
    assert predictions_from_arrays({"log_probs": logs}).probs == pytest.approx(wide, rel=3e-6, abs=1e-12)


def test_logits_of_any_size_keep_their_differences():
    small = np.array([[0.1, 0.9], [2.0, -1.0]])
    for shift in (0.0, 1e9, -1e12):
        found = predictions_from_arrays({"logits": small + shift}).probs
        assert found == pytest.approx(softmax(small + shift, axis=1), abs=1e-6)
    single = np.zeros((1, 2, 3), np.float32)
    assert as_logits(single, "logits", "multiclass") is single


def test_shapes():
    p = np.array([0.0, 0.25, 1.0])
    assert probs_of(p) == pytest.approx(np.stack([1 - p, p], 1))
    with np.errstate(divide="ignore"):
        assert predictions_from_arrays({"log_probs": np.log(p)}).probs == pytest.approx(np.stack([1 - p, p], 1))
    z = np.array([-3.0, 0.0, 5.0])
    assert predictions_from_arrays({"logits": z}).probs[:, 1] == pytest.approx(expit(z))
    several = np.stack([np.eye(2), np.eye(2)[::-1]])
    assert probs_of(several) == pytest.approx(np.full((2, 2), 0.5))
    for shape in ((), (2, 2, 2, 2)):
        with pytest.raises(UserError, match="must have shape"):
            probs_of(np.ones(shape))
    with pytest.raises(UserError, match="must not be empty"):
        probs_of(np.ones((0, 3)))
    with pytest.raises(UserError, match="has one class"):
        probs_of(np.ones((3, 1)))


def test_multilabel_values():
    labels = np.array([[1, 0, 1]])
    p = np.array([[0.0, 1.0, 0.3]])
    for arrays in ({"probs": p}, {"log_probs": np.log(np.maximum(p, 1e-320))}):
        found = predictions_from_arrays(arrays, labels=labels, target="multilabel")
        assert found.probs == pytest.approx(p, abs=1e-7)
        assert np.exp(found.log_complements) == pytest.approx(1 - p, abs=1e-7)
    found = predictions_from_arrays({"logits": np.array([[-1.0, 2.0, -np.inf]])}, labels=labels, target="multilabel")
    assert found.probs == pytest.approx(expit([[-1.0, 2.0, -np.inf]]))
    for bad in (np.inf, np.nan, 1e39, -1e39):
        with pytest.raises(UserError, match=r"NaN, .inf or beyond the range of float32; row 0, column 1"):
            predictions_from_arrays({"logits": np.array([[0, bad, 0]])}, labels=labels, target="multilabel")
    with pytest.raises(UserError, match="labels are missing"):
        predictions_from_arrays({"probs": p}, target="multilabel")


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("probs", [0.5, np.nan], "between 0 and 1; row 7, column 1 is nan"),
        ("probs", [1.5, -0.5], "between 0 and 1; row 7, column 0 is 1.5"),
        ("probs", [-0.1, 1.1], "row 7, column 0 is -0.1"),
        ("probs", [np.inf, 0.0], "row 7, column 0 is inf"),
        ("probs", [0.5, 0.4], "sum to one within 0.001; row 7 sums to 0.9"),
        ("probs", [0.0, 0.0], "row 7 sums to 0"),
        ("log_probs", [0.3, -3], "logarithms of probabilities, at most 0; row 7, column 0 is 0.3"),
        ("log_probs", [np.nan, -3], "row 7, column 0 is nan"),
        ("log_probs", [-1.0, -1.0], "row 7 sums to 0.735"),
        ("logits", [np.nan, 0.0], "NaN or .inf; row 7, column 0"),
        ("logits", [0.0, np.inf], "NaN or .inf; row 7, column 1"),
        ("logits", [-np.inf, -np.inf], "-inf for every class; sample 0, row 7"),
    ],
)
def test_what_cannot_be_is_refused_by_row_and_column(name, row, words):
    array = np.tile([0.5, 0.5], (9, 1)) if name == "probs" else np.tile(np.log([0.5, 0.5]), (9, 1))
    array[7] = row
    with pytest.raises(UserError, match=words):
        predictions_from_arrays({name: array})
    deep = np.stack([np.tile(array[0], (9, 1)), array])
    with pytest.raises(UserError, match="sample 1, row 7"):
        predictions_from_arrays({name: deep})


def test_the_tolerance_is_what_is_said_and_rounding_of_softmax_is_let_through():
    assert probs_of([[1.0000005, 0.0]]).tolist() == [[1.0, 0.0]]
    assert probs_of([[0.5, 0.5009]]) == pytest.approx(np.array([[0.5, 0.5009]]) / 1.0009)
    assert probs_of([[0.5, 0.4]], tolerance=0.2) == pytest.approx(np.array([[5, 4]]) / 9)
    with pytest.raises(UserError, match=r"within 0.001"):
        probs_of([[0.5, 0.502]])


@pytest.mark.parametrize(
    "array", [np.array([["a", "b"]]), np.ones((2, 2), bool), np.ones((2, 2), complex), [[None, 1]]]
)
def test_other_types_are_refused(array):
    with pytest.raises(UserError, match=r"probs must be numbers"):
        probs_of(array)


def test_arrays_of_other_frameworks_and_lists_are_taken():
    assert probs_of(torch.tensor([[0.25, 0.75]])) == pytest.approx(np.array([[0.25, 0.75]]))
    assert probs_of([[0.25, 0.75]]) == pytest.approx(np.array([[0.25, 0.75]]))
    with pytest.raises(UserError, match="cannot be turned into a numpy array"):
        probs_of(torch.tensor([[0.25, 0.75]], requires_grad=True))


def two(**more):
    return predictions_from_arrays({"probs": np.full((3, 2), 0.5), **more})


def test_labels():
    assert two().labels.tolist() == [-1, -1, -1]
    assert two(labels=[0, 1, -1]).labels.tolist() == [0, 1, -1]
    assert two(labels=np.array([0.0, 1.0, -1.0])).labels.dtype == np.int64
    assert two(labels=np.array(["b", "a", ""]), classes=["a", "b"]).labels.tolist() == [1, 0, -1]
    assert two(labels=np.array(["1", "0", ""])).labels.tolist() == [1, 0, -1]
    for bad, words in [
        ([0, 1, 2], "between -1 and 1; row 2 is 2"),
        ([0, 1], "must have shape .3,."),
        ([0, 0.5, 1], "whole numbers; row 1 is 0.5"),
        ([0, np.nan, 1], "whole numbers; row 1 is nan"),
        (np.eye(3)[:, :2], "say target .--target. multilabel"),
        (np.array(["x", "y", "z"]), "classes have no names"),
        ([1j, 0, 0], "must be whole numbers"),
    ]:
        with pytest.raises(UserError, match=words):
            two(labels=bad)
    with pytest.raises(UserError, match="row 1 is 'c', which is not a class"):
        two(labels=np.array(["b", "c", "a"]), classes=["a", "b"])
    with pytest.raises(UserError, match="labels are given twice"):
        predictions_from_arrays({"probs": np.full((3, 2), 0.5), "labels": [0, 0, 0]}, labels=[0, 0, 0])
    with pytest.raises(UserError, match="between 0 and 1; row 1 is 2"):
        predictions_from_arrays({"probs": np.full((2, 2), 0.5)}, labels=[[0, 1], [2, 0]], target="multilabel")


def test_what_lies_beside():
    found = two(ids=[3, 1, 2], group=np.array([b"x", b"x", b"y"]), ood=[0, 1, 0], data_variance=np.ones((3, 2)))
    assert found.ids.tolist() == ["3", "1", "2"]
    assert found.group.tolist() == ["x", "x", "y"]
    assert found.ood.tolist() == [False, True, False]
    assert found.data_variance.shape == (1, 3, 2)
    for more, words in [
        ({"ids": ["a", "b", "a"]}, "ids must be unique; 'a' is in rows 0, 2"),
        ({"ids": [1.5, 2, 3]}, "ids must be texts or whole numbers"),
        ({"ood": [0, 2, 1]}, "ood must be true or false .0 or 1.; row 1 is 2"),
        ({"ood": [0, 1]}, "ood must have shape"),
        ({"member": [0, 1]}, "member must have shape"),
        ({"data_variance": -np.ones((3, 2))}, "finite and not negative; at .0, 0, 0."),
        ({"model_variance": np.full(3, np.nan)}, "finite and not negative"),
        ({"classes": ["a", "a"]}, "different names"),
        ({"groups": ["a", "b", "c"]}, "'groups' is not known; did you mean 'group'"),
        ({"Labels": [0, 0, 0]}, "did you mean 'labels'"),
    ]:
        with pytest.raises(UserError, match=words):
            two(**more)
    assert len(two(embeddings=np.ones((3, 8)))) == 3


def test_what_the_numbers_are_is_said_never_guessed():
    p = np.full((2, 2), 0.5)
    with pytest.raises(UserError, match="say what the array 'x' is with values"):
        predictions_from_arrays({"x": p})
    assert len(predictions_from_arrays({"x": p}, values="probs")) == 2
    with pytest.raises(UserError, match="there are probs and logits; say which"):
        predictions_from_arrays({"probs": p, "logits": p})
    chosen = predictions_from_arrays({"probs": p, "logits": np.array([[0.0, 3.0]] * 2)}, values="logits")
    assert chosen.probs[:, 1] == pytest.approx(expit([3.0, 3.0]))
    with pytest.raises(UserError, match=r"called 'probs', and values .--values. says 'logits'"):
        predictions_from_arrays({"probs": p}, values="logits")
    with pytest.raises(UserError, match="no array is called probs, log_probs or logits; found: a, b"):
        predictions_from_arrays({"a": p, "b": p}, values="probs")
    with pytest.raises(UserError, match="Did you mean 'probs'"):
        predictions_from_arrays({"x": p}, values="prob")


@pytest.mark.parametrize("tolerance", [float("nan"), -1.0, 1.0, float("inf")])
def test_a_tolerance_that_cannot_be_is_refused_itself(tolerance):
    """Not the rows, which sum to one."""
    with pytest.raises(UserError, match=r"tolerance \(--tolerance\) must be at least 0 and below 1"):
        predictions_from_arrays({"probs": np.full((3, 2), 0.5), "labels": [0, 1, 0]}, tolerance=tolerance)
