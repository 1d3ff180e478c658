"""A method as data: each slot a small value; a combination is never a class."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import added, name_of, part
from dubio.core.types import Modality, Target
from dubio.inference.augmentation import Views
from dubio.networks.heads.head import Head
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Edit
from dubio.training.collectors import BestOnValidation, Collector
from dubio.training.loop import check_slots
from dubio.training.objectives import Objective
from dubio.training.optimisers import Adam, Optimiser, check_prior
from dubio.training.schedules import Constant, Schedule


@part("recipe")
@dataclass(frozen=True)
class Recipe:
    """The stock method.

    Attributes:
        name: What the benchmark calls it; no part of any identity.
        title: What a report calls it; no part of any identity.
        start: Another recipe whose fit this one continues from, or None to start from scratch.
        edits: What fills the network's noise sites, bounds its weights or makes them Gaussian.
        head: What stands at the network's end.
        objective: What is minimised, in what batches, for how long.
        optimiser: What moves the weights.
        schedule: How the learning rate goes.
        collect: Which weights are kept.
        members: Independent fits whose predictions are pooled.
        samples: Noise draws a weight state; 0 is a deterministic pass.
        views: Random views of each example at prediction, or None.
        most: At most so many weight states predict, the latest, or noise draws of a single one; 0 for all.
    """

    name: str = ""
    title: str = ""
    start: Recipe | None = None
    edits: tuple[Edit, ...] = ()
    head: Head = field(default_factory=Softmax)
    objective: Objective = field(default_factory=Objective)
    optimiser: Optimiser = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Constant)
    collect: Collector = field(default_factory=BestOnValidation)
    members: int = 1
    samples: int = 0
    views: Views | None = None
    most: int = added(0)

    def __post_init__(self) -> None:
        if self.members < 1:
            raise UserError(f"{self.name}: members must be at least 1; given {self.members}.")
        if self.samples < 0:
            raise UserError(f"{self.name}: samples must be at least 0; given {self.samples}.")
        if self.samples and not any(edit.random for edit in self.edits):
            raise UserError(
                f"{self.name}: samples={self.samples} asks for noise draws, but nothing in this recipe is random at "
                "prediction, so every sample would be the same; add an edit such as dropout, or set samples=0."
            )
        names = [name_of(edit) for edit in self.edits]
        if {"dropout", "concrete_dropout"} <= set(names):
            raise UserError(
                f"{self.name}: dropout and concrete_dropout would act on the same inputs, one rate fixed and one "
                "learned; choose one of them."
            )
        if len(set(names)) < len(names):
            raise UserError(f"{self.name}: the same edit twice ({', '.join(names)}); each edit fills its sites once.")
        for edit in self.edits:
            check_prior(self.name, edit, self.optimiser)
        if self.start is not None and not self.start.collect.continues:
            raise UserError(
                f"{self.name}: start: {name_of(self.start.collect)} leaves a distribution of weights, not weights that "
                "a training could go on from; start from a recipe that collects last, best_on_validation or swa."
            )
        check_slots(self.name, self.objective, self.optimiser, self.schedule, self.collect)

    @property
    def states(self) -> int:
        """Weight states that one fit leaves."""
        return self.collect.states(self.schedule, self.objective.epochs)

    @property
    def pooled(self) -> int:
        """Predictions of one fit that are pooled, views not counted; 0 for a single deterministic pass."""
        most = self.most or max(self.states, self.samples)
        return min(self.samples, most) if self.states == 1 else min(self.states, most) * max(1, self.samples)

    def fit_part(self) -> Recipe:
        """Only what touches weights: methods that differ in the rest share their fits."""
        return replace(self, name="", title="", members=1, samples=0, views=None, most=0)

    def for_task(self, inputs: Modality, target: Target) -> Recipe:
        """The same recipe with the head a task's target asks for.

        Raises:
            UserError: When a slot means nothing for such a task.
        """
        self.objective.check_target(target)
        at_test = None if self.views is None else self.views.augmentation
        for augmentation in (self.objective.augmentation, at_test):
            if augmentation is not None and augmentation.inputs != inputs:
                raise UserError(
                    f"{self.name}: this augmentation is for {augmentation.inputs} inputs; the task has {inputs} inputs."
                )
        return replace(self, head=self.head.for_target(target))

    def fit(self, task: Any, network: Any, *, seed: int, context: Any) -> Any:
        """Fit every member in this process; the runner does the same through the store, in parallel.

        Args:
            task: The task.
            network: A network's name, or (name, arguments).
            seed: The seed; member k is (seed, k).
            context: A :class:`dubio.methods.fitting.FitContext`.

        Returns:
            The posterior of the whole method.
        """
        from dubio.methods.fitting import fit_recipe

        return fit_recipe(self, task, network, seed=seed, context=context)
