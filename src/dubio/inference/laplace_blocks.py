"""Gaussian blocks of a Laplace approximation: one a layer, each with the precision N·F + δ·I of its weights.

F is the layer's mean Fisher information over N training examples, δ the prior's precision. Every block knows the
eigenbasis Q of its precision P = Q diag(π) Qᵀ, in which the prior stays δ·I. With L = Q diag(√π), P = L Lᵀ, and
L⁻ᵀ z = Q (z/√π) has the covariance P⁻¹ for z ~ N(0, I); L⁻¹ z would not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from dubio.networks.linear_maps import WeightMatrix

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


def block_from(tensors: Mapping[str, Tensor], matrix: WeightMatrix, damping: Damping) -> Block:
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
