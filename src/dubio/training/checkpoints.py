"""Checkpoints: everything a training needs to go on as if it had never stopped.

Generators need no saving: each epoch's are made anew from (seed, member, purpose, epoch).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from dubio.networks.network import Model
from dubio.training.collectors import Collected


class Checkpoint(Protocol):
    """Where a fit under way is kept.

    Attributes:
        every_seconds: How long to go between two savings.
    """

    every_seconds: float

    def load(self) -> dict[str, Any] | None:
        """``{"tensors": …, "state": …}`` as saved, or None."""
        ...

    def save(self, tensors: dict[str, NDArray[Any]], state: dict[str, Any]) -> None:
        """Replace what is kept, atomically."""
        ...


def pack(model: Model, optimiser: Optimizer, held: Collected) -> dict[str, NDArray[Any]]:
    """Weights, optimiser state and what the collector holds, as named arrays."""
    named: dict[str, Tensor] = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for index, slots in optimiser.state_dict()["state"].items():
        named |= {f"optimiser/{index}/{name}": value for name, value in slots.items() if isinstance(value, Tensor)}
    named |= {f"collected/{name}": tensor for name, tensor in held.tensors.items()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in named.items()}


def unpack(
    arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], model: Model, optimiser: Optimizer
) -> Collected:
    """Put packed arrays back; returns what the collector held."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    model.load_state_dict(_under("model/", tensors))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimiser/", tensors).items():
        index, _, slot = name.partition("/")
        slots.setdefault(int(index), {})[slot] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
    return Collected(_under("collected/", tensors), dict(facts))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
