"""From results to what figures are drawn from: one value a method, in the benchmark's order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dubio.core.types import FloatArray
from dubio.reporting.figures.entropies import Entropies
from dubio.reporting.figures.operating import Operating
from dubio.reporting.figures.series import CostPoint, Density, Groups, Series
from dubio.reporting.figures.worth import Worth
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.promises import KEPT
from dubio.reporting.results import DENSITY_EDGES, Results
from dubio.reporting.sketches import CORRECT, INCORRECT, shares
from dubio.reporting.style import Style, styles_of
from dubio.reporting.worth import equivalents


@dataclass(frozen=True)
class Subject:
    """What a set of figures is about: one task of a run, and the methods that have results on it."""

    results: Results
    task: TaskView

    @cached_property
    def methods(self) -> tuple[MethodView, ...]:
        """The methods drawn."""
        return self.results.methods_of(self.task)

    @cached_property
    def styles(self) -> dict[str, Style]:
        """How each is drawn."""
        return styles_of(self.results.manifest.methods)

    @property
    def home(self) -> str:
        """The in-domain test split."""
        return self.task.of_kind("id")[0].name


def curves_of(subject: Subject, name: str, x: FloatArray) -> list[Series]:
    """One kind of curve of every method; ``name`` is a field of :class:`dubio.reporting.results.RunCurves`."""
    found = []
    for method in subject.methods:
        runs = [getattr(curves, name) for curves in subject.results.curves[subject.task.key, method.name]]
        found.append(Series(subject.styles[method.name], x, np.array(runs, dtype=float)))
    return found


def random_referral(series: Series) -> Series:
    """Referral at random: the value of all examples at every fraction."""
    return Series(series.style, series.x, np.repeat(series.runs[:, -1:], len(series.x), axis=1))


def graded_of(subject: Subject, base: str, metric: str) -> list[Series]:
    """A metric of every method against the severity of one corruption, 0 being the in-domain test split."""
    graded = subject.task.severities[base]
    names = [subject.home, *(split.name for split in graded)]
    levels = np.arange(len(names), dtype=float)
    found = []
    for method in subject.methods:
        cells = [subject.results.cells.get((subject.task.key, name, method.name, metric)) for name in names]
        table = np.full((max(cell.n if cell else 0 for cell in cells), len(names)), np.nan)
        for column, cell in enumerate(cells):
            if cell is not None:
                table[: cell.n, column] = cell.values
        found.append(Series(subject.styles[method.name], levels, table))
    return found


def densities_of(subject: Subject, split: str) -> list[Density]:
    """Predictive entropy at home, right and wrong, and on another split, of every method predicted on both."""
    results, task = subject.results, subject.task
    classes = len(task.classes)
    largest = classes * np.log(2) if task.target == "multilabel" else np.log(classes)
    name = detection_name("ood_auroc", "predictive_entropy")
    found = []
    for method in subject.methods:
        sketches = [
            results.sketches.get((task.key, group, method.name, "predictive_entropy"))
            for group in (CORRECT, INCORRECT, split)
        ]
        area = results.cells.get((task.key, split, method.name, name))
        if sketches[0] is not None and sketches[2] is not None and area is not None:
            spread = "" if area.std is None else f" ± {area.std:.3f}"
            groups = [
                np.zeros(len(DENSITY_EDGES) - 1) if each is None else shares(each / largest, DENSITY_EDGES)
                for each in sketches
            ]
            note = f"AUROC {area.mean:.3f}{spread}"
            found.append(Density(subject.styles[method.name], DENSITY_EDGES, Groups(*groups), note))
    return found


def operating_of(subject: Subject) -> list[Operating]:
    """The curve of each method's first run, and where its policy works on it."""
    found = []
    for method in subject.methods:
        promise = subject.results.promises.get(subject.task.key, {}).get(method.name)
        if promise is None:
            continue
        home = promise.home
        point = (home.retained, home.error) if home is not None and home.error is not None else None
        note = f"keeps {home.retained:.0%}" if home is not None else "no guarantee"
        interval = home.interval if home is not None else None
        found.append(Operating(subject.styles[method.name], KEPT, promise.curve, point, interval, note))
    return found


def entropies_of(subject: Subject) -> list[Entropies]:
    """The parts of predictive entropy at home and at every place away from it, of the methods predicted on all."""
    found, key = subject.results.entropies, subject.task.key
    graded = {splits[-1].name: base for base, splits in subject.task.severities.items()}
    names = [subject.home, *(split.name for split in subject.task.farthest)]
    whole = [m.name for m in subject.methods if all((key, name, m.name) in found for name in names)]
    drawn = tuple(subject.styles[name] for name in whole)
    titles = ["in-domain", *(f"{graded[name]}, at its worst" if name in graded else name for name in names[1:])]
    if not whole:
        return []
    return [
        Entropies(title, drawn, np.array([found[key, name, method] for method in whole]))
        for title, name in zip(titles, names, strict=True)
    ]


def worth_of(subject: Subject) -> list[Worth]:
    """The deep-ensemble equivalent of every method; empty without a deep ensemble."""
    curve = subject.results.growth.get(subject.task.key)
    if curve is None:
        return []
    found = equivalents(curve, subject.results.cells_of(subject.task, subject.home, RANKED_BY))
    return [Worth(subject.styles[m.name], found[m.name]) for m in subject.methods if m.name in found]


def costs_of(subject: Subject) -> list[CostPoint]:
    """Training seconds and the ranking metric of every method for which both are known."""
    quality = subject.results.cells_of(subject.task, subject.home, RANKED_BY)
    found = []
    for method in subject.methods:
        cost, cell = subject.results.costs.get((subject.task.key, method.name)), quality.get(method.name)
        if cost is None or cell is None or not cost.training_seconds.n or not np.isfinite(cell.mean):
            continue
        if cost.training_seconds.mean > 0:
            found.append(CostPoint(subject.styles[method.name], cost.training_seconds.mean, np.array(cell.values)))
    return found
