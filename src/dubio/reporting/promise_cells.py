"""A promise as cells of a table: what was found on the calibration set, what held on the test set, what shift does."""

from __future__ import annotations

from math import inf

from dubio.reporting.promises import Observed, Promise
from dubio.reporting.tables import Column, TableCell

PROMISE_NOTES = {
    "away": "error among the kept and share kept away from home, where nothing is promised; p of the test that "
    "uncertainties are those of the calibration set (Kolmogorov–Smirnov): small, and the policy warns",
    "needed": "rough: as many as show the bound if they are kept, and err, as the in-domain test set does; "
    "groups are patients, for instance",
    "outcome": "held: the error on the test set is below what was promised; undecided: it is not, but its "
    "interval reaches below; broken: the whole interval is above",
}

PROMISE_COLUMNS: dict[str, Column] = {
    ".threshold": Column("Threshold", "predictive entropy", "", "kept if at most as uncertain"),
    ".calibration": Column("Kept", "of calibration", "↑", "share of the calibration set that the policy keeps"),
    ".kept": Column("Kept", "of the test set", "↑", "share of the in-domain test set that the policy keeps"),
    ".error": Column("Error of the kept", "test set, 95 % interval", "↓", "exact, or groups resampled"),
    ".outcome": Column("Promise", "on the test set", "", PROMISE_NOTES["outcome"]),
    ".needed": Column("Would take", "at least, for calibration", "↓", PROMISE_NOTES["needed"]),
}
"""Cell key → head of its column; splits away from home are keyed by their names."""


def promise_cells(promise: Promise) -> dict[str, TableCell]:
    """The cells of one method by key of their column; a method without a policy says what could be guaranteed."""
    if promise.policy is None or promise.home is None:
        none = TableCell("none", place="unranked")
        return {".threshold": none, ".outcome": _offer(promise), ".needed": _needed(promise)}
    policy, home = promise.policy, promise.home
    limit = "keeps all" if policy.threshold == inf else f"{policy.threshold:.3g}"
    coverage = policy.evidence["coverage"]
    return {
        ".threshold": TableCell(limit, sort=f"{policy.threshold:.9g}"),
        ".calibration": TableCell(f"{coverage:.1%}", sort=f"{coverage:.9g}"),
        ".kept": TableCell(f"{home.retained:.1%}", sort=f"{home.retained:.9g}"),
        ".error": _error(home),
        ".outcome": TableCell(promise.outcome or ""),
        **{seen.split: _away(seen) for seen in promise.away},
    }


def _offer(promise: Promise) -> TableCell:
    upper, coverage = promise.best or (1.0, 0.0)
    if upper >= 1.0:
        return TableCell("none can be made", place="unranked")
    spread = f"best: below {upper:.2g}, {coverage:.0%} kept"
    return TableCell("none;", spread, place="unranked", hint="what the calibration set could guarantee instead")


def _needed(promise: Promise) -> TableCell:
    needed = promise.needed
    if needed is None:
        return TableCell(
            "more alone would not do", place="unranked", hint="the kept err too often whatever is referred"
        )
    hint = f"with {needed.retained:.0%} of them kept, {needed.error:.2g} of those wrong"
    what = "examples" if promise.rows == promise.units else "groups"
    return TableCell(f"{needed.units:,}", what, str(needed.units), hint=hint)


def _error(seen: Observed) -> TableCell:
    if seen.error is None:
        return TableCell("–", place="unranked")
    reach = "" if seen.interval is None else f"[{seen.interval[0]:.3f}, {seen.interval[1]:.3f}]"
    return TableCell(f"{seen.error:.3f}", reach, f"{seen.error:.9g}")


def _away(seen: Observed) -> TableCell:
    """Error, share kept and shift; without labels there is no error."""
    shift = "p < 0.001" if seen.shift < 0.001 else f"p = {seen.shift:.2g}"
    if seen.error is None:
        return TableCell(f"{seen.retained:.0%},", shift, f"{seen.retained:.9g}")
    return TableCell(f"{seen.error:.3f}", f"{seen.retained:.0%}, {shift}", f"{seen.error:.9g}")
