"""Accuracy against diversity (T Fig. 12): does disagreement among members, or samples, pay?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from dubio.reporting.figures.drawn_from import Subject
from dubio.studies.text.clouds import Cloud, Point, mean_of

CAPTION = (
    "One point a method that pools several predictions, with one standard deviation over runs. Diversity is the mean "
    "KL divergence of the members, or of the samples where there is one member, from their mean. Diversity pays where "
    "points to the right lie higher; being diverse by being worse does not."
)


def diversity_of(subject: Subject) -> Cloud | None:
    """Diversity and accuracy of every method that has both; None of fewer than two."""
    diversity = subject.results.cells_of(subject.task, subject.home, "diversity")
    accuracy = subject.results.cells_of(subject.task, subject.home, "accuracy")
    points = tuple(
        Point(subject.styles[m.name], np.array(diversity[m.name].values), np.array(accuracy[m.name].values))
        for m in subject.methods
        if m.name in accuracy and m.name in diversity and accuracy[m.name].n and diversity[m.name].n
        and np.isfinite(diversity[m.name].mean)
    )  # fmt: skip
    return Cloud(subject.task.key, points) if len(points) > 1 else None


def diversity_reading(cloud: Cloud) -> str:
    """The most diverse, the most accurate, and how the two go together."""
    diverse = max(cloud.points, key=lambda point: mean_of(point.x))
    accurate = max(cloud.points, key=lambda point: mean_of(point.y))
    if diverse is accurate:
        first = (
            f"{diverse.style.title} is both the most diverse ({mean_of(diverse.x):.3g}) and the most accurate "
            f"({mean_of(diverse.y):.3f})"
        )
    else:
        first = (
            f"{diverse.style.title} is the most diverse ({mean_of(diverse.x):.3g}) with an accuracy of "
            f"{mean_of(diverse.y):.3f}; the most accurate, {accurate.style.title} ({mean_of(accurate.y):.3f}), has a "
            f"diversity of {mean_of(accurate.x):.3g}"
        )
    return f"{first}{_together(cloud.points)}."


def _together(points: Sequence[Point]) -> str:
    if len(points) < 4:
        return ""
    found = float(spearmanr([mean_of(p.x) for p in points], [mean_of(p.y) for p in points]).statistic)
    if not np.isfinite(found):
        return ""
    return f"; over the {len(points)} methods the rank correlation of the two is {found:+.2f}".replace("-", "−")
