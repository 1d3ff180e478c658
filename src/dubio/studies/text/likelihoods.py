"""The likelihood of every method on every task, as it predicts and after temperature (T Fig. 22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.measures import RANKED_BY
from dubio.studies.text.clouds import Cloud, Point, mean_of

CAPTION = (
    "One point a method, with one standard deviation over runs. Across: NLL at temperature 1. Up: NLL at the "
    "cross-validated temperature. On the dotted line a temperature changes nothing; to the right of it lies what was "
    "a matter of scale alone. Where an order from left to right is not that from low to high, comparing NLL at "
    "temperature 1 would have misled."
)


def likelihoods_of(subject: Subject) -> Cloud | None:
    """NLL before and after temperature of the methods for which both are finite; None without any."""
    plain = subject.results.cells_of(subject.task, subject.home, "nll")
    calibrated = subject.results.cells_of(subject.task, subject.home, RANKED_BY)
    points = tuple(
        Point(subject.styles[m.name], np.array(plain[m.name].values), np.array(calibrated[m.name].values))
        for m in subject.methods
        if m.name in plain and m.name in calibrated
        and np.isfinite(plain[m.name].mean) and np.isfinite(calibrated[m.name].mean)
    )  # fmt: skip
    return Cloud(subject.task.key, points) if points else None


def likelihoods_reading(panels: Sequence[Cloud]) -> str:
    """On how many tasks the best method changes, and which method's rank moves most."""
    changed = [p for p in panels if min(p.points, key=_plain) is not min(p.points, key=_calibrated)]
    moves = []
    for panel in panels:
        ranks = [rankdata([side(point) for point in panel.points]) for side in (_plain, _calibrated)]
        shift = np.abs(ranks[0] - ranks[1])
        place = int(shift.argmax())
        moves.append((float(shift[place]), panel, panel.points[place], ranks[0][place], ranks[1][place]))
    _, panel, point, before, after = max(moves, key=lambda entry: entry[0])
    first = f"On {len(changed)} of {len(panels)} tasks the lowest NLL changes hands once temperature is taken out"
    if before == after:
        return f"{first}, and no method changes its rank."
    return (
        f"{first}; the largest move is that of {point.style.title} on {panel.title}, from rank {before:g} to {after:g}."
    )


def _plain(point: Point) -> float:
    return mean_of(point.x)


def _calibrated(point: Point) -> float:
    return mean_of(point.y)
