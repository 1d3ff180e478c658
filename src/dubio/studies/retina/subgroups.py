"""Calibration of parts of the test sets: by hospital, by quality, whatever is known of the examples."""

from __future__ import annotations

from typing import Literal

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.results import Results
from dubio.reporting.tables import Column, Row, Table, TableCell
from dubio.statistics.bootstrap import Interval
from dubio.studies.retina.found import UNDERPOWERED, Subgroup

Part = tuple[str, str]
"""(split, value) of a fact."""


def facts_of(results: Results, task: TaskView) -> tuple[str, ...]:
    """The facts by which there are subgroups, in the task's order."""
    found = results.screening.get(task.key)
    return () if found is None else tuple(dict.fromkeys(fact for _, fact, _, _ in found.subgroups))


def parts_of_fact(results: Results, task: TaskView, fact: str) -> dict[Part, dict[str, Subgroup]]:
    """(split, value) → method → its calibration there."""
    parts: dict[Part, dict[str, Subgroup]] = {}
    for (split, name, value, method), found in results.screening[task.key].subgroups.items():
        if name == fact:
            parts.setdefault((split, value), {})[method] = found
    return parts


def part_title(part: Part, found: Subgroup) -> str:
    """What a row is called; a small part says so."""
    split, value = part
    return f"{value}, in “{split}”" + (" (underpowered)" if found.underpowered else "")


def subgroup_grid(results: Results, task: TaskView, fact: str, measure: Literal["ece", "accuracy"]) -> Table:
    """Subgroups down, methods across."""
    methods = results.methods_of(task)
    arrow = "↓" if measure == "ece" else "↑"
    what = "Expected calibration error" if measure == "ece" else "Accuracy"
    columns = [Column("Examples"), Column("Groups", "resampled"), *(Column(m.title, "95 % interval", arrow, what)
               for m in methods)]  # fmt: skip
    rows = []
    for part, found in parts_of_fact(results, task, fact).items():
        first = next(iter(found.values()))
        counts = [TableCell(f"{count:,}", sort=str(count)) for count in (first.examples, first.units)]
        cells = [_cell(getattr(found[m.name], measure), found[m.name]) if m.name in found else TableCell("–")
                 for m in methods]  # fmt: skip
        rows.append(Row(part_title(part, first), (*counts, *cells), control=first.underpowered))
    caption = f"{what} by {fact}, mean over runs"
    return Table(tuple(columns), tuple(rows), caption, first=fact.capitalize())


def _cell(interval: Interval, part: Subgroup) -> TableCell:
    """A value with its interval; of a small part greyed, with the reason."""
    known = interval.low == interval.low
    reach = f"[{interval.low:.3f}, {interval.high:.3f}]" if known else "(no interval)"
    hint = f"{part.units} groups, fewer than {UNDERPOWERED}: underpowered" if part.underpowered else ""
    place = "unranked" if part.underpowered else ""
    return TableCell(f"{interval.value:.3f}", reach, f"{interval.value:.9g}", place, hint)


def subgroup_words(results: Results, task: TaskView) -> str:
    """How the subgroups are to be read, and which of them are too small."""
    weak = [
        f"{value} in “{split}” ({next(iter(found.values())).units})"
        for fact in facts_of(results, task)
        for (split, value), found in parts_of_fact(results, task, fact).items()
        if next(iter(found.values())).underpowered
    ]
    small = f" Underpowered, with fewer than {UNDERPOWERED} groups: {'; '.join(weak)}." if weak else ""
    return (
        "Intervals resample the groups within each part (patients, where they are known) and are of the mean over "
        "runs. Calibration error is pushed up where examples are few: compare parts of like size, or their excess of "
        f"confidence, which is not.{small}"
    )
