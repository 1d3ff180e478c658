"""What stands in the way of a promise: too few calibration examples and how many would do, or none at all."""

from __future__ import annotations

from dubio.referral.sample_size import SampleSize, fewest_units
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.promises import CONFIDENCE, Promise
from dubio.reporting.results import Results
from dubio.reporting.wording import listed


def unpromised_words(results: Results, task: TaskView) -> str:
    """Why nothing is promised, or nothing of the error; empty where something is asked of every method."""
    promises, capacities = results.promises.get(task.key), results.capacities.get(task.key)
    if promises:
        return ""
    if not task.of_kind("cal"):
        return (
            "No examples were kept aside: this task has no calibration split, so that no policy can be fitted and "
            "nothing promised, neither of the error among the kept nor of how many are referred."
        )
    if capacities:
        return (
            "No error is promised: the reference method makes none on the test set that could be halved, or the "
            "examples kept aside have no labels."
        )
    return "No policy can be fitted on the examples kept aside: they are too few, or not there for any run."


def needed_words(results: Results, task: TaskView) -> str:
    """Who cannot make the promise, and about how many calibration examples would do; empty where all can."""
    promises = results.promises.get(task.key) or {}
    refused = {name: promise for name, promise in promises.items() if promise.policy is None}
    if not refused:
        return ""
    titles = {method.name: method.title for method in results.manifest.methods}
    some = next(iter(refused.values()))
    who = "No method" if len(refused) == len(promises) else f"Not every method ({len(refused)} of {len(promises)} not)"
    aside = f"the {some.rows:,} examples of “{task.of_kind('cal')[0].name}”"
    parts = [f"{who} can make this promise on {aside}{_of_groups(some)}: it needs more calibration data."]
    found = {titles[name]: promise.needed for name, promise in refused.items() if promise.needed is not None}
    if found:
        parts.append(_enough(found, some))
    hopeless = [titles[name] for name, promise in refused.items() if promise.needed is None]
    if hopeless:
        parts.append(
            f"More of it alone would not do for {listed(hopeless)}: on the test set the kept err too often however "
            "many are referred."
        )
    fewest = fewest_units(some.target, CONFIDENCE, single=some.rows == some.units)
    if fewest is not None and fewest > some.units:
        parts.append(f"Even a method that keeps everything and never errs would need {_amount(fewest, some)}.")
    return " ".join(parts)


def _enough(found: dict[str, SampleSize], some: Promise) -> str:
    """The fewest and the most that would do, by method."""
    order = sorted(found, key=lambda title: found[title].units)
    least, most = found[order[0]].units, found[order[-1]].units
    first = [title for title in order if found[title].units == least]
    fewest = f"at least about {_amount(least, some)} for {listed(first)}"
    further = f", and about {_amount(most, some)} for {order[-1]}" if most > least else ""
    return (
        f"If more of it behaves like the test set, it takes {fewest}{further}; now there are "
        f"{_amount(some.units, some)}. Twice what it takes is on the safer side."
    )


def _amount(units: int, some: Promise) -> str:
    """Units as examples: with groups, as many in two digits as the calibration set has in so many groups."""
    if some.rows == some.units:
        return f"{units:,} examples"
    examples = some.rows if units == some.units else float(f"{units * some.rows / some.units:.2g}")
    return f"{examples:,.0f} examples ({units:,} groups)"


def _of_groups(some: Promise) -> str:
    return "" if some.rows == some.units else f" ({some.units:,} groups, such as patients)"
