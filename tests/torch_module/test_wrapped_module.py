"""Laplace on a user's own module: every structure is right, or refused before anything is trained."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import dubio
from dubio.core.registry import METHODS
from dubio.torch_module.wrapped_module import ModelBuilder
from dubio.training.laplace.curvature import backward_passes
from tests.torch_module.helpers import Mixing, Otherwise, perceptron, table

FAST = {"epochs": 1, "batch": 16, "samples": 2, "scale": 1.0}
STRUCTURES = ["kron", "diag", "last-full", "last-kron", "last-diag"]


def several(data):
    inputs, labels = data
    return inputs, np.stack([labels == 0, labels != 1, inputs[:, 3] > 0], axis=1).astype(int)


def labelled(target):
    return several(table()) if target == "multilabel" else table()


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_of_a_module_that_ends_with_a_dense_layer(structure, target):
    fitted = dubio.fit(
        "laplace", network=perceptron, train=labelled(target), target=target, structure=structure, **FAST
    )
    last = ["head.linear.bias", "head.linear.weight"]
    body = [f"network.stages.0.module.0.{name}" for name in ("bias", "weight")]
    said = fitted.records[0]["laplace"]
    assert said["random"] == (last if structure.startswith("last") else [*last, *body])
    assert np.isfinite(fitted.probs(table()[0])).all()


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_module_that_ends_otherwise(structure, target):
    told = []
    asked = {"network": Otherwise, "train": labelled(target), "target": target, "structure": structure, **FAST}
    if structure.startswith("last-"):
        with pytest.raises(dubio.UserError, match="needs a last layer"):
            dubio.fit("laplace", progress=lambda *words: told.append(words), **asked)
        assert not told
        return
    fitted = dubio.fit("laplace", **asked)
    said = fitted.records[0]["laplace"]
    assert [name.removeprefix("network.stages.0.module.") for name in said["random"]] == [
        "first.bias", "first.weight", "fixed.weight", "last.bias", "last.weight",
    ]  # fmt: skip
    # what is not random stays where the training left it, in all draws
    first, second = fitted.state_dicts()
    same = {name.partition(".")[0] for name in first if torch.equal(first[name], second[name])}
    assert same >= {"unused", "apart", "turned", "flat", "warmth"}
    assert torch.equal(first["fixed.bias"], second["fixed.bias"])
    assert not torch.equal(first["fixed.weight"], second["fixed.weight"])


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_the_diagonal_of_such_a_module_is_that_of_its_jacobians(target):
    data = labelled(target)
    still = {**FAST, "scale": 1e-12}  # draws are where the curvature was taken
    fitted = dubio.fit("laplace", network=Otherwise, train=data, val=data, target=target, structure="diag", **still)
    state = next(fitted.state_dicts())
    module, inputs = Otherwise().eval(), torch.from_numpy(data[0])

    def logits(weight):
        return functional_call(module, {**state, "fixed.weight": weight}, (inputs,))

    jacobian, z = torch.func.jacrev(logits)(state["fixed.weight"]), logits(state["fixed.weight"])
    if target == "multilabel":
        curvature = torch.diag_embed(z.sigmoid() * (1 - z.sigmoid()))
    else:
        p = z.softmax(1)
        curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    wanted = torch.einsum("nkij,nkl,nlij->ij", jacobian, curvature, jacobian)
    blocks = fitted.members[0].plain.distribution.blocks
    (block,) = [b for b in blocks if b.matrix.weight.endswith("fixed.weight")]
    torch.testing.assert_close(block.precision(0.0).reshape(8, 8).float(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_module_without_such_layers_is_refused_before_anything_is_trained(structure):
    told = []
    with pytest.raises(dubio.UserError, match=r"no layer's weights could be random|needs a last layer"):
        dubio.fit(
            "laplace", network=Mixing, train=table(), structure=structure,
            progress=lambda *words: told.append(words), **FAST,
        )  # fmt: skip
    assert not told


def test_too_large_a_last_layer_is_refused_before_anything_is_trained():
    told = []
    wide = nn.Sequential(nn.Linear(4, 2731), nn.ReLU(), nn.Linear(2731, 3))
    asked = {"network": wide, "train": table(), "progress": lambda *words: told.append(words), **FAST}
    with pytest.raises(dubio.UserError, match="3 × 2732 = 8196"):
        dubio.fit("laplace", structure="last-full", **asked)
    assert not told
    dubio.fit("laplace", structure="last-diag", **asked)
    assert told


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
@pytest.mark.parametrize("source", [perceptron, Otherwise])
def test_the_cost_of_a_head_without_a_layer_is_known(source, target):
    recipe = METHODS.make("laplace", **FAST).for_task("table", target)
    model = ModelBuilder(source, torch.zeros(3, 4), target, 0).model(recipe, 0)
    assert backward_passes(model) == 3
    assert recipe.collect.passes(model, examples=40) == 1 + 2 * 3


def test_more_classes_than_are_summed_over():
    wide = nn.Sequential(nn.Linear(4, 101), nn.Tanh())  # no last layer of its own
    recipe = METHODS.make("laplace", **FAST).for_task("table", "multiclass")
    model = ModelBuilder(wide, torch.zeros(3, 4), "multiclass", 0).model(recipe, 0)
    assert backward_passes(model) == 10
