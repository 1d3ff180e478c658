"""Operating points of a system on labelled rows: what would be retained at a threshold, and how often it is wrong.

A point is a set of rows that a threshold can retain: rows of equal uncertainty are retained or referred together. All
numbers are estimates. A threshold that is chosen by them, even by its own interval, has no guarantee; guarantees belong
to the policies of :mod:`dubio.referral.risk_grid`, whose targets are fixed beforehand. The number of points is bounded,
so that the size of the result does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dubio.core.errors import UserError, check_known
from dubio.core.passes import TIE
from dubio.core.predictions import Predictions
from dubio.core.specs import to_json
from dubio.core.types import BoolArray, FloatArray, IntArray
from dubio.metrics.decisions import binary_problems, correct, predicted
from dubio.metrics.ranking import Ordering, ordered
from dubio.referral.assessment import LEVEL, Share, plain_subgroups, share_of_units
from dubio.referral.calibration_set import usable_rows
from dubio.referral.threshold import Scale, dividing_probability
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.bootstrap import Units, units_of
from dubio.statistics.subgroups import UNDERPOWERED, parts_of

MOST_POINTS = 201
"""Number of operating points; coverages are half a per cent apart where rows are many and not tied."""


class Confusion(NamedTuple):
    """Retained rows by side and decision."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int


@dataclass(frozen=True)
class OperatingPoint:
    """The rows that a threshold retains.

    Attributes:
        threshold: The largest uncertainty that is retained; None where every row is referred.
        probability: The probability of the answer from which rows are retained, and its number of decimals in per cent;
            None where the uncertainty has none.
        retained: Number of rows retained.
        errors: Number of errors among them.
        risk: Error among the retained with its 95 % interval, over groups where there are any; None without rows.
        confusion: Counts of a binary problem, else None.
        sensitivity: Share of the retained positives that are called positive; None where there is none.
        specificity: The same of the negatives.
    """

    threshold: float | None
    probability: tuple[float, int] | None
    retained: int
    errors: int
    risk: Share | None
    confusion: Confusion | None = None
    sensitivity: Share | None = None
    specificity: Share | None = None


@dataclass(frozen=True, eq=False)
class Subgroup:
    """A subgroup of rows at every operating point.

    Attributes:
        rows: Number of rows.
        units: Number of groups, or of rows where there are no groups.
        retained: ``[P]`` number of rows retained.
        errors: ``[P]`` number of errors among them.
        risk: ``[P]`` error among the retained with its own 95 % interval; None without rows.
        at_stops: The same at each stop, with the interval that the stops share.
    """

    rows: int
    units: int
    retained: IntArray
    errors: IntArray
    risk: tuple[Share | None, ...] = field(repr=False)
    at_stops: tuple[Share | None, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        sizes = {"rows": self.rows, "units": self.units, "underpowered": self.units < UNDERPOWERED}
        counts = {"retained": self.retained.tolist(), "errors": self.errors.tolist()}
        return {**sizes, **counts, "risk": _columns(self.risk), "at_stops": _columns(self.at_stops)}


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """A bounded grid of operating points, from every row referred to every row retained.

    Attributes:
        quantity: The uncertainty they refer by.
        rows: Number of labelled rows.
        units: Number of groups, or of rows where there are no groups.
        grouped: Whether groups are the units: rates are then means over groups.
        positive: The positive side of a binary problem in words, else None.
        points: In ascending order of coverage.
        stops: For each threshold that had to be among them, the index of its point.
        subgroups: Column to value to the rows there.
    """

    quantity: str
    rows: int
    units: int
    grouped: bool
    positive: str | None
    points: tuple[OperatingPoint, ...] = field(repr=False)
    stops: tuple[int, ...]
    subgroups: Mapping[str, Mapping[str, Subgroup]] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, a list with an entry per point for every number."""
        points = self.points
        probabilities = [point.probability or (None, None) for point in points]
        plain: dict[str, Any] = {
            "quantity": self.quantity,
            "rows": self.rows,
            "units": self.units,
            "grouped": self.grouped,
            "stops": list(self.stops),
            "threshold": [point.threshold for point in points],
            "probability": [value for value, _ in probabilities],
            "decimals": [number for _, number in probabilities],
            "retained": [point.retained for point in points],
            "errors": [point.errors for point in points],
            "risk": _columns(point.risk for point in points),
            "binary": None,
            "subgroups": plain_subgroups(self.subgroups),
        }
        if self.positive is not None:
            counts = zip(*(point.confusion for point in points if point.confusion), strict=True)
            plain["binary"] = {
                "positive": self.positive,
                **dict(zip(Confusion._fields, map(list, counts), strict=True)),
                "sensitivity": _columns(point.sensitivity for point in points),
                "specificity": _columns(point.specificity for point in points),
            }
        return plain

    def to_json(self) -> str:
        """Return one JSON document."""
        return to_json(self.as_dict())


def operating_points(
    predictions: Predictions,
    *,
    quantity: str = "confidence",
    by: Sequence[str] = (),
    stops: Sequence[float] = (),
    stop_level: float = LEVEL,
    most: int = MOST_POINTS,
) -> OperatingPoints:
    """Return the operating points of labelled predictions, at thresholds that rows have.

    The points are the ends of blocks of equally uncertain rows nearest to evenly spaced coverages. Two classes, and
    grades, have a binary problem: class 1, or grade ≥ 2 (:func:`dubio.metrics.decisions.binary_problems`). A row is
    called positive where that is the more probable side.

    The interval of a subgroup's error is its own at every point. A reader who looks at several subgroups and stops and
    picks one needs intervals that hold all at once: where the stops do not depend on these rows, m intervals do, with
    confidence 1 − m · ``stop_level`` (Bonferroni).

    Args:
        predictions: Rows without a label and rows marked out of distribution are left out.
        quantity: The uncertainty to refer by.
        by: Columns whose values are subgroups.
        stops: Thresholds, such as those of policies, whose retained rows are among the points.
        stop_level: One minus the confidence of a subgroup's interval at a stop.
        most: Largest number of points.

    Raises:
        UserError: Where no row has a label, for a quantity that the predictions do not have, or too few points.
        UnknownName: For a column that they do not have.
    """
    rows, _ = usable_rows(predictions, True, "an operating point")
    measured = _Measured.of(rows, quantity)
    required = np.searchsorted(measured.ascending, np.asarray(stops, dtype=np.float64), side="right")
    counts = _counts(measured.ordering, required, most)
    return OperatingPoints(
        quantity=quantity,
        rows=len(rows),
        units=measured.units.count,
        grouped=rows.group is not None,
        positive=measured.side and measured.side.positive_class,
        points=tuple(measured.point(count) for count in counts.tolist()),
        stops=tuple(np.searchsorted(counts, required).tolist()),
        subgroups={column: _subgroups(measured, column, counts, required, stop_level) for column in by},
    )


class _Side(NamedTuple):
    """The positive side of a binary problem: in words, which rows are on it, and which are called so."""

    positive_class: str
    positive: BoolArray
    called: BoolArray

    @classmethod
    def of(cls, rows: Predictions) -> _Side | None:
        """Return the one binary problem of two classes or of grades; None of other predictions."""
        two = rows.class_count == 2
        if rows.target == "multilabel" or not (two or (rows.target == "ordinal" and rows.class_count > 2)):
            return None
        (problem,) = binary_problems(rows)
        # of two classes that are equally probable the first is the answer; rounding must not change it
        called = predicted(rows) == 1 if two else problem.scores > TIE
        return cls(problem.positive_class, problem.positive, np.asarray(called))


@dataclass(frozen=True, eq=False)
class _Measured:
    """Labelled rows, ordered by their uncertainty."""

    rows: Predictions
    scale: Scale
    ordering: Ordering
    ascending: FloatArray
    wrong: BoolArray
    units: Units
    side: _Side | None

    @classmethod
    def of(cls, rows: Predictions, quantity: str) -> _Measured:
        uncertainties = rounded_uncertainty(rows, quantity)
        ordering = ordered(uncertainties)
        scale = Scale(quantity, rows.target, rows.class_count, rows.samples, float(rows.temperature))
        ascending = uncertainties[ordering.order]
        return cls(rows, scale, ordering, ascending, ~correct(rows), units_of(rows), _Side.of(rows))

    def retained(self, count: int) -> BoolArray:
        """Return which rows are retained where this number is."""
        retained = np.zeros(len(self.rows), dtype=bool)
        retained[self.ordering.order[:count]] = True
        return retained

    def point(self, count: int) -> OperatingPoint:
        """Return the point that retains this number of rows, the end of a block."""
        retained = self.retained(count)
        threshold = float(self.ascending[count - 1]) if count else None
        referred = float(self.ascending[count]) if count < len(self.rows) else None
        own: dict[str, Any] = {}
        if self.side is not None:
            _, positive, called = self.side
            sides = ((positive, called), (~positive, called), (positive, ~called), (~positive, ~called))
            own = {
                "confusion": Confusion(*(int((truth & answer & retained).sum()) for truth, answer in sides)),
                "sensitivity": self._share(called, positive & retained),
                "specificity": self._share(~called, ~positive & retained),
            }
        probability = None if threshold is None else dividing_probability(self.scale, threshold, referred)
        errors = int((self.wrong & retained).sum())
        return OperatingPoint(threshold, probability, count, errors, self._share(self.wrong, retained), **own)

    def _share(self, flags: BoolArray, counted: BoolArray) -> Share | None:
        return share_of_units(flags, counted, self.units) if counted.any() else None

    def risks(self, chosen: BoolArray, counts: IntArray, level: float = LEVEL) -> tuple[Share | None, ...]:
        """Return the error among the chosen rows that are retained where each of these numbers is."""
        sets = (chosen & self.retained(count) for count in counts.tolist())
        return tuple(share_of_units(self.wrong, own, self.units, level) if own.any() else None for own in sets)


def _counts(ordering: Ordering, required: IntArray, most: int) -> IntArray:
    """Return the numbers of rows that the points retain: none, all, those required, and others evenly spaced."""
    rows = len(ordering.order)
    ends = np.append(0, ordering.ends)
    fixed = np.unique(np.append(required, (0, rows)))
    if len(fixed) > most:
        raise UserError(f"most must be at least {len(fixed)}, for the ends and the stops; given {most}.")
    if len(ends) <= most:
        return ends
    even = np.linspace(0, rows, most - len(fixed) + 2)[1:-1]
    above = np.searchsorted(ends, even)
    nearest = np.where(even - ends[above - 1] < ends[above] - even, ends[above - 1], ends[above])
    return np.unique(np.append(fixed, nearest))


def _subgroups(
    measured: _Measured, column: str, counts: IntArray, stops: IntArray, level: float
) -> dict[str, Subgroup]:
    """Return the retained rows and the errors among them for every value of a column, at every count and stop."""
    rows, order = measured.rows, measured.ordering.order
    check_known("column for by", [column], rows.columns)

    def up_to(flags: BoolArray) -> IntArray:
        return np.append(0, np.cumsum(flags[order]))[counts]

    return {
        value: Subgroup(int(chosen.sum()), len(np.unique(measured.units.index[chosen])), up_to(chosen),
                        up_to(chosen & measured.wrong), measured.risks(chosen, counts),
                        measured.risks(chosen, stops, level))
        for value, chosen in parts_of(rows.columns[column]).items()
    }  # fmt: skip


def _columns(shares: Iterable[Share | None]) -> dict[str, list[float | None]]:
    """Return values and bounds of shares as lists; None where there is no share."""
    numbers = [(None, None, None) if share is None else (share.value, *share.interval) for share in shares]
    values, lows, highs = zip(*numbers, strict=True) if numbers else ((), (), ())
    return {"value": list(values), "low": list(lows), "high": list(highs)}
