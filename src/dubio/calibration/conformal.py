"""Split conformal prediction: sets of classes that contain the true one with a stated probability.

A score s(x, y) says how badly class y fits; on n calibration examples the threshold q̂ is their ⌈(n + 1)(1 − α)⌉-th
smallest score (infinite where that exceeds n), and the set of a new example is {y : s(x, y) ≤ q̂}. If calibration and
new examples are exchangeable, the set contains the truth with probability at least 1 − α. With the classes of a row
sorted by p̄, most probable first, and r(y) the rank of y from one:

    lac    s = 1 − p̄_y                                              smallest sets on average
    aps    s = Σ_{j ≤ r(y)} p̄_(j)                                    adapts to the difficulty of the example
    raps   s = aps + penalty · max(0, r(y) − free_rank)              aps with small sets favoured

These are the deterministic forms: no random number decides about the class at the threshold, and a set may be empty.
Equally probable classes take the sum and the rank of the last of them, so the order of classes never matters.
Where groups are given, one example of each, drawn by seed, is used to calibrate: examples of one group are not
exchangeable.

As metrics of one set of predictions, coverage and size come from random halves: each half's sets use the threshold of
the other, and the two are averaged by size, five times, as in test-time cross-validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import Literal, NamedTuple, get_args

import numpy as np

from dubio.calibration.cross_validation import random_halves
from dubio.core.draws import independent_rows
from dubio.core.errors import UserError, check_between_0_and_1, one_of
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.metric import metric
from dubio.metrics.requirements import labelled

ScoreName = Literal["lac", "aps", "raps"]

SLACK = 1e-12
"""Sums of probabilities this far above the threshold still count as equal to it."""


@dataclass(frozen=True)
class Conformal:
    """A fitted conformal predictor.

    Attributes:
        score: Which score.
        alpha: The allowed share of sets that miss the truth.
        threshold: q̂; infinite where there are too few calibration examples for this α: every set holds all classes.
        calibrated_on: The number of examples (one per group) the threshold comes from.
        penalty: What every rank past ``free_rank`` adds (raps).
        free_rank: The number of ranks without a penalty (raps).
    """

    score: ScoreName
    alpha: float
    threshold: float
    calibrated_on: int
    penalty: float = 0.0
    free_rank: int = 0


class SetSummary(NamedTuple):
    """Coverage and size of prediction sets on labelled examples.

    Attributes:
        coverage: Share of sets that contain the truth.
        size: Mean number of classes in a set.
    """

    coverage: float
    size: float


def fit_conformal(
    calibration: Predictions,
    *,
    alpha: float = 0.1,
    score: ScoreName = "lac",
    penalty: float = 0.01,
    free_rank: int = 1,
    seed: int = 0,
    allow_selected: bool = False,
) -> Conformal:
    """Fit the threshold on a calibration split.

    Args:
        calibration: Labelled multi-class (or ordinal) predictions that neither training nor selection has seen.
        alpha: The allowed share of misses.
        score: ``lac``, ``aps`` or ``raps``.
        penalty: Of ``raps``.
        free_rank: Of ``raps``.
        seed: Which example of each group is used.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        UserError: For multi-label predictions, an α outside (0, 1), or a split that training or selection has used.
    """
    one_of("score", score, get_args(ScoreName))
    check_between_0_and_1("alpha", alpha)
    if penalty < 0 or free_rank < 0:
        raise UserError(f"penalty and free_rank must not be negative; given {penalty} and {free_rank}.")
    if calibration.kind in ("train", "val") and not allow_selected:
        raise UserError(
            f"conformal sets need a split that training and selection have not seen; this one is "
            f"{calibration.kind!r}. Use a 'cal' split, or allow_selected=True without the guarantee."
        )
    rows = labelled(calibration, "a conformal threshold")
    rows = rows.take(independent_rows(rows, seed=seed))
    shape = (penalty, free_rank) if score == "raps" else (0.0, 0)
    scores = np.take_along_axis(conformity(rows, score, *shape), rows.labels[:, None], axis=1)[:, 0]
    rank = ceil((len(scores) + 1) * (1 - alpha) - SLACK)
    threshold = float(np.sort(scores)[rank - 1]) if rank <= len(scores) else inf
    return Conformal(score, alpha, threshold, len(scores), *shape)


def prediction_sets(conformal: Conformal, predictions: Predictions) -> BoolArray:
    """Return which classes each example's set holds, ``[N, K]``."""
    scores = conformity(predictions, conformal.score, conformal.penalty, conformal.free_rank)
    return np.asarray(scores <= conformal.threshold + SLACK)


def summarise_sets(sets: BoolArray, labels: IntArray) -> SetSummary:
    """Return coverage and size of sets on labelled examples.

    Args:
        sets: ``[N, K]``.
        labels: ``[N]``.

    Raises:
        UserError: When a label is missing.
    """
    if len(labels) == 0 or (labels < 0).any():
        raise UserError("coverage needs a label for every example; leave out the unlabelled ones.")
    covered = np.take_along_axis(sets, labels[:, None], axis=1)
    return SetSummary(float(covered.mean()), float(sets.sum(axis=1).mean()))


def conformity(predictions: Predictions, score: ScoreName, penalty: float = 0.0, free_rank: int = 0) -> FloatArray:
    """Return s(x, y) of every class, ``[N, K]``; higher fits worse.

    Raises:
        UserError: For multi-label predictions.
    """
    if predictions.target == "multilabel":
        raise UserError("conformal sets are defined for multiclass and ordinal predictions; these are multilabel.")
    if score == "lac":
        return 1.0 - predictions.probs
    result = np.empty_like(predictions.probs)
    for rows in row_blocks(1, len(predictions), predictions.class_count):
        result[rows] = _cumulative(predictions.probs[rows], penalty, free_rank)
    return result


def _cumulative(probs: FloatArray, penalty: float, free_rank: int) -> FloatArray:
    order = np.argsort(-probs, axis=1, kind="stable")
    descending = np.take_along_axis(probs, order, axis=1)
    scores = np.cumsum(descending, axis=1) + penalty * np.maximum(0, np.arange(1, probs.shape[1] + 1) - free_rank)
    # a class tied with the next shares the score of the last of them
    ranks = np.broadcast_to(np.arange(probs.shape[1]), probs.shape).copy()
    ranks[:, :-1][descending[:, :-1] - descending[:, 1:] <= SLACK] = probs.shape[1]
    ends = np.minimum.accumulate(ranks[:, ::-1], axis=1)[:, ::-1]
    scores = np.take_along_axis(scores, ends, axis=1)
    result = np.empty_like(probs)
    np.put_along_axis(result, order, scores, axis=1)
    return result


REPEATS = 5
"""How often the examples are halved for ``conformal_coverage`` and ``conformal_set_size``."""

SAME_COVERAGE = "Every model is set to the same coverage; conformal_set_size tells what it costs."

_conformal_metric = partial(metric, needs={"labels", "probs"}, targets={"multiclass", "ordinal"}, version=2)


@_conformal_metric("conformal_coverage", better="higher", why_not=SAME_COVERAGE)
def conformal_coverage(p: Predictions, *, alpha: float = 0.1, score: ScoreName = "lac") -> float:
    """Share of split conformal sets that contain the truth; should be close to 1 − alpha."""
    return _halved(p, "coverage", alpha, score)


@_conformal_metric("conformal_set_size", better="lower")
def conformal_set_size(p: Predictions, *, alpha: float = 0.1, score: ScoreName = "lac") -> float:
    """Mean number of classes in a split conformal set of coverage 1 − alpha."""
    return _halved(p, "size", alpha, score)


def _halved(p: Predictions, figure: Literal["coverage", "size"], alpha: float, score: ScoreName) -> float:
    """Return coverage or mean size of sets whose thresholds were fitted on the other half."""
    total = 0.0
    for half in random_halves(p, repeats=REPEATS, seed=0):
        for fitted in (half, ~half):
            conformal = fit_conformal(p.take(fitted), alpha=alpha, score=score, allow_selected=True)
            others = p.take(~fitted)
            summary = summarise_sets(prediction_sets(conformal, others), others.labels)
            total += getattr(summary, figure) * float(np.mean(~fitted))
    return total / REPEATS
