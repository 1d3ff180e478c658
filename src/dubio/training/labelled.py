"""Examples as a training sees them: encoded, with their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.encoders import Encoded

EVALUATION_BATCH = 128
"""Examples a batch when nothing is learned."""


@dataclass(frozen=True)
class Labelled:
    """Encoded examples with their labels (class index, or multi-hot) among that many classes."""

    encoded: Encoded
    labels: NDArray[np.int64]
    classes: int


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch on a device."""
    return batch if device.type == "cpu" else batch.to(device)
