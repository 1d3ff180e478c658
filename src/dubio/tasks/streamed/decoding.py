"""One file to one square: the shorter side resized, the centre cut out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.tasks.fundus.opening import Unreadable, pillow

_TAIL = 4096
_END = b"\xff\xd9"


@dataclass(frozen=True)
class Square:
    """How a photograph becomes a square of pixels.

    Attributes:
        shorter: What its shorter side is resized to (bilinear, smoothed).
        size: Both sides of the square that is cut out of the centre.
    """

    shorter: int
    size: int

    def __post_init__(self) -> None:
        if not 8 <= self.size <= self.shorter:
            raise UserError(
                f"size must be at least 8 and at most shorter, the side that is resized; given {self.size} and "
                f"{self.shorter}."
            )


def decoded(path: Path, square: Square) -> NDArray[np.uint8]:
    """The photograph in a file as uint8 ``[size, size, 3]``, whatever its mode (grey, palette, CMYK).

    Raises:
        Unreadable: When it cannot be decoded.
    """
    image_module = pillow()
    try:
        with image_module.open(path) as image:
            colour = image.convert("RGB")
            scale = square.shorter / min(colour.size)
            width, height = (max(square.shorter, int(side * scale)) for side in colour.size)
            resized = colour.resize((width, height), image_module.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        raise Unreadable(str(fault) or type(fault).__name__) from fault
    left, top = round((width - square.size) / 2), round((height - square.size) / 2)
    return np.asarray(resized.crop((left, top, left + square.size, top + square.size)), dtype=np.uint8)


def fault_of(path: Path, *, whole: bool) -> str | None:
    """Why a file cannot be used, or None.

    Args:
        path: The file.
        whole: Decode it. Otherwise its head is read, and of a jpeg whether its last bytes are those of a jpeg; only
            where they are not is it decoded.
    """
    image_module = pillow()
    try:
        if path.stat().st_size == 0:
            return "the file is empty"
        with image_module.open(path) as image:
            if whole or (image.format == "JPEG" and not _ends(path)):
                image.load()
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        words = str(fault) or type(fault).__name__
        return words.replace(f" {str(path)!r}", "")  # the place of the folder is not part of what is wrong
    return None


def _ends(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return _END in file.read()
