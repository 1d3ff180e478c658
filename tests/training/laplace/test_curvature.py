"""Curvature against brute force: Jacobians, exact Hessians, sums position by position."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows, TokenRows
from dubio.inference.batches import LabelledRows, collate
from dubio.networks.cnn import cnn
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Sigmoid, Softmax
from dubio.networks.linear_maps import linear_maps
from dubio.networks.mlp import mlp
from dubio.networks.network import Model, Network
from dubio.networks.textcnn import textcnn
from dubio.networks.textcnn_v2 import textcnn_v2
from dubio.training.laplace import curvature
from dubio.training.laplace.curvature import (
    diagonal,
    hessian,
    hessian_diagonal,
    hessian_sum,
    kronecker,
    link_of,
    passed_once,
    roots,
    sampled_roots,
)
from dubio.training.laplace.structures import (
    LAST,
    check_structure,
    last_diagonal,
    last_full,
    last_kronecker,
    last_layer,
)

CPU = torch.device("cpu")
HEADS = {"softmax": Softmax(), "sigmoid": Sigmoid()}


def model_of(network, head="softmax", classes=3):
    return Model(network, HEADS[head].build(network.width, classes)).eval()


def labelled(inputs, head="softmax", classes=3, seed=0):
    shape = (len(inputs),) if head == "softmax" else (len(inputs), classes)
    labels = np.random.default_rng(seed).integers(0, classes if head == "softmax" else 2, size=shape)
    return LabelledRows(inputs if isinstance(inputs, TokenRows) else ArrayRows(inputs), labels, classes)


def rows(count, *shape, seed=1):
    return np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32)


def texts(*lengths, words=12, seed=2):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, words, size=sum(lengths)).astype(np.int32)
    return TokenRows(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def dense_fisher(model, matrix, data):
    """Mean Σ J ᵀ Λ J over the examples in the matrix's weights, by Jacobians one example at a time."""
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    link, total = link_of(model.head), 0.0
    for i in range(len(data.encoded)):
        batch = collate(data.encoded, np.array([i]))

        def logits(weights, batch=batch):
            return functional_call(model, {**state, **matrix.scatter(weights)}, (batch,))[0]

        at = matrix.gather(state)
        jacobian = torch.autograd.functional.jacobian(logits, at).reshape(-1, at.numel()).double()
        total = total + jacobian.T @ hessian(logits(at)[None], link)[0].double() @ jacobian
    return total / len(data.encoded)


def close(found, wanted, tolerance=1e-5):
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=tolerance * wanted.abs().max())


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_roots_add_up_to_the_hessian_of_the_likelihood_in_the_logits(link):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    label = torch.tensor([1, 0, 3, 2, 2]) if link == "softmax" else torch.tensor([[1, 0, 0, 1]] * 5).double()
    loss = nn.functional.cross_entropy if link == "softmax" else nn.functional.binary_cross_entropy_with_logits
    each = [
        torch.autograd.functional.hessian(lambda z, i=i: loss(z[None], label[i : i + 1], reduction="sum"), logits[i])
        for i in range(5)
    ]
    close(hessian(logits, link), torch.stack(each), 1e-12)
    found = sum(s[:, :, None] * s[:, None, :] for s in roots(logits, link))
    close(found, hessian(logits, link), 1e-12)
    close(hessian_sum(logits, link), sum(each), 1e-12)
    close(hessian_diagonal(logits, link), torch.stack([one.diagonal() for one in each]), 1e-12)


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_drawn_labels_give_the_same_in_expectation(link):
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.5, -0.5]])
    drawn = sampled_roots(logits, link, 40_000, torch.Generator().manual_seed(0))
    found = sum(s[:, :, None] * s[:, None, :] for s in drawn)
    torch.testing.assert_close(found, hessian(logits, link), atol=0.01, rtol=0)  # 5 standard errors


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_of_a_logistic_regression_the_last_layer_is_the_exact_hessian(head):
    model, data = model_of(Network([nn.Identity()], 4), head), labelled(rows(30, 4), head)
    x, y = torch.from_numpy(rows(30, 4)).double(), torch.from_numpy(data.labels)
    matrix = last_layer(model)[LAST]

    def loss(flat):
        weights = flat.reshape(matrix.size)
        z = x @ weights[:, :-1].T + weights[:, -1]
        if head == "softmax":
            return nn.functional.cross_entropy(z, y)
        return nn.functional.binary_cross_entropy_with_logits(z, y.double(), reduction="sum") / len(x)

    at = matrix.gather(dict(model.named_parameters())).detach().double().flatten()
    exact = torch.autograd.functional.hessian(loss, at)
    found, likelihood = last_full(model, data, device=CPU)
    close(found, exact)
    assert likelihood == pytest.approx(-float(loss(at)) * len(x), rel=1e-5)
    diagonals, _ = last_diagonal(model, data, device=CPU)
    close(diagonals[LAST].flatten(), exact.diagonal())


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_the_last_layer_alone_is_what_the_backward_passes_give(head):
    model, data = model_of(mlp((4,), hidden=(5,)), head), labelled(rows(20, 4), head)
    layers = last_layer(model)
    factors, likelihood = last_kronecker(model, data, device=CPU)
    passed, again = kronecker(model, layers, data, batch=7, device=CPU, seed=0)
    close(factors[LAST].inputs, passed[LAST].inputs)
    close(factors[LAST].outputs, passed[LAST].outputs)
    assert likelihood == pytest.approx(again)
    by_passes = diagonal(model, layers, data, batch=7, device=CPU, seed=0)[0]
    close(last_diagonal(model, data, device=CPU)[0][LAST], by_passes[LAST])
    close(last_full(model, data, device=CPU)[0], dense_fisher(model, layers[LAST], data))


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_of_one_example_kronecker_factors_are_exact(head):
    model, data = model_of(mlp((4,), hidden=(5, 6)), head), labelled(rows(1, 4), head)
    layers = linear_maps(model)
    assert len(layers) == 3
    factors, _ = kronecker(model, layers, data, batch=8, device=CPU, seed=0)
    for path, matrix in layers.items():
        close(torch.kron(factors[path].outputs, factors[path].inputs), dense_fisher(model, matrix, data))


def test_of_a_deep_linear_network_kronecker_factors_are_exact_where_gradients_do_not_depend_on_inputs():
    model = model_of(Network([nn.Linear(7, 5)], 5))
    first, last = model.network.stages[0].weight, model.head.linear.weight
    free = torch.linalg.svd(last.detach() @ first.detach())[2][3:]  # inputs that change no logit
    inputs = rows(1, 7) + rows(40, 4) @ free.numpy()
    data = labelled(inputs.astype(np.float32))
    layers = {path: m for path, m in linear_maps(model).items() if path != LAST}
    factors, _ = kronecker(model, layers, data, batch=16, device=CPU, seed=0)
    for path, matrix in layers.items():
        close(torch.kron(factors[path].outputs, factors[path].inputs), dense_fisher(model, matrix, data), 1e-4)


@pytest.mark.parametrize(("stride", "dilation", "bias"), [(1, 1, True), (2, 1, False), (1, 2, True)])
def test_factors_of_a_convolution_are_sums_over_positions(stride, dilation, bias):
    conv = nn.Conv2d(2, 3, (3, 2), stride=stride, padding=1, dilation=dilation, bias=bias)
    flat = nn.Sequential(conv, nn.ReLU(inplace=True), nn.Flatten())  # in place: what is seen must be from before
    x = rows(4, 2, 5, 6)
    width = flat(torch.from_numpy(x)).shape[1]
    model, data = model_of(Network([flat], width)), labelled(x)
    layers = {path: m for path, m in linear_maps(model).items() if path != LAST}
    (path,) = layers
    found = kronecker(model, layers, data, batch=3, device=CPU, seed=0)[0][path]
    padded = nn.functional.pad(torch.from_numpy(x), (1, 1, 1, 1)).double()
    inputs, outputs = 0.0, 0.0
    for i in range(4):
        h = conv(torch.from_numpy(x[i : i + 1])).detach().requires_grad_()
        logits = model.head(torch.relu(h).flatten(1))
        height, across = h.shape[2:]
        for s in roots(logits.detach(), "softmax"):
            (g,) = torch.autograd.grad(logits, h, s, retain_graph=True)
            for r in range(height):
                for c in range(across):
                    outputs = outputs + torch.outer(g[0, :, r, c], g[0, :, r, c]).double() / (height * across)
        for r in range(height):
            for c in range(across):
                down = slice(r * stride, r * stride + 2 * dilation + 1, dilation)
                along = slice(c * stride, c * stride + dilation + 1, dilation)
                a = padded[i, :, down, along].flatten()
                a = torch.cat([a, torch.ones(1).double()]) if bias else a
                inputs = inputs + torch.outer(a, a)
    close(found.inputs, inputs / 4)
    close(found.outputs, outputs / 4)


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
@pytest.mark.parametrize(
    ("network", "inputs"),
    [
        (lambda: mlp((4,), hidden=(5,)), rows(6, 4)),
        (lambda: cnn((2, 4, 4), channels=(3,), dense=4), rows(5, 2, 4, 4)),
        (lambda: textcnn((12,), embedding=4, maps=3, kernels=(2, 3)), texts(5, 1, 7, 3)),
        (lambda: textcnn_v2((12,), length=6, embedding=4, maps=3, kernels=(2, 3)), texts(5, 1, 7, 3)),
    ],
)
def test_the_diagonal_is_that_of_the_gauss_newton_matrix(head, network, inputs):
    torch.manual_seed(0)
    model, data = model_of(network(), head), labelled(inputs, head)
    layers = passed_once(model, linear_maps(model), collate(data.encoded, np.arange(3)))
    weights = {name for m in layers.values() for name in m.names}
    left = {name for name, _ in model.named_parameters()} - weights
    assert left == ({"network.stages.0.table.weight"} if isinstance(inputs, TokenRows) else set())
    found, _ = diagonal(model, layers, data, batch=3, device=CPU, seed=0)
    for path, matrix in layers.items():
        assert float(found[path].max()) > 0
        close(found[path].flatten(), dense_fisher(model, matrix, data).diagonal())


@pytest.mark.parametrize("make", [textcnn, textcnn_v2])
def test_padding_and_chunks_do_not_touch_the_factors(make, monkeypatch):
    torch.manual_seed(0)
    model = model_of(make((12,), embedding=4, maps=3, kernels=(2, 3)))
    data = labelled(texts(9, 2, 4, 1, 6))
    layers = passed_once(model, linear_maps(model), collate(data.encoded, np.arange(5)))
    together, likelihood = kronecker(model, layers, data, batch=5, device=CPU, seed=0)
    monkeypatch.setattr(curvature, "CHUNK_ELEMENTS", 1)
    alone, again = kronecker(model, layers, data, batch=1, device=CPU, seed=3)
    assert likelihood == pytest.approx(again)
    for path in layers:
        close(together[path].inputs, alone[path].inputs)
        close(together[path].outputs, alone[path].outputs)


def test_beyond_many_classes_labels_are_drawn_with_an_explicit_generator(monkeypatch):
    model, data = model_of(mlp((4,), hidden=(5,))), labelled(rows(400, 4))
    layers = linear_maps(model)
    exact, _ = kronecker(model, layers, data, batch=100, device=CPU, seed=0)
    monkeypatch.setattr(curvature, "EXACT_CLASSES", 2)
    drawn, same, other = (kronecker(model, layers, data, batch=100, device=CPU, seed=seed)[0] for seed in (0, 0, 1))
    for path in layers:
        assert torch.equal(drawn[path].outputs, same[path].outputs)
        assert not torch.equal(drawn[path].outputs, other[path].outputs)
        close(drawn[path].outputs, exact[path].outputs, 0.1)


def test_layers_that_a_batch_does_not_pass_once_are_left_out():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.again, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, h):
            return self.again(torch.relu(self.again(h)))

    model = model_of(Network([Twice()], 4))
    frozen = model_of(mlp((4,), hidden=(5,)))
    frozen.network.requires_grad_(False)
    assert list(passed_once(model, linear_maps(model), torch.zeros(2, 4))) == [LAST]
    assert list(linear_maps(frozen)) == [LAST]


def test_what_has_no_such_curvature_is_refused():
    with pytest.raises(UserError, match=r"softmax or sigmoid.*HeteroscedasticHead"):
        link_of(Heteroscedastic().build(4, 3))
    wide = model_of(Network([nn.Identity()], 2000), classes=5)
    with pytest.raises(UserError, match=r"last-full.*10005.*last-kron"):
        check_structure(wide, "last-full")
