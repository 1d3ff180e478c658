"""Calibration rows as independent units: rows by themselves, or groups of rows that belong together.

Uncertainties are compared to sixteen binary digits. Logits are kept in float32, so that two rows given the same
probability may differ in the seventh decimal; rounding each row by itself makes them equal, keeps ties together at
every threshold, and leaves rows as independent as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.quantities import uncertainty

BITS = 16


def graded_uncertainty(predictions: Predictions, quantity: str) -> FloatArray:
    """The uncertainty a policy compares with its threshold, ``[N]``: higher is less certain, sixteen binary digits.

    Raises:
        UserError: For a quantity that the predictions do not have, or for ``random``.
    """
    if quantity == "random":
        raise UserError("quantity 'random' is a control and knows nothing of a row; a policy cannot refer by it.")
    return graded(uncertainty(predictions, quantity))


def graded(values: FloatArray) -> FloatArray:
    """Values rounded to sixteen binary digits."""
    digits, exponents = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(digits, BITS)), exponents - BITS))


def just_below(value: float) -> float:
    """The largest graded number below a graded one that is positive; below zero for zero."""
    digits, exponent = frexp(value)
    # At a power of two the grid below is twice as fine.
    step = ldexp(1.0, exponent - BITS - (digits == 0.5))
    return value - step


def independent_uncertainties(predictions: Predictions, quantity: str, *, seed: int) -> FloatArray:
    """Graded uncertainties in ascending order: of every row, or of one row of each group, drawn by seed.

    Which row is drawn does not depend on the order of the rows.
    """
    values = graded_uncertainty(predictions, quantity)
    if predictions.group is None:
        return np.sort(values)
    names, counts = np.unique(predictions.group, return_counts=True)
    order = np.lexsort((values, predictions.group))
    ends = np.cumsum(counts)
    drawn = np.random.default_rng(seed).integers(0, counts, len(names))
    return np.sort(values[order[ends - counts + drawn]])


@dataclass(frozen=True, eq=False)
class Claim:
    """Something that must hold among the kept: the mean loss of some rows is below a bound.

    Attributes:
        name: What is bounded, e.g. ``error``.
        relevant: ``[N]`` the rows it speaks of.
        loss: ``[N]`` 0 or 1 a row.
        risk: The bound.
    """

    name: str
    relevant: BoolArray
    loss: FloatArray
    risk: float


@dataclass(frozen=True)
class Standing:
    """How a claim stands at a threshold.

    Attributes:
        count: Units that have a kept row the claim speaks of.
        mean: Mean over those units of each one's mean loss; 0 where there is none.
    """

    count: int
    mean: float


@dataclass(frozen=True, eq=False)
class Units:
    """Rows with the unit each belongs to.

    Attributes:
        uncertainty: ``[N]``.
        unit: ``[N]`` from 0.
        count: How many units.
        single: Whether every unit is one row.
    """

    uncertainty: FloatArray
    unit: IntArray
    count: int
    single: bool

    def standing(self, claim: Claim, threshold: float, members: BoolArray) -> Standing:
        """A claim at a threshold, from the units that are members.

        Args:
            claim: What is claimed of the kept.
            threshold: Rows up to it are kept.
            members: ``[units]`` which units count.
        """
        rows = (self.uncertainty <= threshold) & claim.relevant & members[self.unit]
        kept = np.bincount(self.unit[rows], minlength=self.count)
        lost = np.bincount(self.unit[rows], claim.loss[rows], minlength=self.count)
        here = kept > 0
        return Standing(int(here.sum()), float((lost[here] / kept[here]).mean()) if here.any() else 0.0)

    def coverage(self, threshold: float, members: BoolArray) -> float:
        """Share of the members' rows that are kept."""
        return float((self.uncertainty[members[self.unit]] <= threshold).mean())


def units_of(predictions: Predictions, uncertainties: FloatArray, order_by: NDArray[Any]) -> Units:
    """The independent units of a calibration set, in an order that does not depend on the order of the rows.

    Args:
        predictions: Whose ``group`` says what belongs together.
        uncertainties: ``[N]``.
        order_by: ``[N]`` what parts rows of equal uncertainty, where rows are the units.
    """
    if predictions.group is None:
        order = np.lexsort((order_by, uncertainties))
        unit = np.empty(len(order), dtype=np.int64)
        unit[order] = np.arange(len(order))
        return Units(uncertainties, unit, len(order), True)
    names, unit = np.unique(predictions.group, return_inverse=True)
    return Units(uncertainties, unit.astype(np.int64), len(names), len(names) == len(unit))
