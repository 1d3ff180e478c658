"""Predictions for tests, and plain twins of what they measure."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.metric import score_each


def of_probs(probs, labels=None, **more):
    """Predictions whose logits are log p; [N, K] or [S, N, K]."""
    array = np.asarray(probs, dtype=np.float64)
    array = array if array.ndim == 3 else array[None]
    with np.errstate(divide="ignore"):
        logits = np.log(array).astype(np.float32)
    known = np.full(array.shape[1], -1) if labels is None else np.asarray(labels)
    return Predictions(logits, known, **more)


def drawn(seed, *, rows=60, classes=4, samples=3, scale=1.5, skill=1.0, **more):
    """Random predictions with some skill."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(size=(samples, rows, classes)) * scale + skill * np.eye(classes)[labels]
    return Predictions(logits.astype(np.float32), labels, **more)


def drawn_multilabel(seed, *, rows=60, classes=4, samples=3, **more):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (rows, classes))
    logits = rng.normal(size=(samples, rows, classes)) + 1.5 * labels - 0.7
    return Predictions(logits.astype(np.float32), labels, target="multilabel", **more)


def coarse(seed, *, rows=40, classes=3, samples=1):
    """Predictions on a grid of few logits, so that many rows are tied."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(-1, 2, (samples, rows, classes)).astype(np.float32)
    return Predictions(logits, rng.integers(0, classes, rows))


seeds = st.integers(0, 10_000)


def score(predictions, metrics=None):
    """Values of metrics by name; a requested one that does not apply is refused."""
    scores = score_each(predictions, metrics)
    if metrics is not None and scores.reasons:
        raise UserError(next(iter(scores.reasons.values())))
    return scores.values


def plain_tace(probs, labels, threshold, bins):
    """TACE by a plain loop over classes and bins of equal mass."""
    total, (rows, classes) = 0.0, probs.shape
    for k in range(classes):
        above = sorted((p, float(y == k)) for p, y in zip(probs[:, k], labels, strict=True) if p > threshold)
        used = min(bins, len(above))
        for b in range(used):
            within = above[b * len(above) // used : (b + 1) * len(above) // used]
            total += abs(sum(hit - p for p, hit in within))
    return total / (rows * classes)
