"""Small copies of odd images, and which splits have any."""

from __future__ import annotations

import numpy as np

from dubio.runner.thumbnails import png, small_copy


def test_a_very_long_image_keeps_a_pixel() -> None:
    copy = small_copy(np.full((2, 1000, 3), 7, dtype=np.uint8))
    assert copy.shape == (1, 62, 3)
    assert (copy == 7).all()
    assert png(copy).startswith(b"\x89PNG")
