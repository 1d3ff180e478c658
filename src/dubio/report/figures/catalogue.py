"""Which figures a task has, what they are called and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from matplotlib.figure import Figure

from dubio.report.chapters import Elsewhere, elsewhere
from dubio.report.figures.densities import densities_figure
from dubio.report.figures.drawn_from import (
    Subject,
    costs_of,
    curves_of,
    densities_of,
    graded_of,
    random_referral,
    reliability_of,
    spreads_of,
)
from dubio.report.figures.quality import cost_figure, ranking_figure
from dubio.report.figures.referral import referral_figure, rejection_figure
from dubio.report.figures.reliability import reliability_figure
from dubio.report.figures.severity import severity_figure
from dubio.report.manifest import TaskView
from dubio.report.measures import RANKED_BY
from dubio.report.results import BINS, REJECTED, RETAINED, Results
from dubio.report.scores import reference_method
from dubio.report.words import term

Chapter = Literal["in_domain", "referral", "elsewhere", "cost"]

CAPTIONS = {
    "ranking": "Lower is better. Every tick is one run, the marker their mean, the bar one standard deviation. In bold "
    "the best mean; in full ink those that cannot be told from it; the rest is grey.",
    "reliability": f"Accuracy against confidence in {BINS} bins, all runs together; the area of a dot is its share of "
    "predictions. Below the diagonal: surer than right. It shows one method's calibration; it does not rank methods.",
    "referral": "What is retained when the most uncertain examples, by predictive entropy, go to someone who knows. "
    "Read from left to right: more and more is referred. Bands are one standard deviation over runs. Dotted: examples "
    "referred at random, the control that any useful uncertainty must beat.",
    "rejection": "Accuracy of the kept as more and more examples are rejected, least confident first, by number and "
    "not by threshold, so that methods are compared at the same number kept.",
    "density": "Share of examples per bin of predictive entropy, divided by its largest value, averaged over runs; the "
    "vertical axis is a square root. The less the two overlap, the better a threshold parts them.",
    "severity": "Severity 0 is the in-domain test set. Bars are one standard deviation over runs. NLL is shown at "
    "temperature 1: nobody refits a temperature when inputs turn bad.",
    "cost": "Seconds of training for everything one run of the method needs, on a logarithmic axis; bars are one "
    "standard deviation over runs. The better corner is the lower left.",
}


@dataclass(frozen=True)
class Plate:
    """A figure that can be drawn.

    Attributes:
        slug: What its file is called, after the task.
        chapter: Where it belongs.
        title: What it is.
        caption: How to read it.
        draw: Draws it.
        narrow: Whether it is less wide than the text.
        folded: Whether a page shows it only when asked.
    """

    slug: str
    chapter: Chapter
    title: str
    caption: str
    draw: Callable[[], Figure]
    narrow: bool = False
    folded: bool = False


def plates(results: Results, task: TaskView) -> Iterator[Plate]:
    """The figures of one task, in reading order; none where no run came to its end."""
    subject = Subject(results, task)
    if not subject.methods:
        return
    few = len(subject.methods) < 3
    label = f"{term(RANKED_BY).title} (lower is better)"
    spreads, points = spreads_of(subject), costs_of(subject)
    if spreads:
        title, draw = f"{term(RANKED_BY).title} of each method", partial(ranking_figure, spreads, label=label)
        yield Plate("ranking", "in_domain", title, CAPTIONS["ranking"], draw)
    draw = partial(reliability_figure, reliability_of(subject))
    yield Plate("reliability", "in_domain", "Reliability", CAPTIONS["reliability"], draw, narrow=few)
    yield _referral(subject)
    draw = partial(rejection_figure, curves_of(subject, "rejection", REJECTED))
    yield Plate("rejection", "referral", "Accuracy and rejection", CAPTIONS["rejection"], draw)
    yield from (plate for place in elsewhere(task) for plate in _density(subject, place))
    if task.severities:
        yield _severity(subject)
    if points:
        draw = partial(cost_figure, points, cost="training, seconds", quality=label)
        yield Plate("cost", "cost", "Quality against cost", CAPTIONS["cost"], draw)


def _referral(subject: Subject) -> Plate:
    names = [method.name for method in subject.methods]
    reference = reference_method(subject.results.manifest, subject.task)
    at = names.index(reference) if reference in names else 0
    accuracy = curves_of(subject, "referral_accuracy", RETAINED)
    area = curves_of(subject, "referral_auc", RETAINED) if subject.task.binary else []
    draw = partial(
        referral_figure,
        accuracy,
        area,
        random_accuracy=random_referral(accuracy[at]),
        random_area=random_referral(area[at]) if area else None,
    )
    return Plate("referral", "referral", "Referral", CAPTIONS["referral"], draw)


def _density(subject: Subject, place: Elsewhere) -> Iterator[Plate]:
    """Of a corruption, its worst severity."""
    graded = len(place.splits) > 1
    called = f"{place.title}, severity {len(place.splits)}" if graded else place.title
    panels = densities_of(subject, place.splits[-1])
    if panels:
        slug = "".join(letter if letter.isalnum() else "-" for letter in place.title)
        draw = partial(densities_figure, panels, quantity="predictive entropy / its maximum", outside=called)
        title = f"Predictive entropy at home and on {called}"
        yield Plate(f"density-{slug}", "elsewhere", title, CAPTIONS["density"], draw, len(panels) < 3, graded)


def _severity(subject: Subject) -> Plate:
    graded = subject.task.severities
    accuracy = {base: graded_of(subject, base, "accuracy") for base in graded}
    nll = {base: graded_of(subject, base, "nll") for base in graded}
    title, narrow = "Accuracy and NLL as inputs get worse", len(graded) == 1
    return Plate("severity", "elsewhere", title, CAPTIONS["severity"], partial(severity_figure, accuracy, nll), narrow)
