"""Corruptions of images in five severities, computed with numpy, scipy and Pillow.

They are dubio's own: families and names follow Hendrycks and Dietterich (2019), formulas and strengths are those of
this file, and results on them are not comparable with results on CIFAR-10-C. Lengths are shares of the shorter side,
levels shares of the range 0 … 255. All randomness of a corrupted image comes from a generator of that image alone, so
that it depends neither on its position nor on its batch.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import MappedRows, row_digests
from dubio.tasks.images.files import pillow, to_levels

Images = NDArray[np.uint8]
Generators = Sequence[np.random.Generator]
"""A generator for each image."""


@dataclass(frozen=True)
class Corruption:
    """One kind of corruption.

    Attributes:
        name: Its name; splits are called ``NAME-SEVERITY``.
        family: ``noise``, ``blur``, ``weather`` or ``digital``.
        strengths: Strengths of the five severities, weakest first.
        apply: Maps uint8 ``[B, H, W, C]``, a strength and a generator per image to uint8 of the same shape.
        version: Increase by hand whenever the same strengths come to mean other pixels; part of a fingerprint.
    """

    name: str
    family: str
    strengths: tuple[float, float, float, float, float]
    apply: Callable[[Images, float, Generators], Images]
    version: int = 1


def gaussian_noise(images: Images, deviation: float, generators: Generators) -> Images:
    """x + 255·σ·ε, ε standard normal for every pixel and channel."""
    noise = np.stack([g.standard_normal(image.shape) for image, g in zip(images, generators, strict=True)])
    return to_levels(images + 255 * deviation * noise)


def shot_noise(images: Images, photons: float, generators: Generators) -> Images:
    """255·Poisson(n·x/255)/n: n photons where the image is white; its variance there is 255²/n."""
    counts = np.stack([g.poisson(photons * (image / 255.0)) for image, g in zip(images, generators, strict=True)])
    return to_levels(255.0 * counts / photons)


def impulse_noise(images: Images, share: float, generators: Generators) -> Images:
    """A share of the values, each channel by itself, become 0 or 255 with equal probability."""
    draws = np.stack([generator.random(image.shape) for image, generator in zip(images, generators, strict=True)])
    return np.where(draws < share / 2, 0, np.where(draws > 1 - share / 2, 255, images)).astype(np.uint8)


def gaussian_blur(images: Images, deviation: float, generators: Generators) -> Images:
    """Convolution with a Gaussian of that deviation; the image is mirrored at its edges."""
    from scipy import ndimage

    sigma = deviation * _side(images)
    return to_levels(ndimage.gaussian_filter(images.astype(np.float64), (0, sigma, sigma, 0), mode="reflect"))


def defocus_blur(images: Images, radius: float, generators: Generators) -> Images:
    """Convolution with a disc of that radius, its edge in fractions of a pixel; mirrored at the edges."""
    from scipy import ndimage

    kernel = disc(radius * _side(images))
    return to_levels(ndimage.convolve(images.astype(np.float64), kernel[None, :, :, None], mode="reflect"))


def motion_blur(images: Images, length: float, generators: Generators) -> Images:
    """Convolution with a line of that length, in a direction drawn for each image; mirrored at the edges."""
    from scipy import ndimage

    blurred = np.empty(images.shape)
    for row, (image, generator) in enumerate(zip(images, generators, strict=True)):
        kernel = line(length * _side(images), generator.uniform(0, math.pi))
        blurred[row] = ndimage.convolve(image.astype(np.float64), kernel[:, :, None], mode="reflect")
    return to_levels(blurred)


def brightness(images: Images, lift: float, generators: Generators) -> Images:
    """x + 255·b, clipped at white."""
    return to_levels(images.astype(np.float64) + 255 * lift)


def fog(images: Images, density: float, generators: Generators) -> Images:
    """(1 − t)·x + t·255·(0.6 + 0.4·f): a light haze f, uniform draws on a 4×4 grid, smoothly joined."""
    from scipy import ndimage

    height, width = images.shape[1:3]
    grids = np.stack([generator.random((4, 4)) for generator in generators])
    coordinates = np.meshgrid(np.linspace(0, 3, height), np.linspace(0, 3, width), indexing="ij")
    haze = np.stack([ndimage.map_coordinates(grid, coordinates, order=1) for grid in grids])[..., None]
    return to_levels((1 - density) * images + density * 255 * (0.6 + 0.4 * haze))


def contrast(images: Images, factor: float, generators: Generators) -> Images:
    """m + c·(x − m), m the mean of the whole image."""
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    return to_levels(mean + factor * (images - mean))


def pixelate(images: Images, share: float, generators: Generators) -> Images:
    """Averaged down to that share of both sides, and enlarged again without smoothing."""
    image_module = pillow()
    height, width = images.shape[1:3]
    small = (max(1, round(share * width)), max(1, round(share * height)))
    box, nearest = image_module.Resampling.BOX, image_module.Resampling.NEAREST
    return _change_each(images, lambda picture: picture.resize(small, box).resize((width, height), nearest))


def jpeg(images: Images, quality: float, generators: Generators) -> Images:
    """Saved as a jpeg of that quality and read again (Pillow)."""
    image_module = pillow()

    def again(picture: Any) -> Any:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(quality))
        return image_module.open(file)

    return _change_each(images, again)


def _change_each(images: Images, change: Callable[[Any], Any]) -> Images:
    image_module = pillow()
    flat = images[..., 0] if images.shape[3] == 1 else images
    changed = [np.asarray(change(image_module.fromarray(image)), dtype=np.uint8) for image in flat]
    return np.stack(changed).reshape(images.shape)


def _side(images: Images) -> int:
    return int(min(images.shape[1:3]))


def disc(radius: float) -> NDArray[np.float64]:
    """Return a kernel that sums to 1: the share of each pixel that a disc of this radius, in pixels, covers."""
    reach, fine = math.ceil(radius), 32
    points = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - (reach + 0.5)
    inside = (points[:, None] ** 2 + points[None, :] ** 2 <= max(radius, 0.5) ** 2).astype(np.float64)
    shares = inside.reshape(2 * reach + 1, fine, 2 * reach + 1, fine).sum(axis=(1, 3))
    return np.asarray(shares / shares.sum())


def line(length: float, angle: float) -> NDArray[np.float64]:
    """Return a kernel that sums to 1: points on a centred line of this length, in pixels, shared by neighbours."""
    reach = math.ceil(length / 2) + 1
    along = np.linspace(-length / 2, length / 2, max(1, math.ceil(4 * length)) | 1)
    down, right = reach + along * math.sin(angle), reach + along * math.cos(angle)
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    rows, columns = np.floor(down).astype(int), np.floor(right).astype(int)
    for step_down, step_right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (1 - np.abs(down - rows - step_down)) * (1 - np.abs(right - columns - step_right))
        np.add.at(kernel, (rows + step_down, columns + step_right), weight)
    return np.asarray(kernel / kernel.sum())


CORRUPTIONS: dict[str, Corruption] = {
    item.name: item
    for item in (
        Corruption("gaussian-noise", "noise", (0.04, 0.06, 0.08, 0.11, 0.15), gaussian_noise),
        Corruption("shot-noise", "noise", (500, 250, 120, 60, 30), shot_noise),
        Corruption("impulse-noise", "noise", (0.01, 0.03, 0.06, 0.11, 0.18), impulse_noise),
        Corruption("gaussian-blur", "blur", (0.015, 0.025, 0.035, 0.05, 0.07), gaussian_blur),
        Corruption("defocus-blur", "blur", (0.025, 0.035, 0.05, 0.07, 0.1), defocus_blur),
        Corruption("motion-blur", "blur", (0.06, 0.09, 0.13, 0.18, 0.25), motion_blur),
        Corruption("brightness", "weather", (0.06, 0.12, 0.19, 0.27, 0.36), brightness),
        Corruption("fog", "weather", (0.15, 0.3, 0.45, 0.6, 0.75), fog),
        Corruption("contrast", "digital", (0.75, 0.55, 0.4, 0.28, 0.18), contrast),
        Corruption("pixelate", "digital", (0.85, 0.7, 0.6, 0.5, 0.35), pixelate),
        Corruption("jpeg", "digital", (80, 60, 40, 25, 10), jpeg),
    )
}
"""By name."""


_BLOCK = 512
"""Images corrupted at a time; it bounds the memory of the work in floating point."""


@dataclass(frozen=True, eq=False)
class CorruptedRows(MappedRows):
    """Some rows of an array of images, corrupted when they are read: fifty copies of a test set take no memory.

    The generator of an image is seeded by the seed, the corruption and the image's own content, and is the same at
    every severity: severities differ in strength alone. ``array`` holds the clean images, uint8 ``[M, H, W, C]``.

    Attributes:
        corruption: The corruption.
        severity: Its severity, 1 to 5.
        seed: Seed of the generators.
    """

    corruption: Corruption
    severity: int
    seed: int

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        """Corrupt a row (an index) or rows (a slice, a mask, an index array)."""
        chosen = np.asarray(self.rows[key])
        rows = chosen.reshape(-1)
        images = np.empty((len(rows), *self.row_shape), dtype=np.uint8)
        strength = self.corruption.strengths[self.severity - 1]
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            generators = [self._generator(row) for row in block.tolist()]
            images[start : start + _BLOCK] = self.corruption.apply(self.array[block], strength, generators)
        return images.reshape(*chosen.shape, *self.row_shape)

    def keys(self) -> list[bytes]:
        """Return a digest of each row, equal where the rows are equal; every row is computed, block by block."""
        blocks = (self[start : start + _BLOCK] for start in range(0, len(self), _BLOCK))
        return [digest.tobytes() for block in blocks for digest in row_digests(block)]

    def content(self) -> bytes:
        """Return the content for a fingerprint: the clean images, and everything that decides the corrupted ones."""
        kind = self.corruption
        settings = f"{kind.name}|{kind.version}|{kind.strengths[self.severity - 1]!r}|{self.seed}"
        return f"corrupted{self.shape}{settings}".encode() + self.digests[self.rows].tobytes()

    def _generator(self, row: int) -> np.random.Generator:
        image = int.from_bytes(self.digests[row, :16].tobytes(), "little")
        name = int.from_bytes(hashlib.sha256(self.corruption.name.encode()).digest()[:8], "little")
        return np.random.default_rng([self.seed, name, image])
