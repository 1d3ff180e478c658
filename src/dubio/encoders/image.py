"""Images to standardised channels: mean and deviation of each channel over the training split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows, iterate_blocks
from dubio.core.specs import describe, part, restore
from dubio.core.types import Examples, Inputs
from dubio.encoders.rows import ArrayRows, ImageRows, standardise

EAGER_BYTES = 1 << 29
"""Encoded images up to this size are kept in memory; larger ones are encoded batch by batch, with the same values."""


SAMPLE = 10_000
"""So many images say what the channels are like, where it would take hours to look at all of them."""


@part("image-encoding")
@dataclass(frozen=True)
class ImageEncoding:
    """Per-channel standardisation: (pixel − mean) / deviation over all training pixels of the channel."""

    def fit(self, train: Examples) -> ImageEncoder:
        """The encoder with the channel statistics of these examples.

        Sums are over whole numbers, hence exact, whatever the order of the rows. A channel that never varies is only
        centred. Of images that take hours to look at, :data:`SAMPLE` evenly spaced ones count.
        """
        images = _bounded(_images(train.inputs))
        if len(images) == 0:
            raise UserError("an image encoder needs at least one training image; given none.")
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


@dataclass(frozen=True)
class ImageEncoder:
    """uint8 ``[N, H, W, C]`` or ``[N, H, W]`` to float32 ``[N, C, H, W]``.

    Attributes:
        encoding: What it was fitted with.
        shape: (C, H, W) of a training image.
        mean: Of each channel, in grey levels.
        deviation: Of each channel, in grey levels; 1 where the channel is constant.
    """

    encoding: ImageEncoding
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def encode(self, examples: Examples) -> ArrayRows | ImageRows:
        """Standardised channels; of more than :data:`EAGER_BYTES` only those of a batch at a time.

        Raises:
            UserError: For images of another shape than the training images.
        """
        images = _images(examples.inputs)
        channels, height, width = self.shape
        if images.shape[1:] != (height, width, channels):
            raise UserError(
                f"images must be {height}×{width} with {channels} channel(s), as in training; "
                f"given {images.shape[1]}×{images.shape[2]} with {images.shape[3]}."
            )
        # one table look-up a channel: each of 256 levels is standardised once, in float64
        levels = (np.arange(256)[None] - np.array(self.mean)[:, None]) / np.array(self.deviation)[:, None]
        table = levels.astype(np.float32)
        if len(images) * math.prod(self.shape) * table.itemsize > EAGER_BYTES:
            return ImageRows(images, table)
        return ArrayRows(standardise(images[:], table))

    def to_json(self) -> dict[str, Any]:
        """Everything needed to make this encoder again."""
        return {
            "encoder": "image",
            "encoding": describe(self.encoding),
            "shape": list(self.shape),
            "mean": list(self.mean),
            "deviation": list(self.deviation),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> ImageEncoder:
        """The encoder that :meth:`to_json` wrote down."""
        return cls(restore(saved["encoding"]), tuple(saved["shape"]), tuple(saved["mean"]), tuple(saved["deviation"]))


def _bounded(images: NDArray[np.uint8] | LazyRows) -> NDArray[np.uint8] | LazyRows:
    """All images, or evenly spaced ones of those that are costly to read."""
    if not isinstance(images, LazyRows) or not images.costly or len(images) <= SAMPLE:
        return images
    return images.take(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))


def _images(inputs: Inputs) -> NDArray[np.uint8] | LazyRows:
    """uint8 [N, H, W, C] of either accepted form."""
    if isinstance(inputs, tuple):
        raise UserError("an image encoder needs images; given texts.")
    if inputs.dtype != np.uint8 or inputs.ndim not in (3, 4):
        raise UserError(
            f"images must be uint8 [N, H, W, C] or [N, H, W]; given {inputs.dtype} of shape {inputs.shape}."
        )
    return inputs if inputs.ndim == 4 or isinstance(inputs, LazyRows) else inputs[..., None]
