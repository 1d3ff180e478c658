"""How right the part is that is kept when the most uncertain examples go."""

from __future__ import annotations

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.selective import rejection_curve

REFERRED_BY = "predictive_entropy"
"""The quantity by which examples are referred."""


def kept_accuracy(predictions: Predictions, quantity: str, fractions: FloatArray) -> FloatArray:
    """Accuracy of the kept at these fractions; the number kept is rounded as in :mod:`dubio.metrics.referral_curve`."""
    rows = len(predictions)
    kept = np.maximum(1, np.floor(fractions * rows + 0.5).astype(np.int64))
    return np.asarray(rejection_curve(predictions, quantity=quantity).accuracy[rows - kept])
