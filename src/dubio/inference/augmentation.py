"""Augmentation on tensors: random views of images, as pure functions of uniform draws.

The same views serve training (draws from a generator) and test-time augmentation (draws given by block, so that they do
not depend on the batch).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Generator, Tensor

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.types import Modality


class Augmentation(Protocol):
    """An augmentation as a slot value.

    Attributes:
        inputs: The modality it is for.
        width: Uniform draws an example needs.
    """

    inputs: ClassVar[Modality]
    width: ClassVar[int]

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """A view of each example, from draws ``[B, width]``."""
        ...


@part("shift_flip")
@dataclass(frozen=True)
class ShiftFlip:
    """A shift by up to ``pixels`` in each direction, and a left-right flip with probability ``flip``.

    It is the usual random crop of an image padded by that many pixels, all places being equally likely. What is
    shifted in is zero, the mean of a standardised image, as where the padding comes after standardisation; where it
    comes before, the border is black.
    """

    pixels: int = 1
    flip: float = 0.0

    inputs: ClassVar[Modality] = "image"
    width: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if self.pixels < 0:
            raise UserError(f"shift_flip: pixels must be at least 0; given {self.pixels}.")
        if not 0.0 <= self.flip <= 1.0:
            raise UserError(f"shift_flip: flip must lie between 0 and 1; given {self.flip}.")

    def apply(self, batch: Tensor, uniforms: Tensor) -> Tensor:
        """Shifted and flipped images, ``[B, C, H, W]``."""
        rows, channels, height, width = batch.shape
        padded = torch.nn.functional.pad(batch, [self.pixels] * 4)
        shifts = torch.floor(uniforms[:, :2] * (2 * self.pixels + 1)).to(torch.long)
        down = shifts[:, :1] + torch.arange(height, device=batch.device)
        along = torch.arange(width, device=batch.device).expand(rows, width)
        flipped = (uniforms[:, 2:] < self.flip).expand(rows, width)
        right = shifts[:, 1:2] + torch.where(flipped, width - 1 - along, along)
        # one gather over flat positions: three times as fast as four indices
        places = (down[:, :, None] * padded.shape[-1] + right[:, None, :]).reshape(rows, 1, height * width)
        return padded.flatten(2).gather(2, places.expand(-1, channels, -1)).reshape(batch.shape)


@part("views")
@dataclass(frozen=True)
class Views:
    """Test-time augmentation: each sample sees ``each`` random views; 1 leaves the test-time budget as it is."""

    augmentation: Augmentation
    each: int = 1

    def __post_init__(self) -> None:
        if self.each < 1:
            raise UserError(f"views: each must be at least 1; given {self.each}.")


def augmented(augmentation: Augmentation | None, batch: Tensor, generator: Generator) -> Tensor:
    """A random training view of each example, or the batch as it is."""
    if augmentation is None:
        return batch
    uniforms = torch.rand(len(batch), augmentation.width, generator=generator)
    return augmentation.apply(batch, uniforms.to(batch.device))
