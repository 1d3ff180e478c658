"""The Laplace approximation (MacKay, 1992; Kronecker-factored: Ritter et al., 2018): a Gaussian around trained weights.

A zero-epoch child of a trained network: nothing is trained, the curvature of the likelihood at the weights is computed
from the training data and gives a Gaussian, whose draws predict. The training it starts from is that of the method
``deterministic`` with the same arguments, so that a benchmark with both makes it once.
"""

from __future__ import annotations

from dataclasses import replace

from dubio.core.registry import method
from dubio.inference.laplace import Damping
from dubio.methods.arguments import Argument, Arguments, keyword_function
from dubio.methods.recipe import Recipe
from dubio.methods.setups import ENSEMBLE, SETUPS, TRAINING, Setup, assemble
from dubio.training.laplace.collector import Laplace, Prior, check_decay
from dubio.training.laplace.structures import Structure
from dubio.training.schedules import Constant

LAPLACE = {
    "structure": Argument(Structure, "kron"),
    "prior": Argument(Prior, "marginal-likelihood"),
    "scale": Argument(float | None, None),
    "damping": Argument(Damping, "exact"),
    "samples": Argument(int, 20),
}
"""Of which weights and how finely, the prior, the noise scale, and how many weights are drawn."""

ROWS = (
    Setup("laplace", "Laplace", (LAPLACE,), "A Gaussian around trained weights, its precision their curvature."),
    Setup(
        "laplace-ensemble",
        "Laplace ensemble",
        (LAPLACE, ENSEMBLE),
        "Independent networks, each with a Laplace approximation, all samples averaged.",
    ),
)


def assemble_laplace(row: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    ordinary = {name: arguments[name] for name in TRAINING}
    predicted = assemble(row, ordinary)
    if arguments["prior"] == "decay":
        check_decay(getattr(predicted.optimiser, "l2", 0.0))  # now, not behind the training that it starts from
    start = assemble(SETUPS[0], {**ordinary, "views": 0}).fit_part()
    named = {name: arguments[name] for name in ("structure", "prior", "scale", "damping")}
    return replace(
        predicted,
        start=start,
        objective=replace(start.objective, epochs=0, patience=0),
        schedule=Constant(),
        collect=Laplace(draws=arguments["samples"], **named),
        members=arguments.get("members", 1),
    )


def _register(row: Setup) -> None:
    allowed = dict(TRAINING)
    for group in row.arguments:
        allowed |= group
    make = keyword_function(row.name, row.summary, allowed, lambda arguments: assemble_laplace(row, arguments))
    method(row.name)(make)


for _row in ROWS:
    _register(_row)
