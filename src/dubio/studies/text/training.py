"""Training: learned dropout rates (T Fig. 16), epochs of convergence (T Fig. 17), spectral normalisation.

The multiplier of spectral normalisation is read from the recipe that was fitted, never from a method's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.types import FloatArray
from dubio.reporting.canvas import (
    WIDTH,
    label_rows,
    legend_height,
    method_legend,
    panel_grid,
    panel_title,
    small_multiples,
    styled,
)
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import SPARE, Style
from dubio.reporting.wording import listed, number, term

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SPECTRAL = "spectral_norm"
"""The part of a recipe that bounds the Lipschitz constant of a layer."""

LEARNED = "concrete_dropout"
"""The part of a recipe that learns its dropout rates."""


@section("text-training", order=72)
class Training(Section):
    """Learned dropout rates, epochs of convergence, and the multiplier of spectral normalisation."""

    title = "Training"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the figures of one task, or of all tasks side by side."""
        tasks, several = (run.tasks, True) if task is None else ((task,), False)
        for name, title, caption, panel_of, figure, reading in (
            ("rates", "Learned dropout rates", RATES_CAPTION, rates_of, rates_figure, rates_reading),
            ("epochs", "Epoch of convergence", EPOCHS_CAPTION, epochs_of, epochs_figure, epochs_reading),
        ):
            panels = [panel for one in tasks if run.methods_of(one) and (panel := panel_of(run, one)) is not None]
            if len(panels) > several:
                title, draw = f"{title} by task" if several else title, partial(figure, panels)
                yield Figure(name, title, caption, draw, narrow=not several, reading=reading(panels))
        if task is not None and (multiplied := multiplied_of(run, task)):
            title, draw = "Multiplier of spectral normalisation", partial(multiplied_figure, multiplied)
            yield Figure("spectral", title, SPECTRAL_CAPTION, draw, reading=multiplied_reading(multiplied))


def recipe_of(run: RunView, fit: str) -> Mapping[str, Any]:
    """Return the recipe of a fit; empty where its specification cannot be read or has none."""
    try:
        recipe = run.source.spec("fits", fit).get("recipe")
    except DubioError:
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _record(run: RunView, fit: str, key: str) -> Any:
    return (run.records.get(fit) or {}).get(key)


def _edits(recipe: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [edit for edit in recipe.get("edits") or () if edit.get("part") == name]


def trainings_of(run: RunView, task: TaskView) -> dict[MethodView, list[str]]:
    """Return method → its fits, every fit once, single methods before the ensembles of their fits."""
    trainings: dict[MethodView, list[str]] = {}
    for method in sorted(run.methods_of(task), key=lambda method: method.ensemble):
        shown = {fit for fits in trainings.values() for fit in fits}
        fits = dict.fromkeys(fit for one in run.manifest.runs_of(task.key, method.name) for fit in one.fits)
        trainings[method] = [fit for fit in fits if fit not in shown]
    return trainings


@dataclass(frozen=True)
class Panel:
    """The trainings of one task.

    Attributes:
        title: The task.
        methods: The values of every method: ``[trainings, sites]`` drop rates, NaN where it has no such site, or
            ``[trainings]`` best epochs.
        sites: The sites of drop rates.
    """

    title: str
    methods: tuple[tuple[Style, FloatArray], ...]
    sites: tuple[str, ...] = ()

    @property
    def values(self) -> FloatArray:
        """The values of all methods, one training after another."""
        return np.concatenate([values for _, values in self.methods])


def _means_by_task(panels: Sequence[Panel], noun: str, places: int) -> str:
    means = [f"{np.nanmean(panel.values):.{places}f} on {panel.title}" for panel in panels]
    return f"The mean {noun} is {listed(means)}."


RATES_CAPTION = (
    "The drop rate each layer had learned at the best epoch: one faint point per training, the marker their mean. K1, "
    "K2, … are the inputs of the convolutions, μ and σ those of the heads that predict the logits and their noise. "
    "Methods that share their trainings are drawn once."
)
SPELT = {"mu": "μ", "sigma": "σ"}

WIDE, NARROW = 48, 16
"""Characters of names that fit side by side below a panel: alone in its figure, or one of several."""

LAST = ("head", "mu", "sigma")
"""Sites of the heads, which every network ends with."""


def rates_of(run: RunView, task: TaskView) -> Panel | None:
    """Return the learned rates of one task; None where none were learned."""
    by_method = {
        method: [
            rates for fit in fits if _edits(recipe_of(run, fit), LEARNED) and (rates := _record(run, fit, "rates"))
        ]
        for method, fits in trainings_of(run, task).items()
    }
    sites = sorted({site for rates in by_method.values() for own in rates for site in own}, key=natural)
    methods = tuple(
        (run.styles[method.name], np.array([[own.get(site, np.nan) for site in sites] for own in rates]))
        for method, rates in by_method.items()
        if rates
    )
    return Panel(task.key, methods, tuple(SPELT.get(site, site) for site in sites)) if sites else None


def natural(site: str) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Return the sort key of a site: numbers as numbers, heads last. Records do not have the network's own order."""
    pieces = re.findall(r"(\D*)(\d*)", site)
    return site in LAST, tuple((word, int(digits or 0)) for word, digits in pieces)


@styled
def rates_figure(panels: Sequence[Panel]) -> Drawing:
    """Draw rates against layers, one panel per task."""
    styles = {style.title: style for panel in panels for style, _ in panel.methods}
    legend, alone = legend_height(len(styles), 2), len(panels) == 1
    figure, axes = small_multiples(len(panels), columns=3, panel_height=2.4 if alone else 2.0, extra=legend)
    if alone:
        figure.set_size_inches(5.2, 2.6 + legend)
    top = max(float(np.nanmax(panel.values)) for panel in panels)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_rates(axis, panel)
        if sum(map(len, panel.sites)) > (WIDE if alone else NARROW):  # labels would overlap
            axis.tick_params(axis="x", rotation=45)
            for label in axis.get_xticklabels():
                label.set(horizontalalignment="right", rotation_mode="anchor")
        axis.set(title=panel_title(panel.title), ylim=(0.0, 1.08 * top))
    figure.supylabel("learned drop rate", fontsize=8.5)
    method_legend(figure, list(styles.values()), columns=2)
    return figure


def _draw_rates(axis: Axes, panel: Panel) -> None:
    x, width = np.arange(len(panel.sites), dtype=float), 0.5 / len(panel.methods)
    for order, (style, rates) in enumerate(panel.methods):
        shift = (order - (len(panel.methods) - 1) / 2) * width
        axis.plot(np.tile(x + shift, len(rates)), rates.ravel(), linestyle="none", marker="_", markersize=6,
                  color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
        learned = np.isfinite(rates).any(axis=0)
        axis.plot(x[learned] + shift, np.nanmean(rates[:, learned], axis=0), zorder=3, **style.line)
    axis.set_xlim(-0.5, len(x) - 0.5)
    axis.set_xticks(range(len(panel.sites)), panel.sites)


def rates_reading(panels: Sequence[Panel]) -> str:
    """Return the layers with the highest and lowest rate of one task, or the mean rates of several."""
    if len(panels) > 1:
        return _means_by_task(panels, "learned rate", 3)
    rates, sites = panels[0].values, panels[0].sites
    if len(sites) == 1:
        return f"The mean learned rate is {np.nanmean(rates):.3f}."
    layers = np.nanmean(rates, axis=0)
    high, low = (f"{sites[index]} ({layers[index]:.3f})" for index in (int(layers.argmax()), int(layers.argmin())))
    among = "In one training" if len(rates) == 1 else f"Over {number(len(rates))} trainings"
    return (
        f"{among} the learned rates lie between {np.nanmin(rates):.3f} and {np.nanmax(rates):.3f}: "
        f"highest on average at {high}, lowest at {low}."
    )


EPOCHS_CAPTION = (
    "The epoch with the lowest validation loss: one tick per training, the marker their mean, the bar one standard "
    "deviation. Methods that share their trainings are shown once."
)


def epochs_of(run: RunView, task: TaskView) -> Panel | None:
    """Return the best epochs of one task; None where no record has any."""
    by_method = {
        method: np.array([epoch for fit in fits if (epoch := _record(run, fit, "best_epoch")) is not None], dtype=float)
        for method, fits in trainings_of(run, task).items()
    }
    methods = tuple((run.styles[method.name], epochs) for method, epochs in by_method.items() if epochs.size)
    return Panel(task.key, methods) if methods else None


@styled
def epochs_figure(panels: Sequence[Panel]) -> Drawing:
    """Draw one row per method, one panel per task."""
    from matplotlib.ticker import MaxNLocator

    styles = {style.title: style for panel in panels for style, _ in panel.methods}
    rows = {title: row for row, title in enumerate(styles)}
    figure, axes = small_multiples(len(panels), columns=3, panel_height=0.22 * len(rows) + 0.55, extra=0.15)
    figure.set_size_inches(WIDTH if len(panels) > 1 else 6.2, figure.get_size_inches()[1])
    for axis, panel in zip(axes, panels, strict=True):
        for style, epochs in panel.methods:
            row, mean = rows[style.title], float(epochs.mean())
            axis.plot(epochs, np.full(epochs.shape, row), linestyle="none", marker="|", markersize=7,
                      color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
            if epochs.size > 1:
                std = float(np.std(epochs, ddof=1))
                axis.hlines(row, mean - std, mean + std, color=style.colour, linewidth=1.6)
            axis.plot([mean], [row], linestyle="none", zorder=4, **style.point)
        label_rows(axis, list(styles.values()))
        axis.set_title(panel_title(panel.title))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0].set_xlim(left=0)
    figure.supxlabel("epoch of convergence", fontsize=8.5)
    return figure


def epochs_reading(panels: Sequence[Panel]) -> str:
    """Return the methods that converge first and last on one task, or the mean epoch of several tasks."""
    if len(panels) > 1:
        return _means_by_task(panels, "epoch of convergence", 1)
    ordered = sorted(((float(epochs.mean()), style.title) for style, epochs in panels[0].methods), key=lambda e: e[0])
    (early, first), (late, last) = ordered[0], ordered[-1]
    if early == late:
        return f"Every method converges in epoch {early:.1f} on average."
    return f"{first} converges first, in epoch {early:.1f} on average, {last} last, in epoch {late:.1f}."


SPECTRAL_CAPTION = (
    "Methods whose recipes differ in the multiplier s alone, joined by a line: the Lipschitz constant of a dense layer "
    "is at most s, that of a convolution of k positions at most √k · s. Bars are one standard deviation over runs. "
    "AUROC is that of confidence."
)


@dataclass(frozen=True)
class Line:
    """One group of methods that differ in s alone: the multipliers and the scores at each."""

    style: Style
    s: tuple[float, ...]
    scores: tuple[Cell, ...]


def multiplied_of(run: RunView, task: TaskView) -> dict[str, list[Line]]:
    """Return title → lines of detection, accuracy and calibrated NLL against s; empty where s does not vary."""
    area, groups = detection_name("ood_auroc", "confidence"), _groups(run, task)
    scores = [(f"AUROC, {split.name}", split.name, area) for split in task.farthest]
    scores += [(term(metric).title, task.in_domain.name, metric) for metric in ("accuracy", RANKED_BY)]
    panels: dict[str, list[Line]] = {}
    for title, split, metric in scores:
        cells = run.scores.row(task, split, metric)
        for style, methods in groups:
            scored = [(s, cells[m.name]) for s, m in methods if m.name in cells and cells[m.name].n]
            if len(scored) > 1:
                multipliers, values = zip(*scored, strict=True)
                panels.setdefault(title, []).append(Line(style, multipliers, values))
    return panels


def _groups(run: RunView, task: TaskView) -> list[tuple[Style, list[tuple[float, MethodView]]]]:
    """Return methods with the same recipe except s, and the same members and samples, ordered by s."""
    groups: dict[tuple[str, int, int], list[tuple[float, MethodView]]] = {}
    for method in run.methods_of(task):
        fits = {fit for one in run.manifest.runs_of(task.key, method.name) for fit in one.fits}
        recipes = {_without_multiplier(recipe_of(run, fit)) for fit in fits}
        multiplier, otherwise = recipes.pop() if len(recipes) == 1 else (None, "")
        if multiplier is not None:
            groups.setdefault((otherwise, method.members, method.samples), []).append((multiplier, method))
    varied = [sorted(group, key=lambda entry: entry[0]) for group in groups.values() if len(dict(group)) > 1]
    return [
        (Style(_common([m.title for _, m in group]), *SPARE[index % len(SPARE)], group[0][1].ensemble), group)
        for index, group in enumerate(varied)
    ]


def _without_multiplier(recipe: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the multiplier s, where there is one, and the recipe without it."""
    bounds = _edits(recipe, SPECTRAL)
    multiplier = next((float(edit["s"]) for edit in bounds if "s" in edit), None)
    bare = [{k: v for k, v in e.items() if k != "s"} if e in bounds else e for e in recipe.get("edits") or ()]
    return multiplier, json.dumps({**recipe, "edits": bare}, sort_keys=True)


def _common(titles: Sequence[str]) -> str:
    """Return the common beginning of titles, without the start of the part that differs."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*titles, strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip("0123456789.")
    for ending in (" s =", " s=", "-s", " s", "s =", "s="):
        shared = shared.rstrip(" (,-").removesuffix(ending)
    return shared.rstrip(" (,-=") or titles[0]


@styled
def multiplied_figure(panels: Mapping[str, Sequence[Line]]) -> Drawing:
    """Draw one panel per score, multipliers at equal distances."""
    lines = [line for panel in panels.values() for line in panel]
    ticks = {s: index for index, s in enumerate(sorted({s for line in lines for s in line.s}))}
    styles = {line.style.title: line.style for line in lines}
    extra = legend_height(len(styles), 3) + 0.15
    figure, axes = panel_grid(len(panels), panel_height=2.2, extra=extra, xlabel="multiplier s")
    for axis, (title, panel) in zip(axes, panels.items(), strict=True):
        for line in panel:
            means, spread = [cell.mean for cell in line.scores], [cell.std or 0.0 for cell in line.scores]
            axis.errorbar([ticks[s] for s in line.s], means, yerr=spread, elinewidth=0.9, capsize=0, **line.style.line)
        axis.set_title(panel_title(title))
        axis.set_xticks(range(len(ticks)), [f"{s:g}" for s in ticks])
    method_legend(figure, list(styles.values()), columns=3)
    return figure


def multiplied_reading(panels: Mapping[str, Sequence[Line]]) -> str:
    """Return the multiplier with the best mean of the first score, and the value at the smallest one."""
    title, lines = next(iter(panels.items()))
    texts = []
    for line in lines:
        means = [cell.mean for cell in line.scores]
        best = int(np.argmin(means) if title == term(RANKED_BY).title else np.argmax(means))
        texts.append(
            f"{line.style.title}: best at s = {line.s[best]:g} ({means[best]:.3f}; {means[0]:.3f} at s = {line.s[0]:g})"
        )
    return f"{title}, {'; '.join(texts)}."
