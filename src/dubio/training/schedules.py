"""Schedules: over a training's course, the learning rate's factor, the temperature of noise, when weights are kept.

Epochs count from 1, as everywhere in a training.

Schedules that go round: a cosine or a triangle again and again, with snapshots on the way.
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

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """Return whether the weights after an epoch are marked as a snapshot; never by default."""
        return False

    def snapshots(self, epochs: int) -> int:
        """Return the number of snapshots that are marked in a training of ``epochs`` epochs."""
        return sum(self.marks_after(epoch, epochs) for epoch in range(1, epochs + 1))

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

    def marks_after(self, epoch: int, epochs: int) -> bool:
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


ROUNDING = 1e-9
"""A position this near a cycle's end is its end: cycles are whole epochs, their fractions of all steps are rounded."""


@part("cyclic")
@dataclass(frozen=True)
class Cyclic(Schedule):
    """Cosine cycles (pitfalls paper, eq. 16), with noise and snapshots in the last part of each.

    The rate in step t of T is ½(cos(π·mod(t − 1, T/M)/(T/M)) + 1) of the full one, for M cycles.

    Attributes:
        cycles: M; the epochs must be a multiple of it.
        sampling: The last so many epochs of each cycle have noise.
        temperature: Its temperature there; 0 outside. 1 is the posterior, less a colder (sharper) one.
        keep: Snapshots a cycle, evenly over the sampling epochs, the cycle's end always among them.
    """

    cycles: int = 4
    sampling: int = 0
    temperature: float = 0.0
    keep: int = 1

    def __post_init__(self) -> None:
        for name, least in (("cycles", 1), ("sampling", 0), ("temperature", 0), ("keep", 1)):
            if not getattr(self, name) >= least:
                raise UserError(f"cyclic: {name} must be at least {least}; given {getattr(self, name)}.")
        if self.keep > max(1, self.sampling):
            raise UserError(
                f"cyclic: at most one snapshot a sampling epoch can be kept; given keep={self.keep}, "
                f"sampling={self.sampling}."
            )
        if self.temperature and not self.sampling:
            raise UserError(f"cyclic: temperature={self.temperature} asks for sampling of at least 1 epoch; given 0.")

    def check_epochs(self, epochs: int) -> None:
        """Cycles are whole epochs, and longer than their sampling part."""
        if epochs < 1 or epochs % self.cycles:
            raise UserError(
                f"cyclic: epochs must be a multiple of cycles; given epochs={epochs}, cycles={self.cycles}."
            )
        if self.sampling > epochs // self.cycles:
            raise UserError(
                f"cyclic: a cycle has {epochs // self.cycles} epochs (epochs={epochs}, cycles={self.cycles}), "
                f"too few for sampling={self.sampling}."
            )

    def factor(self, progress: float) -> float:
        """Half a cosine from 1 to 0, again in each cycle."""
        place = progress * self.cycles + ROUNDING
        return 0.5 * (1.0 + math.cos(math.pi * max(0.0, place - math.floor(place) - ROUNDING)))

    def temperature_in(self, epoch: int, epochs: int) -> float:
        """The temperature in the sampling epochs, 0 in the others."""
        return self.temperature if self._sampled(epoch, epochs) > 0 else 0.0

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """After ``keep`` of the sampling epochs of each cycle; without any, at the cycle's end."""
        if not self.sampling:
            return epoch % (epochs // self.cycles) == 0
        done = self._sampled(epoch, epochs)
        return done > 0 and done * self.keep // self.sampling > (done - 1) * self.keep // self.sampling

    def _sampled(self, epoch: int, epochs: int) -> int:
        """Which sampling epoch of its cycle this is, from 1; 0 or less before the sampling part."""
        length = epochs // self.cycles
        return (epoch - 1) % length + 1 - (length - self.sampling)


@part("triangular")
@dataclass(frozen=True)
class Triangular(Schedule):
    """Straight down and up again (pitfalls paper, eq. 17), a snapshot at the middle of each cycle.

    In step i of cycles of c steps, t = (mod(i − 1, c) + 1)/c, the rate falls as (1 − 2t)α₁ + 2t·α₂ while t ≤ ½ and
    rises as (2 − 2t)α₂ + (2t − 1)α₁ after it. Nothing after the last snapshot matters: the training ends there, at the
    middle of the last cycle.

    Attributes:
        cycles: How many, the last of them half.
        low: α₂/α₁, what the full rate is multiplied by at the middle of a cycle.
    """

    cycles: int = 5
    low: float = 0.05

    ahead: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise UserError(f"triangular: cycles must be at least 1; given {self.cycles}.")
        if not 0.0 <= self.low <= 1.0:
            raise UserError(f"triangular: low must lie between 0 and 1; given {self.low}.")

    def check_epochs(self, epochs: int) -> None:
        """Half cycles are whole epochs."""
        halves = 2 * self.cycles - 1
        if epochs < 1 or epochs % halves:
            raise UserError(
                f"triangular: {self.cycles} cycles of which the last is half are {halves} half cycles, and epochs must "
                f"be a multiple of that; given epochs={epochs}."
            )

    def factor(self, progress: float) -> float:
        """Between 1 and ``low``, by the equation above."""
        place = progress * (self.cycles - 0.5)
        t = place - math.ceil(place - ROUNDING) + 1.0  # in (0, 1], its end belonging to a cycle
        if t <= 0.5:
            return (1.0 - 2.0 * t) + 2.0 * t * self.low
        return (2.0 - 2.0 * t) * self.low + (2.0 * t - 1.0)

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """At the middle of each cycle."""
        half = epochs // (2 * self.cycles - 1)
        return epoch % half == 0 and (epoch // half) % 2 == 1
