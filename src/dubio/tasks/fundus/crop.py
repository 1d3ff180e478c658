"""Find the disc of the eye in a photograph, and crop it.

A fundus camera leaves a bright disc on a black ground, often cut off above and below. The disc is the largest connected
region brighter than the ground; the crop is the square around it, black where the disc is cut off, so that eyes have
one size and their circles stay circles whatever the camera. Where no ground is visible in any corner, the photograph
was cropped already and is used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dubio.tasks.images.files import ProblemKind, Unreadable, check_pixels, pillow

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SEARCH_SIZE = 256
"""Pixels of the longer side at which the disc is searched for."""

DARK = 20.0
"""Mean brightness (of 255) below which a photograph is very dark."""

_FLOOR = 12.0  # brightness that noise in a black ground reaches
_RISE = 0.1  # of the way from the ground to the brightest percent, where the eye begins
_NO_GROUND = 0.35  # a darkest corner this bright, of the brightest percent, is no ground
_FLAT = 2.0  # deviation below which a picture shows nothing
_LEAST_AREA, _LEAST_FILL, _MOST_STRETCH = 0.1, 0.5, 2.0  # of the picture; of its box; longer to shorter side
_LEAST_CHORD = 0.03  # of the region's longer side: a thinner line is a scratch or lettering, not the eye


@dataclass(frozen=True)
class Disc:
    """The disc of an eye in a photograph.

    Attributes:
        box: Left, top, right and bottom of the crop, in pixels of the photograph.
        problem: ``no disc`` or ``too dark``, if either; the box is then the complete photograph or the dark disc.
    """

    box: tuple[float, float, float, float]
    problem: ProblemKind | None = None


def find_disc(image: Picture) -> Disc:
    """Find the disc in an RGB photograph."""
    step = max(1, round(max(image.size) / SEARCH_SIZE))
    small = np.asarray(image.reduce(step) if step > 1 else image)
    # channel by channel: over the last axis numpy would go pixel by pixel
    brightness = np.maximum(np.maximum(small[..., 0], small[..., 1]), small[..., 2]).astype(np.float32)
    frame = (0.0, 0.0, float(image.width), float(image.height))
    bright = float(np.percentile(brightness, 99))
    if bright < DARK:
        return Disc(frame, "too dark")
    if float(brightness.std()) < _FLAT:
        return Disc(frame, "no disc")
    ground = _ground(brightness)
    if ground > _NO_GROUND * bright:
        return Disc(frame, "too dark" if brightness.mean() < DARK else None)
    region = _largest(brightness > max(_FLOOR, ground + _RISE * (bright - ground)))
    edges = None if region is None else _box(region)
    if region is None or edges is None:
        return Disc(frame, "no disc")
    x0, y0, x1, y1 = (step * edge for edge in edges)
    box = (x0, y0, min(x1, frame[2]), min(y1, frame[3]))
    return Disc(box, "too dark" if brightness[region].mean() < DARK else None)


def crop_square(image: Picture, box: tuple[float, float, float, float], size: int) -> NDArray[np.uint8]:
    """Return the smallest square around a box, black where it leaves the photograph, as uint8 ``[size, size, 3]``.

    Raises:
        Unreadable: When the square is absurdly large, as around a photograph of one row.
    """
    x0, y0, x1, y1 = box
    side = max(x1 - x0, y1 - y0)
    x, y = (x0 + x1 - side) / 2, (y0 + y1 - side) / 2
    corners = (round(x), round(y), round(x + side), round(y + side))
    smooth = pillow().Resampling.BILINEAR
    if corners[0] >= 0 and corners[1] >= 0 and corners[2] <= image.width and corners[3] <= image.height:
        resized = image.resize((size, size), smooth, box=corners, reducing_gap=3.0)
    else:
        check_pixels(corners[2] - corners[0], corners[3] - corners[1])
        try:
            resized = image.crop(corners).resize((size, size), smooth, reducing_gap=3.0)
        except pillow().DecompressionBombError as fault:
            raise Unreadable(str(fault)) from fault
    return np.asarray(resized, dtype=np.uint8)


def _ground(brightness: NDArray[np.float32]) -> float:
    """Return the brightness of the darkest corner."""
    side = max(1, min(brightness.shape) // 20)
    rows, columns = (slice(side), slice(-side, None)), (slice(side), slice(-side, None))
    return min(float(np.median(brightness[row, column])) for row in rows for column in columns)


def _largest(mask: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Return the largest connected region of a mask."""
    from scipy import ndimage

    regions, count = ndimage.label(mask)
    if count == 0:
        return None
    sizes = np.bincount(regions.ravel())
    sizes[0] = 0
    return np.asarray(regions == int(sizes.argmax()))


def _box(region: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """Return the box of a region as wide as an eye's chords are, or None where the region is no disc."""
    down, across = region.sum(axis=1), region.sum(axis=0)
    least = _LEAST_CHORD * max(down.max(), across.max())
    rows, columns = np.flatnonzero(down > least), np.flatnonzero(across > least)
    x0, y0, x1, y1 = (int(v) for v in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    width, height = x1 - x0, y1 - y0
    fill = region[y0:y1, x0:x1].mean()
    stretched = max(width, height) > _MOST_STRETCH * min(width, height)
    if region.mean() < _LEAST_AREA or fill < _LEAST_FILL or stretched:
        return None
    return x0, y0, x1, y1
