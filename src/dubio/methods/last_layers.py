"""Variational Bayesian last layers (VBLL; Harrison, Willes and Snoek, 2024): only the last layer is Bayesian.

The layer is :mod:`dubio.networks.heads.variational`. It is trained together with the network, or alone where the
network is frozen: a pre-trained encoder (``trainable_layers = 0``), or a module of the user's whose weights need no
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dubio.core.registry import method
from dubio.core.validate import NonNegative, PositiveFloat
from dubio.methods.arguments import Training
from dubio.methods.recipe import Recipe
from dubio.networks.heads.variational import Covariance, Variational


@dataclass(frozen=True)
class LastLayer:
    """The last layer, see :class:`~dubio.networks.heads.variational.Variational`."""

    covariance: Covariance = "dense"
    prior_variance: PositiveFloat = 1.0
    noise_scale: PositiveFloat = 1.0
    noise_freedom: PositiveFloat = 1.0

    def head(self) -> Variational:
        """Return the head."""
        return Variational(self.covariance, self.prior_variance, self.noise_scale, self.noise_freedom)


@method("vbll", family="variational", colour=25, samples_from="one solution", ensemble=True)
def vbll(*, training: Training = Training(), layer: LastLayer = LastLayer(), samples: NonNegative = 20) -> Recipe:
    """A Gaussian for every weight of the last layer, trained by a bound on the evidence.

    Args:
        training: How the network is trained; decay (``l2``) leaves the last layer to its prior.
        layer: The last layer.
        samples: Logits drawn for each example; 0 predicts with mean-field logits in one pass.
    """
    return replace(training.recipe("vbll", "VBLL", head=layer.head()), samples=samples)
