"""Calibration sets drawn from a world whose true risk at every threshold is known, and the three policies."""

from dataclasses import replace
from functools import cache

import numpy as np
from scipy.stats import binom

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import fit_capacity_policy, fit_risk_policy, fit_screening_policy
from dubio.referral.units import BITS


def of_doubts(doubts, wrong, group=None, truth=None, kind="cal"):
    """Binary predictions with 1 − confidence = doubt; the predicted class is the truth unless wrong."""
    doubts, wrong = np.asarray(doubts, dtype=float), np.asarray(wrong, dtype=bool)
    labels = np.zeros(len(doubts), dtype=np.int64) if truth is None else np.asarray(truth, dtype=np.int64)
    chosen = np.where(wrong, 1 - labels, labels)
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(np.arange(2) == chosen[:, None], 1 - doubts[:, None], doubts[:, None]))
    names = None if group is None else np.asarray(group).astype(str)
    return Predictions(logs[None].astype(np.float32), labels, group=names, kind=kind)


def draw(rng, rows, error_at, levels=None):
    """Rows whose doubt is uniform on (0, 1/2), or on so many levels, wrong with a chance that depends on it."""
    doubts = rng.random(rows) / 2 if levels is None else (rng.integers(0, levels, rows) + 1) / (2 * levels + 2)
    return of_doubts(doubts, rng.random(rows) < error_at(doubts))


@cache
def _risks(error_at, levels):
    places = (np.arange(20_000) + 0.5) / 40_000 if levels is None else (np.arange(levels) + 1) / (2 * levels + 2)
    return places, np.cumsum(error_at(places)) / np.arange(1, len(places) + 1)


def true_risk(error_at, threshold, levels=None):
    """P(wrong | doubt ≤ threshold)."""
    places, risks = _risks(error_at, levels)
    kept = np.searchsorted(places, threshold * (1 + 2.0**-BITS), side="right")
    return float(risks[kept - 1]) if kept else 0.0


def shuffled(predictions, seed=0):
    return predictions.take(np.random.default_rng(seed).permutation(len(predictions)))


def without_labels(predictions):
    return replace(predictions, labels=np.full(len(predictions), -1))


def easy(rows=400, seed=0, **given):
    return replace(draw(np.random.default_rng(seed), rows, lambda doubts: doubts), **given)


FITS = {
    "risk": lambda p, **more: fit_risk_policy(p, max_risk=0.25, **more),
    "capacity": lambda p, **more: fit_capacity_policy(p, capacity=0.2, **more),
    "screening": lambda p, **more: fit_screening_policy(p, specificity=0.8, **more),
}


ALPHA = 0.1
RISK = 0.1
ROUNDING = 1e-9


def at_most(violations, runs, rate):
    """Fewer than a true rate would exceed once in a thousand times."""
    return violations <= binom.ppf(0.999, runs, rate)


def threshold_or_none(fit):
    try:
        return fit().threshold
    except UserError:
        return None


def flat(doubts):
    """The risk is on the boundary at every threshold."""
    return np.full(len(doubts), RISK)
