"""Calibration rows as independent units: single rows, or groups of rows that belong together.

Uncertainties are rounded to sixteen binary digits. Logits are stored in float32, so that two rows with the same
probability may differ in the seventh decimal; rounding each row makes them equal, keeps ties together at every
threshold, and leaves rows as independent as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp
from typing import NamedTuple

import numpy as np

from dubio.core.draws import independent_rows
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.quantities import uncertainty

BITS = 16
"""Binary digits to which uncertainties are rounded."""


def rounded_uncertainty(predictions: Predictions, quantity: str) -> FloatArray:
    """Return the uncertainty a policy compares with its threshold, ``[N]``: higher is less certain; rounded.

    Raises:
        UserError: For a quantity that the predictions do not have, or for ``random``.
    """
    if quantity == "random":
        raise UserError("quantity 'random' is a control without information about a row; a policy cannot refer by it.")
    return rounded(uncertainty(predictions, quantity))


def rounded(values: FloatArray) -> FloatArray:
    """Round values to sixteen binary digits."""
    digits, exponents = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(digits, BITS)), exponents - BITS))


def just_below(value: float) -> float:
    """Return the largest rounded number below a positive rounded one; below zero for zero."""
    digits, exponent = frexp(value)
    # At a power of two the grid below is twice as fine.
    step = ldexp(1.0, exponent - BITS - (digits == 0.5))
    return value - step


def independent_uncertainties(predictions: Predictions, quantity: str, *, seed: int) -> FloatArray:
    """Return rounded uncertainties in ascending order: of every row, or of one random row of each group."""
    return np.sort(rounded_uncertainty(predictions, quantity)[independent_rows(predictions, seed=seed)])


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim about the retained: the mean loss of some rows is below a bound.

    Attributes:
        name: The bounded rate, e.g. ``error``.
        relevant: ``[N]`` the rows to which it applies.
        loss: ``[N]`` 0 or 1 per row.
        risk: The bound.
    """

    name: str
    relevant: BoolArray
    loss: FloatArray
    risk: float


class ClaimEstimate(NamedTuple):
    """The estimated loss of a claim at a threshold.

    Attributes:
        mean: Mean over units of each one's mean loss; 0 where there is none.
        units: Number of those units: with a retained row to which the claim applies.
    """

    mean: float
    units: int


@dataclass(frozen=True, eq=False)
class Units:
    """Rows with the unit each belongs to.

    Attributes:
        uncertainty: ``[N]``.
        unit: ``[N]`` from 0.
        count: Number of units.
        single: Whether every unit is one row.
    """

    uncertainty: FloatArray
    unit: IntArray
    count: int
    single: bool

    def estimate(self, claim: Claim, threshold: float, members: BoolArray) -> ClaimEstimate:
        """Estimate a claim's loss at a threshold from some of the units.

        Args:
            claim: The claim.
            threshold: Rows up to it are retained.
            members: ``[units]`` which units count.
        """
        rows = (self.uncertainty <= threshold) & claim.relevant & members[self.unit]
        retained = np.bincount(self.unit[rows], minlength=self.count)
        losses = np.bincount(self.unit[rows], claim.loss[rows], minlength=self.count)
        some = retained > 0
        return ClaimEstimate(float((losses[some] / retained[some]).mean()) if some.any() else 0.0, int(some.sum()))


def units_of(predictions: Predictions, quantity: str) -> Units:
    """Return the independent units of a calibration set: its groups in the order of their names, else its rows.

    Args:
        predictions: Predictions; their ``group`` names the units, where given.
        quantity: The uncertainty to refer by.
    """
    uncertainties = rounded_uncertainty(predictions, quantity)
    if predictions.group is None:
        return Units(uncertainties, np.arange(len(uncertainties)), len(uncertainties), True)
    names, unit = np.unique(predictions.group, return_inverse=True)
    return Units(uncertainties, unit.astype(np.int64), len(names), len(names) == len(unit))
