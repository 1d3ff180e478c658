"""Which figures screening has, split by split, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dubio.metrics.decisions import REFERABLE
from dubio.reporting.canvas import Series
from dubio.reporting.manifest_view import MethodView, TaskView
from dubio.reporting.measures import RETAINED
from dubio.reporting.plate import Plate, slug_of
from dubio.reporting.results import Results
from dubio.reporting.sections.referral import referral_figure
from dubio.reporting.style import Style
from dubio.studies.retina.drawing import Cloud, certainty_figure, excess_figure, roc_figure
from dubio.studies.retina.found import FALSE_ALARMS, ROC_AT, Screening
from dubio.studies.retina.subgroups import facts_of, part_title, parts_of_fact

CAPTIONS = {
    "referral": "As above, for examples from elsewhere: what is retained when the most uncertain are referred. Bands "
    "are one standard deviation over runs; dotted, referral at random. ",
    "no-auc": "There is no curve of AUC: {why}. ",
    "roc": "Sensitivity and specificity of the examples retained, the most uncertain referred; mean over runs of the "
    "highest sensitivity at every rate of false alarms. A curve that passes through the shaded corner has a threshold "
    "that meets what the NHS asks of screening for diabetic retinopathy; that threshold is chosen with the labels in "
    "view, so that it says what could be reached.",
    "certainty": "All runs together, in bins of the probability; the area of a dot is its share of examples. A useful "
    "uncertainty has its errors near the middle, far from the line of zero entropy; dots low on the wrong side are "
    "errors that no referral by entropy finds. Beside the name, mean entropy of the right and of the wrong.",
    "subgroups": "Mean over runs, with the 95 % interval from resampling the groups within each part. Parts that are "
    "too small to be believed are in the table alone.",
}


@dataclass(frozen=True)
class Subject:
    """One task of a run, and the methods that have results on it."""

    results: Results
    task: TaskView

    @property
    def methods(self) -> tuple[MethodView, ...]:
        """The methods drawn."""
        return self.results.methods_of(self.task)

    @property
    def styles(self) -> dict[str, Style]:
        """Method → how it is drawn."""
        return self.results.report.run.styles

    @property
    def home(self) -> str:
        """The in-domain test split."""
        return self.task.in_domain.name


def screening_plates(results: Results, task: TaskView) -> Iterator[Plate]:
    """The figures of one task; none where it is not two-sided and has no subgroups."""
    subject = Subject(results, task)
    found = results.screening.get(task.key)
    if found is None:
        return
    for split in found.splits:
        if split != subject.home:
            yield _referral(subject, found, split)
        if not found.undefined(split):
            yield from _roc(subject, found, split)
        yield _certainty(subject, found, split)
    yield from _subgroups(subject)


def on_split(kind: str, split: str) -> str:
    """What a figure's file is called."""
    return f"{kind}-{slug_of(split)}"


def _referral(subject: Subject, found: Screening, split: str) -> Plate:
    methods = [method for method in subject.methods if (split, method.name) in found.retained]
    accuracy = [_series(subject, found, split, method.name, "accuracy") for method in methods]
    why = found.undefined(split)
    area = [] if why else [_series(subject, found, split, method.name, "auc") for method in methods]
    names, reference = [method.name for method in methods], subject.results.manifest.reference(subject.task)
    at = names.index(reference) if reference in names else 0
    draw = partial(referral_figure, accuracy, area, reference=at)
    caption = CAPTIONS["referral"] + (CAPTIONS["no-auc"].format(why=why) if why else "")
    return Plate(on_split("referral", split), "screening", f"Referral on {split}", caption.strip(), draw)


def _series(subject: Subject, found: Screening, split: str, method: str, name: str) -> Series:
    runs = np.array([getattr(run, name) for run in found.retained[split, method]], dtype=float)
    return Series(subject.styles[method], RETAINED, runs)


def _roc(subject: Subject, found: Screening, split: str) -> Iterator[Plate]:
    panels = {}
    for fraction in ROC_AT:
        curves = []
        for method in subject.methods:
            runs = [run.roc[fraction] for run in found.retained.get((split, method.name), ()) if fraction in run.roc]
            if runs:
                curves.append(Series(subject.styles[method.name], FALSE_ALARMS, np.array(runs)))
        if curves:
            panels[fraction] = curves
    if panels:
        title, draw = f"ROC curves of the retained on {split}", partial(roc_figure, panels)
        yield Plate(on_split("roc", split), "screening", title, CAPTIONS["roc"], draw, narrow=len(panels) == 1)


def positive_of(task: TaskView) -> str:
    """What the positive side of a task is called."""
    return f"grade {REFERABLE} or more" if task.target == "ordinal" and len(task.classes) > 2 else task.classes[1]


def _certainty(subject: Subject, found: Screening, split: str) -> Plate:
    clouds = [
        Cloud(subject.styles[m.name], np.sum([run.cloud for run in found.retained[split, m.name]], axis=0))
        for m in subject.methods
        if (split, m.name) in found.retained
    ]
    title = f"Predictive entropy of the right and the wrong on {split}"
    draw = partial(certainty_figure, clouds, positive=positive_of(subject.task))
    away = split != subject.home
    return Plate(on_split("certainty", split), "screening", title, CAPTIONS["certainty"], draw, len(clouds) < 3, away)


def _subgroups(subject: Subject) -> Iterator[Plate]:
    for fact in facts_of(subject.results, subject.task):
        found = parts_of_fact(subject.results, subject.task, fact)
        parts = {part_title(part, first): each for part, each in found.items()
                 if not (first := next(iter(each.values()))).underpowered}  # fmt: skip
        if not parts:
            continue
        styles = {m.name: subject.styles[m.name] for m in subject.methods}
        draw = partial(excess_figure, parts, styles)
        title = f"Excess of confidence by {fact}"
        yield Plate(on_split("subgroups", fact), "screening", title, CAPTIONS["subgroups"], draw)
