"""Collectors: which weights of a training are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from dubio.errors import UserError
from dubio.networks.network import Model
from dubio.parts import part
from dubio.posteriors.points import Points, state_of
from dubio.training.schedules import Schedule


@dataclass
class Collected:
    """What a collector holds: tensors and a few numbers, so that a checkpoint can hold it too."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Collector(Protocol):
    """A collector as a slot value: init, update, finish.

    Attributes:
        stops_early: Whether a training it collects from may end before its epochs are over.
    """

    stops_early: ClassVar[bool] = True

    def init(self, model: Model) -> Collected:
        """What it holds before the first epoch."""
        ...

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float, marked: bool) -> Collected:
        """What it holds after an epoch; ``marked`` where the schedule says that these weights are to be kept."""
        ...

    def finish(self, held: Collected, model: Model) -> Points:
        """The posterior it leaves."""
        ...

    def states(self, schedule: Schedule, epochs: int) -> int:
        """How many weight states it leaves, known before any training; one, unless said."""
        return 1


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

    def finish(self, held: Collected, model: Model) -> Points:
        """The weights as they are."""
        return Points(model, (state_of(model),))


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

    def finish(self, held: Collected, model: Model) -> Points:
        """The best weights."""
        return Points(model, (held.tensors,))


@part("keep_all")
@dataclass(frozen=True)
class KeepAll(Collector):
    """Every snapshot that the schedule marks.

    Attributes:
        skip: The first so many marked snapshots are passed over (burn-in).
        most: At most so many, the latest; 0 sets no bound.
    """

    skip: int = 0
    most: int = 0

    stops_early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("skip", "most"):
            if getattr(self, name) < 0:
                raise UserError(f"keep_all: {name} must be at least 0; given {getattr(self, name)}.")

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
        # snapshots wait in main memory: a device holds one model, however many are kept
        tensors = held.tensors | {f"{epoch}/{name}": tensor.cpu() for name, tensor in state_of(model).items()}
        wanted = {name: tensor for name, tensor in tensors.items() if int(name.partition("/")[0]) in kept}
        return Collected(wanted, {**facts, "kept": kept, "epoch": epoch, "val_nll": val_nll})

    def finish(self, held: Collected, model: Model) -> Points:
        """All snapshots, in the order in which they came."""
        states = []
        for epoch in held.facts["kept"]:
            start = f"{epoch}/"
            states.append({n.removeprefix(start): t for n, t in held.tensors.items() if n.startswith(start)})
        return Points(model, tuple(states))

    def states(self, schedule: Schedule, epochs: int) -> int:
        """Marked epochs less those passed over, bounded."""
        marked = sum(schedule.keeps_after(epoch, epochs) for epoch in range(1, epochs + 1))
        return min(max(0, marked - self.skip), self.most or marked)
