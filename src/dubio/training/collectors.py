"""Collectors: which weights of a training become its posterior."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.types import Target
from dubio.core.validate import NonNegative
from dubio.inference.augmentation import Augmentation
from dubio.inference.batches import LabelledRows
from dubio.inference.posterior import Posterior, StoredForm
from dubio.inference.predictor import load_state
from dubio.inference.samples import StoredSamples, WeightSamples, state_of
from dubio.inference.weight_draws import with_prefix
from dubio.networks.network import Model
from dubio.training.schedules import Schedule


@dataclass(frozen=True)
class FinishContext:
    """The data and settings that a collector may use at the end of a training.

    Attributes:
        train: The training examples, for batch-norm statistics and curvature.
        val: The validation examples, for choices; None where the task has none.
        device: Where the training ran.
        seed: Seed of every draw of weights.
        batch: Examples per training step.
        augmentation: Random views of training examples, or None.
        l2: The optimiser's weight of ½‖θ‖² in the loss: the prior of every weight is N(0, 1/(N·l2)).
    """

    train: LabelledRows
    val: LabelledRows | None
    device: torch.device
    seed: int
    batch: int
    augmentation: Augmentation | None = None
    l2: float = 0.0


Precision = Literal["float32", "float16"]


@dataclass
class Collected:
    """The collection of a collector: tensors and a few numbers, which a checkpoint can store."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Epoch(NamedTuple):
    """An epoch that has ended.

    Attributes:
        number: Its number, from 1.
        val_nll: The validation loss after it, if there are validation examples.
        marked: Whether the schedule marks it for a snapshot.
    """

    number: int
    val_nll: float | None
    marked: bool


class Collector(Protocol):
    """A collector as a slot value: init, update after every epoch, finish.

    Attributes:
        stops_early: Whether the training may end before its epochs are over.
        continues: Whether another training can start from the posterior.
        centres: Whether it takes the centre of a distribution of weights, from which no other training can start.
    """

    stops_early: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    centres: ClassVar[bool] = False

    @property
    def chooses(self) -> str:
        """The choice made on validation data beyond that of an epoch, as a clause; empty by default: none."""
        return ""

    def check(self, model: Model, batches: Iterable[Any] = ()) -> None:
        """Refuse a model that :meth:`finish` cannot use, before it is trained; by default every model is accepted.

        Args:
            model: The model.
            batches: Where they are known already, a few examples in batches of two sizes.

        Raises:
            UserError: With the reason.
        """
        return

    def for_target(self, target: Target) -> Collector:
        """Return the collector for a task with such a target; itself by default.

        Raises:
            UserError: When it collects nothing there.
        """
        return self

    @property
    def form(self) -> StoredForm:
        """How the posterior is read back from the store; by default as weight states."""
        return StoredSamples()

    def init(self, model: Model) -> Collected:
        """Return the collection before the first epoch; empty by default."""
        return Collected()

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Return the collection after an epoch."""

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> Posterior:
        """Return the posterior; the model is left with its last or central weights."""

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Return the number of weight states that will predict, known before any training; 1 by default."""
        return 1

    def frozen(self, collected: Collected) -> tuple[str, ...]:
        """Return the name prefixes of tensors that will never change, one per snapshot; none by default.

        A checkpoint writes frozen tensors once; from then on they are mapped from its file instead of held in memory.
        """
        return ()

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """Return the stored size as a multiple of one weight state; by default that of all states."""
        return float(self.states(schedule, epochs))

    def passes(self, model: Model, examples: int) -> float:
        """Return the number of passes over all ``examples`` of the training data that finishing takes; 0 by default."""
        return 0


@part("last")
@dataclass(frozen=True)
class Last(Collector):
    """The weights at the end."""

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Remember the last epoch."""
        return Collected(facts={"epoch": epoch.number, "val_nll": epoch.val_nll})

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """Return the weights as they are."""
        return WeightSamples(model, (state_of(model),))


@part("best_on_validation")
@dataclass(frozen=True)
class BestOnValidation(Collector):
    """The weights of the epoch with the smallest validation loss; of equal ones the earliest."""

    def init(self, model: Model) -> Collected:
        """Return the starting weights, worse than any epoch."""
        return Collected(state_of(model), {"epoch": 0, "val_nll": None})

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Keep the better of two epochs."""
        best = collected.facts["val_nll"]
        if epoch.val_nll is not None and (best is None or epoch.val_nll < best):
            return Collected(state_of(model), {"epoch": epoch.number, "val_nll": epoch.val_nll})
        return collected

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """Return the best weights."""
        load_state(model, collected.tensors)
        return WeightSamples(model, (collected.tensors,))


@part("keep_all")
@dataclass(frozen=True)
class KeepAll(Collector):
    """Every snapshot that the schedule marks.

    Attributes:
        skip: Number of first snapshots that are skipped (burn-in).
        most: Largest number of snapshots, the latest; 0 for all.
        store: The precision in which parameters are collected and stored. Float16 values are converted to float32 for
            predictions; batch-norm statistics stay in float32.
    """

    skip: NonNegative = 0
    most: NonNegative = 0
    store: Precision = added("float32")  # noqa: RUF009

    stops_early: ClassVar[bool] = False

    def init(self, model: Model) -> Collected:
        """Return an empty collection."""
        return Collected(facts={"marked": 0, "kept": []})

    def update(self, collected: Collected, model: Model, epoch: Epoch) -> Collected:
        """Add a marked snapshot; drop the oldest where there are too many."""
        if not epoch.marked:
            return collected
        facts = {**collected.facts, "marked": collected.facts["marked"] + 1}
        if facts["marked"] <= self.skip:
            return Collected(collected.tensors, facts)
        epochs = [*collected.facts["kept"], epoch.number][-self.most :]
        # snapshots stay in main memory until a checkpoint has them: a device holds one model, whatever their number
        snapshot = {f"{epoch.number}/{name}": tensor.cpu() for name, tensor in self._snapshot(model).items()}
        tensors = collected.tensors | snapshot
        latest = {name: tensor for name, tensor in tensors.items() if int(name.partition("/")[0]) in epochs}
        # the loss is that of the trained weights, not of their rounded values
        loss = epoch.val_nll if self.store == "float32" else None
        return Collected(latest, {**facts, "kept": epochs, "epoch": epoch.number, "val_nll": loss})

    def frozen(self, collected: Collected) -> tuple[str, ...]:
        """Return the prefix of every snapshot."""
        return tuple(f"{epoch}/" for epoch in collected.facts["kept"])

    def _snapshot(self, model: Model) -> dict[str, Tensor]:
        """Return the weights in the stored precision."""
        state = state_of(model)
        if self.store == "float16":
            for name, parameter in model.named_parameters():
                state[name] = parameter.detach().to(torch.float16)
                if not torch.isfinite(state[name]).all():
                    raise UserError(f"store: {name} has values that float16 cannot hold; use store='float32'.")
        return state

    def finish(self, collected: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """Return all snapshots in the order of their epochs."""
        states = [with_prefix(f"{epoch}/", collected.tensors) for epoch in collected.facts["kept"]]
        load_state(model, states[-1])
        return WeightSamples(model, tuple(states))

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Return the number of marked epochs less the skipped ones, bounded."""
        marked = schedule.snapshots(epochs)
        return min(max(0, marked - self.skip), self.most or marked)

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """Return the size of all states, half as much in float16."""
        return self.states(schedule, epochs) * (1.0 if self.store == "float32" else 0.5)
