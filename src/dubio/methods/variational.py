"""Mean-field variational inference: a Gaussian for every weight, trained by a bound on the evidence.

The loss is the cross-entropy plus (β/N)·KL(q ‖ p) with the prior p = N(0, 1/(N·l2)) that weight decay ``l2`` stands for
(pitfalls paper, eqs 11 and 12). The μ² part of the KL divergence is the optimiser's weight decay and not scaled by β.

Two ways to train come out of the arguments. From scratch, as in the retina paper: Adam on everything, Flipout, β rising
over the first steps (``anneal``). From a trained network, as in the pitfalls paper: ``start_epochs`` of ordinary
training, whose fit is shared with the method ``deterministic`` of the same arguments, then SGD on μ and Adam on log σ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from dubio.core.errors import UserError
from dubio.core.registry import method
from dubio.methods.arguments import Argument, Arguments, keyword_function
from dubio.methods.recipe import Recipe
from dubio.methods.setups import ENSEMBLE, SAMPLED, SETUPS, TRAINING, ScheduleName, Setup, assemble
from dubio.networks.gaussian_weights import Estimator, GaussianWeights
from dubio.training.optimisers import SGD, Adam, MeanAndScale

MeanOptimiser = Literal["adam", "sgd"]

POSTERIOR = {
    "l2": Argument(float, 5e-5),
    "beta": Argument(float, 1e-2),
    "anneal": Argument(float, 0.25),
    "log_sigma": Argument(float, -5.0),
    "estimator": Argument(Estimator, "flipout"),
    "optimiser": Argument(MeanOptimiser, "adam"),
    "scale_lr": Argument(float, 1e-2),
}
"""Prior, weight of the KL divergence, first σ, and how both are trained; ``l2`` is the prior and the decay of μ."""

START = {
    "start_epochs": Argument(int, 0),
    "start_optimiser": Argument(MeanOptimiser, "adam"),
    "start_lr": Argument(float, 1e-3),
    "start_schedule": Argument(ScheduleName, "constant"),
}
"""The ordinary training whose weights μ starts from; 0 epochs start from scratch."""

ROWS = (
    Setup("mean-field-vi", "Mean-field VI", (POSTERIOR, START, SAMPLED), "A Gaussian for every weight, drawn at test."),
    Setup(
        "mean-field-vi-ensemble",
        "Mean-field VI ensemble",
        (POSTERIOR, START, SAMPLED, ENSEMBLE),
        "Independent mean-field VI networks, all samples averaged.",
    ),
)


def assemble_posterior(row: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    if arguments["samples"] < 1:
        raise UserError(f"{row.name}: samples must be at least 1; given {arguments['samples']}.")
    ordinary = {key: value for key, value in arguments.items() if key != "samples"}
    recipe = assemble(row, ordinary)
    named = {key: arguments[key] for key in ("l2", "log_sigma", "beta", "anneal", "estimator")}
    return replace(
        recipe,
        start=_start(ordinary) if arguments["start_epochs"] else None,
        edits=(GaussianWeights(**named),),
        optimiser=MeanAndScale(cast(Adam | SGD, recipe.optimiser), arguments["scale_lr"]),
        samples=arguments["samples"],
    )


def _start(arguments: Arguments) -> Recipe:
    """The method ``deterministic`` with the same data, decay and augmentation; names are no part of an identity."""
    own = {name: arguments[f"start_{name}"] for name in ("epochs", "optimiser", "lr", "schedule")}
    ordinary = {name: arguments[name] for name in TRAINING}
    return assemble(SETUPS[0], {**ordinary, **own, "views": 0}).fit_part()


def _register(row: Setup) -> None:
    allowed = dict(TRAINING)
    for group in row.arguments:
        allowed |= group
    make = keyword_function(row.name, row.summary, allowed, lambda arguments: assemble_posterior(row, arguments))
    method(row.name)(make)


for _row in ROWS:
    _register(_row)
