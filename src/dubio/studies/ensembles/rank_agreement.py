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
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from dubio.core.types import FloatArray
from dubio.reporting.canvas import WIDTH, blank, styled
from dubio.reporting.section import Figure
from dubio.reporting.style import INK, MUTED
from dubio.reporting.wording import counted, listed, signed
from dubio.statistics.ranks import kendall_tau
from dubio.studies.ensembles.curve_figures import Styles, number_ticks, study_grid
from dubio.studies.ensembles.study import BINS, TACE_SETTINGS, THRESHOLDS, SampleCurve, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ORDER_CAPTION = (
    "The same methods ranked twice, the best at the top, with {samples} samples each (one network has one). Solid: "
    "methods that change places with another."
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
        draw = partial(order_figure, agreement, styles, titles)
        caption = ORDER_CAPTION.format(samples=study.compared_samples)
        reading = order_reading(agreement, titles, study.compared_samples)
        yield Figure("order", "Order of methods before and after temperature scaling", caption, draw, reading=reading)


def tace_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield TACE and ranks by it under other thresholds and other numbers of bins (P Fig. 2)."""
    ranks = TaceRanks.of(study.select("network", "deep_ensemble", "method", augmented=False))
    draw, reading = partial(tace_figure, ranks, styles), tace_reading(ranks)
    yield Figure("tace", "Why TACE must not rank", TACE_CAPTION, draw, folded=True, reading=reading)


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


@styled
def order_figure(agreement: RankAgreement, styles: Styles, titles: Mapping[str, str]) -> Drawing:
    """Draw ranks by NLL at temperature 1 at the left and by calibrated NLL at the right, one line per method."""
    before, after = agreement.ranks()
    moved = {name for pair in agreement.swapped for name in pair}
    figure = blank(WIDTH * 0.86, 0.21 * len(after) + 0.75)
    axis = figure.subplots()
    for name in agreement.names:
        ends, alpha = (before[name], after[name]), 1.0 if name in moved else 0.55
        keywords = {**styles[name].line, "linewidth": 1.6, "markersize": 4.6, "alpha": alpha}
        axis.plot([0, 1], ends, clip_on=False, **keywords)
        texts = f"{titles[name]}  {agreement.before[name]:.3f}", f"{agreement.after[name]:.3f}  {titles[name]}"
        for x, y, text, align in zip((-0.035, 1.035), ends, texts, ("right", "left"), strict=True):
            axis.text(x, y, text, ha=align, va="center", fontsize=7.6, color=INK)
    axis.set(xlim=(-0.02, 1.02), ylim=(len(after) + 0.6, 0.4), yticks=[])
    axis.set_xticks([0, 1], ["NLL at temperature 1", "calibrated NLL"])
    axis.xaxis.tick_top()
    axis.grid(visible=False)
    axis.tick_params(length=0, labelsize=8.2)
    axis.spines[:].set_visible(False)
    return figure


@styled
def tace_figure(ranks: TaceRanks, styles: Styles) -> Drawing:
    """Draw TACE (above) and the rank by it (below) against its threshold and its number of bins."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    figure, axes = study_grid(ranks.curves, styles, 5.0, sharex="col", sharey="row")
    sides = np.split(np.arange(len(TACE_SETTINGS)), [len(THRESHOLDS)])
    labels: tuple[tuple[str, Sequence[float]], ...] = (("threshold", THRESHOLDS), ("bins", BINS))
    for column, (settings, (label, across)) in enumerate(zip(sides, labels, strict=True)):
        for axis, values in zip(axes[column::2], (ranks.values, ranks.ranks), strict=True):
            axis.set_xscale("log")
            for curve, own in zip(ranks.curves, values[:, settings], strict=True):
                axis.plot(across, own, **{**styles[curve.name].line, "linewidth": 1.3, "markersize": 3.8})
            axis.tick_params(colors=MUTED, labelcolor=INK)
        axes[2 + column].set_xlabel(label)
        number_ticks(axes[2 + column].xaxis, across)
    axes[0].set(ylabel="TACE", yscale="log")
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[2].set(ylabel="rank by TACE", ylim=(len(ranks.curves) + 0.5, 0.5))
    return figure
