"""The Laplace approximation as a posterior: a Gaussian N(θ*, scale²·(N·F + δ·I)⁻¹) in blocks, one per layer.

F is a layer's mean Fisher information over N training examples, δ the prior's precision. Every block knows the
eigenbasis Q of its precision P = Q diag(π) Qᵀ, in which the prior stays δ·I. With L = Q diag(√π), P = L Lᵀ, and
L⁻ᵀ z = Q (z/√π) has the covariance P⁻¹ for z ~ N(0, I); L⁻¹ z would not have it. Weights without a block (embeddings,
those of batch-norm, layers without curvature) stay at θ*.

There is one scale for plain predictions and one for predictions with random views of the examples: views add noise of
their own, so that less noise in the weights does best with them (pitfalls paper, Table 3). One fit serves both.

How θ*, F, δ and the scale are found is the matter of :mod:`dubio.training.laplace`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from dubio.core.errors import UserError
from dubio.inference.augmentation import Views
from dubio.inference.engine import Rows, State, fixed, shared_body
from dubio.inference.predictor import ChunkedPredictor, StatePredictor, load_state
from dubio.inference.weight_draws import DISTRIBUTION, DRAW, WeightDraws, restore_draws, with_prefix
from dubio.networks.linear_maps import WeightMatrix, linear_maps
from dubio.networks.network import Model, Scores

Damping = Literal["exact", "pi", "pi_untransposed"]

VIEWED = "viewed/"
"""Prefix of the stored tensors of draws with the scale for views."""

HEAD = ("head.linear.weight", "head.linear.bias")
"""The last layer of a softmax or sigmoid head."""


@dataclass(frozen=True, eq=False)
class Block(ABC):
    """The precision of one layer's weights, taken as a matrix ``[out, in + 1]``.

    Attributes:
        matrix: The weights.
    """

    matrix: WeightMatrix

    @abstractmethod
    def precision(self, prior: float) -> Tensor:
        """Return the eigenvalues of N·F + δ·I, ``[out, in + 1]``, float64."""

    @abstractmethod
    def rotated(self, values: Tensor) -> Tensor:
        """Return Q times values in the eigenbasis, ``[out, in + 1]``."""

    def deviation(self, z: Tensor, prior: float) -> Tensor:
        """Return L⁻ᵀ z, ``[out, in + 1]``."""
        return self.rotated(z * self.precision(prior).rsqrt().to(z.dtype))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that :func:`restore_block` needs, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


@dataclass(frozen=True, eq=False)
class Kronecker(Block):
    """F = A ⊗ G, in the eigenbases of both factors.

    With eigenvalues a_j of N·A and g_i of G, the precision N·A ⊗ G + δ·I has exactly the eigenvalues a_j g_i + δ
    (``exact``). Cholesky factors of A and G would need the damping to be split between them,
    (N·A + π√δ·I) ⊗ (G + (√δ/π)·I) with π² = mean(a)/mean(g) (Martens & Grosse, 2015, sec. 6.3; Ritter et al., 2018):
    eigenvalues (a_j + π√δ)(g_i + √δ/π), larger than the exact ones (``pi``). The pitfalls paper's code draws with the
    Cholesky factors of these and forgets a transposition (``pi_untransposed``): L⁻¹ z has the covariance (LᵀL)⁻¹.

    Attributes:
        inputs: Eigenvectors of A in its columns.
        input_values: Eigenvalues of N·A.
        outputs: Eigenvectors of G in its columns.
        output_values: Eigenvalues of G.
        damping: How the prior enters.
    """

    inputs: Tensor
    input_values: Tensor
    outputs: Tensor
    output_values: Tensor
    damping: Damping = "exact"

    def precision(self, prior: float) -> Tensor:
        """Return a_j g_i + δ, or the product with the damping split."""
        a, g = self.input_values.double(), self.output_values.double()
        damped = self._damped(prior)
        return torch.outer(g, a) + prior if damped is None else torch.outer(*damped)

    def _damped(self, prior: float) -> tuple[Tensor, Tensor] | None:
        """Return the eigenvalues of both factors with the damping split between them; None where it is not."""
        a, g = self.input_values.double(), self.output_values.double()
        if self.damping == "exact" or not float(a.sum()) or not float(g.sum()):
            return None
        share = torch.sqrt(a.mean() / g.mean())
        return g + prior**0.5 / share, a + prior**0.5 * share

    def rotated(self, values: Tensor) -> Tensor:
        """Return Q_G values Q_Aᵀ."""
        return self.outputs @ values @ self.inputs.T

    def deviation(self, z: Tensor, prior: float) -> Tensor:
        """Return L⁻ᵀ z; with ``pi_untransposed`` L_G⁻¹ z L_A⁻ᵀ with the Cholesky factors of both damped factors."""
        damped = self._damped(prior)
        if self.damping != "pi_untransposed" or damped is None:
            return super().deviation(z, prior)
        pairs = zip((self.outputs.double(), self.inputs.double()), damped, strict=True)
        of_g, of_a = (torch.linalg.cholesky((vectors * values) @ vectors.T) for vectors, values in pairs)
        rows = torch.linalg.solve_triangular(of_g, z.double(), upper=False)
        deviation: Tensor = torch.linalg.solve_triangular(of_a, rows.T, upper=False).T
        return deviation.to(z.dtype)


@dataclass(frozen=True, eq=False)
class Diagonal(Block):
    """The diagonal of F, every weight by itself; ``values [out, in + 1]`` is N times it."""

    values: Tensor

    def precision(self, prior: float) -> Tensor:
        """Return N·F + δ."""
        return self.values.double() + prior

    def rotated(self, values: Tensor) -> Tensor:
        """Return the values: weights are their own eigenbasis."""
        return values


@dataclass(frozen=True, eq=False)
class Full(Block):
    """A full F: ``vectors [P, P]`` in its columns, ``values [P]`` of N·F; weights in the order of the matrix's rows."""

    vectors: Tensor
    values: Tensor

    def precision(self, prior: float) -> Tensor:
        """Return the eigenvalues of N·F + δ·I in the shape of the weights; their positions there mean nothing."""
        return self.values.double().reshape(self.matrix.size) + prior

    def rotated(self, values: Tensor) -> Tensor:
        """Return Q values."""
        return (self.vectors @ values.flatten()).reshape(self.matrix.size)


def kronecker_block(
    matrix: WeightMatrix, inputs: Tensor, outputs: Tensor, examples: int, damping: Damping = "exact",
    *, sums: bool = False,
) -> Kronecker:  # fmt: skip
    """Return the block of a layer's Kronecker factors A and G, which are averages over ``examples``.

    With ``sums`` both factors are sums, so that their product counts every example N times (the pitfalls paper's code).
    """
    a, of_a = _eigen(inputs * examples)
    g, of_g = _eigen(outputs * examples if sums else outputs)
    return Kronecker(matrix, of_a, a, of_g, g, damping)


def diagonal_block(matrix: WeightMatrix, diagonal: Tensor, examples: int) -> Diagonal:
    """Return the block of a layer's diagonal, an average over ``examples``."""
    return Diagonal(matrix, (diagonal * examples).float().cpu())


def full_block(matrix: WeightMatrix, fisher: Tensor, examples: int) -> Full:
    """Return the block of a layer's full Fisher information, an average over ``examples``."""
    values, vectors = _eigen(fisher * examples)
    return Full(matrix, vectors, values)


def restore_block(tensors: Mapping[str, Tensor], matrix: WeightMatrix, damping: Damping) -> Block:
    """Return the block that :meth:`Block.tensors` wrote."""
    if "inputs" in tensors:
        return Kronecker(matrix, **tensors, damping=damping)
    return Full(matrix, **tensors) if "vectors" in tensors else Diagonal(matrix, **tensors)


def _eigen(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    """Return non-negative eigenvalues and eigenvectors, computed in double precision, stored in single for draws."""
    values, vectors = torch.linalg.eigh(symmetric.double())
    return values.clamp_min(0.0).float().cpu(), vectors.float().contiguous().cpu()


@dataclass(frozen=True, eq=False)
class LaplaceGaussian:
    """A Gaussian around trained weights.

    Attributes:
        point: θ* of the weights that have a block, by name.
        blocks: The curvature of the layers whose weights are random.
        prior: δ, the precision of the prior.
        scale: Factor of the deviation from θ*; 1 is the Laplace approximation itself.
    """

    point: State
    blocks: tuple[Block, ...]
    prior: float
    scale: float = 1.0

    def centre(self) -> dict[str, Tensor]:
        """Return θ*."""
        return dict(self.point)

    def draw(self, generator: Generator) -> dict[str, Tensor]:
        """Return θ* + scale·L⁻ᵀ z, with L Lᵀ the precision."""
        state: dict[str, Tensor] = {}
        # a file gives its tensors back in any order
        for block in sorted(self.blocks, key=lambda block: block.matrix.weight):
            centre = block.matrix.gather(self.point)
            z = torch.randn(block.matrix.size, generator=generator)
            state |= block.matrix.scatter(centre + self.scale * block.deviation(z, self.prior))
        return state

    def tensors(self) -> dict[str, Tensor]:
        """Return θ*, every block, δ and the scale."""
        named = {f"point/{name}": tensor for name, tensor in self.point.items()}
        for block in self.blocks:
            named |= {f"block/{block.matrix.weight}/{name}": tensor for name, tensor in block.tensors().items()}
        numbers = {"prior": self.prior, "scale": self.scale}
        return named | {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def check_shapes(self) -> None:
        """Compare the factors of every block with its weights."""
        for block in self.blocks:
            size = block.matrix.size
            for tensor in (block.precision(self.prior), block.rotated(torch.zeros(size))):
                if tuple(tensor.shape) != size:
                    shape = tuple(tensor.shape)
                    raise UserError(f"the block of {block.matrix.weight} has shape {shape}; it must be {size}.")

    def squared_norm(self) -> float:
        """Return ‖θ*‖²."""
        return sum(float(tensor.double().square().sum()) for tensor in self.point.values())

    def scaled(self, scale: float) -> LaplaceGaussian:
        """Return the Gaussian with another scale."""
        return replace(self, scale=scale)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], model: Model, damping: Damping) -> LaplaceGaussian:
        """Return the distribution that :meth:`tensors` wrote."""
        by_weight: dict[str, dict[str, Tensor]] = {}
        for key, tensor in with_prefix("block/", tensors).items():
            weight, _, name = key.rpartition("/")
            by_weight.setdefault(weight, {})[name] = tensor
        matrices = {matrix.weight: matrix for matrix in linear_maps(model).values()}
        blocks = tuple(restore_block(named, matrices[weight], damping) for weight, named in by_weight.items())
        return cls(with_prefix("point/", tensors), blocks, float(tensors["prior"]), float(tensors["scale"]))


@dataclass(frozen=True, eq=False)
class LaplaceDraws:
    """Equally likely draws from a Laplace approximation.

    Attributes:
        plain: With the scale for predictions without views.
        viewed: The same draws with the scale for predictions with views; None where no such scale was chosen.
        scale: The scale of ``viewed``.
    """

    plain: WeightDraws
    viewed: WeightDraws | None = None
    scale: float = 1.0

    @property
    def chosen(self) -> WeightDraws:
        """The draws that predict."""
        return self.plain if self.plain.views is None or self.viewed is None else self.viewed

    def draw(self, seed: int) -> StatePredictor | ChunkedPredictor | HeadPredictor:
        """Put the model in evaluation mode, with noise from this seed and weights from their own.

        Where only the last layer is random, the network before it runs once for all draws.
        """
        draws = self.chosen
        only_head = draws.distribution.centre().keys() <= set(HEAD) and not any(draws.buffers)
        if only_head and draws.views is None and not draws.samples:
            return HeadPredictor(draws)
        return draws.draw(seed)

    @property
    def model(self) -> Model:
        """The module that the weights belong to."""
        return self.plain.model

    def __len__(self) -> int:
        return len(self.plain)

    def weight_states(self) -> Iterator[State]:
        """Return the weight state of every draw that predicts."""
        return self.chosen.weight_states()

    def check_shapes(self, state: State) -> None:
        """Compare the draws at both scales with the model's state."""
        for draws in (self.plain, self.viewed):
            if draws is not None:
                draws.check_shapes(state)

    def limit(self, most: int) -> LaplaceDraws:
        """Return at most ``most`` draws, the first ones."""
        viewed = None if self.viewed is None else self.viewed.limit(most)
        return replace(self, plain=self.plain.limit(most), viewed=viewed)

    def tensors(self) -> dict[str, Tensor]:
        """Return the distribution once, both scales, and the batch-norm statistics of every draw at each."""
        named = self.plain.tensors()
        if self.viewed is not None:
            named[f"{VIEWED}scale"] = torch.tensor(self.scale, dtype=torch.float64)
            for k, buffers in enumerate(self.viewed.buffers):
                named |= {f"{VIEWED}{DRAW}{k}/{name}": tensor for name, tensor in buffers.items()}
        return named


@dataclass(frozen=True)
class StoredLaplace:
    """The stored form of :class:`LaplaceDraws`: the number of draws, and how the prior enters Kronecker factors."""

    draws: int
    damping: Damping

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> LaplaceDraws:
        """Return the posterior of stored tensors."""
        gaussian = LaplaceGaussian.from_tensors(with_prefix(DISTRIBUTION, tensors), model, self.damping)
        plain = restore_draws(tensors, model, gaussian, self.draws, samples, views)
        if f"{VIEWED}scale" not in tensors:
            return LaplaceDraws(plain)
        scale = float(tensors[f"{VIEWED}scale"])
        buffers = tuple(with_prefix(f"{VIEWED}{DRAW}{k}/", tensors) for k in range(self.draws))
        return LaplaceDraws(plain, replace(plain, distribution=gaussian.scaled(scale), buffers=buffers), scale)


class HeadPredictor:
    """Predict with draws that differ only in the last layer."""

    def __init__(self, draws: WeightDraws) -> None:
        """Make the last layer of every draw, and load what they share into the model."""
        states = [draws.state(k) for k in range(len(draws.buffers))]
        model, device = draws.model, next(draws.model.parameters()).device
        load_state(model, states[0])
        self._model = fixed(model.eval(), 0)
        self._weights, self._biases = (torch.stack([state[name] for state in states]).to(device) for name in HEAD)
        self.member = (0,) * len(states)

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Scores:
        """Return the logits of every draw on a batch."""
        return Scores(shared_body(self._model, self._weights, self._biases, batch))
