"""How an uncertainty is spread over correct, incorrect and foreign examples, in two hundred numbers each.

The range of an uncertainty is known only when every method has been read, so that no bins can be counted on the way.
What is kept are quantiles: the share of examples below any value comes out of them to within 1/400.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import correct

LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of the quantiles that are kept."""

CORRECT, INCORRECT = "correct", "incorrect"
"""The two groups of the in-domain test set, beside the names of the splits away from it."""

Sketches = dict[tuple[str, str], FloatArray]
"""(group, quantity) → quantiles at :data:`LEVELS`."""


def at_home(predictions: Predictions, uncertainties: Mapping[str, FloatArray]) -> Sketches:
    """Sketches of the correct and of the incorrect examples; a group without examples has none.

    Args:
        predictions: Of the in-domain test set.
        uncertainties: Quantity → its values on all of them.
    """
    known = np.ones(len(predictions), dtype=bool) if predictions.target == "multilabel" else predictions.labels >= 0
    right = np.zeros(len(predictions), dtype=bool)
    if known.any():
        right[known] = correct(predictions.labelled)
    groups = {CORRECT: known & right, INCORRECT: known & ~right}
    return {
        (group, quantity): _quantiles(values[rows])
        for group, rows in groups.items()
        if rows.any()
        for quantity, values in uncertainties.items()
    }


def away(split: str, uncertainties: Mapping[str, FloatArray]) -> Sketches:
    """Sketches of all examples of a split away from home."""
    return {(split, quantity): _quantiles(values) for quantity, values in uncertainties.items()}


def shares(sketches: FloatArray, edges: FloatArray) -> FloatArray:
    """Share of examples per bin, averaged over runs; what lies outside the edges counts in the outermost bins.

    Args:
        sketches: ``[runs, levels]``.
        edges: Of the bins, increasing.
    """
    counts, _ = np.histogram(np.clip(sketches, edges[0], edges[-1]), edges)
    return np.asarray(counts / sketches.size)


def _quantiles(values: FloatArray) -> FloatArray:
    return np.asarray(np.quantile(values, LEVELS, method="inverted_cdf"))
