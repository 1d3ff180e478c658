"""A method as data: a recipe has slots, each filled by a small value; a combination is never a class.

Every slot has one contract, which the recipe and the fitting code call without knowing the classes:

- ``edits`` change a built model (:class:`~dubio.networks.network.Edit`: ``apply``);
- ``head`` builds its last layer (:class:`~dubio.networks.heads.head.Head`: ``for_target``, ``build``);
- ``objective``, ``optimiser`` and ``schedule`` drive the training loop;
- ``collect`` gathers weights into a posterior (:class:`~dubio.training.collectors.Collector`: ``init``, ``update``,
  ``finish``) and says how it is read back (``form``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dubio.core.errors import UserError
from dubio.core.specs import added, name_of, part
from dubio.core.types import Modality, Target, Task
from dubio.inference.augmentation import Views
from dubio.networks.heads.head import Head
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Edit
from dubio.networks.noise import SiteEdit
from dubio.training.collectors import BestOnValidation, Collector
from dubio.training.loop import check_slots
from dubio.training.objectives import Objective
from dubio.training.optimisers import Adam, Optimiser, check_prior
from dubio.training.schedules import Constant, Schedule

if TYPE_CHECKING:
    from dubio.inference.posterior import Posterior
    from dubio.methods.fitting import FitContext
    from dubio.methods.specification import NetworkSpec


@part("recipe")
@dataclass(frozen=True)
class Recipe:
    """A method as a value.

    Attributes:
        name: Its name in a benchmark; not part of any identity.
        title: Its title in a report; not part of any identity.
        start: Another recipe whose fit this one continues, or None to start from scratch.
        edits: Changes of the model: noise at its sites, bounded weights, Gaussian weights.
        head: The last layer and its loss.
        objective: The batches, epochs and class weights of the training.
        optimiser: The optimiser.
        schedule: The schedule of its learning rate.
        collect: Which weights become the posterior.
        members: Independent fits whose predictions are pooled.
        samples: Noise draws per weight state; 0 is a deterministic pass.
        views: Random views of each example at prediction, or None.
        most: Largest number of weight states that predict, the latest, or of noise draws of a single one; 0 for all.
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
                "prediction, so every sample would be the same; add an edit that is, or set samples=0."
            )
        names = [name_of(edit) for edit in self.edits]
        noises = {name_of(edit) for edit in self.edits if isinstance(edit, SiteEdit)}
        if len(noises) > 1:
            raise UserError(f"{self.name}: {', '.join(sorted(noises))} would act on the same inputs; choose one.")
        if len(set(names)) < len(names):
            raise UserError(f"{self.name}: the same edit twice ({', '.join(names)}); each edit may occur once.")
        for edit in self.edits:
            check_prior(self.name, edit, self.optimiser)
        if self.start is not None and not self.start.collect.continues:
            raise UserError(
                f"{self.name}: start: {name_of(self.start.collect)} leaves a distribution of weights, not weights that "
                "a training could continue; start from a recipe that collects last, best_on_validation or swa."
            )
        check_slots(self.name, self.objective, self.optimiser, self.schedule, self.collect)

    @property
    def states(self) -> int:
        """Number of weight states of one fit."""
        return self.collect.states(self.schedule, self.objective.epochs)

    @property
    def pooled(self) -> int:
        """Number of pooled predictions of one fit, without views; 0 for a single deterministic pass."""
        most = self.most or max(self.states, self.samples)
        return min(self.samples, most) if self.states == 1 else min(self.states, most) * max(1, self.samples)

    def fit_part(self) -> Recipe:
        """Return the recipe with only what affects weights: methods that differ in the rest share their fits."""
        return replace(self, name="", title="", members=1, samples=0, views=None, most=0)

    def for_task(self, inputs: Modality, target: Target) -> Recipe:
        """Return the recipe with the head for a task's target.

        Raises:
            UserError: When a slot does not apply to such a task.
        """
        self.objective.check_target(target)
        at_prediction = None if self.views is None else self.views.augmentation
        for augmentation in (self.objective.augmentation, at_prediction):
            if augmentation is not None and augmentation.inputs != inputs:
                raise UserError(
                    f"{self.name}: this augmentation is for {augmentation.inputs} inputs; the task has {inputs} inputs."
                )
        return replace(self, head=self.head.for_target(target))

    def fit(self, task: Task, network: NetworkSpec, *, seed: int, context: FitContext) -> Posterior:
        """Fit every member in this process; the runner does the same through the store, in parallel.

        Args:
            task: The task.
            network: The network.
            seed: The seed; member k is (seed, k).
            context: Device, progress and encoding.

        Returns:
            The posterior of the whole method.
        """
        from dubio.methods.fitting import fit_recipe

        return fit_recipe(self, task, network, seed=seed, context=context)
