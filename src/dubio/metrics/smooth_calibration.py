"""Smooth calibration error: a kernel in place of bins, its bandwidth chosen by the data (Błasiok and Nakkiran, 2023).

With residuals r_i = truth_i − stated_i and K_σ the Gaussian kernel reflected at 0 and 1::

    smece(σ) = ∫_0^1 | 1/n Σ_i r_i K_σ(stated_i, t) | dt,       ece_smooth = smece(σ*) where smece(σ*) = σ*

smece(σ) never rises with σ, so σ* exists and is unique. The reflected Gaussian is the heat kernel of the unit interval,
diagonal in cosines: on a grid of cells the smoothing is one discrete cosine transform there and back.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import dct, idct

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.needs import labelled
from dubio.metrics.outcomes import correct

CELLS = 4096
"""Cells of the grid; residuals move by at most half a cell, 1.3e-4."""

HALVINGS = 40


def ece_smooth(predictions: Predictions) -> float:
    """Smooth calibration error of the highest probability; multi-label: of each label, averaged."""
    known = labelled(predictions, "ece_smooth")
    if known.target != "multilabel":
        return smooth_error(known.summary.top, correct(known).astype(np.float64))
    truth = known.labels.astype(np.float64)
    return float(np.mean([smooth_error(known.probs[:, k], truth[:, k]) for k in range(known.class_count)]))


def smooth_error(stated: FloatArray, truth: FloatArray) -> float:
    """The fixed point smece(σ*) = σ*, by bisection in σ."""
    cell = np.clip((stated * CELLS).astype(np.int64), 0, CELLS - 1)
    waves = dct(np.bincount(cell, truth - stated, minlength=CELLS) / len(stated))
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _smoothed(waves, middle) > middle:
            low = middle
        else:
            high = middle
    return high


def error_at(stated: FloatArray, truth: FloatArray, bandwidth: float) -> float:
    """smece(σ) at a given bandwidth σ."""
    cell = np.clip((stated * CELLS).astype(np.int64), 0, CELLS - 1)
    return _smoothed(dct(np.bincount(cell, truth - stated, minlength=CELLS) / len(stated)), bandwidth)


def _smoothed(waves: FloatArray, bandwidth: float) -> float:
    decay = np.exp(-0.5 * (np.pi * bandwidth * np.arange(CELLS)) ** 2)
    return float(np.abs(idct(waves * decay)).sum())
