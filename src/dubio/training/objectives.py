"""The objective: the loss, its batches, and the length of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.types import Target
from dubio.core.validate import NonNegative, NonNegativeFloat, Positive
from dubio.inference.augmentation import Augmentation

ClassWeights = Literal["none", "train", "batch"]


@part("objective")
@dataclass(frozen=True)
class Objective:
    """The objective of a training.

    Attributes:
        batch: Examples per step.
        epochs: Largest number of passes over the training data.
        patience: Epochs without a better validation loss before stopping; 0 never stops early.
        clip: Largest norm of the gradient; 0 does not clip.
        augmentation: Random views of training examples, or None.
        class_weights: ``none``; ``train``: 1/(K p(k)) with p from the training split; ``batch``: the same from each
            mini-batch (retina paper, eq. 1), where an absent class has weight 0.
        fixed_batches: Erratum of the text paper's code: batches are cut once, of texts sorted by length, and epochs
            change the order of the batches alone.
    """

    batch: Positive = 32
    epochs: NonNegative = 45
    patience: NonNegative = 15
    clip: NonNegativeFloat = 10.0
    class_weights: ClassWeights = "none"
    augmentation: Augmentation | None = None
    fixed_batches: bool = added(False)

    def check_target(self, target: Target) -> None:
        """Refuse settings that have no meaning for a target.

        Raises:
            UserError: For class weights where labels do not exclude each other.
        """
        if self.class_weights != "none" and target == "multilabel":
            reason = "whose classes do not exclude each other"
            raise UserError(f"class_weights must be 'none' on a multilabel task, {reason}.")


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Return w_k = 1/(K p(k)), with p(k) the fraction of class k among the labels; 0 for an absent class."""
    counts = torch.bincount(labels, minlength=classes).to(torch.float32)
    share = counts / counts.sum()
    return torch.where(counts > 0, 1.0 / (classes * share.clamp_min(1e-12)), torch.zeros_like(share))
