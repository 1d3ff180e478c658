"""What becomes of a referral policy's promise away from home, and whether the shift test warns."""

from __future__ import annotations

from collections.abc import Iterable

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.promises import WARNED_BELOW, Observed, Promise, outcome_of
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table
from dubio.reporting.wording import counted

Fate = tuple[Promise, Observed]


def fates_of(results: Results, task: TaskView, split: str) -> dict[str, Fate]:
    """Method → its promise and what was observed on a labelled split away from home."""
    return {
        method: (promise, seen)
        for method, promise in (results.promises.get(task.key) or {}).items()
        for seen in promise.away
        if seen.split == split and (seen.error is not None or seen.retained == 0)
    }


def fate_grid(results: Results, task: TaskView) -> Table | None:
    """Error among the kept, what became of the promise and whether it was warned; None without labels elsewhere."""
    columns: list[FilledColumn] = []
    for split in task.farthest:
        found = fates_of(results, task, split.name)
        if found:
            columns += [
                FilledColumn(
                    Column("Error of the kept", f"{split.name}, 95 % interval", "↓"),
                    {method: error_cell(seen) for method, (_, seen) in found.items()},
                ),
                FilledColumn(
                    Column("Promise", split.name),
                    {method: _outcome(promise, seen) for method, (promise, seen) in found.items()},
                ),
            ]
    if not columns:
        return None
    methods = [method for method in results.methods_of(task) if method.name in (results.promises.get(task.key) or {})]
    caption = (
        f"The same policies away from home; warned: the test that uncertainties are those of the calibration set "
        f"rejects (p < {WARNED_BELOW:g})"
    )
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def error_cell(seen: Observed) -> TableCell:
    """The error among the kept with its interval."""
    if seen.error is None:
        return TableCell("nothing kept", place="unranked")
    reach = "" if seen.interval is None else f"[{seen.interval[0]:.3f}, {seen.interval[1]:.3f}]"
    return TableCell(f"{seen.error:.3f}", reach, f"{seen.error:.9g}", hint=f"{seen.retained:.0%} kept")


def _outcome(promise: Promise, seen: Observed) -> TableCell:
    told = "warned" if warned(seen) else "no warning"
    return TableCell(outcome_of(seen, promise.target), f"({told})", hint=f"p = {seen.shift:.2g}")


def warned(seen: Observed) -> bool:
    """Whether the shift test would have told the user."""
    return seen.shift < WARNED_BELOW


def fate_words(results: Results, task: TaskView) -> list[str]:
    """A sentence a split: how many promises held or broke, and how many of the broken ones were warned of."""
    said = []
    for split in task.farthest:
        found = list(fates_of(results, task, split.name).values())
        if found:
            outcomes = [outcome_of(seen, promise.target) for promise, seen in found]
            broken = [seen for (_, seen), outcome in zip(found, outcomes, strict=True) if outcome == "broken"]
            said.append(
                f"On “{split.name}”, of {counted(len(found), 'policy').replace('policys', 'policies')} "
                f"{tally(outcomes)}. The shift test warns for {sum(warned(seen) for _, seen in found)} of "
                f"{len(found)}{_of_broken(broken)}."
            )
    return said


def tally(outcomes: Iterable[str]) -> str:
    """How many promises went which way."""
    listed = list(outcomes)
    counts = {outcome: listed.count(outcome) for outcome in dict.fromkeys(listed)}
    verbs = {"held": "held", "broken": "broke", "above, undecided": "above the promise but undecided",
             "above": "above the promise", "nothing kept": "with nothing kept"}  # fmt: skip
    return ", ".join(f"{count} {verbs[outcome]}" for outcome, count in counts.items())


def _of_broken(broken: list[Observed]) -> str:
    if not broken:
        return ""
    return f", among them {sum(map(warned, broken))} of the {len(broken)} that broke"
