"""Table rows to standardised columns: mean and standard deviation of each column over the training split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Examples, FloatArray, Inputs
from dubio.encoders.rows import ArrayRows, Encoding, JsonFields


@part("table-encoding")
@dataclass(frozen=True)
class TableEncoding(Encoding):
    """Per-column standardisation: (value − mean) / deviation over the training values that are not missing.

    A missing value (NaN) takes the training mean, hence encodes to 0. A column that never varies in training, or is
    missing throughout, is centred and not scaled.
    """

    def fit(self, train: Examples) -> TableEncoder:
        """Return the encoder with the column statistics of the examples."""
        values = _values(train.inputs)
        if len(values) == 0:
            raise UserError("a table encoder needs at least one training row; given none.")
        present = ~np.isnan(values)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.where(present, values, 0.0).sum(axis=0) / count
        centred = np.where(present, values - mean, 0.0)
        deviation = np.sqrt(np.square(centred).sum(axis=0) / count)
        # a constant column leaves a rounding error of the size of its mean; dividing by that would invent a signal
        varies = deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300)
        return TableEncoder(self, tuple(mean.tolist()), tuple(np.where(varies, deviation, 1.0).tolist()))


@dataclass(frozen=True)
class TableEncoder(JsonFields):
    """Float ``[N, D]`` with NaN where missing to float32 ``[N, D]``.

    Attributes:
        encoding: The encoding that was fitted.
        mean: Mean of each column.
        deviation: Standard deviation of each column; 1 for a constant column.
    """

    kind: ClassVar[str] = "table"

    encoding: TableEncoding
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of columns,)."""
        return (len(self.mean),)

    def encode(self, examples: Examples) -> ArrayRows:
        """Return standardised columns, missing values at the training mean.

        Raises:
            UserError: For another number of columns than in training.
        """
        values = _values(examples.inputs)
        if values.shape[1] != len(self.mean):
            raise UserError(f"rows must have {len(self.mean)} columns, as in training; given {values.shape[1]}.")
        standard = (values - np.array(self.mean)) / np.array(self.deviation)
        return ArrayRows(np.where(np.isnan(standard), 0.0, standard).astype(np.float32))


def _values(inputs: Inputs) -> FloatArray:
    """Return float64 ``[N, D]``; NaN is allowed, infinity refused."""
    if isinstance(inputs, tuple):
        raise UserError("a table encoder needs numbers; given texts.")
    if inputs.ndim != 2 or inputs.dtype.kind not in "fiub":
        raise UserError(f"table rows must be numbers [N, D]; given {inputs.dtype} of shape {inputs.shape}.")
    values: NDArray[np.float64] = np.asarray(inputs).astype(np.float64)
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        row, column = (int(i) for i in infinite[0])
        raise UserError(f"table values must be finite or missing; row {row}, column {column} is {values[row, column]}.")
    return values
