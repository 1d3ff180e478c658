"""Images and table rows that are nearly the same: a small distance, found by blocked matrix products.

Images are compared as grey thumbnails of at most 16×16 (block means), and are near when those differ by at most two
grey levels, root mean square: a copy saved again or resized is found, another picture of the same thing is not. Table
rows are compared after standardising columns with the mean and deviation of the first split (missing values at the
mean), and are near when they differ by at most 0.01 deviations, root mean square.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.lazy_rows import LazyRows
from dubio.core.types import IntArray

Points = NDArray[np.float64]

SIDE = 16
IMAGE_TOLERANCE = 2.0
TABLE_TOLERANCE = 0.01
_BLOCK = 512


def thumbnails(images: NDArray[np.uint8] | LazyRows) -> Points:
    """Grey block means ``[N, h·w]`` of images ``[N, H, W, C]``, h and w at most 16."""
    count, height, width = images.shape[:3]
    rows = np.linspace(0, height, min(height, SIDE) + 1).astype(int)
    columns = np.linspace(0, width, min(width, SIDE) + 1).astype(int)
    areas = np.diff(rows)[:, None] * np.diff(columns)[None, :]
    made = np.empty((count, len(rows) - 1, len(columns) - 1))
    for start in range(0, count, _BLOCK):
        block = images[start : start + _BLOCK].astype(np.float32)
        grey = block if block.ndim == 3 else block.mean(axis=3)
        summed = np.add.reduceat(np.add.reduceat(grey, rows[:-1], axis=1), columns[:-1], axis=2)
        made[start : start + _BLOCK] = summed / areas
    return made.reshape(count, -1)


def standardised(values: NDArray[Any], reference: NDArray[Any]) -> Points:
    """Columns in deviations of the reference rows; missing values and constant columns become 0."""
    known = np.where(np.isnan(reference), 0.0, reference)
    count = np.maximum((~np.isnan(reference)).sum(axis=0), 1)
    mean = known.sum(axis=0) / count
    deviation = np.sqrt(np.where(np.isnan(reference), 0.0, np.square(reference - mean)).sum(axis=0) / count)
    points = (values - mean) / np.where(deviation > 0, deviation, 1.0)
    return np.where(np.isnan(points), 0.0, points)


def near_points(earlier: Points, later: Points, tolerance: float) -> IntArray:
    """For each later point the nearest earlier one within the root mean square tolerance, or −1."""
    centre = earlier.mean(axis=0)  # far from zero, the expanded square would cancel
    fixed, moved = earlier - centre, later - centre
    lengths = np.square(fixed).sum(axis=1)
    best = np.full(len(later), -1, dtype=np.int64)
    limit = tolerance**2 * earlier.shape[1]
    for start in range(0, len(later), _BLOCK):
        block = moved[start : start + _BLOCK]
        nearest = np.argmin(lengths - 2 * block @ fixed.T, axis=1)
        # the product only ranks; whether the nearest is near is decided by the difference itself
        near = np.square(block - fixed[nearest]).sum(axis=1) <= limit
        best[start : start + _BLOCK] = np.where(near, nearest, -1)
    return best
