"""Validation loss: the negative log-likelihood of the mean of probabilities.

Samples are pooled by :func:`dubio.networks.heads.head.summed_likelihood`, the torch twin of :mod:`dubio.core.passes`.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from dubio.core.errors import TrainingFailed
from dubio.inference.batches import EVALUATION_BATCH, LabelledRows
from dubio.inference.engine import shared_prefix
from dubio.inference.posterior import Posterior, chunks_of
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.head import summed_likelihood
from dubio.networks.network import Model

VALIDATION_DRAWS = 3
"""Draws of Gaussian weights that validation pools during training."""


@torch.inference_mode()
def validation_nll(model: Model, data: LabelledRows, seed: int, device: torch.device) -> float:
    """Return the mean negative log-likelihood of a deterministic pass (a heteroscedastic head still integrates).

    Gaussian weights have no deterministic pass that would tell their quality: a few draws are pooled, the same in all
    epochs.

    Raises:
        TrainingFailed: When the loss is not finite.
    """
    model.eval()
    draws = BlockDraws(seed)
    samples = VALIDATION_DRAWS if model.gaussians() else 0
    total = 0.0
    for rows, batch, labels in data.batches(EVALUATION_BATCH, device):
        logits = shared_prefix(model, batch, draws, rows, samples).logits
        losses = math.log(len(logits)) - summed_likelihood(logits, labels)
        total += float((losses.sum(-1) if losses.ndim == 2 else losses).sum())
    if not np.isfinite(total):
        raise TrainingFailed(f"the validation loss is {total}; a smaller learning rate (lr) may help.")
    return total / len(data.encoded)


@torch.inference_mode()
def posterior_nll(posterior: Posterior, data: LabelledRows, *, seed: int, device: torch.device) -> float:
    """Return the mean negative log-likelihood of a posterior's pooled samples, summed over multi-hot labels.

    Args:
        posterior: The posterior of a fit.
        data: The examples.
        seed: Seed of every draw.
        device: Where to compute.
    """
    predictor = posterior.draw(seed)
    summed = torch.full(data.labels.shape, -torch.inf)  # log Σ p over the samples so far
    for chunk in chunks_of(predictor):
        for rows, batch, labels in data.batches(EVALUATION_BATCH, device):
            added = summed_likelihood(chunk.predict(batch, rows).logits, labels)
            summed[rows] = torch.logaddexp(summed[rows], added.cpu())
        del chunk  # or the next one is made beside it
    losses = math.log(len(predictor.member)) - summed
    return float(losses.sum(dtype=torch.float64)) / len(data.encoded)
