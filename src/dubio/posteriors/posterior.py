"""What a fit leaves behind and how it is drawn from."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = NDArray[np.int64]


class Sampled(NamedTuple):
    """What samples of a posterior say of a batch: ``logits [S, B, K]`` and, where there are any, variances."""

    logits: Tensor
    data_variance: Tensor | None = None


class Drawn(Protocol):
    """A posterior made ready to predict: weights and buffers final.

    Attributes:
        member: Which independent fit each sample comes from.
    """

    member: tuple[int, ...]

    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Samples on a batch; ``rows`` are the example indices, from which all noise is drawn."""
        ...


class Posterior(Protocol):
    """What a method's fit returns."""

    def draw(self, seed: int) -> Drawn:
        """Fix every sample; the same seed gives the same samples."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """All weights and statistics, by name, for the store."""
        ...


def concatenated(parts: list[Sampled]) -> Sampled:
    """Samples one after another."""
    variances = [part.data_variance for part in parts if part.data_variance is not None]
    return Sampled(
        torch.cat([part.logits for part in parts]),
        torch.cat(variances) if len(variances) == len(parts) else None,
    )
