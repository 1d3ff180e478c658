"""Write the sheet of a referral policy: one printed page to hand to a colleague or an ethics board.

It says what is retained and referred, what is guaranteed, with which confidence and over which units, and what is not;
on labelled predictions it shows the risk–coverage curve with the operating point, observed rates and subgroups. Figures
of the calibration set, on which the threshold was chosen, are optimistic: they are marked as such and have no outcome.
The sheet is complete without a script, and has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import UserError, plural
from dubio.core.files import write_file
from dubio.core.predictions import Predictions
from dubio.referral.application import Applied, apply_policy
from dubio.referral.assessment import Rate, SubgroupRates, has_labels, share_of_units
from dubio.referral.calibration_set import calibration_rows
from dubio.referral.operating_curve import OperatingPoint, OperatingPoints, operating_points
from dubio.referral.policy import SELECTED, Policy
from dubio.referral.shift import SHIFT_LEVEL
from dubio.reporting.charts import Rows, chart_of
from dubio.reporting.page import Part, need_report_extra, render_sheet
from dubio.reporting.section import Block, Definitions, Figure, Text
from dubio.reporting.sheet_wording import (
    SPLITS,
    calibration_figures,
    calibration_warning,
    guarantee_terms,
    limit_terms,
    per_cent,
    rule_terms,
    sheet_title,
    short,
)
from dubio.reporting.style import MODEL, OUTSIDE
from dubio.reporting.tables import Column, Row, Table, TableCell, bounds
from dubio.statistics.bootstrap import units_of

if TYPE_CHECKING:
    import altair

SUFFIXES = (".html", ".htm")
CURVE = "risk-coverage"
MOST_BELOW = 6
"""Subgroups in one table; of more, two tables stand side by side, so that they stay on the page."""

UNSEEN = (
    "A check of the policy, as far as neither training, selection nor calibration has used these rows. Met: the whole "
    "interval is within the bound; violated: beyond it; undecided: it contains the bound."
)
TITLES = {
    "error": "Error among the retained", "referred": "Share referred", "everything": "Error if nothing were referred",
    "sensitivity": "Sensitivity among the retained", "specificity": "Specificity among the retained",
}  # fmt: skip


@dataclass(frozen=True)
class PolicySheet:
    """The sheet of a policy.

    Attributes:
        title: Its heading.
        parts: Its parts, in order.
        fingerprint: SHA-256 of the policy's file as dubio writes it, which says whose sheet it is.
    """

    title: str
    parts: tuple[Part, ...] = field(repr=False)
    fingerprint: str

    def to_html(self) -> str:
        """Return the sheet as one HTML document without scripts.

        Raises:
            MissingExtra: Without the packages of ``dubio[report]``.
        """
        values = {"title": self.title, "parts": self.parts, "fingerprint": self.fingerprint}
        return render_sheet("sheet.html.j2", (CURVE,), **values)

    def _repr_html_(self) -> str:
        """Return the sheet in a frame of its own, whose style leaves the notebook's alone."""
        frame = 'sandbox="" style="width: 100%; height: 45rem; border: 0"'
        return f'<iframe title="{escape(self.title)}" {frame} srcdoc="{escape(self.to_html())}"></iframe>'

    def write(self, path: str | Path) -> Path:
        """Write the sheet to a file, completely or not at all.

        Raises:
            UserError: For a name that does not end in .html.
            MissingExtra: Without the packages of ``dubio[report]``.
        """
        check_sheet_path(Path(path), "path")
        return write_file(Path(path), self.to_html())


def check_sheet_path(path: Path, argument: str) -> None:
    """Refuse a file that a sheet cannot be written to, and to write one without the extra ``report``."""
    need_report_extra("writing the sheet of a policy")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{argument} {str(path)!r}: the name must end in .html; print the page to have it as PDF.")


def policy_sheet(
    policy: Policy,
    predictions: Predictions | None = None,
    *,
    by: Sequence[str] = (),
    shift_level: float = SHIFT_LEVEL,
    seed: int = 0,
    allow_unnamed: bool = False,
    file: str = "",
    allow_other: bool = False,
) -> PolicySheet:
    """Describe a policy on one page; ``.write("sheet.html")`` writes it.

    Args:
        policy: The policy.
        predictions: Predictions of its system, as for :func:`~dubio.referral.apply_policy`: new rows, or those of its
            calibration set, which are recognised and marked as such. None for a sheet without observed figures.
        by: Columns of the predictions whose values are subgroups.
        shift_level: Warn of a shift below this p-value.
        seed: Seed of the choice of one row per group in the shift test.
        allow_unnamed: Accept that only one of policy and predictions names its classes.
        file: What the sheet calls the predictions, such as the name of their file.
        allow_other: Accept a policy that was fitted for another deployed model.

    Raises:
        UserError: For predictions that cannot be of the same system, or subgroups without predictions.
    """
    if predictions is None and by:
        raise UserError("by needs predictions, whose columns it names.")
    observed = None
    if predictions is not None:
        accepted: Any = {"allow_unnamed": allow_unnamed, "allow_other": allow_other}
        decide = partial(apply_policy, policy, by=by, shift_level=shift_level, seed=seed, **accepted)
        observed = _Observed.of(policy, predictions, decide)
    fingerprint = hashlib.sha256(policy.to_json().encode()).hexdigest()
    parts = tuple(filter(lambda own: own.blocks, _parts(policy, observed, short(file))))
    return PolicySheet(sheet_title(policy), parts, fingerprint)


def _parts(policy: Policy, observed: _Observed | None, file: str) -> tuple[Part, ...]:
    rule = policy.rule if observed is None else observed.applied.rule
    return (
        Part("rule", "What is retained and what is referred", (Definitions(rule_terms(policy, rule)),)),
        Part("guarantee", "What is guaranteed", (Definitions(guarantee_terms(policy)),)),
        Part("curve", "", () if observed is None else tuple(_curve(policy, observed))),
        Part("limits", "What is not guaranteed", (Definitions(limit_terms(policy)),)),
        Part("observed", *_figures(policy, observed, file)),
        Part("subgroups", "Subgroups", () if observed is None else tuple(_subgroups(observed))),
        Part("notes", "Notes", tuple(_notes(policy, observed))),
    )


@dataclass(frozen=True, eq=False)
class _Observed:
    """A policy on predictions: its decisions and rates, and the curve where rows have labels."""

    rows: Predictions
    applied: Applied
    points: OperatingPoints | None
    is_calibration: bool

    @classmethod
    def of(cls, policy: Policy, predictions: Predictions, decide: Callable[[Predictions], Applied]) -> _Observed:
        applied = decide(predictions)
        fitted_on = calibration_rows(policy, predictions)
        if fitted_on is not None:
            predictions, applied = fitted_on, decide(fitted_on)
        points = None
        if has_labels(predictions):
            # Rows that are marked out of distribution count in the rates of new data; the curve is about the same rows.
            rows = predictions.with_checked(ood=np.zeros(len(predictions), dtype=bool))
            points = operating_points(rows, quantity=policy.quantity, stops=[policy.threshold])
        return cls(predictions, applied, points, fitted_on is not None)

    @property
    def source(self) -> str:
        """Which rows they are, in words."""
        kind = self.rows.kind
        return "the calibration set" if self.is_calibration else SPLITS[kind] if kind in SELECTED else "new rows"

    @property
    def point(self) -> OperatingPoint | None:
        """The operating point of the policy."""
        return None if self.points is None else self.points.points[self.points.stops[0]]

    def rates(self) -> Iterator[tuple[Rate, str]]:
        """Yield the rates, those of the policy first, and in words what is positive."""
        rates = {rate.name: rate for rate in self.applied.rates}
        grouped, positive = self.rows.group is not None, ""
        if "referred" not in rates:
            share = share_of_units(~self.applied.retained, np.ones(len(self.rows), dtype=bool), units_of(self.rows))
            rates["referred"] = Rate("referred", *share, grouped, None)
        if self.points is not None and self.point is not None:
            further = {"error": self.point.risk, "everything": self.points.points[-1].risk}
            if self.applied.positives is None:  # of a screening policy the positive class may be another
                further |= {"sensitivity": self.point.sensitivity, "specificity": self.point.specificity}
                positive = self.points.positive or ""
            added = {name: share for name, share in further.items() if share is not None and name not in rates}
            rates |= {name: Rate(name, *share, grouped, None) for name, share in added.items()}
        for name in ("referred", "error", "sensitivity", "specificity", "everything"):
            if name in rates:
                yield rates[name], f" (positive: {short(positive)})" if positive and name == "sensitivity" else ""


def _figures(policy: Policy, observed: _Observed | None, file: str) -> tuple[str, tuple[Block, ...]]:
    """Return the heading and the blocks of observed rates."""
    figures = calibration_figures(policy)
    if observed is None:
        return "Observed", (Text(figures, "small"),) if figures else ()
    rows, retained = len(observed.rows), int(observed.applied.retained.sum())
    count = f"{retained:,} of {rows:,} {plural('row', rows)} retained ({per_cent(retained / rows, '.1f')})"
    checked = not (policy.void or observed.is_calibration or observed.rows.kind in SELECTED)
    blocks: list[Block] = [_standing(policy, observed, checked)]
    if warnings := tuple(text for text in observed.applied.warnings if text != policy.guarantee):
        blocks.append(Text(warnings, "warning"))
    blocks.append(_rate_table(observed, checked=checked))
    blocks.append(Text(" ".join(_remarks(observed, checked, figures)), "small"))
    return f"Observed on {observed.source}{f' ({file})' if file else ''}: {count}", tuple(blocks)


def _standing(policy: Policy, observed: _Observed, checked: bool) -> Text:
    """Return how far the figures check the guarantee."""
    if observed.is_calibration:
        return Text(calibration_warning(policy), "warning")
    if observed.rows.kind in SELECTED:
        return Text("Training or selection has used these rows: no figure is a check of the policy.", "warning")
    if not checked:
        return Text("Nothing is guaranteed, so that nothing is met or violated.", "small")
    bounded = any(rate.bound is not None for rate in observed.applied.rates)
    return Text(UNSEEN if bounded or observed.points else "Without labels the guarantee cannot be checked.", "small")


def _rate_table(observed: _Observed, *, checked: bool) -> Table:
    """Return observed rates with intervals, beside what is guaranteed where that is checked."""
    rows = []
    for rate, positive in observed.rates():
        unit = plural("group" if rate.grouped else "row", rate.units)
        count = "" if rate.grouped else f"{round(rate.value * rate.units):,} of "
        values = f"{rate.value:.4f}", bounds(rate.interval, ".4f"), f"{count}{rate.units:,} {unit}"
        cells = [*map(TableCell, values)]
        if checked:
            side = {"error": "below", "referred": "at most"}.get(rate.name, "above")
            bound = "–" if rate.bound is None else f"{side} {rate.bound:.4g}"
            cells += [TableCell(bound), TableCell(rate.outcome or "–", place=rate.outcome or "")]
        rows.append(Row(TITLES[rate.name] + positive, tuple(cells)))
    columns = [Column("Observed"), Column("95 % interval"), Column("Over")]
    columns += [Column("Guaranteed"), Column("Outcome")] if checked else []
    return Table(tuple(columns), tuple(rows), first="Rate")


def _remarks(observed: _Observed, checked: bool, figures: str) -> Iterator[str]:
    """Yield what the table does not say."""
    applied = observed.applied
    exact = "Hoeffding–Bentkus, over groups" if observed.rows.group is not None else "exact (Clopper–Pearson)"
    fixed = ", as if the threshold had been fixed beforehand" if observed.is_calibration else ""
    yield f"Intervals: {exact}{fixed}."
    if applied.positives is not None and applied.positives[0]:
        yield "Positives referred, not counted as missed: {1:,} of {0:,}.".format(*applied.positives)
    if checked:
        yield from (f"{name.capitalize()}: no labelled row of its class is retained; undecided."
                    for name in applied.unchecked)  # fmt: skip
        if applied.outcome == "nothing retained":
            yield "No row is retained: the guarantee cannot be checked."
    if not observed.is_calibration:
        if not applied.shift.significant:
            yield applied.shift.sentence()
        if figures:
            yield figures


def _curve(policy: Policy, observed: _Observed) -> Iterator[Figure]:
    """Yield the risk–coverage curve with the operating point, where rows have labels."""
    points, point = observed.points, observed.point
    if points is None or point is None:
        return
    shares = [(own.retained / points.rows, own.risk) for own in points.points if own.risk is not None]
    curve = [{"x": x, "y": y, "low": low, "high": high} for x, (y, (low, high), _) in shares]
    target = None if policy.void else policy.goals.get("max_risk")
    source = f"{observed.source}{', not a validation' if observed.is_calibration else ''}"
    caption = "Error among the retained against the share retained, with the 95 % interval of each point on its own."
    caption += " Dashed: the guaranteed bound." if target is not None else ""
    reading = "At the operating point no row with a label is retained."
    here: Rows = []
    if point.risk is not None:
        share, (low, high) = point.retained / points.rows, point.risk.interval
        here = [{"x": share, "y": point.risk.value}]
        reading = (f"Diamond: the policy retains {per_cent(share, '.1f')} of these rows, with an error of "
                   f"{point.risk.value:.4f} [{low:.4f}, {high:.4f}].")  # fmt: skip
    chart = partial(operating_point_chart, curve, here, target)
    yield Figure(CURVE, f"Risk–coverage curve on {source}", caption, chart, reading=reading)


def operating_point_chart(curve: Rows, here: Rows, target: float | None) -> altair.LayerChart:
    """Return the risk–coverage curve with its intervals, the operating point and the bound on the error."""
    import altair

    top = min(1.0, 1.4 * max([curve[-1]["high"], target or 0.0, *(row["y"] for row in here)]))
    x = altair.X("x:Q", title="share retained", scale=altair.Scale(domain=[0, 1]), axis=altair.Axis(format="%"))
    scale = altair.Scale(domain=[0, top], nice=False)
    y = altair.Y("y:Q", title="error among the retained", scale=scale)
    base = chart_of(curve)
    band = base.mark_area(opacity=0.15, clip=True, color=MODEL).encode(
        x, altair.Y("low:Q", scale=scale), y2=altair.Y2("high:Q")
    )
    line = base.mark_line(strokeWidth=1.8, clip=True, color=MODEL).encode(x, y)
    layers = [band, line]
    if target is not None:
        layers.append(chart_of([{"y": target}]).mark_rule(strokeDash=[5, 3], color=OUTSIDE).encode(y))
    if here:
        point = chart_of(here).mark_point(filled=True, shape="diamond", size=130, opacity=1, color=OUTSIDE)
        layers += [chart_of(here).mark_rule(strokeDash=[2, 2], opacity=0.6).encode(x), point.encode(x, y)]
    return altair.LayerChart(layer=layers).properties(width=300, height=190)


def _subgroups(observed: _Observed) -> Iterator[Block]:
    """Yield a table per column: size, share referred and rates of each subgroup."""
    for column, values in observed.applied.subgroups.items():
        names = dict.fromkeys(rate.name for own in values.values() for rate in own.rates if rate.name != "referred")
        grouped = observed.rows.group is not None
        rows = tuple(_subgroup(value, own, grouped, tuple(names)) for value, own in values.items())
        heads = (Column("Rows"), *([Column("Groups")] if grouped else []), Column("Referred"))
        rates = tuple(Column(TITLES[name].replace(" among the retained", ""), "95 % interval") for name in names)
        half = len(rows) if len(rows) <= MOST_BELOW else (len(rows) + 1) // 2
        yield from (Table((*heads, *rates), own, first=short(column)) for own in (rows[:half], rows[half:]) if own)
    if observed.applied.subgroups:
        source = " Rows of the calibration set: not a validation." if observed.is_calibration else ""
        small = any(own.underpowered for values in observed.applied.subgroups.values() for own in values.values())
        marked = " *: too small for a conclusion." if small else ""
        yield Text(f"Nothing is guaranteed for a single subgroup.{source}{marked}", "small")


def _subgroup(value: str, own: SubgroupRates, grouped: bool, names: Sequence[str]) -> Row:
    rates = {rate.name: rate for rate in own.rates}
    sizes = (own.rows, own.units) if grouped else (own.rows,)
    cells = [*(TableCell(f"{size:,}") for size in sizes), TableCell(per_cent(1 - own.retained / own.rows, ".1f"))]
    for name in names:
        rate = rates.get(name)
        cells.append(TableCell("–") if rate is None else TableCell(f"{rate.value:.3f}", bounds(rate.interval)))
    return Row(f"{short(value) or '(empty)'}{' *' if own.underpowered else ''}", tuple(cells))


def _notes(policy: Policy, observed: _Observed | None) -> Iterator[Text]:
    """Yield the notes of policy and predictions, but for what the guarantee says of others fitted together."""
    family = "" if policy.family is None else policy.family.sentence
    further = () if observed is None or observed.is_calibration else observed.applied.notes
    notes = [f"Calibration set: {note}" for note in policy.notes]
    notes += [f"Observed rows: {note}" for note in further if note != family]
    if notes:
        yield Text(tuple(notes), "note")
