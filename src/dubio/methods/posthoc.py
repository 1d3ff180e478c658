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
        """Return the scores of these names."""
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
def ddu(*, training: Training = Training(), spectral: float = 3.0) -> Recipe:
    """Bounded weights, and the density of the features under one Gaussian per class.

    Args:
        training: How the network is trained.
        spectral: Upper bound of every weight matrix's largest singular value.
    """
    edits: tuple[Edit, ...] = (SpectralNorm(spectral),)
    return continued(training.recipe("ddu", "DDU", edits=edits), FeatureScores((Density(),)))
