"""Methods over all tasks of a run: mean ranks by several metrics, and what so few test sets can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.results import Results
from dubio.reporting.wording import counted, listed, number, term
from dubio.statistics.ranks import Comparison, compare
from dubio.statistics.result_table import Result, ResultTable, exact

FEWEST = 3
"""Methods below which mean ranks are not shown."""

FEWEST_SETS = 2
"""Test sets below which mean ranks are not shown."""

Place = tuple[TaskView, str]
"""A task, and one of its test splits."""


@dataclass(frozen=True)
class Ranking:
    """Methods ranked over test sets by one metric.

    Attributes:
        slug: What its figure is called.
        title: What is ranked by.
        sets: What the test sets are, in the plural.
        comparison: The ranks and what they resolve.
        left_out: Titles of the methods that lack a value on some test set.
        sparse: Test sets that are not ranked over, since fewer than half of the methods have a value there.
    """

    slug: str
    title: str
    sets: str
    comparison: Comparison
    left_out: tuple[str, ...]
    sparse: tuple[str, ...] = ()


def rankings_of(results: Results) -> tuple[Ranking, ...]:
    """Every ranking that means something: each metric over the test sets it is meant for, where there are enough.

    A task that several networks learned counts once, under the network with the most methods.
    """
    fullest: dict[str, TaskView] = {}
    for task in results.manifest.tasks:
        known = fullest.get(task.name)
        if results.methods_of(task) and (
            known is None or len(results.methods_of(task)) > len(results.methods_of(known))
        ):
            fullest[task.name] = task
    tasks = list(fullest.values())
    home = [(task, task.of_kind("id")[0].name) for task in tasks]
    away = {
        kind: [(task, split.name) for task in tasks for split in task.farthest if split.kind == kind]
        for kind in ("ood", "shift")
    }
    auroc = detection_name("ood_auroc", "confidence")
    wanted = (
        ("ranks", term(RANKED_BY).title, "tasks", home, RANKED_BY),
        ("ranks-brier", term("brier").title, "tasks", home, "brier"),
        ("ranks-accuracy", term("accuracy").title, "tasks", home, "accuracy"),
        ("ranks-novelty", "AUROC of novel classes", "sets of novel classes", away["ood"], auroc),
        ("ranks-shift", "AUROC under shift", "shifted test sets", away["shift"], auroc),
        ("ranks-shift-accuracy", "accuracy under shift", "shifted test sets", away["shift"], "accuracy"),
    )
    found = (_ranking(results, *each) for each in wanted)
    return tuple(each for each in found if each is not None)


def comparison_of(results: Results) -> Comparison | None:
    """Friedman and Nemenyi over tasks by the ranking metric; methods that lack a finite value somewhere are left out.

    Methods go by their titles, or by their names where two share a title.
    """
    return next((each.comparison for each in rankings_of(results) if each.slug == "ranks"), None)


def _ranking(
    results: Results, slug: str, title: str, sets: str, places: Sequence[Place], metric: str
) -> Ranking | None:
    every = {f"{task.key}/{split}": results.cells_of(task, split, metric) for task, split in places}
    most = max((len(found) for found in every.values()), default=0)
    cells = {name: found for name, found in every.items() if 2 * len(found) >= most and found}
    present = [method for method in results.manifest.methods if any(method.name in found for found in cells.values())]
    whole = [
        method
        for method in present
        if all(method.name in found and isfinite(found[method.name].mean) for found in cells.values())
    ]
    if len(cells) < FEWEST_SETS or len(whole) < FEWEST:
        return None
    plain = len({method.title for method in whole}) == len(whole)
    rows = [
        Result(place, method.title if plain else method.name, metric, exact(found[method.name].mean))
        for place, found in cells.items()
        for method in whole
    ]
    compared = compare(ResultTable(tuple(rows)), {metric: results.better[metric]})
    left_out = tuple(method.title for method in present if method not in whole)
    return Ranking(slug, title, sets, compared, left_out, tuple(name for name in every if name not in cells))


def ranking_words(ranking: Ranking) -> str:
    """Who leads, over how many test sets, and what so many resolve."""
    ranks = ranking.comparison.average_ranks
    best = min(ranks, key=lambda name: ranks[name])
    without = ""
    if ranking.left_out:
        without = f" Left out, for want of a value somewhere: {listed(list(ranking.left_out))}."
    if ranking.sparse:
        without += f" Not ranked over, since too few methods have a value there: {listed(list(ranking.sparse))}."
    return (
        f"{best} has the best mean rank, {ranks[best]:.2f}, of {number(len(ranks))} methods over "
        f"{number(len(ranking.comparison.datasets))} {ranking.sets}. {caution(ranking.comparison)}{without}"
    )


def caution(comparison: Comparison) -> str:
    """What so many tasks resolve, in a sentence."""
    tasks, methods = len(comparison.datasets), len(comparison.average_ranks)
    apart = max(comparison.average_ranks.values()) - min(comparison.average_ranks.values())
    told = "some methods are" if apart >= comparison.critical_difference else "no two methods are"
    return (
        f"Over {counted(tasks, 'test set')}, mean ranks of {number(methods)} methods must differ by "
        f"{comparison.critical_difference:.2f} to be told apart, where {methods - 1} is the most they can differ by: "
        f"{told} told apart{', and so few test sets resolve little' if tasks < 5 else ''}."
    )
