"""Ensembles inside one network: packed ensembles, BatchEnsemble, Masksembles, several last layers, and MIMO.

One training gives M members, which predict in one pass and are the samples of the fit. The edits are in
:mod:`dubio.networks`, one file each; the page *Cheap ensembles* of the documentation compares their cost.
"""

from __future__ import annotations

from dubio.core.registry import method
from dubio.methods.arguments import Training
from dubio.methods.recipe import Recipe
from dubio.networks.batch_ensemble import BatchEnsemble, FirstFactors
from dubio.networks.masksembles import Masksembles
from dubio.networks.mimo import MIMO
from dubio.networks.multi_head import MultiHead
from dubio.networks.packed import Packed


@method("packed-ensemble", family="cheap-ensembles", colour=20, samples_from="several modes")
def packed_ensemble(*, training: Training = Training(), size: int = 4, alpha: float = 2.0, gamma: int = 1) -> Recipe:
    """Narrow networks computed as one with grouped layers; their probabilities are averaged.

    Args:
        training: How the network is trained.
        size: M, the number of members.
        alpha: α, the width of all members together as a multiple of the network's.
        gamma: γ, the number of subgroups of a member's hidden layers.
    """
    return training.recipe("packed-ensemble", "Packed ensemble", edits=(Packed(size, alpha, gamma),))


@method("batch-ensemble", family="cheap-ensembles", colour=21, samples_from="one solution")
def batch_ensemble(*, training: Training = Training(), size: int = 4, first: FirstFactors = "signs") -> Recipe:
    """Members that share every weight up to a rank-one factor of their own.

    Args:
        training: How the network is trained; every example trains every member.
        size: M, the number of members.
        first: First values of the factors: signs, normal (around 1) or ones.
    """
    return training.recipe("batch-ensemble", "BatchEnsemble", edits=(BatchEnsemble(size, first),))


@method("masksembles", family="cheap-ensembles", colour=22, samples_from="one solution")
def masksembles(*, training: Training = Training(), size: int = 4, scale: float = 2.0) -> Recipe:
    """One network with fixed, overlapping masks of its features, one for each member.

    Args:
        training: How the network is trained; every example trains one member.
        size: M, the number of masks.
        scale: S, how little masks overlap, at least 1.
    """
    return training.recipe("masksembles", "Masksembles", edits=(Masksembles(size, scale),))


@method("multi-head", family="cheap-ensembles", colour=23, samples_from="one solution")
def multi_head(*, training: Training = Training(), size: int = 4) -> Recipe:
    """Several last layers on one network.

    Args:
        training: How the network is trained; every example trains every head.
        size: M, the number of heads.
    """
    return training.recipe("multi-head", "Multi-head", edits=(MultiHead(size),))


@method("mimo", family="cheap-ensembles", colour=24, samples_from="several modes", inputs=("image", "table"))
def mimo(
    *, training: Training = Training(), size: int = 3, repetitions: int = 1, repeated_inputs: float = 0.0
) -> Recipe:
    """One network that reads several examples at once and answers about each.

    Args:
        training: How the network is trained; the examples of a row are shuffled independently.
        size: M, the number of inputs and outputs.
        repetitions: r, how often an example is in the batch.
        repeated_inputs: ρ, the fraction of rows with the same example in all inputs.
    """
    return training.recipe("mimo", "MIMO", edits=(MIMO(size, repetitions, repeated_inputs),))
