"""Sample curves: the scores of a method, or of an ensemble, with its first 1, 2, … samples.

The predictive distribution of k samples is the mean of their probabilities (P eq. 3). Every size is scored on the same
random halves (P §3.5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dubio.calibration.cross_validation import REPEATS, CrossValidated, random_halves
from dubio.calibration.temperature import Evidence
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.metrics.areas import area_under_risk
from dubio.metrics.requirements import labelled
from dubio.statistics.ensemble_equivalent import cross_validated_growth

SIZES = (1, 2, 3, 5, 10, 20, 50, 100)
"""Numbers of samples at which methods are compared."""

MEASURES = (
    "error", "nll", "calibrated_nll", "brier", "calibrated_brier", "aurc", "calibrated_aurc",
    "temperature",
)  # fmt: skip
"""Measures of a sample curve, lower is better; the temperature is the median of the cross-validated ones."""


def sizes_up_to(samples: int) -> tuple[int, ...]:
    """Return the sizes of a curve: those of :data:`SIZES` up to the number of samples, and that number."""
    return tuple(sorted({size for size in SIZES if size <= samples} | {samples}))


def latest_first(predictions: Predictions) -> IntArray:
    """Return the order in which samples are added: the latest first; of several members, one of each in turn.

    Samples are stored in the order of their training. With a budget of k passes one takes the last k snapshots, as
    snapshot ensembles were introduced (Huang et al., 2017): the first cycles of a training are its worst, and their
    cost is the same. Draws and masks have no order. An ensemble of k samples takes them from k members if it can.
    """
    turn = np.empty(predictions.samples, dtype=np.int64)
    for member in np.unique(predictions.member):
        own = np.flatnonzero(predictions.member == member)
        turn[own] = np.arange(len(own))[::-1]
    return np.lexsort((np.arange(predictions.samples), turn)).astype(np.int64)


def sample_scores(
    predictions: Predictions, orders: Sequence[IntArray], sizes: Sequence[int], *, repeats: int = REPEATS, seed: int = 0
) -> FloatArray:
    """Return the scores with the first samples of every order, ``[orders, sizes, measures]`` as in :data:`MEASURES`.

    Args:
        predictions: Labelled predictions with all samples.
        orders: Each a permutation of the samples, or of some of them.
        sizes: Rising numbers of samples, none above the length of an order.
        repeats: Of test-time cross-validation.
        seed: Of its halves.

    Raises:
        UserError: When no example is labelled, or too few are to be halved.
    """
    rows = labelled(predictions, "a curve over samples")
    halves = random_halves(rows, repeats=repeats, seed=seed)
    starts = (0, *sizes[:-1])
    curves = []
    for order in orders:
        steps = ((order[start:size], float(size - start)) for start, size in zip(starts, sizes, strict=True))
        growth = cross_validated_growth(rows, steps, halves)
        curves.append([_measures(evidence, scored, rows.temperature) for evidence, scored in growth])
    return np.array(curves)


def _measures(evidence: Evidence, scored: CrossValidated, temperature: float) -> list[float]:
    wrong, plain = evidence.wrong(), evidence.scores(1.0 / temperature)
    return [
        float(wrong.mean()),
        float(plain.nll.mean()),
        scored.nll.mean,
        float(plain.brier.mean()),
        scored.brier.mean,
        area_under_risk(plain.doubt, wrong),
        scored.aurc.mean,
        temperature * float(np.median(scored.temperatures)),
    ]
