"""Gallery: the most and the least certain test images, classified correctly and incorrectly."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

ROWS = {
    "sure_wrong": "Confident and incorrect",
    "unsure_wrong": "Uncertain and incorrect",
    "unsure_right": "Uncertain and correct",
    "sure_right": "Confident and correct",
}
"""The lists of :class:`dubio.metrics.quantities.Extremes` → their titles, the most important first."""


@dataclass(frozen=True)
class Choice:
    """An example of the gallery: its row in the split, its id, and a caption with its predicted class."""

    row: int
    id: str
    caption: str


@section("gallery", order=60)
class Gallery(Section):
    """Example images of every test set."""

    title = "Gallery"

    def __init__(self) -> None:
        """Start without any run."""
        self.choices: dict[tuple[str, str, str], Mapping[str, list[Choice]]] = {}

    def visit(self, item: Visit) -> None:
        """Choose examples of the first run of a method; of a corruption, at the worst severity alone."""
        images = item.task.inputs == "image" and item.task.target != "multilabel"
        if images and item.is_shown and item.has_labels and item.key not in self.choices:
            self.choices[item.key] = choose(item.task, item.predictions)

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the examples of every test set whose images are in the store."""
        shown = [(split, rows) for split in task.splits if (rows := self._rows(run, task, split))]
        if shown:
            yield Text(
                "The examples of lowest and of highest predictive entropy, for the first run of the method with the "
                "lowest calibrated NLL. They are extremes: they show on which examples a method fails, not how often.",
                "small",
            )
        for split, rows in shown:
            yield Headline(f"“{split.name}”, {run.title(self._method(run, task, split))}")
            yield Examples(rows)

    def _method(self, run: RunView, task: TaskView, split: SplitView) -> str:
        """Return the method whose examples are shown: the best one, if it was predicted on the split."""
        methods = [method for key, name, method in self.choices if (key, name) == (task.key, split.name)]
        best = leader(run, task)
        return best if best in methods else methods[0]

    def _rows(self, run: RunView, task: TaskView, split: SplitView) -> dict[str, tuple[Example, ...]]:
        """Return title → examples; empty where the store has no images of the split."""
        if not any((key, name) == (task.key, split.name) for key, name, _ in self.choices):
            return {}
        images = stored_images(run, split)
        choices = self.choices[task.key, split.name, self._method(run, task, split)]
        rows = {
            title: tuple(Example(source(images[c.row]), c.caption, c.id) for c in choices[name] if c.row in images)
            for name, title in ROWS.items()
        }
        return {title: examples for title, examples in rows.items() if examples}


def choose(task: TaskView, predictions: Predictions) -> dict[str, list[Choice]]:
    """Return the most and least certain examples: names as in :data:`ROWS` → examples."""
    extremes = extreme_rows(predictions, count=SHOWN, quantity=REFERRED_BY)
    classes, probability = predicted(predictions), np.asarray(confidence(predictions))

    def choice(row: int) -> Choice:
        answer, label = task.classes[classes[row]], task.classes[predictions.labels[row]]
        caption = f"{answer}, {probability[row]:.0%} confident"
        name = f"row {row}" if predictions.ids is None else printable(predictions.ids[row])
        return Choice(row, name, caption if answer == label else f"{caption}; label: {label}")

    return {name: [choice(row) for row in getattr(extremes, name).tolist()] for name in ROWS}


def stored_images(run: RunView, split: SplitView) -> dict[int, bytes]:
    """Return row → PNG; empty where no images of the split were stored, and then the page has no gallery of it."""
    try:
        return run.source.read_pictures(split.fingerprint)
    except DubioError:
        return {}


def source(image: bytes) -> str:
    """Return an image as the address of an HTML element."""
    return f"data:image/png;base64,{b64encode(image).decode('ascii')}"
