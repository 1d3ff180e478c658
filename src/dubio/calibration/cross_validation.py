"""Test-time cross-validation (P §3.5): scores at the best temperature, without a validation set of their own.

The test set is cut into random halves, groups together; each half is scored with the temperature fitted on the other,
and the two are averaged, weighted by their sizes; all this five times. The result compares models rather than the
temperatures they happened to be trained to (P §3.1): the registered metrics ``calibrated_nll``, ``calibrated_brier``
and ``calibrated_aurc``. They are defined on the averaged probabilities, and tempering those first changes nothing.

A half is drawn over what the examples *are*, never over what was predicted for them, so that two methods scored on the
same test set are cut alike: by a hash of the seed and the group, else the id (:func:`dubio.core.draws.name_numbers`),
whatever the order of rows. Without either, the position of a row is its identity, and :data:`BY_POSITION` says so
beside the scores. A bootstrap replicate has the halves of all examples, so that the copies of an example are never
divided between what a temperature is fitted on and what it scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from dubio.calibration.likelihood_curves import Curves, WeightedLikelihood
from dubio.calibration.temperature import HIGHEST, LOWEST, Bound, Evidence, evidence_of, newton_step, solve
from dubio.core.draws import name_numbers
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, row_names
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.areas import area_under_risk, risk_area
from dubio.metrics.metric import metric, prepared
from dubio.metrics.ranking import Marked

REPEATS = 5

BY_POSITION = (
    "Scores by cross-validation (calibrated, conformal) cut the examples into random halves by their ids. These have "
    "none, and the position of a row takes its place: these scores change with the order of rows."
)
"""The note beside scores of examples that have neither ids nor groups."""

HALVED = ("calibrated_", "conformal_")
"""How the names of these scores begin."""


@dataclass(frozen=True)
class Spread:
    """A value averaged over repeated random halves, and how far those repeats differ."""

    mean: float
    std: float
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Fold:
    """One half: the rows scored, and the b = 1/T that was fitted on the other half."""

    rows: IntArray
    b: float
    at_bound: Bound | None


@dataclass(frozen=True)
class CrossValidated:
    """Scores at cross-validated temperatures.

    Attributes:
        nll: Calibrated negative log-likelihood.
        brier: Calibrated Brier score.
        aurc: Calibrated area under the risk–coverage curve.
        temperatures: The fitted temperatures, two per repeat.
        bound_hits: How many of them lie at an end of the allowed range: that half had no optimum inside it.
    """

    nll: Spread
    brier: Spread
    aurc: Spread
    temperatures: tuple[float, ...]
    bound_hits: int


def random_halves(predictions: Predictions, *, repeats: int, seed: int) -> tuple[BoolArray, ...]:
    """Return one mask per repeat: True where the example lies in the first half.

    Groups stay together, or a temperature would be scored on rows of the patients it was fitted on. They are drawn in
    random order and cut where the two sides are most nearly equal.

    Args:
        predictions: What to halve.
        repeats: How many times.
        seed: Seed of the hash; draw r is the same whatever ``repeats`` is.

    Raises:
        UserError: When there are not two examples (groups) to divide, or ``repeats`` is below one.
    """
    if repeats < 1:
        raise UserError(f"repeats must be at least 1; given {repeats}.")
    unit = _units(predictions)
    sizes = np.bincount(unit)
    if len(sizes) < 2:
        units = "examples" if predictions.group is None else "groups"
        raise UserError(
            f"test-time cross-validation needs at least two {units} to divide into halves; "
            f"given {len(sizes)} ({len(predictions)} labelled examples)."
        )
    numbers = name_numbers(_unit_names(predictions), seed=seed, count=repeats)
    return tuple(_first_half(sizes, np.argsort(column, kind="stable"))[unit] for column in numbers.T)


def by_position(predictions: Predictions) -> bool:
    """Whether halves go by the position of rows, also where only joined rows have ids or groups."""
    return row_names(1)[0] in _unit_names(predictions)


def _first_half(sizes: IntArray, order: IntArray) -> BoolArray:
    """Return which units lie in the first half.

    Args:
        sizes: Rows of each unit.
        order: The units in random order.
    """
    filled = np.cumsum(sizes[order])[:-1]
    cut = 1 + int(np.argmin(np.abs(2 * filled - sizes.sum())))
    first = np.zeros(len(sizes), dtype=bool)
    first[order[:cut]] = True
    return first


def _units(predictions: Predictions) -> IntArray:
    """Return the unit of each example: its group, else its row."""
    if predictions.group is not None:
        return np.unique(predictions.group, return_inverse=True)[1].astype(np.int64)
    return np.arange(len(predictions), dtype=np.int64)


def _unit_names(predictions: Predictions) -> list[str]:
    rows = row_names(len(predictions)) if predictions.ids is None else predictions.ids
    names: list[str] = (rows if predictions.group is None else np.unique(predictions.group)).tolist()
    return names


def cross_validate(predictions: Predictions, *, repeats: int = REPEATS, seed: int = 0) -> CrossValidated:
    """Score predictions by test-time cross-validation.

    Args:
        predictions: Labelled predictions; unlabelled examples are left out.
        repeats: How often the examples are halved.
        seed: Seed of the halves; the same seed halves the same examples alike for every method.

    Raises:
        UserError: When there are fewer than two labelled examples (groups).
    """
    evidence = evidence_of(predictions)
    return score_folds(evidence, _folds(predictions, evidence, repeats, seed))


def fit_folds(evidence: Evidence, halves: tuple[BoolArray, ...], *, start: float = 1.0) -> tuple[Fold, ...]:
    """Fit the temperature of every half, to be used on the other.

    One fit to all examples comes first. Its slopes and curvatures, example by example, give each half its first Newton
    step without another pass, so that a half is solved in one or two evaluations.

    Args:
        evidence: Of all examples.
        halves: Masks over examples.
        start: Where the fit to all examples begins.
    """
    floored = evidence.floored()
    centre = solve(floored, start=start).b
    terms = floored.terms(centre)
    folds = []
    for half in halves:
        for fitted in (half, ~half):
            slope, curvature = float(terms.slope[fitted].sum()), float(terms.curvature[fitted].sum())
            first = float(np.clip(newton_step(centre, slope, curvature), LOWEST, HIGHEST))
            root = solve(floored.take(np.flatnonzero(fitted)), start=first)
            folds.append(Fold(np.flatnonzero(~fitted), root.b, root.at_bound))
    return tuple(folds)


def score_folds(evidence: Evidence, folds: tuple[Fold, ...]) -> CrossValidated:
    """Score every half at its temperature and average the two halves of a repeat by their sizes."""
    wrong = evidence.wrong()
    shares = [len(fold.rows) / len(evidence) for fold in folds]
    values = np.empty((3, len(folds)))
    for index, fold in enumerate(folds):
        scores = evidence.take(fold.rows).scores(fold.b)
        area = area_under_risk(scores.doubt, wrong[fold.rows])
        values[:, index] = scores.nll.mean(), scores.brier.mean(), area
    nll, brier, aurc = (_spread(row, shares) for row in values)
    bound_hits = sum(fold.at_bound is not None for fold in folds)
    return CrossValidated(nll, brier, aurc, tuple(1.0 / fold.b for fold in folds), bound_hits)


_FOLDS: WeakKeyDictionary[Predictions, dict[tuple[int, int], tuple[Fold, ...]]] = WeakKeyDictionary()
"""Temperatures already fitted: three metrics share them, and predictions never change."""


def _folds(predictions: Predictions, evidence: Evidence, repeats: int, seed: int) -> tuple[Fold, ...]:
    rows = predictions.labelled
    fitted = _FOLDS.setdefault(rows, {})
    if (repeats, seed) not in fitted:
        fitted[repeats, seed] = fit_folds(evidence, random_halves(rows, repeats=repeats, seed=seed))
    return fitted[repeats, seed]


def _spread(values: FloatArray, shares: list[float]) -> Spread:
    """Average fold values over repeats, the two halves of each weighted by their sizes."""
    repeats = (values * np.array(shares)).reshape(-1, 2).sum(axis=1)
    with np.errstate(invalid="ignore"):
        std = float(repeats.std(ddof=1)) if len(repeats) > 1 else float("nan")
    return Spread(float(repeats.mean()), std, tuple(float(value) for value in repeats))


@metric("calibrated_nll", better="lower", needs={"labels", "probs"}, version=2, mean=True, likelihood=True)
def calibrated_nll(p: Predictions, *, repeats: int = REPEATS, seed: int = 0) -> FloatArray:
    """Negative log-likelihood at temperatures fitted on the other half, repeated (P §3.5)."""
    return _contributions(p, "nll", repeats, seed)


@metric("calibrated_brier", better="lower", needs={"labels", "probs"}, version=2, mean=True)
def calibrated_brier(p: Predictions, *, repeats: int = REPEATS, seed: int = 0) -> FloatArray:
    """Brier score at temperatures fitted on the other half, repeated (P §3.5)."""
    return _contributions(p, "brier", repeats, seed)


def _contributions(p: Predictions, score: Literal["nll", "brier"], repeats: int, seed: int) -> FloatArray:
    """Return each example's part in a calibrated score, ``[N]``: its mean over the repeats."""
    evidence = evidence_of(p)
    total = np.zeros(len(evidence))
    for fold in _folds(p, evidence, repeats, seed):
        total[fold.rows] += getattr(evidence.take(fold.rows).scores(fold.b), score)
    return total / repeats


@metric("calibrated_aurc", better="lower", needs={"labels", "probs"}, version=2)
def calibrated_aurc(p: Predictions, *, repeats: int = REPEATS, seed: int = 0, weights: Weights = ONCE) -> Values:
    """Area under the risk–coverage curve at temperatures fitted on the other half, repeated (P §3.5).

    With weights, every half's temperature is fitted again and its rows are ordered again; NaN where a half has none.
    """
    if weights.each_once:
        return np.array([cross_validate(p, repeats=repeats, seed=seed).aurc.mean])
    return _weighted_halves(p, repeats, seed).values(weights)


class _WeightedHalves:
    """Cross-validation of weighted rows."""

    def __init__(self, p: Predictions, repeats: int, seed: int) -> None:
        evidence = evidence_of(p)
        self._halves = random_halves(p, repeats=repeats, seed=seed)
        self._curves = Curves.of(evidence, _units(p))
        self._wrong = evidence.wrong()

    def values(self, weights: Weights) -> Values:
        """Return the calibrated AURC of every replicate, ``[R]``."""
        series = self._curves.series[:2]
        every = series @ weights.real
        first = [(series * half) @ weights.real for half in self._halves]
        columns = range(len(weights))
        return np.array([self._replicate(weights, r, every[..., r], [sums[..., r] for sums in first]) for r in columns])

    def _replicate(self, weights: Weights, column: int, every: FloatArray, first: list[FloatArray]) -> float:
        """Fit each half's b, then average the area of the other half at it, weighted by what that half weighs.

        Args:
            weights: Of all replicates.
            column: Which replicate.
            every: The sums of :class:`WeightedLikelihood` over all rows.
            first: The same over the first half of every repeat.
        """
        curves, own = self._curves, weights.real[:, column]
        centre = solve(WeightedLikelihood(curves, every, own), start=curves.centre).b
        scored: list[BoolArray] = []
        fitted: list[float] = []
        for half, sums in zip(self._halves, first, strict=True):
            for rows, side_sums in ((half, sums), (~half, every - sums)):
                if not own[rows].any():
                    return float("nan")
                side = WeightedLikelihood(curves, side_sums, own * rows)
                terms = side.terms(centre)
                start = float(np.clip(newton_step(centre, terms.slope[0], terms.curvature[0]), LOWEST, HIGHEST))
                fitted.append(solve(side, start=start).b)
                scored.append(~rows)
        counts, areas = weights.counts[:, column], 0.0
        for rows, doubts in zip(scored, curves.doubts(np.array(fitted)), strict=True):
            indices = np.flatnonzero(rows & (counts > 0))
            side_weights = Weights(counts[indices, None])
            area = risk_area(Marked.fewer(doubts[indices], self._wrong[indices]), side_weights)
            areas += float(area[0] * side_weights.totals[0])
        return areas / (len(self._halves) * float(own.sum()))


_weighted_halves = prepared(_WeightedHalves)
