"""Cyclical stochastic-gradient MCMC (Zhang et al., 2020): weight samples around several optima, from one training.

The learning rate goes down a cosine and up again, cycle after cycle. At the start of a cycle large steps look for
another optimum; in its last epochs the steps carry noise that samples the posterior around it, and snapshots are kept.
Prediction averages over all of them, so that their number is ``(cycles − burn_in) · samples_per_cycle``.
"""

from __future__ import annotations

from dubio.core.registry import method
from dubio.methods.arguments import AUGMENTATION, Argument, Arguments, augmentation_of, keyword_function, views_of
from dubio.methods.recipe import Recipe
from dubio.methods.setups import ENSEMBLE, Setup
from dubio.training.collectors import KeepAll, Precision
from dubio.training.objectives import ClassWeights, Objective
from dubio.training.optimisers import Optimiser
from dubio.training.schedules import Cyclic
from dubio.training.sgmcmc import SGHMC, SGLD

CYCLES = {
    "epochs": Argument(int, 45),
    "batch": Argument(int, 32),
    "cycles": Argument(int, 5),
    "samples_per_cycle": Argument(int, 3),
    "sampling_epochs": Argument(int, 3),
    "burn_in": Argument(int, 0),
    "temperature": Argument(float, 0.01),
    "l2": Argument(float, 3e-5),
    "embedding_rate": Argument(float, 100.0),
    "clip": Argument(float, 10.0),
    "class_weights": Argument(ClassWeights, "none"),
    "store": Argument(Precision, "float32"),
    **AUGMENTATION,
}
"""What every cyclical sampler lets its user choose."""

LANGEVIN = {"lr": Argument(float, 0.5), "momentum": Argument(float, 0.0)}
HAMILTONIAN = {"lr": Argument(float, 0.05), "alpha": Argument(float, 0.1)}

ROWS = (
    Setup(
        "csgld", "Cyclical SGLD", (LANGEVIN,), "Weights sampled by Langevin dynamics at the end of every cosine cycle."
    ),
    Setup(
        "csghmc",
        "Cyclical SGHMC",
        (HAMILTONIAN,),
        "Weights sampled by Hamiltonian dynamics with friction at the end of every cosine cycle.",
    ),
    Setup(
        "csgld-ensemble",
        "Cyclical SGLD ensemble",
        (LANGEVIN, ENSEMBLE),
        "Independent trainings by cyclical SGLD, all samples averaged.",
    ),
    Setup(
        "csghmc-ensemble",
        "Cyclical SGHMC ensemble",
        (HAMILTONIAN, ENSEMBLE),
        "Independent trainings by cyclical SGHMC, all samples averaged.",
    ),
)


def assemble_sampler(row: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    augmentation = augmentation_of(arguments)
    named = {key: arguments[key] for key in ("batch", "epochs", "clip", "class_weights")}
    per_cycle = arguments["samples_per_cycle"]
    return Recipe(
        row.name,
        row.title,
        objective=Objective(**named, patience=0, augmentation=augmentation),
        optimiser=_optimiser(arguments),
        schedule=Cyclic(arguments["cycles"], arguments["sampling_epochs"], arguments["temperature"], per_cycle),
        collect=KeepAll(skip=arguments["burn_in"] * per_cycle, store=arguments["store"]),
        members=arguments.get("members", 1),
        views=views_of(row.name, arguments, augmentation),
    )


def _optimiser(arguments: Arguments) -> Optimiser:
    lr, l2, embedding_rate = arguments["lr"], arguments["l2"], arguments["embedding_rate"]
    if "alpha" in arguments:
        return SGHMC(lr, l2, arguments["alpha"], embedding_rate)
    return SGLD(lr, l2, arguments["momentum"], embedding_rate)


def _register(row: Setup) -> None:
    allowed = dict(CYCLES)
    for group in row.arguments:
        allowed |= group
    make = keyword_function(row.name, row.summary, allowed, lambda arguments: assemble_sampler(row, arguments))
    method(row.name)(make)


for _row in ROWS:
    _register(_row)
