"""Small copies of images as PNG files, written with nothing but the standard library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIDE = 64
"""Pixels that the longer side of a small copy has at most; smaller images stay as they are."""

_COLOUR_TYPE = {1: 0, 3: 2}
"""Channels → PNG's number for grey and for colour."""


def small_copy(image: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.uint8]:
    """An image ``[H, W, C]`` of at most ``side`` pixels a side, each the mean of a block of the old ones."""
    height, width, channels = image.shape
    step = -(-max(height, width) // side)
    if step == 1:
        return image
    down, across = min(step, height), min(step, width)  # a very long image stays one pixel wide
    rows, columns = height - height % down, width - width % across
    blocks = image[:rows, :columns].reshape(rows // down, down, columns // across, across, channels)
    return np.asarray(np.rint(blocks.mean(axis=(1, 3))), dtype=np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    """An image ``[H, W, C]`` of one or three channels as a PNG file, the same bytes every time."""
    height, width, channels = image.shape
    lines = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # every line begins with its filter, 0 for none
    lines[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPE[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
