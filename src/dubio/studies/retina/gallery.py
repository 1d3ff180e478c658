"""A gallery of examples: the most and the least certain, right and wrong, as a page can set them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from dubio.reporting.manifest_view import TaskView, printable
from dubio.reporting.results import Results
from dubio.reporting.sections.findings import leader
from dubio.studies.retina.found import Exhibit

SORTS = {
    "sure_wrong": "Sure, and wrong",
    "unsure_wrong": "Unsure, and wrong",
    "unsure_right": "Unsure, and right",
    "sure_right": "Sure, and right",
}
"""The lists of :class:`dubio.metrics.quantities.Extremes`, what matters most first."""


def gallery_part(results: Results, task: TaskView) -> list[dict[str, Any]]:
    """One part a split: which method it is of, and its examples; empty where no pictures are kept."""
    gallery = results.galleries.get(task.key)
    if gallery is None:
        return []
    titles = {method.name: method.title for method in results.manifest.methods}
    best, found = leader(results.report.run, task), []
    for split, pictures in gallery.pictures.items():
        there = [method for name, method in gallery.exhibits if name == split]
        method = best if best in there else there[0]
        exhibit = gallery.exhibits[split, method]
        rows = [
            {"title": title, "shown": shown}
            for sort, title in SORTS.items()
            if (shown := _shown(task, exhibit, sort, pictures))
        ]
        if rows:
            found.append({"split": split, "method": titles[method], "rows": rows})
    return found


def _shown(task: TaskView, exhibit: Exhibit, sort: str, pictures: Any) -> list[dict[str, str]]:
    shown = []
    for row in getattr(exhibit.extremes, sort).tolist():
        if row in pictures:
            said, truth = task.classes[exhibit.chosen[row]], task.classes[exhibit.labels[row]]
            words = f"{said}, {exhibit.sureness[row]:.0%} sure"
            if said != truth:
                words += f"; it is {truth}"
            name = printable(exhibit.ids[row]) if exhibit.ids is not None else f"row {row}"
            source = f"data:image/png;base64,{b64encode(pictures[row]).decode('ascii')}"
            shown.append({"source": source, "words": words, "id": name})
    return shown


def gallery_words() -> str:
    """How the gallery is to be read."""
    return (
        "Of the first run of the method with the lowest calibrated NLL, the examples of lowest and of highest "
        "predictive entropy. They were chosen for being extreme: they show what kind of example a method fails on, not "
        "how often."
    )
