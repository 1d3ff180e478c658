"""Methods over several data sets: values side by side, mean ranks, wins and losses, and what so few sets tell apart.

A setting says what is compared: the in-domain test sets, novel classes, or the pairs of a source and a target domain
(T §III-E). Within a setting every test set is a block of Friedman's test. A corpus that comes twice, whole and with
classes held out, counts once in-domain; several tasks of one corpus (the four sources of the Amazon reviews) are
compared among themselves, since together they would outweigh every other corpus; and where tasks meet several networks,
each network has its own comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np

from dubio.reporting.aggregate import Cell
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import GAP, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, TableCell, method_table, score_column
from dubio.reporting.wording import counted, listed, term
from dubio.statistics.ranks import Comparison, compare
from dubio.statistics.result_table import Result, ResultTable, exact

Setting = Literal["in-domain", "novelty", "cross-domain"]

DIGITS = 3
"""Decimals that values are rounded to before they are ranked, half to even: what is equal then is a draw."""

SCORING_RULES = (RANKED_BY, "brier")
"""Proper scoring rules that may rank."""

FEWEST = 2
"""Test sets, and methods, below which there is nothing to compare."""

TITLES: dict[Setting, str] = {
    "in-domain": "In-domain",
    "novelty": "Novelty detection",
    "cross-domain": "Cross-domain",
}


@dataclass(frozen=True)
class Block:
    """One test set of a comparison."""

    title: str
    task: TaskView
    split: str


@dataclass(frozen=True)
class Field:
    """What is compared together: a setting, and the test sets of one sort."""

    setting: Setting
    title: str
    blocks: tuple[Block, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What it is compared by, the headline first."""
        if self.setting == "in-domain":
            return (RANKED_BY, "brier", "accuracy")
        found = [detection_name(metric, HEADLINE) for metric in ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95")]
        return (found[0], "accuracy", GAP) if self.setting == "cross-domain" else tuple(found)


@dataclass(frozen=True)
class AcrossTable:
    """A table over test sets with what is to be said about it."""

    title: str
    table: Table
    words: str


def fields(results: Results) -> tuple[Field, ...]:
    """Everything that can be compared over at least two test sets."""
    scored = [task for task in results.manifest.tasks if results.methods_of(task)]
    names = [task.name for task in scored]
    several = any(names.count(name) > 1 for name in names)
    networks = list(dict.fromkeys(task.network for task in scored)) if several else [None]
    found = []
    for network in networks:
        tasks = [task for task in scored if network in (None, task.network)]
        suffix = f" · {network}" if network else ""
        found += [Field("in-domain", f"{title}{suffix}", _homes(some)) for title, some in _in_domain(tasks)]
        found.append(Field("novelty", f"{TITLES['novelty']}{suffix}", _away(tasks, "ood")))
        found.append(Field("cross-domain", f"{TITLES['cross-domain']}{suffix}", _away(tasks, "shift")))
    return tuple(each for each in found if len(each.blocks) >= FEWEST)


def _in_domain(tasks: Sequence[TaskView]) -> list[tuple[str, list[TaskView]]]:
    """Tasks by what is compared together, without those whose corpus is also there whole."""
    whole = {(task.corpus, task.network) for task in tasks if not task.of_kind("ood")}
    once = [task for task in tasks if not task.of_kind("ood") or (task.corpus, task.network) not in whole]
    corpora = [task.corpus for task in once]
    single = [task for task in once if corpora.count(task.corpus) == 1]
    shared = [name for name in dict.fromkeys(corpora) if corpora.count(name) > 1]
    title = TITLES["in-domain"]
    return [(title, single), *((f"{title}, {name}", [t for t in once if t.corpus == name]) for name in shared)]


def _homes(tasks: Sequence[TaskView]) -> tuple[Block, ...]:
    return tuple(Block(task.key, task, task.of_kind("id")[0].name) for task in tasks)


def _away(tasks: Sequence[TaskView], kind: Literal["ood", "shift"]) -> tuple[Block, ...]:
    """Splits of a kind away from home; the severities of a corruption are no domains."""
    found = []
    for task in tasks:
        graded = {split for splits in task.severities.values() for split in splits}
        splits = [split for split in task.of_kind(kind) if split not in graded]
        for split in splits:
            alone = kind == "ood" and len(splits) == 1
            found.append(Block(task.key if alone else f"{task.key} → {split.name}", task, split.name))
    return tuple(found)


def cells_over(results: Results, field: Field, metric: str, method: str) -> list[Cell | None]:
    """A method's cell on every test set, None where it has no finite value."""
    found = [results.cells.get((block.task.key, block.split, method, metric)) for block in field.blocks]
    return [cell if cell is not None and cell.n and isfinite(cell.mean) else None for cell in found]


def methods_over(results: Results, field: Field, metric: str) -> tuple[MethodView, ...]:
    """The methods that have a value on at least one test set."""
    methods = results.manifest.methods
    return tuple(m for m in methods if any(cells_over(results, field, metric, m.name)))


def comparison_over(results: Results, field: Field, metrics: Sequence[str]) -> Comparison | None:
    """Ranks, Friedman, Nemenyi and records of the methods with a value everywhere; None where there are too few."""
    whole = [
        method.name
        for method in results.manifest.methods
        if all(all(cells_over(results, field, metric, method.name)) for metric in metrics)
    ]
    if len(whole) < FEWEST:
        return None
    rows = [
        Result(block.title, name, metric, exact(results.cells[block.task.key, block.split, name, metric].mean))
        for block in field.blocks
        for name in whole
        for metric in metrics
    ]
    return compare(ResultTable(tuple(rows)), {metric: results.better[metric] for metric in metrics}, digits=DIGITS)


def across_tables(results: Results) -> tuple[AcrossTable, ...]:
    """A table a setting and metric, those of a setting together."""
    found = []
    for field in fields(results):
        for metric in field.metrics:
            if methods_over(results, field, metric):
                found.append(across_table(results, field, metric))
    return tuple(found)


def across_table(results: Results, field: Field, metric: str) -> AcrossTable:
    """Mean rank, record and mean of every method, then its value on every test set."""
    methods = methods_over(results, field, metric)
    ranked = metric not in results.not_ranked
    comparison = comparison_over(results, field, [metric]) if ranked else None
    values = {method.name: cells_over(results, field, metric, method.name) for method in methods}
    columns = [] if comparison is None else _standing(comparison)
    together = comparison_over(results, field, SCORING_RULES) if metric == RANKED_BY else None
    if together is not None:
        note = "under both scoring rules, calibrated NLL and Brier, against every other method (as T Table 3)"
        columns.append(_record(Column("Won/drawn/lost", "with Brier too", "↑", note), together))
    columns.append(_mean(results, metric, values))
    for place, block in enumerate(field.blocks):
        head = Column(block.title, "", ARROWS[results.better[metric]], unranked=not ranked)
        cells = {name: cell for name, found in values.items() if (cell := found[place]) is not None}
        verdicts = results.verdicts(block.task, block.split, metric)
        columns.append(score_column(head, cells, verdicts or None, places=DIGITS))
    base = metric.partition("(")[0]
    caption = f"{term(base).title}: {term(base).note}"
    title = f"{field.title}: {term(base).title}"
    return AcrossTable(title, method_table(methods, columns, styles_of(results.manifest.methods), caption=caption),
                       _words(results, field, metric, comparison))  # fmt: skip


def _standing(comparison: Comparison) -> list[FilledColumn]:
    ranks = comparison.average_ranks
    best = min(ranks.values())
    near = best + comparison.critical_difference
    apart = max(ranks.values()) > near
    made = {
        name: TableCell(f"{value:.2f}", sort=f"{value:.6g}", place=_place(value, best, near, apart=apart))
        for name, value in ranks.items()
    }
    note = "one is best; shaded: not told from the best by Nemenyi's critical difference"
    return [
        FilledColumn(Column("Mean rank", "", "↓", note), made),
        _record(Column("Won/drawn/lost", f"{DIGITS} decimals", "↑", "against every other method"), comparison),
    ]


def _record(head: Column, comparison: Comparison) -> FilledColumn:
    records = comparison.win_draw_loss.items()
    return FilledColumn(
        head, {name: TableCell("/".join(map(str, each)), sort=str(each.wins)) for name, each in records}
    )


def _place(value: float, best: float, near: float, *, apart: bool) -> str:
    if value == best:
        return "best" if apart else "leading"
    return "tied" if apart and value < near else ""


def _mean(results: Results, metric: str, values: dict[str, list[Cell | None]]) -> FilledColumn:
    """The mean over test sets with its standard deviation over them, of methods that have a value on all."""
    head = Column("Mean", "± over test sets", ARROWS[results.better[metric]], unranked=True)
    shown = {}
    for name, cells in values.items():
        means = [cell.mean for cell in cells if cell is not None]
        if len(means) == len(cells):
            mean, spread = float(np.mean(means)), float(np.std(means, ddof=1))
            shown[name] = TableCell(f"{mean:.{DIGITS}f}", f"± {spread:.{DIGITS}f}", f"{mean:.9g}", "unranked")
    return FilledColumn(head, shown)


def _words(results: Results, field: Field, metric: str, comparison: Comparison | None) -> str:
    """What the ranks tell, in a sentence or two."""
    if metric in results.not_ranked:
        return "Not ranked: a method that is bad everywhere loses nothing; read it beside accuracy."
    if comparison is None:
        return "Fewer than two methods have a value on every test set: nothing is ranked."
    titles = {method.name: method.title for method in results.manifest.methods}
    ranks, gap = comparison.average_ranks, comparison.critical_difference
    best = next(iter(ranks))
    behind = [titles[name] for name, value in ranks.items() if value - ranks[best] >= gap]
    told = (
        f"{titles[best]} ranks best and is told from {listed(behind)}" if behind else "no method is told from the best"
    )
    sets = counted(len(field.blocks), "test set")
    left_out = [m.title for m in methods_over(results, field, metric) if m.name not in ranks]
    missing = f" Not ranked, because a value is missing somewhere: {listed(left_out)}." if left_out else ""
    return (
        f"Over {sets}: Friedman χ² = {comparison.friedman.chi2:.2f} (p = {comparison.friedman.p:.2g}), critical "
        f"difference of mean ranks {gap:.2f}: {told}.{missing}"
    )
