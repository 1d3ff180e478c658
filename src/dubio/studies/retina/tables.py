"""The tables of referral on two-sided tasks: what is retained, the NHS point, the gain over referral at random."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dubio.metrics.referral_curve import FRACTIONS, NHS_POINT, SLACK
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import referral_name
from dubio.reporting.results import Results
from dubio.reporting.style import styles_of
from dubio.reporting.tables import Column, FilledColumn, Table, TableCell, method_table, score_column
from dubio.reporting.wording import RANDOM, term
from dubio.statistics.bootstrap import Interval
from dubio.studies.retina.found import UNDERPOWERED, Gain, Retained


@dataclass(frozen=True)
class OverSeeds:
    """A value a seed, the members of a seed averaged first; ``error`` is None with one seed."""

    mean: float
    error: float | None
    seeds: int


def over_seeds(results: Results, task: TaskView, split: str, metric: str) -> dict[str, OverSeeds]:
    """Method → mean and standard error over seeds, s/√n; only where a value is defined for some seed."""
    values: dict[str, dict[int, list[float]]] = {}
    for score in results.scores:
        if (score.task, score.split, score.metric) == (task.key, split, metric) and not math.isnan(score.value):
            values.setdefault(score.method, {}).setdefault(score.seed, []).append(score.value)
    found = {}
    for method, seeds in values.items():
        means = np.array([np.mean(each) for each in seeds.values()])
        error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
        found[method] = OverSeeds(float(means.mean()), error, len(means))
    return found


def retention_grid(results: Results, task: TaskView, split: str, metric: str) -> Table:
    """Accuracy or AUC at each fraction retained, each on its own; referral at random is the last row."""
    columns = []
    for fraction in sorted(FRACTIONS, reverse=True):
        name = referral_name(metric, fraction)
        cells = results.cells_of(task, split, name)
        control = results.cells.get((task.key, split, RANDOM, name))
        head = Column(f"{fraction:.0%}", "retained", "↑", term(metric).note)
        made = score_column(
            head, cells | ({RANDOM: control} if control else {}), results.verdicts(task, split, name), places=3
        )
        columns.append(_with_errors(made, over_seeds(results, task, split, name)))
    reference = results.manifest.reference(task)
    title = next((m.title for m in results.manifest.methods if m.name == reference), "")
    caption = (
        f"{term(metric).title} of the retained part of “{split}”, referred by predictive entropy; mean ± standard "
        "error over seeds"
    )
    rows = [method for method in results.methods_of(task) if (split, method.name) in results.screening[task.key].gains]
    controls = {RANDOM: f"Random referral ({title})"}
    return method_table(rows, columns, styles_of(results.manifest.methods), caption=caption, controls=controls)


def _with_errors(column: FilledColumn, found: Mapping[str, OverSeeds]) -> FilledColumn:
    """The spread over runs exchanged for the standard error over seeds."""
    cells = {}
    for name, cell in column.cells.items():
        seeds = found.get(name)
        if seeds is not None:
            spread = "(1 seed)" if seeds.error is None else f"± {seeds.error:.3f}"
            cell = replace(cell, text=f"{seeds.mean:.3f}", spread=spread)
        cells[name] = cell
    return FilledColumn(column.column, cells)


def nhs_grid(results: Results, task: TaskView, split: str) -> Table | None:
    """Whether the NHS point is met at each fraction retained; None where no ROC curve is defined on the split."""
    screening = results.screening[task.key]
    if screening.undefined(split):
        return None
    methods = [method for method in results.methods_of(task) if (split, method.name) in screening.retained]
    note = "whether some threshold reaches both figures; beside it the highest sensitivity at that specificity"
    columns = []
    for fraction in sorted(FRACTIONS, reverse=True):
        at = FRACTIONS.index(fraction)
        cells = {method.name: nhs_cell(screening.retained[split, method.name], at) for method in methods}
        columns.append(FilledColumn(Column(f"{fraction:.0%}", "retained", "↑", note), cells))
    sensitivity, specificity = NHS_POINT
    caption = (
        f"Sensitivity {sensitivity:.0%} at specificity {specificity:.0%} on “{split}”: whether it is met, and the "
        "highest sensitivity at that specificity, mean over runs"
    )
    return method_table(methods, columns, styles_of(results.manifest.methods), caption=caption)


def nhs_cell(runs: tuple[Retained, ...], at: int) -> TableCell:
    """Yes, no, or in how many runs; undefined where the retained are of one class in every run."""
    reached = [run.sensitivity[at] for run in runs if not math.isnan(run.sensitivity[at])]
    if not reached:
        return TableCell("undefined", place="unranked", hint="the retained examples are of one class")
    met = sum(value >= NHS_POINT[0] - SLACK for value in reached)
    text = "yes" if met == len(reached) else "no" if met == 0 else f"{met} of {len(reached)}"
    mean = float(np.mean(reached))
    hint = f"met in {met} of {len(reached)} runs"
    return TableCell(text, f"{mean:.3f}", f"{mean:.9g}", hint=hint)


def gain_grid(results: Results, task: TaskView) -> Table:
    """Area under the referral curve and its gain over random referral, split by split."""
    screening = results.screening[task.key]
    columns: list[FilledColumn] = []
    for split in screening.splits:
        gains = {method: gain for (name, method), gain in screening.gains.items() if name == split}
        few = any(gain.units < UNDERPOWERED for gain in gains.values())
        sub = f"{split}, underpowered" if few else split
        columns += [
            FilledColumn(
                Column("Area", sub, "↑", "mean accuracy of the retained over all fractions retained"),
                {m: TableCell(f"{g.area.value:.3f}", sort=f"{g.area.value:.9g}") for m, g in gains.items()},
            ),
            FilledColumn(
                Column("Gain", "95 % interval", "↑", "area minus that of referral at random", unranked=few),
                {method: _interval_cell(gain.gain, few) for method, gain in gains.items()},
            ),
            FilledColumn(Column("Excludes 0", ""), {method: _judged(gain) for method, gain in gains.items()}),
        ]
    caption = _gain_caption(screening.gains)
    return method_table(results.methods_of(task), columns, styles_of(results.manifest.methods), caption=caption)


def _gain_caption(gains: Mapping[tuple[str, str], Gain]) -> str:
    count = max((gain.replicates for gain in gains.values()), default=0)
    return (
        f"Area under the accuracy–referral curve and its gain over random referral, mean over runs; {count:,} "
        "resamples, the same for all methods and runs"
    )


def _interval_cell(found: Interval, weak: bool) -> TableCell:
    if math.isnan(found.low):
        return TableCell(f"{found.value:+.3f}", "(no interval)", f"{found.value:.9g}", "unranked")
    reach = f"[{found.low:+.3f}, {found.high:+.3f}]"
    return TableCell(f"{found.value:+.3f}", reach, f"{found.value:.9g}", "unranked" if weak else "")


def _judged(gain: Gain) -> TableCell:
    found = gain.excludes_zero
    text = "not known" if found is None else "no" if not found else "yes" if gain.gain.low > 0 else "yes, below"
    return TableCell(text, place="" if found else "unranked")
