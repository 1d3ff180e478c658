"""The likelihood of b = 1/T for many weightings of the same rows, interpolated in b.

Slope, curvature and the logarithm of the doubt are smooth functions of b, row by row, and the b fitted to a bootstrap
replicate hardly moves. So that no replicate needs a pass over all classes, each is computed at Chebyshev points of an
interval around the b of all examples and interpolated in between. Rows that an interpolation misses by more than
rounding, and every row where b leaves the interval, are computed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from dubio.calibration.temperature import HIGHEST, LOWEST, Evidence, Terms, solve
from dubio.core.types import BoolArray, FloatArray, IntArray

NODES = 16
"""Chebyshev points of the interval."""
REACH = 8.0
"""Half the interval, in standard errors of the b of all examples; one of a half in a replicate is about √3 of them."""
TOLERANCE = 1e-11
"""Largest relative error of an interpolated row."""
TINY = -650.0
"""Log-doubts below this are near the end of the range of numbers, where they lose digits and are not smooth."""
CHECKS = np.array([-0.93, -0.4, 0.21, 0.98])
"""Where interpolation is compared with the function, between the points."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Slope, curvature and log-doubt of every row as Chebyshev series in b between two ends.

    Attributes:
        evidence: Of all rows, as it is scored.
        floored: The same, as temperatures are fitted to it.
        centre: The b that fits all rows.
        low: Lower end of the interval.
        high: Upper end.
        series: ``[3, NODES, N]``, the coefficients of ℓ′, ℓ″ and log(1 − confidence).
        exact: The rows that are not interpolated; their coefficients are zero.
    """

    evidence: Evidence
    floored: Evidence
    centre: float
    low: float
    high: float
    series: FloatArray
    exact: IntArray

    @classmethod
    def of(cls, evidence: Evidence, units: IntArray) -> Curves:
        """Interpolate around the b that fits all rows.

        Args:
            evidence: Of all rows.
            units: ``[N]``, the unit that each row is resampled with, from 0.
        """
        floored = evidence.floored()
        centre = solve(floored).b
        terms = floored.terms(centre)
        slopes = np.bincount(units, terms.slope)
        spread = REACH * float(np.sqrt(slopes @ slopes)) / max(-float(terms.curvature.sum()), np.finfo(float).tiny)
        low, high = max(centre - spread, LOWEST), min(centre + spread, HIGHEST)
        points = chebyshev.chebpts1(NODES)
        series = _series(points, _values(evidence, floored, _stretched(points, low, high)))
        values = _values(evidence, floored, _stretched(CHECKS, low, high))
        with np.errstate(invalid="ignore"):
            off = np.abs(chebyshev.chebvander(CHECKS, NODES - 1) @ series - values)
            close = (off <= TOLERANCE * (1.0 + np.abs(values))).all(axis=(0, 1)) & (values[2] > TINY).all(axis=0)
        series[:, :, ~close] = 0.0
        return cls(evidence, floored, centre, low, high, series, np.flatnonzero(~close))

    def polynomials(self, b: FloatArray) -> FloatArray:
        """Return the Chebyshev polynomials at b, ``[len(b), NODES]``; zero where b lies outside the interval."""
        inside = self.contains(b)
        points = np.divide(2.0 * b - self.low - self.high, self.high - self.low, out=np.zeros_like(b), where=inside)
        return np.asarray(chebyshev.chebvander(points, NODES - 1) * inside[:, None])

    def contains(self, b: FloatArray) -> BoolArray:
        """Return which b lie in the interval; none where it is but a point."""
        return np.asarray((b >= self.low) & (b <= self.high) & (self.low < self.high))

    def exact_rows(self, b: float) -> IntArray:
        """Return the rows that are not interpolated at this b."""
        return self.exact if self.contains(np.array([b]))[0] else np.arange(len(self.evidence))

    def doubts(self, b: FloatArray) -> FloatArray:
        """Return the doubt (1 − confidence) in every row at several b, ``[len(b), N]``."""
        doubts: FloatArray = np.exp(self.polynomials(b) @ self.series[2])
        for row, value in zip(doubts, b, strict=True):
            exact = self.exact_rows(value)
            if len(exact):
                row[exact] = self.evidence.take(exact).scores(value).doubt
        return doubts


@dataclass(frozen=True, eq=False)
class WeightedLikelihood:
    """The likelihood of b for weighted rows.

    Attributes:
        curves: Of all rows.
        sums: ``[2, NODES]``, the weighted sums of the series of ℓ′ and ℓ″.
        weights: ``[N]``, zero for rows that are left out.
    """

    curves: Curves
    sums: FloatArray
    weights: FloatArray

    def terms(self, b: float) -> Terms:
        """Return the weighted sums of slope and curvature at b, each as an array of one."""
        slope, curvature = self.sums @ self.curves.polynomials(np.array([b]))[0]
        rows = self.curves.exact_rows(b)
        rows = rows[self.weights[rows] > 0]
        if len(rows):
            exact = self.curves.floored.take(rows).terms(b)
            slope += exact.slope @ self.weights[rows]
            curvature += exact.curvature @ self.weights[rows]
        return Terms(np.zeros(1), np.array([slope]), np.array([curvature]))


def _values(evidence: Evidence, floored: Evidence, b: FloatArray) -> FloatArray:
    """Return slope, curvature and log-doubt of every row at several b, ``[3, len(b), N]``."""
    values = np.empty((3, len(b), len(evidence)))
    for index, value in enumerate(b):
        terms, doubt = floored.terms(value), evidence.scores(value).doubt
        with np.errstate(divide="ignore"):
            values[:, index] = terms.slope, terms.curvature, np.log(doubt)
    return values


def _series(points: FloatArray, values: FloatArray) -> FloatArray:
    """Return the Chebyshev coefficients ``[3, NODES, N]`` of functions with these values at the points."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.linalg.inv(chebyshev.chebvander(points, NODES - 1)) @ values)


def _stretched(points: FloatArray, low: float, high: float) -> FloatArray:
    """Return points of [−1, 1] moved to the interval."""
    return (low + high + points * (high - low)) / 2.0
