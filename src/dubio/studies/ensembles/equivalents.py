"""Deep-ensemble equivalents against the number of samples (P Figs 3 and 7–9), and how they grow with the last samples.

Every run of a method has its own deep-ensemble equivalents (P eq. 4), and so its own slope between its last two numbers
of samples. The curve of growing ensembles is known up to its spread over orders; a slope is significantly above or
below a bound only where it is so against the curve itself and against both its bounds (P eq. 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.types import FloatArray
from dubio.reporting.charts import Rows, chart_of, method_points, panels_of, tooltips
from dubio.reporting.section import Figure
from dubio.reporting.style import MUTED, NOISE
from dubio.statistics.ensemble_equivalent import (
    EquivalentRange,
    Score,
    average_equivalent,
    equivalent,
    equivalent_range,
)
from dubio.statistics.sample_curves import SIZES
from dubio.statistics.verdicts import smallest_difference
from dubio.studies.ensembles.curve_figures import HALF, TALL, Styles, curves_chart, curves_reading, sample_lines
from dubio.studies.ensembles.study import SampleCurve, Study

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

TITLES: dict[Score, str] = {
    "nll": "by calibrated NLL", "error": "by error", "brier": "by calibrated Brier", "aurc": "by calibrated AURC",
}  # fmt: skip

BESIDE, WIDEST = 0.07, 0.32
"""From one arrow to the next, and of all arrows at one number of samples, in logarithms of that number."""

BEYOND = "beyond the longest ensemble"

FEWEST_SIZES = 3
"""Numbers of samples that a slope needs."""

CAPTION = (
    "The number of independently trained networks whose deep ensemble scores as well as the method with each number of "
    "samples; both axes are logarithmic. Bands: the same against the curve of growing ensembles raised and lowered by "
    "its standard deviation over random orders. In the grey part, above half of all {longest} networks (dashed), "
    "orders share most of their networks and the bands are too narrow. An arrow means more than {longest} networks; "
    "nothing is extrapolated. A method with one sample is a point."
)
AVERAGE_CAPTION = (
    "The number of independently trained networks whose deep ensemble scores as well as the method with each number of "
    "samples: the mean over {tasks}. Bands: the means of the lower and of the upper bounds; in the grey part, above "
    "half of the networks, they are too narrow. An arrow: beyond the longest ensemble on at least one task."
)
POOLED_CAPTION = "As above, for ensembles of methods: samples are taken from one member after the other."


@dataclass(frozen=True, eq=False)
class EquivalentCurve:
    """The deep-ensemble equivalents of one method: ``[X]`` each, infinite beyond the longest ensemble."""

    curve: SampleCurve
    sizes: tuple[int, ...]
    lower: FloatArray
    central: FloatArray
    upper: FloatArray


Panels = Sequence[tuple[Score, list[EquivalentCurve]]]


def equivalent_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield the equivalents of single networks, deep ensembles and methods of one training."""
    curves = study.select("network", "deep_ensemble", "method")
    reading = equivalents_reading(study, [curve for curve in curves if curve.augmented])
    title, caption = "Deep-ensemble equivalents", CAPTION.format(longest=len(study.growth))
    yield Figure("equivalents", title, caption, _chart([study], curves, styles), reading=reading)


def pooled_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield ensembles of methods beside deep ensembles, where there are any."""
    if not study.select("ensemble"):
        return
    curves = (*study.select("deep_ensemble"), *study.select("ensemble"))
    title, chart = "Deep-ensemble equivalents of ensembles of methods", _chart([study], curves, styles)
    reading = equivalents_reading(study, curves)
    yield Figure("equivalents-pooled", title, POOLED_CAPTION, chart, folded=True, reading=reading)
    title, scores = "Ensembles of methods against the number of samples", partial(curves_chart, curves, styles)
    reading = curves_reading(study, curves)
    yield Figure("curves-pooled", title, POOLED_CAPTION, scores, folded=True, reading=reading)


def averaged_figures(studies: Sequence[Study], styles: Styles) -> Iterator[Figure]:
    """Yield the equivalents averaged over tasks (P Fig. 3); none for fewer than two tasks."""
    curves = studies[0].select("network", "deep_ensemble", "method")
    if len(studies) > 1 and averaged_equivalents(studies, curves, "nll"):
        caption = AVERAGE_CAPTION.format(tasks=", ".join(study.task.key for study in studies))
        chart = _chart(studies, curves, styles)
        yield Figure("ensembles-equivalents", "Deep-ensemble equivalents, averaged", caption, chart)


def _chart(studies: Sequence[Study], curves: Sequence[SampleCurve], styles: Styles) -> Callable[[], Chart]:
    panels = [(score, averaged_equivalents(studies, curves, score)) for score in TITLES]
    return partial(equivalents_chart, panels, styles, min(len(study.growth) for study in studies))


def averaged_equivalents(
    studies: Sequence[Study], curves: Sequence[SampleCurve], score: Score
) -> list[EquivalentCurve]:
    """Return the means over tasks of the methods that every task has, at the sizes that they share."""
    averaged = []
    for curve in curves:
        own = [(study, study.by_name[curve.name]) for study in studies if curve.name in study.by_name]
        by_size = [dict(zip(other.sizes, study.equivalents(other, score), strict=True)) for study, other in own]
        sizes = tuple(size for size in curve.sizes if all(size in ranges for ranges in by_size))
        if sizes and len(own) == len(studies):
            bounds = (
                [average_equivalent([getattr(ranges[size], bound) for ranges in by_size]).size for size in sizes]
                for bound in ("lower", "central", "upper")
            )
            averaged.append(EquivalentCurve(curve, sizes, *map(np.array, bounds)))
    return averaged


def ranked_equivalents(study: Study, curves: Sequence[SampleCurve]) -> list[tuple[SampleCurve, EquivalentRange]]:
    """Return methods with their equivalents at the compared number of samples, the best calibrated NLL first."""
    cells = [(curve.at("calibrated_nll", study.compared_samples), curve) for curve in curves]
    ranked = sorted(((cell.mean, curve) for cell, curve in cells if cell is not None), key=lambda entry: entry[0])
    return [(curve, equivalent_range(study.growth, "nll", mean)) for mean, curve in ranked]


def equivalents_reading(study: Study, curves: Sequence[SampleCurve]) -> str:
    """Return methods by their deep-ensemble equivalent with the same number of samples."""
    shown = [f"{curve.title}: {equivalent_phrase(bounds)}" for curve, bounds in ranked_equivalents(study, curves)]
    return f"With {study.compared_samples} samples each, by calibrated NLL. {'; '.join(shown)}." if shown else ""


def equivalent_phrase(bounds: EquivalentRange) -> str:
    """Return an equivalent with its bounds: ``3.2 networks (2.9 to 3.6)``."""
    central, spread = equivalent_texts(bounds, "more than ")
    return f"{central} {'network' if central == '1.0' else 'networks'} {spread}".rstrip()


def equivalent_texts(bounds: EquivalentRange, beyond: str) -> tuple[str, str]:
    """Return an equivalent and its bounds in brackets, which are empty where they are the same.

    Args:
        bounds: The equivalent.
        beyond: What stands before the size of the longest ensemble where the equivalent is beyond it.
    """
    low, central, high = (
        f"{beyond}{bound.longest}" if bound.beyond else f"{bound.size:.1f}"
        for bound in (bounds.lower, bounds.central, bounds.upper)
    )
    return central, "" if low == central == high else f"({low} to {high})"


def equivalents_chart(panels: Panels, styles: Styles, longest: int) -> Chart:
    """Return one panel per score: a line and a band per method, and arrows beyond the longest ensemble.

    Args:
        panels: Scores and the equivalents by each.
        styles: How methods are drawn.
        longest: l_max, the size of the longest ensemble.
    """
    import altair

    curves = [line.curve for line in panels[0][1]]
    scale = altair.Scale(type="log", domain=[0.9, longest * 1.22], nice=False)
    axis = altair.Axis(values=[size for size in SIZES if size <= longest], format="~g", grid=False)
    y = altair.Y("y:Q", title="networks", scale=scale, axis=axis)
    rows = [row for score, lines in panels for row in equivalent_rows(lines, styles, longest, TITLES[score])]
    lines = sample_lines(rows, curves, styles, y)
    shown = tooltips({"method": "method:N", "samples": "x:Q", "value": "value:N"})
    arrows = method_points(altair.Chart(), [styles[curve.name] for curve in curves], size=30).encode(
        altair.X("arrow:Q", title="samples"),
        altair.Y("top:Q", title="networks"),
        shape=altair.value("triangle-up"),
        tooltip=shown,
    )
    layers = altair.LayerChart(data=lines.data, layer=[*_cap(longest), *lines.layer, arrows])
    return panels_of(layers, "panel", list(TITLES.values()), columns=2, width=HALF, height=TALL)


def equivalent_rows(lines: Sequence[EquivalentCurve], styles: Styles, longest: int, panel: str) -> Rows:
    """Return equivalents with their bounds; beyond the longest ensemble, arrows side by side instead of the value."""
    rows: Rows = []
    for line in lines:
        for x, *bounds in zip(line.sizes, line.lower, line.central, line.upper, strict=True):
            low, central, high = (f"{bound:.1f}" if np.isfinite(bound) else BEYOND for bound in bounds)
            row = {"method": styles[line.curve.name].title, "panel": panel, "x": x, "y": bounds[1]}
            row["value"] = central if low == central == high else f"{central} ({low} to {high})"
            if not line.curve.augmented:
                row |= {"low": min(bounds[0], longest), "high": min(bounds[2], longest)}
            rows.append(row)
    for size in {row["x"] for row in rows}:
        beyond = [row for row in rows if row["x"] == size and np.isinf(row["y"])]
        for index, row in enumerate(beyond):
            shift = (index - (len(beyond) - 1) / 2) * min(BESIDE, WIDEST / len(beyond))
            row |= {"arrow": size * np.exp(shift), "top": longest * 1.1}
    return rows


def _cap(longest: int) -> list[altair.Chart]:
    """Return the longest ensemble, and the part below it where orders share most of their networks."""
    import altair

    chart = chart_of([{"low": longest / 2, "high": longest, "text": f"all {longest} networks"}])
    high = altair.Y("high:Q", title="networks")
    grey = chart.mark_rect(color=NOISE, opacity=0.3).encode(altair.Y("low:Q", title="networks"), y2=altair.Y2("high:Q"))
    line = chart.mark_rule(color=MUTED, strokeWidth=0.8, strokeDash=[3, 3]).encode(high)
    # below the line: above it stand the arrows
    text = chart.mark_text(align="left", baseline="top", dy=4, fontSize=9.5).encode(
        high, x=altair.value(4), text=altair.Text("text:N")
    )
    return [grey, line, text]


@dataclass(frozen=True, eq=False)
class Slope:
    """Networks gained per sample added.

    Attributes:
        sizes: The last two numbers of samples.
        equivalents: The equivalents there, of the mean over runs.
        values: ``[curves, R]``: slopes against the curve raised, as it is and lowered by its spread; None where a
            run, or the mean, is beyond the longest ensemble with the first, or no better than one network with both.
        at_least: Whether some slope is only a lower bound, up to the longest ensemble, which was passed.
    """

    sizes: tuple[int, int]
    equivalents: tuple[float, float]
    values: FloatArray | None
    at_least: bool

    @property
    def phrase(self) -> str:
        """The slope with its spread over runs; empty where it is unknown."""
        if self.values is None:
            return ""
        middle = self.values[1]
        spread = f" ± {middle.std(ddof=1):.2f}" if len(middle) > 1 else " (1 run)"
        bound = "at least " if self.at_least else ""
        return f"{bound}{middle.mean():+.2f}{spread} networks per sample".replace("-", "−")

    def side_of(self, bound: float) -> int:
        """Return 1 where the slope is significantly above a bound, −1 where it is below, 0 otherwise."""
        if self.values is None or self.values.shape[1] < 2:
            return 0
        sides = set()
        for values in self.values:
            term = float(values.var(ddof=1)) / len(values), len(values) - 1
            difference = float(values.mean()) - bound
            sides.add(int(np.sign(difference)) * (abs(difference) > smallest_difference([term])))
        side = sides.pop() if len(sides) == 1 else 0
        return 0 if self.at_least and side < 0 else side


def slope_of(study: Study, curve: SampleCurve) -> Slope | None:
    """Return the slope between a method's last two numbers of samples; None for a method with fewer than three."""
    common = [size for size in SIZES if size in curve.sizes]
    if len(common) < FEWEST_SIZES:
        return None
    sizes = common[-2], common[-1]
    last_two = [curve.sizes.index(size) for size in sizes]
    scores = np.vstack([curve.of("calibrated_nll")[:, last_two], curve.mean("calibrated_nll")[last_two]])
    mean, spread = study.growth.mean["nll"], study.growth.std["nll"]
    growths = (mean - spread, mean, mean + spread)
    # [curves, R + 1, 2]; the last row is the mean over runs
    reached = np.array([[[equivalent(g, float(score)).size for score in run] for run in scores] for g in growths])
    of_mean = float(reached[1, -1, 0]), float(reached[1, -1, 1])
    if np.isinf(reached[..., 0]).any() or (reached == 1.0).all(axis=2).any():
        return Slope(sizes, of_mean, None, False)
    capped = np.minimum(reached[:, :-1], len(mean))
    slopes = (capped[..., 1] - capped[..., 0]) / (sizes[1] - sizes[0])
    return Slope(sizes, of_mean, slopes, bool(np.isinf(reached).any()))
