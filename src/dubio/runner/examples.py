"""Store examples of the test splits of a run: what a report, written later from the store alone, may show of the data.

Rows belong to a split's fingerprint, so that runs on the same data share their examples.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions
from dubio.core.types import Split, Task
from dubio.reporting.example_rows import rows_to_store
from dubio.reporting.manifest_view import FEW_CORRUPTIONS, printable
from dubio.runner.prepare import PreparedTask
from dubio.store import Store
from dubio.store.examples import MOST_CELLS, Content

LONGEST_SIDE = 64
"""Largest side of a thumbnail in pixels; smaller images keep their size."""


def store_examples(
    store: Store, tasks: Iterable[PreparedTask], runs: Sequence[Mapping[str, Any]], completed: Collection[str]
) -> None:
    """Store examples of the test splits: those that say most about each method's first run, and a random sample.

    A split whose examples are in the store already is left as it is, unless one of its predictions is new.

    Args:
        store: Holds the predictions and receives the examples.
        tasks: The tasks that were run.
        runs: The runs as the manifest lists them.
        completed: Ids of the predictions that are new.
    """
    for task in tasks:
        predictions = _first_runs(runs, task)
        for split in shown_splits(task.task):
            if not set(predictions).isdisjoint(completed) or not store.read_examples(split.fingerprint):
                rows = _rows(store, split, predictions)
                store.write_examples(split.fingerprint, {row: content_of(task.task, split, row) for row in rows})


def shown_splits(task: Task) -> list[Split]:
    """Return the test splits that a report shows examples of; of a corruption its worst severity, of many none."""
    graded = [split for split in task.of_kind("shift") if split.severity is not None]
    worst = {split.family: split for split in sorted(graded, key=lambda split: split.severity or 0)}
    shown = list(worst.values()) if len(worst) <= FEW_CORRUPTIONS else []
    tests = [*task.of_kind("id")[:1], *task.of_kind("shift", "ood")]
    return [split for split in tests if split not in graded or split in shown]


def _first_runs(runs: Sequence[Mapping[str, Any]], task: PreparedTask) -> list[str]:
    """Return the prediction ids of each method's first run on a task."""
    own = [run for run in runs if (run["task"], run["network"]) == (task.name, task.entry.network)]
    return list({run["method"]: run["id"] for run in reversed(own)}.values())


def _rows(store: Store, split: Split, predictions: Sequence[str]) -> list[int]:
    """Return the rows to store; predictions that cannot be read are passed over, the report will name them."""

    def read() -> Iterator[Predictions]:
        for pred_id in predictions:
            with suppress(DubioError):
                yield store.read_predictions(pred_id, split.name, split.fingerprint)

    return rows_to_store(read(), split.data.labels, split.fingerprint)


def content_of(task: Task, split: Split, row: int) -> Content:
    """Return a row as it is shown: its text, its image as a thumbnail, or its columns."""
    (example,) = split.data.take(np.array([row])).inputs
    if isinstance(example, str):
        return printable(example)
    if task.inputs == "image":
        return thumbnail(np.asarray(example))
    values = np.ravel(example)[:MOST_CELLS].tolist()
    names = task.features or tuple(f"x{column}" for column in range(len(values)))
    return {printable(name): f"{value:.6g}" for name, value in zip(names, values, strict=False)}


def thumbnail(image: NDArray[np.uint8]) -> bytes:
    """Return an image ``[H, W, C]`` of one or three channels as a small PNG; a pixel is the mean of a block."""
    from PIL import Image

    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    factor = -(-max(picture.size) // LONGEST_SIDE)
    sink = io.BytesIO()
    (picture.reduce(factor) if factor > 1 else picture).save(sink, "PNG", optimize=True)
    return sink.getvalue()
