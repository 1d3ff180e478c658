"""Test-time cross-validation (P §3.5): scores at the best temperature, without a validation set of their own.

The test set is cut into random halves, groups kept together; each half is scored with the temperature fitted on the
other, and the two are averaged, weighted by their sizes; all this five times. What comes out compares models rather
than the temperatures they happened to be trained to (P §3.1): the registered metrics ``calibrated_nll``,
``calibrated_brier`` and ``calibrated_aurc``. They are defined on the averaged probabilities, and tempering those first
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from dubio.calibration.halves import random_halves
from dubio.calibration.likelihood import Evidence, Scores, evidence_of
from dubio.calibration.temperature import HIGHEST, LOWEST, Bound, newton_step, solve
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, FloatArray, IntArray, Metric, Need
from dubio.metrics.naming import written
from dubio.metrics.selective import expected_errors

REPEATS = 5

Score = Literal["nll", "brier", "aurc"]

_LABELS: frozenset[Need] = frozenset({"labels"})


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
        temperatures: The fitted temperatures, two a repeat.
        bound_hits: How many of them lie at an end of the allowed range: that half had no optimum inside it.
    """

    nll: Spread
    brier: Spread
    aurc: Spread
    temperatures: tuple[float, ...]
    bound_hits: int


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
    return score_folds(evidence, _remembered(predictions, evidence, repeats, seed))


def fit_folds(evidence: Evidence, halves: tuple[BoolArray, ...], *, start: float = 1.0) -> tuple[Fold, ...]:
    """The temperature of every half, to be used on the other.

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
    nll, brier, aurc = np.empty(len(folds)), np.empty(len(folds)), np.empty(len(folds))
    for index, fold in enumerate(folds):
        scores = evidence.take(fold.rows).scores(fold.b)
        nll[index], brier[index] = scores.nll.mean(), scores.brier.mean()
        aurc[index] = area_under_risk(scores, wrong[fold.rows])
    return CrossValidated(
        nll=_spread(nll, shares),
        brier=_spread(brier, shares),
        aurc=_spread(aurc, shares),
        temperatures=tuple(1.0 / fold.b for fold in folds),
        bound_hits=sum(fold.at_bound is not None for fold in folds),
    )


def contributions(
    predictions: Predictions, *, score: Literal["nll", "brier"], repeats: int = REPEATS, seed: int = 0
) -> FloatArray:
    """Each labelled example's part in a calibrated score, ``[N]``: its mean over the repeats."""
    evidence = evidence_of(predictions)
    total = np.zeros(len(evidence))
    for fold in _remembered(predictions, evidence, repeats, seed):
        total[fold.rows] += getattr(evidence.take(fold.rows).scores(fold.b), score)
    return total / repeats


_FOLDS: WeakKeyDictionary[Predictions, dict[tuple[int, int], tuple[Fold, ...]]] = WeakKeyDictionary()
"""Temperatures already fitted: three metrics share them, and predictions never change."""


def _remembered(predictions: Predictions, evidence: Evidence, repeats: int, seed: int) -> tuple[Fold, ...]:
    known = _FOLDS.setdefault(predictions, {})
    if (repeats, seed) not in known:
        halves = random_halves(predictions.labelled, repeats=repeats, seed=seed)
        known[repeats, seed] = fit_folds(evidence, halves)
    return known[repeats, seed]


def area_under_risk(scores: Scores, wrong: BoolArray) -> float:
    """AURC when the most doubtful are left out first: the mean error of the k least doubtful, over all k."""
    errors = expected_errors(scores.doubt, wrong)
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def _spread(values: FloatArray, shares: list[float]) -> Spread:
    """Fold values to the mean over repeats, the two halves of each weighted by their sizes."""
    repeats = (values * np.array(shares)).reshape(-1, 2).sum(axis=1)
    with np.errstate(invalid="ignore"):
        std = float(repeats.std(ddof=1)) if len(repeats) > 1 else float("nan")
    return Spread(float(repeats.mean()), std, tuple(float(value) for value in repeats))


def _calibrated(predictions: Predictions, *, score: Score, repeats: int, seed: int) -> float:
    spread: Spread = getattr(cross_validate(predictions, repeats=repeats, seed=seed), score)
    return spread.mean


def _name(score: Score, repeats: int, seed: int) -> str:
    return written(f"calibrated_{score}", repeats=(repeats, REPEATS), seed=(seed, 0))


@metric("calibrated_nll")
def calibrated_nll(*, repeats: int = REPEATS, seed: int = 0) -> Metric:
    """Negative log-likelihood at temperatures fitted on the other half, repeated (P §3.5)."""
    return Metric(_name("nll", repeats, seed), "lower",
                  partial(_calibrated, score="nll", repeats=repeats, seed=seed),
                  partial(contributions, score="nll", repeats=repeats, seed=seed), _LABELS,
                  summary="Negative log-likelihood at cross-validated temperature.")


@metric("calibrated_brier")
def calibrated_brier(*, repeats: int = REPEATS, seed: int = 0) -> Metric:
    """Brier score at temperatures fitted on the other half, repeated (P §3.5)."""
    return Metric(_name("brier", repeats, seed), "lower",
                  partial(_calibrated, score="brier", repeats=repeats, seed=seed),
                  partial(contributions, score="brier", repeats=repeats, seed=seed), _LABELS,
                  summary="Brier score at cross-validated temperature.")


@metric("calibrated_aurc")
def calibrated_aurc(*, repeats: int = REPEATS, seed: int = 0) -> Metric:
    """Area under the risk–coverage curve at temperatures fitted on the other half, repeated (P §3.5)."""
    return Metric(_name("aurc", repeats, seed), "lower",
                  partial(_calibrated, score="aurc", repeats=repeats, seed=seed), None, _LABELS,
                  summary="Area under the risk–coverage curve at cross-validated temperature.")
