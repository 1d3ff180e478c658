"""Methods on a user's own module: the same as on a registered network, and right by their formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.methods import NetworkSpec
from dubio.methods.encoding_cache import encode_split
from dubio.methods.fitting import FitContext, fit_recipe
from dubio.methods.prediction import predict_with
from dubio.training.collectors import KeepAll
from dubio.training.seeds import number
from tests.torch_module.helpers import CONTINUED, ONE_EPOCH, Convnet, dropping, perceptron, pictures, refused, table

EACH = {
    "deterministic": {"epochs": 2},
    "swag": {**CONTINUED, "tail_epochs": 3, "rank": 2, "samples": 3},
    "snapshot-ensemble": {"epochs": 4, "cycles": 2},
    "fge": {**CONTINUED, "cycles": 2},
    "swa": {**CONTINUED, "tail_epochs": 2},
    "csgld": {"epochs": 4, "cycles": 2, "samples_per_cycle": 1, "sampling_epochs": 1},
    "csghmc": {"epochs": 4, "cycles": 2, "samples_per_cycle": 1, "sampling_epochs": 1},
    "laplace": {"epochs": 2, "samples": 3, "structure": "last-kron"},
    "posthoc": {"epochs": 2},
    "vbll": {"epochs": 2, "samples": 3},
}


@pytest.mark.parametrize("name", EACH)
def test_it_is_the_fit_of_a_registered_network_of_the_same_layers(name):
    inputs, labels = table()
    cuts = {"train": slice(0, 36), "val": slice(36, 48), "id": slice(48, 60)}
    splits = {kind: Split.of(kind, kind, Examples(inputs[c], labels[c])) for kind, c in cuts.items()}
    card = SourceCard("made", "1", "none", "none")
    task = Task("table", "table", "multiclass", ("a", "b", "c"), tuple(splits.values()), card)
    recipe = METHODS.make(name, **EACH[name])
    theirs = fit_recipe(recipe, task, NetworkSpec("mlp", {"hidden": (8,)}), seed=3, context=FitContext())
    encoding = encoding_for("table", {})
    rows = {kind: encode_split(encoding, splits["train"], split) for kind, split in splits.items()}
    facts = {"target": "multiclass", "classes": task.classes}
    wanted = predict_with(theirs, rows["id"], splits["id"], facts, seed=number(3, 0, "prediction"))

    data = {kind: (rows[kind].values, labels[cuts[kind]]) for kind in ("train", "val")}
    ours = dubio.fit(name, network=perceptron, **data, seed=3, **EACH[name])
    weights, their_weights = ours.members[0].tensors(), theirs.tensors()
    assert weights.keys() == {key.replace("stages.0.linear", "stages.0.module.0") for key in their_weights}
    for key, tensor in their_weights.items():
        assert torch.equal(weights[key.replace("stages.0.linear", "stages.0.module.0")], tensor), key
    found = ours.predict((rows["id"].values, labels[cuts["id"]]))
    # several states of a registered network are stacked, those of a module run one by one
    np.testing.assert_allclose(found.logits, wanted.logits, atol=1e-6)
    assert found.scores.keys() == wanted.scores.keys()
    for score, values in wanted.scores.items():
        np.testing.assert_allclose(found.scores[score], values, rtol=1e-5, atol=1e-5)


def test_a_module_without_a_plain_last_layer_has_no_features_to_score():
    needs = "plain dense one with a bias, behind which the features end"
    behind, unbiased = nn.Sequential(nn.Linear(4, 3), nn.Hardtanh()), nn.Sequential(nn.Linear(4, 3, bias=False))
    for module, reason in ((behind, "the module's outputs are not those of layer '0'"), (unbiased, "'0' has no bias")):
        with pytest.raises(dubio.UserError, match=f"{needs}; .*{reason}"):
            dubio.fit("posthoc", network=module, train=table(), epochs=1)
    with pytest.raises(dubio.UserError, match=r"'ddu' cannot be used on your own module: .*spectral_norm") as refusal:
        dubio.fit("ddu", network=perceptron, train=table(), epochs=1)
    assert "gp-head" not in str(refusal.value)  # it is refused there, too


def test_a_variational_last_layer_is_around_the_modules_own():
    module = perceptron()
    fitted = dubio.fit("vbll", network=module, train=table(), epochs=0, samples=4)
    (state,) = fitted.state_dicts()
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    told = {"network": lambda: nn.Sequential(nn.Linear(4, 3), nn.Hardtanh()), "train": table()}
    with pytest.raises(dubio.UserError, match=r"around the last layer, an nn\.Linear .* not those of layer '0'"):
        dubio.fit("vbll", **told, epochs=1)
    with pytest.raises(dubio.UserError, match=r"its head \(RandomFeatureGPHead\) would have to replace your"):
        dubio.fit("gp-head", network=perceptron, train=table(), epochs=1)


def test_a_variational_last_layer_on_frozen_features_is_all_that_is_trained():
    module = perceptron()
    module[0].requires_grad_(False)
    fitted = dubio.fit("vbll", network=module, train=table(), epochs=3, batch=8, samples=2, covariance="diagonal")
    (state,) = fitted.state_dicts()
    assert torch.equal(state["0.weight"], module[0].weight)
    assert not torch.equal(state["2.weight"], module[2].weight)
    assert fitted.records[0]["parameters"] == (8 + 1) * 3 * 2 + 3


def test_adapters_added_to_the_weights_are_a_module_of_the_same_layers():
    module, (inputs, labels) = perceptron(), table()
    told = {"train": (inputs, labels), "rank": 2, "epochs": 3, "batch": 8, "lr": 0.05}
    fitted = dubio.fit("lora", network=module, **told)
    assert fitted.records[0]["parameters"] == 2 * (4 + 8) + (8 + 1) * 3
    (state,) = fitted.state_dicts()
    assert torch.equal(state["0.bias"], module[0].bias)
    assert np.linalg.matrix_rank((state["0.weight"] - module[0].weight).detach().numpy(), tol=1e-4) == 2
    other = perceptron()
    other.load_state_dict(state)
    with torch.inference_mode():
        logits = other(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(fitted.predict((inputs, labels)).logits[0], logits, atol=1e-5)
    gaussian = dubio.fit("lora-laplace", network=module, **told, samples=3)
    assert gaussian.samples == len(list(gaussian.state_dicts())) == 3
    record = gaussian.records[0]["laplace"]
    assert record["random"] == [
        "head.linear.bias", "head.linear.weight",
        "network.stages.0.module.0.down.weight", "network.stages.0.module.0.up.weight",
    ]  # fmt: skip


def test_a_module_without_a_dense_layer_before_the_last_has_no_adapters():
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    with pytest.raises(dubio.UserError, match=r"your own module its nn\.Linear layers before the last one"):
        dubio.fit("lora", network=images, train=pictures(), epochs=1)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ([nn.Linear(8, 3, bias=False)], "layer '2' has no bias"),
        ([nn.Linear(8, 3), nn.ReLU()], "the module's outputs are not those of layer '2', the last nn.Linear that it"),
    ],
)
def test_adapters_need_a_last_layer_that_is_trained_in_full(last, words):
    """The last layer was frozen and had an adapter, without a word."""
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *last)
    for method in ("lora", "lora-laplace"):
        with pytest.raises(dubio.UserError, match=r"^lora: needs a last nn\.Linear, .* in full; ") as refusal:
            dubio.fit(method, network=module, train=table(), rank=2, **ONE_EPOCH)
        assert words in str(refusal.value)


def test_swag_has_the_moments_of_the_snapshots():
    told = {**CONTINUED, "tail_epochs": 4, "tail_lr": 0.05, "rank": 3, "samples": 2}
    recipe = METHODS.make("swag", **told)
    data = {"train": table(), "val": table(20, 1)}
    snapshots = dubio.fit(replace(recipe, collect=KeepAll()), network=perceptron, **data)
    weights = [torch.cat([t.double().flatten() for t in state.values()]) for state in snapshots.state_dicts()]
    (member,) = dubio.fit("swag", network=perceptron, **data, **told).members
    gaussian = member.distribution

    def flat(named):
        return torch.cat([t.flatten() for t in named.values()])

    stack = torch.stack(weights)
    assert len(stack) == 4
    torch.testing.assert_close(flat(gaussian.mean), stack.mean(0).float())
    torch.testing.assert_close(flat(gaussian.variance), stack.var(0, correction=0).float())
    # the last three deviations, each from the mean of the snapshots up to it
    for column, k in enumerate((2, 3, 4)):
        deviation = flat({name: t[column] for name, t in gaussian.deviations.items()})
        torch.testing.assert_close(deviation, (stack[k - 1] - stack[:k].mean(0)).float())


@pytest.mark.parametrize("name", ["swag", "laplace", "mc-dropout", "mean-field-vi", "snapshot-ensemble"])
def test_a_convnet_with_batch_norm_and_dropout(name):
    more = {
        "swag": {**CONTINUED, "tail_epochs": 2, "samples": 2},
        "laplace": {"epochs": 1, "samples": 2, "scale": 1.0},
        "mc-dropout": {"epochs": 1, "samples": 2},
        "mean-field-vi": {"epochs": 1, "start_epochs": 1, "samples": 2},
        "snapshot-ensemble": {"epochs": 2, "cycles": 2},
    }[name]
    told = {"network": Convnet, "train": pictures(), "seed": 1, **more}
    first, again = dubio.fit(name, **told), dubio.fit(name, **told)
    found = first.predict(pictures())
    assert found.logits.shape == (2, 40, 2)
    assert first.samples == 2
    assert not np.array_equal(*found.logits)
    np.testing.assert_array_equal(found.logits, again.predict(pictures()).logits)
    np.testing.assert_allclose(first.probs(pictures()), found.probs)


def test_the_module_is_copied_with_its_weights_and_left_alone():
    module = Convnet()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    generator = torch.random.get_rng_state()
    fitted = dubio.fit("deterministic", network=module, train=pictures(), epochs=2)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert isinstance(module.channels, nn.Dropout2d)
    assert torch.equal(torch.random.get_rng_state(), generator)
    (state,) = fitted.state_dicts()
    assert not torch.equal(state["fc.weight"], before["fc.weight"])
    module.load_state_dict(state)
    inputs, _ = pictures()
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(fitted.predict(inputs).logits[0], wanted, atol=1e-6)
    # no epoch at all leaves the weights as they were given
    (same,) = dubio.fit("deterministic", network=module, train=pictures(), epochs=0).state_dicts()
    assert all(torch.equal(same[name], tensor) for name, tensor in module.state_dict().items())


def test_a_deep_ensemble_is_its_members_and_needs_a_function():
    told = {"train": table(), "val": table(20, 1), "epochs": 2}
    three = dubio.fit("deep-ensemble", network=perceptron, members=3, **told).predict(table())
    single = dubio.fit("deterministic", network=perceptron, **told).predict(table())
    np.testing.assert_array_equal(three.logits[:1], single.logits)
    assert three.member.tolist() == [0, 1, 2]
    assert not np.array_equal(three.logits[0], three.logits[1])
    with pytest.raises(dubio.UserError, match=r"3 independent first weights.*network=lambda"):
        dubio.fit("deep-ensemble", network=perceptron(), members=3, **told)


def test_every_part_of_the_fit_tells_how_far_it_is():
    told = []
    data = {"train": table(), "progress": lambda done, words: told.append((done, words))}
    dubio.fit("swa-ensemble", network=perceptron, members=2, **data, **CONTINUED, tail_epochs=2)
    assert [done for done, _ in told] == pytest.approx([*(k / 8 for k in range(1, 9)), 1.0])
    assert told[-2][1].startswith("fit 4 of 4, epoch 2")
    assert told[-1] == (1.0, "done")


def test_labels_that_do_not_exclude_each_other():
    inputs, labels = table()
    several = np.stack([labels == 0, labels != 1, inputs[:, 3] > 0], axis=1).astype(int)
    fitted = dubio.fit("swag", network=perceptron, train=(inputs, several), target="multilabel", **EACH["swag"])
    found = fitted.predict((inputs, several))
    assert found.target == "multilabel"
    sigmoid = 1.0 / (1.0 + np.exp(-found.logits.astype(float)))
    np.testing.assert_allclose(fitted.probs(inputs), sigmoid.mean(0), atol=1e-6)
    with pytest.raises(dubio.UserError, match="multilabel predictions need labels"):
        fitted.predict(inputs)


def test_views_are_of_images():
    told = {"network": Convnet, "train": pictures(), "epochs": 1, "shift": 1, "views": 3}
    assert dubio.fit("deterministic", **told).samples == 3
    with pytest.raises(dubio.UserError, match="for image inputs; the task has table inputs"):
        dubio.fit("deterministic", network=perceptron, train=table(), epochs=1, shift=1, views=3)


def test_dropout_rates_are_the_modules_own_unless_given():
    told = {"network": dropping(0.25), "train": table(), "epochs": 1, "samples": 2}
    assert dubio.fit("mc-dropout", **told).records[0]["rates"] == {"2": 0.25}
    assert dubio.fit("mc-dropout", p=0.75, **told).records[0]["rates"] == {"2": 0.75}


@pytest.mark.parametrize("seed", [1.5, "1", None, True, -1])
def test_a_seed_is_a_whole_number(seed):
    refused(f"seed: must be a whole number, at least 0; given {seed!r}", seed=seed)


def test_a_seed_may_be_numpys(tmp_path):
    dubio.fit("deterministic", network=perceptron, train=table(), seed=np.int64(3), **ONE_EPOCH).save(tmp_path / "a")
    assert dubio.load_fit(tmp_path / "a", network=perceptron).seed == 3


class Sized(nn.Module):
    def __init__(self, width, *, depth):
        super().__init__()


def test_a_function_that_needs_arguments():
    refused("network: the function is called without arguments, and needs k; .*lambda: MyModule", network=lambda k: k)
    refused("called without arguments, and needs width, depth", network=Sized)
    said = {"network": lambda p=0.5, *more, **named: dropping(p), "train": table(), **ONE_EPOCH}
    assert dubio.fit("deterministic", **said).samples == 1


def test_a_gaussian_needs_two_snapshots():
    words = "swag: tail_epochs must be at least 2: each gives one snapshot, .*; given 1"
    refused(words, "swag", **CONTINUED, tail_epochs=1)
    assert METHODS.make("swa", tail_epochs=1).objective.epochs == 1


def test_too_few_to_hold_some_out():
    inputs, labels = table(3)
    refused("train: 3 examples are too few to hold out a tenth .*; give more, or give val", train=(inputs, labels))
    dubio.fit("deterministic", network=perceptron, train=(inputs, labels), val=table(6), **ONE_EPOCH)


@pytest.mark.parametrize("target", ["multiclass", "ordinal"])
def test_training_examples_of_one_class_are_refused_as_a_run_refuses_them(target):
    inputs, labels = table()
    words = "train: there must be at least two classes; the data has 1: b"
    refused(words, train=(inputs, 0 * labels + 1), target=target, classes=["a", "b", "c"])
    refused(words, train=(inputs, 0 * labels + 1), val=table(), target=target, classes=["a", "b", "c"])


def test_a_label_that_never_occurs_is_no_missing_class():
    inputs, labels = table()
    several = np.stack([labels == 0, labels == 1, np.zeros(len(labels))], axis=1).astype(int)
    dubio.fit("deterministic", network=perceptron, train=(inputs, several), target="multilabel", **ONE_EPOCH)


def test_a_method_without_a_network_is_refused_before_its_arguments_are():
    refused("method 'boosting' cannot be used on your own module: it is an estimator", "boosting", epochs=1)


def test_a_rank_above_a_layers_smaller_side_is_refused_by_its_name():
    words = "layer '0' has 4 inputs and 8 outputs; rank must be at most the smaller side of a layer, 4; given 5"
    refused(words, "lora", rank=5)
    dubio.fit("lora", network=perceptron, train=table(), rank=4, **ONE_EPOCH)


def test_the_number_of_a_layer_may_be_a_number():
    told = {"network": perceptron, "train": table(), **ONE_EPOCH}
    number, text = (dubio.fit("deterministic", store_features=layer, **told).predict(table()) for layer in (0, "0"))
    np.testing.assert_array_equal(number.features, text.features)
    refused("store_features must be .*'last', the number of a layer, or empty.*; given true", store_features=True)
