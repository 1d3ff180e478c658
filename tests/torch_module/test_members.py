"""Ensembles inside a user's own module: where it allows them, and the layer that does not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.core.errors import UserError
from dubio.methods.recipe import Recipe
from dubio.networks.masksembles import Masksembles
from dubio.networks.mimo import MIMO
from dubio.networks.packed import Packed
from dubio.networks.rank_one import RankOne
from dubio.torch_module.wrapped_module import own_name, wrap
from tests.torch_module.helpers import perceptron, pictures, refused, table

NAMES = ("packed-ensemble", "batch-ensemble", "masksembles", "multi-head", "mimo")
SIZES = {"mimo": 3}


class Convnet(nn.Module):
    """Two convolutions, batch-norm and two dense layers, with functional pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.hidden = nn.Linear(36, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        h = nn.functional.max_pool2d(self.second(h).relu(), 2).flatten(1)
        return self.last(self.hidden(h).relu())


@pytest.mark.parametrize("name", NAMES)
def test_members_of_a_module_are_samples_and_are_read_back(name, tmp_path):
    data = pictures()
    fits = [dubio.fit(name, network=Convnet, train=data, epochs=2, seed=1) for _ in range(2)]
    first, again = (fit.predict(*data) for fit in fits)
    members = SIZES.get(name, 4)
    assert first.logits.shape == (members, 40, 2)
    np.testing.assert_array_equal(first.member, np.arange(members))
    np.testing.assert_array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits[0], first.logits[1])
    fits[0].save(tmp_path / "fit.safetensors")
    read = dubio.load_fit(tmp_path / "fit.safetensors", network=Convnet)
    np.testing.assert_array_equal(read.predict(*data).logits, first.logits)
    with pytest.raises(UserError, match="its members share one network"):
        next(iter(fits[0].state_dicts()))


def test_a_layer_that_would_mix_members_is_named():
    def normalised():
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))

    refused("layer '1' is a LayerNorm", "packed-ensemble", network=normalised, train=table(), epochs=1)
    for name in ("batch-ensemble", "masksembles", "multi-head", "mimo"):
        dubio.fit(name, network=normalised, train=table(), epochs=1)


def test_a_forward_that_mixes_channels_is_refused_by_the_layer():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(torch.softmax(self.first(x), dim=1))

    refused("layer 'first' mixes members", "packed-ensemble", network=Mixing, train=table(), epochs=1)


def test_a_forward_that_joins_rows_and_positions_is_refused_by_the_layer():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.last = nn.Linear(2, 4), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.each(x.reshape(-1, 2)).relu().reshape(len(x), -1))

    refused("layer 'each' mixes members", "batch-ensemble", network=Positions, train=table(), epochs=1)


def test_a_forward_with_fixed_widths_is_refused_with_the_reason():
    class Fixed(Convnet):
        def forward(self, x):
            h = nn.functional.max_pool2d(self.second(self.norm(self.first(x))).relu(), 2).reshape(-1, 36)
            return self.last(self.hidden(h).relu())

    refused("with members this one fails", "packed-ensemble", network=Fixed, train=pictures(), epochs=1)


def test_an_embedding_has_no_place_for_several_inputs():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.table(x).mean(dim=1))

    data = np.arange(80).reshape(20, 4) % 5, np.arange(20) % 2
    refused("layer 'table' is an Embedding", "mimo", network=Words, train=data, epochs=1)


class Unordered(nn.Module):
    """Layers in another order than they are called in."""

    def __init__(self):
        super().__init__()
        self.last, self.second, self.first = nn.Linear(8, 3), nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x):
        return self.last(self.second(self.first(x).relu()).relu())


class Parallel(nn.Module):
    """Two layers that read all inputs, or a half each."""

    def __init__(self, inputs=4):
        super().__init__()
        self.inputs = inputs
        self.left, self.right, self.last = nn.Linear(inputs, 8), nn.Linear(inputs, 8), nn.Linear(8, 3)

    def forward(self, x):
        left, right = (x, x) if self.inputs == 4 else x.split(self.inputs, dim=1)
        return self.last((self.left(left) + self.right(right)).relu())


class Residual(nn.Module):
    """The inputs beside the outputs of a layer: their sum or both."""

    def __init__(self, join=torch.add, width=4):
        super().__init__()
        self.join, self.first = join, nn.Linear(4, 4)
        self.second, self.last = nn.Linear(width, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.second(self.join(x, self.first(x))).relu())


class Normalised(nn.Module):
    """Batch-norm of the inputs."""

    def __init__(self):
        super().__init__()
        self.norm, self.first, self.last = nn.BatchNorm1d(4), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.first(self.norm(x)).relu())


@pytest.mark.parametrize("kind", [Unordered, Parallel, lambda: Parallel(2), Normalised])
def test_members_of_a_packed_module_are_modules_with_their_slices(kind):
    inputs = torch.from_numpy(table()[0])
    torch.manual_seed(0)
    packed = wrap(kind(), Recipe("packed", edits=(Packed(2, 2.0),)), inputs).eval()
    with torch.no_grad():
        logits = packed.by_sample(packed(inputs), len(inputs))
    tensors = {own_name(name, packed): tensor for name, tensor in packed.state_dict().items()}
    for member in range(2):
        single = kind().eval()
        own = single.state_dict()
        same = {name: tensor.shape == own[name].shape for name, tensor in tensors.items()}  # of the shared batch-norm
        single.load_state_dict({name: t if same[name] else t.chunk(2)[member] for name, t in tensors.items()})
        with torch.no_grad():
            torch.testing.assert_close(logits[member], single(inputs))


@pytest.mark.parametrize(("kind", "masked"), [(Unordered, {"second", "last"}), (Parallel, {"last"})])
def test_masks_are_on_the_layers_that_read_other_layers(kind, masked):
    model = wrap(kind(), Recipe("masks", edits=(Masksembles(2),)), torch.from_numpy(table()[0]))
    factors = {own_name(path, model) for path, layer in model.named_modules() if isinstance(layer, RankOne)}
    assert factors == {f"{layer}.factors" for layer in masked}


@pytest.mark.parametrize(("kind", "wide"), [(Unordered, {"first"}), (Parallel, {"left", "right"})])
def test_mimo_widens_the_layers_that_read_the_inputs(kind, wide):
    model = wrap(kind(), Recipe("mimo", edits=(MIMO(3),)), torch.from_numpy(table()[0]))
    own = kind().state_dict()
    weights = {own_name(name, model): tensor.shape for name, tensor in model.network.named_parameters(prefix="network")}
    changed = {name: tuple(shape) for name, shape in weights.items() if shape != own[name].shape}
    assert changed == {f"{layer}.weight": (8, 12) for layer in wide}


class Sequences(nn.Module):
    """A dense layer for every step of a sequence, and the mean over steps."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.first(x).relu().mean(dim=1))


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_mimo_lays_the_features_of_each_step_of_a_sequence_side_by_side(steps):
    inputs = torch.randn(7, steps, 5, generator=torch.Generator().manual_seed(0))
    model = wrap(Sequences(), Recipe("mimo", edits=(MIMO(3),)), inputs)
    rows, examples = model.train().network.arrangement(inputs, 7)
    expected = inputs[examples.unflatten(0, (7, 3))].transpose(1, 2).flatten(2)  # [rows, steps, members · features]
    torch.testing.assert_close(rows, expected)
    with torch.no_grad():
        logits = model.eval().by_sample(model(inputs), 7)
        first = model.network.stages[1].module.first
        hidden = (inputs @ first.weight.unflatten(1, (3, 5)).sum(1).T + first.bias).relu().mean(1)
        weights, biases = (t.unflatten(0, (3, 3)) for t in (model.head.linear.weight, model.head.linear.bias))
        for member in range(3):
            torch.testing.assert_close(logits[member], hidden @ weights[member].T + biases[member])


def test_inputs_in_parts_cannot_lie_side_by_side():
    words = "must read them whole; layer 'left' reads a part of them"
    refused(words, "mimo", network=lambda: Parallel(2), train=table(), epochs=1)


def test_inputs_behind_the_first_layer_are_refused():
    told = {"network": Residual, "train": table(), "epochs": 1}
    refused("the inputs or fixed values enter beside them", "packed-ensemble", **told, size=4, alpha=1)
    refused("with members this one fails: RuntimeError: The size of tensor", "packed-ensemble", **told)
    told["network"] = lambda: Residual(lambda *parts: torch.cat(parts, 1), 8)
    refused("with members this one fails", "packed-ensemble", **told, size=2)


@pytest.mark.parametrize("arguments", [{"size": 8}, {"gamma": 2}, {"size": 4, "alpha": 1.0}, {"size": 5, "alpha": 2.5}])
def test_widths_are_those_of_the_module(arguments, tmp_path):
    fitted = dubio.fit("packed-ensemble", network=perceptron, train=table(), epochs=1, **arguments)
    fitted.save(tmp_path / "fit")
    read = dubio.load_fit(tmp_path / "fit", network=perceptron)
    np.testing.assert_array_equal(read.predict(table()).logits, fitted.predict(table()).logits)


def test_a_width_that_does_not_divide_is_that_of_a_layer_of_the_module():
    words = r"^packed: layer '0' has 8 outputs; alpha · outputs must be a multiple of .* = 5, and 2 · 8 is not\.$"
    refused(words, "packed-ensemble", train=table(), size=5)


def frozen(name):
    module = Unordered()
    module.get_submodule(name).requires_grad_(False)
    return module


def scaled(bias=True):
    """A module whose last layer has no bias, or is followed by something."""
    last = nn.Linear(8, 3, bias=bias)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), last, *([nn.Hardtanh()] if bias else []))


@pytest.mark.parametrize("name", ["packed-ensemble", "multi-head", "mimo", "vbll"])
def test_why_the_last_layer_cannot_be_one_per_member(name):
    told = {"method": name, "train": table(), "epochs": 1}
    refused("layer 'last' is frozen", **told, network=lambda: frozen("last"))
    refused("layer '2' has no bias", **told, network=lambda: scaled(bias=False))
    refused("the module's outputs are not those of layer '2', the last nn.Linear", **told, network=scaled)


@pytest.mark.parametrize("name", ["packed-ensemble", "mimo"])
def test_a_frozen_layer_is_refused_as_such(name):
    refused("layer 'first' is frozen", name, network=lambda: frozen("first"), train=table(), epochs=1)


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_do_not_count_are_said_to_of_a_module_alone(name):
    told = {"train": table(), "epochs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dubio.fit(name, network=perceptron, **told)
        if name in ("batch-ensemble", "masksembles"):
            dubio.fit(name, network=perceptron(), **told)
            return
    with pytest.warns(UserWarning, match=f"network: {name} draws new weights for .* layer"):
        dubio.fit(name, network=perceptron(), **told)


def test_inputs_that_cannot_lie_side_by_side_are_refused_in_the_edits_words():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(self.first(x.float()).relu())

    data = np.arange(80).reshape(20, 4) % 5, np.arange(20) % 2
    refused("^mimo: needs inputs .* of numbers, which can be laid side by side", "mimo", network=Counts, train=data)


def test_parameters_outside_of_layers_cannot_be_packed():
    class Shifted(Unordered):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(8))

    words = "packed: the module is a Shifted with parameters outside of its layers"
    refused(words, "packed-ensemble", network=Shifted, train=table())
