"""Images to standardised channels, and table rows to standardised columns.

Mean and standard deviation of each channel or column are those of the training split, or, of images for a network that
was pre-trained with others, fixed numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows, iterate_blocks
from dubio.core.specs import part
from dubio.core.types import Examples, FloatArray, Inputs
from dubio.core.validate import PositiveFloat
from dubio.encoders.rows import ArrayRows, Encoding, ImageRows, JsonFields, standardise

EAGER_BYTES = 1 << 29
"""Encoded images up to this size stay in memory; larger ones are encoded batch by batch, with the same values."""

SAMPLE = 10_000
"""Images that determine the channel statistics where reading all of them would take hours."""


@part("image-encoding")
@dataclass(frozen=True)
class ImageEncoding(Encoding):
    """Per-channel standardisation: (pixel − mean) / deviation over all training pixels of the channel."""

    def fit(self, train: Examples) -> ImageEncoder:
        """Return the encoder with the channel statistics of the examples.

        Sums are over integers, hence exact, whatever the order of the rows. A constant channel is only centred. Of
        images that are costly to read, :data:`SAMPLE` evenly spaced ones are used.
        """
        images = _images(train.inputs)
        if len(images) == 0:
            raise UserError("an image encoder needs at least one training image; given none.")
        if isinstance(images, LazyRows) and images.costly and len(images) > SAMPLE:
            images = images.take(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
        _, height, width, channels = images.shape
        counts = np.zeros((channels, 256), dtype=np.int64)
        for block in iterate_blocks(images):
            counts += np.stack([np.bincount(block[..., c].ravel(), minlength=256) for c in range(channels)])
        levels = np.arange(256)
        pixels = len(images) * height * width
        mean = (counts * levels).sum(axis=1) / pixels
        deviation = np.sqrt((counts * np.square(levels - mean[:, None])).sum(axis=1) / pixels)
        deviation = np.where(deviation > 0, deviation, 1.0)
        return ImageEncoder(self, (channels, height, width), tuple(mean.tolist()), tuple(deviation.tolist()))


@part("scaled-image-encoding")
@dataclass(frozen=True)
class ScaledImageEncoding(Encoding):
    """Fixed scaling: (pixel − mean) / deviation, the same for every channel and data set; nothing is fitted.

    A pre-trained network expects the numbers that it was trained with. The defaults are those of EfficientNet-Lite
    (Tan & Le, 2019; the authors' program for its Lite versions), whose inputs lie between −0.992 and 1.

    Attributes:
        mean: The grey level that becomes 0.
        deviation: The number of grey levels that become 1.
    """

    mean: float = 127.0
    deviation: PositiveFloat = 128.0

    def fit(self, train: Examples) -> ImageEncoder:
        """Return the encoder for images of the shape of these examples."""
        _, height, width, channels = _images(train.inputs).shape
        shape = (channels, height, width)
        return ImageEncoder(self, shape, (self.mean,) * channels, (self.deviation,) * channels)


@dataclass(frozen=True)
class ImageEncoder(JsonFields):
    """uint8 ``[N, H, W, C]`` or ``[N, H, W]`` to float32 ``[N, C, H, W]``.

    Attributes:
        encoding: The encoding that was fitted.
        shape: (C, H, W) of a training image.
        mean: Mean of each channel, in grey levels, or the level that becomes 0.
        deviation: Standard deviation of each channel, in grey levels; 1 for a constant channel.
    """

    kind: ClassVar[str] = "image"

    encoding: ImageEncoding | ScaledImageEncoding
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_statistics(self.mean, self.deviation, self.shape[0] if self.shape else 0)

    def encode(self, examples: Examples) -> ArrayRows | ImageRows:
        """Return standardised channels; beyond :data:`EAGER_BYTES` they are computed batch by batch.

        Raises:
            UserError: For images of another shape than those in training.
        """
        images = _images(examples.inputs)
        channels, height, width = self.shape
        if images.shape[1:] != (height, width, channels):
            raise UserError(
                f"images must be {height}×{width} with {channels} channel(s), as in training; "
                f"given {images.shape[1]}×{images.shape[2]} with {images.shape[3]}."
            )
        # one table look-up per channel: each of 256 levels is standardised once, in float64
        levels = (np.arange(256)[None] - np.array(self.mean)[:, None]) / np.array(self.deviation)[:, None]
        table = levels.astype(np.float32)
        if len(images) * math.prod(self.shape) * table.itemsize > EAGER_BYTES:
            return ImageRows(images, table)
        return ArrayRows(standardise(images[:], table))


def _images(inputs: Inputs) -> NDArray[np.uint8] | LazyRows:
    """Return uint8 ``[N, H, W, C]`` from either accepted form."""
    if isinstance(inputs, tuple):
        raise UserError("an image encoder needs images; given texts.")
    if inputs.dtype != np.uint8 or inputs.ndim not in (3, 4):
        raise UserError(f"images must be uint8 [N, H, W, C] or [N, H, W]; given {inputs.dtype} {inputs.shape}.")
    return inputs if inputs.ndim == 4 or isinstance(inputs, LazyRows) else inputs[..., None]


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
        deviation = np.sqrt(np.square(np.where(present, values - mean, 0.0)).sum(axis=0) / count)
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

    def __post_init__(self) -> None:
        _check_statistics(self.mean, self.deviation, len(self.mean))

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of columns,)."""
        return (len(self.mean),)

    def encode(self, examples: Examples) -> ArrayRows:
        """Return standardised columns, missing values at the training mean.

        Raises:
            UserError: For another number of columns than in training, or a number too far from those of training.
        """
        values = _values(examples.inputs)
        if values.shape[1] != len(self.mean):
            raise UserError(f"rows must have {len(self.mean)} columns, as in training; given {values.shape[1]}.")
        with np.errstate(over="ignore"):
            standard = (values - np.array(self.mean)) / np.array(self.deviation)
        for row, column in np.argwhere(np.abs(standard) > np.finfo(np.float32).max):
            raise UserError(f"row {row}, column {column} must be a number whose distance from the training mean can be "
                            f"computed in single precision; given {values[row, column]:g}.")  # fmt: skip
        return ArrayRows(np.where(np.isnan(standard), 0.0, standard).astype(np.float32))


def _check_statistics(mean: tuple[float, ...], deviation: tuple[float, ...], count: int) -> None:
    """Refuse a mean and a deviation that are not numbers, one for each column or channel."""
    numbers = all(isinstance(item, int | float) for item in (*mean, *deviation))
    if not numbers or not 0 < len(mean) == len(deviation) == count:
        raise UserError("an encoder needs a mean and a deviation of each column or channel, and at least one of them.")


def _values(inputs: Inputs) -> FloatArray:
    """Return float64 ``[N, D]``; NaN is allowed, infinity refused."""
    if isinstance(inputs, tuple):
        raise UserError("a table encoder needs numbers; given texts.")
    if inputs.ndim != 2 or inputs.dtype.kind not in "fiub":
        raise UserError(f"table rows must be numbers [N, D]; given {inputs.dtype} of shape {inputs.shape}.")
    values: NDArray[np.float64] = np.asarray(inputs).astype(np.float64)
    for row, column in np.argwhere(np.isinf(values)):
        raise UserError(f"table values must be finite or missing; row {row}, column {column} is {values[row, column]}.")
    return values
