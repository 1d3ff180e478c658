"""Referral on tasks with a positive side, on every test set: accuracy, AUC and ROC curves of the retained examples.

A task has a positive side if it has two classes, or grades of which the higher ones are referable. The gain over random
referral is averaged over runs; its interval resamples groups, such as patients, the same ones for all methods and runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import binary_problems, why_undefined
from dubio.metrics.referral_curve import (
    FRACTIONS,
    NHS_POINT,
    ReferralCurve,
    RocCurve,
    referral_curve,
    retained_roc,
    sensitivity_at_specificity,
)
from dubio.metrics.selective import au_arc, referral_gain
from dubio.reporting.canvas import (
    WIDTH,
    Series,
    blank,
    legend_height,
    method_legend,
    styled,
)
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import REFERRED_BY, RETAINED, UNDERPOWERED, values_at_fractions
from dubio.reporting.retention import (
    REFERRAL_CAPTION,
    control_title,
    over_seeds,
    reference_index,
    referral_figure,
    retention_columns,
    with_standard_errors,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Headline, Json, Section, Text, Visit, section
from dubio.reporting.style import CONTROL, INK, RULE
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import file_name, listed, term
from dubio.statistics.bootstrap import Interval, RunIntervals, Statistic, replicates_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ROC_FRACTIONS = (0.6, 0.9)
"""Fractions retained at which ROC curves are drawn (R Fig. 6)."""

FALSE_POSITIVE_RATES = np.linspace(0.0, 1.0, 101)
"""False-positive rates at which ROC curves are stored."""

SLACK = 1e-12
"""Rates are quotients of whole numbers: a little slack prevents a grid's rate from missing its own by rounding."""


@dataclass(frozen=True, eq=False)
class RetainedScores:
    """One run on one split when the most uncertain examples are referred.

    Attributes:
        accuracy: Accuracy of the retained at :data:`RETAINED`.
        auc: Area under the ROC curve there, NaN where undefined.
        undefined: Why the area of all examples is undefined, or empty.
        roc: Fraction retained → highest sensitivity at :data:`FALSE_POSITIVE_RATES`; none where one class is retained.
        sensitivity: Highest sensitivity at the NHS's specificity, at :data:`FRACTIONS`; NaN where undefined.
    """

    accuracy: FloatArray
    auc: FloatArray
    undefined: str
    roc: Mapping[float, FloatArray]
    sensitivity: FloatArray


@dataclass(frozen=True)
class Gain:
    """The gain of referral by uncertainty over random referral, averaged over all fractions retained and over runs.

    Attributes:
        area: Area under the accuracy–referral curve.
        gain: The same minus accuracy, which is the area of random referral.
        units: Number of groups (examples, where there are no groups) that were resampled.
        replicates: Number of resamples.
    """

    area: Interval
    gain: Interval
    units: int
    replicates: int

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the gain's interval lies on one side of zero; None where there is no interval."""
        if not np.isfinite([self.gain.low, self.gain.high]).all():
            return None
        return self.gain.low > 0 or self.gain.high < 0


@section("two-class-referral", order=32)
class TwoClassReferral(Section):
    """Referral on every test set of tasks with a positive side."""

    title = "Referral on every test set"

    def __init__(self) -> None:
        """Start without any run."""
        self.runs: dict[tuple[str, str, str], list[RetainedScores]] = {}
        self.intervals = RunIntervals()
        self.sizes: dict[tuple[str, str], int] = {}
        self.grouped: dict[tuple[str, str], bool] = {}

    def visit(self, item: Visit) -> None:
        """Add the scores at the fractions of the tables, and store the curves of a run.

        Of a corruption, the worst severity alone is shown.
        """
        task, split = item.task, item.split
        shown = item.is_in_domain_test or split in task.farthest
        if not task.has_positive_side or not (shown or split.kind == "id") or not (item.predictions.labels >= 0).any():
            return
        labelled = item.predictions.labelled
        curve = referral_curve(labelled, quantity=REFERRED_BY, fractions=tuple(RETAINED))
        item.values |= values_at_fractions(curve.accuracy, curve.auc)
        if shown:
            key = task.key, split.name, item.run.method
            self.runs.setdefault(key, []).append(retained_scores(labelled, curve))
            self.grouped[task.key, split.name] = labelled.group is not None
            self.sizes[task.key, split.name] = len(labelled)
            self.intervals.add(("gain", *key), labelled, gain_statistics(labelled))

    def splits(self, task: TaskView) -> tuple[str, ...]:
        """Return the splits with results, in the order in which they were read."""
        return tuple(dict.fromkeys(split for key, split, _ in self.runs if key == task.key))

    def undefined(self, task: TaskView, split: str) -> str:
        """Return why no ROC curve is defined on a split; empty where one is."""
        return next((runs[0].undefined for (*key, _), runs in self.runs.items() if key == [task.key, split]), "")

    def methods(self, run: RunView, task: TaskView, split: str) -> list[MethodView]:
        """Return the methods with results on a split."""
        return [method for method in run.methods_of(task) if (task.key, split, method.name) in self.runs]

    def gains(self, task: TaskView) -> dict[tuple[str, str], Gain]:
        """Return (split, method) → its gain over random referral."""
        gains = {}
        for key, split, method in self.runs:
            if key == task.key:
                area, gain = (("gain", key, split, method, name) for name in ("area", "gain"))
                gains[split, method] = Gain(
                    self.intervals.interval(area),
                    self.intervals.interval(gain),
                    self.intervals.units(gain),
                    replicates_for(self.sizes[key, split]),
                )
        return gains

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the gains over random referral, then tables and figures of every test set."""
        if task is None or not self.splits(task):
            return
        yield Headline("Gain over random referral")
        yield gain_table(run, task, self.gains(task))
        yield Text(self._gain_summary(run, task), "small")
        for split in self.splits(task):
            yield Headline(f"{'In-domain' if split == task.in_domain.name else 'Shifted'}: “{split}”")
            reason = self.undefined(task, split)
            if reason:
                yield Text(f"AUC and ROC curve are undefined on “{split}”: {reason}.", "note")
            yield self.retention_table(run, task, split, "referral_accuracy")
            if not reason:
                yield self.retention_table(run, task, split, "referral_auc")
                yield self.operating_point_table(run, task, split)
            yield self._referral(run, task, split)
            if not reason:
                yield from self._roc(run, task, split)

    def _gain_summary(self, run: RunView, task: TaskView) -> tuple[str, ...]:
        gains, sentences = self.gains(task), []
        for split in self.splits(task):
            titled = {run.title(method): gain for (name, method), gain in gains.items() if name == split}
            power = resampled(titled, grouped=self.grouped[task.key, split])
            sentences.append(f"On “{split}” {significance(titled)}. {power}")
        return (
            *sentences,
            "The intervals are for the mean over these trained networks on other patients, or examples, like these; "
            "they do not include the spread over trainings. Each has 95 % confidence on its own: of twenty methods "
            "without any gain, one is expected to show a gain or a loss.",
        )

    def retention_table(self, run: RunView, task: TaskView, split: str, metric: str) -> Table:
        """Return accuracy or AUC at each fraction retained, with random referral as the last row."""
        columns = retention_columns(run, task, split, metric).items()
        caption = (
            f"{term(metric).title} of the retained part of “{split}”, referred by predictive entropy; mean ± standard "
            "error over seeds"
        )
        return method_table(
            self.methods(run, task, split),
            [with_standard_errors(column, over_seeds(run, task, split, name)) for name, column in columns],
            run.styles,
            caption=caption,
            controls=control_title(run, task),
        )

    def operating_point_table(self, run: RunView, task: TaskView, split: str) -> Table:
        """Return whether the NHS's operating point is met at each fraction retained."""
        methods = self.methods(run, task, split)
        note = "whether some threshold reaches both rates; beside it the highest sensitivity at that specificity"
        columns = []
        for fraction in sorted(FRACTIONS, reverse=True):
            index = FRACTIONS.index(fraction)
            cells = {m.name: operating_point_cell(self.runs[task.key, split, m.name], index) for m in methods}
            columns.append(FilledColumn(Column(f"{fraction:.0%}", "retained", "↑", note), cells))
        sensitivity, specificity = NHS_POINT
        caption = (
            f"Sensitivity {sensitivity:.0%} at specificity {specificity:.0%} on “{split}”: whether it is met, and the "
            "highest sensitivity at that specificity, mean over runs"
        )
        return method_table(methods, columns, run.styles, caption=caption)

    def _referral(self, run: RunView, task: TaskView, split: str) -> Figure:
        methods, reason = self.methods(run, task, split), self.undefined(task, split)

        def series(name: str) -> list[Series]:
            runs = {m.name: [getattr(each, name) for each in self.runs[task.key, split, m.name]] for m in methods}
            return [Series(run.styles[name], RETAINED, np.array(curves)) for name, curves in runs.items()]

        area = [] if reason else series("auc")
        draw = partial(referral_figure, series("accuracy"), area, reference=reference_index(run, task, methods))
        caption = f"{REFERRAL_CAPTION} The AUC is undefined: {reason}." if reason else REFERRAL_CAPTION
        if split == task.in_domain.name:
            return Figure("referral", "Referral curves", caption, draw)
        return Figure(f"referral-{file_name(split)}", f"Referral curves on {split}", caption, draw)

    def _roc(self, run: RunView, task: TaskView, split: str) -> Iterator[Figure]:
        panels = {}
        for fraction in ROC_FRACTIONS:
            curves = []
            for method in self.methods(run, task, split):
                runs = [r.roc[fraction] for r in self.runs[task.key, split, method.name] if fraction in r.roc]
                if runs:
                    curves.append(Series(run.styles[method.name], FALSE_POSITIVE_RATES, np.array(runs)))
            if curves:
                panels[fraction] = curves
        if panels:
            title, draw = f"ROC curves of the retained on {split}", partial(roc_figure, panels)
            yield Figure(f"roc-{file_name(split)}", title, ROC_CAPTION, draw, narrow=len(panels) == 1)

    def document(self, run: RunView) -> Json:
        """Return the gain of every method on every split, and whether it meets the operating point."""
        gains = [
            {
                "task": task.key,
                "split": split,
                "method": method,
                "area": asdict(gain.area),
                "gain": asdict(gain.gain),
                "resampled": gain.units,
                "replicates": gain.replicates,
                "excludes_zero": gain.excludes_zero,
                "nhs": {
                    f"{fraction:g}": operating_point_cell(self.runs[task.key, split, method], index).text
                    for index, fraction in enumerate(FRACTIONS)
                },
            }
            for task in run.tasks
            for (split, method), gain in self.gains(task).items()
        ]
        return {"referral_gains": gains}


def retained_scores(labelled: Predictions, curve: ReferralCurve) -> RetainedScores:
    """Return what the section shows of one run on one split."""
    best = partial(sensitivity_at_specificity, labelled, specificity=NHS_POINT[1], quantity=REFERRED_BY)
    return RetainedScores(
        accuracy=curve.accuracy,
        auc=curve.auc,
        undefined=why_undefined(binary_problems(labelled)) or "",
        roc={fraction: on_grid(roc) for fraction in ROC_FRACTIONS if (roc := roc_at(labelled, fraction)) is not None},
        sensitivity=np.array([best(retained=fraction) for fraction in FRACTIONS]),
    )


def roc_at(labelled: Predictions, fraction: float) -> RocCurve | None:
    """Return the ROC curve of the examples retained; None where they are all on one side."""
    try:
        return retained_roc(labelled, fraction=fraction, quantity=REFERRED_BY)
    except UserError:
        return None


def on_grid(curve: RocCurve) -> FloatArray:
    """Return the highest sensitivity at :data:`FALSE_POSITIVE_RATES`: a step function, without interpolation."""
    places = np.searchsorted(curve.false_positive_rate, FALSE_POSITIVE_RATES + SLACK, side="right") - 1
    return np.asarray(np.maximum.accumulate(curve.true_positive_rate)[places])


def gain_statistics(labelled: Predictions) -> dict[str, Statistic]:
    """Return the area under the referral curve and its gain over random referral, as functions of weights."""
    return {
        "area": lambda weights: np.asarray(au_arc(labelled, quantity=REFERRED_BY, weights=weights)),
        "gain": lambda weights: np.asarray(referral_gain(labelled, quantity=REFERRED_BY, weights=weights)),
    }


def operating_point_cell(runs: Sequence[RetainedScores], index: int) -> TableCell:
    """Return whether the runs meet the NHS's operating point; undefined where one class is retained in every run."""
    rates = [run.sensitivity[index] for run in runs if not math.isnan(run.sensitivity[index])]
    if not rates:
        return TableCell("undefined", place="unranked", hint="the retained examples are of one class")
    met = sum(rate >= NHS_POINT[0] - SLACK for rate in rates)
    text = "yes" if met == len(rates) else "no" if met == 0 else f"{met} of {len(rates)}"
    mean = float(np.mean(rates))
    return TableCell(text, f"{mean:.3f}", f"{mean:.9g}", hint=f"met in {met} of {len(rates)} runs")


def gain_table(run: RunView, task: TaskView, gains: Mapping[tuple[str, str], Gain]) -> Table:
    """Return the area under the referral curve and its gain over random referral, split by split."""
    columns: list[FilledColumn] = []
    for split in dict.fromkeys(split for split, _ in gains):
        on_split = {method: gain for (name, method), gain in gains.items() if name == split}
        few = any(gain.units < UNDERPOWERED for gain in on_split.values())
        note = "mean accuracy of the retained over all fractions retained"
        columns += [
            FilledColumn(
                Column("Area", f"{split}, underpowered" if few else split, "↑", note),
                {m: TableCell(f"{g.area.value:.3f}", sort=f"{g.area.value:.9g}") for m, g in on_split.items()},
            ),
            FilledColumn(
                Column("Gain", "95 % interval", "↑", "area minus that of random referral", unranked=few),
                {method: interval_cell(gain.gain, few) for method, gain in on_split.items()},
            ),
            FilledColumn(Column("Excludes 0"), {method: zero_cell(gain) for method, gain in on_split.items()}),
        ]
    count = max(gain.replicates for gain in gains.values())
    caption = (
        f"Area under the accuracy–referral curve and its gain over random referral, mean over runs; {count:,} "
        "resamples, the same for all methods and runs"
    )
    return method_table(run.methods_of(task), columns, run.styles, caption=caption)


def interval_cell(interval: Interval, underpowered: bool) -> TableCell:
    """Return a signed value with its interval."""
    if math.isnan(interval.low):
        return TableCell(f"{interval.value:+.3f}", "(no interval)", f"{interval.value:.9g}", "unranked")
    bounds = f"[{interval.low:+.3f}, {interval.high:+.3f}]"
    return TableCell(f"{interval.value:+.3f}", bounds, f"{interval.value:.9g}", "unranked" if underpowered else "")


def zero_cell(gain: Gain) -> TableCell:
    """Return whether the interval of a gain excludes zero."""
    excludes = gain.excludes_zero
    if excludes is None:
        return TableCell("unknown", place="unranked")
    if not excludes:
        return TableCell("no", place="unranked")
    return TableCell("yes" if gain.gain.low > 0 else "yes, below")


def significance(gains: Mapping[str, Gain]) -> str:
    """Return for which methods the gain is significant: title → gain."""
    above = [title for title, gain in gains.items() if gain.excludes_zero and gain.gain.low > 0]
    below = [title for title, gain in gains.items() if gain.excludes_zero and gain.gain.high < 0]
    others = [title for title in gains if title not in (*above, *below)]
    clauses = []
    if above:
        clauses.append(f"the gain over random referral is significant for {listed(above)}")
    if below:
        clauses.append(f"referral by uncertainty is significantly worse than random referral for {listed(below)}")
    if others:
        subject = "it" if above else "the gain over random referral"
        clauses.append(f"{subject} is not significant for {listed(others)}")
    return "; ".join(clauses)


def resampled(gains: Mapping[str, Gain], *, grouped: bool) -> str:
    """Return what the intervals resample, with a warning where there are few."""
    units = next(iter(gains.values())).units
    warning = f", fewer than {UNDERPOWERED}: underpowered" if units < UNDERPOWERED else ""
    return f"The intervals resample {units:,} {'groups (patients)' if grouped else 'examples'}{warning}."


ROC_CAPTION = (
    "Sensitivity and specificity of the retained examples; mean over runs of the highest sensitivity at each "
    "false-positive rate. A curve through the shaded corner has a threshold that meets the NHS's standard for "
    "diabetic-retinopathy screening. That threshold is chosen with the test labels, so it shows what is attainable."
)


@styled
def roc_figure(panels: Mapping[float, Sequence[Series]]) -> Drawing:
    """Draw mean ROC curves of the retained with the NHS's operating point, one panel per fraction.

    Args:
        panels: Fraction retained → one series per method over the false-positive rate.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    methods = [curve.style for curve in next(iter(panels.values()))]
    figure = blank(WIDTH, 3.3 + legend_height(len(methods) + 1))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    sensitivity, specificity = NHS_POINT
    for axis, (fraction, curves) in zip(axes, panels.items(), strict=True):
        corner = Rectangle((0, sensitivity), 1 - specificity, 1 - sensitivity, facecolor=RULE, alpha=0.45, linewidth=0)
        axis.add_patch(corner)
        axis.plot([0, 1], [0, 1], color=CONTROL, linewidth=0.8, linestyle="dotted")
        for index, curve in enumerate(curves):
            offset = (index * 20) // max(len(curves), 1)
            line = {**curve.style.line, "drawstyle": "steps-post", "markevery": (offset, 20)}
            axis.plot(curve.x, curve.mean, zorder=3 if curve.style.ensemble else 2, **line)
        axis.plot([1 - specificity], [sensitivity], marker="*", markersize=11, color=INK, linestyle="none", zorder=5)
        axis.set_title(f"{fraction:.0%} retained")
        axis.set(xlabel="1 − specificity", xlim=(-0.01, 1.0), ylim=(0.0, 1.02))
    axes[0].set_ylabel("sensitivity")
    method_legend(figure, methods)
    handle = Line2D([], [], marker="*", markersize=9, color=INK, linestyle="none",
                    label=f"NHS: sensitivity {sensitivity:.0%}, specificity {specificity:.0%}")  # fmt: skip
    figure.legend(handles=[handle], loc="outside upper right")
    return figure
