"""Referral policies fitted on the calibration split, and their outcome on the test splits.

Every method is given the same target: an error among the retained below half of the reference method's error without
referral, with 90 % confidence. One target for all makes coverages comparable. It is taken from the in-domain test set,
never from the calibration set: a guarantee is for a bound that was fixed without looking at the rows that support it.
The first run of each method stands for it, because a policy belongs to one trained system.

A second policy refers at most a stated share. It needs few calibration examples and guarantees nothing about the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import floor, inf
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import DubioError, UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.referral.assessment import SHIFT_LEVEL, Observation, ReferredShare, has_labels, observe, referred_share
from dubio.referral.capacity import fit_capacity_policy
from dubio.referral.policy import Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.sample_size import SampleSize, fewest_units, units_needed
from dubio.reporting.canvas import panel_title, small_multiples, styled
from dubio.reporting.manifest_view import MethodRun, SplitView, TaskView
from dubio.reporting.measures import REFERRED_BY, retained_accuracy
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Headline, Section, Text, Visit, section
from dubio.reporting.style import CONTROL, MUTED, Style
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import listed, number
from dubio.statistics.bootstrap import units_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

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
    "its error. A guarantee with 90 % confidence may fail one time in ten."
)

NOTES = {
    "outcome": "met: the error is below the target; undecided: it is not, but its interval reaches below; violated: "
    "the whole interval is above",
    "needed": "rough estimate: the calibration set size that supports the target if further examples behave like the "
    "in-domain test set; groups are patients, for instance",
    "shifted": "error among the retained and share retained under shift, where nothing is guaranteed; p of the test "
    "that uncertainties are those of the calibration set (Kolmogorov–Smirnov)",
    "share": "share of examples referred, each group counting alike where there are groups; exact interval, or groups "
    "resampled",
    "capacity": "met: at most the capacity is referred; violated: the whole interval lies above the upper limit that "
    "the policy states; undecided: above the capacity, but the interval reaches below that limit",
    "shift": "whether the uncertainties are those of the calibration set (Kolmogorov–Smirnov)",
}

COLUMNS: dict[str, Column] = {
    ".threshold": Column("Threshold", "predictive entropy", "", "retained if at most this uncertain"),
    ".calibration": Column("Retained", "of calibration", "↑", "share of the calibration set that is retained"),
    ".retained": Column("Retained", "of the test set", "↑", "share of the in-domain test set that is retained"),
    ".error": Column("Selective risk", "test set, 95 % interval", "↓", "exact interval, or groups resampled"),
    ".outcome": Column("Guarantee", "on the test set", "", NOTES["outcome"]),
    ".needed": Column("Would need", "at least, for calibration", "↓", NOTES["needed"]),
}
"""Cell key → column of a table of risk policies; shifted splits are keyed by their names."""


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
    def unit_name(self) -> str:
        """The name of the independent units."""
        return "examples" if self.rows == self.units else "groups"


@dataclass(frozen=True)
class CapacityResult:
    """What a capacity policy refers on a labelled split, and its selective risk there."""

    referred: ReferredShare
    observation: Observation


@dataclass(frozen=True, eq=False)
class CapacityPolicy:
    """A method's policy for :data:`CAPACITY`, with its results on every labelled split, in-domain first."""

    run: MethodRun
    policy: Policy
    results: tuple[CapacityResult, ...]

    @property
    def upper(self) -> float:
        """The long-run share below which the policy claims to stay, with confidence."""
        return self.policy.evidence["upper_referral"]

    def outcome(self, result: CapacityResult) -> str:
        """Return the outcome of the capacity on a split."""
        return result.referred.outcome(CAPACITY, self.upper)


@dataclass(frozen=True, eq=False)
class FirstRun:
    """A method's first run: its predictions on the calibration, in-domain and shifted splits."""

    run: MethodRun
    calibration: Predictions
    in_domain: Predictions
    shifted: Mapping[str, Predictions]


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
        """Fit the policies of a task; they are read again because the target depends on the scores of all runs."""
        target = target_error(run, task)
        risk, capacity = self.risk.setdefault(task.key, {}), self.capacity.setdefault(task.key, {})
        for first in self._first_runs(run, task):
            if target is not None and (risk_policy := fit_risk(first, target)) is not None:
                risk[first.run.method] = risk_policy
            if (capacity_policy := fit_capacity(first, task.in_domain.name)) is not None:
                capacity[first.run.method] = capacity_policy

    def _first_runs(self, run: RunView, task: TaskView) -> Iterator[FirstRun]:
        """Yield the first run of each method with calibration and in-domain predictions."""
        for split in task.of_kind("cal")[:1]:
            for method in run.methods:
                method_run = self.runs.get((task.key, method.name))
                if method_run is None:
                    continue
                calibration, in_domain = (_read(run, method_run, each) for each in (split, task.in_domain))
                if calibration is not None and in_domain is not None:
                    shifted = {each.name: _read(run, method_run, each) for each in task.farthest}
                    present = {name: predictions for name, predictions in shifted.items() if predictions is not None}
                    yield FirstRun(method_run, calibration, in_domain, present)

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Show both policies of a task: tables, outcomes under shift, operating points."""
        if task is None:
            return
        risk, capacity = self.risk.get(task.key, {}), self.capacity.get(task.key, {})
        missing = missing_policies(task, risk, capacity)
        if missing:
            yield Text(missing, "note")
        if risk or capacity:
            yield Text(INTRODUCTION)
        if risk:
            yield Text(target_sentence(run, task), "small")
            yield risk_table(run, task, risk)
            needed = calibration_size_sentence(run, task, risk)
            if needed:
                yield Text(needed, "note")
            yield from shift_blocks(run, task, risk)
            yield from operating_points(run, task, risk)
        if capacity:
            yield Headline("Policies with a capacity")
            yield Text(capacity_introduction(task, capacity), "small")
            for split in dict.fromkeys(result.observation.split for p in capacity.values() for result in p.results):
                yield capacity_table(run, task, capacity, split)
                yield Text(capacity_sentence(capacity, split), "small")

    def document(self, run: RunView) -> dict[str, Any]:
        """Return every policy with its results."""
        return {
            "risk_policies": [
                {
                    "task": task,
                    "method": method,
                    "target": policy.target,
                    "threshold": None if policy.policy is None else policy.policy.threshold,
                    "best_bound": policy.best,
                    "needed": None if policy.needed is None else asdict(policy.needed),
                    "in_domain": None if policy.in_domain is None else asdict(policy.in_domain),
                    "shifted": [asdict(observation) for observation in policy.shifted],
                }
                for task, policies in self.risk.items()
                for method, policy in policies.items()
            ],
            "capacity_policies": [
                {
                    "task": task,
                    "method": method,
                    "capacity": CAPACITY,
                    "threshold": policy.policy.threshold,
                    "expected": policy.policy.evidence["expected_referral"],
                    "upper": policy.upper,
                    "confidence": CONFIDENCE,
                    "results": [_capacity_result(policy, result) for result in policy.results],
                }
                for task, policies in self.capacity.items()
                for method, policy in policies.items()
            ],
        }


def _capacity_result(policy: CapacityPolicy, result: CapacityResult) -> dict[str, Any]:
    return {
        **asdict(result.observation),
        "referred": result.referred.share,
        "referred_interval": result.referred.interval,
        "outcome": policy.outcome(result),
        "warned": result.observation.warned,
    }


def _read(run: RunView, method_run: MethodRun, split: SplitView) -> Predictions | None:
    """Read predictions; None where they are missing, which scoring reports for all but the calibration split."""
    try:
        return run.source.read_predictions(method_run.id, split.name, split.fingerprint)
    except DubioError:
        return None


def target_error(run: RunView, task: TaskView) -> float | None:
    """Return the target, in two digits, from the reference method's error; None where it makes no error."""
    reference = run.manifest.reference(task)
    accuracy = None if reference is None else run.scores.cell(task, task.in_domain.name, reference, "accuracy")
    error = 1.0 - accuracy.mean if accuracy is not None and accuracy.n else 0.0
    return float(f"{SHARE * error:.2g}") if error > 0 else None


def fit_risk(first: FirstRun, target: float) -> RiskPolicy | None:
    """Fit a policy with a bounded error and assess it; None where the calibration split has no labels."""
    in_domain, labelled = first.in_domain.labelled, first.calibration.labelled
    curve = 1.0 - retained_accuracy(in_domain, REFERRED_BY, RETAINED)
    result = partial(RiskPolicy, first.run, target, curve, rows=len(labelled), units=units_of(labelled).count)
    try:
        policy = fit_risk_policy(first.calibration, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY)
    except NoGuarantee as refusal:
        needed = units_needed(in_domain, max_risk=target, confidence=CONFIDENCE, quantity=REFERRED_BY)
        return result(None, (refusal.upper, refusal.coverage), None, needed=needed)
    except UserError:
        return None
    shifted = tuple(observe(policy, name, predictions) for name, predictions in first.shifted.items())
    return result(policy, None, observe(policy, "in_domain", first.in_domain), shifted)


def fit_capacity(first: FirstRun, in_domain: str) -> CapacityPolicy | None:
    """Fit a policy for the capacity and assess it; None where there are too few calibration examples."""
    try:
        policy = fit_capacity_policy(first.calibration, capacity=CAPACITY, confidence=CONFIDENCE, quantity=REFERRED_BY)
    except UserError:
        return None
    labelled = {name: predictions for name, predictions in first.shifted.items() if has_labels(predictions)}
    results = (
        CapacityResult(referred_share(policy, predictions), observe(policy, name, predictions))
        for name, predictions in {in_domain: first.in_domain, **labelled}.items()
    )
    return CapacityPolicy(first.run, policy, tuple(results))


def missing_policies(task: TaskView, risk: Mapping[str, RiskPolicy], capacity: Mapping[str, CapacityPolicy]) -> str:
    """Say why there is no risk policy, or no policy at all; empty where there is one."""
    if risk:
        return ""
    if not task.of_kind("cal"):
        return (
            "This task has no calibration split: no policy can be fitted, and nothing is guaranteed about the error "
            "among the retained or about the share referred."
        )
    if capacity:
        return (
            "No error is guaranteed: the reference method makes no error on the test set that could be halved, or the "
            "calibration set has no labels."
        )
    return "No policy can be fitted: the calibration set is too small, or its predictions are missing."


def target_sentence(run: RunView, task: TaskView) -> str:
    """State the target of every risk policy."""
    reference = run.manifest.reference(task)
    return (
        f"Target for the first run of every method: an error among the retained below {SHARE:.0%} of the error of "
        f"{run.title(reference or '')} on the test set without referral, with {CONFIDENCE:.0%} confidence; referred by "
        "predictive entropy. All methods share the calibration and test examples, so their guarantees tend to be met "
        "or violated together."
    )


def risk_table(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Table:
    """Return the table of risk policies and their outcomes."""
    titles = {splits[-1].name: f"{base}, highest severity" for base, splits in task.severities.items()}
    rows = {name: risk_cells(policy) for name, policy in policies.items()}
    columns = [
        FilledColumn(column, {name: cells[key] for name, cells in rows.items() if key in cells})
        for key, column in COLUMNS.items()
    ]
    for split in task.farthest:
        observations = [o for policy in policies.values() for o in policy.shifted if o.split == split.name]
        title = "Risk, retained, shift" if any(o.error is not None for o in observations) else "Retained, shift"
        column = Column(title, titles.get(split.name, split.name), "↓", NOTES["shifted"])
        cells_of_split = {name: cells[split.name] for name, cells in rows.items() if split.name in cells}
        columns.append(FilledColumn(column, cells_of_split))
    calibration, target = task.of_kind("cal")[0], next(iter(policies.values())).target
    caption = (
        f"Error among the retained below {target:g}, with {CONFIDENCE:.0%} confidence, from the "
        f"{calibration.examples:,} examples of “{calibration.name}”"
    )
    return _table(run, task, policies, columns, caption)


def _table(
    run: RunView, task: TaskView, policies: Mapping[str, object], columns: Iterable[FilledColumn], caption: str
) -> Table:
    methods = [method for method in run.methods_of(task) if method.name in policies]
    return method_table(methods, columns, run.styles, caption=caption)


def risk_cells(policy: RiskPolicy) -> dict[str, TableCell]:
    """Return the cells of one method by column; a method without a policy shows its best possible guarantee."""
    if policy.policy is None or policy.in_domain is None:
        none = TableCell("none", place="unranked")
        return {".threshold": none, ".outcome": _best_bound(policy), ".needed": _needed(policy)}
    observation, coverage = policy.in_domain, policy.policy.evidence["coverage"]
    limit = "retains all" if policy.policy.threshold == inf else f"{policy.policy.threshold:.3g}"
    return {
        ".threshold": TableCell(limit, sort=f"{policy.policy.threshold:.9g}"),
        ".calibration": TableCell(f"{coverage:.1%}", sort=f"{coverage:.9g}"),
        ".retained": TableCell(f"{observation.retained:.1%}", sort=f"{observation.retained:.9g}"),
        ".error": _error(observation),
        ".outcome": TableCell(observation.outcome(policy.target)),
        **{shifted.split: _shifted_cell(shifted) for shifted in policy.shifted},
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
    return TableCell(f"{needed.units:,}", policy.unit_name, str(needed.units), hint=hint)


def _error(observation: Observation) -> TableCell:
    if observation.error is None:
        return TableCell("nothing retained", place="unranked")
    interval = observation.interval
    spread = "" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"
    hint = f"{observation.retained:.0%} retained"
    return TableCell(f"{observation.error:.3f}", spread, f"{observation.error:.9g}", hint=hint)


def _p_value(observation: Observation) -> str:
    return "p < 0.001" if observation.shift < 0.001 else f"p = {observation.shift:.2g}"


def _shifted_cell(observation: Observation) -> TableCell:
    """Show error, share retained and shift; without labels there is no error."""
    retained, shift = f"{observation.retained:.0%}", _p_value(observation)
    if observation.error is None:
        return TableCell(f"{retained},", shift, f"{observation.retained:.9g}")
    return TableCell(f"{observation.error:.3f}", f"{retained}, {shift}", f"{observation.error:.9g}")


def calibration_size_sentence(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> str:
    """Say which methods lack calibration data for the target, and how much they would need; empty where none does."""
    refused = {run.title(name): policy for name, policy in policies.items() if policy.policy is None}
    if not refused:
        return ""
    some = next(iter(refused.values()))
    subject = (
        "No method reaches"
        if len(refused) == len(policies)
        else f"{number(len(refused)).capitalize()} of {len(policies)} methods do not reach"
    )
    groups = "" if some.rows == some.units else f" ({some.units:,} groups, such as patients)"
    sentences = [
        f"{subject} the target on the {some.rows:,} examples of “{task.of_kind('cal')[0].name}”{groups}: more "
        "calibration data is needed."
    ]
    sizes = {title: policy.needed.units for title, policy in refused.items() if policy.needed is not None}
    if sizes:
        sentences.append(_size_range(sizes, some))
    hopeless = [title for title, policy in refused.items() if policy.needed is None]
    if hopeless:
        sentences.append(
            f"More data alone would not help {listed(hopeless)}: on the test set the retained are wrong too often at "
            "every coverage."
        )
    fewest = fewest_units(some.target, CONFIDENCE, single=some.rows == some.units)
    if fewest is not None and fewest > some.units:
        sentences.append(f"Even a method that retains everything without an error needs {_amount(fewest, some)}.")
    return " ".join(sentences)


def _size_range(sizes: Mapping[str, int], some: RiskPolicy) -> str:
    """State the smallest and the largest calibration set size, by method."""
    order = sorted(sizes, key=lambda title: sizes[title])
    least, most = sizes[order[0]], sizes[order[-1]]
    first = listed([title for title in order if sizes[title] == least])
    further = f", and about {_amount(most, some)} for {order[-1]}" if most > least else ""
    return (
        f"If further data behave like the test set, at least about {_amount(least, some)} are needed for {first}"
        f"{further}; there are {_amount(some.units, some)} now. Plan for twice the number."
    )


def _amount(units: int, some: RiskPolicy) -> str:
    """State a number of units in examples; with groups, in proportion to the calibration set, in two digits."""
    if some.rows == some.units:
        return f"{units:,} examples"
    examples = some.rows if units == some.units else float(f"{units * some.rows / some.units:.2g}")
    return f"{examples:,.0f} examples ({units:,} groups)"


def shift_blocks(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Iterator[Block]:
    """Show the outcomes of risk policies on labelled shifted splits; nothing without labels there."""
    columns: list[FilledColumn] = []
    sentences = []
    for split in task.farthest:
        results = {
            method: (policy, observation)
            for method, policy in policies.items()
            for observation in policy.shifted
            if observation.split == split.name and (observation.error is not None or observation.retained == 0)
        }
        if results:
            risk = Column("Selective risk", f"{split.name}, 95 % interval", "↓")
            columns.append(FilledColumn(risk, {method: _error(seen) for method, (_, seen) in results.items()}))
            guarantee = Column("Guarantee", split.name)
            outcomes = {method: _outcome(policy, result) for method, (policy, result) in results.items()}
            columns.append(FilledColumn(guarantee, outcomes))
            sentences.append(shift_sentence(split.name, list(results.values())))
    if columns:
        caption = (
            "The same policies under distribution shift; warned: the test that uncertainties are those of the "
            f"calibration set rejects (p < {SHIFT_LEVEL:g})"
        )
        yield _table(run, task, policies, columns, caption)
        yield from (Text(sentence, "small") for sentence in sentences)


def _outcome(policy: RiskPolicy, observation: Observation) -> TableCell:
    warning = "warned" if observation.warned else "no warning"
    return TableCell(observation.outcome(policy.target), f"({warning})", hint=f"p = {observation.shift:.2g}")


def shift_sentence(split: str, results: Sequence[tuple[RiskPolicy, Observation]]) -> str:
    """Count the guarantees met and violated on a split, and the warnings of the shift test."""
    outcomes = [observation.outcome(policy.target) for policy, observation in results]
    violated = [o for (_, o), outcome in zip(results, outcomes, strict=True) if outcome == "violated"]
    warnings = sum(observation.warned for _, observation in results)
    among = f", among them {sum(o.warned for o in violated)} of the {len(violated)} violated" if violated else ""
    return f"On “{split}”: {tally(outcomes)}. The shift test warns for {warnings} of {len(results)}{among}."


def tally(outcomes: Sequence[str]) -> str:
    """Count outcomes."""
    counts = {outcome: list(outcomes).count(outcome) for outcome in dict.fromkeys(outcomes)}
    policies = "policy" if len(outcomes) == 1 else "policies"
    return f"{len(outcomes)} {policies}, " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


@dataclass(frozen=True, eq=False)
class OperatingPanel:
    """One method's risk–coverage curve on the test set, with its policy's operating point where it has one."""

    style: Style
    error: FloatArray
    observation: Observation | None


def operating_points(run: RunView, task: TaskView, policies: Mapping[str, RiskPolicy]) -> Iterator[Figure]:
    """Yield the figure of operating points where any policy retains something."""
    panels = [
        OperatingPanel(run.styles[method.name], policies[method.name].curve, policies[method.name].in_domain)
        for method in run.methods_of(task)
        if method.name in policies
    ]
    if any(panel.observation is not None and panel.observation.error is not None for panel in panels):
        draw = partial(operating_figure, panels, target=next(iter(policies.values())).target)
        yield Figure("operating", "Operating points of the policies", CAPTION, draw, narrow=len(panels) < 3)


@styled
def operating_figure(panels: Sequence[OperatingPanel], *, target: float) -> Drawing:
    """Draw error among the retained against coverage, one panel per method, with the policy's operating point."""
    from matplotlib.lines import Line2D

    figure, axes = small_multiples(len(panels), panel_height=1.65, extra=0.35)
    shares = [p.observation.retained for p in panels if p.observation is not None and p.observation.error is not None]
    low = max(0.0, floor(10 * min(shares) - 1) / 10) if shares else 0.5
    heights = [float(panel.error[low <= RETAINED].max()) for panel in panels]
    heights += [p.observation.interval[1] for p in panels if p.observation is not None and p.observation.interval]
    for axis, panel in zip(axes, panels, strict=True):
        axis.axhline(target, color=CONTROL, linestyle="dotted", linewidth=1.4)
        axis.plot(RETAINED, panel.error, **{**panel.style.line, "marker": "none"})
        _draw_point(axis, panel)
        axis.set_title(panel_title(panel.style.title), pad=14)
        note = "no guarantee" if panel.observation is None else f"retains {panel.observation.retained:.0%}"
        axis.annotate(note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)
        axis.set(xlim=(1.0, low), ylim=(0.0, 1.12 * max(2 * target, *heights)))
        axis.set_xticks([1, (1 + low) / 2, low], [f"{100 * tick:.0f}%" for tick in (1, (1 + low) / 2, low)])
    handle = Line2D([], [], color=CONTROL, linestyle="dotted", linewidth=1.4, label=f"target: below {target:g}")
    figure.legend(handles=[handle], loc="outside upper right", handlelength=3.0)
    figure.supxlabel("share retained", fontsize=8.5)
    figure.supylabel("error among the retained", fontsize=8.5)
    return figure


def _draw_point(axis: Axes, panel: OperatingPanel) -> None:
    observation = panel.observation
    if observation is None or observation.error is None:
        return
    if observation.interval is not None:
        axis.vlines(observation.retained, *observation.interval, color=panel.style.colour, linewidth=1.3, zorder=3)
    point = {**panel.style.point, "markersize": 6.5, "markerfacecolor": panel.style.colour}
    axis.plot([observation.retained], [observation.error], linestyle="none", zorder=4, clip_on=False, **point)


def capacity_introduction(task: TaskView, policies: Mapping[str, CapacityPolicy]) -> str:
    """State what the capacity policies guarantee."""
    calibration, upper = task.of_kind("cal")[0], max(policy.upper for policy in policies.values())
    return (
        f"Of the same runs, fitted on the {calibration.examples:,} examples of “{calibration.name}”: the most "
        f"uncertain are referred, on average over calibration sets at most {CAPACITY:.0%}. For this calibration set "
        f"the policies refer at most {upper:.0%} of data like it, with {CONFIDENCE:.0%} confidence; the capacity is "
        "violated where the whole interval of the referred share lies above that. Nothing is guaranteed about the "
        "error."
    )


def _on_split(policies: Mapping[str, CapacityPolicy], split: str) -> dict[str, tuple[CapacityPolicy, CapacityResult]]:
    return {
        name: (policy, result)
        for name, policy in policies.items()
        for result in policy.results
        if result.observation.split == split
    }


def capacity_table(run: RunView, task: TaskView, policies: Mapping[str, CapacityPolicy], split: str) -> Table:
    """Return share referred, outcome of the capacity, shift test and selective risk on a split."""
    results = _on_split(policies, split)
    columns = [
        FilledColumn(
            Column("Referred", "95 % interval", "", NOTES["share"]),
            {name: _share(result) for name, (_, result) in results.items()},
        ),
        FilledColumn(
            Column("Capacity", f"at most {CAPACITY:.0%}", "", NOTES["capacity"]),
            {name: TableCell(policy.outcome(result)) for name, (policy, result) in results.items()},
        ),
        FilledColumn(
            Column("Shift test", f"warns if p < {SHIFT_LEVEL:g}", "", NOTES["shift"]),
            {name: _warning(result.observation) for name, (_, result) in results.items()},
        ),
        FilledColumn(
            Column("Selective risk", "95 % interval", "↓"),
            {name: _error(result.observation) for name, (_, result) in results.items()},
        ),
    ]
    caption = f"{'In-domain' if split == task.in_domain.name else 'Under shift'}, “{split}”"
    return _table(run, task, results, columns, caption)


def _share(result: CapacityResult) -> TableCell:
    interval = result.referred.interval
    spread = "" if interval is None else f"[{interval[0]:.0%}, {interval[1]:.0%}]"
    hint = f"of all examples {1.0 - result.observation.retained:.1%}"
    return TableCell(f"{result.referred.share:.1%}", spread, f"{result.referred.share:.9g}", hint=hint)


def _warning(observation: Observation) -> TableCell:
    return TableCell("warns" if observation.warned else "no warning", _p_value(observation), f"{observation.shift:.9g}")


def capacity_sentence(policies: Mapping[str, CapacityPolicy], split: str) -> str:
    """Say how much is referred on a split, whether capacities are met, and how often the shift test warns."""
    results = list(_on_split(policies, split).values())
    shares = [result.referred.share for _, result in results]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    share = f"{low} are referred" if low == high else f"between {low} and {high} are referred, depending on the method"
    outcomes = tally([policy.outcome(result) for policy, result in results])
    warnings = sum(result.observation.warned for _, result in results)
    return f"On “{split}” {share}; {outcomes}. The shift test warns for {warnings} of {len(results)}."
