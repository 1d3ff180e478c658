"""Referral on tasks with a positive side, on every test set: accuracy, AUC and ROC curves of the retained examples.

A task has a positive side if it has two classes, or grades of which the higher ones are referable. The gain over random
referral is averaged over runs; its interval resamples groups, such as patients, the same ones for all methods and runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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
from dubio.reporting.charts import Series, chart_of, line_legend, method_colour, method_dash, tooltips
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import REFERRED_BY, RETAINED, values_at_fractions
from dubio.reporting.retention import (
    HALF,
    REFERRAL_CAPTION,
    over_trainings,
    referral_of,
    retention_columns,
    retention_table,
    rows_of,
    series_of,
    with_standard_errors,
)
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Headline, Json, Section, Text, Visit, section
from dubio.reporting.style import CONTROL, RULE, Style
from dubio.reporting.tables import Column, Table, TableCell, interval_cell, value_cell
from dubio.reporting.wording import file_name, listed, term
from dubio.statistics.bootstrap import Interval, RunIntervals, Statistic, units_of_errors
from dubio.statistics.subgroups import UNDERPOWERED

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

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
        curve: Accuracy and AUC of the retained at :data:`RETAINED`.
        undefined: Why the AUC of all examples is undefined, or empty.
        roc: Fraction retained → highest sensitivity at :data:`FALSE_POSITIVE_RATES`; none where one class is retained.
        sensitivity: Highest sensitivity at the NHS's specificity, at :data:`FRACTIONS`; NaN where undefined.
        grouped: Whether examples come in groups, such as patients.
    """

    curve: ReferralCurve
    undefined: str
    roc: Mapping[float, FloatArray]
    sensitivity: FloatArray
    grouped: bool


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
    def sign(self) -> int | None:
        """1 or −1 where the interval of the gain lies above or below zero, else 0; None where there is no interval."""
        if not np.isfinite([self.gain.low, self.gain.high]).all():
            return None
        return int(self.gain.low > 0) - int(self.gain.high < 0)

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval lies on one side of zero; None where there is no interval."""
        return None if self.sign is None else self.sign != 0

    @property
    def underpowered(self) -> bool:
        """Whether there are too few units for a conclusion."""
        return self.units < UNDERPOWERED


@section("two-class-referral", order=32)
class TwoClassReferral(Section):
    """Referral on every test set of tasks with a positive side."""

    title = "Referral on every test set"

    def __init__(self) -> None:
        """Start without any run."""
        self.scores = Collected[RetainedScores]()
        self.intervals = RunIntervals()

    def visit(self, item: Visit) -> None:
        """Add the scores at the fractions of the tables, and store the curves of a run.

        Of a corruption, the worst severity alone is shown.
        """
        if not item.task.has_positive_side or not (item.is_shown or item.split.kind == "id") or not item.has_labels:
            return
        labelled = item.predictions.labelled
        curve = referral_curve(labelled, quantity=REFERRED_BY, fractions=tuple(RETAINED))
        item.values |= values_at_fractions(curve.accuracy, curve.auc)
        if item.is_shown:
            self.scores.add(item, retained_scores(labelled, curve))
            deciding = units_of_errors(labelled)
            self.intervals.add(("gain", *item.key), labelled, gain_statistics(labelled), deciding)

    def gain(self, *key: str) -> Gain:
        """Return the gain over random referral of a task, split and method."""
        area, gain = (self.intervals.interval(("gain", *key, name)) for name in ("area", "gain"))
        sums = self.intervals.sums["gain", *key, "gain"]
        return Gain(area, gain, sums.units.count, len(sums.draws))

    def gains(self, task: TaskView) -> dict[str, dict[str, Gain]]:
        """Return split → method → its gain over random referral."""
        gains: dict[str, dict[str, Gain]] = {}
        for key, split, method in self.scores.runs:
            if key == task.key:
                gains.setdefault(split, {})[method] = self.gain(key, split, method)
        return gains

    def undefined(self, run: RunView, task: TaskView, split: str) -> str:
        """Return why no ROC curve is defined on a split; empty where one is."""
        return next(iter(self.scores.methods(run, task, split).values()))[0].undefined

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the gains over random referral, then tables and figures of every test set."""
        gains = self.gains(task)
        if gains:
            yield Headline("Gain over random referral")
            yield gain_table(run, gains)
            yield Text(self._gain_summary(run, task, gains), "small")
        for split in gains:
            yield from self._split_blocks(run, task, split)

    def _split_blocks(self, run: RunView, task: TaskView, split: str) -> Iterator[Block]:
        """Yield tables and figures of one test set; those of the in-domain one name no split."""
        inside, reason = split == task.in_domain.name, self.undefined(run, task, split)
        about = "" if inside else split
        yield Headline(f"{'In-domain' if inside else 'Shifted'}: “{split}”", about)
        if reason:
            yield Text(f"AUC and ROC curve are undefined on “{split}”: {reason}.", "note", split=about)
        tables = [self.retention_table(run, task, split, "referral_accuracy")]
        if not reason:
            tables.append(self.retention_table(run, task, split, "referral_auc"))
            tables.append(self.operating_point_table(run, task, split))
        yield from (replace(table, split=about) for table in tables)
        yield self._referral(run, task, split, reason)
        if not reason:
            yield from self._roc(run, task, split)

    def _gain_summary(self, run: RunView, task: TaskView, gains: Mapping[str, Mapping[str, Gain]]) -> tuple[str, ...]:
        sentences = []
        for split, methods in gains.items():
            grouped = any(scores[0].grouped for scores in self.scores.methods(run, task, split).values())
            titled = {run.title(method): gain for method, gain in methods.items()}
            sentences.append(f"On “{split}” {significance(titled)}. {resampled(titled, grouped=grouped)}")
        return (
            *sentences,
            "The intervals are for the mean over these trained networks on other groups, or examples, like these; "
            "they do not include the spread over trainings. Each has 95 % confidence on its own: of twenty methods "
            "without any gain, one is expected to show a gain or a loss.",
        )

    def retention_table(self, run: RunView, task: TaskView, split: str, metric: str) -> Table:
        """Return accuracy or AUC at each fraction retained, with random referral as the last row."""
        columns = retention_columns(run, task, split, metric).items()
        caption = (
            f"{term(metric).title} of the retained on “{split}”, referred by entropy; "
            "± standard error over trainings (ensembles: over seeds)"
        )
        scored = [with_standard_errors(column, over_trainings(run, task, split, name)) for name, column in columns]
        if run.question == "systems":
            scored = [column for _, column in columns]
        return retention_table(run, task, self.scores.methods(run, task, split), scored, caption)

    def operating_point_table(self, run: RunView, task: TaskView, split: str) -> Table:
        """Return whether the NHS's operating point is met at each fraction retained."""
        note = "whether some threshold reaches both rates; beside it the highest sensitivity at that specificity"
        columns = {f"{at:g}": Column(f"{at:.0%}", "retained", "↑", note) for at in sorted(FRACTIONS, reverse=True)}
        rows = {name: operating_points(runs) for name, runs in self.scores.methods(run, task, split).items()}
        sensitivity, specificity = NHS_POINT
        rates = f"Sensitivity {sensitivity:.0%} at specificity {specificity:.0%}"
        caption = f"{rates} on “{split}”: whether it is met, and the highest sensitivity there, mean over runs"
        return run.table(columns, rows, caption)

    def _referral(self, run: RunView, task: TaskView, split: str, reason: str) -> Figure:
        methods = self.scores.methods(run, task, split).items()
        accuracy = {name: [scores.curve.accuracy for scores in runs] for name, runs in methods}
        area = {} if reason else {name: [scores.curve.auc for scores in runs] for name, runs in methods}
        chart = partial(referral_of, run, task, accuracy, area)
        caption = f"{REFERRAL_CAPTION} The AUC is undefined: {reason}." if reason else REFERRAL_CAPTION
        if split == task.in_domain.name:
            return Figure("referral", "Referral curves", caption, chart)
        return Figure(f"referral-{file_name(split)}", f"Referral curves on {split}", caption, chart, split=split)

    def _roc(self, run: RunView, task: TaskView, split: str) -> Iterator[Figure]:
        methods = self.scores.methods(run, task, split).items()
        panels = {}
        for at in ROC_FRACTIONS:
            curves = {name: [scores.roc[at] for scores in runs if at in scores.roc] for name, runs in methods}
            if any(curves.values()):
                panels[at] = series_of(run, FALSE_POSITIVE_RATES, {name: runs for name, runs in curves.items() if runs})
        if panels:
            title, about = f"ROC curves of the retained on {split}", "" if split == task.in_domain.name else split
            yield Figure(f"roc-{file_name(split)}", title, ROC_CAPTION, partial(roc_chart, panels), split=about)

    def document(self, run: RunView) -> Json:
        """Return the gain of every method on every split, and whether it meets the operating point."""
        gains = []
        for (task, split, method), runs in self.scores.runs.items():
            gain = self.gain(task, split, method)
            nhs = {fraction: cell.text for fraction, cell in operating_points(runs).items()}
            gains.append({
                "task": task, "split": split, "method": method, "area": asdict(gain.area), "gain": asdict(gain.gain),
                "resampled": gain.units, "replicates": gain.replicates, "excludes_zero": gain.excludes_zero, "nhs": nhs,
            })  # fmt: skip
        return {"referral_gains": gains}


def retained_scores(labelled: Predictions, curve: ReferralCurve) -> RetainedScores:
    """Return what the section shows of one run on one split."""
    best = partial(sensitivity_at_specificity, labelled, specificity=NHS_POINT[1], quantity=REFERRED_BY)
    roc = {}
    for fraction in ROC_FRACTIONS:
        with suppress(UserError):  # the retained are all on one side
            roc[fraction] = on_grid(retained_roc(labelled, fraction=fraction, quantity=REFERRED_BY))
    undefined = why_undefined(binary_problems(labelled)) or ""
    sensitivity = np.array([best(retained=fraction) for fraction in FRACTIONS])
    return RetainedScores(curve, undefined, roc, sensitivity, labelled.group is not None)


def on_grid(curve: RocCurve) -> FloatArray:
    """Return the highest sensitivity at :data:`FALSE_POSITIVE_RATES`: a step function, without interpolation."""
    steps = np.searchsorted(curve.false_positive_rate, FALSE_POSITIVE_RATES + SLACK, side="right") - 1
    return np.asarray(np.maximum.accumulate(curve.true_positive_rate)[steps])


def gain_statistics(labelled: Predictions) -> dict[str, Statistic]:
    """Return the area under the referral curve and its gain over random referral, as functions of weights."""
    return {
        "area": lambda weights: np.asarray(au_arc(labelled, quantity=REFERRED_BY, weights=weights)),
        "gain": lambda weights: np.asarray(referral_gain(labelled, quantity=REFERRED_BY, weights=weights)),
    }


def operating_points(runs: Sequence[RetainedScores]) -> dict[str, TableCell]:
    """Return whether the runs meet the NHS's operating point: fraction retained → cell."""
    rates = np.array([run.sensitivity for run in runs]).T
    return {f"{fraction:g}": operating_point_cell(column) for fraction, column in zip(FRACTIONS, rates, strict=True)}


def operating_point_cell(sensitivities: FloatArray) -> TableCell:
    """Return whether runs meet the NHS's operating point; undefined where one class is retained in every run."""
    rates = sensitivities[~np.isnan(sensitivities)]
    if not len(rates):
        return TableCell("undefined", place="unranked", hint="the retained examples are of one class")
    met, mean = int((rates >= NHS_POINT[0] - SLACK).sum()), float(np.mean(rates))
    text = {len(rates): "yes", 0: "no"}.get(met, f"{met} of {len(rates)}")
    return TableCell(text, f"{mean:.3f}", f"{mean:.9g}", hint=f"met in {met} of {len(rates)} runs")


def gain_table(run: RunView, gains: Mapping[str, Mapping[str, Gain]]) -> Table:
    """Return the area under the referral curve and its gain over random referral, split by split."""
    columns: dict[str, Column] = {}
    rows: dict[str, dict[str, TableCell]] = {}
    for split, methods in gains.items():
        few = any(gain.underpowered for gain in methods.values())
        note = "mean accuracy of the retained over all fractions retained"
        columns[f"{split} area"] = Column("Area", f"{split}, underpowered" if few else split, "↑", note, split=split)
        note = "area minus that of random referral"
        columns[f"{split} gain"] = Column("Gain", "95 % interval", "↑", note, unranked=few, split=split)
        columns[f"{split} zero"] = Column("Excludes 0", split=split)
        for method, gain in methods.items():
            excludes = {None: "unknown", 0: "no", 1: "yes", -1: "yes, below"}[gain.sign]
            rows.setdefault(method, {}).update({
                f"{split} area": value_cell(gain.area.value),
                f"{split} gain": interval_cell(gain.gain, "+.3f", underpowered=few),
                f"{split} zero": TableCell(excludes, place="" if gain.sign else "unranked"),
            })  # fmt: skip
    count = max(gain.replicates for methods in gains.values() for gain in methods.values())
    caption = (
        f"Area under the accuracy–referral curve and its gain over random referral, mean over runs; {count:,} resamples"
    )
    return run.table(columns, rows, caption)


def significance(gains: Mapping[str, Gain]) -> str:
    """Return for which methods the gain is significant: title → gain."""
    clauses = {1: "significantly better than", -1: "significantly worse than", 0: "not significantly different from"}
    titles = {sign: [title for title, gain in gains.items() if (gain.sign or 0) == sign] for sign in clauses}
    parts = [f"{clause} random referral for {listed(titles[sign])}" for sign, clause in clauses.items() if titles[sign]]
    return f"referral by uncertainty is {'; '.join(parts)}"


def resampled(gains: Mapping[str, Gain], *, grouped: bool) -> str:
    """Return what the intervals resample, with a warning where there are few."""
    gain = next(iter(gains.values()))
    warning = f", fewer than {UNDERPOWERED}: underpowered" if gain.underpowered else ""
    return f"The intervals resample {gain.units:,} {'groups' if grouped else 'examples'}{warning}."


ROC_CAPTION = (
    "Sensitivity and specificity of the retained examples; mean over runs of the highest sensitivity at each "
    "false-positive rate. A curve through the shaded corner has a threshold with a sensitivity of at least 85 % and a "
    "specificity of at least 80 % (cross), the NHS's standard for diabetic-retinopathy screening; for other data it is "
    "an example. That threshold is chosen with the test labels, so it shows what is attainable. Dotted: scores without "
    "information."
)


def roc_chart(panels: Mapping[float, Sequence[Series]]) -> Chart:
    """Return mean ROC curves of the retained with the NHS's operating point, one panel per fraction.

    Args:
        panels: Fraction retained → one series per method over the false-positive rate.
    """
    import altair

    styles = list(dict.fromkeys(curve.style for curves in panels.values() for curve in curves))
    charts = [
        altair.LayerChart(layer=[*_screening_target(), *_mean_curves(curves, styles)], title=f"{fraction:.0%} retained")
        for fraction, curves in panels.items()
    ]
    return altair.hconcat(*(chart.properties(width=HALF, height=HALF) for chart in charts))


def _mean_curves(series: Sequence[Series], styles: Sequence[Style]) -> Iterator[altair.Chart]:
    """Yield the curves as steps, and their values with one standard deviation over runs on hover."""
    chart, (x, y) = chart_of(rows_of(series)), _rates("x", "y")
    channels = {"color": method_colour(styles).legend(**line_legend(styles)), "strokeDash": method_dash(styles)}
    yield chart.mark_line(strokeWidth=1.6, interpolate="step-after").encode(x, y, **channels)
    fields = {"method": "method:N", "1 − specificity": "x:Q", "sensitivity": "y:Q", "lower": "low:Q", "upper": "high:Q"}
    yield chart.mark_point(size=40, opacity=0, filled=True).encode(x, y, tooltip=tooltips(fields))


def _screening_target() -> Iterator[altair.Chart]:
    """Yield the rates that meet the NHS's standard, the standard itself, and scores without information."""
    import altair

    sensitivity, specificity = NHS_POINT
    target = {"rate": 1 - specificity, "sensitivity": sensitivity, "zero": 0, "one": 1, "specificity": specificity}
    chart, (x, y) = chart_of([target]), _rates("rate", "sensitivity")
    yield chart.mark_rect(color=RULE, opacity=0.6).encode(
        *_rates("zero", "sensitivity"), x2=altair.X2("rate:Q"), y2=altair.Y2("one:Q")
    )
    diagonal = chart.mark_rule(color=CONTROL, strokeDash=[1.5, 2.5])
    yield diagonal.encode(*_rates("zero", "zero"), x2=altair.X2("one:Q"), y2=altair.Y2("one:Q"))
    rates = tooltips({"NHS: sensitivity": "sensitivity:Q", "specificity": "specificity:Q"})
    yield chart.mark_point(shape="cross", size=90, filled=True, color="currentColor").encode(x, y, tooltip=rates)
    name = f"cross: NHS, sensitivity {100 * sensitivity:g} %, specificity {100 * specificity:g} %"
    corner = _rates("one", "zero")  # the corner that no useful curve comes near
    yield chart.mark_text(text=name, align="right", baseline="bottom", dx=-4, dy=-4, fontSize=10).encode(*corner)


def _rates(x: str, y: str) -> tuple[altair.X, altair.Y]:
    import altair

    unit = altair.Scale(domain=[0.0, 1.0])
    return altair.X(f"{x}:Q", title="1 − specificity", scale=unit), altair.Y(f"{y}:Q", title="sensitivity", scale=unit)
