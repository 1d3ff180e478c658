"""Schedules: over a training's course, the learning rate's factor, the temperature of noise, when weights are kept.

Epochs count from 1, as everywhere in a training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dubio.core.errors import UserError
from dubio.core.specs import part


class Schedule(Protocol):
    """A schedule as a slot value; one that inherits from here says only what is not ordinary about it.

    Attributes:
        ahead: 1 where an equation counts a step as done when its rate is asked for, 0 where it does not.
    """

    ahead: ClassVar[int] = 0

    def factor(self, progress: float) -> float:
        """What the learning rate is multiplied by when ``progress`` (0 to 1) of all steps are done."""
        ...

    def temperature_in(self, epoch: int, epochs: int) -> float:
        """The temperature of the noise that a sampling optimiser adds in an epoch; 0, for none, unless said."""
        return 0.0

    def keeps_after(self, epoch: int, epochs: int) -> bool:
        """Whether the weights after an epoch are marked to be kept; never, unless said."""
        return False

    def check_epochs(self, epochs: int) -> None:
        """Refuse a number of epochs this schedule cannot divide; any will do, unless said.

        Raises:
            UserError: When it cannot.
        """
        return None


@part("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """Always the same rate."""

    def factor(self, progress: float) -> float:
        """1."""
        return 1.0


@part("constant_tail")
@dataclass(frozen=True)
class ConstantTail(Schedule):
    """Always the same rate, and a snapshot marked after each ``every`` epochs: what weights are averaged over."""

    every: int = 1

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UserError(f"constant_tail: every must be at least 1; given {self.every}.")

    def factor(self, progress: float) -> float:
        """1."""
        return 1.0

    def keeps_after(self, epoch: int, epochs: int) -> bool:
        """After every so many epochs."""
        return epoch % self.every == 0


@part("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from the full rate to zero."""

    def factor(self, progress: float) -> float:
        """½(1 + cos π·progress)."""
        return 0.5 * (1.0 + math.cos(math.pi * progress))


@part("linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """Straight down from the full rate to ``end`` of it (text paper's fine-tuning: 1e-5 to 1e-6)."""

    end: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.end <= 1.0:
            raise UserError(f"linear: end must lie between 0 and 1; given {self.end}.")

    def factor(self, progress: float) -> float:
        """1 − (1 − end)·progress."""
        return 1.0 - (1.0 - self.end) * progress


@part("step")
@dataclass(frozen=True)
class Step(Schedule):
    """The rate is multiplied by ``gamma`` each time another of ``at`` (fractions of all steps) has passed."""

    at: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1

    def factor(self, progress: float) -> float:
        """Gamma to the number of marks passed."""
        return self.gamma ** sum(progress >= mark for mark in self.at)


@part("linear_tail")
@dataclass(frozen=True)
class LinearTail(Schedule):
    """Full rate, then linear down, then a small constant tail (pitfalls paper, eq. 10).

    Attributes:
        hold: Fraction of all steps at the full rate.
        end: Fraction at which the tail is reached.
        tail: The factor there.
    """

    hold: float = 0.5
    end: float = 0.9
    tail: float = 0.01

    def __post_init__(self) -> None:
        if not 0.0 <= self.hold < self.end <= 1.0:
            raise UserError(f"linear_tail: 0 <= hold < end <= 1 is asked; given hold={self.hold}, end={self.end}.")

    def factor(self, progress: float) -> float:
        """Piecewise linear between 1 and the tail."""
        if progress <= self.hold:
            return 1.0
        if progress >= self.end:
            return self.tail
        return 1.0 - (1.0 - self.tail) * (progress - self.hold) / (self.end - self.hold)


@part("cut")
@dataclass(frozen=True)
class Cut(Schedule):
    """The rates of the first ``share`` of another schedule: a training that ends before the one they were made for.

    Fast geometric ensembles were first described with the first 160 epochs of a schedule of 200 as pre-training:
    ``Cut(LinearTail(), 0.8)``, which the argument ``schedule_epochs`` asks for. The preset ``paper`` of the ensembling
    study does not: the pitfalls paper pre-trains "for 160 epochs according to" eq. 10, whose breakpoints are fractions
    of the epochs trained, so that eq. 10 is run to its end in 160 epochs.
    """

    whole: Schedule
    share: float

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise UserError(f"cut: share must be above 0 and at most 1; given {self.share}.")

    def factor(self, progress: float) -> float:
        """That of the whole schedule, so far into it."""
        return self.whole.factor(progress * self.share)
