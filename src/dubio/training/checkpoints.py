"""Checkpoints: everything a training needs to continue as if it had never stopped.

Generators need no saving: those of each epoch are made from (seed, member, purpose, epoch). Snapshots, which never
change once they are taken, are written with the first checkpoint after them and never again; from then on they are
mapped files, which the system may drop from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from dubio.core.errors import StoreError
from dubio.inference.weight_draws import with_prefix
from dubio.networks.network import Model
from dubio.training.collectors import Collected

T = TypeVar("T")

Arrays = dict[str, NDArray[Any]]


class Checkpoint(Protocol):
    """Storage of an unfinished fit.

    Attributes:
        every_seconds: Seconds between two savings.
    """

    every_seconds: float

    def load(self) -> dict[str, Any] | None:
        """Return ``{"tensors": …, "state": …, "settled": {name: safetensors file}}`` as saved, or None."""

    def save(self, tensors: Arrays, state: dict[str, Any], settled: Mapping[str, Arrays]) -> dict[str, Path]:
        """Replace the saved fit, atomically.

        Args:
            tensors: Arrays that change.
            state: Numbers and texts.
            settled: Named groups of arrays that never change: only new ones are written.

        Returns:
            The safetensors file of each settled group; it is deleted when the group is no longer named.
        """

    def set_aside(self, reason: str) -> bool:
        """Move what was loaded out of the way; return whether anything was loaded."""


def resume(checkpoint: Checkpoint | None, fit: Callable[[], T]) -> T:
    """Return what a fit returns that may continue from a checkpoint.

    A fit that fails after it continued from a checkpoint is made once more, from the beginning: whole files may still
    hold what this training cannot use.

    Args:
        checkpoint: The checkpoint that the fit loads, if any.
        fit: Fits; each call starts with a new model.
    """
    try:
        return fit()
    except (StoreError, OSError, MemoryError, torch.OutOfMemoryError):
        raise  # these do not lie in the checkpoint
    except Exception as fault:
        if checkpoint is None or not checkpoint.set_aside(f"{type(fault).__name__}: {fault}"):
            raise
    return fit()


def save(
    checkpoint: Checkpoint,
    model: Model,
    optimiser: Optimizer,
    collected: Collected,
    frozen: Iterable[str],
    progress: Mapping[str, Any],
) -> Collected:
    """Save an unfinished training.

    Args:
        checkpoint: Where to save it.
        model: The model.
        optimiser: Its optimiser.
        collected: The collector's tensors and facts.
        frozen: Name prefixes of those tensors that never change.
        progress: The training's progress.

    Returns:
        The collection, its frozen tensors now in mapped files.
    """
    groups = {prefix: with_prefix(prefix, collected.tensors) for prefix in frozen}
    changing = {name: tensor for name, tensor in collected.tensors.items() if not name.startswith(tuple(groups))}
    files = checkpoint.save(
        pack(model, optimiser, changing),
        {"progress": dict(progress), "facts": collected.facts},
        {prefix: _arrays(group) for prefix, group in groups.items()},
    )
    return Collected(changing | _mapped(files), collected.facts)


def pack(model: Model, optimiser: Optimizer, collected: Mapping[str, Tensor]) -> Arrays:
    """Return weights, optimiser state and the changing tensors of the collector as named arrays."""
    named: dict[str, Tensor] = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for index, slots in optimiser.state_dict()["state"].items():
        named |= {f"optimiser/{index}/{name}": value for name, value in slots.items() if isinstance(value, Tensor)}
    return _arrays(named | {f"collected/{name}": tensor for name, tensor in collected.items()})


def unpack(stored: Mapping[str, Any], model: Model, optimiser: Optimizer) -> Collected:
    """Restore model and optimiser from a loaded checkpoint; return the collection."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in stored["tensors"].items()}
    model.load_state_dict(with_prefix("model/", tensors))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in with_prefix("optimiser/", tensors).items():
        index, _, slot = name.partition("/")
        slots.setdefault(int(index), {})[slot] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
    frozen = _mapped(stored["settled"])
    return Collected(with_prefix("collected/", tensors) | frozen, dict(stored["state"]["facts"]))


def _mapped(files: Mapping[str, Path]) -> dict[str, Tensor]:
    """Return the tensors of files, named after their group; a file is mapped, not read."""
    return {f"{prefix}{name}": tensor for prefix, path in files.items() for name, tensor in load_file(path).items()}


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
