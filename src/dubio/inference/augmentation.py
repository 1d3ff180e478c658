"""Augmentation on tensors: random views of images, as pure functions of uniform draws.

The same views serve training (draws from a generator) and test-time augmentation (draws given by block, so that they do
not depend on the batch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional

from dubio.core.specs import added, part
from dubio.core.types import Modality
from dubio.core.validate import NonNegative, NonNegativeFloat, Positive, Share, above, at_least, at_most, below, between

TRIES = 10
"""Pairs of area and ratio that a resized crop tries."""


class Augmentation(Protocol):
    """An augmentation as a slot value.

    Attributes:
        inputs: The modality it is for.
        width: Uniform draws per example.
    """

    inputs: ClassVar[Modality]
    width: ClassVar[int]

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Return a view of each example, from draws ``[B, width]``."""


@part("shift_flip")
@dataclass(frozen=True)
class ShiftFlip:
    """A shift by up to ``pixels`` in each direction, and a left-right flip with probability ``flip``.

    It is the usual random crop of an image padded by ``pixels``, all positions being equally likely. Pixels that are
    shifted in are zero, the mean of a standardised image, as with padding after standardisation; with padding before
    it, the border would be black.
    """

    pixels: NonNegative = 1
    flip: Share = 0.0

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 3

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Return shifted and flipped images, ``[B, C, H, W]``."""
        rows, channels, height, width = batch.shape
        padded = functional.pad(batch, [self.pixels] * 4)
        shifts = torch.floor(uniforms[:, :2] * (2 * self.pixels + 1)).to(torch.long)
        down = shifts[:, :1] + torch.arange(height, device=batch.device)
        along = torch.arange(width, device=batch.device).expand(rows, width)
        flipped = (uniforms[:, 2:] < self.flip).expand(rows, width)
        right = shifts[:, 1:2] + torch.where(flipped, width - 1 - along, along)
        # one gather over flat positions: three times as fast as four indices
        positions = (down[:, :, None] * padded.shape[-1] + right[:, None, :]).reshape(rows, 1, height * width)
        return padded.flatten(2).gather(2, positions.expand(-1, channels, -1)).reshape(batch.shape)


@part("affine")
@dataclass(frozen=True)
class Affine:
    """A random affine view of each image (retina paper: zoom 10 %, shift 25 of 512 pixels, any rotation, flips).

    With pixel coordinates p measured from the image's centre, the view at p is, by bilinear interpolation, the image at

        (F R(a) p)/z + t,    F = diag(±1, ±1), z uniform in 1 ± zoom, a in ± degrees, t in ± (pixels + fraction · side).

    Pixels outside are zero, the mean of a standardised image.

    Attributes:
        zoom: Largest relative change of size.
        pixels: Largest shift in each direction.
        degrees: Largest rotation in either direction.
        flip: Probability of a left-right flip.
        flip_vertical: Probability of a top-bottom flip.
        fraction: Largest shift in each direction as a fraction of the side, for images of any size.
    """

    zoom: Annotated[float, at_least(0), below(1)] = 0.0
    pixels: NonNegativeFloat = 0.0
    degrees: Annotated[float, between(0, 180)] = 0.0
    flip: Share = 0.0
    flip_vertical: Share = 0.0
    fraction: Annotated[float, at_least(0), below(1)] = added(0.0)

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 6

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Return views of images ``[B, C, H, W]`` from draws ``[B, 6]``: zoom, rows, columns, angle, both flips."""
        return sample_view(batch, self.maps(uniforms, *batch.shape[-2:]), "zeros")

    def maps(self, uniforms: Tensor, height: int, width: int) -> Tensor:
        """Return the affine maps ``[B, 2, 3]`` from coordinates of a view to those of its image, in half sides."""
        signed = 2.0 * uniforms[:, :4] - 1.0
        scale = 1.0 / (1.0 + self.zoom * signed[:, 0])
        angle = math.radians(self.degrees) * signed[:, 3]
        across = torch.where(uniforms[:, 4] < self.flip, -scale, scale)
        down = torch.where(uniforms[:, 5] < self.flip_vertical, -scale, scale)
        cos, sin, ratio = torch.cos(angle), torch.sin(angle), height / width
        right, low = (2.0 * (self.pixels / side + self.fraction) for side in (width, height))
        rows = (
            torch.stack([across * cos, -across * sin * ratio, right * signed[:, 2]], dim=1),
            torch.stack([down * sin / ratio, down * cos, low * signed[:, 1]], dim=1),
        )
        return torch.stack(rows, dim=1)


def sample_view(batch: Tensor, maps: Tensor, padding: str) -> Tensor:
    """Return the views of images ``[B, C, H, W]`` under affine maps, by bilinear interpolation."""
    grid = affine_grid(maps, *batch.shape[-2:])
    return functional.grid_sample(batch, grid, mode="bilinear", padding_mode=padding, align_corners=False)


def affine_grid(maps: Tensor, height: int, width: int) -> Tensor:
    """Return the image coordinates of each pixel of a view, ``[B, H, W, 2]`` as (x, y).

    It is torch's own grid, computed by sums instead of a product.
    """
    across = (2.0 * torch.arange(width, device=maps.device) + 1.0) / width - 1.0
    down = (2.0 * torch.arange(height, device=maps.device) + 1.0) / height - 1.0
    grid = maps.new_empty(len(maps), height, width, 2)
    for axis in range(2):
        by_column = maps[:, axis, :1] * across
        by_row = maps[:, axis, 1:2] * down + maps[:, axis, 2:]
        torch.add(by_column[:, None, :], by_row[:, :, None], out=grid[..., axis])
    return grid


@part("resized_crop")
@dataclass(frozen=True)
class ResizedCrop:
    """A random crop of each image, resized to the image's own size: the training view of ImageNet networks.

    The fraction a of the image's area H·W is uniform between ``area`` and 1, the logarithm of the ratio r of width to
    height uniform between ± log ``ratio``. Of ten such pairs the first is taken whose sides √(a H W/r) and √(a H W r)
    fit into the image, the whole image if none does (which hardly ever happens to square ones). The crop's position is
    uniform, and it is flipped with probability ``flip``.

    Sides and positions are real numbers of pixels, and the view is read by bilinear interpolation. A crop is never
    larger than its view, so that no pixels are skipped.

    Attributes:
        area: Smallest fraction of the image's area in a crop.
        ratio: Largest ratio of a crop's sides, either way.
        flip: Probability of a left-right flip.
    """

    area: Annotated[float, above(0), at_most(1)] = 0.08
    ratio: Annotated[float, at_least(1)] = 4.0 / 3.0
    flip: Share = 0.5

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 2 * TRIES + 3

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Return views of images ``[B, C, H, W]`` from draws ``[B, 23]``: ten areas, ten ratios, row, column, flip."""
        return sample_view(batch, self.maps(uniforms, *batch.shape[-2:]), "border")

    def maps(self, uniforms: Tensor, height: int, width: int) -> Tensor:
        """Return the affine maps ``[B, 2, 3]`` from coordinates of a view to those of its image, in half sides."""
        down, across = self.sides(uniforms, width / height)
        low, right, flips = uniforms[:, -3:].unbind(1)
        rows = torch.zeros(len(uniforms), 2, 3, device=uniforms.device)
        rows[:, 0, 0] = torch.where(flips < self.flip, -across, across)
        rows[:, 0, 2] = (1.0 - across) * (2.0 * right - 1.0)
        rows[:, 1, 1] = down
        rows[:, 1, 2] = (1.0 - down) * (2.0 * low - 1.0)
        return rows

    def sides(self, uniforms: Tensor, shape: float) -> tuple[Tensor, Tensor]:
        """Return height and width of the crops ``[B]`` relative to the image, whose width is ``shape`` · its height."""
        areas = self.area + (1.0 - self.area) * uniforms[:, :TRIES]
        ratios = torch.exp(math.log(self.ratio) * (2.0 * uniforms[:, TRIES : 2 * TRIES] - 1.0)) / shape
        tried = torch.stack([torch.sqrt(areas / ratios), torch.sqrt(areas * ratios)])
        fits = (tried <= 1.0).all(dim=0)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True).expand(2, -1, -1)
        down, across = torch.where(fits.any(dim=1), tried.gather(2, first).squeeze(2), 1.0)
        return down, across


@part("views")
@dataclass(frozen=True)
class Views:
    """Test-time augmentation: each sample sees ``each`` random views; 1 does not change the test-time cost."""

    augmentation: Augmentation
    each: Positive = 1


def augment(augmentation: Augmentation | None, batch: Tensor, generator: Generator) -> Tensor:
    """Return a random training view of each example, or the batch as it is."""
    if augmentation is None:
        return batch
    uniforms = torch.rand(len(batch), augmentation.width, generator=generator)
    return augmentation.apply(batch, uniforms.to(batch.device))
