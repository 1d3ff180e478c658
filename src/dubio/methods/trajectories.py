"""Ensembles of weights that one training passes through: snapshots, and the Gaussian around their mean.

A snapshot ensemble trains from scratch in cycles. The others continue a trained network for some epochs (the *tail*):
the arguments of training describe the network they start from, whose stored fit is that of the method ``deterministic``
with the same arguments; those of the tail have names of their own. With ``schedule_epochs`` the pre-training ends
before its schedule does, and the fit is one that no finished training shares.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dubio.core.errors import UserError
from dubio.core.registry import method
from dubio.methods.arguments import Argument, Arguments, augmentation_of, keyword_function, views_of
from dubio.methods.recipe import Recipe
from dubio.methods.setups import ENSEMBLE, SETUPS, TRAINING, Setup, assemble
from dubio.training.collectors import Collector, KeepAll, Precision
from dubio.training.optimisers import SGD, Adam, Optimiser, check_rate
from dubio.training.schedules import ConstantTail, Cut, Cyclic, Schedule, Triangular
from dubio.training.swag import SWA, SWAG

TailOptimiser = Literal["sgd", "adam"]

SNAPSHOTS = {"cycles": Argument(int, 5), "store": Argument(Precision, "float32")}
"""How many snapshots, one a cycle, and in what precision they are stored."""

TAIL = {
    "schedule_epochs": Argument(int, 0),
    "tail_optimiser": Argument(TailOptimiser, "sgd"),
    "tail_lr": Argument(float, 1e-2),
}
"""Where the pre-training is cut (0: nowhere), and what moves the weights in the tail."""

TRIANGLES = {"tail_low_lr": Argument(float, 5e-4), "cycle_epochs": Argument(int, 2), **SNAPSHOTS}
"""α₂ (``tail_lr`` is α₁) and the length of a cycle."""

CONSTANT = {"tail_epochs": Argument(int, 20)}
GAUSSIAN = {"rank": Argument(int, 20), "samples": Argument(int, 20)}
"""How many deviations from the mean, and how many draws of weights predict."""

FROM_SCRATCH = {name: a for name, a in TRAINING.items() if name not in ("patience", "schedule", "collect")}
"""Of the arguments of training those that cycles leave open."""

ROWS = (
    Setup(
        "snapshot-ensemble",
        "Snapshot ensemble",
        (FROM_SCRATCH, SNAPSHOTS),
        "The weights at the end of every cosine cycle of one training, probabilities averaged.",
    ),
    Setup(
        "snapshot-ensemble-ensemble",
        "Ensemble of snapshot ensembles",
        (FROM_SCRATCH, SNAPSHOTS, ENSEMBLE),
        "Independent trainings in cosine cycles, all their snapshots averaged.",
    ),
    Setup(
        "fge",
        "Fast geometric ensemble",
        (TRAINING, TAIL, TRIANGLES),
        "A trained network continued in short triangular cycles, a snapshot at the low rate of each.",
    ),
    Setup(
        "fge-ensemble",
        "Ensemble of fast geometric ensembles",
        (TRAINING, TAIL, TRIANGLES, ENSEMBLE),
        "Independent networks continued in triangular cycles, all their snapshots averaged.",
    ),
    Setup(
        "swa",
        "SWA",
        (TRAINING, TAIL, CONSTANT),
        "One network: the mean weights of a tail of training at a constant rate.",
    ),
    Setup(
        "swa-ensemble",
        "SWA ensemble",
        (TRAINING, TAIL, CONSTANT, ENSEMBLE),
        "Independent networks of mean weights, probabilities averaged.",
    ),
    Setup(
        "swag",
        "SWAG",
        (TRAINING, TAIL, CONSTANT, GAUSSIAN),
        "Weights drawn from a Gaussian fitted to a tail of training at a constant rate.",
    ),
    Setup(
        "swag-ensemble",
        "SWAG ensemble",
        (TRAINING, TAIL, CONSTANT, GAUSSIAN, ENSEMBLE),
        "Weights drawn from the Gaussians of independent trainings (MultiSWAG).",
    ),
)


def assemble_trajectory(row: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    recipe = _from_scratch(row, arguments) if "tail_lr" not in arguments else _continued(row, arguments)
    views = views_of(row.name, arguments, augmentation_of(arguments))
    return replace(recipe, members=arguments.get("members", 1), views=views)


def _from_scratch(row: Setup, arguments: Arguments) -> Recipe:
    """Cosine cycles, a snapshot at the end of each (pitfalls paper, eq. 16)."""
    fixed = {"patience": 0, "schedule": "constant", "collect": "last", "views": 0}
    recipe = assemble(row, {name: arguments[name] for name in FROM_SCRATCH} | fixed)
    return replace(recipe, schedule=Cyclic(arguments["cycles"]), collect=KeepAll(store=arguments["store"]))


def _continued(row: Setup, arguments: Arguments) -> Recipe:
    """A trained network, then the tail."""
    start = _start(row.name, arguments)
    epochs, schedule, collect = _tail(row.name, arguments)
    return Recipe(
        row.name,
        row.title,
        start=start,
        head=start.head,
        objective=replace(start.objective, epochs=epochs, patience=0),
        optimiser=_tail_optimiser(arguments),
        schedule=schedule,
        collect=collect,
    )


def _start(name: str, arguments: Arguments) -> Recipe:
    """The method ``deterministic`` of the same arguments, cut where asked; names are no part of an identity."""
    recipe = assemble(SETUPS[0], {key: arguments[key] for key in TRAINING} | {"views": 0}).fit_part()
    planned, epochs = arguments["schedule_epochs"], arguments["epochs"]
    if not planned:
        return recipe
    if planned < epochs:
        raise UserError(
            f"{name}: schedule_epochs is how long the schedule is, of which the first epochs={epochs} are run; "
            f"it must be at least that, or 0 for the same; given {planned}."
        )
    return recipe if planned == epochs else replace(recipe, schedule=Cut(recipe.schedule, epochs / planned))


def _tail(name: str, arguments: Arguments) -> tuple[int, Schedule, Collector]:
    """Epochs, schedule and collector of the tail."""
    if "tail_low_lr" not in arguments:
        collect = SWAG(arguments["rank"], arguments["samples"]) if "rank" in arguments else SWA()
        least, whose = (2, "a covariance takes two") if isinstance(collect, SWAG) else (1, "a mean takes one")
        if (epochs := arguments["tail_epochs"]) < least:
            raise UserError(
                f"{name}: tail_epochs must be at least {least}: each gives one snapshot, and {whose}; given {epochs}."
            )
        return epochs, ConstantTail(), collect
    cycle, high, low = arguments["cycle_epochs"], arguments["tail_lr"], arguments["tail_low_lr"]
    if cycle < 2 or cycle % 2:
        raise UserError(
            f"{name}: cycle_epochs must be even, a snapshot is taken at the middle of a cycle; given {cycle}."
        )
    check_rate(name, high, "tail_lr")
    if not 0.0 <= low <= high:
        raise UserError(f"{name}: tail_low_lr must lie between 0 and tail_lr={high}; given {low}.")
    triangles = Triangular(arguments["cycles"], low / high)
    return (2 * triangles.cycles - 1) * cycle // 2, triangles, KeepAll(store=arguments["store"])


def _tail_optimiser(arguments: Arguments) -> Optimiser:
    kind = SGD if arguments["tail_optimiser"] == "sgd" else Adam
    return kind(lr=arguments["tail_lr"], l2=arguments["l2"])


def _register(row: Setup) -> None:
    allowed: dict[str, Argument] = {}
    for group in row.arguments:
        allowed |= group
    make = keyword_function(row.name, row.summary, allowed, lambda arguments: assemble_trajectory(row, arguments))
    method(row.name)(make)


for _row in ROWS:
    _register(_row)
