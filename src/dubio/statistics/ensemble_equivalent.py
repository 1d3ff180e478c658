"""The deep-ensemble equivalent (P eqs 4–5): the number of independent networks that score like a method.

DEE_m(k) is the least real l ≥ 1 at which the deep ensemble's mean curve, linear between whole l, reaches the value of
method m with k samples. Its lower and upper bounds come from the curve raised and lowered by its standard deviation
over random orders of the trained members. Beyond the longest ensemble the answer is "> l_max": nothing is extrapolated.
Curves are of calibrated log-likelihood (negated: ``nll``), calibrated Brier score, calibrated AURC, and error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dubio.calibration.cross_validation import REPEATS, CrossValidated, fit_folds, random_halves, score_folds
from dubio.calibration.temperature import Evidence, evidence_of_log_probs
from dubio.core.errors import UserError, one_of
from dubio.core.passes import Scratch, exponentials, log_sigmoid, mean_over_samples, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.requirements import labelled

Score = Literal["nll", "brier", "error", "aurc"]
Unit = Literal["member", "sample"]

SCORES: tuple[Score, ...] = get_args(Score)

ROUNDING = 1e-10
"""Scores this close are equal: the same members pooled in another order differ in the last digits."""


@dataclass(frozen=True, eq=False)
class GrowthCurve:
    """Scores of growing ensembles, lower is better: index l − 1 holds the score with l members.

    Attributes:
        mean: Score name to ``[L]``, the mean over random orders.
        std: Score name to ``[L]``, the standard deviation over random orders (0 where there was one).
        orders: The number of orders.
    """

    mean: dict[Score, FloatArray]
    std: dict[Score, FloatArray]
    orders: int

    def __len__(self) -> int:
        return len(self.mean["nll"])


@dataclass(frozen=True)
class Equivalent:
    """A number of independent networks, or more than there are.

    Attributes:
        size: l, or infinity where no ensemble at hand reaches the value.
        longest: l_max, the size of the longest ensemble at hand.
    """

    size: float
    longest: int

    @property
    def beyond(self) -> bool:
        """Whether the answer is only "more than l_max"."""
        return self.size == np.inf

    def __str__(self) -> str:
        return f"> {self.longest}" if self.beyond else f"{self.size:.3g}"


@dataclass(frozen=True)
class EquivalentRange:
    """The deep-ensemble equivalent with its bounds (P eq. 5), lower ≤ central ≤ upper."""

    lower: Equivalent
    central: Equivalent
    upper: Equivalent


def growth_curve(
    predictions: Predictions, *, unit: Unit = "member", orders: int = 3, seed: int = 0, repeats: int = REPEATS
) -> GrowthCurve:
    """Score the ensembles of the first 1, 2, … members (or samples) in random orders.

    Args:
        predictions: Labelled predictions with all members (samples).
        unit: What is added one at a time: a deep ensemble grows by members (with all their samples), another method
            by samples.
        orders: Random orders to average over; with one unit there is one order.
        seed: Of the orders, and of the halves of test-time cross-validation.
        repeats: Of test-time cross-validation.

    Raises:
        UserError: When no example is labelled, or too few are to be halved.
    """
    one_of("unit", unit, get_args(Unit))
    if orders < 1:
        raise UserError(f"orders must be at least 1; given {orders}.")
    rows = labelled(predictions, "a growth curve")
    owner = rows.member if unit == "member" else np.arange(rows.samples, dtype=np.int64)
    names = np.unique(owner)
    halves = random_halves(rows, repeats=repeats, seed=seed)
    permutations = [tuple(order) for order in random_orders(len(names), orders=orders, seed=seed)]
    grown = {order: _grow(rows, owner, names[list(order)], halves) for order in set(permutations)}
    values = np.array([grown[order] for order in permutations])  # [orders, L, scores]
    with np.errstate(invalid="ignore"):  # an infinite score has no deviation
        mean, std = values.mean(axis=0), values.std(axis=0, ddof=1 if len(permutations) > 1 else 0)
    means, stds = (dict(zip(SCORES, columns.T, strict=True)) for columns in (mean, std))
    return GrowthCurve(means, stds, len(permutations))


def random_orders(count: int, *, orders: int, seed: int = 0) -> list[IntArray]:
    """Return random orders of members or samples; one order where there is only one of them."""
    generator = np.random.default_rng(seed)
    return [generator.permutation(count) for _ in range(orders if count > 1 else 1)]


def _grow(rows: Predictions, owner: IntArray, order: IntArray, halves: tuple[BoolArray, ...]) -> list[list[float]]:
    """Return the scores with the first 1, 2, … units of one order."""
    steps = ((np.flatnonzero(owner == unit), 1.0) for unit in order)
    return [
        [scored.nll.mean, scored.brier.mean, float(evidence.wrong().mean()), scored.aurc.mean]
        for evidence, scored in cross_validated_growth(rows, steps, halves)
    ]


def equivalent(curve: FloatArray, value: float) -> Equivalent:
    """Return the least real l ≥ 1 at which a curve, lower is better, comes down to a value.

    Args:
        curve: ``[L]``, the score of ensembles of 1, …, L; linear in between.
        value: The score to reach.
    """
    reached = np.flatnonzero(curve <= value + ROUNDING * max(1.0, abs(value)))
    if len(reached) == 0:
        return Equivalent(np.inf, len(curve))
    first = int(reached[0])
    if first == 0:
        return Equivalent(1.0, len(curve))
    above, below = float(curve[first - 1]), float(curve[first])
    # an infinite score just before leaves no slope to interpolate along: only the whole size is certain
    fraction = min(1.0, (above - value) / (above - below)) if np.isfinite(above) else 1.0
    return Equivalent(first + fraction, len(curve))


def equivalent_range(ensemble: GrowthCurve, score: Score, value: float) -> EquivalentRange:
    """Return the DEE of a method with this value, with bounds from the ensemble curve's spread.

    Args:
        ensemble: The deep ensemble's growth curve.
        score: Which score.
        value: The method's mean score, lower is better.
    """
    one_of("score", score, SCORES)
    mean, std = ensemble.mean[score], ensemble.std[score]
    return EquivalentRange(equivalent(mean - std, value), equivalent(mean, value), equivalent(mean + std, value))


def equivalent_curve(ensemble: GrowthCurve, method: GrowthCurve, score: Score) -> tuple[EquivalentRange, ...]:
    """Return the DEE of a method with 1, 2, … samples."""
    return tuple(equivalent_range(ensemble, score, float(value)) for value in method.mean[score])


def average_equivalent(equivalents: Sequence[Equivalent]) -> Equivalent:
    """Return the mean over architectures (P Fig. 3): beyond as soon as one of them is.

    Raises:
        UserError: When there is none.
    """
    if not equivalents:
        raise UserError("there is no equivalent to average.")
    return Equivalent(float(np.mean([item.size for item in equivalents])), min(item.longest for item in equivalents))


def cross_validated_growth(
    rows: Predictions, steps: Iterable[tuple[IntArray, float]], halves: tuple[BoolArray, ...]
) -> Iterator[tuple[Evidence, CrossValidated]]:
    """Yield the evidence of a growing set of samples with its cross-validated scores, after every step.

    Args:
        rows: Labelled predictions.
        steps: As for :func:`growing_evidence`.
        halves: Of test-time cross-validation; each step starts from the last one's temperatures.
    """
    start = 1.0
    for evidence in growing_evidence(rows, steps):
        folds = fit_folds(evidence, halves, start=start)
        start = float(np.median([fold.b for fold in folds]))
        yield evidence, score_folds(evidence, folds)


def growing_evidence(rows: Predictions, steps: Iterable[tuple[IntArray, float]]) -> Iterator[Evidence]:
    """Yield the evidence of the averaged probabilities of a growing set of samples, after every step.

    Sums of probabilities are carried from one step to the next, so that every sample is exponentiated once, and need no
    division by their number: evidence does not depend on a common factor.

    Args:
        rows: Labelled predictions.
        steps: Samples to add, and the weight of their mean: 1 for a member, their number where samples count alike.
    """
    yes = np.zeros((len(rows), rows.class_count))
    no = np.zeros_like(yes) if rows.target == "multilabel" else None
    scratch = Scratch()
    for samples, weight in steps:
        for block in row_blocks(len(samples), len(rows), rows.class_count):
            logits = rows.logits[samples, block]
            if no is None:
                yes[block] += mean_over_samples(exponentials(logits, scratch)) * weight
            else:
                wide = logits.astype(np.float64)
                yes[block] += np.exp(log_sigmoid(wide)).mean(axis=0) * weight
                no[block] += np.exp(log_sigmoid(-wide)).mean(axis=0) * weight
        with np.errstate(divide="ignore"):
            if no is None:
                yield evidence_of_log_probs(np.log(yes), rows.labels)
            else:
                yield Evidence(np.log(yes) - np.log(no), rows.labels, True, rows.empty_decision)
