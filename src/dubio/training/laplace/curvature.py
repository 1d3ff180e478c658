"""Curvature of a trained model's likelihood: Kronecker factors and diagonals of the generalised Gauss-Newton matrix.

*In the logits*: for a softmax, −∂²log p(y)/∂z² = Λ = diag(p) − p pᵀ; for sigmoids Λ = diag(p(1 − p)). Neither depends
on the label, so that the Gauss-Newton matrix Σ_n J_nᵀ Λ_n J_n is the Fisher information. A *root* of Λ is a set of
vectors s_r with Σ_r s_r s_rᵀ = Λ: one backward pass per vector gives the gradients whose products add up to it.

*In the weights*, everything is an average over training examples, to be multiplied by their number N.

- *Kronecker* (Martens & Grosse, 2015): for a dense layer with inputs a (and a 1 for the bias) and gradients g at its
  outputs, F ≈ A ⊗ G with A = mean a aᵀ and G = mean Σ_r g_r g_rᵀ, the sum over a root of Λ. It is exact where A and G
  are independent, hence for one example. For a layer that acts at many positions t of an example (a convolution), as in
  Grosse & Martens (2016): A = mean Σ_t a_t a_tᵀ, G = mean (1/T) Σ_t g_t g_tᵀ, gradients at different positions taken to
  be independent. In an image every position counts; in a text only those that some logit depends on: padding, and
  windows that no maximum picks, have no gradient.
- *Diagonal*: the exact diagonal, mean Σ_r (Σ_t g_t a_tᵀ)², squared weight by weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.inference.batches import LabelledRows
from dubio.networks.heads.head import bernoulli_loss, categorical_loss
from dubio.networks.linear_maps import Inputs, LinearMap, WeightMatrix
from dubio.networks.network import HeadModule, Link, Model

EXACT_CLASSES = 100
"""Up to this number of classes the sum over them is exact, one backward pass each; beyond it, labels are drawn."""

DRAWN_LABELS = 10
"""Labels drawn from the model for each example where there are more classes."""

CHUNK_ELEMENTS = 1 << 23
"""Approximate number of inputs of one layer that are unfolded at once."""


def link_of(head: HeadModule) -> Link:
    """Return how a head turns logits into probabilities.

    Raises:
        UserError: For a head whose logits are not the outputs of one linear layer.
    """
    if not head.outputs_logits:
        kind = type(head).__name__
        raise UserError(f"laplace: needs a softmax or sigmoid head, whose logits are one linear layer; given a {kind}.")
    return head.link


def roots(logits: Tensor, link: Link) -> Iterator[Tensor]:
    """Return an exact root of Λ: K vectors per example, one ``[B, K]`` after another.

    Softmax: s_k = √p_k (e_k − p); sigmoid: s_k = √(p_k(1 − p_k)) e_k.
    """
    units = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        yield from (p[:, k, None].sqrt() * (unit - p) for k, unit in enumerate(units))
    else:
        spread = (torch.sigmoid(logits) * torch.sigmoid(-logits)).sqrt()
        yield from (spread * unit for unit in units)


def sampled_roots(logits: Tensor, link: Link, draws: int, generator: Generator) -> Iterator[Tensor]:
    """Return a random root of Λ, unbiased: (y − p)/√draws with labels y drawn from the model itself."""
    for _ in range(draws):
        if link == "softmax":
            p = torch.softmax(logits, dim=1)
            label = torch.multinomial(p.cpu(), 1, generator=generator).to(p.device)
            y = torch.zeros_like(p).scatter_(1, label, 1.0)
        else:
            p = torch.sigmoid(logits)
            y = (torch.rand(p.shape, generator=generator).to(p.device) < p).to(p.dtype)
        yield (y - p) / draws**0.5


def hessian(logits: Tensor, link: Link) -> Tensor:
    """Return Λ of each example, ``[B, K, K]``."""
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.diag_embed(torch.sigmoid(logits) * torch.sigmoid(-logits))


def hessian_diagonal(logits: Tensor, link: Link) -> Tensor:
    """Return the diagonal of Λ of each example, p(1 − p), ``[B, K]``."""
    p = torch.softmax(logits, dim=1) if link == "softmax" else torch.sigmoid(logits)
    return p * (1.0 - p)


def hessian_sum(logits: Tensor, link: Link) -> Tensor:
    """Return Σ Λ over a batch, ``[K, K]``, without a matrix per example."""
    if link == "softmax":
        p = torch.softmax(logits, dim=1)
        return torch.diag(p.sum(dim=0)) - p.T @ p
    return torch.diag(hessian_diagonal(logits, link).sum(dim=0))


def log_likelihood(logits: Tensor, labels: Tensor, link: Link) -> float:
    """Return Σ log p(y) of a batch, also over multi-hot labels."""
    loss = categorical_loss(logits, labels) if link == "softmax" else bernoulli_loss(logits, labels)
    return -float(loss.to(torch.float64).sum())


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass of a batch through a linear map.

    Attributes:
        module: The module of the linear map.
        inputs: Its inputs: a tensor, or a function of rows.
        outputs: Its outputs, in the graph.
    """

    module: nn.Module
    inputs: Tensor | Inputs
    outputs: Tensor

    @property
    def all_positions(self) -> bool:
        """Whether every position counts: there is one, or they are those of an image."""
        return isinstance(self.module, nn.Conv2d) or self.outputs.ndim == 2


@contextmanager
def record_passes(model: Model, layers: Mapping[str, WeightMatrix]) -> Iterator[dict[str, list[Pass]]]:
    """Record the passes through layers, by path, while the context is open."""
    passes: dict[str, list[Pass]] = {path: [] for path in layers}

    def hook(path: str) -> Any:
        def record(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Tensor:
            values = (*arguments, *named.values())
            inputs = values[1] if isinstance(module, LinearMap) else values[0].detach()
            passes[path].append(Pass(module, inputs, output))
            return output.clone()  # later layers may write into it

        return record

    handles = [model.get_submodule(path).register_forward_hook(hook(path), with_kwargs=True) for path in layers]
    try:
        yield passes
    finally:
        for handle in handles:
            handle.remove()


def passed_once(model: Model, layers: Mapping[str, WeightMatrix], batch: Any) -> dict[str, WeightMatrix]:
    """Return the layers that a batch passes exactly once, example by example, and that its logits depend on.

    A layer that is used twice has two inputs, one that is not called has none. If outputs do not lead with the batch,
    they cannot be assigned to examples. A layer without influence on the logits, or passed without a gradient, has no
    curvature.
    """
    with record_passes(model, layers) as passes, torch.enable_grad():
        logits: Tensor = model.eval()(batch)
    outputs = {path: calls[0].outputs for path, calls in passes.items() if len(calls) == 1}
    once = {path: output for path, output in outputs.items() if output.requires_grad and len(output) == len(logits)}
    if not once or not logits.requires_grad:
        return {}
    gradients = torch.autograd.grad(logits.sum(), list(once.values()), allow_unused=True)
    return {path: layers[path] for path, gradient in zip(once, gradients, strict=True) if gradient is not None}


def by_position(module: nn.Module, inputs: Tensor | Inputs, rows: slice) -> Tensor:
    """Return the inputs that a linear map multiplies, ``[rows, positions, inputs]``: of a convolution its windows."""
    if not isinstance(inputs, Tensor):
        return inputs(rows).detach()
    chosen = inputs[rows]
    if isinstance(module, nn.Conv2d):
        assert not isinstance(module.padding, str)  # such a convolution is no plain one
        chosen = functional.unfold(chosen, module.kernel_size, module.dilation, module.padding, module.stride)
    return gradients_at(module, chosen)


def gradients_at(module: nn.Module, gradient: Tensor) -> Tensor:
    """Return a gradient at a map's outputs (or the outputs themselves) as ``[B, positions, outputs]``."""
    if isinstance(module, nn.Conv2d):
        return gradient.flatten(2).transpose(1, 2)
    return gradient.reshape(gradient.shape[0], -1, gradient.shape[-1])


@dataclass(frozen=True)
class Factors:
    """Kronecker factors of one layer's mean Fisher: ``inputs [in + 1, in + 1]``, ``outputs [out, out]``, float64."""

    inputs: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class BatchPass:
    """One batch of training data passed through the model, from which every kind of curvature is added up.

    Attributes:
        logits: Of the batch, in the graph.
        calls: The pass through each layer.
        cotangents: The vectors of a root of Λ, one after another.
        any_direction: A random vector per logit, almost surely orthogonal to no gradient.
        log_likelihood: Σ log p(y).
    """

    logits: Tensor
    calls: Mapping[str, Pass]
    cotangents: Iterator[Tensor]
    any_direction: Tensor
    log_likelihood: float


def is_exact(classes: int) -> bool:
    """Return whether the sum over classes is exact or over drawn labels: a static rule."""
    return classes <= EXACT_CLASSES


def backward_passes(model: Model) -> int:
    """Return the number of backward passes that one batch takes."""
    link_of(model.head)
    last = getattr(model.head, "linear", None)
    # a head without its own layer takes the network's outputs for logits
    classes = last.out_features if isinstance(last, nn.Linear) else model.network.width
    return classes if is_exact(classes) else DRAWN_LABELS


def batch_passes(
    model: Model, layers: Mapping[str, WeightMatrix], data: LabelledRows, *, batch: int, device: torch.device, seed: int
) -> Iterator[BatchPass]:
    """Pass every training batch through the model once, in evaluation mode.

    Args:
        model: The trained model.
        layers: The layers to record.
        data: The training examples.
        batch: Examples per batch.
        device: Where to compute.
        seed: Seed of drawn labels.
    """
    model.eval()
    link = link_of(model.head)
    generator = torch.Generator().manual_seed(seed)
    for _, examples, labels in data.batches(batch, device):
        with record_passes(model, layers) as passes, torch.enable_grad():
            logits = model(examples)
        calls = {path: recorded[-1] for path, recorded in passes.items() if recorded}
        direction = torch.randn(logits.shape, generator=generator).to(logits)
        at = logits.detach()
        exact = is_exact(at.shape[1])
        cotangents = roots(at, link) if exact else sampled_roots(at, link, DRAWN_LABELS, generator)
        yield BatchPass(logits, calls, cotangents, direction, log_likelihood(at, labels, link))


def kronecker(
    model: Model, layers: Mapping[str, WeightMatrix], data: LabelledRows, *, batch: int, device: torch.device, seed: int
) -> tuple[dict[str, Factors], float]:
    """Return the Kronecker factors of every layer by its path, and Σ log p(y) over the training examples."""
    inputs = {path: float64_zeros(m.size[1], m.size[1], device) for path, m in layers.items()}
    outputs = {path: float64_zeros(m.size[0], m.size[0], device) for path, m in layers.items()}
    total = 0.0
    for passed in batch_passes(model, layers, data, batch=batch, device=device, seed=seed):
        total += passed.log_likelihood
        reached = _reached(passed)
        for path, call in passed.calls.items():
            _add_inputs(inputs[path], call, layers[path], reached.get(path))
        for gradients in _gradients(passed):
            for path, g in gradients.items():
                _add_outputs(outputs[path], g, reached.get(path))
    examples = len(data.encoded)
    return {path: Factors(inputs[path] / examples, outputs[path] / examples) for path in layers}, total


def diagonal(
    model: Model, layers: Mapping[str, WeightMatrix], data: LabelledRows, *, batch: int, device: torch.device, seed: int
) -> tuple[dict[str, Tensor], float]:
    """Return the exact diagonal ``[out, in + 1]`` of every layer's mean Fisher by its path, and Σ log p(y)."""
    sums = {path: float64_zeros(*matrix.size, device) for path, matrix in layers.items()}
    total = 0.0
    for passed in batch_passes(model, layers, data, batch=batch, device=device, seed=seed):
        total += passed.log_likelihood
        for gradients in _gradients(passed):
            for path, g in gradients.items():
                _add_squares(sums[path], g, passed.calls[path], layers[path])
    return {path: values / len(data.encoded) for path, values in sums.items()}, total


def float64_zeros(rows: int, columns: int, device: torch.device) -> Tensor:
    """Return a matrix of zeros in double precision, for sums over examples."""
    return torch.zeros(rows, columns, dtype=torch.float64, device=device)


def _gradients(passed: BatchPass) -> Iterator[dict[str, Tensor]]:
    """Return, for each vector of the root, the gradients ``[B, T, out]`` at every layer's outputs."""
    for cotangent in passed.cotangents:
        yield _gradients_along(passed, passed.calls, cotangent)


def _gradients_along(passed: BatchPass, calls: Mapping[str, Pass], cotangent: Tensor) -> dict[str, Tensor]:
    """Return the gradients at layers' outputs; a layer that no logit of the batch depends on has none."""
    outputs = [call.outputs for call in calls.values()]
    gradients = torch.autograd.grad(passed.logits, outputs, cotangent, retain_graph=True, allow_unused=True)
    pairs = zip(calls.items(), gradients, strict=True)
    return {path: gradients_at(call.module, g) for (path, call), g in pairs if g is not None}


def _reached(passed: BatchPass) -> dict[str, Tensor]:
    """Return, for layers where not every position counts, which ones some logit depends on, ``[B, T]``."""
    partial = {path: call for path, call in passed.calls.items() if not call.all_positions}
    if not partial:
        return {}
    gradients = _gradients_along(passed, partial, passed.any_direction)
    zeros = {path: torch.zeros_like(gradients_at(call.module, call.outputs)) for path, call in partial.items()}
    return {path: (g != 0).any(dim=2) for path, g in {**zeros, **gradients}.items()}


def _add_inputs(total: Tensor, call: Pass, matrix: WeightMatrix, reached: Tensor | None) -> None:
    """Add Σ_n Σ_t a_t a_tᵀ to the total."""
    for rows in _chunks(call, matrix):
        a = with_ones(by_position(call.module, call.inputs, rows), matrix)
        flat = a.flatten(0, 1) if reached is None else a[reached[rows]]
        total += flat.T @ flat


def _add_outputs(total: Tensor, g: Tensor, reached: Tensor | None) -> None:
    """Add Σ_n (1/T_n) Σ_t g_t g_tᵀ to the total."""
    if reached is None:
        flat = g.flatten(0, 1)
        total += flat.T @ flat / g.shape[1]
    else:
        flat = (g / reached.sum(dim=1).clamp_min(1).sqrt()[:, None, None]).flatten(0, 1)
        total += flat.T @ flat


def _add_squares(total: Tensor, g: Tensor, call: Pass, matrix: WeightMatrix) -> None:
    """Add Σ_n (Σ_t g_t a_tᵀ)² to the total."""
    for rows in _chunks(call, matrix):
        a = with_ones(by_position(call.module, call.inputs, rows), matrix)
        if a.shape[1] == 1:  # the square of a product is the product of squares
            total += (g[rows, 0] ** 2).T @ a[:, 0] ** 2
        else:
            total += (g[rows].transpose(1, 2) @ a).square_().sum(dim=0)


def _chunks(call: Pass, matrix: WeightMatrix) -> Iterator[slice]:
    """Return slices of a batch that bound memory."""
    rows, positions = call.outputs.shape[0], gradients_at(call.module, call.outputs).shape[1]
    elements = max(positions, matrix.size[0]) * matrix.size[1]
    step = max(1, CHUNK_ELEMENTS // elements)
    return (slice(i, min(rows, i + step)) for i in range(0, rows, step))


def with_ones(a: Tensor, matrix: WeightMatrix) -> Tensor:
    """Return inputs with a last one that is always 1, if the layer has a bias."""
    return a if matrix.bias is None else functional.pad(a, (0, 1), value=1.0)
