"""The tables of one task: in-domain, referral, cost; those of places away from home are in `away_tables`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.aggregate import Cell
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import referral_name
from dubio.reporting.promise_cells import PROMISE_COLUMNS, PROMISE_NOTES, promise_cells
from dubio.reporting.promises import CONFIDENCE, SHARE
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table, score_column
from dubio.reporting.wording import RANDOM, counted, term


@dataclass(frozen=True)
class Elsewhere:
    """Test splits away from home that belong together: one split, or the severities of a corruption, or of many."""

    title: str
    splits: tuple[str, ...]
    kind: str


def elsewhere(task: TaskView) -> tuple[Elsewhere, ...]:
    """The shift and ood splits of a task, severities taken together."""
    graded = task.severities
    within = {split.name for splits in graded.values() for split in splits}
    found = [Elsewhere(s.name, (s.name,), s.kind) for s in task.of_kind("ood", "shift") if s.name not in within]
    if task.many_corruptions:
        every = tuple(split.name for splits in graded.values() for split in splits)
        return (*found, Elsewhere(counted(len(graded), "corruption"), every, "shift"))
    return (*found, *(Elsewhere(base, tuple(s.name for s in splits), "shift") for base, splits in graded.items()))


def referral_grid(results: Results, task: TaskView, metric: str) -> Table:
    """Accuracy, or the area under the ROC curve, at each fraction retained, with referral at random as the last row."""
    split = task.of_kind("id")[0].name
    columns = []
    for fraction in sorted(FRACTIONS, reverse=True):
        name = referral_name(metric, fraction)
        cells = results.cells_of(task, split, name)
        verdicts = results.verdicts(task, split, name)
        control = results.cells.get((task.key, split, RANDOM, name))
        if control is not None:
            cells = {**cells, RANDOM: control}
        columns.append(
            score_column(Column(f"{fraction:.0%}", "retained", "↑", term(metric).note), cells, verdicts, places=3)
        )
    reference = results.manifest.reference(task)
    title = next((m.title for m in results.manifest.methods if m.name == reference), "")
    caption = f"{term(metric).title} of the retained part, referred by predictive entropy"
    return method_table(
        results.methods_of(task),
        columns,
        styles_of(results.manifest.methods),
        caption=caption,
        controls={RANDOM: f"Random referral ({title})"},
    )


def promise_grid(results: Results, task: TaskView) -> Table | None:
    """The referral policy of each method and what became of its promise; None where nothing could be asked."""
    promises = results.promises.get(task.key) or {}
    if not promises:
        return None
    titles = {splits[-1].name: f"{base}, at its worst" for base, splits in task.severities.items()}
    made = {name: promise_cells(promise) for name, promise in promises.items()}
    columns = [FilledColumn(head, {name: cells.pop(key) for name, cells in made.items() if key in cells})
               for key, head in PROMISE_COLUMNS.items()]  # fmt: skip
    for split in task.farthest:
        known = any(seen.error is not None for p in promises.values() for seen in p.away if seen.split == split.name)
        title = "Error, kept, shift" if known else "Kept, shift"
        head = Column(title, titles.get(split.name, split.name), "↓", PROMISE_NOTES["away"])
        columns.append(
            FilledColumn(head, {name: cells[split.name] for name, cells in made.items() if split.name in cells})
        )
    kept_aside, target = task.of_kind("cal")[0], next(iter(promises.values())).target
    caption = (
        f"Error among the kept below {target:g}, with {CONFIDENCE:.0%} confidence, from the {kept_aside.examples:,} "
        f"examples of “{kept_aside.name}”"
    )
    methods = [method for method in results.methods_of(task) if method.name in promises]
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def promise_words(results: Results, task: TaskView) -> str:
    """What is asked of every policy, and of whom."""
    reference = results.manifest.reference(task)
    title = next((m.title for m in results.manifest.methods if m.name == reference), "")
    return (
        f"Asked of the first run of every method: an error among the kept below {SHARE:.0%} of what {title} errs on "
        f"the test set without referral, with {CONFIDENCE:.0%} confidence; referred by predictive entropy. All methods "
        "share the examples kept aside and those of the test set, so that promises hold, or fail, together."
    )


def cost_grid(results: Results, task: TaskView) -> Table:
    """What each method costs on its own, members that methods share counted in full for each."""
    methods = results.methods_of(task)
    costs = {m.name: results.costs[task.key, m.name] for m in methods if (task.key, m.name) in results.costs}
    trainings = {n: TableCell(f"{c.trainings.mean:g}", sort=f"{c.trainings.mean:g}") for n, c in costs.items()}
    columns = [
        FilledColumn(Column("Trainings"), trainings),
        score_column(
            Column("Training", "seconds, all fits"), {n: c.training_seconds for n, c in costs.items()}, places=1
        ),
        _exact(Column("An epoch", "seconds, one fit"), {n: c.seconds_per_epoch for n, c in costs.items()}, 1.0, 2),
        _exact(Column("Converged", "epoch, mean of fits"), {n: c.best_epoch for n, c in costs.items()}, 1.0, 1),
        _exact(Column("Inference", _device(results)), {n: c.examples_per_second for n, c in costs.items()}, 1.0, 0),
        _exact(Column("Parameters", "thousands"), {n: c.parameters for n, c in costs.items()}, 1e3, 1),
        _exact(Column("Stored", "kB of weights"), {n: c.stored_bytes for n, c in costs.items()}, 1e3, 0),
    ]
    return method_table(
        methods,
        columns,
        styles_of(results.manifest.methods),
        caption="For one run; mean ± standard deviation over runs",
    )


def _device(results: Results) -> str:
    device = results.environment.get("device")
    return f"examples a second, {device}" if device else "examples a second"


def _exact(head: Column, cells: Mapping[str, Cell], unit: float, places: int) -> FilledColumn:
    """Values in another unit; the spread of what does not vary is not shown."""
    shown = {}
    for name, cell in cells.items():
        if cell.n:
            spread = f"± {cell.std / unit:,.{places}f}" if cell.std else ""
            shown[name] = TableCell(f"{cell.mean / unit:,.{places}f}", spread, f"{cell.mean:.9g}")
    return FilledColumn(head, shown)
