"""Referral policies fitted on the calibration split, and their outcome on the test splits.

Every method is given the same target: an error among the retained below half of the reference method's error without
referral, with 90 % confidence. One target for all makes coverages comparable. It is taken from the in-domain test set,
never from the calibration set: a guarantee is for a bound that was fixed without looking at the rows that support it.
The first run of each method stands for it, because a policy belongs to one trained system.

A second policy refers at most a stated share. It needs few calibration examples and guarantees nothing about the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import floor, inf
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import DubioError, UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.referral.assessment import Observation, Share, has_labels, observe, outcome_of, referred_share
from dubio.referral.capacity import fit_capacity_policy
from dubio.referral.policy import Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.sample_size import SampleSize, fewest_units, units_needed
from dubio.referral.shift import SHIFT_LEVEL
from dubio.reporting.charts import PANEL, Rows, chart_of, method_colour, method_shape, panels_of, tooltips
from dubio.reporting.manifest_view import MethodRun, SplitView, TaskView
from dubio.reporting.measures import REFERRED_BY, retained_accuracy
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Headline, Section, Text, Visit, section
from dubio.reporting.style import CONTROL, Style
from dubio.reporting.tables import Column, Table, TableCell, bounds, value_cell
from dubio.reporting.wording import listed
from dubio.statistics.bootstrap import units_of

if TYPE_CHECKING:
    import altair

    from dubio.reporting.charts import Chart

CONFIDENCE = 0.9
"""Confidence of the guarantees."""

SHARE = 0.5
"""The target, as a share of the reference method's error without referral."""

CAPACITY = 0.3
"""The share of examples that may be referred."""

RETAINED = np.arange(5, 101) / 100
"""Coverages at which the curve behind an operating point is drawn."""

INTRODUCTION = (
    "A curve shows what a threshold would have done; a policy must be chosen beforehand. On the held-out calibration "
    "set each method takes the threshold that retains most while its guarantee still holds. Under distribution shift "
    "nothing is guaranteed, and the shift test should warn."
)

CAPTION = (
    "Curve: error among the retained on the in-domain test set as the most uncertain are referred, for the first run "
    "of each method. Dotted: the target. Marker: the policy fitted on the calibration set, with the 95 % interval of "
    "its error. A guarantee with 90 % confidence may fail one time in ten. A baseline far from all methods is "
    "outside the plot."
)

OUTCOMES = "met: the whole interval is below the target; violated: above it; undecided: the interval contains it"
NEEDED = "rough calibration set size for the target, if further examples are like the in-domain test set"
SHIFTED = "error among the retained, share retained, p of the Kolmogorov–Smirnov test of shift; nothing is guaranteed"
REFERRED = "share of examples referred, each group counting alike; exact interval (over groups: Hoeffding–Bentkus)"
WITHIN = "of the upper limit: met: the whole interval is below it; violated: above; undecided: the interval contains it"
SAME = "whether the uncertainties are those of the calibration set (Kolmogorov–Smirnov)"

RISK_COLUMNS = {
    ".threshold": Column("Threshold", "predictive entropy", "", "retained if at most this uncertain"),
    ".calibration": Column("Retained", "of calibration", "↑", "share of the calibration set that is retained"),
    ".retained": Column("Retained", "of the test set", "↑", "share of the in-domain test set that is retained"),
    ".error": Column(
        "Selective risk", "test set, 95 % interval", "↓", "exact interval (over groups: Hoeffding–Bentkus)"
    ),
    ".outcome": Column("Guarantee", "on the test set", "", OUTCOMES),
    ".needed": Column("Would need", "at least, for calibration", "↓", NEEDED),
}
"""Cell key → column of a table of risk policies; shifted splits are keyed by their names."""

CAPACITY_COLUMNS = {
    "share": Column("Referred", "95 % interval", "", REFERRED),
    "outcome": Column("Capacity", f"at most {CAPACITY:.0%}", "", WITHIN),
    "shift": Column("Shift test", f"warns if p < {SHIFT_LEVEL:g}", "", SAME),
    "error": Column("Selective risk", "95 % interval", "↓"),
}
"""Cell key → column of a table of capacity policies on one split."""


@dataclass(frozen=True, eq=False)
class RiskPolicy:
    """A method's policy with a bounded error, or the reason why there is none.

    Attributes:
        run: The run it is fitted for.
        target: The bound on the error.
        curve: Error among the retained on the in-domain test set at :data:`RETAINED`.
        policy: None where no threshold meets the target.
        best: (bound, share retained) of the best possible guarantee, where none meets the target.
        in_domain: Its result on the in-domain test set; None without a policy.
        shifted: Its results on shifted and OOD splits.
        needed: Where none meets the target, the calibration set size that would; None where more data would not help.
        rows: Number of labelled calibration examples.
        units: Number of independent units among them: groups where there are any.
    """

    run: MethodRun
    target: float
    curve: FloatArray
    policy: Policy | None
    best: tuple[float, float] | None
    in_domain: Observation | None
    shifted: tuple[Observation, ...] = ()
    needed: SampleSize | None = None
    rows: int = 0
    units: int = 0

    @property
    def grouped(self) -> bool:
        """Whether the calibration examples come in groups."""
        return self.rows != self.units

    @property
    def judged(self) -> list[Observation]:
        """The results on shifted splits whose labels are known, or of which nothing is retained."""
        return [result for result in self.shifted if result.error is not None or result.retained == 0]

    def amount(self, units: int) -> str:
        """Return a number of units in examples; with groups, in proportion to the calibration set, in two digits."""
        if not self.grouped:
            return f"{units:,} examples"
        examples = self.rows if units == self.units else float(f"{units * self.rows / self.units:.2g}")
        return f"{examples:,.0f} examples ({units:,} groups)"


@dataclass(frozen=True)
class CapacityResult:
    """The share that a capacity policy refers on a labelled split, its selective risk, and the capacity's outcome."""

    referred: Share
    observation: Observation
    outcome: str


@dataclass(frozen=True, eq=False)
class CapacityPolicy:
    """A method's policy for :data:`CAPACITY`, with its result on every labelled split, in-domain first."""

    run: MethodRun
    policy: Policy
    results: Mapping[str, CapacityResult]

    @property
    def upper(self) -> float:
        """The long-run share below which the policy claims to stay, with confidence."""
        return self.policy.evidence["upper_referral"]


@section("policies", order=40)
class Policies(Section):
    """Referral policies with guarantees."""

    title = "Referral policies with guarantees"

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], MethodRun] = {}
        self.risk: dict[str, dict[str, RiskPolicy]] = {}
        self.capacity: dict[str, dict[str, CapacityPolicy]] = {}

    def visit(self, item: Visit) -> None:
        """Note the first scored run of each method."""
        if item.is_in_domain_test:
            self.runs.setdefault((item.task.key, item.run.method), item.run)

    def finish(self, run: RunView, task: TaskView) -> None:
        """Fit the policies of a task; predictions are read again because the target depends on the scores of all."""
        target, calibration = target_error(run, task), task.of_kind("cal")[:1]
        risk, capacity = self.risk.setdefault(task.key, {}), self.capacity.setdefault(task.key, {})
        for name in (method.name for method in run.methods if calibration and (task.key, method.name) in self.runs):
            method_run = self.runs[task.key, name]
            fitted_on = _read(run, task, method_run, calibration)
            tests = _read(run, task, method_run, (task.in_domain, *task.farthest))
            if not fitted_on or task.in_domain.name not in tests:
                continue
            (predictions,) = fitted_on.values()
            fitted = fit_risk(method_run, predictions, tests, target) if target and has_labels(predictions) else None
            if fitted is not None:
                risk[name] = fitted
            if (capacity_policy := fit_capacity(method_run, predictions, tests)) is not None:
                capacity[name] = capacity_policy

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Show both policies of a task: tables, outcomes under shift, operating points."""
        risk, capacity = self.risk.get(task.key, {}), self.capacity.get(task.key, {})
        if missing := missing_policies(task, risk, capacity):
            yield Text(missing, "note")
        if risk or capacity:
            yield Text(INTRODUCTION)
        if risk:
            yield Text(target_sentence(run, task), "small")
            yield risk_table(run, task, risk)
            if needed := calibration_size_sentence(run, task, risk):
                yield Text(needed, "note")
            yield from shift_blocks(run, task, risk)
            yield from operating_points(run, task, risk)
        if capacity:
            yield Headline("Policies with a capacity")
            yield Text(capacity_introduction(task, capacity), "small")
            for split in dict.fromkeys(split for policy in capacity.values() for split in policy.results):
                about = "" if split == task.in_domain.name else split
                yield replace(capacity_table(run, task, capacity, split), split=about)
                yield Text(capacity_sentence(capacity, split), "small", split=about)

    def document(self, run: RunView) -> dict[str, Any]:
        """Return every policy with its results."""
        risk = [
            {
                "task": task, "method": method, "target": policy.target, "best_bound": policy.best,
                "threshold": None if policy.policy is None else policy.policy.threshold,
                "needed": None if policy.needed is None else asdict(policy.needed),
                "in_domain": None if policy.in_domain is None else asdict(policy.in_domain),
                "shifted": [asdict(observation) for observation in policy.shifted],
            }
            for task, policies in self.risk.items()
            for method, policy in policies.items()
        ]  # fmt: skip
        capacity = [
            {
                "task": task, "method": method, "capacity": CAPACITY, "threshold": policy.policy.threshold,
                "expected": policy.policy.evidence["expected_referral"], "upper": policy.upper,
                "confidence": CONFIDENCE, "results": [_capacity_result(result) for result in policy.results.values()],
            }
            for task, policies in self.capacity.items()
            for method, policy in policies.items()
        ]  # fmt: skip
        return {"risk_policies": risk, "capacity_policies": capacity}


def _capacity_result(result: CapacityResult) -> dict[str, Any]:
    share = {"referred": result.referred.value, "referred_interval": result.referred.interval}
    return asdict(result.observation) | share | {"outcome": result.outcome, "warned": result.observation.warned}


def _read(run: RunView, task: TaskView, method_run: MethodRun, splits: Sequence[SplitView]) -> dict[str, Predictions]:
    """Read predictions on splits; scoring reports those that are missing, except on the calibration split."""
    predictions = {}
    for split in splits:
        with suppress(DubioError):
            predictions[split.name] = task.read(run.source, method_run, split)
    return predictions


def target_error(run: RunView, task: TaskView) -> float | None:
    """Return the target, in two digits, from the reference method's error; None where it makes no error."""
    reference = run.manifest.reference(task)
    accuracy = None if reference is None else run.scores.cell(task, task.in_domain.name, reference, "accuracy")
    error = 1.0 - accuracy.mean if accuracy is not None and accuracy.n else 0.0
    return float(f"{SHARE * error:.2g}") if error > 0 else None


def fit_risk(
    run: MethodRun, calibration: Predictions, tests: Mapping[str, Predictions], target: float
) -> RiskPolicy | None:
    """Fit a policy with a bounded error and assess it; None where the calibration split has no labels.

    Args:
        run: The run.
        calibration: Its predictions on the calibration split.
        tests: Its predictions on the test splits, in-domain first.
        target: The bound on the error.
    """
    (_, test), *others = tests.items()
    labelled = calibration.labelled
    curve = 1.0 - retained_accuracy(test.labelled, REFERRED_BY, RETAINED)
    units = units_of(labelled).count
    result = partial(RiskPolicy, run, target, curve, rows=len(labelled), units=units)
    try:
        policy = fit_risk_policy(calibration, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY)
    except NoGuarantee as refusal:
        needed = units_needed(
            test.labelled, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY, refused=units
        )
        return result(None, (refusal.upper, refusal.coverage), None, needed=needed)
    except UserError:
        return None
    shifted = tuple(observe(policy, name, predictions) for name, predictions in others)
    return result(policy, None, observe(policy, "in_domain", test), shifted)


def fit_capacity(run: MethodRun, calibration: Predictions, tests: Mapping[str, Predictions]) -> CapacityPolicy | None:
    """Fit a policy for the capacity and assess it; None where there are too few calibration examples."""
    try:
        policy = fit_capacity_policy(calibration, capacity=CAPACITY, confidence=CONFIDENCE, quantity=REFERRED_BY)
    except UserError:
        return None
    results = {}
    for name, predictions in tests.items():
        if has_labels(predictions):
            referred = referred_share(policy, predictions)
            outcome = outcome_of(referred.interval, policy.evidence["upper_referral"])
            results[name] = CapacityResult(referred, observe(policy, name, predictions), outcome)
    return CapacityPolicy(run, policy, results)


def missing_policies(task: TaskView, risk: Mapping[str, RiskPolicy], capacity: Mapping[str, CapacityPolicy]) -> str:
    """Return why there is no risk policy, or no policy at all; empty where there is one."""
    if risk:
        return ""
    if not task.of_kind("cal"):
        return "This task has no calibration split: no policy can be fitted, and nothing is guaranteed."
    if capacity:
        return "No error is guaranteed: the reference method makes no error, or the calibration set has no labels."
    return "No policy can be fitted: the calibration set is too small, or its predictions are missing."


def target_sentence(run: RunView, task: TaskView) -> str:
    """Return the target of every risk policy in words."""
    return (
        f"Target for the first run of every method: an error among the retained below {SHARE:.0%} of the error of "
        f"{run.title(run.manifest.reference(task) or '')} without referral, with {CONFIDENCE:.0%} confidence; referred "
        "by predictive entropy. Methods share all examples, so guarantees tend to be met or violated together."
    )


def risk_table(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Table:
    """Return the table of risk policies and their outcomes."""
    titles = {splits[-1].name: f"{base}, highest severity" for base, splits in task.severities.items()}
    columns = dict(RISK_COLUMNS)
    for split in (split.name for split in task.farthest):
        errors = [o.error for policy in policies.values() for o in policy.shifted if o.split == split]
        title = "Retained, shift" if all(error is None for error in errors) else "Risk, retained, shift"
        columns[split] = Column(title, titles.get(split, split), "↓", SHIFTED, split=split)
    calibration, target = task.of_kind("cal")[0], next(iter(policies.values())).target
    rows = f"{calibration.examples:,} examples of “{calibration.name}”"
    caption = f"Error among the retained below {target:g}, with {CONFIDENCE:.0%} confidence, from the {rows}"
    return run.table(columns, {name: risk_cells(policy) for name, policy in policies.items()}, caption)


def risk_cells(policy: RiskPolicy) -> dict[str, TableCell]:
    """Return the cells of one method by column; a method without a policy shows its best possible guarantee."""
    if policy.policy is None or policy.in_domain is None:
        none = TableCell("none", place="unranked")
        return {".threshold": none, ".outcome": _best_bound(policy), ".needed": _needed(policy)}
    threshold = policy.policy.threshold
    return {
        ".threshold": TableCell("retains all" if threshold == inf else f"{threshold:.3g}", sort_key=f"{threshold:.9g}"),
        ".calibration": value_cell(policy.policy.evidence["coverage"], ".1%"),
        ".retained": value_cell(policy.in_domain.retained, ".1%"),
        ".error": _error(policy.in_domain),
        ".outcome": TableCell(policy.in_domain.outcome(policy.target)),
        **{observation.split: _shifted_cell(observation) for observation in policy.shifted},
    }


def _best_bound(policy: RiskPolicy) -> TableCell:
    upper, coverage = policy.best or (1.0, 0.0)
    if upper >= 1.0:
        return TableCell("none possible", place="unranked")
    spread = f"best: below {upper:.2g}, {coverage:.0%} retained"
    return TableCell("none;", spread, place="unranked", hint="the best guarantee that the calibration set supports")


def _needed(policy: RiskPolicy) -> TableCell:
    needed = policy.needed
    if needed is None:
        hint = "the retained are wrong too often at every coverage"
        return TableCell("more data would not help", place="unranked", hint=hint)
    hint = f"retaining {needed.retained:.0%} of them, {needed.error:.2g} of those wrong"
    if needed.units == policy.units + 1:  # the test set suggests that these would do
        return TableCell("more than these", sort_key=f"{needed.units}", hint=hint)
    return value_cell(needed.units, ",", "groups" if policy.grouped else "examples", hint=hint)


def _error(observation: Observation) -> TableCell:
    if observation.error is None:
        return TableCell("nothing retained", place="unranked")
    hint = f"{observation.retained:.0%} retained"
    return value_cell(observation.error, spread=bounds(observation.interval), hint=hint)


def _p_value(observation: Observation) -> str:
    return "p < 0.001" if observation.shift < 0.001 else f"p = {observation.shift:.2g}"


def _shifted_cell(observation: Observation) -> TableCell:
    """Return error, share retained and shift; without labels there is no error."""
    if observation.error is None:
        return TableCell(f"{observation.retained:.0%},", _p_value(observation), f"{observation.retained:.9g}")
    return value_cell(observation.error, spread=f"{observation.retained:.0%}, {_p_value(observation)}")


def calibration_size_sentence(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> str:
    """Return which methods lack calibration data for the target, and how much they need; empty where none does."""
    refused = {run.title(name): policy for name, policy in policies.items() if policy.policy is None}
    if not refused:
        return ""
    some = next(iter(refused.values()))
    text = (
        f"{len(refused)} of {len(policies)} methods cannot guarantee the target with the "
        f"{some.amount(some.units)} of “{task.of_kind('cal')[0].name}”."
    )
    sizes = {title: policy.needed.units for title, policy in refused.items() if policy.needed is not None}
    if sizes:
        least, most = min(sizes.values()), max(sizes.values())
        amount = f"at least about {some.amount(least)}" if least > some.units + 1 else "more than these"
        needed = f"{amount} are needed for {listed([title for title in sizes if sizes[title] == least])}"
        if most > least:
            needed += f", {some.amount(most)} for {listed([title for title in sizes if sizes[title] == most])}"
        text += f" If further data are like the test set, {needed}. Plan for twice the number."
    hopeless = [title for title in refused if title not in sizes]
    if hopeless:
        text += f" More data would not help {listed(hopeless)}: the retained are wrong too often at every coverage."
    fewest = fewest_units(some.target, CONFIDENCE, single=not some.grouped)
    if fewest is not None and fewest > some.units:
        text += f" Even a method that retains everything without an error needs {some.amount(fewest)}."
    return text


def shift_blocks(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Iterator[Block]:
    """Yield the outcomes of risk policies on labelled shifted splits; nothing without labels there."""
    columns: dict[str, Column] = {}
    for split in (split.name for split in task.farthest):
        columns[f"{split} risk"] = Column("Selective risk", f"{split}, 95 % interval", "↓", split=split)
        columns[f"{split} outcome"] = Column("Guarantee", split, split=split)
    results = [(policy, observation) for policy in policies.values() for observation in policy.judged]
    if results:
        caption = f"The same policies under distribution shift; warned: the shift test rejects (p < {SHIFT_LEVEL:g})"
        yield run.table(columns, {name: shift_cells(policy) for name, policy in policies.items()}, caption)
    for split in (split.name for split in task.farthest):
        if on_split := [result for result in results if result[1].split == split]:
            yield Text(shift_sentence(split, on_split), "small", split=split)


def shift_cells(policy: RiskPolicy) -> dict[str, TableCell]:
    """Return selective risk and outcome of one method on every labelled shifted split."""
    cells = {}
    for observation in policy.judged:
        warning, hint = "(warned)" if observation.warned else "(no warning)", f"p = {observation.shift:.2g}"
        cells[f"{observation.split} risk"] = _error(observation)
        cells[f"{observation.split} outcome"] = TableCell(observation.outcome(policy.target), warning, hint=hint)
    return cells


def shift_sentence(split: str, results: Sequence[tuple[RiskPolicy, Observation]]) -> str:
    """Count the guarantees met and violated on a split, and the warnings of the shift test."""
    outcomes = [observation.outcome(policy.target) for policy, observation in results]
    violated = [o for (_, o), outcome in zip(results, outcomes, strict=True) if outcome == "violated"]
    among = f", among them {sum(o.warned for o in violated)} of the {len(violated)} violated" if violated else ""
    return f"On “{split}”: {tally(outcomes)}. {warnings([observation for _, observation in results])}{among}."


def tally(outcomes: Sequence[str]) -> str:
    """Count outcomes."""
    counts = [f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes)]
    return ", ".join([f"{len(outcomes)} {'policy' if len(outcomes) == 1 else 'policies'}", *counts])


def warnings(observations: Sequence[Observation]) -> str:
    """Count the warnings of the shift test."""
    return f"The shift test warns for {sum(o.warned for o in observations)} of {len(observations)}"


def operating_points(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Iterator[Figure]:
    """Yield the figure of operating points where any policy retains something."""
    panels = {run.styles[m.name]: policies[m.name] for m in run.methods_of(task) if m.name in policies}
    if any(policy.in_domain is not None and policy.in_domain.error is not None for policy in panels.values()):
        yield Figure("operating", "Operating points of the policies", CAPTION, partial(operating_chart, panels))


def operating_rows(style: Style, policy: RiskPolicy) -> Rows:
    """Return the curve of a method, then its target and a note, then its operating point where there is one."""
    method, point = {"method": style.title}, policy.in_domain
    curve = zip(RETAINED.tolist(), policy.curve.tolist(), strict=True)
    rows: Rows = [{**method, "retained": retained, "error": error} for retained, error in curve]
    note = "no guarantee" if point is None else f"retains {point.retained:.0%}"
    rows.append({**method, "target": policy.target, "note": note})
    if point is not None and point.error is not None:
        low, high = point.interval or (None, None)
        rows.append({**method, "share": point.retained, "risk": point.error, "low": low, "high": high})
    return rows


def operating_chart(panels: Mapping[Style, RiskPolicy]) -> Chart:
    """Return error among the retained against coverage, one panel per method, with the policy's operating point."""
    import altair

    rows = [row for style, policy in panels.items() for row in operating_rows(style, policy)]
    fewest = max(0.0, floor(10 * min(row["share"] for row in rows if "share" in row) - 1) / 10)
    rows = [row for row in rows if row.get("retained", 1.0) >= fewest]
    # The curve of a baseline without an operating point, such as class frequencies, would squeeze all others together.
    outside = {style.title for style, policy in panels.items() if style.baseline and policy.in_domain is None}
    heights = [row.get("high") or row.get("error") or 0.0 for row in rows if row["method"] not in outside]
    highest = max([2 * next(iter(panels.values())).target, *heights])
    x_scale = altair.Scale(domain=[fewest, 1.0], reverse=True, nice=False)
    y_scale = altair.Scale(domain=[0.0, 1.12 * highest], nice=False)

    def x(field: str) -> altair.X:
        percent = altair.Axis(format=".0%", tickCount=3)
        return altair.X(f"{field}:Q", scale=x_scale, axis=percent, title="share retained")

    def y(field: str) -> altair.Y:
        return altair.Y(f"{field}:Q", scale=y_scale, axis=altair.Axis(tickCount=4), title="error among the retained")

    layers = _operating_layers(chart_of(rows), list(panels), x, y)
    return panels_of(altair.LayerChart(layer=list(layers)), "method", [style.title for style in panels])


def _operating_layers(
    chart: altair.Chart, styles: Sequence[Style], x: Callable[[str], altair.X], y: Callable[[str], altair.Y]
) -> Iterator[altair.Chart]:
    """Yield the target, the curve, the operating point with its interval, and the share it retains."""
    import altair

    curve, target, point = (chart.transform_filter(f"isValid(datum.{field})") for field in ("error", "target", "share"))
    colour, shape = method_colour(styles).legend(None), method_shape(styles).legend(None)
    dotted = target.mark_rule(color=CONTROL, strokeDash=[1.5, 2.5], strokeWidth=1.5)
    yield dotted.encode(y("target"), tooltip=tooltips({"target": "target:Q"}))
    yield curve.mark_line(strokeWidth=1.6, clip=True).encode(x("retained"), y("error"), color=colour)
    yield point.mark_rule(strokeWidth=1.5).encode(x("share"), y("low"), y2=altair.Y2("high:Q"), color=colour)
    values = {"method": "method:N", "share retained": "share:Q", "error": "risk:Q", "lower": "low:Q", "upper": "high:Q"}
    marker = point.mark_point(size=70, filled=True, opacity=1)
    yield marker.encode(x("share"), y("risk"), color=colour, shape=shape, tooltip=tooltips(values))
    note = target.mark_text(align="right", fontSize=10.5)
    yield note.encode(x=altair.XValue(PANEL - 4), y=altair.YValue(8), text=altair.Text("note:N"))


def capacity_introduction(task: TaskView, policies: Mapping[str, CapacityPolicy]) -> str:
    """Return what the capacity policies guarantee."""
    calibration, upper = task.of_kind("cal")[0], max(policy.upper for policy in policies.values())
    return (
        f"Of the same runs, fitted on the {calibration.examples:,} examples of “{calibration.name}”: on average over "
        f"calibration sets at most {CAPACITY:.0%} are referred, the most uncertain; with this calibration set at most "
        f"{upper:.0%} of data like it, with {CONFIDENCE:.0%} confidence. Nothing is guaranteed about the error."
    )


def capacity_table(run: RunView, task: TaskView, policies: Mapping[str, CapacityPolicy], split: str) -> Table:
    """Return share referred, outcome of the capacity, shift test and selective risk on a split."""
    rows = {name: capacity_cells(policy.results[split]) for name, policy in policies.items() if split in policy.results}
    caption = f"{'In-domain' if split == task.in_domain.name else 'Under shift'}, “{split}”"
    return run.table(CAPACITY_COLUMNS, rows, caption)


def capacity_cells(result: CapacityResult) -> dict[str, TableCell]:
    """Return the cells of one method by column."""
    referred, observation = result.referred, result.observation
    hint, warning = f"of all examples {1.0 - observation.retained:.1%}", "warns" if observation.warned else "no warning"
    return {
        "share": value_cell(referred.value, ".1%", bounds(referred.interval, ".0%"), hint=hint),
        "outcome": TableCell(result.outcome),
        "shift": TableCell(warning, _p_value(observation), f"{observation.shift:.9g}"),
        "error": _error(observation),
    }


def capacity_sentence(policies: Mapping[str, CapacityPolicy], split: str) -> str:
    """Return how much is referred on a split, whether capacities are met, and how often the shift test warns."""
    results = [policy.results[split] for policy in policies.values() if split in policy.results]
    shares = [result.referred.value for result in results]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    share = f"{low} are referred" if low == high else f"between {low} and {high} are referred, depending on the method"
    outcomes = tally([result.outcome for result in results])
    return f"On “{split}” {share}; {outcomes}. {warnings([result.observation for result in results])}."
