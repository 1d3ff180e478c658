"""Gaussian blocks of a Laplace approximation: one a layer, each with the precision N·F + δ·I of its weights.

F is the layer's mean Fisher information over N training examples, δ the prior's precision. Every block knows the
eigenbasis Q of its precision P = Q diag(π) Qᵀ, in which the prior stays δ·I. With L = Q diag(√π), P = L Lᵀ, and
L⁻ᵀ z = Q (z/√π) has the covariance P⁻¹ for z ~ N(0, I); L⁻¹ z would not have it.

The Laplace approximation as a distribution of weights: N(θ*, scale²·(N·F + δ·I)⁻¹) in blocks, one a layer.

Weights without a block (embeddings, batch-norm's, those of layers whose curvature was not asked for) stay at θ*.

Draws from a Laplace approximation, with one scale for plain predictions and one for random views of the examples.

Views add noise of their own, so that less noise in the weights does best beside them (pitfalls paper, Table 3). One fit
serves both ways of predicting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Generator, Tensor

from dubio.inference.augmentation import Views
from dubio.inference.engine import State, fixed, shared_body
from dubio.inference.posterior import Rows, Sampled
from dubio.inference.predictor import ChunkedPredictor, StatePredictor, load_state
from dubio.inference.weight_draws import DRAW, FIXED, SEED, WeightDraws, distribution_tensors, with_prefix
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model

Damping = Literal["exact", "pi"]


class Block(Protocol):
    """The weights of one layer, as a matrix ``[out, in + 1]``."""

    @property
    def matrix(self) -> WeightMatrix:
        """Which weights they are."""
        ...

    def precision(self, prior: float) -> Tensor:
        """Eigenvalues of N·F + δ·I, ``[out, in + 1]``, float64."""
        ...

    def rotated(self, values: Tensor) -> Tensor:
        """Q times values given in the eigenbasis, ``[out, in + 1]``."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What :func:`block_from` needs, by name."""
        ...


@dataclass(frozen=True, eq=False)
class Kronecker:
    """F = A ⊗ G, in the eigenbases of both factors.

    With eigenvalues a_j of N·A and g_i of G, the precision N·A ⊗ G + δ·I has exactly the eigenvalues a_j g_i + δ
    (``exact``). Where Cholesky factors of A and G are wanted the damping has to be split between them,
    (N·A + π√δ·I) ⊗ (G + (√δ/π)·I) with π² = mean(a)/mean(g) (Martens & Grosse, 2015, sec. 6.3; Ritter et al., 2018):
    eigenvalues (a_j + π√δ)(g_i + √δ/π), larger than the exact ones (``pi``).

    Attributes:
        matrix: Which weights they are.
        inputs: Eigenvectors of A in its columns.
        input_values: Eigenvalues of N·A.
        outputs: Eigenvectors of G in its columns.
        output_values: Eigenvalues of G.
        damping: How the prior enters.
    """

    matrix: WeightMatrix
    inputs: Tensor
    input_values: Tensor
    outputs: Tensor
    output_values: Tensor
    damping: Damping = "exact"

    def precision(self, prior: float) -> Tensor:
        """a_j g_i + δ, or with the damping split."""
        a, g = self.input_values.double(), self.output_values.double()
        if self.damping == "exact" or not float(a.sum()) or not float(g.sum()):
            return torch.outer(g, a) + prior
        share = torch.sqrt(a.mean() / g.mean())
        return torch.outer(g + prior**0.5 / share, a + prior**0.5 * share)

    def rotated(self, values: Tensor) -> Tensor:
        """Q_G values Q_Aᵀ."""
        return self.outputs @ values @ self.inputs.T

    def tensors(self) -> dict[str, Tensor]:
        """Both eigenbases."""
        names = ("inputs", "input_values", "outputs", "output_values")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Diagonal:
    """F of a diagonal: every weight on its own; ``values [out, in + 1]`` is N times it."""

    matrix: WeightMatrix
    values: Tensor

    def precision(self, prior: float) -> Tensor:
        """N·F + δ."""
        return self.values.double() + prior

    def rotated(self, values: Tensor) -> Tensor:
        """Weights are their own eigenbasis."""
        return values

    def tensors(self) -> dict[str, Tensor]:
        """The diagonal."""
        return {"values": self.values}


@dataclass(frozen=True, eq=False)
class Full:
    """Any F: ``vectors [P, P]`` in its columns, ``values [P]`` of N·F; weights in the order of the matrix's rows."""

    matrix: WeightMatrix
    vectors: Tensor
    values: Tensor

    def precision(self, prior: float) -> Tensor:
        """Eigenvalues of N·F + δ·I, laid out like the weights; their places there mean nothing."""
        return self.values.double().reshape(self.matrix.size) + prior

    def rotated(self, values: Tensor) -> Tensor:
        """Q values."""
        return (self.vectors @ values.flatten()).reshape(self.matrix.size)

    def tensors(self) -> dict[str, Tensor]:
        """The eigenbasis."""
        return {"vectors": self.vectors, "values": self.values}


def kronecker_block(
    matrix: WeightMatrix, inputs: Tensor, outputs: Tensor, examples: int, damping: Damping = "exact"
) -> Kronecker:
    """The block of a layer's Kronecker factors A and G, averages over so many examples."""
    a, of_a = _eigen(inputs * examples)
    g, of_g = _eigen(outputs)
    return Kronecker(matrix, of_a, a, of_g, g, damping)


def diagonal_block(matrix: WeightMatrix, diagonal: Tensor, examples: int) -> Diagonal:
    """The block of a layer's diagonal, an average over so many examples."""
    return Diagonal(matrix, (diagonal * examples).float().cpu())


def full_block(matrix: WeightMatrix, fisher: Tensor, examples: int) -> Full:
    """The block of a layer's whole Fisher information, an average over so many examples."""
    values, vectors = _eigen(fisher * examples)
    return Full(matrix, vectors, values)


def restore_block(tensors: Mapping[str, Tensor], matrix: WeightMatrix, damping: Damping) -> Block:
    """The block that :meth:`Block.tensors` wrote."""
    if "inputs" in tensors:
        inputs, outputs = tensors["inputs"], tensors["outputs"]
        return Kronecker(matrix, inputs, tensors["input_values"], outputs, tensors["output_values"], damping)
    if "vectors" in tensors:
        return Full(matrix, tensors["vectors"], tensors["values"])
    return Diagonal(matrix, tensors["values"])


def _eigen(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, none negative, and eigenvectors: found in double precision, kept in single where draws are made."""
    values, vectors = torch.linalg.eigh(symmetric.double())
    return values.clamp_min(0.0).float().cpu(), vectors.float().contiguous().cpu()


@dataclass(frozen=True, eq=False)
class LaplaceGaussian:
    """A Gaussian around trained weights.

    Attributes:
        point: θ* of the weights that blocks are of, by name.
        blocks: The curvature of the layers whose weights are random.
        prior: δ, the precision of the prior.
        scale: What the deviation from θ* is multiplied by; 1 is the Laplace approximation itself.
    """

    point: State
    blocks: tuple[Block, ...]
    prior: float
    scale: float = 1.0

    def centre(self) -> dict[str, Tensor]:
        """θ*."""
        return dict(self.point)

    def draw(self, generator: Generator) -> dict[str, Tensor]:
        """θ* + scale·L⁻ᵀ z, with L Lᵀ the precision (see :mod:`dubio.inference.laplace`)."""
        state: dict[str, Tensor] = {}
        # a file gives its tensors back in any order
        for block in sorted(self.blocks, key=lambda block: block.matrix.weight):
            centre = block.matrix.gather(self.point)
            z = torch.randn(block.matrix.size, generator=generator)
            deviation = z * block.precision(self.prior).rsqrt().to(z.dtype)
            state |= block.matrix.scatter(centre + self.scale * block.rotated(deviation))
        return state

    def tensors(self) -> dict[str, Tensor]:
        """θ*, every block, δ and the scale."""
        named = {f"point/{name}": tensor for name, tensor in self.point.items()}
        for block in self.blocks:
            named |= {f"block/{block.matrix.weight}/{name}": tensor for name, tensor in block.tensors().items()}
        numbers = {"prior": self.prior, "scale": self.scale}
        return named | {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def squared_norm(self) -> float:
        """‖θ*‖²."""
        return sum(float(tensor.double().square().sum()) for tensor in self.point.values())

    def scaled(self, scale: float) -> LaplaceGaussian:
        """The same with another scale."""
        return replace(self, scale=scale)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], model: Model, damping: Damping) -> LaplaceGaussian:
        """The distribution that :meth:`tensors` wrote."""
        point, parts = {}, dict[str, dict[str, Tensor]]()
        for key, tensor in tensors.items():
            kind, _, rest = key.partition("/")
            if kind == "point":
                point[rest] = tensor
            elif kind == "block":
                weight, _, name = rest.rpartition("/")
                parts.setdefault(weight, {})[name] = tensor
        matrices = {matrix.weight: matrix for matrix in linear_maps(model).values()}
        blocks = tuple(restore_block(found, matrices[weight], damping) for weight, found in parts.items())
        return cls(point, blocks, float(tensors["prior"]), float(tensors["scale"]))


VIEWED = "viewed/"
"""How the stored tensors of draws with the scale for views are named."""


HEAD = ("head.linear.weight", "head.linear.bias")
"""The last layer, where the head is softmax or sigmoid."""


@dataclass(frozen=True, eq=False)
class LaplaceDraws:
    """Equally likely draws from a Laplace approximation.

    Attributes:
        plain: With the scale for predictions without views.
        viewed: The same draws with the scale for predictions with views; None where that was not looked for.
        scale: The scale of ``viewed``.
    """

    plain: WeightDraws
    viewed: WeightDraws | None = None
    scale: float = 1.0

    @property
    def chosen(self) -> WeightDraws:
        """Those that predict."""
        return self.plain if self.plain.views is None or self.viewed is None else self.viewed

    def draw(self, seed: int) -> StatePredictor | ChunkedPredictor | HeadPredictor:
        """Put the model in eval mode; noise will come from this seed, the weights from their own.

        Where only the last layer is random and nothing else is, the network before it is run once for all draws.
        """
        chosen = self.chosen
        alone = chosen.distribution.centre().keys() <= set(HEAD) and not any(chosen.buffers)
        if alone and chosen.views is None and not chosen.samples:
            return HeadPredictor(chosen)
        return chosen.draw(seed)

    def limit(self, most: int) -> LaplaceDraws:
        """At most so many of the draws."""
        viewed = None if self.viewed is None else self.viewed.limit(most)
        return replace(self, plain=self.plain.limit(most), viewed=viewed)

    def tensors(self) -> dict[str, Tensor]:
        """The distribution once, both scales, and the batch-norm statistics of every draw at each."""
        named = self.plain.tensors()
        if self.viewed is not None:
            named[f"{VIEWED}scale"] = torch.tensor(self.scale, dtype=torch.float64)
            for k, buffers in enumerate(self.viewed.buffers):
                named |= {f"{VIEWED}{DRAW}{k}/{name}": tensor for name, tensor in buffers.items()}
        return named

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        model: Model,
        draws: int,
        damping: Damping,
        samples: int,
        views: Views | None = None,
    ) -> LaplaceDraws:
        """The posterior that :meth:`tensors` wrote."""
        gaussian = LaplaceGaussian.from_tensors(distribution_tensors(tensors), model, damping)
        plain = WeightDraws.from_tensors(tensors, model, gaussian, draws, samples, views)
        if f"{VIEWED}scale" not in tensors:
            return cls(plain)
        scale = float(tensors[f"{VIEWED}scale"])
        buffers = tuple(with_prefix(f"{VIEWED}{DRAW}{k}/", tensors) for k in range(draws))
        seed, shared = int(tensors[SEED]), with_prefix(FIXED, tensors)
        return cls(plain, WeightDraws(model, gaussian.scaled(scale), seed, shared, buffers, samples, views), scale)


class HeadPredictor:
    """Draws that differ in the last layer alone."""

    def __init__(self, draws: WeightDraws) -> None:
        """Make every draw's last layer, and the model ready with what they share."""
        states = [draws.state(k) for k in range(len(draws.buffers))]
        model, device = draws.model, next(draws.model.parameters()).device
        load_state(model, states[0])
        self._model = fixed(model.eval(), 0)
        self._weights, self._biases = (torch.stack([state[name] for state in states]).to(device) for name in HEAD)
        self.member = (0,) * len(states)

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Every draw's logits on a batch."""
        return Sampled(shared_body(self._model, self._weights, self._biases, batch))
