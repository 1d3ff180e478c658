"""Agreement of two orders of methods: before and after temperature scaling, and under other settings of TACE.

Only methods with a finite value under both scores are ranked. Where all are tied under one score there is no order, and
Kendall's τ is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import rankdata

from dubio.core.types import FloatArray
from dubio.reporting.charts import WIDTH, Rows, chart_of, method_colour, method_dash, method_points, tooltips
from dubio.reporting.section import Figure
from dubio.reporting.wording import counted, listed, signed
from dubio.statistics.ranks import kendall_tau
from dubio.studies.ensembles.curve_figures import HALF, TALL, Styles
from dubio.studies.ensembles.study import BINS, TACE_SETTINGS, THRESHOLDS, SampleCurve, Study

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

SIDES = "NLL at temperature 1", "calibrated NLL"

LETTER, BESIDE = 5.3, 12
"""Of the labels of an order: the width of a character, and the space between a label and its point."""

ORDER_CAPTION = (
    "The same methods ranked twice, the best at the top, with {samples} samples each (one network has one). Strong "
    "lines: methods that change places with another."
)
TACE_CAPTION = (
    "Thresholded adaptive calibration error with all samples, at each method's optimal temperature, and below the rank "
    "by it. A score whose order of methods depends on its settings cannot rank them."
)


@dataclass(frozen=True, eq=False)
class RankAgreement:
    """The same methods in the same order under two scores, lower is better.

    Attributes:
        before: Method → its value under the first.
        after: Method → its value under the second.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]

    @classmethod
    def of(cls, before: Mapping[str, float], after: Mapping[str, float]) -> RankAgreement:
        """Compare the methods that have a finite value under both scores."""
        names = [name for name in after if name in before and math.isfinite(before[name] + after[name])]
        return cls({name: before[name] for name in names}, {name: after[name] for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, best first under the second score."""
        return tuple(sorted(self.after, key=lambda name: self.after[name]))

    def ranks(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return method → rank under either score, 1 for the best; ties share their mean rank."""
        before, after = (
            dict(zip(values, map(float, rankdata(list(values.values()))), strict=True))
            for values in (self.before, self.after)
        )
        return before, after

    @property
    def swapped(self) -> tuple[tuple[str, str], ...]:
        """Pairs whose order is reversed."""
        before, after = self.before, self.after
        pairs = combinations(self.names, 2)
        return tuple((one, two) for one, two in pairs if (before[one] - before[two]) * (after[one] - after[two]) < 0)

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return math.comb(len(self.after), 2)

    @property
    def tau(self) -> float | None:
        """Kendall's τ_b of the two orders."""
        return kendall_tau(list(self.before.values()), list(self.after.values()))


def tau_phrase(tau: float | None) -> str:
    """Return Kendall's τ within a sentence."""
    return "Kendall's τ is not defined: all are tied" if tau is None else f"Kendall's τ = {signed(tau, 2)}"


def temperature_agreement(study: Study) -> RankAgreement:
    """Compare methods with the same number of samples by NLL at temperature 1 and by calibrated NLL."""
    sides = [
        {curve.name: cell.mean for curve in study.curves if (cell := curve.at(measure, study.compared_samples))}
        for measure in ("nll", "calibrated_nll")
    ]
    return RankAgreement.of(*sides)


@dataclass(frozen=True, eq=False)
class TaceRanks:
    """TACE of methods in every setting, ``[methods, settings]``, averaged over runs; NaN where it is unknown."""

    curves: tuple[SampleCurve, ...]
    values: FloatArray

    @classmethod
    def of(cls, curves: Sequence[SampleCurve]) -> TaceRanks:
        """Average the calibration errors of these methods over runs."""
        return cls(tuple(curves), np.array([curve.tace.mean(axis=0) for curve in curves]))

    @property
    def ranks(self) -> FloatArray:
        """Ranks in every setting, 1 for the lowest; ties share their mean rank; NaN where there is no value."""
        return np.asarray(rankdata(self.values, axis=0, nan_policy="omit"))

    @property
    def orders(self) -> int:
        """The number of different orders under the settings; ties are part of an order."""
        return len({tuple(column) for column in np.nan_to_num(self.ranks, nan=np.inf).T})

    @property
    def leaders(self) -> tuple[str, ...]:
        """Methods that are lowest in some setting, in the order of settings; none where all are tied."""
        names: dict[str, None] = {}
        for column in self.values.T:
            finite = column[np.isfinite(column)]
            if len(finite) > 1 and np.ptp(finite) > 0:
                names |= dict.fromkeys(self.curves[row].name for row in np.flatnonzero(column == finite.min()))
        return tuple(names)

    @property
    def least_agreement(self) -> tuple[float, int, int] | None:
        """The smallest Kendall's τ between two settings, and which two; None where no two settings order methods."""
        taus = [
            (tau, i, j)
            for i, j in combinations(range(len(TACE_SETTINGS)), 2)
            if TACE_SETTINGS[i] != TACE_SETTINGS[j]
            and (tau := kendall_tau(self.values[:, i], self.values[:, j])) is not None
        ]
        return min(taus, default=None)


def order_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield the order of methods before and after temperature scaling."""
    agreement = temperature_agreement(study)
    if agreement.pairs:
        titles = {curve.name: curve.title for curve in study.curves}
        caption = ORDER_CAPTION.format(samples=study.compared_samples)
        chart = partial(order_chart, agreement, styles)
        reading = order_reading(agreement, titles, study.compared_samples)
        yield Figure("order", "Order of methods before and after temperature scaling", caption, chart, reading=reading)


def tace_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield TACE and ranks by it under other thresholds and other numbers of bins (P Fig. 2)."""
    ranks = TaceRanks.of(study.select("network", "deep_ensemble", "method", augmented=False))
    chart, reading = partial(tace_chart, ranks, styles), tace_reading(ranks)
    yield Figure("tace", "Why TACE must not rank", TACE_CAPTION, chart, folded=True, reading=reading)


def order_reading(agreement: RankAgreement, titles: Mapping[str, str], size: int) -> str:
    """Return the number of pairs that change their order, and the method whose rank changes most."""
    before, after = agreement.ranks()
    mover = max(after, key=lambda name: abs(before[name] - after[name]))
    text = (
        f"With {size} samples each, {len(agreement.swapped)} of {agreement.pairs} pairs change their order "
        f"({tau_phrase(agreement.tau)})."
    )
    if before[mover] == after[mover]:
        return text
    return f"{text} {titles[mover]} moves most, from rank {before[mover]:g} to {after[mover]:g}."


def tace_reading(ranks: TaceRanks) -> str:
    """Return the number of different orders, the methods that lead, and the settings that agree least."""
    titles = {curve.name: curve.method.title for curve in ranks.curves}
    text = f"{len(set(TACE_SETTINGS))} settings give {counted(ranks.orders, 'order')} of {len(ranks.curves)} methods"
    if ranks.leaders:
        verb = "is the only one that is lowest in any" if len(ranks.leaders) == 1 else "are each lowest in some setting"
        text += f"; {listed([titles[name] for name in ranks.leaders])} {verb}"
    least = ranks.least_agreement
    if least is None:
        return f"{text}. No two settings order the methods: all are tied."
    tau, *settings = least
    pair = " and ".join("threshold {:g} with {} bins".format(*TACE_SETTINGS[index]) for index in settings)
    return f"{text}. The two settings that agree least, {pair}, have {tau_phrase(tau)}."


def order_chart(agreement: RankAgreement, styles: Styles) -> Chart:
    """Return ranks by NLL at temperature 1 at the left and by calibrated NLL at the right, one line per method."""
    import altair

    own = [styles[name] for name in agreement.names]
    rows = order_rows(agreement, styles)
    chart, share = chart_of(rows), label_share(max(len(str(row["text"])) for row in rows))
    scale = altair.Scale(domain=[0.4, len(own) + 0.6], reverse=True, nice=False)
    titles = f"datum.value == 0 ? '{SIDES[0]}' : '{SIDES[1]}'"
    side = altair.Axis(orient="top", labelExpr=titles, ticks=False, domain=False, grid=False, title=None, values=[0, 1])
    margin = share / (1 - 2 * share)  # a scale of two points would allow a third of the width at most
    sides = altair.Scale(domain=[-margin, 1 + margin], nice=False, zero=False)
    x = altair.X("position:Q", scale=sides, axis=side)
    y, moves = altair.Y("rank:Q", scale=scale, axis=None), altair.Scale(domain=[True, False], range=[1.0, 0.45])
    line = chart.mark_line(strokeWidth=1.6).encode(
        x, y, color=method_colour(own), strokeDash=method_dash(own), detail="method:N"
    )
    line = line.encode(strokeOpacity=altair.StrokeOpacity("moves:N", scale=moves, legend=None))
    shown = tooltips({"method": "method:N", "score": "side:N", "value": "value:Q", "rank": "rank:Q"})
    aligned: tuple[Literal["right", "left"], ...] = ("right", "left")
    texts = [
        chart.transform_filter(altair.FieldEqualPredicate(field="side", equal=name))
        .mark_text(align=align, dx=dx, limit=share * WIDTH - BESIDE)
        .encode(x, y, text=altair.Text("text:N"), tooltip=shown)
        for name, align, dx in zip(SIDES, aligned, (-9, 9), strict=True)
    ]
    layers = [line, method_points(chart, own, x=x, y=y, tooltip=shown), *texts]
    figure = altair.LayerChart(layer=layers).properties(width="container", height=19 * len(own))
    plain: altair.LayerChart = figure.configure_legend(disable=True)  # the labels name the methods
    return plain


def label_share(longest: int) -> float:
    """Return the share of a figure's width for labels at each side, which have at most that number of characters."""
    return min(0.42, max(0.32, (LETTER * longest + BESIDE) / WIDTH))


def order_rows(agreement: RankAgreement, styles: Styles) -> Rows:
    """Return the value and rank of every method under both scores, and whether it changes places with another."""
    moved = {name for pair in agreement.swapped for name in pair}
    rows = []
    sides = zip((agreement.before, agreement.after), agreement.ranks(), strict=True)
    for position, (values, ranks) in enumerate(sides):
        for name in agreement.names:
            title, value = styles[name].title, f"{values[name]:.3f}"
            text = f"{value} {title}" if position else f"{title} {value}"
            row = {"method": title, "side": SIDES[position], "position": position, "text": text}
            rows.append({**row, "value": values[name], "rank": ranks[name], "moves": name in moved})
    return rows


def tace_chart(ranks: TaceRanks, styles: Styles) -> Chart:
    """Return TACE (above) and the rank by it (below) against its threshold and its number of bins."""
    import altair

    own, chart = [styles[curve.name] for curve in ranks.curves], chart_of(tace_rows(ranks, styles))
    colour, dash, panels = method_colour(own), method_dash(own), []
    scales = {
        "TACE": altair.Scale(type="log", nice=False, padding=8),
        "rank": altair.Scale(domain=[0.5, len(own) + 0.5], reverse=True, nice=False),
    }
    for y_title, y_scale in scales.items():
        for field, across in (("threshold", THRESHOLDS), ("bins", BINS)):
            axis = altair.Axis(values=list(across), format="~g", grid=False)
            x = altair.X(f"{field}:Q", title=field, scale=altair.Scale(type="log", nice=False, padding=8), axis=axis)
            y = altair.Y(f"{y_title.lower()}:Q", title=y_title, scale=y_scale, axis=altair.Axis(format="~g"))
            shown = tooltips({"method": "method:N", field: f"{field}:Q", "TACE": "tace:Q", "rank": "rank:Q"})
            varied = chart.transform_filter(altair.FieldEqualPredicate(field="varied", equal=field))
            line = varied.mark_line(strokeWidth=1.4).encode(x, y, color=colour, strokeDash=dash)
            points = method_points(varied, own, size=24, x=x, y=y, tooltip=shown)
            panels.append(altair.LayerChart(layer=[line, points]).properties(width=HALF, height=TALL))
    return altair.concat(*panels, columns=2)


def tace_rows(ranks: TaceRanks, styles: Styles) -> Rows:
    """Return TACE and rank of every method in every setting, and whether its threshold or its bins vary.

    A logarithmic axis has no zero: an error of zero has a rank alone.
    """
    rows = []
    for setting, (threshold, bins) in enumerate(TACE_SETTINGS):
        varied = "threshold" if setting < len(THRESHOLDS) else "bins"
        values = zip(ranks.curves, ranks.values[:, setting], ranks.ranks[:, setting], strict=True)
        for curve, tace, rank in values:
            row = {"method": styles[curve.name].title, "varied": varied, "threshold": threshold, "bins": bins}
            rows.append({**row, "tace": tace if tace > 0 else None, "rank": rank})
    return rows
