"""Fine-tuning by low-rank adapters (LoRA; Hu et al., 2022), and a Laplace approximation of them (Yang et al., 2024).

The adapters are :mod:`dubio.networks.lora`. The Gaussian is that of the method ``laplace`` over the weights which are
trained, those of the adapters and of the head; both methods share their training.
"""

from __future__ import annotations

from dataclasses import dataclass

from dubio.core.registry import method
from dubio.core.validate import Positive, PositiveFloat
from dubio.methods.arguments import Training, continued
from dubio.methods.recipe import Recipe
from dubio.networks.lora import LowRankAdapters
from dubio.training.laplace.collector import Laplace, Prior, check_decay
from dubio.training.laplace.structures import Structure


@dataclass(frozen=True)
class Adapters:
    """The adapters, see :class:`~dubio.networks.lora.LowRankAdapters`."""

    rank: Positive = 8
    alpha: PositiveFloat = 16.0

    def recipe(self, name: str, title: str, training: Training) -> Recipe:
        """Return the recipe of one network with adapters."""
        return training.recipe(name, title, edits=(LowRankAdapters(self.rank, self.alpha),))


@method("lora", family="lora", colour=26, samples_from="one network", ensemble=True)
def lora(*, training: Training = Training(), adapters: Adapters = Adapters()) -> Recipe:
    """A frozen pre-trained network whose dense layers learn changes of low rank."""
    return adapters.recipe("lora", "LoRA", training)


@method("lora-laplace", family="lora", colour=27, samples_from="one solution", ensemble=True)
def lora_laplace(
    *,
    training: Training = Training(),
    adapters: Adapters = Adapters(),
    structure: Structure = "kron",
    prior: Prior = "marginal-likelihood",
    scale: PositiveFloat | None = None,
    samples: Positive = 20,
) -> Recipe:
    """A Gaussian around trained adapters and the head, its precision their curvature.

    Args:
        training: How the adapters are trained first.
        adapters: Their rank and scale.
        structure: The weights that are Gaussian, and the blocks of their precision; ``last-…``: the head alone.
        prior: Where the prior's precision comes from.
        scale: Scale of the draws; None chooses it on validation data.
        samples: Draws of weights that predict.
    """
    trained = adapters.recipe("lora-laplace", "LoRA Laplace", training)
    if prior == "decay":
        check_decay(trained.optimiser.l2)  # now, not after the training that it starts from
    return continued(trained, Laplace(structure, samples, prior, scale))
