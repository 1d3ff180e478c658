"""Calibrated area under the risk–coverage curve, with rows counted by weights (:mod:`dubio.statistics.weighted`).

A replicate keeps the halves of all examples, so that the copies of an example are never parted between what a
temperature is fitted on and what it scores; every half's temperature is fitted anew to the weighted likelihood, and the
rows are ordered anew at it. Passes over all classes for every replicate are not needed for this: slope, curvature and
the logarithm of the doubt are smooth functions of b = 1/T, row by row, and b hardly moves between replicates. Each is
computed at Chebyshev points of an interval around the b of all examples and interpolated in between. Rows that an
interpolation misses by more than rounding, and every row where b leaves the interval, are computed as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev

from dubio.calibration.halves import random_halves
from dubio.calibration.likelihood import Evidence, Terms, evidence_of
from dubio.calibration.temperature import HIGHEST, LOWEST, newton_step, solve
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.ranking import ordered
from dubio.statistics.resampling import Units, Weights, units_of
from dubio.statistics.weighted import Weighted, harmonic_sums

NODES = 16
"""Chebyshev points of the interval."""
REACH = 8.0
"""Half the interval, in standard errors of the b of all examples; one of a half in a replicate is about √3 of them."""
TOLERANCE = 1e-11
"""Largest relative error of an interpolated row."""
TINY = -650.0
"""Log-doubts below this are near the end of the range of numbers, where they lose digits and are not smooth."""
CHECKS = np.array([-0.93, -0.4, 0.21, 0.98])
"""Where interpolation is held against the function, between the points."""


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
        frail: The rows that are not interpolated; their coefficients are zero.
    """

    evidence: Evidence
    floored: Evidence
    centre: float
    low: float
    high: float
    series: FloatArray
    frail: IntArray

    @classmethod
    def of(cls, evidence: Evidence, units: Units) -> Curves:
        """The curves around the b that fits all rows."""
        floored = evidence.floored()
        centre = solve(floored).b
        terms = floored.terms(centre)
        slopes = np.bincount(units.index, terms.slope, minlength=units.count)
        spread = REACH * float(np.sqrt(slopes @ slopes)) / max(-float(terms.curvature.sum()), np.finfo(float).tiny)
        low, high = max(centre - spread, LOWEST), min(centre + spread, HIGHEST)
        points = chebyshev.chebpts1(NODES)
        series = _series(points, _values(evidence, floored, _stretched(points, low, high)))
        exact = _values(evidence, floored, _stretched(CHECKS, low, high))
        with np.errstate(invalid="ignore"):
            off = np.abs(chebyshev.chebvander(CHECKS, NODES - 1) @ series - exact)
            held = (off <= TOLERANCE * (1.0 + np.abs(exact))).all(axis=(0, 1)) & (exact[2] > TINY).all(axis=0)
        series[:, :, ~held] = 0.0
        return cls(evidence, floored, centre, low, high, series, np.flatnonzero(~held))

    def polynomials(self, b: FloatArray) -> FloatArray:
        """The Chebyshev polynomials at b, ``[len(b), NODES]``; zero where b lies outside the interval."""
        inside = self.holds(b)
        place = np.divide(2.0 * b - self.low - self.high, self.high - self.low, out=np.zeros_like(b), where=inside)
        return np.asarray(chebyshev.chebvander(place, NODES - 1) * inside[:, None])

    def holds(self, b: FloatArray) -> BoolArray:
        """Which b lie in the interval; none where it is but a point."""
        return np.asarray((b >= self.low) & (b <= self.high) & (self.low < self.high))

    def exact_rows(self, b: float) -> IntArray:
        """The rows that are not interpolated at this b."""
        return self.frail if self.holds(np.array([b]))[0] else np.arange(len(self.evidence))

    def doubts(self, b: FloatArray) -> FloatArray:
        """The doubt in every row at several b, ``[len(b), N]``."""
        found: FloatArray = np.exp(self.polynomials(b) @ self.series[2])
        for row, each in zip(found, b, strict=True):
            rows = self.exact_rows(each)
            if len(rows):
                row[rows] = self.evidence.take(rows).scores(each).doubt
        return found


@dataclass(frozen=True, eq=False)
class Weighed:
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
        """The weighted sums of slope and curvature at b, each as an array of one."""
        slope, curvature = self.sums @ self.curves.polynomials(np.array([b]))[0]
        rows = self.curves.exact_rows(b)
        rows = rows[self.weights[rows] > 0]
        if len(rows):
            exact = self.curves.floored.take(rows).terms(b)
            slope += exact.slope @ self.weights[rows]
            curvature += exact.curvature @ self.weights[rows]
        return Terms(np.zeros(1), np.array([slope]), np.array([curvature]))


def weighted_calibrated_aurc(predictions: Predictions, *, repeats: int, seed: int) -> Weighted:
    """Cross-validated :func:`dubio.metrics.selective.aurc`; NaN where a half has no weight.

    Args:
        predictions: All labelled.
        repeats: How often the examples are halved.
        seed: Seed of the halves.
    """
    evidence = evidence_of(predictions)
    halves = random_halves(predictions, repeats=repeats, seed=seed)
    curves, wrong = Curves.of(evidence, units_of(predictions)), evidence.wrong()

    def value(weights: Weights) -> FloatArray:
        fitted = curves.series[:2]
        whole = fitted @ weights.real
        parts = [(fitted * half) @ weights.real for half in halves]
        return np.array(
            [
                _replicate(
                    Weighed(curves, whole[:, :, index], weights.real[:, index]),
                    [part[:, :, index] for part in parts],
                    halves,
                    wrong,
                )
                for index in range(len(weights))
            ]
        )

    return value


def _replicate(whole: Weighed, parts: list[FloatArray], halves: tuple[BoolArray, ...], wrong: BoolArray) -> float:
    """One replicate: each half's b, then the area of the other half at it, weighted by what that half weighs.

    Args:
        whole: All rows.
        parts: ``sums`` of the first half of every repeat.
        halves: Which rows are in the first half, every repeat.
        wrong: Which rows are decided wrongly.
    """
    curves, weights = whole.curves, whole.weights
    centre = solve(whole, start=curves.centre).b
    scored: list[BoolArray] = []
    fitted: list[float] = []
    for half, sums in zip(halves, parts, strict=True):
        for rows, own in ((half, sums), (~half, whole.sums - sums)):
            if not weights[rows].any():
                return float("nan")
            side = Weighed(curves, own, weights * rows)
            terms = side.terms(centre)
            first = float(np.clip(newton_step(centre, terms.slope[0], terms.curvature[0]), LOWEST, HIGHEST))
            fitted.append(solve(side, start=first).b)
            scored.append(~rows)
    drawn, tables = weights > 0, harmonic_sums(round(float(weights.sum())))
    areas = 0.0
    for rows, doubts in zip(scored, curves.doubts(np.array(fitted)), strict=True):
        kept = np.flatnonzero(rows & drawn)
        areas += _risks(doubts[kept], wrong[kept], weights[kept], tables)
    return areas / (len(halves) * float(weights.sum()))


def _risks(scores: FloatArray, wrong: BoolArray, weights: FloatArray, tables: tuple[FloatArray, FloatArray]) -> float:
    """The sum over coverages of the risk of the kept, ties in the average order; all weights above zero."""
    ordering = ordered(scores)
    sizes, errors = ordering.sums(weights), ordering.sums(weights * wrong)
    upto = np.cumsum(sizes).astype(np.int64)
    harmonic, sums = tables
    past = np.diff(sums[upto], prepend=0.0) / sizes
    return float(errors.sum() * harmonic[upto[-1]] - errors @ past)


def _values(evidence: Evidence, floored: Evidence, b: FloatArray) -> FloatArray:
    """Slope, curvature and log-doubt of every row at several b, ``[3, len(b), N]``."""
    found = np.empty((3, len(b), len(evidence)))
    for index, each in enumerate(b):
        terms, doubt = floored.terms(each), evidence.scores(each).doubt
        with np.errstate(divide="ignore"):
            found[:, index] = terms.slope, terms.curvature, np.log(doubt)
    return found


def _series(points: FloatArray, values: FloatArray) -> FloatArray:
    """Chebyshev coefficients ``[3, NODES, N]`` of functions with these values at the points."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.linalg.inv(chebyshev.chebvander(points, NODES - 1)) @ values)


def _stretched(points: FloatArray, low: float, high: float) -> FloatArray:
    """Points of [−1, 1] in the interval."""
    return (low + high + points * (high - low)) / 2.0
