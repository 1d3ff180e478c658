"""Policies with a capacity as a table, as sentences and as JSON: what they refer at home and away from home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dubio.reporting.capacities import CAPACITY, Capacity, Referred
from dubio.reporting.fate import error_cell, tally, warned
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.promises import CONFIDENCE, WARNED_BELOW
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import number

NOTES = {
    "share": "share of examples referred, each group counting alike where there are groups; exact interval, or groups "
    "resampled",
    "outcome": "held: at most the capacity is referred; broken: the whole interval lies above the most that the policy "
    "states for itself; undecided: above the capacity, but the interval reaches below that",
    "shift": "whether the uncertainties are those of the calibration set (Kolmogorov–Smirnov)",
}


@dataclass(frozen=True)
class Place:
    """One split: its table and what it comes to."""

    table: Table
    words: str


def capacity_part(results: Results, task: TaskView) -> dict[str, Any]:
    """What is promised, and a table and a sentence a split, home first; empty without a policy."""
    found = results.capacities.get(task.key) or {}
    if not found:
        return {}
    upper = max(made.upper for made in found.values())
    kept_aside = task.of_kind("cal")[0]
    words = (
        f"Of the same runs, fitted on the {kept_aside.examples:,} examples of “{kept_aside.name}”: the most uncertain "
        f"are referred, on average over calibration sets at most {CAPACITY:.0%}. This one set may be unlucky; with "
        f"{CONFIDENCE:.0%} confidence its policies refer at most {upper:.0%} of data like it, and a split breaks the "
        "promise only where the whole interval of its share lies above that. Nothing is promised of the error."
    )
    places = [Place(capacity_grid(results, task, split), capacity_words(results, task, split))
              for split in _splits(found)]  # fmt: skip
    return {"words": words, "places": places}


def capacity_grid(results: Results, task: TaskView, split: str) -> Table:
    """Share referred, what became of the capacity, whether the shift test warns, and the error of the kept."""
    here = _at(results, task, split)
    columns = [
        FilledColumn(Column("Referred", "95 % interval", "", NOTES["share"]),
               {name: _share(seen) for name, (_, seen) in here.items()}),
        FilledColumn(Column("Capacity", f"at most {CAPACITY:.0%}", "", NOTES["outcome"]),
               {name: TableCell(made.outcome(seen)) for name, (made, seen) in here.items()}),
        FilledColumn(Column("Shift test", f"warns if p < {WARNED_BELOW:g}", "", NOTES["shift"]),
               {name: _warning(seen) for name, (_, seen) in here.items()}),
        FilledColumn(Column("Error of the kept", "95 % interval", "↓"),
               {name: error_cell(seen.seen) for name, (_, seen) in here.items()}),
    ]  # fmt: skip
    home = split == task.of_kind("id")[0].name
    caption = f"{'In-domain' if home else 'Away from home'}, “{split}”"
    methods = [method for method in results.methods_of(task) if method.name in here]
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def capacity_words(results: Results, task: TaskView, split: str) -> str:
    """How much is referred on a split, how many policies kept their capacity, and how many were warned."""
    here = list(_at(results, task, split).values())
    shares = [seen.share for _, seen in here]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    reach = f"{low} are referred" if low == high else f"between {low} and {high} are referred, depending on the method"
    outcomes = tally(made.outcome(seen) for made, seen in here)
    warnings = sum(warned(seen.seen) for _, seen in here)
    return (
        f"On “{split}” {reach}; of {number(len(here))} {'policy' if len(here) == 1 else 'policies'} {outcomes}. The "
        f"shift test warns for {warnings} of {len(here)}."
    )


def _at(results: Results, task: TaskView, split: str) -> dict[str, tuple[Capacity, Referred]]:
    """Method → its policy and what it does on a split."""
    found = results.capacities[task.key]
    return {name: (made, seen) for name, made in found.items() for seen in made.places if seen.seen.split == split}


def _splits(found: Mapping[str, Capacity]) -> list[str]:
    return list(dict.fromkeys(seen.seen.split for made in found.values() for seen in made.places))


def _share(referred: Referred) -> TableCell:
    reach = "" if referred.interval is None else f"[{referred.interval[0]:.0%}, {referred.interval[1]:.0%}]"
    hint = f"of all examples {1.0 - referred.seen.retained:.1%}"
    return TableCell(f"{referred.share:.1%}", reach, f"{referred.share:.9g}", hint=hint)


def _warning(referred: Referred) -> TableCell:
    p = referred.seen.shift
    shown = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
    return TableCell("warns" if warned(referred.seen) else "quiet", shown, f"{p:.9g}")


def capacities_document(results: Results) -> list[dict[str, Any]]:
    """Every policy with a capacity and what became of it, as plain values."""
    return [
        {
            "task": task,
            "method": method,
            "capacity": CAPACITY,
            "threshold": made.policy.threshold,
            "expected": made.policy.evidence["expected_referral"],
            "upper": made.upper,
            "confidence": CONFIDENCE,
            "places": [
                {**asdict(seen.seen), "referred": seen.share, "referred_interval": seen.interval,
                 "outcome": made.outcome(seen), "warned": warned(seen.seen)}
                for seen in made.places
            ],
        }
        for task, found in results.capacities.items()
        for method, made in found.items()
    ]  # fmt: skip
