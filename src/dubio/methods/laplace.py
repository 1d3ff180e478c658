"""The Laplace approximation (MacKay, 1992; Kronecker-factored: Ritter et al., 2018): a Gaussian around trained weights.

The method continues a trained network for zero epochs: the curvature of the likelihood at the weights, computed from
the training data, gives a Gaussian whose draws predict. The training it starts from is that of the method
``deterministic`` with the same arguments, so that a benchmark with both trains the network once.
"""

from __future__ import annotations

from dubio.core.registry import method
from dubio.core.validate import Positive
from dubio.inference.laplace import Damping
from dubio.methods.arguments import NORM_EXAMPLES, Training, continued
from dubio.methods.recipe import Recipe
from dubio.training.laplace.collector import Laplace, Prior, check_decay
from dubio.training.laplace.structures import Structure


@method("laplace", family="laplace", colour=16, samples_from="one solution", ensemble=True)
def laplace(
    *,
    training: Training = Training(),
    structure: Structure = "kron",
    prior: Prior = "marginal-likelihood",
    scale: float | None = None,
    damping: Damping = "exact",
    kfac_sums: bool = False,
    samples: Positive = 20,
    norm_examples: int = NORM_EXAMPLES,
) -> Recipe:
    """A Gaussian around trained weights, its precision their curvature.

    Args:
        training: How the network is trained first.
        structure: The weights that are Gaussian, and the blocks of their precision.
        prior: Where the prior's precision comes from.
        scale: Scale of the draws; None chooses it on validation data.
        damping: How the prior enters a Kronecker-factored block; ``pi_untransposed`` is an erratum of the pitfalls
            paper's code, which draws L⁻¹ z instead of L⁻ᵀ z.
        kfac_sums: Erratum of the pitfalls paper's code: Kronecker factors are sums over examples, not averages.
        samples: Draws of weights that predict.
        norm_examples: Largest number of training examples that a draw's batch-norm statistics are of; 0 for all.
    """
    plain = training.recipe("laplace", "Laplace")
    if prior == "decay":
        check_decay(getattr(plain.optimiser, "l2", 0.0))  # now, not after the training that it starts from
    if structure.startswith("last-"):
        norm_examples = 0  # the last layer's draws come after every normalised one
    return continued(plain, Laplace(structure, samples, prior, scale, damping, norm_examples, kfac_sums))
