"""All tasks: values side by side, mean ranks, wins and losses, and which differences the test sets resolve.

A comparison is in-domain, on novel classes, or across domains. Within one, every test set is a block of Friedman's
test. A corpus that occurs both complete and with classes held out counts once in-domain; several tasks of one corpus
are compared among themselves, since together they would outweigh every other corpus; and where one task is learned by
several networks, each network has its own comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Literal

import numpy as np

from dubio.reporting.cd_diagram import draw_cd_diagram
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import GAP, HEADLINE, RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Headline, Section, Text, section
from dubio.reporting.tables import (
    ARROWS,
    Column,
    FilledColumn,
    Table,
    TableCell,
    folded,
    method_table,
    score_column,
    value_cell,
)
from dubio.reporting.wording import listed, number, term
from dubio.statistics.ranks import Comparison, compare
from dubio.statistics.result_table import Result, ResultTable, exact

Setting = Literal["in-domain", "novelty", "cross-domain"]

DIGITS = 3
"""Decimals that values are rounded to before they are ranked, half to even: equal values are a draw."""

SCORING_RULES = (RANKED_BY, "brier")
"""Proper scoring rules that may rank."""

MIN_TRAINING_SETS = 2
"""Training sets below which nothing is compared: all test sets of one would repeat the chance of its trainings."""

MIN_METHODS = 2
MIN_DIAGRAM_METHODS = 3
"""Methods below which a critical-difference diagram is not drawn."""

TITLES: dict[Setting, str] = {"in-domain": "In-domain", "novelty": "Novelty detection", "cross-domain": "Cross-domain"}

CAPTION = (
    "Mean ranks among all methods, the best at the left; bars join methods that are not significantly different "
    "(Nemenyi, 5 %)."
)


@section("across", order=80)
class AcrossTasks(Section):
    """Comparisons over test sets of all tasks."""

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield a table per comparison and metric, the first of each comparison shown, and the diagrams."""
        if task is not None:
            return
        for group in groups(run):
            metrics = [metric for metric in group.metrics if methods_over(run, group, metric)]
            for metric in metrics:
                title, table = f"{group.title}: {term(metric).title}", across_table(run, group, metric)
                if metric == metrics[0]:
                    yield Headline(title)
                yield table if metric == metrics[0] else folded(table, title)
                yield Text(ranks_sentence(run, group, metric), "small")
        for ranking in rankings(run):
            comparison = ranking.comparison
            ranks, difference = comparison.average_ranks, comparison.critical_difference
            chart, title = partial(draw_cd_diagram, ranks, difference, comparison.cliques), ranking.title
            yield Figure(ranking.name, f"Mean ranks by {title}", CAPTION, chart, reading=ranking_sentence(ranking))


@dataclass(frozen=True)
class TestBlock:
    """One test set of a comparison."""

    __test__ = False  # not a test class of pytest

    title: str
    task: TaskView
    split: str


@dataclass(frozen=True)
class Group:
    """Test sets that are compared together."""

    setting: Setting
    title: str
    blocks: tuple[TestBlock, ...]

    @property
    def training_sets(self) -> dict[str, str]:
        """Test set → what the methods were trained on; test sets that share it are no independent measurements."""
        return {block.title: block.task.training_data for block in self.blocks}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the comparison, the headline first."""
        if self.setting == "in-domain":
            return (*SCORING_RULES, "accuracy")
        names = tuple(detection_name(metric, HEADLINE) for metric in ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95"))
        return (names[0], "accuracy", GAP) if self.setting == "cross-domain" else names


def groups(run: RunView) -> tuple[Group, ...]:
    """Return every comparison over test sets of at least two training sets."""
    scored = [task for task in run.tasks if run.methods_of(task)]
    names = [task.name for task in scored]
    several = any(names.count(name) > 1 for name in names)
    comparisons = []
    for network in dict.fromkeys(task.network for task in scored) if several else [None]:
        tasks = [task for task in scored if network in (None, task.network)]
        suffix = f" · {network}" if network else ""
        comparisons += [Group("in-domain", f"{title}{suffix}", _in_domain(same)) for title, same in _by_corpus(tasks)]
        comparisons.append(Group("novelty", f"{TITLES['novelty']}{suffix}", _shifted(tasks, "ood")))
        comparisons.append(Group("cross-domain", f"{TITLES['cross-domain']}{suffix}", _shifted(tasks, "shift")))
    return tuple(group for group in comparisons if len(set(group.training_sets.values())) >= MIN_TRAINING_SETS)


def _by_corpus(tasks: Sequence[TaskView]) -> list[tuple[str, list[TaskView]]]:
    """Return titles and tasks that are compared together, without those whose corpus also occurs complete."""
    complete = {(task.corpus, task.network) for task in tasks if not task.of_kind("ood")}
    once = [task for task in tasks if not task.of_kind("ood") or (task.corpus, task.network) not in complete]
    corpora = [task.corpus for task in once]
    single = [task for task in once if corpora.count(task.corpus) == 1]
    shared = [name for name in dict.fromkeys(corpora) if corpora.count(name) > 1]
    title = TITLES["in-domain"]
    return [(title, single), *((f"{title}, {name}", [t for t in once if t.corpus == name]) for name in shared)]


def _in_domain(tasks: Sequence[TaskView]) -> tuple[TestBlock, ...]:
    return tuple(TestBlock(task.key, task, task.in_domain.name) for task in tasks)


def _shifted(tasks: Sequence[TaskView], kind: Literal["ood", "shift"]) -> tuple[TestBlock, ...]:
    """Return the splits of a kind; the severities of a corruption are not domains."""
    blocks = []
    for task in tasks:
        names = [shifted.title for shifted in task.test_sets if shifted.kind == kind and len(shifted.splits) == 1]
        alone = kind == "ood" and len(names) == 1
        blocks += [TestBlock(task.key if alone else f"{task.key} → {name}", task, name) for name in names]
    return tuple(blocks)


def cells_over(run: RunView, group: Group, metric: str, method: str) -> list[Cell | None]:
    """Return a method's cell on every test set, None where it has no finite value."""
    cells = [run.scores.cell(block.task, block.split, method, metric) for block in group.blocks]
    return [cell if cell is not None and cell.n and isfinite(cell.mean) else None for cell in cells]


def ranked_cells(run: RunView, task: TaskView, split: str, metric: str) -> dict[str, Cell]:
    """Return method → its cell on a test set, of the methods that are ranked there and have a finite value."""
    row = run.scores.ranked_row(task, split, metric)
    return {name: cell for name, cell in row.items() if cell.n and isfinite(cell.mean)}


def methods_over(run: RunView, group: Group, metric: str) -> tuple[MethodView, ...]:
    """Return the methods that have a value on at least one test set."""
    return tuple(m for m in run.methods if any(cells_over(run, group, metric, m.name)))


def comparison_over(run: RunView, group: Group, metrics: Sequence[str]) -> Comparison | None:
    """Compare the methods that are ranked on every test set that can rank; None where there are too few of either."""
    blocks = [block for block in group.blocks if all(run.scores.ranks(metric, block.task) for metric in metrics)]
    cells = {(block.title, m): ranked_cells(run, block.task, block.split, m) for block in blocks for m in metrics}
    names = [m.name for m in run.methods if all(m.name in row for row in cells.values())]
    if len(names) < MIN_METHODS or len({block.task.training_data for block in blocks}) < MIN_TRAINING_SETS:
        return None
    rows = [
        Result(title, name, metric, exact(row[name].mean)) for (title, metric), row in cells.items() for name in names
    ]
    better = {metric: run.scores.better[metric] for metric in metrics}
    return compare(ResultTable(tuple(rows)), better, digits=DIGITS, blocks=group.training_sets)


def across_table(run: RunView, group: Group, metric: str) -> Table:
    """Return mean rank, record and mean of every method, then its value on every test set."""
    methods, ranked = methods_over(run, group, metric), metric not in run.scores.not_ranked
    values = {method.name: cells_over(run, group, metric, method.name) for method in methods}
    arrow, columns = ARROWS[run.scores.better[metric]], []
    if ranked and (comparison := comparison_over(run, group, [metric])) is not None:
        columns.append(_ranks(metric, comparison))
        columns.append(_record(f"{DIGITS} decimals", "against every other method", comparison, metric))
    if metric == RANKED_BY and (both := comparison_over(run, group, SCORING_RULES)) is not None:
        note = "under both scoring rules, calibrated NLL and Brier, against every other method"
        columns.append(_record("with Brier too", note, both))
    columns.append(
        FilledColumn(Column("Mean", "± over test sets", arrow, unranked=True, metric=metric), _means(values))
    )
    for index, block in enumerate(group.blocks):
        cells = {name: cell for name, row in values.items() if (cell := row[index]) is not None}
        verdicts = run.scores.verdicts(block.task, block.split, metric) or None
        head = Column(block.title, "", arrow, unranked=not ranked, metric=metric)
        columns.append(score_column(head, cells, verdicts, DIGITS))
    caption = f"{term(metric).title}: {term(metric).note}"
    return method_table(methods, columns, run.styles, caption=caption)


def _ranks(metric: str, comparison: Comparison) -> FilledColumn:
    """Return mean ranks; shaded are those not significantly different from the best, where some are."""
    ranks = comparison.average_ranks
    best = next(iter(ranks))
    decided = any(comparison.differ(best, name) for name in ranks)

    def place(name: str) -> str:
        if ranks[name] == ranks[best]:
            return "best" if decided else "leading"
        return "tied" if decided and not comparison.differ(best, name) else ""

    cells = {name: TableCell(f"{rank:.2f}", sort_key=f"{rank:.6g}", place=place(name)) for name, rank in ranks.items()}
    note = "1 is best; shaded: not significantly different from the best (Nemenyi)"
    return FilledColumn(Column("Mean rank", "", "↓", note, metric=metric), cells)


def _record(sub: str, note: str, comparison: Comparison, metric: str = "") -> FilledColumn:
    records = comparison.win_draw_loss.items()
    cells = {name: TableCell("/".join(map(str, record)), sort_key=str(record.wins)) for name, record in records}
    return FilledColumn(Column("Won/drawn/lost", sub, "↑", note, metric=metric), cells)


def _means(values: Mapping[str, Sequence[Cell | None]]) -> dict[str, TableCell]:
    """Return mean and standard deviation over test sets, of methods with a value on all."""
    means = {name: [cell.mean for cell in cells if cell is not None] for name, cells in values.items()}
    return {
        name: value_cell(float(np.mean(row)), f".{DIGITS}f", f"± {np.std(row, ddof=1):.{DIGITS}f}", "unranked")
        for name, row in means.items()
        if len(row) == len(values[name])
    }


def ranks_sentence(run: RunView, group: Group, metric: str) -> str:
    """Return the result of Friedman's test and, where it finds differences, which methods the best differs from."""
    if metric in run.scores.not_ranked:
        return "Not ranked: a method that is inaccurate on every test set has nothing to lose; read it beside accuracy."
    comparison = comparison_over(run, group, [metric])
    if comparison is None:
        return (
            "No mean ranks: they need at least two methods that are ranked on every test set, and test sets of at "
            "least two training sets."
        )
    ranks, test = comparison.average_ranks, comparison.friedman
    best, *others = ranks
    worse = [run.title(name) for name in others if comparison.differ(best, name)]
    better = f"{run.title(best)} ranks best and is significantly better than {listed(worse)}" if worse else ""
    missing = [m.title for m in methods_over(run, group, metric) if m.name not in ranks]
    return (
        f"{term(metric).title} over {_evidence(comparison, 'test sets')}: Friedman χ² = {test.chi2:.2f} (p = "
        f"{test.p:.2g}), critical difference of mean ranks {comparison.critical_difference:.2f}: "
        f"{better or 'no method is significantly worse than the best'}."
        + (f" Not ranked on every test set: {listed(missing)}." if missing else "")
    )


def _evidence(comparison: Comparison, sets: str) -> str:
    """Return the number of test sets, and of training sets where several share one: these are what is independent."""
    tests, trained = len(comparison.datasets), comparison.friedman.datasets
    shared = f" of {number(trained)} training sets, each counted once" if trained < tests else ""
    return f"{number(tests)} {sets}{shared}"


@dataclass(frozen=True)
class Ranking:
    """Methods ranked over test sets by one metric.

    Attributes:
        name: The name of its figure.
        title: The metric.
        sets: What the test sets are, in the plural.
        comparison: The ranks and the differences they resolve.
        left_out: Titles of the methods that are not ranked, or lack a value, on some test set.
        sparse: Test sets that are not ranked over, since fewer than half of the methods are ranked there.
    """

    name: str
    title: str
    sets: str
    comparison: Comparison
    left_out: tuple[str, ...]
    sparse: tuple[str, ...] = ()


def rankings(run: RunView) -> tuple[Ranking, ...]:
    """Return the ranking by each metric over the test sets it is meant for, where there are enough.

    A task that several networks learned counts once, under the network with the most methods.
    """
    names = dict.fromkeys(task.name for task in run.tasks if run.methods_of(task))
    same = {name: [task for task in run.tasks if task.name == name] for name in names}
    tasks = [max(learned, key=lambda task: len(run.methods_of(task))) for learned in same.values()]
    inside = [(task, task.in_domain.name) for task in tasks]
    shifted = [(task, split) for task in tasks for split in task.farthest]
    novel, other = ([(task, split.name) for task, split in shifted if split.kind == kind] for kind in ("ood", "shift"))
    auroc = detection_name("ood_auroc", HEADLINE)
    candidates = (
        ("ranks", term(RANKED_BY).title, "tasks", inside, RANKED_BY),
        ("ranks-brier", term("brier").title, "tasks", inside, "brier"),
        ("ranks-accuracy", term("accuracy").title, "tasks", inside, "accuracy"),
        ("ranks-novelty", "AUROC of novel classes", "sets of novel classes", novel, auroc),
        ("ranks-shift", "AUROC under shift", "shifted test sets", other, auroc),
        ("ranks-shift-accuracy", "accuracy under shift", "shifted test sets", other, "accuracy"),
    )
    return tuple(ranking for candidate in candidates if (ranking := _ranking(run, *candidate)) is not None)


def _ranking(
    run: RunView, name: str, title: str, sets: str, test_sets: Sequence[tuple[TaskView, str]], metric: str
) -> Ranking | None:
    """Rank the methods that are ranked on every test set that ranks at least half of the methods."""
    rows = {
        f"{task.key}/{split}": ranked_cells(run, task, split, metric) if run.scores.ranks(metric, task) else {}
        for task, split in test_sets
    }
    most = max((len(cells) for cells in rows.values()), default=0)
    dense = {key: cells for key, cells in rows.items() if 2 * len(cells) >= most and cells}
    values = [run.scores.row(task, split, metric) for task, split in test_sets if f"{task.key}/{split}" in dense]
    present = [method for method in run.methods if any(method.name in row for row in values)]
    complete = [method for method in present if all(method.name in cells for cells in dense.values())]
    blocks = {f"{task.key}/{split}": task.training_data for task, split in test_sets}
    if len({blocks[key] for key in dense}) < MIN_TRAINING_SETS or len(complete) < MIN_DIAGRAM_METHODS:
        return None
    unique = len({method.title for method in complete}) == len(complete)
    results = [
        Result(key, method.title if unique else method.name, metric, exact(cells[method.name].mean))
        for key, cells in dense.items()
        for method in complete
    ]
    comparison = compare(ResultTable(tuple(results)), {metric: run.scores.better[metric]}, blocks=blocks)
    left_out = tuple(method.title for method in present if method not in complete)
    return Ranking(name, title, sets, comparison, left_out, tuple(key for key in rows if key not in dense))


def ranking_sentence(ranking: Ranking) -> str:
    """Return which method leads, over how many test sets, and which difference they resolve."""
    comparison, ranks = ranking.comparison, ranking.comparison.average_ranks
    best, trained = min(ranks, key=lambda name: ranks[name]), comparison.friedman.datasets
    outcome = "some do" if any(comparison.differ(best, name) for name in ranks) else "none do"
    kind = "training" if trained < len(comparison.datasets) else "test"
    few = f"; so few {kind} sets show only large differences" if trained < 5 else ""
    reasons = {"Methods left out, because they are not ranked on every test set": ranking.left_out,
               "Test sets left out, because too few methods are ranked there": ranking.sparse}  # fmt: skip
    without = "".join(f" {reason}: {listed(list(names))}." for reason, names in reasons.items() if names)
    return (
        f"{best} has the best mean rank, {ranks[best]:.2f}, of {number(len(ranks))} methods over "
        f"{_evidence(comparison, ranking.sets)}. Mean ranks must differ by {comparison.critical_difference:.2f} "
        f"(at most {len(ranks) - 1} is possible) to be significantly different: {outcome}{few}.{without}"
    )
