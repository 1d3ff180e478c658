"""One file to one picture: any mode that cameras and archives write, as plain red, green and blue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SPARE = 1.5
"""A jpeg may be decoded at a half, a quarter or an eighth of its size, as long as so many times the wanted size is
left: what is thrown away would not survive the resizing."""

_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_SEE_THROUGH = ("RGBA", "LA", "PA", "La", "RGBa")


class Unreadable(Exception):
    """A file that holds no picture one could use; the words say why."""


def pillow() -> Any:
    """The module ``PIL.Image``.

    Raises:
        MissingExtra: When Pillow is not installed.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as missing:
        raise MissingExtra("images", "train") from missing
    return Image


def open_picture(path: Path, size: int) -> Picture:
    """The picture in a file as RGB, upright, at least :data:`SPARE` times as large as ``size`` where it was.

    Raises:
        Unreadable: When it is empty, cut off, of no known sort, or absurdly large.
    """
    image_module = pillow()
    from PIL import ImageOps

    try:
        if path.stat().st_size == 0:
            raise Unreadable("the file is empty")
        with image_module.open(path) as image:
            if image.format == "JPEG":
                least = SPARE * size / max(1, min(image.size))
                image.draft(None, (int(image.width * least) + 1, int(image.height * least) + 1))
            image.load()
            upright = ImageOps.exif_transpose(image)
            return _plain(upright if upright is not None else image, image_module)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        raise Unreadable(str(fault) or type(fault).__name__) from fault


def _plain(image: Any, image_module: Any) -> Picture:
    """RGB of any mode; 16-bit levels are divided, not cut off, and what is transparent becomes black."""
    if image.mode == "F":
        raise Unreadable("its levels are fractions without a known range")
    if image.mode in _SIXTEEN_BIT:
        levels = np.clip(np.rint(np.asarray(image, dtype=np.float64) / 257), 0, 255).astype(np.uint8)
        image = image_module.fromarray(levels)
    if image.mode in _SEE_THROUGH or "transparency" in image.info:
        layered = image.convert("RGBA")
        black = image_module.new("RGBA", layered.size, (0, 0, 0, 255))
        image = image_module.alpha_composite(black, layered)
    made: Picture = image.convert("RGB")
    return made
