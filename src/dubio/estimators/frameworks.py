"""What an estimator of any framework answered, as numpy arrays of a shape that is stated and checked, never guessed.

For a batch of B rows of a task with K classes, probabilities (log-probabilities, logits) may be

    [B] or [B, 1]          of class 1, where the task has two classes
    [B, K]                 of every class (multi-label: of every label)
    [S, B, K], [S, B, 1]   S samples of either, the samples first

The last two axes are rows and classes whatever the numbers are. S must be the same in every batch. Uncertainty is
[B] or [B, 1], higher = more uncertain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.types import FloatArray, Task


def to_numpy(value: Any, what: str) -> NDArray[Any]:
    """A numpy array of what any framework gives: detached, on the CPU, by ``__array__`` or DLPack.

    Args:
        value: Of numpy, torch, JAX, TensorFlow, Keras, pandas, or plain numbers.
        what: What to call it in a refusal.

    Raises:
        UserError: When there are no real numbers in it.
    """
    for step in ("detach", "cpu"):  # a tensor that remembers how it came about, or that lies elsewhere
        if callable(getattr(value, step, None)):
            value = getattr(value, step)()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # numpy has no such type
        value = value.float()
    try:
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        found = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except Exception as fault:  # whatever a framework refuses with
        raise UserError(f"{what} cannot be turned into a numpy array: {fault}") from fault
    if found.dtype.name == "bfloat16":
        found = found.astype(np.float32)
    if found.dtype.kind not in "fiu":
        raise UserError(f"{what} must be numbers; given an array of type {found.dtype}.")
    return found


def one_column(task: Task) -> bool:
    """Whether the probability of class 1 says everything."""
    return task.target != "multilabel" and len(task.classes) == 2


def shaped(found: NDArray[Any], rows: int, task: Task, what: str) -> NDArray[Any]:
    """One batch as [S, B, K], or [S, B, 1] of class 1; anything else is refused.

    Args:
        found: What the estimator answered.
        rows: B, how many rows it was asked about.
        task: Knows K and the target.
        what: What to call it in a refusal.

    Raises:
        UserError: With the shapes that are allowed and the one given.
    """
    widths = (1, len(task.classes)) if one_column(task) else (len(task.classes),)
    wide = found[:, None] if found.ndim == 1 and one_column(task) else found
    wide = wide[None] if wide.ndim == 2 else wide
    if wide.ndim != 3 or wide.shape[0] < 1 or wide.shape[1] != rows or wide.shape[2] not in widths:
        pairs = [f"[{rows}, {width}]" for width in widths]
        allowed = ([f"[{rows}]"] if one_column(task) else []) + pairs
        samples = " or ".join(f"[S, {rows}, {width}]" for width in widths)
        raise UserError(
            f"{what}: must have shape {', '.join(allowed)} or, for S samples, {samples}; given {list(found.shape)}."
        )
    return wide


def uncertainty_of(value: Any, rows: int, start: int, what: str) -> FloatArray:
    """The uncertainty of one batch, ``[B]``.

    Args:
        value: What the estimator gave beside its probabilities.
        rows: How many rows it was asked about.
        start: The first of them, for a refusal.
        what: What to call it in a refusal.

    Raises:
        UserError: For another shape, or a number that is not finite.
    """
    found = to_numpy(value, what)
    flat = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if flat.shape != (rows,):
        raise UserError(f"{what}: must have shape [{rows}] or [{rows}, 1]; given {list(found.shape)}.")
    wide = flat.astype(np.float64)
    if not np.isfinite(wide).all():
        row = int(np.flatnonzero(~np.isfinite(wide))[0])
        raise UserError(f"{what} must be finite; row {start + row}, column 0 is {wide[row]} (rows count from 0).")
    return wide
