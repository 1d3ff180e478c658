"""How well several weight states do together on validation data."""

from __future__ import annotations

import numpy as np
import torch

from dubio.data.batches import collate, prediction_rows
from dubio.heads.head import bernoulli_loss, categorical_loss, log_mean_exp
from dubio.posteriors.posterior import Posterior
from dubio.training.loop import EVALUATION_BATCH, Labelled, to_device


@torch.inference_mode()
def pooled_nll(posterior: Posterior, data: Labelled, *, seed: int, device: torch.device) -> float:
    """Mean of −log p̄(y), p̄ the mean of the samples' probabilities; labels that do not exclude each other are summed.

    Args:
        posterior: What a training left.
        data: The examples.
        seed: Fixes every draw.
        device: Where.
    """
    drawn = posterior.draw(seed)
    total = 0.0
    for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
        logits = drawn.predict(to_device(collate(data.encoded, rows), device), np.asarray(rows)).logits
        labels = torch.from_numpy(data.labels[rows]).to(device)
        loss = bernoulli_loss if labels.ndim == 2 else categorical_loss
        total -= float(log_mean_exp(torch.stack([-loss(sample, labels) for sample in logits])).sum())
    return total / len(data.encoded)
