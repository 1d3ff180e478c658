"""Inputs and labels in memory: numbers, all of them finite, of the type that a module takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.lazy_rows import iterate_blocks

ONE_INPUT = "A module takes one input tensor: several can be put into one, and taken apart in the module."


def inputs_array(value: Any, what: str) -> NDArray[Any]:
    """Inputs in memory; floating ones as float32, others as they are.

    Args:
        value: An array, a tensor, or rows of numbers.
        what: The argument's name, for messages.

    Raises:
        UserError: When they are no array of numbers.
    """
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except (ValueError, TypeError) as fault:
        hint = ONE_INPUT if isinstance(value, tuple) else "Inputs and labels are given as a tuple."
        raise UserError(f"{what}: the inputs are no array ({fault}). {hint}") from fault
    if array.dtype.kind not in "fiub":
        raise UserError(f"{what}: the inputs must be numbers; given {array.dtype}.")
    if array.dtype.kind != "f" or array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused by its row
        return array.astype(np.float32)


def are_tensors(value: Any) -> bool:
    """Whether something is several tensors or arrays, and not one."""
    return isinstance(value, tuple | list) and any(isinstance(part, Tensor | np.ndarray) for part in value)


def labels_array(value: Any, what: str, first: int = 0) -> NDArray[Any]:
    """Labels as whole numbers.

    Args:
        value: An array, a tensor, or a list.
        what: The argument's name, for messages.
        first: The number of the first row.

    Raises:
        UserError: When they are anything else.
    """
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    meant = f"{what}: labels must be class indices, or 0 and 1 for each label"
    if array.dtype.kind not in "fiub":
        raise UserError(f"{meant}; given {array.dtype}.")
    broken = np.argwhere(np.atleast_1d(~np.isfinite(array) | (array != np.round(array))))
    if len(broken):
        row = int(broken[0][0])
        raise UserError(f"{meant}; that of row {first + row} (counted from 0) is {np.atleast_1d(array)[row]}.")
    return array.astype(np.int64)


def check_finite(values: NDArray[Any], what: str, numbers: Sequence[int] | None = None) -> None:
    """Refuse NaN and infinity, which a training would turn into a loss that is not a number.

    Args:
        values: The inputs.
        what: The argument's name, for messages.
        numbers: Of each row its number among all; they are all, unless given.

    Raises:
        UserError: Naming the first row with such a value.
    """
    if values.dtype.kind != "f":
        return
    before = 0
    for block in iterate_blocks(values):
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, *place = (int(i) for i in bad[0])
            number = before + row if numbers is None else numbers[before + row]
            where = "" if not place else f" at {place[0] if len(place) == 1 else place}"
            raise UserError(
                f"{what}: row {number} (counted from 0) is {block[tuple(bad[0])]}{where}; inputs must be finite "
                f"{values.dtype} numbers. Fill in what is missing, or leave the row out."
            )
        before += len(block)


def converts(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether inputs of a type stand for the same numbers in the type that a module was fitted with.

    Whole numbers do in float32, except bytes: these are mostly pixels, which somebody scaled before the fit.
    """
    if wanted.kind == "f":
        return given.kind in "fib" or (given.kind == "u" and given != np.uint8)
    return given.kind in "iub" and np.can_cast(given, wanted, "safe")
