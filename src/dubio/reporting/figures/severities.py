"""Many corruptions in five severities: the mean over families, and each family by itself when asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from dubio.reporting.aggregate import average_over
from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, small_multiples, styled
from dubio.reporting.figures.drawn_from import Subject, graded_of
from dubio.reporting.figures.series import Series
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.plate import Plate
from dubio.reporting.shifted import TEMPERED
from dubio.reporting.wording import counted

PANELS: Mapping[str, tuple[str, str]] = {
    "Accuracy": ("accuracy", "accuracy"),
    "NLL at home temperature": (TEMPERED, RANKED_BY),
    "ECE (does not rank)": ("ece", "ece"),
}
"""Title → the metric under corruption, and the one at severity 0."""

CAPTION = (
    "Mean over {families}; severity 0 is the in-domain test set. Bars are one standard deviation over runs. NLL is at "
    "the temperature that was fitted in-domain: nobody refits it when inputs turn bad. The corruptions are computed by "
    "dubio and are not those of published benchmarks."
)
EACH = "Accuracy against severity, one panel a corruption; severity 0 is the in-domain test set."


def averaged_series(subject: Subject, metric: str, home_metric: str) -> list[Series]:
    """A metric of every method against severity, each run's mean over all families; NaN where a family has none."""
    families = list(subject.task.severities.values())
    levels = min(len(splits) for splits in families)
    found = []
    for method in subject.methods:
        places = [[splits[level].name for splits in families] for level in range(levels)]
        columns = [average_over(subject.results.cells, subject.task.key, [subject.home], method.name, home_metric)]
        columns += [
            average_over(subject.results.cells, subject.task.key, names, method.name, metric) for names in places
        ]
        table = np.full((max(cell.n if cell else 0 for cell in columns), levels + 1), np.nan)
        for column, cell in enumerate(columns):
            if cell is not None:
                table[: cell.n, column] = cell.values
        if np.isfinite(table[:, 1:]).any():
            found.append(Series(subject.styles[method.name], np.arange(levels + 1.0), table))
    return found


def severity_plates(subject: Subject) -> Iterator[Plate]:
    """The mean over families, then every family by itself, folded."""
    panels = {title: averaged_series(subject, *metrics) for title, metrics in PANELS.items()}
    if not panels["Accuracy"]:
        return
    families = subject.task.severities
    caption = CAPTION.format(families=counted(len(families), "family").replace("familys", "families"))
    seen = _reading(panels["Accuracy"])
    yield Plate("severity", "elsewhere", "As inputs get worse", caption, partial(severities_figure, panels),
                reading=seen)  # fmt: skip
    each = {base: graded_of(subject, base, "accuracy") for base in families}
    draw = partial(families_figure, each)
    yield Plate("severity-each", "elsewhere", "Accuracy under every corruption", EACH, draw, folded=True)


@styled
def severities_figure(panels: Mapping[str, Sequence[Series]]) -> Figure:
    """One panel a metric, one line a method.

    Args:
        panels: Title → series over severities.
    """
    drawn = next(iter(panels.values()))
    figure = blank(WIDTH, 2.9 + legend_height(len(drawn), 3))
    for axis, (title, series) in zip(figure.subplots(1, len(panels)).flat, panels.items(), strict=True):
        for one in series:
            style = {**one.style.line, "linewidth": 1.3, "markersize": 3.8}
            axis.errorbar(one.x, one.mean, yerr=one.std, elinewidth=0.6, capsize=0, **style)
            axis.set_xticks(one.x)
        axis.set_title(title)
        axis.set_xlabel("severity")
    method_legend(figure, [series.style for series in drawn], columns=3)
    return figure


@styled
def families_figure(families: Mapping[str, Sequence[Series]]) -> Figure:
    """Accuracy against severity, one small panel a family.

    Args:
        families: Corruption → one series a method.
    """
    drawn = next(iter(families.values()))
    figure, axes = small_multiples(len(families), columns=5, panel_height=1.6, extra=legend_height(len(drawn), 3))
    for axis, (base, series) in zip(axes, families.items(), strict=True):
        for one in series:
            axis.plot(one.x, one.mean, **{**one.style.line, "linewidth": 1.0, "markersize": 2.6})
        axis.set_xticks(series[0].x)
        axis.set_title(base, fontsize=7.6)
    method_legend(figure, [series.style for series in drawn], columns=3)
    return figure


def _reading(series: Sequence[Series]) -> str:
    """Who stays most accurate at the worst severity, and who least."""
    worst = {one.style.title: float(one.mean[-1]) for one in series if np.isfinite(one.mean[-1])}
    if len(worst) < 2:
        return ""
    best, least = max(worst, key=lambda name: worst[name]), min(worst, key=lambda name: worst[name])
    level = len(series[0].x) - 1
    return f"At severity {level} mean accuracy goes from {worst[least]:.3f} ({least}) to {worst[best]:.3f} ({best})."
