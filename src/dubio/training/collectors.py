"""What a collector may use when a training is over.

Collectors: which weights of a training are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.inference.augmentation import Augmentation, Views
from dubio.inference.batches import LabelledRows
from dubio.inference.posterior import Posterior, Restored
from dubio.inference.predictor import load_state
from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.network import Model
from dubio.training.schedules import Schedule


@dataclass(frozen=True)
class FinishContext:
    """What surrounds the end of a training.

    Attributes:
        train: The training examples, for whatever is computed from them at the end (batch-norm statistics, curvature).
        val: The validation examples, for whatever is chosen by them.
        device: Where the training ran.
        seed: Fixes every draw of weights.
        batch: Examples a training step.
        augmentation: Random views of training examples, or None.
        l2: The optimiser's weight of ½‖θ‖² in the loss: the prior of every weight is N(0, 1/(N·l2)).
    """

    train: LabelledRows
    val: LabelledRows
    device: torch.device
    seed: int
    batch: int
    augmentation: Augmentation | None = None
    l2: float = 0.0


Precision = Literal["float32", "float16"]


@dataclass
class Collected:
    """What a collector holds: tensors and a few numbers, so that a checkpoint can hold it too."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Collector(Protocol):
    """A collector as a slot value: init, update, finish.

    Attributes:
        stops_early: Whether a training it collects from may end before its epochs are over.
        continues: Whether another training can start from what it leaves.
    """

    stops_early: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    def check(self, model: Model) -> None:
        """Refuse a model that :meth:`finish` could not use, before it is trained; every model will do, unless said.

        Raises:
            UserError: With the reason.
        """
        return

    def init(self, model: Model) -> Collected:
        """What it holds before the first epoch."""
        ...

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """What it holds after an epoch; ``marked`` where the schedule says that these weights are to be kept."""
        ...

    def finish(self, held: Collected, model: Model, context: FinishContext) -> Posterior:
        """The posterior it leaves; the model is left with weights of it, the last or the central ones."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], model: Model, samples: int, views: Views | None) -> Restored:
        """What :meth:`finish` left, from its stored tensors; weight states, unless said.

        Args:
            tensors: As :meth:`~dubio.inference.posterior.Posterior.tensors` gave them.
            model: The module they belong to.
            samples: Noise draws a weight state; 0 is a deterministic pass.
            views: Random views of each example, or None.
        """
        return WeightSamples.from_tensors(tensors, model, samples, views)

    def states(self, schedule: Schedule, epochs: int) -> int:
        """How many weight states will predict, known before any training; one, unless said."""
        return 1

    def settled(self, held: Collected) -> tuple[str, ...]:
        """What starts the names of held tensors that will never change, a start a snapshot; nothing, unless said.

        A checkpoint writes what is settled once, and it is then held in its file instead of memory.
        """
        return ()

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """How much is stored, as a multiple of one weight state; that of all states, unless said."""
        return float(self.states(schedule, epochs))

    def passes(self, model: Model) -> int:
        """How many passes over the training data finishing takes; none, unless said."""
        return 0


@part("last")
@dataclass(frozen=True)
class Last(Collector):
    """The weights at the end."""

    def init(self, model: Model) -> Collected:
        """Nothing."""
        return Collected()

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Only remember where the end is."""
        return Collected(facts={"epoch": epoch, "val_nll": val_nll})

    def finish(self, held: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """The weights as they are."""
        return WeightSamples(model, (state_of(model),))


@part("best_on_validation")
@dataclass(frozen=True)
class BestOnValidation(Collector):
    """The weights of the epoch with the least validation loss; the earliest of equals."""

    def init(self, model: Model) -> Collected:
        """The starting weights, worse than anything."""
        return Collected(state_of(model), {"epoch": 0, "val_nll": None})

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Keep the better of the two."""
        best = held.facts["val_nll"]
        if best is None or val_nll < best:
            return Collected(state_of(model), {"epoch": epoch, "val_nll": val_nll})
        return held

    def finish(self, held: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """The best weights."""
        load_state(model, held.tensors)
        return WeightSamples(model, (held.tensors,))


@part("keep_all")
@dataclass(frozen=True)
class KeepAll(Collector):
    """Every snapshot that the schedule marks.

    Attributes:
        skip: The first so many marked snapshots are passed over (burn-in).
        most: At most so many, the latest; 0 sets no bound.
        store: The precision in which parameters wait and are stored. What predicts is their float16 values, made
            float32 again; batch-norm statistics stay in float32.
    """

    skip: int = 0
    most: int = 0
    store: Precision = added("float32")  # noqa: RUF009

    stops_early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("skip", "most"):
            if getattr(self, name) < 0:
                raise UserError(f"keep_all: {name} must be at least 0; given {getattr(self, name)}.")
        if self.store not in get_args(Precision):
            raise UserError(f"keep_all: store must be float32 or float16; given {self.store!r}.")

    def init(self, model: Model) -> Collected:
        """Nothing."""
        return Collected(facts={"marked": 0, "kept": []})

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """Add a marked snapshot; forget the oldest where there are too many."""
        if not marked:
            return held
        facts = {**held.facts, "marked": held.facts["marked"] + 1}
        if facts["marked"] <= self.skip:
            return Collected(held.tensors, facts)
        kept = [*held.facts["kept"], epoch][-self.most :]
        # snapshots wait in main memory until a checkpoint has them: a device holds one model, however many are kept
        tensors = held.tensors | {f"{epoch}/{name}": tensor.cpu() for name, tensor in self._snapshot(model).items()}
        wanted = {name: tensor for name, tensor in tensors.items() if int(name.partition("/")[0]) in kept}
        # the loss is known of the weights that were trained, not of their rounded values
        known = val_nll if self.store == "float32" else None
        return Collected(wanted, {**facts, "kept": kept, "epoch": epoch, "val_nll": known})

    def settled(self, held: Collected) -> tuple[str, ...]:
        """Every snapshot."""
        return tuple(f"{epoch}/" for epoch in held.facts["kept"])

    def _snapshot(self, model: Model) -> dict[str, Tensor]:
        """The weights in the precision they are stored in."""
        state = state_of(model)
        if self.store == "float16":
            for name, parameter in model.named_parameters():
                state[name] = parameter.detach().to(torch.float16)
                if not torch.isfinite(state[name]).all():
                    raise UserError(f"store: {name} has values that float16 cannot hold; use store='float32'.")
        return state

    def finish(self, held: Collected, model: Model, context: FinishContext) -> WeightSamples:
        """All snapshots, in the order in which they came."""
        states = []
        for epoch in held.facts["kept"]:
            start = f"{epoch}/"
            states.append({n.removeprefix(start): t for n, t in held.tensors.items() if n.startswith(start)})
        load_state(model, states[-1])
        return WeightSamples(model, tuple(states))

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Marked epochs less those passed over, bounded."""
        marked = sum(schedule.keeps_after(epoch, epochs) for epoch in range(1, epochs + 1))
        return min(max(0, marked - self.skip), self.most or marked)

    def stored(self, schedule: Schedule, epochs: int) -> float:
        """All states, half as much of each in float16."""
        return self.states(schedule, epochs) * (1.0 if self.store == "float32" else 0.5)
