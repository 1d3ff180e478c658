"""How uncertainties are distributed over correct, incorrect, and OOD or shifted examples.

The range of an uncertainty is known only after every method has been visited, so that no bins can be counted on the
way. Each run stores quantiles instead: the share of examples below any value follows from them to within 1/400.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray
from dubio.metrics.decisions import correct
from dubio.metrics.decomposition import decompose
from dubio.reporting.canvas import (
    WIDTH,
    blank,
    draw_stacks,
    label_panels,
    label_rows,
    note_panel,
    panel_title,
    patch_legend,
    small_multiples,
    styled,
)
from dubio.reporting.detectors import detection_on
from dubio.reporting.leaderboard import leaderboard, verdict_phrase
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Collected, Figure, Section, Visit, section
from dubio.reporting.style import INK, INSIDE, MODEL, MUTED, NOISE, OUTSIDE, Style
from dubio.reporting.wording import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ENTROPY = "predictive_entropy"

LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of the quantiles that are stored."""

CORRECT, INCORRECT = "correct", "incorrect"
"""The two groups of the in-domain test set; the others are named by their splits."""

DASHED = (0.0, (2.6, 1.4))


class Shares(NamedTuple):
    """Shares of correct, incorrect, and OOD or shifted examples per bin; zeros where a group has no examples."""

    correct: FloatArray
    incorrect: FloatArray
    outside: FloatArray


@dataclass(frozen=True, eq=False)
class Density:
    """The predictive entropy of one method over three groups of examples, in the bins :data:`EDGES`."""

    style: Style
    groups: Shares
    note: str


@dataclass(frozen=True)
class QuantityColumn:
    """One quantity: the shares of every method that has it, in bins of :data:`GRID_EDGES` on the method's own scale."""

    title: str
    methods: tuple[tuple[Style, Shares | None], ...]


@section("densities", order=55)
class Densities(Section):
    """Distributions of uncertainty, in-domain and under shift."""

    title = "Distribution of the uncertainties"

    def __init__(self) -> None:
        """Start without any run."""
        self.quantiles: dict[tuple[str, str, str, str], list[FloatArray]] = {}
        self.entropies = Collected[FloatArray]()

    def visit(self, item: Visit) -> None:
        """Store quantiles of every uncertainty, and the two parts of predictive entropy."""
        if not item.is_shown:
            return
        everything = {item.split.name: np.ones(len(item.predictions), dtype=bool)}
        groups = by_correctness(item.predictions) if item.is_in_domain_test else everything
        for group, rows in groups.items():
            for quantity, values in item.uncertainties.items() if rows.any() else ():
                key = item.task.key, group, item.run.method, quantity
                quantiles = np.quantile(values[rows], LEVELS, method="inverted_cdf")
                self.quantiles.setdefault(key, []).append(quantiles)
        parts = decompose(item.predictions)
        self.entropies.add(item, np.array([parts.expected_entropy.mean(), parts.mutual_information.mean()]))

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the densities of predictive entropy, its two parts, and the densities of all uncertainties."""
        sets = [shifted for shifted in task.test_sets if len(shifted.splits) == 1 or not task.many_corruptions]
        densities = [figure for shifted in sets for figure in self._density(run, task, shifted)]
        yield from (figure for figure in densities if not figure.folded)
        styles, panels = self.entropy_panels(run, task)
        if styles and task.farthest:
            draw, narrow = partial(entropies_figure, styles, panels), len(panels) < 3
            yield Figure("entropy", "Predictive entropy and its two parts", ENTROPY_CAPTION, draw, narrow=narrow)
        yield from (figure for figure in densities if figure.folded)
        for name in (split.name for split in task.of_kind("ood") or task.farthest):
            if grid := self.grid(run, task, name):
                title, caption = f"Every uncertainty on {name}", GRID_CAPTION.format(outside=name)
                draw, reading = partial(grid_figure, grid, outside=name), grid_reading(run, task, name)
                yield Figure(f"ridges-{file_name(name)}", title, caption, draw, folded=True, reading=reading)

    def _groups(self, task: TaskView, method: str, quantity: str, split: str) -> list[FloatArray] | None:
        """Return ``[runs, levels]`` quantiles of correct, incorrect and other examples; None without the outer two."""
        keys = [(task.key, group, method, quantity) for group in (CORRECT, INCORRECT, split)]
        groups = [np.array(self.quantiles.get(key, [])) for key in keys]
        return groups if groups[0].size and groups[2].size else None

    def densities(self, run: RunView, task: TaskView, split: str) -> list[Density]:
        """Return predictive entropy in-domain and on another split, of every method predicted on both."""
        classes = len(task.classes)
        largest = classes * np.log(2) if task.target == "multilabel" else np.log(classes)
        panels = []
        for name, area in run.scores.row(task, split, detection_name("ood_auroc", ENTROPY)).items():
            groups = self._groups(task, name, ENTROPY, split)
            if groups is not None:
                spread = "" if area.std is None else f" ± {area.std:.3f}"
                shares_of_groups = grouped_shares([quantiles / largest for quantiles in groups], EDGES)
                panels.append(Density(run.styles[name], shares_of_groups, f"AUROC {area.mean:.3f}{spread}"))
        return panels

    def _density(self, run: RunView, task: TaskView, shifted: TestSet) -> Iterator[Figure]:
        """Yield the densities of one test set; of a corruption, at its worst severity and on demand."""
        graded = len(shifted.splits) > 1
        name = f"{shifted.title}, severity {len(shifted.splits)}" if graded else shifted.title
        if panels := self.densities(run, task, shifted.splits[-1]):
            title, draw = f"Predictive entropy in-domain and on {name}", partial(densities_figure, panels, outside=name)
            yield Figure(f"density-{file_name(shifted.title)}", title, DENSITY_CAPTION, draw, narrow=len(panels) < 3,
                         folded=graded, reading=density_reading(run, task, shifted.splits[-1], panels))  # fmt: skip

    def entropy_panels(self, run: RunView, task: TaskView) -> tuple[list[Style], dict[str, FloatArray]]:
        """Return the methods predicted on all test sets, and for each set ``[methods, 2]`` parts of their entropy."""
        graded = {splits[-1].name: f"{base}, worst severity" for base, splits in task.severities.items()}
        titles = {task.in_domain.name: "in-domain"}
        titles |= {split.name: graded.get(split.name, split.name) for split in task.farthest}
        values = {title: self.entropies.methods(run, task, name) for name, title in titles.items()}
        complete = [m.name for m in run.methods_of(task) if all(m.name in methods for methods in values.values())]
        means = {
            title: np.array([np.mean(methods[name], axis=0) for name in complete]) for title, methods in values.items()
        }
        return [run.styles[name] for name in complete], means

    def grid(self, run: RunView, task: TaskView, split: str) -> list[QuantityColumn]:
        """Return one column per quantity that some method has on correct and on other examples."""
        columns = []
        for quantity, title in QUANTITIES.items():
            groups = {m.name: self._groups(task, m.name, quantity, split) for m in run.methods_of(task)}
            if any(groups.values()):
                rows = tuple(
                    (run.styles[name], None if parts is None else grouped_shares(_own_scale(parts), GRID_EDGES))
                    for name, parts in groups.items()
                )
                columns.append(QuantityColumn(title, rows))
        return columns


def by_correctness(predictions: Predictions) -> dict[str, BoolArray]:
    """Return which examples are classified correctly and which incorrectly; those without labels are neither."""
    labelled = np.ones(len(predictions), dtype=bool) if predictions.target == "multilabel" else predictions.labels >= 0
    right = np.zeros(len(predictions), dtype=bool)
    if labelled.any():
        right[labelled] = correct(predictions.labelled)
    return {CORRECT: right, INCORRECT: labelled & ~right}


def shares(quantiles: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the share of examples per bin, averaged over runs; values outside the edges count in the outermost bins.

    Args:
        quantiles: ``[runs, levels]``; without runs, all shares are zero.
        edges: Of the bins, increasing.
    """
    counts, _ = np.histogram(np.clip(quantiles, edges[0], edges[-1]), edges)
    return np.asarray(counts / max(quantiles.size, 1))


def grouped_shares(groups: Sequence[FloatArray], edges: FloatArray) -> Shares:
    """Return the shares of the three groups from their quantiles."""
    return Shares(*(shares(quantiles, edges) for quantiles in groups))


def _own_scale(groups: Sequence[FloatArray]) -> list[FloatArray]:
    """Return a method's values divided by their quantile :data:`TAIL`."""
    end = float(np.quantile(np.concatenate([values.ravel() for values in groups]), TAIL))
    return [values / (end if end > 0 else 1.0) for values in groups]


EDGES = np.linspace(0.0, 1.0, 26)
"""Bins of predictive entropy divided by its largest possible value."""

TICKS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares that the square-root axis may label."""

DENSITY_CAPTION = (
    "Share of examples per bin of predictive entropy, divided by its largest value, all runs together; square-root "
    "axis. Dashed: in-domain examples that are classified incorrectly. AUROC is that of all in-domain examples against "
    "the others, by ranks: methods may use different parts of the axis."
)


@styled
def densities_figure(panels: Sequence[Density], *, outside: str) -> Drawing:
    """Draw the shares of three groups of examples per bin, one panel per method.

    The vertical axis is a square root: the tall bin of certain examples would hide all the others.

    Args:
        panels: One per method, in the benchmark's order.
        outside: The name of the OOD or shifted examples.
    """
    top = 1.15 * max(float(np.max(panel.groups)) for panel in panels)
    ticks = [tick for tick in TICKS if tick <= top]
    figure, axes = small_multiples(len(panels), panel_height=1.6, extra=0.3)
    for axis, panel in zip(axes, panels, strict=True):
        draw_groups(axis, panel.groups, EDGES)
        note_panel(axis, panel.style.title, panel.note)
        axis.set(xlim=(0.0, 1.0), ylim=(0.0, float(np.sqrt(top))))
        axis.set_yticks(np.sqrt(ticks), [f"{round(100 * tick)}%" for tick in ticks])
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    group_legend(figure, outside)
    label_panels(figure, "predictive entropy / its maximum", "share of examples")
    return figure


def draw_groups(axis: Axes, groups: Shares, edges: FloatArray, *, base: float = 0.0, scale: float = 1.0) -> None:
    """Draw the square roots of the three groups' shares over a base line, the incorrect ones dashed and not filled."""
    colours = {INSIDE: groups.correct, OUTSIDE: groups.outside, INK: groups.incorrect}
    for colour, share in colours.items():
        if share.any():
            height = base + scale * np.sqrt(share)
            if colour != INK:
                axis.stairs(height, edges, baseline=base, fill=True, color=colour, alpha=0.22, linewidth=0)
            style = DASHED if colour == INK else "solid"
            axis.stairs(height, edges, baseline=None, color=colour, linewidth=0.9, linestyle=style)


def group_legend(figure: Drawing, outside: str) -> None:
    """Add the legend of the three groups of examples."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=INSIDE, alpha=0.5, label="in-domain, correct"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=DASHED, label="in-domain, incorrect"),
        Patch(facecolor=OUTSIDE, alpha=0.5, label=outside),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, handlelength=1.4)


def density_reading(run: RunView, task: TaskView, split: str, panels: Sequence[Density]) -> str:
    """Return the methods with the highest and the lowest AUROC by predictive entropy, and the means of the former."""
    board = leaderboard(run, task, (split,), detection_name("ood_auroc", ENTROPY), test_set=split)
    if board is None:
        return ""
    areas = {d.method: d for d in detection_on(run, task, (split,)).detectors if d.quantity == ENTROPY}
    best, least = board.order[0], board.order[-1]
    text = f"Highest AUROC: {run.title(best)}, {areas[best].phrase}"
    if least != best:
        text += f"; lowest: {run.title(least)}, {areas[least].phrase} ({verdict_phrase(board.verdicts[least])})"
    means = {panel.style.title: _means(panel.groups) for panel in panels}
    return f"{text}. Mean entropy of the former: {means[run.title(best)]}." if run.title(best) in means else f"{text}."


def _means(groups: Shares) -> str:
    names = {"correct": groups.correct, "incorrect": groups.incorrect, "shifted or OOD": groups.outside}
    return ", ".join(f"{_mean(share):.2f} ({name})" for name, share in names.items() if share.any())


def _mean(share: FloatArray) -> float:
    """Return the mean of a quantity in the bins :data:`EDGES`, each at its centre."""
    return float((share * (EDGES[:-1] + EDGES[1:]) / 2).sum() / share.sum())


ENTROPY_CAPTION = (
    "Mean over examples and runs. Predictive entropy is the sum of expected entropy, the uncertainty of each sample, "
    "and of mutual information, the disagreement of samples or members; a single pass has no second part. Under shift "
    "the second should grow. It describes methods and does not rank them."
)


@styled
def entropies_figure(styles: Sequence[Style], panels: Mapping[str, FloatArray]) -> Drawing:
    """Draw stacked bars, one per method, one panel per test set; all panels on one scale."""
    figure, axes = small_multiples(len(panels), panel_height=0.19 * len(styles) + 0.6, extra=0.45)
    longest = max(float(parts.sum(axis=1).max()) for parts in panels.values())
    colours = {"expected entropy (data)": NOISE, "mutual information (model)": MODEL}
    for axis, (title, parts) in zip(axes, panels.items(), strict=True):
        draw_stacks(axis, parts, list(colours.values()))
        axis.set_title(panel_title(title))
        label_rows(axis, styles)
        axis.set_xlim(0, 1.04 * longest)
    patch_legend(figure, colours, "outside upper right")
    label_panels(figure, "predictive entropy, nats")
    return figure


QUANTITIES = {
    "confidence": "1 − confidence",
    "predictive_entropy": "predictive\nentropy",
    "mutual_information": "mutual\ninformation",
    "model_uncertainty": "model\nuncertainty",
    "data_uncertainty": "data\nuncertainty",
}
"""The quantities of the grid; higher is more uncertain."""

GRID_EDGES = np.linspace(0.0, 1.0, 25)
TAIL = 0.98
"""A method's axis ends at this quantile of all its examples; larger values count in the last bin."""

GRID_CAPTION = (
    "Density curves of each uncertainty over correct in-domain examples (blue), incorrect ones (dashed) and {outside} "
    "(orange), all runs together, each method on its own axis from 0 to its 98 % quantile, each curve scaled to its "
    "own height on a square root. An uncertainty is useful where the dashed and the orange curve lie to the right of "
    "the blue one."
)


@styled
def grid_figure(columns: Sequence[QuantityColumn], *, outside: str) -> Drawing:
    """Draw one row of density curves per method, one column per quantity."""
    styles = [style for style, _ in columns[0].methods]
    figure = blank(WIDTH, 0.34 * len(styles) + 1.0)
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        label_rows(axis, styles)
        for row, (_, groups) in enumerate(column.methods):
            if groups is None:
                axis.text(0.5, row + 0.1, "–", ha="center", va="center", fontsize=7.5, color=MUTED)
                continue
            scaled = Shares(*(share / (share.max() or 1.0) for share in groups))
            # Rows are counted from the top: up is towards smaller values.
            draw_groups(axis, scaled, GRID_EDGES, base=row + 0.38, scale=-0.82)
            axis.axhline(row + 0.38, color=MUTED, linewidth=0.4)
        axis.set_title(column.title)
        axis.set(xlim=(0.0, 1.0), ylim=(len(styles) - 0.45, -0.6))
        axis.set_xticks([0.0], ["0"])
        axis.grid(visible=False)
    group_legend(figure, outside)
    return figure


def grid_reading(run: RunView, task: TaskView, split: str) -> str:
    """Return the highest and the lowest AUROC over all methods and quantities that are drawn."""
    every = [one for one in detection_on(run, task, (split,)).detectors if one.quantity in QUANTITIES]
    if not every:
        return ""
    ends = max(every, key=lambda one: one.auroc), min(every, key=lambda one: one.auroc)
    high, low = (f"{one.words} of {run.title(one.method)} ({one.phrase})" for one in ends)
    return f"AUROC is highest by {high}, lowest by {low}."
