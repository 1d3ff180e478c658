"""Schedules that go round: a cosine or a triangle again and again, with snapshots on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.training.schedules import Schedule

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

    def keeps_after(self, epoch: int, epochs: int) -> bool:
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

    def keeps_after(self, epoch: int, epochs: int) -> bool:
        """At the middle of each cycle."""
        half = epochs // (2 * self.cycles - 1)
        return epoch % half == 0 and (epoch // half) % 2 == 1
