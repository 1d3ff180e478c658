"""What figures are drawn from: per-run values on a common axis, with the look of their method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dubio.core.types import FloatArray as Values
from dubio.reporting.style import Style


@dataclass(frozen=True, eq=False)
class Series:
    """One method's values over a common axis.

    Attributes:
        style: How the method is drawn.
        x: ``[X]``, the axis.
        runs: ``[R, X]``, one row a run; NaN where the value is not defined.
    """

    style: Style
    x: Values
    runs: Values

    @property
    def mean(self) -> Values:
        """Mean over the runs for which the value is defined; NaN where there is none."""
        count = self.defined.sum(axis=0)
        total = np.where(self.defined, self.runs, 0.0).sum(axis=0)
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))

    @property
    def std(self) -> Values:
        """Sample standard deviation over those runs; zero where there is one run."""
        count = self.defined.sum(axis=0)
        squares = np.where(self.defined, (self.runs - self.mean) ** 2, 0.0).sum(axis=0)
        return np.asarray(np.sqrt(squares / np.maximum(count - 1, 1)))

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Where a run has a value."""
        return np.isfinite(self.runs)


@dataclass(frozen=True, eq=False)
class Groups:
    """Shares of examples per bin of an uncertainty: of those that are right, of those that are wrong, of foreign ones.

    A method that is right about everything has zeros for what is wrong.
    """

    correct: Values
    incorrect: Values
    outside: Values


@dataclass(frozen=True, eq=False)
class Density:
    """One method's uncertainty over three groups of examples, as shares of each per bin."""

    style: Style
    edges: Values
    groups: Groups
    note: str


@dataclass(frozen=True, eq=False)
class CostPoint:
    """One method's cost and quality, each over its runs."""

    style: Style
    cost: float
    quality: Values
