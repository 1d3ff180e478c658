"""SNGP and its combinations (text paper, appendix C, Tables 16 and 17).

Spectral normalisation of the network's weights and a random-feature Gaussian process at its end, with {no, fixed,
concrete} dropout × {deterministic, MC} × {one model, an ensemble}, without those that mean nothing. Each row is one
of :mod:`dubio.methods.setups` with another head and one edit more. ``gp-head`` is the head alone, for networks that
offer no weight to bound (a pre-trained encoder, say).

``spectral`` is the paper's s, which it varies over 1, 2, 5, 10, 15; the default is the one of its ensembles, so that
these share their fits with the single models. Every example counts the same in the precision (``gaussian``, as in
the SNGP authors' own layer): weighted by p(1 − p), examples of which a network is sure vanish from it, and the
variance no longer says how far a text is from them.
"""

from __future__ import annotations

from dataclasses import replace

from dubio.core.registry import method
from dubio.methods.arguments import Argument, Arguments, keyword_function
from dubio.methods.recipe import Recipe
from dubio.methods.setups import CONCRETE, ENSEMBLE, FIXED, SAMPLED, TRAINING, Setup, assemble
from dubio.networks.heads.gp import Likelihood, RandomFeatureGP
from dubio.networks.spectral import SpectralNorm

SPECTRAL = {"spectral": Argument(float, 15.0)}
GP = {
    "features": Argument(int, 1024),
    "ridge": Argument(float, 1.0),
    "kernel_scale": Argument(float, 0.7),
    "likelihood": Argument(Likelihood, "gaussian"),
}

ROWS = (
    Setup("gp-head", "GP head", (GP,), "A random-feature Gaussian process as last layer; no weight is bounded."),
    Setup("sngp", "SNGP", (SPECTRAL, GP), "Bounded weights and a random-feature Gaussian process as last layer."),
    Setup(
        "sngp-regularised",
        "SNGP, regularised",
        (SPECTRAL, GP, FIXED),
        "SNGP trained with dropout and weight decay; no noise at test.",
    ),
    Setup(
        "mc-sngp",
        "MC dropout SNGP",
        (SPECTRAL, GP, FIXED, SAMPLED),
        "The regularised SNGP, its dropout drawn at test time too.",
    ),
    Setup(
        "sngp-concrete-dropout",
        "SNGP concrete dropout",
        (SPECTRAL, GP, CONCRETE),
        "SNGP whose dropout rates are learned; no noise at test.",
    ),
    Setup(
        "mc-sngp-concrete-dropout",
        "MC SNGP concrete dropout",
        (SPECTRAL, GP, CONCRETE, SAMPLED),
        "The concrete-dropout SNGP, its dropout drawn at test time too.",
    ),
    Setup(
        "sngp-ensemble",
        "SNGP ensemble",
        (SPECTRAL, GP, ENSEMBLE),
        "Independent SNGP networks, probabilities averaged.",
    ),
    Setup(
        "sngp-regularised-ensemble",
        "SNGP ensemble, regularised",
        (SPECTRAL, GP, FIXED, ENSEMBLE),
        "Independent regularised SNGP networks, probabilities averaged.",
    ),
    Setup(
        "mc-sngp-ensemble",
        "MC dropout SNGP ensemble",
        (SPECTRAL, GP, FIXED, SAMPLED, ENSEMBLE),
        "Independent MC dropout SNGP networks, all samples averaged.",
    ),
    Setup(
        "sngp-concrete-dropout-ensemble",
        "SNGP concrete dropout ensemble",
        (SPECTRAL, GP, CONCRETE, ENSEMBLE),
        "Independent concrete-dropout SNGP networks, probabilities averaged.",
    ),
    Setup(
        "mc-sngp-concrete-dropout-ensemble",
        "MC SNGP concrete dropout ensemble",
        (SPECTRAL, GP, CONCRETE, SAMPLED, ENSEMBLE),
        "Independent MC concrete-dropout SNGP networks, all samples averaged.",
    ),
)


def assemble_gp(row: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    recipe = assemble(row, arguments)
    head = RandomFeatureGP(
        arguments["features"],
        arguments["ridge"],
        arguments["kernel_scale"],
        arguments["likelihood"],
    )
    bounds = (SpectralNorm(arguments["spectral"]),) if "spectral" in arguments else ()
    return replace(recipe, head=head, edits=(*bounds, *recipe.edits))


def _register(row: Setup) -> None:
    allowed = dict(TRAINING)
    for group in row.arguments:
        allowed |= group
    method(row.name)(keyword_function(row.name, row.summary, allowed, lambda arguments: assemble_gp(row, arguments)))


for _row in ROWS:
    _register(_row)
