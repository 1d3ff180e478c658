"""Methods over all tasks of a run: mean ranks, and what so few tasks can tell apart."""

from __future__ import annotations

from math import isfinite

from dubio.report.measures import RANKED_BY
from dubio.report.results import Results
from dubio.report.words import counted, number
from dubio.statistics.comparison import Comparison, compare
from dubio.statistics.results import Result, ResultTable, exact

FEWEST = 3
"""Tasks, and methods, below which mean ranks are not shown."""


def comparison_of(results: Results) -> Comparison | None:
    """Friedman and Nemenyi over tasks by the ranking metric; methods that lack a finite value somewhere are left out.

    Methods go by their titles, or by their names where two share a title.
    """
    tasks = [task for task in results.manifest.tasks if results.methods_of(task)]
    values = {task.key: results.cells_of(task, task.of_kind("id")[0].name, RANKED_BY) for task in tasks}
    whole = [
        method
        for method in results.manifest.methods
        if all(method.name in cells and isfinite(cells[method.name].mean) for cells in values.values())
    ]
    if len(tasks) < FEWEST or len(whole) < FEWEST:
        return None
    plain = len({method.title for method in whole}) == len(whole)
    rows = [
        Result(task, method.title if plain else method.name, RANKED_BY, exact(cells[method.name].mean))
        for task, cells in values.items()
        for method in whole
    ]
    return compare(ResultTable(tuple(rows)), {RANKED_BY: "lower"})


def caution(comparison: Comparison) -> str:
    """What so many tasks resolve, in a sentence."""
    tasks, methods = len(comparison.datasets), len(comparison.average_ranks)
    apart = max(comparison.average_ranks.values()) - min(comparison.average_ranks.values())
    told = "some methods are" if apart >= comparison.critical_difference else "no two methods are"
    return (
        f"Over {counted(tasks, 'task')}, mean ranks of {number(methods)} methods must differ by "
        f"{comparison.critical_difference:.2f} to be told apart, where {methods - 1} is the most they can differ by: "
        f"{told} told apart{', and so few tasks resolve little' if tasks < 5 else ''}."
    )
