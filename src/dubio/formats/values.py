"""Convert probabilities, log-probabilities or logits to the logits that predictions hold.

The caller says which of them the numbers are; it is never guessed. The numbers are checked, and an error names row and
column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError, one_of
from dubio.core.passes import log_softmax, row_blocks
from dubio.core.types import FloatArray, Target

Values = Literal["probs", "log_probs", "logits"]
VALUES: tuple[Values, ...] = get_args(Values)

RowName = Callable[[int, int], str]

TOLERANCE = 1e-3
"""Largest difference from one of the sum of a row's probabilities; they are then divided by their sum."""

SLACK = 1e-6
"""Largest excess of a single probability over one: the rounding of a float32 softmax."""


def as_logits(
    array: Any,
    values: Values,
    target: Target,
    *,
    tolerance: float = TOLERANCE,
    name: str | None = None,
    row_name: RowName | None = None,
) -> NDArray[np.float32]:
    """Return logits ``[S, N, K]`` float32 from numbers of shape [N, K], [S, N, K] or, binary, [N].

    Args:
        array: The numbers; anything with ``__array__``.
        values: Their meaning.
        target: Softmax over classes, or one sigmoid per label.
        tolerance: Largest difference from one of the sum of a row's probabilities.
        name: Their name in a message.
        row_name: What a message calls a row, by the indices of sample and row; the row's index unless given.

    Returns:
        ``log p`` (multi-label: ``log p − log(1 − p)``), −inf where p = 0. Logits in float32 are returned as they are.

    Raises:
        UserError: For another shape or type, or values that contradict ``values``.
    """
    if not 0 <= tolerance < 1:
        raise UserError(f"tolerance (--tolerance) must be at least 0 and below 1; given {tolerance:g}.")
    one_of("values", values, VALUES)
    label = name or values
    errors = _BlockErrors(label, 0, row_name)
    numbers = _shaped(real_numbers(array, label), values, target, errors)
    if values == "logits" and numbers.dtype == np.float32 and target != "multilabel":
        return numbers  # NaN and +inf are refused by Predictions, which looks at every value once
    logits = np.empty(numbers.shape, dtype=np.float32)
    convert = _CONVERSIONS[values, target == "multilabel"]
    # The logarithm of a float32 is as good in float32, where it ends anyway; every other conversion subtracts.
    narrow = values == "probs" and target != "multilabel" and numbers.dtype == np.float32
    for rows in row_blocks(*numbers.shape):
        raw = numbers[:, rows]
        block: FloatArray = raw if narrow else np.asarray(raw, dtype=np.float64)
        with np.errstate(over="ignore"):  # a logarithm below the range of float32 is that of zero
            logits[:, rows] = convert(block, _BlockErrors(label, rows.start, row_name), tolerance)
    return logits


def numbers_of(array: Any, name: str) -> NDArray[Any]:
    """Return the argument as a numpy array.

    Raises:
        UserError: When it cannot be converted.
    """
    try:
        return np.asarray(array)
    except Exception as fault:  # any framework's own refusal, such as a tensor that needs detaching
        raise UserError(f"{name} cannot be turned into a numpy array: {fault}") from fault


def real_numbers(array: Any, name: str) -> NDArray[Any]:
    """Return the argument as an array of real numbers.

    Raises:
        UserError: When it is none.
    """
    numbers = numbers_of(array, name)
    if numbers.dtype.kind not in "fiu":
        raise UserError(f"{name} must be numbers; given an array of type {numbers.dtype}.")
    return numbers


def _shaped(array: NDArray[Any], values: Values, target: Target, errors: _BlockErrors) -> NDArray[Any]:
    """Return [S, N, K] with at least one of each; a binary [N] becomes its two classes."""
    name = errors.name
    if array.ndim == 1 and target != "multilabel" and array.size:
        array = _two_classes(array, values, errors)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        allowed = "[N, K] or [S, N, K]" if target == "multilabel" else "[N, K], [S, N, K] or, binary, [N]"
        raise UserError(f"{name} must have shape {allowed}; given {array.shape}.")
    if 0 in array.shape:
        raise UserError(f"{name} must not be empty; given shape {array.shape}.")
    if array.shape[2] == 1 and target != "multilabel":
        raise UserError(f"{name} has one class; give a binary prediction as shape [N], or as two columns.")
    return array


def _two_classes(array: NDArray[Any], values: Values, errors: _BlockErrors) -> NDArray[Any]:
    """Return both columns of a binary prediction that has the second one only."""
    second = array.astype(np.float64)[None, :, None]
    if values == "logits":
        return np.concatenate([np.zeros_like(second), second], axis=2)
    with np.errstate(divide="ignore"):
        if values == "probs":
            _check_probs(second, errors)
            return np.concatenate([1.0 - np.minimum(second, 1.0), second], axis=2)
        _check_logs(second, errors)
        return np.concatenate([np.log(-np.expm1(np.minimum(second, 0.0))), second], axis=2)


class _BlockErrors:
    """The position of a block, to name a row and column in an error."""

    def __init__(self, name: str, start: int, row_name: RowName | None) -> None:
        self.name, self.start, self._row_name = name, start, row_name

    def refuse(self, rule: str, block: FloatArray, bad: NDArray[np.bool_]) -> NoReturn:
        """Refuse the first bad value."""
        sample, row, column = (int(index) for index in np.argwhere(bad)[0])
        counts = "(rows and columns count from 0)" if self._row_name is None else "(columns count from 0)"
        where = f"{self._row(block, sample, row)}, column {column}"
        raise UserError(f"{self.name} {rule}; {where} is {block[sample, row, column]:g} {counts}.")

    def check_sums(self, block: FloatArray, sums: FloatArray, tolerance: float) -> None:
        """Refuse the first row that does not sum to one."""
        bad = np.argwhere(~(np.abs(sums - 1.0) <= tolerance))
        if len(bad):
            counts = " (rows count from 0)" if self._row_name is None else ""
            where = f"{self._row(block, *bad[0])} sums to {sums[tuple(bad[0])]:.6g}{counts}"
            raise UserError(f"{self.name}: every row must sum to one within {tolerance:g}; {where}. For several labels "
                            "per row say target='multilabel' (--target multilabel).")  # fmt: skip

    def _row(self, block: FloatArray, sample: int, row: int) -> str:
        if self._row_name is not None:
            return self._row_name(sample, self.start + row)
        return f"sample {sample}, row {self.start + row}" if len(block) > 1 else f"row {self.start + row}"


def _check_probs(block: FloatArray, errors: _BlockErrors) -> None:
    if not (block.min() >= 0 and block.max() <= 1 + SLACK):  # NaN fails both
        errors.refuse("must lie between 0 and 1", block, ~((block >= 0) & (block <= 1 + SLACK)))


def _check_logs(block: FloatArray, errors: _BlockErrors) -> None:
    if not block.max() <= SLACK:  # NaN fails it
        errors.refuse("must be logarithms of probabilities, at most 0", block, ~(block <= SLACK))


def _class_probs(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    _check_probs(block, errors)
    errors.check_sums(block, block @ np.ones(block.shape[-1], dtype=block.dtype), tolerance)
    with np.errstate(divide="ignore"):
        return np.log(block)


def _class_logs(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    _check_logs(block, errors)
    errors.check_sums(block, np.exp(block) @ np.ones(block.shape[-1]), tolerance)
    return block


def _class_logits(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    if not block.max() < np.inf:  # NaN fails it
        errors.refuse("must not be NaN or +inf", block, ~(block < np.inf))
    empty = (block == -np.inf).all(axis=-1, keepdims=True)
    # Normalised before they are narrowed: large logits that differ little would all become the same float32.
    with np.errstate(invalid="ignore"):
        return np.where(empty, block, log_softmax(block))


def _label_probs(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    _check_probs(block, errors)
    capped = np.minimum(block, 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(capped) - np.log1p(-capped))


def _label_logs(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    _check_logs(block, errors)
    capped = np.minimum(block, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(capped - np.log(-np.expm1(capped)))


def _label_logits(block: FloatArray, errors: _BlockErrors, tolerance: float) -> FloatArray:
    limit = np.finfo(np.float32).max
    bad = ~((block <= limit) & ((block >= -limit) | (block == -np.inf)))
    if bad.any():
        errors.refuse("must not be NaN, +inf or beyond the range of float32", block, bad)
    return block


_CONVERSIONS: dict[tuple[Values, bool], Callable[[FloatArray, _BlockErrors, float], FloatArray]] = {
    ("probs", False): _class_probs,
    ("log_probs", False): _class_logs,
    ("logits", False): _class_logits,
    ("probs", True): _label_probs,
    ("log_probs", True): _label_logs,
    ("logits", True): _label_logits,
}
