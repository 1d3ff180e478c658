"""Stored arrays as tensors."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def in_place(array: NDArray[Any]) -> Tensor:
    """An array as a tensor without copying it: a file's memory is read as it is needed, and written by nobody."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
