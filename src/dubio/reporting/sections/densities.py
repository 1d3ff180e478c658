"""How uncertainties are distributed over correct, incorrect, and OOD or shifted examples.

The range of an uncertainty is known only after every method has been visited, so that no bins can be counted on the
way. Each run stores quantiles instead: the share of examples below any value follows from them to within 1/400.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import correct
from dubio.metrics.decomposition import decompose
from dubio.reporting.canvas import WIDTH, blank, label_rows, panel_title, small_multiples, styled
from dubio.reporting.manifest_view import TaskView, TestSet
from dubio.reporting.measures import detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Figure, Section, Visit, section
from dubio.reporting.style import INK, INSIDE, MODEL, MUTED, NOISE, OUTSIDE, Style
from dubio.reporting.wording import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of the quantiles that are stored."""

CORRECT, INCORRECT = "correct", "incorrect"
"""The two groups of the in-domain test set; the others are named by their splits."""

Quantiles = dict[tuple[str, str], FloatArray]
"""(group, quantity) → quantiles at :data:`LEVELS`."""

DASHED = (0.0, (2.6, 1.4))


@section("densities", order=55)
class Densities(Section):
    """Distributions of uncertainty, in-domain and under shift."""

    title = "Distribution of the uncertainties"

    def __init__(self) -> None:
        """Start without any run."""
        self.quantiles: dict[tuple[str, str, str, str], list[FloatArray]] = {}
        self.entropies: dict[tuple[str, str, str], list[FloatArray]] = {}

    def visit(self, item: Visit) -> None:
        """Store quantiles of every uncertainty, and the two parts of predictive entropy."""
        key = item.task.key
        if item.is_in_domain_test:
            self._add(key, item.run.method, in_domain_quantiles(item.predictions, item.uncertainties))
        elif item.split in item.task.farthest:
            self._add(key, item.run.method, split_quantiles(item.split.name, item.uncertainties))
        if item.split.kind == "id" or item.split in item.task.farthest:
            parts = entropy_parts(item.predictions)
            self.entropies.setdefault((key, item.split.name, item.run.method), []).append(parts)

    def _add(self, task: str, method: str, quantiles: Quantiles) -> None:
        for (group, quantity), values in quantiles.items():
            self.quantiles.setdefault((task, group, method, quantity), []).append(values)

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the densities of predictive entropy, its two parts, and the densities of all uncertainties."""
        if task is None or not task.test_sets:
            return
        sets = [each for each in task.test_sets if len(each.splits) == 1 or not task.many_corruptions]
        densities = [figure for each in sets for figure in self._density(run, task, each)]
        yield from (figure for figure in densities if not figure.folded)
        panels = self.entropy_panels(run, task) if task.farthest else []
        if panels:
            draw, narrow = partial(entropies_figure, panels), len(panels) < 3
            yield Figure("entropy", "Predictive entropy and its two parts", ENTROPY_CAPTION, draw, narrow=narrow)
        yield from (figure for figure in densities if figure.folded)
        for split in task.of_kind("ood") or task.farthest:
            grid = self.grid(run, task, split.name)
            if grid:
                yield Figure(
                    f"ridges-{file_name(split.name)}",
                    f"Every uncertainty on {split.name}",
                    GRID_CAPTION.format(outside=split.name),
                    partial(grid_figure, grid, outside=split.name),
                    folded=True,
                    reading=grid_reading(grid),
                )

    def _groups(self, task: TaskView, method: str, quantity: str, split: str) -> list[FloatArray | None]:
        """Return ``[runs, levels]`` quantiles of correct, incorrect and other examples; None where there are none."""
        found = [self.quantiles.get((task.key, group, method, quantity)) for group in (CORRECT, INCORRECT, split)]
        return [None if each is None else np.array(each) for each in found]

    def densities(self, run: RunView, task: TaskView, split: str) -> list[Density]:
        """Return predictive entropy in-domain and on another split, of every method predicted on both."""
        classes = len(task.classes)
        largest = classes * np.log(2) if task.target == "multilabel" else np.log(classes)
        name, found = detection_name("ood_auroc", "predictive_entropy"), []
        for method in run.methods_of(task):
            groups = self._groups(task, method.name, "predictive_entropy", split)
            area = run.scores.cell(task, split, method.name, name)
            if groups[0] is not None and groups[2] is not None and area is not None:
                spread = "" if area.std is None else f" ± {area.std:.3f}"
                filled = [None if each is None else each / largest for each in groups]
                shares = grouped_shares(filled, EDGES)
                found.append(Density(run.styles[method.name], EDGES, shares, f"AUROC {area.mean:.3f}{spread}"))
        return found

    def _density(self, run: RunView, task: TaskView, shifted: TestSet) -> Iterator[Figure]:
        """Yield the densities of one test set; of a corruption, at its worst severity and on demand."""
        graded = len(shifted.splits) > 1
        name = f"{shifted.title}, severity {len(shifted.splits)}" if graded else shifted.title
        panels = self.densities(run, task, shifted.splits[-1])
        if panels:
            yield Figure(
                f"density-{file_name(shifted.title)}",
                f"Predictive entropy in-domain and on {name}",
                DENSITY_CAPTION,
                partial(densities_figure, panels, outside=name),
                narrow=len(panels) < 3,
                folded=graded,
                reading=density_reading(panels),
            )

    def entropy_panels(self, run: RunView, task: TaskView) -> list[Entropies]:
        """Return the parts of predictive entropy on every test set, of the methods predicted on all."""
        graded = {splits[-1].name: base for base, splits in task.severities.items()}
        names = [task.in_domain.name, *(split.name for split in task.farthest)]
        complete = [m.name for m in run.methods_of(task) if all((task.key, n, m.name) in self.entropies for n in names)]
        if not complete:
            return []
        titles = ["in-domain", *(f"{graded[name]}, worst severity" if name in graded else name for name in names[1:])]
        return [
            Entropies(
                title,
                tuple(run.styles[method] for method in complete),
                np.array([np.mean(self.entropies[task.key, name, method], axis=0) for method in complete]),
            )
            for title, name in zip(titles, names, strict=True)
        ]

    def grid(self, run: RunView, task: TaskView, split: str) -> list[QuantityColumn]:
        """Return one column per quantity that some method has on correct and on other examples."""
        columns = []
        for quantity, title in QUANTITIES.items():
            groups = [(m, self._groups(task, m.name, quantity, split)) for m in run.methods_of(task)]
            present = [parts for _, parts in groups if parts[0] is not None and parts[2] is not None]
            if not present:
                continue
            values = np.concatenate([part.ravel() for parts in present for part in parts if part is not None])
            top = float(np.quantile(values, TAIL))
            edges = np.linspace(0.0, top if top > 0 else 1.0, GRID_BINS + 1)
            rows = tuple(
                (run.styles[m.name], None if parts[0] is None or parts[2] is None else grouped_shares(parts, edges))
                for m, parts in groups
            )
            columns.append(QuantityColumn(title, edges, rows))
        return columns


def in_domain_quantiles(predictions: Predictions, uncertainties: Mapping[str, FloatArray]) -> Quantiles:
    """Return quantiles over the correct and over the incorrect examples; a group without examples has none."""
    known = np.ones(len(predictions), dtype=bool) if predictions.target == "multilabel" else predictions.labels >= 0
    right = np.zeros(len(predictions), dtype=bool)
    if known.any():
        right[known] = correct(predictions.labelled)
    groups = {CORRECT: known & right, INCORRECT: known & ~right}
    return {
        (group, quantity): _quantiles(values[rows])
        for group, rows in groups.items()
        if rows.any()
        for quantity, values in uncertainties.items()
    }


def split_quantiles(split: str, uncertainties: Mapping[str, FloatArray]) -> Quantiles:
    """Return quantiles over all examples of a shifted or OOD split."""
    return {(split, quantity): _quantiles(values) for quantity, values in uncertainties.items()}


def _quantiles(values: FloatArray) -> FloatArray:
    return np.asarray(np.quantile(values, LEVELS, method="inverted_cdf"))


def shares(quantiles: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the share of examples per bin, averaged over runs; values outside the edges count in the outermost bins.

    Args:
        quantiles: ``[runs, levels]``.
        edges: Of the bins, increasing.
    """
    counts, _ = np.histogram(np.clip(quantiles, edges[0], edges[-1]), edges)
    return np.asarray(counts / quantiles.size)


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of correct, incorrect, and OOD or shifted examples per bin; zeros where a group has no examples."""

    correct: FloatArray
    incorrect: FloatArray
    outside: FloatArray


def grouped_shares(groups: Sequence[FloatArray | None], edges: FloatArray) -> Shares:
    """Return the shares of the three groups from their quantiles."""
    return Shares(*(np.zeros(len(edges) - 1) if each is None else shares(each, edges) for each in groups))


def entropy_parts(predictions: Predictions) -> FloatArray:
    """Return the means over examples of expected entropy and of mutual information, the parts of predictive entropy."""
    parts = decompose(predictions)
    return np.array([parts.expected_entropy.mean(), parts.mutual_information.mean()])


EDGES = np.linspace(0.0, 1.0, 26)
"""Bins of predictive entropy divided by its largest possible value."""

TICKS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares that the square-root axis may label."""

SMALL = 0.005
"""Smaller differences of mean uncertainty are not reported."""

DENSITY_CAPTION = (
    "Share of examples per bin of predictive entropy, divided by its largest value, all runs together; square-root "
    "axis. The less the filled curves overlap, the better a threshold separates correct in-domain examples from the "
    "others. Dashed: in-domain examples that are classified incorrectly."
)


@dataclass(frozen=True, eq=False)
class Density:
    """The uncertainty of one method over three groups of examples."""

    style: Style
    edges: FloatArray
    groups: Shares
    note: str


@styled
def densities_figure(panels: Sequence[Density], *, outside: str) -> Drawing:
    """Draw the shares of three groups of examples per bin, one panel per method.

    The vertical axis is a square root: the tall bin of certain examples would hide all the others.

    Args:
        panels: One per method, in the benchmark's order.
        outside: The name of the OOD or shifted examples.
    """
    tallest = max(
        float(each.max()) for p in panels for each in (p.groups.correct, p.groups.incorrect, p.groups.outside)
    )
    ticks = [tick for tick in TICKS if tick <= 1.15 * tallest]
    figure, axes = small_multiples(len(panels), panel_height=1.6, extra=0.3)
    for axis, panel in zip(axes, panels, strict=True):
        for share, colour in ((panel.groups.correct, INSIDE), (panel.groups.outside, OUTSIDE)):
            axis.stairs(np.sqrt(share), panel.edges, fill=True, color=colour, alpha=0.22, linewidth=0)
            axis.stairs(np.sqrt(share), panel.edges, color=colour, linewidth=1.1)
        if panel.groups.incorrect.any():
            axis.stairs(np.sqrt(panel.groups.incorrect), panel.edges, color=INK, linewidth=0.9, linestyle=DASHED)
        axis.set_title(panel_title(panel.style.title), pad=14)
        axis.annotate(panel.note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)
        axis.set(xlim=(float(panel.edges[0]), float(panel.edges[-1])), ylim=(0, float(np.sqrt(1.15 * tallest))))
        axis.set_yticks(np.sqrt(ticks), [f"{round(100 * tick)}%" for tick in ticks])
        axis.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    figure.legend(handles=group_handles(outside), loc="outside upper right", ncols=3, handlelength=1.4)
    figure.supxlabel("predictive entropy / its maximum", fontsize=8.5)
    figure.supylabel("share of examples", fontsize=8.5)
    return figure


def group_handles(outside: str) -> list[Patch | Line2D]:
    """Return the legend of the three groups of examples."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=INSIDE, alpha=0.5, label="in-domain, correct"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=DASHED, label="in-domain, incorrect"),
        Patch(facecolor=OUTSIDE, alpha=0.5, label=outside),
    ]


def density_reading(panels: Sequence[Density]) -> str:
    """Return the mean uncertainties of the groups, for the method that separates them best and for the worst."""
    gaps = [_mean(panel, panel.groups.outside) - _mean(panel, panel.groups.correct) for panel in panels]
    most, least = panels[int(np.argmax(gaps))], panels[int(np.argmin(gaps))]
    first = f"{most.style.title} separates them best" if max(gaps) >= SMALL else "No method separates them clearly"
    text = f"{first}: mean {_means(most)}"
    return f"{text}." if most is least else f"{text}; {least.style.title} least: {_means(least)}."


def _means(panel: Density) -> str:
    wrong = f", {_mean(panel, panel.groups.incorrect):.2f} (incorrect)" if panel.groups.incorrect.any() else ""
    inside, outside = _mean(panel, panel.groups.correct), _mean(panel, panel.groups.outside)
    return f"{inside:.2f} (correct){wrong}, {outside:.2f} (shifted or OOD)"


def _mean(panel: Density, share: FloatArray) -> float:
    """Return the mean of a binned quantity, each bin at its centre."""
    return float((share * (panel.edges[:-1] + panel.edges[1:]) / 2).sum() / share.sum())


ENTROPY_CAPTION = (
    "Mean over examples and runs. Predictive entropy is the sum of expected entropy, the uncertainty of each sample, "
    "and of mutual information, the disagreement of samples or members; a single pass has no second part. Under shift "
    "the second should grow. It describes methods and does not rank them."
)


@dataclass(frozen=True, eq=False)
class Entropies:
    """One test set: its title, the methods and ``[methods, 2]`` expected entropy and mutual information."""

    title: str
    styles: tuple[Style, ...]
    parts: FloatArray


@styled
def entropies_figure(panels: Sequence[Entropies]) -> Drawing:
    """Draw stacked bars, one per method, one panel per test set; all panels on one scale."""
    from matplotlib.patches import Patch

    rows = len(panels[0].styles)
    figure, axes = small_multiples(len(panels), panel_height=0.19 * rows + 0.6, extra=0.45)
    longest = max(float(panel.parts.sum(axis=1).max()) for panel in panels)
    for axis, panel in zip(axes, panels, strict=True):
        data, model = panel.parts.T
        axis.barh(range(rows), data, height=0.64, color=NOISE, linewidth=0, zorder=2)
        axis.barh(range(rows), model, left=data, height=0.64, color=MODEL, linewidth=0, zorder=2)
        axis.set_title(panel_title(panel.title))
        label_rows(axis, panel.styles)
        axis.set_xlim(0, 1.04 * longest)
    handles = [
        Patch(color=NOISE, label="expected entropy (data)"),
        Patch(color=MODEL, label="mutual information (model)"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, handlelength=1.2)
    figure.supxlabel("predictive entropy, nats", fontsize=8.5)
    return figure


QUANTITIES = {
    "confidence": "1 − confidence",
    "predictive_entropy": "predictive\nentropy",
    "mutual_information": "mutual\ninformation",
    "model_uncertainty": "model\nuncertainty",
    "data_uncertainty": "data\nuncertainty",
}
"""The quantities of the grid; higher is more uncertain."""

GRID_BINS = 24
TAIL = 0.98
"""The horizontal axis ends at this quantile of all examples of all methods; larger values count in the last bin."""

GRID_CAPTION = (
    "Density curves of each uncertainty over correct in-domain examples (blue), incorrect ones (dashed) and {outside} "
    "(orange), all runs together. Curves are scaled to their own height, on a square root; a quantity has the same "
    "range for all methods. An uncertainty is useful where the dashed and the orange curve lie to the right of the "
    "blue one."
)


@dataclass(frozen=True)
class QuantityColumn:
    """One quantity: its bins, and the shares of every method that has it."""

    title: str
    edges: FloatArray
    methods: tuple[tuple[Style, Shares | None], ...]


@styled
def grid_figure(columns: Sequence[QuantityColumn], *, outside: str) -> Drawing:
    """Draw one row of density curves per method, one column per quantity."""
    styles = [style for style, _ in columns[0].methods]
    figure = blank(WIDTH, 0.34 * len(styles) + 1.0)
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        end = float(column.edges[-1])
        label_rows(axis, styles)
        for place, (_, groups) in enumerate(column.methods):
            if groups is None:
                axis.text(end / 2, place + 0.1, "–", ha="center", va="center", fontsize=7.5, color=MUTED)
            else:
                _curves(axis, place + 0.38, groups, column.edges)
        axis.set_title(column.title)
        axis.set(xlim=(0.0, end), ylim=(len(styles) - 0.45, -0.6))
        axis.set_xticks([0.0, end], ["0", f"{end:.2g}"])
        axis.grid(visible=False)
        axis.spines["left"].set_visible(False)
    figure.legend(handles=group_handles(outside), loc="outside upper right", ncols=3, handlelength=1.4)
    return figure


def _curves(axis: Axes, base: float, groups: Shares, edges: FloatArray) -> None:
    """Draw three densities over a base line; up is towards smaller values, since rows are counted from the top."""
    for share, colour, filled in ((groups.correct, INSIDE, True), (groups.outside, OUTSIDE, True),
                                  (groups.incorrect, INK, False)):  # fmt: skip
        if share.max() <= 0:
            continue
        height = base - 0.82 * np.sqrt(share / share.max())
        if filled:
            axis.stairs(height, edges, baseline=base, fill=True, color=colour, alpha=0.22, linewidth=0)
        axis.stairs(
            height, edges, baseline=None, color=colour, linewidth=0.8, linestyle="solid" if filled else (0, (2, 1))
        )
    axis.axhline(base, color=MUTED, linewidth=0.4)


def grid_reading(columns: Sequence[QuantityColumn]) -> str:
    """Return where the densities of correct and of OOD or shifted examples overlap least and most."""
    overlaps = [
        (float(np.minimum(groups.correct, groups.outside).sum()), column.title.replace("\n", " "), style.title)
        for column in columns
        for style, groups in column.methods
        if groups is not None
    ]
    least, most = min(overlaps), max(overlaps)
    return (
        f"Correct in-domain examples and the others overlap least in {least[1]} of {least[2]} ({least[0]:.0%} of their "
        f"shares), most in {most[1]} of {most[2]} ({most[0]:.0%})."
    )
