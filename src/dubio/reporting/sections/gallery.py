"""Gallery: the most and the least certain test images, classified correctly and incorrectly."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import predicted
from dubio.metrics.quantities import confidence, extreme_rows
from dubio.reporting.leaderboard import leader
from dubio.reporting.manifest_view import SplitView, TaskView, printable
from dubio.reporting.measures import REFERRED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Example, Examples, Headline, Section, Text, Visit, section

SHOWN = 6
"""Examples per row of the gallery."""

INTRODUCTION = "Extremes of predictive entropy, first run of the best method: which errors occur, not how often."

ROWS = {
    "sure_wrong": "Confident and incorrect",
    "unsure_wrong": "Uncertain and incorrect",
    "unsure_right": "Uncertain and correct",
    "sure_right": "Confident and correct",
}
"""The lists of :class:`dubio.metrics.quantities.Extremes` → their titles, the most important first."""


@section("gallery", order=60)
class Gallery(Section):
    """Example images of every test set."""

    title = "Gallery"

    def __init__(self) -> None:
        """Start without any run."""
        self.choices: dict[tuple[str, str, str], Mapping[str, dict[int, Example]]] = {}

    def visit(self, item: Visit) -> None:
        """Choose examples of the first run of a method; of a corruption, at the worst severity alone."""
        images = item.task.inputs == "image" and item.task.target != "multilabel"
        if images and item.is_shown and item.has_labels and item.key not in self.choices:
            self.choices[item.key] = choose(item.task, item.predictions)

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the examples of every test set whose images are in the store."""
        shown = [(split, *self._rows(run, task, split)) for split in task.splits]
        shown = [(split, method, rows) for split, method, rows in shown if rows]
        if shown:
            yield Text(INTRODUCTION, "small")
        for split, method, rows in shown:
            yield Headline(f"“{split.name}”, {run.title(method)}")
            yield Examples(rows)

    def _rows(self, run: RunView, task: TaskView, split: SplitView) -> tuple[str, dict[str, tuple[Example, ...]]]:
        """Return the best method predicted on a split, and title → its examples; none without images in the store."""
        methods = [method for key, name, method in self.choices if (key, name) == (task.key, split.name)]
        if not methods:
            return "", {}
        best, images = leader(run, task), stored_images(run, split)
        method = best if best in methods else methods[0]
        choices = self.choices[task.key, split.name, method]
        rows = {
            title: tuple(
                replace(one, source=source(images[row])) for row, one in choices[name].items() if row in images
            )
            for name, title in ROWS.items()
        }
        return method, {title: examples for title, examples in rows.items() if examples}


def choose(task: TaskView, predictions: Predictions) -> dict[str, dict[int, Example]]:
    """Return the most and least certain examples: names as in :data:`ROWS` → row → its caption, without the image."""
    extremes = extreme_rows(predictions, count=SHOWN, quantity=REFERRED_BY)
    classes, probability = predicted(predictions), np.asarray(confidence(predictions))

    def example(row: int) -> Example:
        answer, label = task.classes[classes[row]], task.classes[predictions.labels[row]]
        caption = f"{answer}, {probability[row]:.0%} confident" + ("" if answer == label else f"; label: {label}")
        return Example("", caption, f"row {row}" if predictions.ids is None else printable(predictions.ids[row]))

    return {name: {row: example(row) for row in getattr(extremes, name).tolist()} for name in ROWS}


def stored_images(run: RunView, split: SplitView) -> dict[int, bytes]:
    """Return row → PNG; empty where no images of the split were stored, and then the page has no gallery of it."""
    try:
        return run.source.read_pictures(split.fingerprint)
    except DubioError:
        return {}


def source(image: bytes) -> str:
    """Return an image as the address of an HTML element."""
    return f"data:image/png;base64,{b64encode(image).decode('ascii')}"
