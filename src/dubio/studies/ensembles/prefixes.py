"""A method with 1, 2, … samples, scored as it is and at its best temperature.

The predictive of k samples is the mean of their probabilities (P eq. 3). Sums of probabilities are carried
from one k to the next, so that S samples are exponentiated once whatever sizes are asked for, and each fit of a
temperature starts where the last one ended. Every size is scored on the same random halves (P §3.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dubio.calibration.cross_validation import REPEATS, fit_folds, random_halves, score_folds
from dubio.calibration.temperature import Evidence
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.areas import area_under_risk
from dubio.metrics.requirements import labelled
from dubio.statistics.ensemble_equivalent import growing_evidence

SIZES = (1, 2, 3, 5, 10, 20, 50, 100)
"""Numbers of samples that are compared, as far as a method's samples go."""

MEASURES = (
    "error", "nll", "calibrated_nll", "brier", "calibrated_brier", "aurc", "calibrated_aurc",
    "temperature",
)  # fmt: skip
"""What is measured with every number of samples, lower being better; the temperature is the median of the fitted."""


def sizes_of(samples: int) -> tuple[int, ...]:
    """The sizes that so many samples are looked at with: the common ones up to that number, and all of them."""
    return tuple(sorted({size for size in SIZES if size <= samples} | {samples}))


def fixed_order(predictions: Predictions) -> IntArray:
    """Samples in the order they are added: the latest first; of several members, one of each in turn.

    Samples are stored in the order of their training. Who can afford k passes takes the last k snapshots, as snapshot
    ensembles were introduced (Huang et al., 2017): the first cycles of a training are its worst, and are paid for
    anyway. Draws and masks have no order. An ensemble of k samples takes them from as many members as it can.
    """
    turn = np.empty(predictions.samples, dtype=np.int64)
    for member in np.unique(predictions.member):
        own = np.flatnonzero(predictions.member == member)
        turn[own] = np.arange(len(own))[::-1]
    return np.lexsort((np.arange(predictions.samples), turn)).astype(np.int64)


def prefix_scores(
    predictions: Predictions, orders: Sequence[IntArray], sizes: Sequence[int], *, repeats: int = REPEATS, seed: int = 0
) -> FloatArray:
    """Scores with the first samples of every order, ``[orders, sizes, measures]`` as in :data:`MEASURES`.

    Args:
        predictions: Labelled predictions with all samples.
        orders: Each a permutation of the samples, or of some of them.
        sizes: Rising numbers of samples, none above the length of an order.
        repeats: Of test-time cross-validation.
        seed: Of its halves.

    Raises:
        UserError: When no example is labelled, or too few are to be halved.
    """
    known = labelled(predictions, "a curve over samples")
    halves = random_halves(known, repeats=repeats, seed=seed)
    return np.array([_scores(known, order, sizes, halves) for order in orders])


def _scores(
    known: Predictions, order: IntArray, sizes: Sequence[int], halves: tuple[BoolArray, ...]
) -> list[list[float]]:
    rows, start = [], 1.0
    for evidence in prefix_evidence(known, order, sizes):
        folds = fit_folds(evidence, halves, start=start)
        start = float(np.median([fold.b for fold in folds]))
        wrong = evidence.wrong()
        plain, tuned = evidence.scores(1.0 / known.temperature), score_folds(evidence, folds)
        rows.append(
            [
                float(wrong.mean()),
                float(plain.nll.mean()),
                tuned.nll.mean,
                float(plain.brier.mean()),
                tuned.brier.mean,
                area_under_risk(plain.doubt, wrong),
                tuned.aurc.mean,
                known.temperature * float(np.median(tuned.temperatures)),
            ]
        )
    return rows


def prefix_evidence(known: Predictions, order: IntArray, sizes: Sequence[int]) -> Iterator[Evidence]:
    """Yield the evidence of the averaged probabilities of the first samples, a size at a time."""
    added = (order[before:size] for before, size in pairwise((0, *sizes)))
    return growing_evidence(known, ((samples, float(len(samples))) for samples in added))
