"""Files of fits that are not what they should be: refused by name, with what is expected, and never executed."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.formats import read_tensors, write_tensors
from dubio.torch_module.fit_file import KEY
from tests.torch_module.helpers import CONTINUED, Convnet, perceptron, pictures

KINDS = {
    "deterministic": {"epochs": 1},
    "snapshot-ensemble": {"epochs": 2, "cycles": 2},
    "swag": {**CONTINUED, "epochs": 1, "tail_epochs": 3, "rank": 2, "samples": 2},
    "laplace": {"epochs": 1, "samples": 2, "scale": 1.0, "structure": "kron"},
    "posthoc": {"epochs": 1},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of each kind of posterior, of a module with batch-norm."""
    folder = tmp_path_factory.mktemp("fits")
    for name, told in KINDS.items():
        dubio.fit(name, network=Convnet, train=pictures(), **told).save(folder / f"{name}.safetensors")
    return folder


def altered(saved, tmp_path, name, change):
    """A copy of a file with other tensors or another header."""
    tensors, header = read_tensors(saved / f"{name}.safetensors")
    named, said = {key: np.array(value) for key, value in tensors.items()}, json.loads(header[KEY])
    text = change(named, said)
    path = tmp_path / "altered.safetensors"
    write_tensors(path, named, {KEY: json.dumps(said) if text is None else text})
    return path


def refused(path, words, network=Convnet):
    with pytest.raises(dubio.BadFile, match=words) as refusal:
        dubio.load_fit(path, network=network)
    assert "altered.safetensors" in str(refusal.value)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_whole_is_read(saved, tmp_path, name):
    again = dubio.load_fit(altered(saved, tmp_path, name, lambda named, said: None), network=Convnet)
    wanted = dubio.load_fit(saved / f"{name}.safetensors", network=Convnet).predict(pictures())
    np.testing.assert_array_equal(again.predict(pictures()).logits, wanted.logits)
    for score, values in wanted.scores.items():
        np.testing.assert_array_equal(again.predict(pictures()).scores[score], values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n, s: "{", "is not JSON"),
        (lambda n, s: "[" * 100_000, "nested deeper than 100 levels"),
        (lambda n, s: "[1]", r"header must be .*given \[1\]"),
        (lambda n, s: "{}", "schema None; this dubio reads up to 1"),
        (lambda n, s: s.update(schema=2), "schema 2; this dubio reads up to 1"),
        (lambda n, s: s.pop("recipe") and None, "needs the field 'recipe'"),
        (lambda n, s: s.update(recipe={"part": "unheard", "version": 1}), "'recipe' .* unknown part 'unheard'"),
        (lambda n, s: s.update(recipe={"part": "recipe"}), "'recipe' .* cannot be read: there is no 'version'"),
        (lambda n, s: s["recipe"].update(members=0), "'recipe' .* members must be .* at least 1"),
        (lambda n, s: s["recipe"].update(colour="red"), "'recipe' .* cannot be read: TypeError"),
        (lambda n, s: s.update(recipe=s["recipe"]["collect"]), "'recipe' .* is not one for a plain module"),
        (lambda n, s: s.update(classes="ab"), "'classes' must be a list of texts.*given \"ab\""),
        (lambda n, s: s.update(classes=["a", "b", "c"]), "3 names of classes; the module gives 2 logits"),
        (lambda n, s: s.update(target="regression"), "'target' must be one of 'multiclass'"),
        (lambda n, s: s.update(seed=-1), "'seed' .* at least 0; given -1"),
        (lambda n, s: s.update(shape=[1.5]), r"'shape\[0\]' must be a whole number"),
        (lambda n, s: s.update(dtype="object"), "'dtype' .* numeric type"),
        (lambda n, s: s.update(dtype="flot"), "'dtype' .* numeric type"),
        (lambda n, s: s.update(weights={"fc": "big"}), r"'weights\.fc' must be a list of whole numbers"),
        (lambda n, s: s.update(records=[]), "0 records for 1 members"),
        (lambda n, s: s.update(records=[3]), r"'records\[0\]' must be a table"),
    ],
)
def test_a_header_that_is_none(saved, tmp_path, change, words):
    refused(altered(saved, tmp_path, "deterministic", change), words)


def first(named, *words):
    return next(key for key in named if all(word in key for word in words))


def reshape(*words):
    def change(named, said):
        key = first(named, *words)
        named[key] = np.zeros((*named[key].shape, 2), named[key].dtype)

    return change


def shorten(*words):
    def change(named, said):
        named[first(named, *words)] = named[first(named, *words)][:-1]

    return change


def whole_numbers(*words):
    def change(named, said):
        named[first(named, *words)] = named[first(named, *words)].astype(np.int64)

    return change


def drop(*words):
    def change(named, said):
        for key in [key for key in named if all(word in key for word in words)]:
            del named[key]

    return change


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("deterministic", reshape("0:0/", "hidden.weight"), r"hidden.weight has shape \[6, 27, 2\]; .* \[6, 27\]"),
        ("deterministic", reshape("0:0/head.linear.weight"), r"member 0: .*weight state 0: head.linear.weight .*"
         r"\[2, 6, 2\]; it must be \[2, 6\]"),
        ("deterministic", drop("0:0/head.linear.bias"), r"head.linear.bias has shape none; it must be \[2\]"),
        ("deterministic", drop("0:"), "0 weight states; deterministic leaves 1"),
        ("deterministic", whole_numbers("conv.weight"), "conv.weight has type torch.int64; it must be a floating type"),
        ("deterministic", lambda n, s: n.update({"0:0/extra": np.zeros(2)}), r"extra has shape \[2\]; it must be none"),
        ("deterministic", lambda n, s: n.update({"1:0/extra": np.zeros(2)}), "unexpected tensor '1:0/extra'"),
        ("deterministic", lambda n, s: n.update({"stray": np.zeros(2)}), "unexpected tensor 'stray'"),
        ("deterministic", lambda n, s: n.update({"0:stray/x": np.zeros(2)}), "not what deterministic leaves"),
        ("snapshot-ensemble", drop("0:1/"), "1 weight states; snapshot-ensemble leaves 2"),
        ("swag", drop("0:seed"), "there is no 'seed'"),
        ("swag", drop("distribution/variance/head.linear.bias"), r"variance: head.linear.bias has shape none"),
        ("swag", reshape("distribution/deviations/head.linear.bias"), "deviation 0: head.linear.bias has shape"),
        ("swag", drop("draw/1/"), "draw 1: .*norm.* has shape none"),
        ("swag", drop("distribution/deviations"), "not what swag leaves"),
        ("swag", reshape("draw/0/", "running_mean"), r"running_mean has shape \[3, 2\]; it must be \[3\]"),
        ("laplace", drop("distribution/prior"), "there is no 'prior'"),
        ("laplace", reshape("distribution/point/head.linear.weight"), "not what laplace leaves|head.linear.weight"),
        ("laplace", shorten("block/head.linear.weight/inputs"), r"block of head.linear.weight .* must be \(2, 7\)"),
        ("laplace", drop("block/head.linear.weight/output_values"), "output_values"),
        ("laplace", drop("block/head.linear.weight/"), "head.linear.(weight|bias)"),
        ("posthoc", drop("score/vim/origin"), "there is no 'origin'"),
        ("posthoc", reshape("score/knn/bank"), "not what posthoc leaves"),
        ("posthoc", shorten("score/mahalanobis/root"), "not what posthoc leaves"),
        ("posthoc", lambda n, s: n.update({"0:score/other/x": np.zeros(2)}), "unexpected tensor 'score/other/x'"),
    ],
)  # fmt: skip
def test_tensors_that_are_not_what_the_fit_left(saved, tmp_path, name, change, words):
    refused(altered(saved, tmp_path, name, change), words)


class Boom:
    """What unpickling would run."""

    def __reduce__(self):
        return (exec, ("raise AssertionError('executed')",))


def test_other_files_are_refused_and_nothing_in_them_is_run(tmp_path):
    path = tmp_path / "altered.safetensors"
    for content in (b"", b"{}", pickle.dumps(Boom()), b"\x08\x00\x00\x00\x00\x00\x00\x00not json", b"\xff" * 64):
        path.write_bytes(content)
        refused(path, "is not a safetensors file")
    torch.save({"weights": Boom()}, path)
    refused(path, "is not a safetensors file")
    path.unlink()
    refused(path, "cannot be read")


def test_a_file_cut_short_is_refused(saved, tmp_path):
    path = tmp_path / "altered.safetensors"
    path.write_bytes((saved / "swag.safetensors").read_bytes()[:-8])
    refused(path, "truncated")


def test_another_module_is_the_users_mistake_not_the_files(saved):
    with pytest.raises(dubio.UserError, match="not the module that was fitted") as refusal:
        dubio.load_fit(saved / "swag.safetensors", network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 2)))
    assert not isinstance(refusal.value, dubio.BadFile)
    with pytest.raises(dubio.UserError, match="fails on a batch"):
        dubio.load_fit(saved / "swag.safetensors", network=perceptron)
