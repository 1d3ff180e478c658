"""Correlations of the likelihood with Brier score and accuracy, before and after temperature scaling (P Figs 4 and 6).

The points (method, number of samples, run) are far from independent: the ensembles along a sample curve are nested, and
an ensemble or an augmented method predicts from the same fits. The bootstrap therefore resamples whole families of
methods, each with all its points. Moments add over families, so that a replicate costs six numbers per family.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import pearsonr, spearmanr

from dubio.core.types import FloatArray
from dubio.reporting.charts import Rows, chart_of, method_points, tooltips
from dubio.reporting.claims import Outcome
from dubio.reporting.section import Figure
from dubio.reporting.wording import signed
from dubio.statistics.bootstrap import percentile_interval
from dubio.studies.ensembles.curve_figures import HALF, TALL, Styles
from dubio.studies.ensembles.study import SampleCurve, Study

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

PAIRS = (
    ("nll", "brier", "NLL", "Brier"),
    ("calibrated_nll", "calibrated_brier", "calibrated NLL", "calibrated Brier"),
    ("nll", "accuracy", "NLL", "accuracy"),
    ("calibrated_nll", "accuracy", "calibrated NLL", "accuracy"),
)
"""Two measures and their titles; the last two pairs are those that P compares before and after calibration."""

REPLICATES = 2000
FEWEST_FAMILIES = 6
"""With fewer families a bootstrap over them says little."""
CLOSE = 0.95
"""What P finds |ρ| to exceed after calibration."""

CAPTION = (
    "One point per method, number of samples and run. Left at temperature 1, right at the cross-validated temperature; "
    "ρ is Pearson's correlation."
)


@dataclass(frozen=True, eq=False)
class ScorePair:
    """Two measures over all (method, number of samples, run), with one array per curve.

    Attributes:
        titles: Of the two measures.
        curves: The curves of the points.
        x: The first measure.
        y: The second measure.
        pearson: Pearson's correlation over all points; NaN where a measure does not vary.
        spearman: Spearman's.
    """

    titles: tuple[str, str]
    curves: tuple[SampleCurve, ...]
    x: tuple[FloatArray, ...]
    y: tuple[FloatArray, ...]
    pearson: float
    spearman: float


def score_pairs(curves: Sequence[SampleCurve]) -> list[ScorePair]:
    """Return the four pairs of :data:`PAIRS`; points that are not finite are left out."""
    pairs = []
    for first, second, *titles in PAIRS:
        points = [np.stack([_measure(curve, first), _measure(curve, second)]) for curve in curves]
        finite = [both[:, np.isfinite(both).all(axis=0)] for both in points]
        x, y = tuple(both[0] for both in finite), tuple(both[1] for both in finite)
        every, rho = np.concatenate(finite, axis=1), (math.nan, math.nan)
        if every.shape[1] > 1 and np.ptp(every, axis=1).all():
            rho = float(pearsonr(*every).statistic), float(spearmanr(*every).statistic)
        pairs.append(ScorePair((titles[0], titles[1]), tuple(curves), x, y, *rho))
    return pairs


def _measure(curve: SampleCurve, name: str) -> FloatArray:
    return 1.0 - curve.of("error").ravel() if name == "accuracy" else curve.of(name).ravel()


@dataclass(frozen=True)
class CorrelationChange:
    """|ρ| of likelihood and accuracy before and after calibration.

    Attributes:
        before: At temperature 1.
        after: At the cross-validated temperature.
        after_range: The interval of the second; None for too few families or where a correlation is undefined.
        rise_range: The interval of the second minus the first.
    """

    before: float
    after: float
    after_range: tuple[float, float] | None
    rise_range: tuple[float, float] | None

    @property
    def outcome(self) -> Outcome:
        """Whether |ρ| is above 0.95 after calibration and higher than before: both, not one of them, or undecided."""
        if self.after_range is None or self.rise_range is None:
            return "undecided"
        if self.after_range[1] < CLOSE or self.rise_range[1] < 0:
            return "contradicts"
        return "supports" if self.after_range[0] > CLOSE and self.rise_range[0] > 0 else "undecided"

    @property
    def phrase(self) -> str:
        """Both correlations and their intervals, within a sentence."""
        if not (math.isfinite(self.before) and math.isfinite(self.after)):
            return "a correlation is not defined, because likelihood or accuracy does not vary"
        text = f"|ρ| = {self.before:.3f} at temperature 1, {self.after:.3f} after calibration"
        if self.after_range is None or self.rise_range is None:
            return f"{text}; too few families of methods for an interval"
        (low, high), (least, most) = self.after_range, map(signed, self.rise_range)
        return f"{text} (95 % interval over families of methods {low:.3f} to {high:.3f}; change {least} to {most})"


def correlation_change(before: ScorePair, after: ScorePair, *, seed: int = 0) -> CorrelationChange:
    """Return both correlations over the same methods, with percentile intervals over resampled families.

    Args:
        before: Likelihood and accuracy at temperature 1.
        after: The same at the cross-validated temperature.
        seed: Of the bootstrap.
    """
    values = abs(before.pearson), abs(after.pearson)
    families = families_of(before.curves)
    count = len(set(families))
    if count < FEWEST_FAMILIES or not np.isfinite(values).all():
        return CorrelationChange(*values, None, None)
    counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=REPLICATES)
    sides = [np.abs(_correlations_of_moments(counts @ _moments(pair, families))) for pair in (before, after)]
    both = np.array(sides)[:, np.isfinite(sides).all(axis=0)]
    ranges = [percentile_interval(np.nan, draws) for draws in (both[1], both[1] - both[0])]
    return CorrelationChange(*values, *((interval.low, interval.high) for interval in ranges))


def families_of(curves: Sequence[SampleCurve]) -> list[str]:
    """Return the family of every curve; an augmented method is in that of the method without augmentation."""
    own = {curve.name: curve.method.family for curve in curves}
    return [own.get(curve.base, curve.method.family) for curve in curves]


def _moments(pair: ScorePair, families: Sequence[str]) -> FloatArray:
    """Return ``[families, 6]``: count, Σx, Σy, Σx², Σy², Σxy about the mean of all."""
    x, y = np.concatenate(pair.x), np.concatenate(pair.y)
    owner = np.repeat(np.unique(families, return_inverse=True)[1], [len(points) for points in pair.x])
    x, y = x - x.mean(), y - y.mean()
    terms = (np.ones_like(x), x, y, x * x, y * y, x * y)
    return np.stack([np.bincount(owner, weights=term, minlength=len(set(families))) for term in terms], axis=1)


def _correlations_of_moments(sums: FloatArray) -> FloatArray:
    """Return Pearson's correlation of every row of moments; NaN where a side does not vary."""
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((xy - x * y / n) / np.sqrt((xx - x * x / n) * (yy - y * y / n)))


def correlation_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield the likelihood against Brier score and accuracy."""
    pairs = score_pairs(study.select("network", "deep_ensemble", "method"))
    title, chart = "Likelihood, Brier score and accuracy", partial(correlations_chart, pairs, styles)
    yield Figure("correlations", title, CAPTION, chart, folded=True, reading=correlations_reading(pairs))


def correlations_reading(pairs: Sequence[ScorePair]) -> str:
    """Return the four correlations, and the number of points."""
    points = sum(len(values) for values in pairs[0].x)
    shown = [
        f"{pair.titles[0]} and {pair.titles[1]} {_coefficient(pair.pearson)} (ranks {_coefficient(pair.spearman)})"
        for pair in pairs
    ]
    return f"Correlation over {points:,} points (method, number of samples, run): {'; '.join(shown)}."


def _coefficient(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if np.isfinite(value) else "undefined"


def correlations_chart(pairs: Sequence[ScorePair], styles: Styles) -> Chart:
    """Return one panel per pair of measures, one point per method, number of samples and run."""
    import altair

    curves = pairs[0].curves
    chart, own, panels = chart_of(point_rows(curves, styles)), [styles[curve.name] for curve in curves], []
    for pair, (x, y, *titles) in zip(pairs, PAIRS, strict=True):
        axes = [
            channel(f"{field}:Q", title=title, scale=altair.Scale(zero=False))
            for channel, field, title in ((altair.X, x, titles[0]), (altair.Y, y, titles[1]))
        ]
        shown = tooltips({"method": "method:N", "samples": "samples:Q", titles[0]: f"{x}:Q", titles[1]: f"{y}:Q"})
        points = method_points(chart, own, size=14, x=axes[0], y=axes[1], tooltip=shown)
        title = altair.Title(f"ρ = {_coefficient(pair.pearson)}", frame="group")
        panels.append(points.properties(width=HALF, height=TALL, title=title))
    return altair.concat(*panels, columns=2)


def point_rows(curves: Sequence[SampleCurve], styles: Styles) -> Rows:
    """Return the measures of every method, number of samples and run."""
    fields = tuple(dict.fromkeys(field for x, y, *_ in PAIRS for field in (x, y)))
    rows = []
    for curve in curves:
        measures = np.stack([_measure(curve, field) for field in fields], axis=1)
        sizes = curve.sizes * len(curve.values)
        for size, values in zip(sizes, measures.tolist(), strict=True):
            rows.append({"method": styles[curve.name].title, "samples": size, **dict(zip(fields, values, strict=True))})
    return rows
