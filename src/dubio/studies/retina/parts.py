"""The part of the page about referral on two-sided tasks: tables, sentences and figures, split by split."""

from __future__ import annotations

from typing import Any

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.results import Results
from dubio.reporting.wording import listed
from dubio.studies.retina.found import UNDERPOWERED, Gain, Screening
from dubio.studies.retina.plates import on_split
from dubio.studies.retina.subgroups import facts_of, subgroup_grid, subgroup_words
from dubio.studies.retina.tables import gain_grid, nhs_grid, retention_grid

METRICS = ("referral_accuracy", "referral_auc")


def screening_part(results: Results, task: TaskView, drawn: dict[str, Any]) -> dict[str, Any]:
    """What the page says of referral and of subgroups; empty where there is neither.

    Args:
        results: Everything.
        task: The task.
        drawn: Slug → the figure as the page sets it.
    """
    found = results.screening.get(task.key)
    if found is None:
        return {}
    return {
        "places": [_place(results, task, found, split, drawn) for split in found.splits],
        "gains": gain_grid(results, task) if found.gains else None,
        "gain_words": gain_words(results, task),
        "subgroups": [
            {
                "table": subgroup_grid(results, task, fact, "ece"),
                "more": subgroup_grid(results, task, fact, "accuracy"),
                "title": f"Accuracy by {fact}",
                "figures": [drawn[slug] for slug in [on_split("subgroups", fact)] if slug in drawn],
            }
            for fact in facts_of(results, task)
        ],
        "subgroup_words": subgroup_words(results, task),
    }


def _place(results: Results, task: TaskView, found: Screening, split: str, drawn: dict[str, Any]) -> dict[str, Any]:
    why = found.undefined(split)
    home = split == task.of_kind("id")[0].name
    shown = METRICS[:1] if why else METRICS
    slugs = [on_split(kind, split) for kind in ("referral", "roc", "certainty")]
    figures = [drawn[slug] for slug in slugs if slug in drawn]
    return {
        "title": f"In-domain, “{split}”" if home else f"Away from home, “{split}”",
        "tables": [retention_grid(results, task, split, metric) for metric in shown],
        "nhs": nhs_grid(results, task, split),
        "undefined": f"No AUC and no ROC curve is defined on “{split}”: {why}." if why else "",
        "figures": figures,
    }


def gain_words(results: Results, task: TaskView) -> list[str]:
    """For every split, whose gain over random referral excludes 0 and whose does not."""
    found = results.screening[task.key]
    titles = {method.name: method.title for method in results.manifest.methods}
    said = []
    for split in found.splits:
        gains = {titles[method]: gain for (name, method), gain in found.gains.items() if name == split}
        said.append(f"On “{split}” {_standing(gains)}.{_power(gains, grouped=found.grouped.get(split, False))}")
    if said:
        said.append(
            "The intervals are of the mean over runs of these trained networks, for other patients or examples like "
            "these: other trainings are not in them. Each stands for itself at 95 %; of twenty methods that gain "
            "nothing, one would seem to gain or lose."
        )
    return said


def _standing(gains: dict[str, Gain]) -> str:
    above = [title for title, gain in gains.items() if gain.excludes_zero and gain.gain.low > 0]
    below = [title for title, gain in gains.items() if gain.excludes_zero and gain.gain.high < 0]
    rest = [title for title in gains if title not in (*above, *below)]
    parts = []
    if above:
        parts.append(f"the gain over random referral excludes 0 for {listed(above)}")
    if below:
        parts.append(f"over all fractions, referral by uncertainty is worse than at random for {listed(below)}")
    if rest:
        parts.append(f"it does not for {listed(rest)}" if above else f"the gain does not exclude 0 for {listed(rest)}")
    return "; ".join(parts)


def _power(gains: dict[str, Gain], *, grouped: bool) -> str:
    units = next(iter(gains.values())).units
    what = f"{units:,} {'groups (patients)' if grouped else 'examples'} are resampled"
    weak = f", fewer than {UNDERPOWERED}: underpowered" if units < UNDERPOWERED else ""
    return f" {what.capitalize()}{weak}."
