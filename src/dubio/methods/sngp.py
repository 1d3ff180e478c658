"""SNGP and its combinations (text paper, appendix C, Tables 16 and 17).

Spectral normalisation of the network's weights and a random-feature Gaussian process as last layer, with {no, fixed,
concrete} dropout × {deterministic, MC} × {one model, an ensemble}, without those that mean nothing. ``gp-head`` is the
last layer alone, for networks that offer no weight to bound (a pre-trained encoder, say).

``spectral`` is the paper's s, which it varies over 1, 2, 5, 10, 15; the default is the one of its ensembles, so that
these share their fits with the single models. Every example counts the same in the precision (``gaussian``, as in
the SNGP authors' own layer): weighted by p(1 − p), examples with confident predictions vanish from it, and the variance
no longer grows with the distance from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dubio.core.registry import Ensemble, method
from dubio.methods.arguments import FixedRate, LearnedRate, Training
from dubio.methods.recipe import Recipe
from dubio.networks.heads.gp import Likelihood, RandomFeatureGP
from dubio.networks.spectral import SpectralNorm


@dataclass(frozen=True)
class GaussianProcess:
    """The last layer, see :class:`~dubio.networks.heads.gp.RandomFeatureGP`."""

    features: int = 1024
    ridge: float = 1.0
    kernel_scale: float = 0.7
    likelihood: Likelihood = "gaussian"

    def head(self) -> RandomFeatureGP:
        """Return the head."""
        return RandomFeatureGP(self.features, self.ridge, self.kernel_scale, self.likelihood)


@dataclass(frozen=True)
class SNGP:
    """Spectral normalisation and the last layer.

    Attributes:
        spectral: Upper bound s of every weight matrix's largest singular value.
        process: The last layer.
    """

    spectral: float = 15.0
    process: GaussianProcess = GaussianProcess()

    def recipe(
        self,
        name: str,
        title: str,
        training: Training,
        *,
        rate: FixedRate | LearnedRate | None = None,
        samples: int | None = None,
    ) -> Recipe:
        """Return the recipe of one SNGP network."""
        edits = (SpectralNorm(self.spectral),)
        return training.recipe(name, title, edits=edits, rate=rate, head=self.process.head(), samples=samples)


@method("gp-head", family="sngp", samples_from="one network")
def gp_head(*, training: Training = Training(), process: GaussianProcess = GaussianProcess()) -> Recipe:
    """A random-feature Gaussian process as last layer; no weight is bounded."""
    return training.recipe("gp-head", "GP head", head=process.head())


@method("sngp", family="sngp", samples_from="one network", ensemble=True)
def sngp(*, training: Training = Training(), layers: SNGP = SNGP()) -> Recipe:
    """Bounded weights and a random-feature Gaussian process as last layer."""
    return layers.recipe("sngp", "SNGP", training)


@method(
    "sngp-regularised", family="sngp", samples_from="one network", ensemble=Ensemble(title="SNGP ensemble, regularised")
)
def sngp_regularised(
    *, training: Training = Training(), layers: SNGP = SNGP(), rate: FixedRate = FixedRate()
) -> Recipe:
    """SNGP trained with dropout and weight decay; no noise at prediction."""
    return layers.recipe("sngp-regularised", "SNGP, regularised", training, rate=rate)


@method("mc-sngp", family="sngp", samples_from="one solution", ensemble=True)
def mc_sngp(
    *, training: Training = Training(), layers: SNGP = SNGP(), rate: FixedRate = FixedRate(), samples: int = 10
) -> Recipe:
    """The regularised SNGP, with dropout drawn at prediction too."""
    return layers.recipe("mc-sngp", "MC dropout SNGP", training, rate=rate, samples=samples)


@method("sngp-concrete-dropout", family="sngp", samples_from="one network", ensemble=True)
def sngp_concrete_dropout(
    *, training: Training = Training(), layers: SNGP = SNGP(), rate: LearnedRate = LearnedRate()
) -> Recipe:
    """SNGP with learned dropout rates; no noise at prediction."""
    return layers.recipe("sngp-concrete-dropout", "SNGP concrete dropout", training, rate=rate)


@method("mc-sngp-concrete-dropout", family="sngp", samples_from="one solution", ensemble=True)
def mc_sngp_concrete_dropout(
    *, training: Training = Training(), layers: SNGP = SNGP(), rate: LearnedRate = LearnedRate(), samples: int = 10
) -> Recipe:
    """The concrete-dropout SNGP, with dropout drawn at prediction too."""
    name, title = "mc-sngp-concrete-dropout", "MC SNGP concrete dropout"
    return layers.recipe(name, title, training, rate=rate, samples=samples)
