"""Post-hoc scores on the features of a trained network, and DDU, which is one of them on bounded weights.

Both continue a trained network for zero epochs: the scores are fitted to the features of the training split and stored
with the weights, a fit with an identity of its own. The training of ``posthoc`` is that of the method
``deterministic`` with the same arguments, so that a benchmark with both trains the network once; the probabilities of
both are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dubio.core.errors import UserError, listing
from dubio.core.registry import method
from dubio.core.validate import Positive, PositiveFloat, Share
from dubio.inference.feature_scores import (
    ASH,
    Density,
    Energy,
    FeatureScore,
    Mahalanobis,
    NearestNeighbours,
    ReAct,
    RelativeMahalanobis,
    ViM,
)
from dubio.methods.arguments import Training, continued
from dubio.methods.recipe import Recipe
from dubio.networks.network import Edit
from dubio.networks.spectral import SpectralNorm
from dubio.training.feature_scores import FeatureScores

ScoreName = Literal["energy", "react", "ash", "mahalanobis", "relative_mahalanobis", "knn", "vim", "density"]


@dataclass(frozen=True)
class ScoreArguments:
    """Arguments of the scores, see :mod:`dubio.inference.feature_scores`.

    Attributes:
        temperature: T of the energy.
        rectify: The quantile of training activations at which ReAct cuts.
        prune: The share of an example's activations that ASH sets to 0.
        neighbour: k of the nearest neighbours.
        bank: Largest number of training rows among which they are searched.
        principal: The share of dimensions that ViM takes as principal.
    """

    temperature: PositiveFloat = 1.0
    rectify: Share = 0.9
    prune: Share = 0.9
    neighbour: Positive = 50
    bank: Positive = 20_000
    principal: Share = 0.5

    def named(self, names: Sequence[ScoreName]) -> tuple[FeatureScore, ...]:
        """Return the scores of these names.

        Raises:
            UserError: When an argument is given that none of them uses, or a neighbour beyond the bank.
        """
        self._check(names)
        every: dict[str, FeatureScore] = {
            "energy": Energy(self.temperature),
            "react": ReAct(self.rectify),
            "ash": ASH(self.prune),
            "mahalanobis": Mahalanobis(),
            "relative_mahalanobis": RelativeMahalanobis(),
            "knn": NearestNeighbours(self.neighbour, self.bank),
            "vim": ViM(self.principal),
            "density": Density(),
        }
        return tuple(every[name] for name in names)

    def _check(self, names: Sequence[ScoreName]) -> None:
        changed = [key for key, value in vars(self).items() if value != getattr(ScoreArguments(), key)]
        if unused := [key for key in changed if ARGUMENT_OF[key] not in names]:
            key = unused[0]
            raise UserError(
                f"{key}={getattr(self, key)} has no effect: the score {ARGUMENT_OF[key]!r} alone uses it, and scores "
                f"has {listing(names) or 'none'}. Add {ARGUMENT_OF[key]!r} to scores, or leave {key} out."
            )
        if "knn" in names and self.neighbour > self.bank and self.neighbour != ScoreArguments().neighbour:
            raise UserError(
                f"neighbour must be at most the number of training rows in the bank, {self.bank} (bank); given "
                f"{self.neighbour}."
            )


ARGUMENT_OF: dict[str, ScoreName] = {
    "temperature": "energy", "rectify": "react", "prune": "ash", "neighbour": "knn", "bank": "knn", "principal": "vim",
}  # fmt: skip
"""Argument → the score that uses it."""


@method("posthoc", family="posthoc", samples_from="one network", ensemble=True)
def posthoc(
    *,
    training: Training = Training(),
    scores: tuple[ScoreName, ...] = (
        "energy", "react", "ash", "mahalanobis", "relative_mahalanobis", "knn", "vim",
    ),
    arguments: ScoreArguments = ScoreArguments(),
) -> Recipe:  # fmt: skip
    """The deterministic network, with uncertainties read off its features.

    Args:
        training: How the network is trained.
        scores: The scores, by name.
        arguments: Their arguments.
    """
    return continued(training.recipe("posthoc", "Post-hoc scores"), FeatureScores(arguments.named(scores)))


@method("ddu", family="posthoc", samples_from="one network", ensemble=True)
def ddu(*, training: Training = Training(), spectral: PositiveFloat = 3.0) -> Recipe:
    """Bounded weights, and the density of the features under one Gaussian per class.

    Args:
        training: How the network is trained.
        spectral: Upper bound of every weight matrix's largest singular value.
    """
    edits: tuple[Edit, ...] = (SpectralNorm(spectral),)
    return continued(training.recipe("ddu", "DDU", edits=edits), FeatureScores((Density(),)))
