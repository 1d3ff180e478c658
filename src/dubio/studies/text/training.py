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
from dubio.reporting.charts import Rows, chart_of, method_points, method_row, panels_of, tooltips
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Figure, Section, section
from dubio.reporting.style import SHAPES, SPARE, Style
from dubio.reporting.wording import listed, number, term

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

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
        for name, title, caption, panel_of, chart, reading in (
            ("rates", "Learned dropout rates", RATES_CAPTION, rates_of, rates_chart, rates_reading),
            ("epochs", "Epoch of convergence", EPOCHS_CAPTION, epochs_of, epochs_chart, epochs_reading),
        ):
            panels = [panel for one in tasks if run.methods_of(one) and (panel := panel_of(run, one)) is not None]
            if len(panels) > several:
                title = f"{title} by task" if several else title
                yield Figure(name, title, caption, partial(chart, panels), reading=reading(panels))
        if task is not None and (multiplied := multiplied_of(run, task)):
            title, lines = "Multiplier of spectral normalisation", partial(multiplied_chart, multiplied)
            yield Figure("spectral", title, SPECTRAL_CAPTION, lines, reading=multiplied_reading(multiplied))


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
    "The drop rate each layer had learned at the best epoch: one faint line per training, the marker their mean. K1, "
    "K2, … are the inputs of the convolutions, μ and σ those of the heads that predict the logits and their noise. "
    "Methods that share their trainings are drawn once."
)
SPELT = {"mu": "μ", "sigma": "σ"}

THIRD = 240
"""Pixels of a panel, three of which stand side by side."""
WIDE, NARROW = 80, 24
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


def rates_chart(panels: Sequence[Panel]) -> Chart:
    """Return rates against layers, one panel per task."""
    import altair

    styles = _styles(panels)
    order = sorted({site for panel in panels for site in panel.sites}, key=natural)
    longest = max(sum(map(len, panel.sites)) for panel in panels)
    # Names that would overlap are slanted.
    axis = altair.Axis(labelAngle=0 if longest <= (WIDE if len(panels) == 1 else NARROW) else -45)
    chart, x = chart_of(rate_rows(panels)), altair.X("site:N", sort=order, title=None, axis=axis)
    beside = altair.XOffset("method:N", sort=[style.title for style in styles])
    shown = tooltips({"method": "method:N", "layer": "site:N", "rate": "rate:Q"})
    colour = method_points(altair.Chart(), styles).encoding.stroke
    trainings = chart.mark_tick(opacity=0.45, thickness=1, width=7, orient="horizontal").encode(
        x, altair.Y("rate:Q", title="learned drop rate"), xOffset=beside, stroke=colour, tooltip=shown
    )
    shown = tooltips({"method": "method:N", "layer": "site:N", "mean rate": "mean:Q"})
    y = altair.Y("mean:Q", title="learned drop rate")
    layers = altair.LayerChart(layer=[trainings, method_points(chart, styles, x=x, y=y, xOffset=beside, tooltip=shown)])
    if len(panels) == 1:
        return layers.properties(width="container", height=220)
    titles = [panel.title for panel in panels]
    figure = panels_of(layers, "panel", titles, columns=3, width=THIRD)
    apart: altair.FacetChart = figure.resolve_scale(x="independent", xOffset="independent")
    return apart


def rate_rows(panels: Sequence[Panel]) -> Rows:
    """Return the rate of every training at every layer, and their means."""
    rows: Rows = []
    for panel in panels:
        for style, rates in panel.methods:
            for site, values in zip(panel.sites, rates.T, strict=True):
                row, learned = {"panel": panel.title, "method": style.title, "site": site}, values[np.isfinite(values)]
                rows += [{**row, "rate": rate} for rate in learned]
                rows += [{**row, "mean": learned.mean()}] if learned.size else []
    return rows


def _styles(panels: Sequence[Panel]) -> list[Style]:
    return list({style.title: style for panel in panels for style, _ in panel.methods}.values())


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


def epochs_chart(panels: Sequence[Panel]) -> Chart:
    """Return one row per method, one panel per task."""
    import altair

    styles, chart, title = _styles(panels), chart_of(epoch_rows(panels)), "epoch of convergence"
    axis = altair.Axis(tickCount=5, tickMinStep=1, format="d", grid=False)
    x, y = altair.X("epoch:Q", title=title, scale=altair.Scale(domainMin=0), axis=axis), method_row(styles)
    colour = method_points(altair.Chart(), styles).encoding.stroke.legend(None)
    shown = tooltips({"method": "method:N", "epoch": "epoch:Q"})
    trainings = chart.mark_tick(opacity=0.45, thickness=1, height=9).encode(x, y, stroke=colour, tooltip=shown)
    spread = chart.mark_rule(strokeWidth=1.6, clip=True).encode(
        altair.X("low:Q", title=title), y, x2=altair.X2("high:Q"), stroke=colour
    )
    shown = tooltips({"method": "method:N", "mean epoch": "mean:Q", "lower": "low:Q", "upper": "high:Q"})
    means = method_points(chart, styles, x=altair.X("mean:Q", title=title), y=y, tooltip=shown)
    layers, height = altair.LayerChart(layer=[trainings, spread, means]), altair.Step(19)
    titles = [panel.title for panel in panels]
    figure = (
        layers.properties(width="container", height=height)
        if len(panels) == 1
        else panels_of(layers, "panel", titles, columns=3, height=height)
    )
    plain: Chart = figure.configure_legend(disable=True)  # the rows name the methods
    return plain


def epoch_rows(panels: Sequence[Panel]) -> Rows:
    """Return the epoch of every training, and their means with one standard deviation."""
    rows: Rows = []
    for panel in panels:
        for style, epochs in panel.methods:
            row, mean = {"panel": panel.title, "method": style.title}, float(epochs.mean())
            std = float(np.std(epochs, ddof=1)) if epochs.size > 1 else 0.0
            rows += [{**row, "epoch": epoch} for epoch in epochs]
            rows.append({**row, "mean": mean, "low": mean - std, "high": mean + std})
    return rows


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
    """One group of methods that differ in s alone: the multipliers, and the methods and scores at each."""

    style: Style
    s: tuple[float, ...]
    titles: tuple[str, ...]
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
            scored = [(s, m.title, cells[m.name]) for s, m in methods if m.name in cells and cells[m.name].n]
            if len(scored) > 1:
                panels.setdefault(title, []).append(Line(style, *zip(*scored, strict=True)))
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
    for ending in (" s =", " s=", "-s", " s", "s =", "s=", " spectral =", " spectral"):
        shared = shared.rstrip(" (,-").removesuffix(ending)
    return shared.rstrip(" (,-=") or titles[0]


def multiplied_chart(panels: Mapping[str, Sequence[Line]]) -> Chart:
    """Return one panel per score, multipliers at equal distances."""
    import altair

    styles = list({line.style.title: line.style for lines in panels.values() for line in lines}.values())
    domain, chart = [style.title for style in styles], chart_of(multiplied_rows(panels))
    multipliers = sorted({s for lines in panels.values() for line in lines for s in line.s})
    axis = altair.Axis(labelAngle=0, grid=False)
    x = altair.X("s:N", sort=[f"{s:g}" for s in multipliers], title="multiplier s", axis=axis)
    y, scale = altair.Y("mean:Q", title=None, scale=altair.Scale(zero=False)), altair.Scale(zero=False)
    colour = altair.Color("group:N", sort=None, scale=altair.Scale(domain=domain, range=[s.colour for s in styles]))
    shapes = altair.Scale(domain=domain, range=[SHAPES[style.marker] for style in styles])
    # A line joins several methods: it stays where one of them is highlighted.
    line = chart.mark_line(strokeWidth=1.8).encode(x, y, color=colour, opacity=altair.value(1))
    spread = chart.mark_rule().encode(
        x, altair.Y("low:Q", title=None, scale=scale), y2=altair.Y2("high:Q"), color=colour
    )
    shown = {"method": "method:N", "s": "s:N", "mean": "mean:Q", "lower": "low:Q", "upper": "high:Q"}
    points = chart.mark_point(filled=True, size=50).encode(
        x, y, color=colour, shape=altair.Shape("group:N", sort=None, scale=shapes), tooltip=tooltips(shown)
    )
    layers = altair.LayerChart(layer=[spread, line, points])
    figure = panels_of(layers, "panel", list(panels), columns=3, width=THIRD)
    apart: altair.FacetChart = figure.resolve_scale(y="independent")
    return apart


def multiplied_rows(panels: Mapping[str, Sequence[Line]]) -> Rows:
    """Return mean and one standard deviation of every score at every multiplier."""
    rows: Rows = []
    for panel, lines in panels.items():
        for line in lines:
            for s, title, cell in zip(line.s, line.titles, line.scores, strict=True):
                row = {"panel": panel, "group": line.style.title, "method": title, "s": f"{s:g}", "mean": cell.mean}
                rows.append({**row, "low": cell.mean - (cell.std or 0.0), "high": cell.mean + (cell.std or 0.0)})
    return rows


def multiplied_reading(panels: Mapping[str, Sequence[Line]]) -> str:
    """Return the range of the first score over multipliers and where its mean is best; no verdict on few trainings."""
    title, lines = next(iter(panels.items()))
    lower = title == term(RANKED_BY).title
    texts = []
    for line in lines:
        means = [cell.mean for cell in line.scores]
        best = int(np.argmin(means) if lower else np.argmax(means))
        texts.append(f"{line.style.title} {min(means):.3f} to {max(means):.3f}, best at s = {line.s[best]:g}")
    single = any(cell.std is None for line in lines for cell in line.scores)
    caution = " Where a multiplier was trained once, another training might reverse the order." if single else ""
    return f"{title}: {'; '.join(texts)}.{caution}"
