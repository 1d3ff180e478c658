"""Store thumbnails of the images that a report may show: the most and least certain ones of every method's first run.

They are chosen and stored while the data is in memory, so that a report that is written later, from the store alone,
can show them. Rows belong to a split's fingerprint, so that runs on the same data share their thumbnails.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import DubioError
from dubio.core.types import IntArray, Split
from dubio.metrics.quantities import extreme_rows
from dubio.runner.prepare import PreparedTask
from dubio.store import Store

SHOWN = 6
"""Examples of each kind: certain and right, certain and wrong, uncertain and right, uncertain and wrong."""

MOST = 400
"""Largest number of thumbnails of a split."""

SIDE = 64
"""Largest side of a thumbnail in pixels; smaller images keep their size."""


def store_thumbnails(store: Store, tasks: Iterable[PreparedTask], runs: Sequence[Mapping[str, Any]]) -> None:
    """Store thumbnails of the images that the runs were most and least certain about.

    Args:
        store: Holds the predictions and receives the thumbnails.
        tasks: The tasks that were run; those without images are passed over.
        runs: The runs as the manifest lists them.
    """
    for task in tasks:
        if task.task.inputs == "image":
            first = _first_runs(runs, task)
            for split in _shown_splits(task):
                rows = _extreme_rows(store, split, first)
                images = (np.asarray(split.data.take(np.array([row])).inputs)[0] for row in rows)
                pictures = {int(row): thumbnail(image) for row, image in zip(rows, images, strict=True)}
                store.write_pictures(split.fingerprint, pictures)


def thumbnail(image: NDArray[np.uint8]) -> bytes:
    """Return an image ``[H, W, C]`` of one or three channels as a small PNG; a pixel is the mean of a block."""
    from PIL import Image

    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    factor = -(-max(picture.size) // SIDE)
    sink = io.BytesIO()
    (picture.reduce(factor) if factor > 1 else picture).save(sink, "PNG", optimize=True)
    return sink.getvalue()


def _first_runs(runs: Sequence[Mapping[str, Any]], task: PreparedTask) -> list[str]:
    """Return the prediction ids of each method's first run on a task."""
    first: dict[str, str] = {}
    for run in runs:
        if (run["task"], run["network"]) == (task.name, task.entry.network):
            first.setdefault(run["method"], run["id"])
    return list(first.values())


def _shown_splits(task: PreparedTask) -> list[Split]:
    """Return the in-domain test split and the shifted ones, without severities of a corruption: the same images."""
    shifted = [split for split in task.task.of_kind("shift") if split.severity is None]
    return [*task.task.of_kind("id")[:1], *shifted]


def _extreme_rows(store: Store, split: Split, predictions: Sequence[str]) -> IntArray:
    """Return the extreme rows of these predictions; unreadable ones are passed over, the report will name them."""
    rows: list[IntArray] = []
    for pred_id in predictions:
        try:
            rows.append(extreme_rows(store.read_predictions(pred_id, split.name, split.fingerprint), count=SHOWN).rows)
        except DubioError:
            continue
    return np.unique(np.concatenate(rows))[:MOST] if rows else np.empty(0, dtype=np.int64)
