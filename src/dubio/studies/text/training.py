"""Training: learned dropout rates (T Fig. 16), epochs of convergence (T Fig. 17), spectral normalisation.

The multiplier of spectral normalisation is read from the recipe that was fitted, never from a method's name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.types import FloatArray
from dubio.reporting.canvas import (
    WIDTH,
    blank,
    label_below,
    label_rows,
    legend_height,
    method_legend,
    panel_title,
    small_multiples,
    styled,
)
from dubio.reporting.manifest_view import MethodView, Source, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
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
        tasks = [task] if task is not None else [each for each in run.tasks if run.methods_of(each)]
        if task is None and len(tasks) < 2:
            return
        suffix = "" if task is not None else " by task"
        rates = [panel for each in tasks if (panel := rates_of(run, each)) is not None]
        if len(rates) > (task is None):
            draw, reading = partial(rates_figure, rates), rates_reading(rates)
            narrow = task is not None
            yield Figure("rates", f"Learned dropout rates{suffix}", RATES_CAPTION, draw, narrow=narrow, reading=reading)
        epochs = [found for each in tasks if (found := epochs_of(run, each)) is not None]
        if len(epochs) > (task is None):
            draw, reading = partial(epochs_figure, epochs), epochs_reading(epochs)
            title, narrow = f"Epoch of convergence{suffix}", task is not None
            yield Figure("epochs", title, EPOCHS_CAPTION, draw, narrow=narrow, reading=reading)
        multiplied = multiplied_of(run, task) if task is not None else []
        if multiplied:
            draw, title = partial(multiplied_figure, multiplied), "Multiplier of spectral normalisation"
            yield Figure("spectral", title, SPECTRAL_CAPTION, draw, reading=multiplied_reading(multiplied))


@dataclass(frozen=True)
class FitFacts:
    """One training.

    Attributes:
        best_epoch: The epoch with the lowest validation loss, where the record has it.
        rates: Site → drop rate, where they were learned.
        spectral: The multiplier s of spectral normalisation, where there is one.
        otherwise: The recipe without that multiplier: fits with the same one differ in s alone.
    """

    best_epoch: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    spectral: float | None = None
    otherwise: str = ""


def fit_facts(run: RunView) -> dict[str, FitFacts]:
    """Return fit id → its facts, for every fit of a run."""
    fits = {fit for one in run.manifest.runs for fit in one.fits}
    return {fit: _facts(run.records.get(fit) or {}, _recipe(run.source, fit)) for fit in sorted(fits)}


def _facts(record: Mapping[str, Any], recipe: Mapping[str, Any]) -> FitFacts:
    epoch, edits = record.get("best_epoch"), recipe.get("edits") or []
    spectral = [edit["s"] for edit in edits if edit.get("part") == SPECTRAL and _is_number(edit.get("s"))]
    learned = any(edit.get("part") == LEARNED for edit in edits)
    rates = {str(site): float(rate) for site, rate in (record.get("rates") or {}).items() if _is_number(rate)}
    bare = [
        {key: value for key, value in edit.items() if key != "s"} if edit.get("part") == SPECTRAL else edit
        for edit in edits
    ]
    return FitFacts(
        best_epoch=float(epoch) if _is_number(epoch) and epoch is not None else None,
        rates=rates if learned else {},
        spectral=float(spectral[0]) if spectral else None,
        otherwise=json.dumps({**recipe, "edits": bare}, sort_keys=True),
    )


def _recipe(store: Source, fit: str) -> Mapping[str, Any]:
    """Return the recipe of a fit; empty where its specification cannot be read or has none."""
    try:
        recipe = store.spec("fits", fit).get("recipe")
    except DubioError:
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def trainings_of(run: RunView, task: TaskView) -> dict[MethodView, tuple[FitFacts, ...]]:
    """Return method → facts of its fits, every fit once, single methods before the ensembles of their fits."""
    facts, seen = fit_facts(run), set[str]()
    found: dict[MethodView, tuple[FitFacts, ...]] = {}
    for method in sorted(run.methods_of(task), key=lambda method: method.ensemble):
        runs = run.manifest.runs_of(task.key, method.name)
        fits = dict.fromkeys(fit for one in runs for fit in one.fits if fit not in seen)
        seen |= set(fits)
        known = tuple(facts[fit] for fit in fits if fit in facts)
        if known:
            found[method] = known
    return found


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


@dataclass(frozen=True)
class Rates:
    """One task: its sites and per method ``[trainings, sites]`` rates, NaN where a method has no such site."""

    title: str
    sites: tuple[str, ...]
    methods: tuple[tuple[Style, FloatArray], ...]


def rates_of(run: RunView, task: TaskView) -> Rates | None:
    """Return the learned rates of one task; None where none were learned."""
    found = {
        method: rates
        for method, fits in trainings_of(run, task).items()
        if (rates := [fit.rates for fit in fits if fit.rates])
    }
    sites = tuple(sorted({site for rates in found.values() for each in rates for site in each}, key=natural))
    if not sites:
        return None
    return Rates(
        task.key,
        tuple(SPELT.get(site, site) for site in sites),
        tuple(
            (run.styles[m.name], np.array([[each.get(site, np.nan) for site in sites] for each in rates]))
            for m, rates in found.items()
        ),
    )


def natural(site: str) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Return the sort key of a site: numbers as numbers, heads last. Records do not have the network's own order."""
    pieces = re.findall(r"(\D*)(\d*)", site)
    return site in LAST, tuple((word, int(digits or 0)) for word, digits in pieces)


@styled
def rates_figure(panels: Sequence[Rates]) -> Drawing:
    """Draw rates against layers, one panel per task."""
    styles = {style.title: style for panel in panels for style, _ in panel.methods}
    legend = legend_height(len(styles), 2)
    wide = len(panels) == 1
    figure, axes = small_multiples(len(panels), columns=3, panel_height=2.4 if wide else 2.0, extra=legend)
    if wide:
        figure.set_size_inches(5.2, 2.6 + legend)
    top = max(float(np.nanmax(rates)) for panel in panels for _, rates in panel.methods)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_rates(axis, panel)
        _name(axis, panel, width=WIDE if wide else NARROW)
        axis.set(title=panel_title(panel.title), ylim=(0.0, 1.08 * top))
    figure.supylabel("learned drop rate", fontsize=8.5)
    method_legend(figure, list(styles.values()), columns=2)
    return figure


def _draw_rates(axis: Axes, panel: Rates) -> None:
    places = np.arange(len(panel.sites), dtype=float)
    width = 0.5 / max(1, len(panel.methods))
    for order, (style, rates) in enumerate(panel.methods):
        shift = (order - (len(panel.methods) - 1) / 2) * width
        axis.plot(np.tile(places + shift, len(rates)), rates.ravel(), linestyle="none", marker="_", markersize=6,
                  color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
        known = np.isfinite(rates).any(axis=0)
        mean = np.array([np.nanmean(column) for column in rates[:, known].T])
        axis.plot(places[known] + shift, mean, zorder=3, **style.line)
    axis.set_xlim(-0.5, len(places) - 0.5)


def _name(axis: Axes, panel: Rates, *, width: int) -> None:
    """Label the layers; slanted where labels would overlap."""
    axis.set_xticks(range(len(panel.sites)), panel.sites)
    if sum(map(len, panel.sites)) > width:
        axis.tick_params(axis="x", rotation=45)
        for label in axis.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")


def rates_reading(panels: Sequence[Rates]) -> str:
    """Return the layers with the highest and lowest rate of one task, or the mean rates of several."""
    means = [np.nanmean(np.concatenate([rates for _, rates in panel.methods])) for panel in panels]
    if len(panels) > 1:
        parts = [f"{mean:.3f} on {panel.title}" for mean, panel in zip(means, panels, strict=True)]
        return f"The mean learned rate is {listed(parts)}."
    every = np.concatenate([rates for _, rates in panels[0].methods])
    layers = np.array([np.nanmean(column) for column in every.T])
    most, least, sites = int(layers.argmax()), int(layers.argmin()), panels[0].sites
    if len(sites) == 1:
        return f"The mean learned rate is {means[0]:.3f}."
    among = "In one training" if len(every) == 1 else f"Over {number(len(every))} trainings"
    return (
        f"{among} the learned rates lie between {np.nanmin(every):.3f} and {np.nanmax(every):.3f}: "
        f"highest on average at {sites[most]} ({layers[most]:.3f}), lowest at {sites[least]} ({layers[least]:.3f})."
    )


EPOCHS_CAPTION = (
    "The epoch with the lowest validation loss: one tick per training, the marker their mean, the bar one standard "
    "deviation. Methods that share their trainings are shown once."
)


@dataclass(frozen=True)
class Epochs:
    """One task: the methods with the best epoch of each of their trainings."""

    title: str
    methods: tuple[tuple[Style, FloatArray], ...]


def epochs_of(run: RunView, task: TaskView) -> Epochs | None:
    """Return the best epochs of one task; None where no record has any."""
    found = {
        method: np.array([fit.best_epoch for fit in fits if fit.best_epoch is not None])
        for method, fits in trainings_of(run, task).items()
    }
    methods = tuple((run.styles[m.name], epochs) for m, epochs in found.items() if epochs.size)
    return Epochs(task.key, methods) if methods else None


@styled
def epochs_figure(panels: Sequence[Epochs]) -> Drawing:
    """Draw one row per method, one panel per task."""
    from matplotlib.ticker import MaxNLocator

    rows = list({style.title: style for panel in panels for style, _ in panel.methods}.values())
    figure, axes = small_multiples(len(panels), columns=3, panel_height=0.22 * len(rows) + 0.55, extra=0.15)
    figure.set_size_inches(WIDTH if len(panels) > 1 else 6.2, figure.get_size_inches()[1])
    for axis, panel in zip(axes, panels, strict=True):
        places = {style.title: place for place, style in enumerate(rows)}
        for style, epochs in panel.methods:
            place, mean = places[style.title], float(epochs.mean())
            axis.plot(epochs, np.full(epochs.shape, place), linestyle="none", marker="|", markersize=7,
                      color=style.colour, alpha=0.45, markeredgewidth=1.0)  # fmt: skip
            if epochs.size > 1:
                std = float(np.std(epochs, ddof=1))
                axis.hlines(place, mean - std, mean + std, color=style.colour, linewidth=1.6)
            axis.plot([mean], [place], linestyle="none", zorder=4, **style.point)
        label_rows(axis, rows)
        axis.set_title(panel_title(panel.title))
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0].set_xlim(left=0)
    figure.supxlabel("epoch of convergence", fontsize=8.5)
    return figure


def epochs_reading(panels: Sequence[Epochs]) -> str:
    """Return the methods that converge first and last on one task, or the mean epoch of several tasks."""
    if len(panels) > 1:
        means = [float(np.concatenate([epochs for _, epochs in panel.methods]).mean()) for panel in panels]
        parts = [f"{mean:.1f} on {panel.title}" for mean, panel in zip(means, panels, strict=True)]
        return f"The mean epoch of convergence is {listed(parts)}."
    ordered = sorted(panels[0].methods, key=lambda entry: float(entry[1].mean()))
    (first, soon), (last, late) = ordered[0], ordered[-1]
    if soon.mean() == late.mean():
        return f"Every method converges in epoch {soon.mean():.1f} on average."
    return (
        f"{first.title} converges first, in epoch {soon.mean():.1f} on average, {last.title} last, in epoch "
        f"{late.mean():.1f}."
    )


SPECTRAL_CAPTION = (
    "Methods whose recipes differ in the multiplier s alone, joined by a line: the Lipschitz constant of a dense layer "
    "is at most s, that of a convolution of k positions at most √k · s. Bars are one standard deviation over runs. "
    "AUROC is that of confidence."
)


@dataclass(frozen=True, eq=False)
class Line:
    """One group of methods that differ in s alone: ``[S]`` multipliers and the values over runs at each."""

    style: Style
    s: FloatArray
    runs: tuple[FloatArray, ...]


@dataclass(frozen=True)
class Multiplied:
    """One score against s."""

    title: str
    lines: tuple[Line, ...]


def multiplied_of(run: RunView, task: TaskView) -> list[Multiplied]:
    """Return detection, accuracy and calibrated NLL against s; empty where s does not vary."""
    groups = _groups(run, task)
    area = detection_name("ood_auroc", "confidence")
    wanted = [(f"AUROC, {split.name}", split.name, area) for split in task.farthest]
    wanted += [(term(metric).title, task.in_domain.name, metric) for metric in ("accuracy", RANKED_BY)]
    found = []
    for title, split, metric in wanted:
        cells = run.scores.row(task, split, metric)
        lines = [
            Line(style, np.array([s for s, _ in known]), tuple(np.array(cells[name].values) for _, name in known))
            for style, methods in groups
            if (known := [(s, m.name) for s, m in methods if m.name in cells and cells[m.name].n]) and len(known) > 1
        ]
        if lines:
            found.append(Multiplied(title, tuple(lines)))
    return found


def _groups(run: RunView, task: TaskView) -> list[tuple[Style, list[tuple[float, MethodView]]]]:
    """Return methods with the same recipe except s, and the same members and samples, ordered by s."""
    known = fit_facts(run)
    groups: dict[tuple[str, int, int], list[tuple[float, MethodView]]] = {}
    for method in run.methods_of(task):
        runs = run.manifest.runs_of(task.key, method.name)
        facts = [known[fit] for one in runs for fit in one.fits if fit in known]
        told = {(fact.spectral, fact.otherwise) for fact in facts}
        multiplier, otherwise = told.pop() if len(told) == 1 else (None, "")
        if multiplier is not None:
            groups.setdefault((otherwise, method.members, method.samples), []).append((multiplier, method))
    varied = [sorted(each, key=lambda entry: entry[0]) for each in groups.values() if len({s for s, _ in each}) > 1]
    return [
        (Style(_common([m.title for _, m in each]), *SPARE[place % len(SPARE)], each[0][1].ensemble), each)
        for place, each in enumerate(varied)
    ]


def _common(titles: Sequence[str]) -> str:
    """Return the common beginning of titles, without the start of the part that differs."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*titles, strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip("0123456789.")
    for ending in (" s =", " s=", "-s", " s", "s =", "s="):
        shared = shared.rstrip(" (,-")
        shared = shared.removesuffix(ending)
    return shared.rstrip(" (,-=") or titles[0]


@styled
def multiplied_figure(panels: Sequence[Multiplied]) -> Drawing:
    """Draw one panel per score, multipliers at equal distances."""
    every = sorted({float(s) for panel in panels for line in panel.lines for s in line.s})
    at = {s: place for place, s in enumerate(every)}
    styles = {line.style.title: line.style for panel in panels for line in panel.lines}
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = blank(WIDTH, 2.2 * rows + legend_height(len(styles), 3) + 0.15)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    for axis, panel in zip(axes[: len(panels)], panels, strict=True):
        for line in panel.lines:
            spread = [float(np.std(values, ddof=1)) if values.size > 1 else 0.0 for values in line.runs]
            axis.errorbar([at[float(s)] for s in line.s], [float(values.mean()) for values in line.runs], yerr=spread,
                          elinewidth=0.9, capsize=0, **line.style.line)  # fmt: skip
        axis.set_title(panel_title(panel.title))
        axis.set_xticks(range(len(every)), [f"{s:g}" for s in every])
    label_below(axes[: len(panels)], columns, "multiplier s")
    method_legend(figure, list(styles.values()), columns=3)
    return figure


def multiplied_reading(panels: Sequence[Multiplied]) -> str:
    """Return the multiplier with the best mean of the first score, and the value at the smallest one."""
    panel = panels[0]
    parts = []
    for line in panel.lines:
        means = [float(values.mean()) for values in line.runs]
        best = int(np.argmin(means) if panel.title == term(RANKED_BY).title else np.argmax(means))
        parts.append(
            f"{line.style.title}: best at s = {line.s[best]:g} ({means[best]:.3f}; {means[0]:.3f} at s = {line.s[0]:g})"
        )
    return f"{panel.title}, {'; '.join(parts)}."
