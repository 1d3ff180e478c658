"""Examples: texts, table rows and small images of test examples, with the answer and doubts of every method.

The page shows a bounded number of the rows that the store has of each test set: the most and least certain right and
wrong ones of every method, the most certain OOD ones, some that methods disagree on, and a random sample.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.decisions import predicted, predicted_labels
from dubio.metrics.quantities import CONFIDENCE, confidence
from dubio.reporting.example_rows import CERTAIN_OOD, TAGS, choose_rows, stratified_order, telling_rows
from dubio.reporting.leaderboard import leader
from dubio.reporting.manifest_view import SplitView, TaskView, printable
from dubio.reporting.measures import REFERRED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Json, Section, Text, Visit, Widget, section
from dubio.reporting.tables import Column, Row, Table, TableCell
from dubio.reporting.wording import quantity_words
from dubio.store.examples import LONGEST_CELL, Content, cut, shortened

VERSION = 1
"""Of the widget's data."""

FALLBACK = 3
"""Examples of each kind in the static table."""

LONGEST_EXCERPT = 160
"""Characters of an example in the static table."""

NOT_STORED = "No examples: the run was made with --no-examples, so that nothing of its data is shown."
NOT_SHOWN = "This report was written without examples (--no-examples)."

SHOWN_STATICALLY = {
    "confident wrong": "confident and incorrect",
    "uncertain wrong": "uncertain and incorrect",
    CERTAIN_OOD: "most certain OOD or shifted",
}
"""The tags of the static table → how they are called there."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The first run of a method on the rows of a split that can be shown.

    Attributes:
        answers: The class of each row, or its labels as multi-hot ``[N, K]``.
        confidence: The confidence of each.
        uncertainties: Quantity → the uncertainty of each.
        tags: Tag → rows of the split that have it, the most extreme first.
    """

    answers: IntArray | BoolArray
    confidence: FloatArray
    uncertainties: Mapping[str, FloatArray]
    tags: Mapping[str, IntArray]


@dataclass(frozen=True, eq=False)
class ShownRows:
    """The rows of a split that can be shown: their numbers, labels, ids, and whether they are OOD."""

    rows: IntArray
    labels: IntArray
    ids: tuple[str, ...]
    ood: BoolArray


@section("examples", order=60)
class ExamplesSection(Section):
    """Examples of every test set."""

    title = "Examples"

    def __init__(self) -> None:
        """Start without any run."""
        self.answers: dict[tuple[str, str, str], Answers] = {}
        self.rows: dict[tuple[str, str], ShownRows] = {}

    def visit(self, item: Visit) -> None:
        """Note the answers of a method's first run on the rows whose content is at hand, and on no others."""
        if not item.is_shown or item.key in self.answers or not item.report.manifest.examples:
            return
        rows = self._rows_of(item)
        if len(rows.rows):
            multilabel = item.predictions.target == "multilabel"
            answers = predicted_labels(item.predictions) if multilabel else predicted(item.predictions)
            self.answers[item.key] = Answers(
                answers[rows.rows],
                np.asarray(confidence(item.predictions))[rows.rows],
                {name: values[rows.rows] for name, values in item.uncertainties.items()},
                telling_rows(item.predictions),
            )

    def _rows_of(self, item: Visit) -> ShownRows:
        key, predictions = item.key[:2], item.predictions
        if key not in self.rows:
            stored = contents_of(item.report, item.split)
            rows = np.array([row for row in stored if row < len(predictions)], dtype=np.int64)
            ids = (
                ()
                if predictions.ids is None
                else tuple(cut(printable(name), LONGEST_CELL) for name in predictions.ids[rows].tolist())
            )
            self.rows[key] = ShownRows(rows, predictions.labels[rows], ids, predictions.ood[rows])
        return self.rows[key]

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the examples of all test sets of a task, or why there are none."""
        splits = [split for split in task.splits if any(key[:2] == (task.key, split.name) for key in self.answers)]
        if not run.manifest.examples:
            yield Text(NOT_STORED, "small")
        elif splits and not run.examples:
            yield Text(NOT_SHOWN, "small")
        elif splits:
            data = self._data(run, task, splits)
            yield Widget("examples", data, (static_table(run, data),))

    def _data(self, run: RunView, task: TaskView, splits: list[SplitView]) -> Json:
        """Return what the script draws from; lists per example are in the order of methods and quantities."""
        answered = {method for key, _, method in self.answers if key == task.key}
        methods = [method.name for method in run.methods_of(task) if method.name in answered]
        best = leader(run, task)
        best = best if best in methods else methods[0]
        every = [answers for key, answers in self.answers.items() if key[0] == task.key]
        quantities = [name for name in run.scores.quantities if any(name in answers.uncertainties for answers in every)]
        items: list[Json] = []
        for index, split in enumerate(splits):
            answers = {name: a for name in methods if (a := self.answers.get((task.key, split.name, name)))}
            shown, contents = self.rows[task.key, split.name], contents_of(run, split)
            for position in chosen_positions(shown, answers, best, run.examples, split.fingerprint):
                item = example_item(shown, position, contents.get(int(shown.rows[position]), ""))
                items.append({"split": index} | item | answer_lists(answers, methods, quantities, shown, position))
        return {
            "version": VERSION,
            "task": task.key,
            "classes": list(task.classes),
            "quantities": [{"name": name, "title": quantity_title(name)} for name in quantities],
            "methods": methods,
            "best": best,
            "tagged_by": REFERRED_BY,
            "splits": [{"name": split.name, "kind": split.kind, "examples": split.examples} for split in splits],
            "items": items,
        }


def contents_of(run: RunView, split: SplitView) -> dict[int, Content]:
    """Return row → content of the stored examples of a split, shortened; empty where they cannot be read."""
    try:
        stored = run.source.read_examples(split.fingerprint)
    except DubioError:
        return {}
    return {row: shortened(content) for row, content in sorted(stored.items()) if row >= 0}


def chosen_positions(
    shown: ShownRows, answers: Mapping[str, Answers], best: str, count: int, fingerprint: str
) -> list[int]:
    """Return which of the rows that can be shown are: telling ones, those of the best method first, and a sample."""
    methods = sorted(answers, key=lambda name: name != best)
    telling = [rows for name in methods for rows in answers[name].tags.values()]
    telling = [np.searchsorted(shown.rows, rows[np.isin(rows, shown.rows)]) for rows in telling]
    positions: list[int] = choose_rows(telling, stratified_order(shown.labels, fingerprint), count).tolist()
    return positions


def example_item(shown: ShownRows, position: int, content: Content) -> Json:
    """Return an example without its answers."""
    item: Json = {"row": int(shown.rows[position]), "label": class_numbers(shown.labels[position])}
    item |= {"id": shown.ids[position]} if shown.ids else {}
    item |= {"ood": True} if shown.ood[position] else {}
    if isinstance(content, bytes):
        return item | {"kind": "image", "image": f"data:image/png;base64,{b64encode(content).decode('ascii')}"}
    if isinstance(content, str):
        return item | {"kind": "text", "text": printable(content)}
    return item | {"kind": "cells", "cells": [[printable(name), printable(text)] for name, text in content.items()]}


def class_numbers(label: Any) -> int | list[int]:
    """Return a class index, or the indices of a multi-hot row."""
    return int(label) if np.ndim(label) == 0 else np.flatnonzero(label).tolist()


def answer_lists(
    answers: Mapping[str, Answers], methods: Iterable[str], quantities: Iterable[str], shown: ShownRows, position: int
) -> Json:
    """Return answers, confidence and uncertainties of every method on one row, and tag → the methods it has it for."""
    runs = [answers.get(name) for name in methods]
    row, tags = shown.rows[position], (*TAGS.values(), CERTAIN_OOD)
    tagged = {tag: [index for index, a in enumerate(runs) if a and row in a.tags[tag]] for tag in tags}
    return {
        "answers": [class_numbers(a.answers[position]) if a else None for a in runs],
        "confidence": [rounded(a.confidence[position]) if a else None for a in runs],
        "uncertainty": [
            [rounded(a.uncertainties[name][position]) if a and name in a.uncertainties else None for name in quantities]
            for a in runs
        ],
        "tags": {tag: indices for tag, indices in tagged.items() if indices},
    }


def rounded(value: float) -> float | None:
    """Return a number with four significant digits; None where it is not finite, which JSON cannot say."""
    return float(f"{value:.4g}") if isfinite(value) else None


def quantity_title(name: str) -> str:
    """Return what a reader calls an uncertainty; confidence is turned so that higher is more uncertain."""
    return "1 − confidence" if name == CONFIDENCE else quantity_words(name)


def static_table(run: RunView, data: Json) -> Table:
    """Return the few most telling examples of the best method, for a page without scripts."""
    best, classes = data["methods"].index(data["best"]), data["classes"]
    lines: list[Row] = []
    for index, split in enumerate(data["splits"]):
        for tag, title in SHOWN_STATICALLY.items():
            items = [item for item in data["items"] if item["split"] == index and best in item["tags"].get(tag, ())]
            items.sort(key=lambda item: item["confidence"][best] or 0.0, reverse=tag != "uncertain wrong")
            for item in items[:FALLBACK]:
                names = [class_names(classes, item["label"]), class_names(classes, item["answers"][best])]
                texts = (excerpt(item), title, *names, f"{item['confidence'][best] or 0.0:.1%}")
                name = f"“{split['name']}” {item.get('id') or item['row']}"
                lines.append(Row(name, tuple(TableCell(text) for text in texts)))
    columns = ("Content", "Why it is shown", "Label", f"Answer of {run.title(data['best'])}", "Confidence")
    heads = tuple(Column(title, is_text=title != "Confidence") for title in columns)
    return Table(heads, tuple(lines), "Which errors occur, not how often.", "Example")


def class_names(classes: list[str], label: int | list[int] | None) -> str:
    """Return the names of a label or an answer."""
    indices = [label] if isinstance(label, int) else label or []
    return ", ".join(classes[index] for index in indices if 0 <= index < len(classes)) or "–"


def excerpt(item: Json) -> str:
    """Return the beginning of an example as a text; an image has none."""
    text = item.get("text") or "; ".join(f"{name} {value}" for name, value in item.get("cells", ())) or "(image)"
    return cut(text, LONGEST_EXCERPT)
