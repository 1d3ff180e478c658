"""Collectors: which weights of a training are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from dubio.networks.network import Model
from dubio.parts import part
from dubio.posteriors.points import Points, state_of


@dataclass
class Collected:
    """What a collector holds: tensors and a few numbers, so that a checkpoint can hold it too."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Collector(Protocol):
    """A collector as a slot value: init, update, finish."""

    def init(self, model: Model) -> Collected:
        """What it holds before the first epoch."""
        ...

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float) -> Collected:
        """What it holds after an epoch."""
        ...

    def finish(self, held: Collected, model: Model) -> Points:
        """The posterior it leaves."""
        ...


@part("last")
@dataclass(frozen=True)
class Last:
    """The weights at the end."""

    def init(self, model: Model) -> Collected:
        """Nothing."""
        return Collected()

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float) -> Collected:
        """Only remember where the end is."""
        return Collected(facts={"epoch": epoch, "val_nll": val_nll})

    def finish(self, held: Collected, model: Model) -> Points:
        """The weights as they are."""
        return Points(model, (state_of(model),))


@part("best_on_validation")
@dataclass(frozen=True)
class BestOnValidation:
    """The weights of the epoch with the least validation loss; the earliest of equals."""

    def init(self, model: Model) -> Collected:
        """The starting weights, worse than anything."""
        return Collected(state_of(model), {"epoch": 0, "val_nll": None})

    def update(self, held: Collected, model: Model, *, epoch: int, val_nll: float) -> Collected:
        """Keep the better of the two."""
        best = held.facts["val_nll"]
        if best is None or val_nll < best:
            return Collected(state_of(model), {"epoch": epoch, "val_nll": val_nll})
        return held

    def finish(self, held: Collected, model: Model) -> Points:
        """The best weights."""
        return Points(model, (held.tensors,))
