"""A method as data: a recipe has slots, each filled by a small value; a combination is never a class.

Every slot has one contract, which the recipe and the fitting code call without knowing the classes:

- ``edits`` change a built model (:class:`~dubio.networks.network.Edit`: ``apply``);
- ``head`` builds its last layer (:class:`~dubio.networks.heads.head.Head`: ``for_target``, ``build``);
- ``objective``, ``optimiser`` and ``schedule`` drive the training loop;
- ``collect`` gathers weights into a posterior (:class:`~dubio.training.collectors.Collector`: ``init``, ``update``,
  ``finish``) and says how it is read back (``form``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import added, name_of, part
from dubio.core.types import Modality, Target, Task
from dubio.core.validate import NonNegative, Positive, matching
from dubio.inference.augmentation import Views
from dubio.networks.heads.head import Head
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Edit, Model
from dubio.training.collectors import BestOnValidation, Collector
from dubio.training.loop import check_slots
from dubio.training.objectives import Objective
from dubio.training.optimisers import Adam, Optimiser, check_prior
from dubio.training.schedules import Constant, Schedule

if TYPE_CHECKING:
    from dubio.inference.posterior import Posterior, Restored
    from dubio.methods.fitting import FitContext
    from dubio.methods.specification import NetworkSpec


LAYERS, LAYERS_IN_WORDS = r"|last|\d{1,4}", "'last', the number of a layer, or empty"

Layer = Annotated[str, matching(LAYERS, LAYERS_IN_WORDS)]


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
        features: The layer whose outputs are stored with predictions: ``last``, or the number of a stage; or empty.
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
    members: Positive = 1
    samples: NonNegative = 0
    views: Views | None = None
    most: int = added(0)
    features: Layer = added("")

    def __post_init__(self) -> None:
        if self.samples and not any(getattr(slot, "random", False) for slot in (self.head, *self.edits)):
            reason = "nothing in this recipe is random at prediction: every sample would be the same"
            raise UserError(f"{self.name}: samples must be 0, since {reason}; given {self.samples}.")
        names = [name_of(edit) for edit in self.edits]
        if len(set(names)) < len(names):
            raise UserError(f"{self.name}: the same edit twice ({', '.join(names)}); each edit may occur once.")
        dropping = [name_of(edit) for edit in self.edits if getattr(edit, "drops_inputs", False)]
        if len(dropping) > 1:
            raise UserError(f"{self.name}: {' and '.join(dropping)} would drop the same inputs; choose one of them.")
        splitting = [name_of(edit) for edit in self.edits if getattr(edit, "sets", 1) > 1]
        if len(splitting) > 1:
            raise UserError(f"{self.name}: {' and '.join(splitting)} would each make members; choose one of them.")
        for edit in self.edits:
            check_prior(self.name, edit, self.optimiser)
            least = getattr(edit, "least_batch", 1)
            if self.objective.batch < least:
                reason = f"an example of a batch trains one of {least} members, and some would have none"
                raise UserError(f"{self.name}: batch must be at least {least}: {reason}; given {self.objective.batch}.")
        if self.start is not None and not (self.start.collect.continues or self.collect.centres):
            collector = name_of(self.start.collect)
            raise UserError(
                f"{self.name}: start: no training can continue from the distribution that {collector} leaves."
            )
        check_slots(self.name, self.objective, self.optimiser, self.schedule, self.collect)

    @property
    def states(self) -> int:
        """Number of weight states of one fit."""
        return self.collect.states(self.schedule, self.objective.epochs)

    @property
    def sets(self) -> int:
        """Sets of logits per example that the edits make: the members of an ensemble inside one network."""
        return max((getattr(edit, "sets", 1) for edit in self.edits), default=1)

    @property
    def pooled(self) -> int:
        """Number of pooled predictions of one fit, without views; 0 for a single deterministic pass."""
        most = self.most or max(self.states, self.samples)
        passes = min(self.samples, most) if self.states == 1 else min(self.states, most) * max(1, self.samples)
        return passes if self.sets == 1 else self.sets * max(1, passes)

    def fit_part(self) -> Recipe:
        """Return the recipe with only what affects weights: methods that differ in the rest share their fits."""
        return replace(self, name="", title="", members=1, samples=0, views=None, most=0, features="")

    def for_task(self, inputs: Modality, target: Target) -> Recipe:
        """Return the recipe with the head for a task's target.

        Raises:
            UserError: When a slot does not apply to such a task.
        """
        self.objective.check_target(target)
        at_prediction = None if self.views is None else self.views.augmentation
        for augmentation in (self.objective.augmentation, at_prediction):
            if augmentation is not None and augmentation.inputs != inputs:
                kinds = f"for {augmentation.inputs} inputs; the task has {inputs} inputs"
                raise UserError(f"{self.name}: this augmentation is {kinds}.")
        return replace(self, head=self.head.for_target(target), collect=self.collect.for_target(target))

    def posterior(self, tensors: Mapping[str, Tensor], model: Model) -> Restored:
        """Return the posterior of one fit from its tensors, ready to predict as the recipe says."""
        restored = self.collect.form.restore(tensors, model, self.samples, self.views)
        return restored.limit(self.most) if self.most else restored

    def chain(self) -> Iterator[Recipe]:
        """Yield the recipe after those that it starts from, the first to be fitted first."""
        if self.start is not None:
            yield from self.start.chain()
        yield self

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
