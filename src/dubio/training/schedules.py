"""Schedules: the learning rate's factor over a training's course."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from dubio.errors import UserError
from dubio.parts import part


class Schedule(Protocol):
    """A schedule as a slot value."""

    def factor(self, progress: float) -> float:
        """What the learning rate is multiplied by when ``progress`` (0 to 1) of all steps are done."""
        ...


@part("constant")
@dataclass(frozen=True)
class Constant:
    """Always the same rate."""

    def factor(self, progress: float) -> float:
        """1."""
        return 1.0


@part("cosine")
@dataclass(frozen=True)
class Cosine:
    """Half a cosine from the full rate to zero."""

    def factor(self, progress: float) -> float:
        """½(1 + cos π·progress)."""
        return 0.5 * (1.0 + math.cos(math.pi * progress))


@part("step")
@dataclass(frozen=True)
class Step:
    """The rate is multiplied by ``gamma`` each time another of ``at`` (fractions of all steps) has passed."""

    at: tuple[float, ...] = (0.5, 0.75)
    gamma: float = 0.1

    def factor(self, progress: float) -> float:
        """Gamma to the number of marks passed."""
        return self.gamma ** sum(progress >= mark for mark in self.at)


@part("linear_tail")
@dataclass(frozen=True)
class LinearTail:
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
