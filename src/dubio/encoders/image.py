"""Images to standardised channels: mean and standard deviation of each channel over the training split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows, iterate_blocks
from dubio.core.specs import part
from dubio.core.types import Examples, Inputs
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
class ImageEncoder(JsonFields):
    """uint8 ``[N, H, W, C]`` or ``[N, H, W]`` to float32 ``[N, C, H, W]``.

    Attributes:
        encoding: The encoding that was fitted.
        shape: (C, H, W) of a training image.
        mean: Mean of each channel, in grey levels.
        deviation: Standard deviation of each channel, in grey levels; 1 for a constant channel.
    """

    kind: ClassVar[str] = "image"

    encoding: ImageEncoding
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

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


def _bounded(images: NDArray[np.uint8] | LazyRows) -> NDArray[np.uint8] | LazyRows:
    """Return all images, or evenly spaced ones if they are costly to read."""
    if not isinstance(images, LazyRows) or not images.costly or len(images) <= SAMPLE:
        return images
    return images.take(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))


def _images(inputs: Inputs) -> NDArray[np.uint8] | LazyRows:
    """Return uint8 ``[N, H, W, C]`` from either accepted form."""
    if isinstance(inputs, tuple):
        raise UserError("an image encoder needs images; given texts.")
    if inputs.dtype != np.uint8 or inputs.ndim not in (3, 4):
        raise UserError(
            f"images must be uint8 [N, H, W, C] or [N, H, W]; given {inputs.dtype} of shape {inputs.shape}."
        )
    return inputs if inputs.ndim == 4 or isinstance(inputs, LazyRows) else inputs[..., None]
