"""The 18 set-ups of the text paper.

They are {no, fixed, concrete} dropout × {deterministic, MC} × {softmax, heteroscedastic} × {one model, an ensemble},
without those that mean nothing: a table, not 18 classes. Each row says which slots of a
:class:`~dubio.methods.recipe.Recipe` are filled how, and which arguments a user may give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from dubio.core.errors import UserError
from dubio.core.registry import method
from dubio.inference.augmentation import Augmentation
from dubio.methods.arguments import AUGMENTATION, Argument, Arguments, augmentation_of, keyword_function, views_of
from dubio.methods.recipe import Recipe
from dubio.networks.heads.head import Head
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Softmax
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit, Edit
from dubio.training.collectors import BestOnValidation, Collector, Last
from dubio.training.objectives import ClassWeights, Objective
from dubio.training.optimisers import SGD, Adam, AdamW, Optimiser
from dubio.training.schedules import Constant, Cosine, Linear, LinearTail, Schedule, Step

OptimiserName = Literal["adam", "adamw", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear", "step", "step_45", "step_130", "linear_tail"]
CollectorName = Literal["best_on_validation", "last"]

_SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "constant": Constant,
    "cosine": Cosine,
    "linear": Linear,
    "step": Step,
    # 0.1^(epoch // 30) over 45 and over 130 epochs (pitfalls paper, ImageNet: VI, and ordinary training)
    "step_45": lambda: Step((30 / 45,)),
    "step_130": lambda: Step(tuple(30 * k / 130 for k in (1, 2, 3, 4))),
    "linear_tail": LinearTail,
}
_COLLECTORS: dict[str, Callable[[], Collector]] = {"best_on_validation": BestOnValidation, "last": Last}


TRAINING = {
    "epochs": Argument(int, 45),
    "batch": Argument(int, 32),
    "patience": Argument(int, 15),
    "clip": Argument(float, 10.0),
    "class_weights": Argument(ClassWeights, "none"),
    "optimiser": Argument(OptimiserName, "adam"),
    "lr": Argument(float, 1e-3),
    "l2": Argument(float, 0.0),
    "schedule": Argument(ScheduleName, "constant"),
    "collect": Argument(CollectorName, "best_on_validation"),
    **AUGMENTATION,
}
"""What every set-up lets its user choose."""

FIXED = {"p": Argument(float, 0.5), "shrink": Argument(float, 1e-4)}
CONCRETE = {"start_rate": Argument(float, 0.1), "length_scale": Argument(float, 0.1)}
HETEROSCEDASTIC = {"draws": Argument(int, 10)}
SAMPLED = {"samples": Argument(int, 10)}
ENSEMBLE = {"members": Argument(int, 5)}


class Setup(NamedTuple):
    """A row of the table."""

    name: str
    title: str
    arguments: tuple[dict[str, Argument], ...]
    summary: str


SETUPS = (
    Setup("deterministic", "Deterministic", (), "One network, no dropout, no weight decay."),
    Setup(
        "regularised", "Regularised", (FIXED,), "One network trained with dropout and weight decay; no noise at test."
    ),
    Setup("mc-dropout", "MC dropout", (FIXED, SAMPLED), "The regularised network, its dropout drawn at test time too."),
    Setup(
        "heteroscedastic",
        "Heteroscedastic",
        (FIXED, HETEROSCEDASTIC),
        "The regularised network with logits that carry a learned noise.",
    ),
    Setup(
        "mc-heteroscedastic",
        "MC heteroscedastic",
        (FIXED, HETEROSCEDASTIC, SAMPLED),
        "The heteroscedastic network, its dropout drawn at test time too.",
    ),
    Setup(
        "concrete-dropout",
        "Concrete dropout",
        (CONCRETE,),
        "One network whose dropout rates are learned; no noise at test.",
    ),
    Setup(
        "mc-concrete-dropout",
        "MC concrete dropout",
        (CONCRETE, SAMPLED),
        "The concrete-dropout network, its dropout drawn at test time too.",
    ),
    Setup(
        "heteroscedastic-concrete-dropout",
        "Heteroscedastic concrete dropout",
        (CONCRETE, HETEROSCEDASTIC),
        "Learned dropout rates and logits that carry a learned noise; no dropout at test.",
    ),
    Setup(
        "mc-heteroscedastic-concrete-dropout",
        "MC heteroscedastic concrete dropout",
        (CONCRETE, HETEROSCEDASTIC, SAMPLED),
        "The same, its dropout drawn at test time too.",
    ),
    Setup("deep-ensemble", "Deep ensemble", (ENSEMBLE,), "Independent deterministic networks, probabilities averaged."),
    Setup(
        "deep-ensemble-regularised",
        "Deep ensemble, regularised",
        (FIXED, ENSEMBLE),
        "Independent regularised networks, probabilities averaged.",
    ),
    Setup(
        "mc-dropout-ensemble",
        "MC dropout ensemble",
        (FIXED, SAMPLED, ENSEMBLE),
        "Independent MC dropout networks, all samples averaged.",
    ),
    Setup(
        "concrete-dropout-ensemble",
        "Concrete dropout ensemble",
        (CONCRETE, ENSEMBLE),
        "Independent concrete-dropout networks, probabilities averaged.",
    ),
    Setup(
        "mc-concrete-dropout-ensemble",
        "MC concrete dropout ensemble",
        (CONCRETE, SAMPLED, ENSEMBLE),
        "Independent MC concrete-dropout networks, all samples averaged.",
    ),
    Setup(
        "heteroscedastic-ensemble",
        "Heteroscedastic ensemble",
        (FIXED, HETEROSCEDASTIC, ENSEMBLE),
        "Independent heteroscedastic networks, probabilities averaged.",
    ),
    Setup(
        "mc-heteroscedastic-ensemble",
        "MC heteroscedastic ensemble",
        (FIXED, HETEROSCEDASTIC, SAMPLED, ENSEMBLE),
        "Independent MC heteroscedastic networks, all samples averaged.",
    ),
    Setup(
        "heteroscedastic-concrete-dropout-ensemble",
        "Heteroscedastic concrete dropout ensemble",
        (CONCRETE, HETEROSCEDASTIC, ENSEMBLE),
        "Independent heteroscedastic concrete-dropout networks, probabilities averaged.",
    ),
    Setup(
        "mc-heteroscedastic-concrete-dropout-ensemble",
        "MC heteroscedastic concrete dropout ensemble",
        (CONCRETE, HETEROSCEDASTIC, SAMPLED, ENSEMBLE),
        "Independent MC heteroscedastic concrete-dropout networks, all samples averaged.",
    ),
)
"""In the order of the paper's numbering, 0 to 17."""


def assemble(setup: Setup, arguments: Arguments) -> Recipe:
    """The recipe of a row with a user's arguments, all filled in."""
    if "samples" in arguments and arguments["samples"] < 1:
        raise UserError(
            f"{setup.name}: samples must be at least 1 (0 would be the method without MC); "
            f"given {arguments['samples']}."
        )
    edits: tuple[Edit, ...] = ()
    if "p" in arguments:
        edits = (DropoutEdit(arguments["p"]),)
    elif "start_rate" in arguments:
        edits = (ConcreteDropoutEdit(arguments["start_rate"], arguments["length_scale"]),)
    head: Head = Heteroscedastic(arguments["draws"]) if "draws" in arguments else Softmax()
    augmentation = augmentation_of(arguments)
    return Recipe(
        setup.name,
        setup.title,
        edits=edits,
        head=head,
        objective=_objective(arguments, augmentation),
        optimiser=_optimiser(setup.name, arguments),
        schedule=_SCHEDULES[arguments["schedule"]](),
        collect=_COLLECTORS[arguments["collect"]](),
        members=arguments.get("members", 1),
        samples=arguments.get("samples", 0),
        views=views_of(setup.name, arguments, augmentation),
    )


def _objective(arguments: Arguments, augmentation: Augmentation | None) -> Objective:
    named = {key: arguments[key] for key in ("batch", "epochs", "patience", "clip", "class_weights")}
    return Objective(**named, augmentation=augmentation)


def _optimiser(name: str, arguments: Arguments) -> Optimiser:
    """``l2`` is decay in the loss for adam and sgd, decoupled and scaled by the rate for adamw."""
    lr, l2, shrink = arguments["lr"], arguments["l2"], arguments.get("shrink", 0.0)
    if arguments["optimiser"] == "adam":
        return Adam(lr, l2, shrink)
    if shrink:
        raise UserError(f"{name}: shrink goes with optimiser='adam'; set shrink=0 to use {arguments['optimiser']!r}.")
    return AdamW(lr, l2) if arguments["optimiser"] == "adamw" else SGD(lr, l2=l2)


def _factory(setup: Setup) -> Callable[..., Recipe]:
    """A function whose keyword arguments are exactly those the row allows."""
    allowed = dict(TRAINING)
    for group in setup.arguments:
        allowed |= group

    return keyword_function(setup.name, setup.summary, allowed, lambda arguments: assemble(setup, arguments))


for _setup in SETUPS:
    method(_setup.name)(_factory(_setup))
