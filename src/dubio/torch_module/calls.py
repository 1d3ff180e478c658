"""What decides the outcome of a call of ``dubio.fit``, described so that two calls can be told apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dubio.core.specs import describe
from dubio.core.types import Target
from dubio.inference.batches import LabelledRows
from dubio.methods.recipe import Recipe

SCHEMA = 1

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""What differs between two texts of the same object."""


def call_of(
    recipe: Recipe,
    module: nn.Module,
    data: tuple[LabelledRows, LabelledRows],
    classes: Sequence[str],
    target: Target,
    seed: int,
) -> dict[str, Any]:
    """The description of a call.

    Args:
        recipe: The method with its arguments.
        module: With its first weights, the first member's.
        data: Training and validation examples.
        classes: Names of the classes.
        target: What the logits mean.
        seed: The seed.
    """
    return {
        "schema": SCHEMA,
        "method": describe(recipe),
        "network": _module(module),
        "train": _examples(data[0]),
        "val": _examples(data[1]),
        "classes": list(classes),
        "target": target,
        "seed": seed,
    }


def _module(module: nn.Module) -> dict[str, Any]:
    """Layers, shapes and first weights; what a module computes with them is its code, which nobody can compare."""
    state = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    return {
        "layers": ADDRESS.sub("", repr(module)),
        "shapes": {name: list(array.shape) for name, array in state.items()},
        "weights": _digest(*(state[name] for name in sorted(state))),
    }


def _examples(data: LabelledRows) -> dict[str, Any]:
    """Arrays by content; a dataset, which may give other views each time, by the number and shape of its examples."""
    values: Any = data.encoded.values  # type: ignore[union-attr]  # what a user gives are rows of numbers
    said = {"rows": len(values), "shape": list(values.shape[1:]), "labels": _digest(data.labels)}
    return {**said, "values": _digest(values)} if isinstance(values, np.ndarray) else said


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
