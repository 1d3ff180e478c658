"""Referral cockpit: choose an operating point on the risk–coverage curve, and see what it retains, refers and costs.

Between stops everything is an estimate: a threshold that is picked by its own estimate, or by its own bound, has no
guarantee. The stops are policies for a grid of targets that was fixed beforehand, fitted on the calibration split for
all methods at once (:mod:`dubio.referral.risk_grid`), so that whichever the reader picks keeps its guarantee. The first
run of each method stands for it, because a policy belongs to one trained system.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dubio.core.errors import DubioError, UserError
from dubio.core.files import file_name
from dubio.core.predictions import Predictions
from dubio.referral.assessment import LEVEL
from dubio.referral.operating_curve import OperatingPoints, operating_points
from dubio.referral.risk import NoGuarantee
from dubio.referral.risk_grid import TARGETS, PolicyGrid, fit_risk_policies
from dubio.reporting.charts import Rows, chart_of, line_legend, method_colour, method_dash, tooltips
from dubio.reporting.leaderboard import leader
from dubio.reporting.manifest_view import MethodRun, TaskView
from dubio.reporting.measures import own_quantities
from dubio.reporting.method_choice import stored_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Json, Section, Text, Visit, Widget, section
from dubio.reporting.style import Style
from dubio.reporting.tables import Column, Row, Table, TableCell, bounds, value_cell
from dubio.reporting.wording import counted, quantity_words
from dubio.statistics.subgroups import parts_of

if TYPE_CHECKING:
    import altair

CONFIDENCE = 0.95
"""Of all stops together."""

POINTS = 101
"""Operating points of each method."""

REFERRED_BY = "confidence"
"""The quantity by which rows are referred, unless all systems have the same uncertainty of their own."""

MOST_SEEN = 5000
"""Calibration examples up to which the page holds the policy files, which list their uncertainties."""

SHOWN_COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
"""Shares retained in the static table."""

CAPTION = (
    "Error among the retained against the share retained, least certain referred first, on the in-domain test set, "
    "first run of each method. Dots and line: the operating point; diamonds: guaranteed stops; bands: 95 % intervals, "
    "each point on its own. Other methods are faint."
)

BEFOREHAND = (
    " For one system, chosen without looking at these rows, fit it alone (dubio refer fit cal.npz --targets default): "
    "its stops then share the confidence among themselves."
)
"""That a system named beforehand need not share its confidence with others."""

FEW = 0.05
"""Shares retained below which the error is of so few rows that it does not decide how high the figure is."""


@dataclass(frozen=True, eq=False)
class Cockpit:
    """The operating points of every method on a task, and the stops with a guarantee, or why there are none.

    ``quantity`` is the uncertainty by which all of them refer.
    """

    points: Mapping[str, OperatingPoints]
    grid: PolicyGrid | None
    refusal: str
    quantity: str = REFERRED_BY


@section("cockpit", order=2)
class CockpitSection(Section):
    """The referral cockpit of every task."""

    title = "Referral cockpit"

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], MethodRun] = {}
        self.own: dict[tuple[str, str], tuple[str, ...]] = {}
        self.points: dict[tuple[str, str], dict[str, OperatingPoints]] = {}
        self.cockpits: dict[str, Cockpit] = {}

    def visit(self, item: Visit) -> None:
        """Note the first run of each method that has labels, and its operating points where no stop can be fitted."""
        key = item.task.key, item.run.method
        if item.is_in_domain_test and item.has_labels and key not in self.runs:
            self.runs[key], self.own[key] = item.run, own_quantities(item.predictions)
            columns = tuple(item.predictions.columns)
            for quantity in () if item.task.of_kind("cal") else (REFERRED_BY, *self.own[key]):
                points = operating_points(item.predictions, quantity=quantity, by=columns, most=POINTS)
                self.points.setdefault((item.task.key, quantity), {})[item.run.method] = points

    def finish(self, run: RunView, task: TaskView) -> None:
        """Fit the stops of all methods together, then compute the operating points with the stops among them."""
        first = {name: own for (key, name), own in self.runs.items() if key == task.key}
        quantity = self._quantity(run, task, first)
        if not task.of_kind("cal"):
            option = " (dubio report --cal)" if run.question == "systems" else ""
            refusal = f"No stop has a guarantee: there is no calibration split{option}."
            self.cockpits[task.key] = Cockpit(self.points.get((task.key, quantity), {}), None, refusal, quantity)
            return
        grid, refusal = fit_grid(run, task, first, quantity)
        points = {}
        for name, own in first.items():
            thresholds = (
                [] if grid is None else [s.policy.threshold for s in grid.systems[name] if s.policy is not None]
            )
            with suppress(DubioError):
                test = task.read(run.source, own, task.in_domain)
                columns = {**test.columns, **task.columns.get(task.in_domain.name, {})}
                test = test.with_checked(columns=columns)
                shared = max(1, _shared_intervals(grid, columns))
                options: Json = {"quantity": quantity, "stops": thresholds, "stop_level": LEVEL / shared}
                options["most"] = POINTS
                points[name] = operating_points(test, by=tuple(columns), **options)
        self.cockpits[task.key] = Cockpit(points, grid, refusal, quantity)

    def _quantity(self, run: RunView, task: TaskView, first: Mapping[str, MethodRun]) -> str:
        """Return the first own uncertainty that all systems have on every set that is needed, else confidence."""
        names = [self.own[task.key, name] for name in first]
        shared = [quantity for quantity in (names[0] if names else ()) if all(quantity in own for own in names)]
        for split in task.of_kind("cal") if shared else ():
            scores = [task.read(run.source, own, split).scores for own in first.values()]
            shared = [quantity for quantity in shared if all(quantity in own for own in scores)]
        return shared[0] if shared else REFERRED_BY

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the cockpit with a static table in its place, and the curve."""
        cockpit = self.cockpits.get(task.key)
        if cockpit is None or not cockpit.points:
            return
        fallback = (static_table(run, cockpit), Text(guarantee_sentence(cockpit), "small"))
        yield Widget("cockpit", cockpit_data(run, task, cockpit), fallback)
        styles = [run.styles[name] for name in cockpit.points]
        rows, stops = curve_rows(run, cockpit), stop_rows(run, cockpit)
        baselines = {method.title for method in run.methods if method.baseline}
        chart = partial(risk_coverage_chart, rows, stops, styles, highest(rows, baselines))
        yield Figure("risk-coverage", "Risk–coverage curve", CAPTION, chart)

    def document(self, run: RunView) -> Json:
        """Return the stops of every task."""
        grids = {key: own.grid for key, own in self.cockpits.items() if own.grid is not None}
        return {"guaranteed_stops": [{"task": key, **grid.as_dict()} for key, grid in grids.items()]}


def fit_grid(
    run: RunView, task: TaskView, first: Mapping[str, MethodRun], quantity: str
) -> tuple[PolicyGrid | None, str]:
    """Return the policies of all methods for the grid of targets, or None and the reason."""
    predictions: dict[str, Predictions] = {}
    try:
        for name, own in first.items():
            predictions[name] = task.read(run.source, own, task.of_kind("cal")[0])
        return fit_risk_policies(predictions, targets=TARGETS, confidence=CONFIDENCE, quantity=quantity), ""
    except NoGuarantee as refusal:
        return None, f"No stop has a guarantee: {refusal}"
    except (UserError, DubioError) as fault:
        return None, f"No stop has a guarantee: {fault}"


def cockpit_data(run: RunView, task: TaskView, cockpit: Cockpit) -> Json:
    """Return what the cockpit's script draws: counts at every operating point, stops, and policies to download."""
    grid = cockpit.grid
    stops = {} if grid is None else {s["name"]: s["stops"] for s in grid.as_dict()["systems"]}
    small = grid is not None and task.of_kind("cal")[0].examples <= MOST_SEEN
    files = grid.downloads() if grid is not None and small else {}
    systems = [
        {
            "name": name, "title": run.title(name), "points": _plain_points(points),
            "stops": rounded(stops.get(name, [])), "files": files.get(name),
        }
        for name, points in cockpit.points.items()
    ]  # fmt: skip
    return {
        "version": 1,
        "task": task.key,
        "split": task.in_domain.name,
        "best": first_system(run, task, cockpit),
        "systems": systems,
        "confidence": None if grid is None else grid.confidence,
        "sentence": guarantee_sentence(cockpit),
        "subgroup_notes": subgroup_notes(cockpit),
        "command": fit_command(run, task, cockpit),
    }


def fit_command(run: RunView, task: TaskView, cockpit: Cockpit) -> str:
    """Return the command that writes the same policies: of all systems together, because they share the level.

    The predictions of a run are in its store, which Python opens; where the files of other systems are is not known.
    """
    systems, quantity = list(cockpit.points), cockpit.quantity
    if run.question == "methods" and (splits := task.of_kind("cal")):
        names = [merged.name for merged in run.manifest.parts] or [stored_name(run)]
        read = f"run.predictions({task.key!r}, name, {splits[0].name!r})"
        options = f"targets={TARGETS}, confidence={CONFIDENCE:g}"
        options += "" if quantity == REFERRED_BY else f", quantity={quantity!r}"
        fitted = f"dubio.fit_risk_policies({{name: {read} for name in {systems}}}, {options})"
        return f"import dubio; run = {run.opened(*names)}; {fitted}.write('policies')"
    named = (shlex.quote(f"{name}=cal-{file_name(name)}.npz") for name in systems)
    files = "cal.npz" if len(systems) == 1 else " ".join(named)
    targets = ",".join(f"{target:g}" for target in TARGETS)
    by = "" if quantity == REFERRED_BY else f" --quantity {shlex.quote(quantity)}"
    return f"dubio refer fit {files} --targets {targets} --confidence {CONFIDENCE:g}{by} -o policies/"


def first_system(run: RunView, task: TaskView, cockpit: Cockpit) -> str:
    """Return the method that the cockpit begins with: the best one, or the first where none is."""
    best = leader(run, task)
    return best if best is not None and best in cockpit.points else next(iter(cockpit.points))


def rounded(value: Any, digits: int = 5) -> Any:
    """Return plain values with numbers of a few digits: thresholds are for drawing, policies have them exactly."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list | tuple) else value


def _plain_points(points: OperatingPoints) -> Json:
    """Return operating points as plain values; those of subgroups are many, and shown with three digits."""
    plain = points.as_dict()
    return {**rounded({**plain, "subgroups": {}}), "subgroups": rounded(plain["subgroups"], 3)}


def _shared_intervals(grid: PolicyGrid | None, columns: Mapping[str, Any]) -> int:
    """Return the number of intervals that hold at once: stops of all systems × subgroups."""
    return 0 if grid is None else len(grid.policies) * sum(len(parts_of(values)) for values in columns.values())


def subgroup_notes(cockpit: Cockpit) -> dict[str, str]:
    """Return what the intervals of subgroups mean ``between`` stops and ``at_stops``.

    The stops were fitted on other rows, so that on the test set their intervals are of fixed thresholds.
    """
    subgroups = [len(values) for own in cockpit.points.values() for values in own.subgroups.values()]
    count = sum(subgroups) // max(1, len(cockpit.points))
    between = "Estimates from the test set, each with its own 95 % interval: no guarantee."
    stops = 0 if cockpit.grid is None else len(cockpit.grid.policies)
    at_stops = (
        "The guarantee of the stop is about all rows together, not about a subgroup. The intervals of subgroups, from "
        f"the test set, hold all at once with {100 * (1 - LEVEL):g} % confidence, over {counted(stops, 'stop')} of all "
        f"systems × {counted(count, 'subgroup')}."
    )
    return {"between": between, "at_stops": at_stops}


def guarantee_sentence(cockpit: Cockpit) -> str:
    """Return what the stops guarantee together, and that nothing else is guaranteed."""
    by = f"Referred by {quantity_words(cockpit.quantity)}, the systems' own uncertainty. "
    by = "" if cockpit.quantity == REFERRED_BY else by
    if cockpit.grid is None:
        return by + cockpit.refusal
    several = BEFOREHAND if len(cockpit.grid.systems) > 1 else ""
    return f"{by}{cockpit.grid.sentence} Between stops every number is an estimate, without a guarantee.{several}"


def static_table(run: RunView, cockpit: Cockpit) -> Table:
    """Return the error among the retained at some shares retained, for readers without a script."""
    columns = tuple(Column(f"{share:.0%}", "retained", "↓") for share in SHOWN_COVERAGES)
    rows = []
    for name, own in cockpit.points.items():
        cells = []
        for share in SHOWN_COVERAGES:
            point = min(own.points, key=lambda p: abs(p.retained - share * own.rows))
            empty = TableCell("–", place="unranked")
            cells.append(
                empty if point.risk is None else value_cell(point.risk.value, spread=bounds(point.risk.interval))
            )
        rows.append(Row(run.title(name), tuple(cells), run.styles[name]))
    caption = "Error among the retained with its 95 % interval, at the attainable share nearest to each; estimates."
    return Table(columns, tuple(rows), caption)


def curve_rows(run: RunView, cockpit: Cockpit) -> Rows:
    """Return the risk–coverage curve of every method with its intervals."""
    rows: Rows = []
    for name, own in cockpit.points.items():
        for index, point in enumerate(own.points):
            if point.risk is not None:
                low, high = point.risk.interval
                values = {"x": point.retained / own.rows, "y": point.risk.value, "low": low, "high": high}
                rows.append({"method": run.title(name), "point": index, **values})
    return rows


def stop_rows(run: RunView, cockpit: Cockpit) -> Rows:
    """Return the guaranteed stops of every method as points of its curve."""
    rows: Rows = []
    for name, own in cockpit.points.items():
        stops = [] if cockpit.grid is None else [s for s in cockpit.grid.systems[name] if s.policy is not None]
        for stop, index in zip(stops, own.stops, strict=True):
            point = own.points[index]
            if stop.guaranteed and point.risk is not None:
                values = {"x": point.retained / own.rows, "y": point.risk.value, "target": stop.target}
                rows.append({"method": run.title(name), **values})
    return rows


def highest(rows: Rows, baselines: Collection[str]) -> float:
    """Return the upper end of the axis: above the errors of more than a few rows, whatever their intervals.

    Baselines do not count where there are other methods: class frequencies would squeeze all curves together.
    """
    own = [row for row in rows if row["method"] not in baselines] or rows
    return max(1.15 * max((row["y"] for row in own if row["x"] >= FEW), default=0.0), 0.01)


def risk_coverage_chart(rows: Rows, stops: Rows, styles: list[Style], top: float) -> altair.LayerChart:
    """Return the risk–coverage curves with stops; those of the systems in the cockpit stand out, with their points."""
    import altair

    chosen = "system == '' || datum.method == system || datum.method == other"  # in a file all methods stand out
    at = "datum.method == system && datum.point == at || datum.method == other && datum.point == other_at"
    retained = altair.X("x:Q", title="share retained", scale=altair.Scale(domain=[0, 1]))
    y_scale = altair.Scale(domain=[0, top], nice=True)
    error = altair.Y("y:Q", title="error among the retained", scale=y_scale)
    colour, legend = method_colour(styles), line_legend(styles)
    values = {"method": "method:N", "share retained": "x:Q", "error": "y:Q"}
    ends = {"lower": "low:Q", "upper": "high:Q"}
    chart = chart_of(rows)
    band = chart.mark_area(clip=True, opacity=0.13).transform_filter(chosen)
    line = chart.mark_line(clip=True).encode(
        retained, error, color=colour.legend(**legend), strokeDash=method_dash(styles),
        opacity=altair.condition(chosen, altair.value(1), altair.value(0.25)),
        strokeWidth=altair.condition(chosen, altair.value(2.2), altair.value(1.4)),
    )  # fmt: skip
    hover = chart.mark_point(size=60, opacity=0, filled=True, clip=True)
    dot = chart.mark_point(size=130, filled=True, clip=True, stroke="white", strokeWidth=1.5).transform_filter(at)
    layers: list[altair.Chart] = [
        band.encode(retained, altair.Y("low:Q", scale=y_scale), y2=altair.Y2("high:Q"), color=colour),
        line,
        hover.encode(retained, error, tooltip=tooltips(values | ends)),
    ]
    if stops:
        diamonds: Json = {"shape": "diamond", "size": 110, "stroke": "currentColor", "strokeWidth": 0.8}
        marks = chart_of(stops).mark_point(filled=True, clip=True, **diamonds).transform_filter(chosen)
        own = tooltips({"guaranteed below": "target:Q", **values})
        layers.append(marks.encode(retained, error, color=colour, tooltip=own))
    rule = chart_of([{"here": 1}]).mark_rule(strokeDash=[4, 3], strokeWidth=1.2)
    layers.append(rule.encode(altair.X(datum=altair.expr("coverage"), type="quantitative")))
    layers.append(dot.encode(retained, error, color=colour, tooltip=tooltips(values | ends)))
    start: Json = {"coverage": 1, "system": "", "other": "", "at": -1, "other_at": -1}
    params = [altair.param(name=name, value=value) for name, value in start.items()]
    return altair.LayerChart(layer=layers).add_params(*params).properties(width="container", height=270)
