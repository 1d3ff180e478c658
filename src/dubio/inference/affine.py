"""Random affine views of images: zoom, shift, rotation and flips, one affine grid an image, bilinear.

With pixel coordinates p measured from the image's centre, the view at p is the image at

    (F R(a) p)/z + t,    F = diag(±1, ±1), z uniform in 1 ± zoom, a in ± degrees, t in ± (pixels + fraction · side),

what lies outside being zero, the mean of a standardised image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.types import Modality


@part("affine")
@dataclass(frozen=True)
class Affine:
    """A random affine view of each image (retina paper: zoom 10 %, shift 25 of 512 pixels, any rotation, flips).

    Attributes:
        zoom: The image grows or shrinks by up to this fraction.
        pixels: Shift in each direction, at most.
        degrees: Rotation either way, at most.
        flip: Probability that left and right change places.
        flip_vertical: Probability that top and bottom do.
        fraction: Shift in each direction, at most, as a share of the side: the same for images of any size.
    """

    zoom: float = 0.0
    pixels: float = 0.0
    degrees: float = 0.0
    flip: float = 0.0
    flip_vertical: float = 0.0
    fraction: float = added(0.0)

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 6

    def __post_init__(self) -> None:
        if not 0.0 <= self.zoom < 1.0:
            raise UserError(f"affine: zoom must be at least 0 and less than 1; given {self.zoom}.")
        if self.pixels < 0.0:
            raise UserError(f"affine: pixels must be at least 0; given {self.pixels}.")
        if not 0.0 <= self.fraction < 1.0:
            raise UserError(f"affine: fraction must be at least 0 and less than 1; given {self.fraction}.")
        if not 0.0 <= self.degrees <= 180.0:
            raise UserError(f"affine: degrees must lie between 0 and 180; given {self.degrees}.")
        for name in ("flip", "flip_vertical"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"affine: {name} must lie between 0 and 1; given {getattr(self, name)}.")

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Views of images ``[B, C, H, W]`` from draws ``[B, 6]``: zoom, rows, columns, angle, both flips."""
        height, width = batch.shape[-2:]
        grid = affine_grid(self.maps(uniforms, height, width), height, width)
        return functional.grid_sample(batch, grid, mode="bilinear", padding_mode="zeros", align_corners=False)

    def maps(self, uniforms: Tensor, height: int, width: int) -> Tensor:
        """The affine maps ``[B, 2, 3]`` from places of a view to places of its image, in units of half a side."""
        either = 2.0 * uniforms[:, :4] - 1.0
        scale = 1.0 / (1.0 + self.zoom * either[:, 0])
        angle = math.radians(self.degrees) * either[:, 3]
        across = torch.where(uniforms[:, 4] < self.flip, -scale, scale)
        down = torch.where(uniforms[:, 5] < self.flip_vertical, -scale, scale)
        cos, sin, ratio = torch.cos(angle), torch.sin(angle), height / width
        right, low = (2.0 * (self.pixels / side + self.fraction) for side in (width, height))
        rows = (
            torch.stack([across * cos, -across * sin * ratio, right * either[:, 2]], dim=1),
            torch.stack([down * sin / ratio, down * cos, low * either[:, 1]], dim=1),
        )
        return torch.stack(rows, dim=1)


def affine_grid(maps: Tensor, height: int, width: int) -> Tensor:
    """Where each pixel of a view looks, ``[B, H, W, 2]`` as (x, y): torch's own grid, as sums instead of a product."""
    across = (2.0 * torch.arange(width, device=maps.device) + 1.0) / width - 1.0
    down = (2.0 * torch.arange(height, device=maps.device) + 1.0) / height - 1.0
    grid = maps.new_empty(len(maps), height, width, 2)
    for axis in range(2):
        by_column = maps[:, axis, :1] * across
        by_row = maps[:, axis, 1:2] * down + maps[:, axis, 2:]
        torch.add(by_column[:, None, :], by_row[:, :, None], out=grid[..., axis])
    return grid
