"""How well several weight states do together on validation data."""

from __future__ import annotations

import math

import numpy as np
import torch

from dubio.inference.batches import EVALUATION_BATCH, LabelledRows, collate, prediction_rows, to_device
from dubio.inference.posterior import Posterior, chunks_of
from dubio.networks.heads.head import bernoulli_loss, categorical_loss


@torch.inference_mode()
def pooled_nll(posterior: Posterior, data: LabelledRows, *, seed: int, device: torch.device) -> float:
    """Mean of −log p̄(y), p̄ the mean of the samples' probabilities; labels that do not exclude each other are summed.

    Args:
        posterior: What a training left.
        data: The examples.
        seed: Fixes every draw.
        device: Where.
    """
    drawn = posterior.draw(seed)
    pooled = torch.full(data.labels.shape, -torch.inf)  # log Σ p over the samples so far
    for part in chunks_of(drawn):
        for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
            logits = part.predict(to_device(collate(data.encoded, rows), device), np.asarray(rows)).logits
            labels = torch.from_numpy(data.labels[rows]).to(device)
            loss = bernoulli_loss if labels.ndim == 2 else categorical_loss
            told = torch.logsumexp(torch.stack([-loss(sample, labels) for sample in logits]), 0)
            pooled[rows] = torch.logaddexp(pooled[rows], told.cpu())
        del part  # or the next one is made beside it
    each = math.log(len(drawn.member)) - pooled
    return float(each.sum(dtype=torch.float64)) / len(data.encoded)
