"""Thumbnails: a PNG of the same pixels, or of the means of blocks."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from dubio.runner.benchmark_run import thumbnail


def decoded(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_read_back_as_it_was(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    assert (decoded(thumbnail(image)).reshape(image.shape) == image).all()
    assert thumbnail(image) == thumbnail(image)


def test_a_small_copy_averages_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 256, (130, 90, 3), dtype=np.uint8)
    small = decoded(thumbnail(image))
    assert small.shape == (44, 30, 3)
    assert small[2, 1] == pytest.approx(image[6:9, 3:6].mean(axis=(0, 1)), abs=0.51)
    assert (decoded(thumbnail(image[:64, :64])) == image[:64, :64]).all()


def test_a_very_long_image_keeps_a_pixel() -> None:
    small = decoded(thumbnail(np.full((2, 1000, 3), 7, dtype=np.uint8)))
    assert small.shape == (1, 63, 3)
    assert (small == 7).all()
