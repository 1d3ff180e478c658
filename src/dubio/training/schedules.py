"""Schedules over a training: the learning rate's factor, the temperature of noise, and the snapshots.

Epochs count from 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

from dubio.core.errors import UserError, plural
from dubio.core.specs import part
from dubio.core.validate import NonNegative, NonNegativeFloat, Positive, Share, above, at_most

TemperatureRule = Literal["1/n", "n/batches^2"]
"""A temperature that depends on the training: ``1/n``, one over the n training examples (Zhang et al., 2020), and
``n/batches^2`` (the pitfalls paper's code), n over the squared number of batches in an epoch: 0.082 for 50,000 images
in batches of 64."""

Temperature = NonNegativeFloat | TemperatureRule


def temperature_value(temperature: Temperature, examples: int, batches: int) -> float:
    """Return a temperature as a number.

    Args:
        temperature: A number, or the rule that gives one.
        examples: Number of training examples.
        batches: Number of batches in an epoch.
    """
    if isinstance(temperature, str):
        return 1.0 / examples if temperature == "1/n" else examples / batches**2
    return temperature


class Schedule(Protocol):
    """A schedule as a slot value, with the defaults of an ordinary one.

    Attributes:
        ahead: 1 if the schedule's equation counts the current step as done, else 0.
    """

    ahead: ClassVar[int] = 0

    def factor(self, progress: float) -> float:
        """Return the factor of the learning rate after the fraction ``progress`` of all steps."""

    def temperature_in(self, epoch: int, epochs: int) -> Temperature:
        """Return the temperature of a sampling optimiser's noise in an epoch, or its rule; 0 (no noise) by default."""
        return 0.0

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """Return whether the weights after an epoch are marked as a snapshot; never by default."""
        return False

    def snapshots(self, epochs: int) -> int:
        """Return the number of snapshots that are marked in a training of ``epochs`` epochs."""
        return sum(self.marks_after(epoch, epochs) for epoch in range(1, epochs + 1))

    def check_epochs(self, epochs: int) -> None:
        """Refuse a number of epochs that the schedule cannot divide; by default every number is accepted.

        Raises:
            UserError: When it cannot.
        """
        return None


@part("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """A constant rate."""

    def factor(self, progress: float) -> float:
        """Return 1."""
        return 1.0


@part("constant_tail")
@dataclass(frozen=True)
class ConstantTail(Constant):
    """A constant rate, with a snapshot after every ``every`` epochs, for weight averages."""

    every: Positive = 1

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """Return whether ``every`` divides the epoch."""
        return epoch % self.every == 0


@part("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from the full rate to zero."""

    def factor(self, progress: float) -> float:
        """Return ½(1 + cos π·progress)."""
        return 0.5 * (1.0 + math.cos(math.pi * progress))


@part("linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """Linear from the full rate to ``end`` of it (text paper's fine-tuning: 1e-5 to 1e-6)."""

    end: Share = 0.1

    def factor(self, progress: float) -> float:
        """Return 1 − (1 − end)·progress."""
        return 1.0 - (1.0 - self.end) * progress


@part("step")
@dataclass(frozen=True)
class Step(Schedule):
    """The rate is multiplied by ``gamma`` each time another of ``at`` (fractions of all steps) has passed."""

    at: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1

    def factor(self, progress: float) -> float:
        """Return gamma to the number of marks passed."""
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
            raise UserError(f"linear_tail: must satisfy 0 <= hold < end <= 1; given hold={self.hold}, end={self.end}.")

    def factor(self, progress: float) -> float:
        """Return a piecewise linear factor between 1 and the tail."""
        if progress <= self.hold:
            return 1.0
        if progress >= self.end:
            return self.tail
        return 1.0 - (1.0 - self.tail) * (progress - self.hold) / (self.end - self.hold)


@part("cut")
@dataclass(frozen=True)
class Cut(Schedule):
    """The first ``share`` of another schedule, for a training that is shorter than the schedule.

    Fast geometric ensembles were first described with the first 160 epochs of a schedule of 200 as pre-training:
    ``Cut(LinearTail(), 0.8)``, set by the argument ``schedule_epochs``. The pitfalls paper instead pre-trains "for 160
    epochs according to" eq. 10, whose breakpoints are fractions of the epochs trained, so that eq. 10 runs to its end
    in 160 epochs.
    """

    whole: Schedule
    share: Annotated[float, above(0), at_most(1)]

    def factor(self, progress: float) -> float:
        """Return the factor of the whole schedule at this point of it."""
        return self.whole.factor(progress * self.share)


ROUNDING = 1e-9
"""A position this near a cycle's end counts as its end: cycles are whole epochs, fractions of all steps are rounded."""


@part("cyclic")
@dataclass(frozen=True)
class Cyclic(Schedule):
    """Cosine cycles (pitfalls paper, eq. 16), with noise and snapshots in the last part of each.

    The rate in step t of T is ½(cos(π·mod(t − 1, T/M)/(T/M)) + 1) of the full one, for M cycles.

    Attributes:
        cycles: M; the epochs must be a multiple of it.
        sampling: Number of last epochs of each cycle with noise.
        temperature: The temperature there, or a rule for it; 0 outside. 1 is the posterior, a lower one is colder
            (sharper).
        keep: Snapshots per cycle, evenly over the sampling epochs, the cycle's end always included.
    """

    cycles: Positive = 4
    sampling: NonNegative = 0
    temperature: Temperature = 0.0
    keep: Positive = 1

    def __post_init__(self) -> None:
        if self.keep > max(1, self.sampling):
            counts = f"keep={self.keep}, sampling={self.sampling}"
            raise UserError(f"cyclic: keep must be at most one snapshot per sampling epoch; given {counts}.")
        if self.temperature and not self.sampling:
            raise UserError(f"cyclic: temperature={self.temperature} needs sampling of at least 1 epoch; given 0.")

    def check_epochs(self, epochs: int) -> None:
        """Refuse epochs that the cycles do not divide, or cycles shorter than their sampling part."""
        lengths = f"epochs={epochs}, cycles={self.cycles}"
        if epochs < 1 or epochs % self.cycles:
            raise UserError(f"cyclic: epochs must be a multiple of cycles; given {lengths}.")
        if self.sampling > (length := epochs // self.cycles):
            own = f"{length} {plural('epoch', length)}"
            raise UserError(f"cyclic: a cycle has {own} ({lengths}), too few for sampling={self.sampling}.")

    def factor(self, progress: float) -> float:
        """Return half a cosine from 1 to 0 in each cycle."""
        position = progress * self.cycles + ROUNDING
        return 0.5 * (1.0 + math.cos(math.pi * max(0.0, position - math.floor(position) - ROUNDING)))

    def temperature_in(self, epoch: int, epochs: int) -> Temperature:
        """Return the temperature in sampling epochs, 0 in others."""
        return self.temperature if self._sampled(epoch, epochs) > 0 else 0.0

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """Return whether this is one of ``keep`` sampling epochs of the cycle; without sampling, its end."""
        if not self.sampling:
            return epoch % (epochs // self.cycles) == 0
        number = self._sampled(epoch, epochs)
        return number > 0 and number * self.keep // self.sampling > (number - 1) * self.keep // self.sampling

    def _sampled(self, epoch: int, epochs: int) -> int:
        """Return the number of the sampling epoch in its cycle, from 1; 0 or less before the sampling part."""
        length = epochs // self.cycles
        return (epoch - 1) % length + 1 - (length - self.sampling)


@part("triangular")
@dataclass(frozen=True)
class Triangular(Schedule):
    """Linear down and up again (pitfalls paper, eq. 17), with a snapshot at the middle of each cycle.

    In step i of cycles of c steps, t = (mod(i − 1, c) + 1)/c, the rate falls as (1 − 2t)α₁ + 2t·α₂ while t ≤ ½ and
    rises as (2 − 2t)α₂ + (2t − 1)α₁ after it. The training ends with the last snapshot, at the middle of the last
    cycle.

    Attributes:
        cycles: Number of cycles, the last of them half.
        low: α₂/α₁, the factor of the rate at the middle of a cycle.
    """

    cycles: Positive = 5
    low: Share = 0.05

    ahead: ClassVar[int] = 1

    def check_epochs(self, epochs: int) -> None:
        """Refuse epochs that the half cycles do not divide."""
        halves = 2 * self.cycles - 1
        if epochs < 1 or epochs % halves:
            half_cycles = f"{halves}, the half cycles of cycles={self.cycles} (the last cycle is half)"
            raise UserError(f"triangular: epochs must be a multiple of {half_cycles}; given epochs={epochs}.")

    def factor(self, progress: float) -> float:
        """Return the factor between 1 and ``low``, by the equation above."""
        position = progress * (self.cycles - 0.5)
        t = position - math.ceil(position - ROUNDING) + 1.0  # in (0, 1]: its end belongs to a cycle
        if t <= 0.5:
            return (1.0 - 2.0 * t) + 2.0 * t * self.low
        return (2.0 - 2.0 * t) * self.low + (2.0 * t - 1.0)

    def marks_after(self, epoch: int, epochs: int) -> bool:
        """Return whether this is the middle of a cycle."""
        half = epochs // (2 * self.cycles - 1)
        return epoch % half == 0 and (epoch // half) % 2 == 1
