"""What a collector may use when a training is over."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dubio.inference.augmentation import Augmentation
from dubio.training.labelled import Labelled


@dataclass(frozen=True)
class FinishContext:
    """What surrounds the end of a training.

    Attributes:
        train: The training examples, for whatever is computed from them at the end (batch-norm statistics, curvature).
        val: The validation examples, for whatever is chosen by them.
        device: Where the training ran.
        seed: Fixes every draw of weights.
        batch: Examples a training step.
        augmentation: Random views of training examples, or None.
        l2: The optimiser's weight of ½‖θ‖² in the loss: the prior of every weight is N(0, 1/(N·l2)).
    """

    train: Labelled
    val: Labelled
    device: torch.device
    seed: int
    batch: int
    augmentation: Augmentation | None = None
    l2: float = 0.0
