"""Validation loss: the negative log-likelihood of the mean of probabilities.

Samples are pooled by :func:`dubio.networks.heads.head.summed_likelihood`, the torch twin of :mod:`dubio.core.passes`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dubio.core.errors import TrainingFailed
from dubio.inference.batches import EVALUATION_BATCH, LabelledRows, collate, prediction_rows, to_device
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
    for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
        batch = to_device(collate(data.encoded, rows), device)
        logits = shared_prefix(model, batch, draws, rows, samples).logits
        losses = math.log(len(logits)) - summed_likelihood(logits, _labels(data, rows, device))
        total += float((losses.sum(-1) if losses.ndim == 2 else losses).sum())
    if not np.isfinite(total):
        raise TrainingFailed(f"the validation loss is not a number ({total}); a smaller learning rate (lr) may help.")
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
        for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
            logits = chunk.predict(to_device(collate(data.encoded, rows), device), rows).logits
            added = summed_likelihood(logits, _labels(data, rows, device))
            summed[rows] = torch.logaddexp(summed[rows], added.cpu())
        del chunk  # or the next one is made beside it
    losses = math.log(len(predictor.member)) - summed
    return float(losses.sum(dtype=torch.float64)) / len(data.encoded)


def _labels(data: LabelledRows, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], device: torch.device) -> Tensor:
    return torch.from_numpy(data.labels[rows]).to(device)
