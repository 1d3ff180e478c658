"""Detection against accuracy under shift (T Fig. 7): is the shift noticed, and does it matter?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.measures import detection_name
from dubio.studies.text.clouds import Cloud, Point, mean_of

CAPTION = (
    "One point a method, with one standard deviation over runs: how right it is on the shifted test set, and the AUROC "
    "with which its confidence tells that set from the in-domain one; 0.5 is a coin. The better corner is the upper "
    "right. Where all points are low, the methods see little that is foreign."
)


def transfer_of(subject: Subject) -> list[Cloud]:
    """Accuracy and AUROC on every shifted test set that has labels; of a corruption, on its worst severity."""
    graded = {splits[-1].name: base for base, splits in subject.task.severities.items()}
    found = []
    for split in subject.task.farthest:
        accuracy = subject.results.cells_of(subject.task, split.name, "accuracy")
        area = subject.results.cells_of(subject.task, split.name, detection_name("ood_auroc", "confidence"))
        points = tuple(
            Point(subject.styles[m.name], np.array(accuracy[m.name].values), np.array(area[m.name].values))
            for m in subject.methods
            if split.kind == "shift" and m.name in accuracy and m.name in area
            and accuracy[m.name].n and area[m.name].n
        )  # fmt: skip
        if points:
            name = f"{graded[split.name]}, at its worst" if split.name in graded else split.name
            found.append(Cloud(f"{subject.task.key} → {name}", points))
    return found


def transfer_reading(panels: Sequence[Cloud]) -> str:
    """Where detection is lowest and highest, averaged over methods, and what accuracy goes with it."""
    means = [(float(np.mean([mean_of(p.y) for p in panel.points])), panel) for panel in panels]
    low, high = min(means, key=lambda entry: entry[0]), max(means, key=lambda entry: entry[0])
    right = [float(np.mean([mean_of(p.x) for p in panel.points])) for _, panel in (low, high)]
    if len(panels) == 1:
        values = [mean_of(point.y) for point in panels[0].points]
        best = max(panels[0].points, key=lambda point: mean_of(point.y))
        return (
            f"AUROC lies between {min(values):.3f} and {max(values):.3f} ({best.style.title}), at a mean accuracy of "
            f"{right[0]:.3f}."
        )
    return (
        f"Averaged over methods, detection is weakest for {low[1].title} (AUROC {low[0]:.3f}, accuracy {right[0]:.3f}) "
        f"and strongest for {high[1].title} (AUROC {high[0]:.3f}, accuracy {right[1]:.3f})."
    )
