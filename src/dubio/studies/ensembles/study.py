"""What the ensembling study knows of one task: methods against their samples, and how ensembles of networks grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dubio.core.types import FloatArray
from dubio.reporting.aggregate import Cell
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.statistics.ensemble_equivalent import EquivalentRange, GrowthCurve, Score, equivalent_range
from dubio.studies.ensembles.prefixes import MEASURES, SIZES

Role = Literal["network", "pool", "method", "ensemble"]
"""One network; the pool of independent ones, a deep ensemble; a method of one training; an ensemble of such."""

SCORED: Mapping[Score, str] = {
    "nll": "calibrated_nll", "brier": "calibrated_brier", "error": "error", "aurc": "calibrated_aurc",
}  # fmt: skip
"""Score of a deep-ensemble equivalent → the measure it is read from."""

MOST = 0.75
"""The number of samples for a comparison is one that at least this share of the methods reaches."""


@dataclass(frozen=True, eq=False)
class Line:
    """One method against its number of samples.

    Attributes:
        method: The method.
        base: The method that is the same without test-time augmentation; its own name where it predicts no views.
        role: What it is in the study.
        sizes: ``[X]`` numbers of samples.
        values: ``[R, X, measures]`` over runs, or over random orders of a pool; measures as in
            :data:`dubio.studies.ensembles.prefixes.MEASURES`.
        tace: ``[R, settings]`` with all samples, at the optimal temperature.
        runs: Seed and member of every run; none of a pool, whose values are over orders.
    """

    method: MethodView
    base: str
    role: Role
    sizes: tuple[int, ...]
    values: FloatArray
    tace: FloatArray
    runs: tuple[tuple[int, int | None], ...] = ()

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    @property
    def title(self) -> str:
        """What the method is called; of a way to an ensemble that has one sample, that it has."""
        alone = self.role == "method" and self.samples == 1
        return f"{self.method.title} (1 sample)" if alone else self.method.title

    @property
    def augmented(self) -> bool:
        """Whether it predicts random views."""
        return self.method.views > 0

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.sizes[-1]

    def of(self, measure: str) -> FloatArray:
        """One measure, ``[R, X]``."""
        return np.asarray(self.values[:, :, MEASURES.index(measure)])

    def mean(self, measure: str) -> FloatArray:
        """Its mean over runs, ``[X]``."""
        return np.asarray(self.of(measure).mean(axis=0))

    def at(self, measure: str, size: int) -> Cell | None:
        """Its values with so many samples; of what has one sample, that one whatever is asked for, as in P."""
        place = 0 if self.samples == 1 else self.sizes.index(size) if size in self.sizes else None
        if place is None:
            return None
        return Cell(tuple(float(value) for value in self.of(measure)[:, place]))


@dataclass(frozen=True, eq=False)
class Study:
    """The study on one task.

    Attributes:
        task: The task, with its network.
        lines: One a method, in the benchmark's order.
        growth: Scores of deep ensembles of 1, 2, … of the networks, over random orders.
    """

    task: TaskView
    lines: tuple[Line, ...]
    growth: GrowthCurve

    @cached_property
    def by_name(self) -> dict[str, Line]:
        """The lines by the names of their methods."""
        return {line.name: line for line in self.lines}

    @property
    def pool(self) -> Line | None:
        """The deep ensemble without augmentation."""
        return next((line for line in self.lines if line.role == "pool" and not line.augmented), None)

    def chosen(self, *roles: Role, augmented: bool | None = None) -> tuple[Line, ...]:
        """The lines of these roles, with or without augmentation or both."""
        return tuple(
            line for line in self.lines if line.role in roles and (augmented is None or line.augmented == augmented)
        )

    def twin(self, line: Line) -> Line | None:
        """The same method with augmentation."""
        return next((each for each in self.lines if each.augmented and each.base == line.name), None)

    @cached_property
    def equal(self) -> int:
        """With how many samples methods are compared: as most of them reach, but at most half the networks.

        All orders of the networks end in the same ensemble: near the whole of them the spread over orders, and with it
        the bounds of an equivalent, shrinks to nothing, whatever is known.
        """
        drawn = [line for line in self.chosen("method", augmented=False) if line.samples > 1]
        reached = [size for size in SIZES if sum(size in line.sizes for line in drawn) >= MOST * len(drawn)]
        return max((size for size in reached if 2 * size <= len(self.growth)), default=1)

    def equivalents(self, line: Line, score: Score = "nll") -> tuple[EquivalentRange, ...]:
        """How many independent networks a method is worth with every number of its samples (P eqs 4–5)."""
        return tuple(equivalent_range(self.growth, score, float(value)) for value in line.mean(SCORED[score]))

    def equivalent_at(self, line: Line, size: int, score: Score = "nll") -> EquivalentRange | None:
        """The same with so many samples; None where it has not so many."""
        cell = line.at(SCORED[score], size)
        return None if cell is None else equivalent_range(self.growth, score, cell.mean)
