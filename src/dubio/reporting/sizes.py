"""Ensembles of the first 1, 2, … members (T Fig. 15): what each further training brings.

Members stand in a circle and each is once the first: ensembles of m members are those of m neighbours, as many as there
are members, and every member is in as many of them. That is bounded (M² pools instead of M!) and favours no member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dubio.calibration.cross_validation import calibrated_nll
from dubio.core.errors import UserError
from dubio.core.passes import pool_sigmoid, pool_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.areas import auroc
from dubio.metrics.decisions import correct
from dubio.metrics.quantities import uncertainty

Pools = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Growth:
    """Scores of one run's ensembles by size; each ``[orders, M]``, column m − 1 holding those of m members.

    Attributes:
        accuracy: Accuracy on the in-domain test set.
        nll: Calibrated nll there.
        area: Split → AUROC of telling it from home by confidence.
    """

    accuracy: FloatArray
    nll: FloatArray
    area: Mapping[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Grown:
    """Growth on the in-domain test set, with 1 − confidence of every pool there, until the other splits are read."""

    growth: Growth
    doubts: tuple[FloatArray, ...]


def pools_of(members: int) -> Pools:
    """Every ensemble that is scored, by its members, smallest first; that of all members once."""
    circle = [
        tuple((first + step) % members for step in range(size))
        for size in range(1, members)
        for first in range(members)
    ]
    return (*circle, tuple(range(members)))


def grow_at_home(predictions: Predictions) -> Grown | None:
    """Accuracy and calibrated nll of growing ensembles; None of fewer than two members, or of too few labels."""
    merged = _merged(predictions)
    if merged is None:
        return None
    pools, ranked = pools_of(merged.samples), calibrated_nll
    accuracy, nll = [], []
    for pool in pools:
        pooled = _pooled(merged.labelled, pool)
        try:
            nll.append(ranked(pooled))
        except UserError:
            return None
        accuracy.append(float(correct(pooled).mean()))
    doubts = tuple(uncertainty(_pooled(merged, pool), "confidence") for pool in pools)
    return Grown(Growth(_by_size(accuracy), _by_size(nll), {}), doubts)


def grow_away(home: Grown, split: str, predictions: Predictions) -> Grown:
    """The same with the AUROC of telling a split from home; unchanged where it has other members."""
    merged = _merged(predictions)
    if merged is None or len(pools_of(merged.samples)) != len(home.doubts):
        return home
    found = []
    for pool, inside in zip(pools_of(merged.samples), home.doubts, strict=True):
        outside = uncertainty(_pooled(merged, pool), "confidence")
        flag = np.repeat([False, True], [len(inside), len(outside)])
        found.append(auroc(np.concatenate([inside, outside]), flag))
    grown = home.growth
    return Grown(Growth(grown.accuracy, grown.nll, {**grown.area, split: _by_size(found)}), home.doubts)


def _merged(predictions: Predictions) -> Predictions | None:
    """One sample a member, the mean of its own; None where there are fewer than two members."""
    members = np.unique(predictions.member)
    if len(members) < 2:
        return None
    logits = np.empty((len(members), len(predictions), predictions.class_count), dtype=np.float32)
    for place, member in enumerate(members):
        own = predictions.logits[predictions.member == member]
        for rows in row_blocks(len(own), len(predictions), predictions.class_count):
            if predictions.target == "multilabel":
                yes, no = pool_sigmoid(own[:, rows], 1.0)
                logits[place, rows] = yes - no
            else:
                logits[place, rows] = pool_softmax(own[:, rows], 1.0)
    return predictions.with_checked(
        logits=logits, member=np.arange(len(members)), data_variance=None, model_variance=None
    )


def _pooled(merged: Predictions, members: tuple[int, ...]) -> Predictions:
    chosen = list(members)
    return merged.with_checked(logits=merged.logits[chosen], member=np.arange(len(chosen)))


def _by_size(values: list[float]) -> FloatArray:
    """Values in the order of :func:`pools_of` as ``[orders, M]``; the ensemble of all is every order's last."""
    members = round((1 + np.sqrt(4 * len(values) - 3)) / 2)
    grid = np.array(values[:-1]).reshape(members - 1, members)
    return np.vstack([grid, np.full(members, values[-1])]).T
