"""Random resized crops: a part of the image of random size, shape and place, seen as large as the whole.

The training view of ImageNet networks. The share a of the image's area H·W is uniform between ``area`` and 1, the
logarithm of the ratio r of width to height uniform between ± log ``ratio``; of up to ten such pairs the first is taken
whose sides √(a H W/r) and √(a H W r) fit into the image, the whole image if none does (which hardly ever happens to
square ones). Its place is uniform, and it is flipped with probability ``flip``.

The sides and places are real numbers of pixels, not whole ones, and the view is read by bilinear interpolation. A crop
is never larger than its view, so that nothing is skipped between the pixels that are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Modality
from dubio.inference.affine import affine_grid

TRIES = 10
"""Pairs of area and ratio that are looked at."""


@part("resized_crop")
@dataclass(frozen=True)
class ResizedCrop:
    """A random crop of each image, resized to the image's own size.

    Attributes:
        area: The smallest share of the image's area that a crop shows.
        ratio: The largest ratio of a crop's sides, either way.
        flip: Probability that left and right change places.
    """

    area: float = 0.08
    ratio: float = 4.0 / 3.0
    flip: float = 0.5

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 2 * TRIES + 3

    def __post_init__(self) -> None:
        if not 0.0 < self.area <= 1.0:
            raise UserError(f"resized_crop: area must be above 0 and at most 1; given {self.area}.")
        if not self.ratio >= 1.0:
            raise UserError(f"resized_crop: ratio must be at least 1; given {self.ratio}.")
        if not 0.0 <= self.flip <= 1.0:
            raise UserError(f"resized_crop: flip must lie between 0 and 1; given {self.flip}.")

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Views of images ``[B, C, H, W]`` from draws ``[B, 23]``: ten areas, ten ratios, row, column, flip."""
        height, width = batch.shape[-2:]
        grid = affine_grid(self.maps(uniforms, height, width), height, width)
        return functional.grid_sample(batch, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def maps(self, uniforms: Tensor, height: int, width: int) -> Tensor:
        """The affine maps ``[B, 2, 3]`` from places of a view to places of its image, in units of half a side."""
        down, across = self.sides(uniforms, width / height)
        low, right, flips = uniforms[:, -3:].unbind(1)
        rows = torch.zeros(len(uniforms), 2, 3, device=uniforms.device)
        rows[:, 0, 0] = torch.where(flips < self.flip, -across, across)
        rows[:, 0, 2] = (1.0 - across) * (2.0 * right - 1.0)
        rows[:, 1, 1] = down
        rows[:, 1, 2] = (1.0 - down) * (2.0 * low - 1.0)
        return rows

    def sides(self, uniforms: Tensor, shape: float) -> tuple[Tensor, Tensor]:
        """Height and width of the crops ``[B]`` in units of the image's, whose width is ``shape`` times its height."""
        areas = self.area + (1.0 - self.area) * uniforms[:, :TRIES]
        ratios = torch.exp(math.log(self.ratio) * (2.0 * uniforms[:, TRIES : 2 * TRIES] - 1.0)) / shape
        tried = torch.stack([torch.sqrt(areas / ratios), torch.sqrt(areas * ratios)])
        fits = (tried <= 1.0).all(dim=0)
        first = fits.to(torch.uint8).argmax(dim=1, keepdim=True).expand(2, -1, -1)
        down, across = torch.where(fits.any(dim=1), tried.gather(2, first).squeeze(2), 1.0)
        return down, across
