"""Low-rank adapters against the merged layer, and their curvature against the Gauss–Newton matrix by brute force."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.networks.heads.linear import Softmax
from dubio.networks.lora import Adapted, LowRankAdapters, adapted_layers, merged_state
from dubio.networks.mlp import mlp
from dubio.networks.network import Model, Network, Stage
from dubio.networks.spectral import SpectralNorm
from dubio.training.collectors import FinishContext
from dubio.training.laplace.structures import curvature_blocks
from tests.networks.helpers import CPU, normals, seeded

INPUTS, HIDDEN, CLASSES, RANK, ALPHA = 5, 6, 3, 2, 3.0


class TwoLayers(Stage):
    """A network that offers its second layer, and acts on every position of ``[B, T, inputs]``."""

    adapts = ("second",)

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h):
        h = torch.tanh(self.second(torch.tanh(self.first(h))))
        return h if h.ndim == 2 else h.mean(1)


def plain():
    return seeded(lambda: Model(Network([TwoLayers()], HIDDEN), Softmax().build(HIDDEN, CLASSES)))


def adapted(up=0.0):
    model = plain()
    seeded(lambda: LowRankAdapters(RANK, ALPHA).apply(model), seed=2)
    with torch.no_grad():
        for layer in (m for m in model.modules() if isinstance(m, Adapted)):
            layer.up.weight.copy_(up * normals(*layer.up.weight.shape, seed=3))
    return model.eval()


def test_it_starts_as_the_network():
    batch = normals(7, INPUTS)
    assert torch.equal(adapted()(batch), plain().eval()(batch))


def test_the_change_is_that_of_the_merged_weights():
    model, batch = adapted(up=1.0), normals(7, INPUTS)
    layer = model.network.stages[0].second
    weight = layer.weight + ALPHA / RANK * layer.up.weight @ layer.down.weight
    by_hand = torch.tanh(torch.tanh(model.network.stages[0].first(batch)) @ weight.T + layer.bias)
    torch.testing.assert_close(model.network(batch), by_hand, atol=1e-6, rtol=1e-6)
    merged = plain().eval()
    merged.load_state_dict(merged_state(model, model.state_dict()))
    torch.testing.assert_close(merged(batch), model(batch), atol=1e-6, rtol=1e-6)
    assert not torch.allclose(plain().eval()(batch), model(batch), atol=1e-2)


def test_only_adapters_and_the_head_are_trained():
    model = adapted()
    assert model.parameter_count() == RANK * (HIDDEN + HIDDEN) + (HIDDEN + 1) * CLASSES
    before = {name: p.clone() for name, p in model.named_parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.1)
    for _ in range(2):  # A has no gradient while B is 0
        optimiser.zero_grad()
        model.loss(normals(8, INPUTS), torch.arange(8) % CLASSES).mean().backward()
        optimiser.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    stem = "network.stages.0.second"
    assert changed == {f"{stem}.down.weight", f"{stem}.up.weight", "head.linear.weight", "head.linear.bias"}


def test_what_cannot_have_adapters_is_refused():
    network = mlp((INPUTS,), hidden=(HIDDEN,))
    with pytest.raises(UserError, match="this network offers no layer for low-rank adapters: bert offers"):
        LowRankAdapters().apply(Model(network, Softmax().build(HIDDEN, CLASSES)))
    bounded = plain()
    bounded.network.stages[0].bounds = ("second",)
    SpectralNorm(1.0).apply(bounded)
    with pytest.raises(UserError, match=r"network.stages.0.second is a Parametrized\w+; adapters need plain dense"):
        LowRankAdapters(2).apply(bounded)


def test_layers_are_named_by_their_stages():
    assert [path for path, _ in adapted_layers(plain().network, "network")] == ["network.stages.0.second"]


def gauss_newton(model, inputs):
    """N·F of all trained weights by brute force, Σ_n J_nᵀ (diag p − p pᵀ) J_n, by pairs of names."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    jacobians = jacrev(lambda weights: functional_call(model, weights, (inputs,)))(trained)
    flat = torch.cat([jacobian.flatten(2) for jacobian in jacobians.values()], dim=2)
    p = torch.softmax(model(inputs), dim=1).detach()
    hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    total = torch.einsum("nkp,nkl,nlq->pq", flat, hessian, flat)
    sizes = [tensor.numel() for tensor in trained.values()]
    rows = [dict(zip(trained, strip.split(sizes, dim=1), strict=True)) for strip in total.split(sizes, dim=0)]
    return dict(zip(trained, rows, strict=True))


def blocks_of(model, inputs, structure):
    labels = np.arange(len(inputs)) % CLASSES
    data = LabelledRows(ArrayRows(inputs.numpy()), labels.astype(np.int64), CLASSES)
    curvature = curvature_blocks(model, structure, "exact", FinishContext(data, data, CPU, 0, 4))
    return {block.matrix.weight: block for block in curvature.blocks}


@pytest.mark.parametrize("shape", [(9, INPUTS), (9, 4, INPUTS)], ids=["rows", "positions"])
def test_the_diagonal_curvature_of_adapters_is_that_of_the_gauss_newton_matrix(shape):
    model, inputs = adapted(up=1.0), normals(*shape)
    exact, blocks = gauss_newton(model, inputs), blocks_of(model, inputs, "diag")
    stem = "network.stages.0.second"
    assert blocks.keys() == {f"{stem}.down.weight", f"{stem}.up.weight", "head.linear.weight"}
    for name in (f"{stem}.down.weight", f"{stem}.up.weight"):
        wanted = exact[name][name].diagonal().reshape(blocks[name].matrix.size)
        torch.testing.assert_close(blocks[name].precision(0.5).float(), wanted + 0.5, rtol=1e-4, atol=1e-5)


def test_the_kronecker_curvature_of_adapters_is_exact_for_one_example():
    model, inputs = adapted(up=1.0), normals(1, INPUTS)
    exact, blocks = gauss_newton(model, inputs), blocks_of(model, inputs, "kron")
    for name in ("network.stages.0.second.down.weight", "network.stages.0.second.up.weight"):
        block, precision = blocks[name], blocks[name].precision(0.5)
        units = torch.eye(precision.numel()).reshape(-1, *block.matrix.size)
        rotation = torch.stack([block.rotated(unit).flatten() for unit in units], dim=1)
        dense = rotation @ torch.diag(precision.flatten().float()) @ rotation.T
        wanted = exact[name][name] + 0.5 * torch.eye(precision.numel())
        torch.testing.assert_close(dense, wanted, rtol=1e-3, atol=1e-4)


def test_a_rank_above_the_smaller_side_is_refused_by_the_layer():
    with pytest.raises(UserError, match=r"stages\.0\.second has 6 inputs and 6 outputs; rank must be .* 6; given 7"):
        LowRankAdapters(7).apply(plain())
    LowRankAdapters(6).apply(plain())
