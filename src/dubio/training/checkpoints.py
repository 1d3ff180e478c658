"""Checkpoints: everything a training needs to go on as if it had never stopped.

Generators need no saving: each epoch's are made anew from (seed, member, purpose, epoch). Snapshots, which never change
once they are taken, are written with the first checkpoint after them and never again; from then on they are held as
mapped files, of which the system keeps in memory what it has room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from dubio.networks.network import Model
from dubio.training.collectors import Collected

Arrays = dict[str, NDArray[Any]]


class Checkpoint(Protocol):
    """Where a fit under way is kept.

    Attributes:
        every_seconds: How long to go between two savings.
    """

    every_seconds: float

    def load(self) -> dict[str, Any] | None:
        """``{"tensors": …, "state": …, "settled": {name: safetensors file}}`` as saved, or None."""
        ...

    def save(self, tensors: Arrays, state: dict[str, Any], settled: Mapping[str, Arrays]) -> dict[str, Path]:
        """Replace what is kept, atomically.

        Args:
            tensors: What changes.
            state: Numbers and texts beside them.
            settled: Named groups of arrays that never change: only those that are not kept yet are written.

        Returns:
            The safetensors file of each settled group; it stays until the group is no longer named.
        """
        ...


def save(
    checkpoint: Checkpoint,
    model: Model,
    optimiser: Optimizer,
    held: Collected,
    settled: Iterable[str],
    progress: Mapping[str, Any],
) -> Collected:
    """Save a training under way.

    Args:
        checkpoint: Where.
        model: The model.
        optimiser: Its optimiser.
        held: What the collector holds.
        settled: What starts the names of those held tensors that never change.
        progress: Where the training stands.

    Returns:
        What the collector holds, the settled part of it now in mapped files.
    """
    groups = {start: _under(start, held.tensors) for start in settled}
    starts = tuple(groups)
    changing = {name: tensor for name, tensor in held.tensors.items() if not name.startswith(starts)}
    files = checkpoint.save(
        pack(model, optimiser, changing),
        {"progress": dict(progress), "facts": held.facts},
        {start: _arrays(group) for start, group in groups.items()},
    )
    return Collected(changing | _mapped(files), held.facts)


def pack(model: Model, optimiser: Optimizer, held: Mapping[str, Tensor]) -> Arrays:
    """Weights, optimiser state and what changes of that which the collector holds, as named arrays."""
    named: dict[str, Tensor] = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for index, slots in optimiser.state_dict()["state"].items():
        named |= {f"optimiser/{index}/{name}": value for name, value in slots.items() if isinstance(value, Tensor)}
    return _arrays(named | {f"collected/{name}": tensor for name, tensor in held.items()})


def unpack(kept: Mapping[str, Any], model: Model, optimiser: Optimizer) -> Collected:
    """Put what a checkpoint loaded back; returns what the collector held."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in kept["tensors"].items()}
    model.load_state_dict(_under("model/", tensors))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimiser/", tensors).items():
        index, _, slot = name.partition("/")
        slots.setdefault(int(index), {})[slot] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
    return Collected(_under("collected/", tensors) | _mapped(kept["settled"]), dict(kept["state"]["facts"]))


def _mapped(files: Mapping[str, Path]) -> dict[str, Tensor]:
    """The tensors of files, named after their group; a file is mapped, not read."""
    return {f"{start}{name}": tensor for start, path in files.items() for name, tensor in load_file(path).items()}


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
