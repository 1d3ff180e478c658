"""Which figures a task has, what they are called and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dubio.reporting.across import ranking_words, rankings_of
from dubio.reporting.cd_diagram import draw_cd_diagram
from dubio.reporting.chapters import Elsewhere, elsewhere
from dubio.reporting.figures.densities import densities_figure, densities_reading
from dubio.reporting.figures.drawn_from import (
    Subject,
    costs_of,
    curves_of,
    densities_of,
    entropies_of,
    graded_of,
    operating_of,
    random_referral,
    worth_of,
)
from dubio.reporting.figures.entropies import entropies_figure
from dubio.reporting.figures.operating import operating_figure
from dubio.reporting.figures.quality import cost_figure
from dubio.reporting.figures.referral import referral_figure, rejection_figure
from dubio.reporting.figures.severities import severity_plates
from dubio.reporting.figures.severity import severity_figure
from dubio.reporting.figures.worth import worth_figure
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.plate import Chapter, Plate, slug_of
from dubio.reporting.results import REJECTED, RETAINED, Results
from dubio.reporting.wording import term
from dubio.studies.retina.plates import screening_plates
from dubio.studies.text.study import (
    converged,
    detected,
    learned,
    multiplied,
    ridged,
    sized,
    spread_out,
    transferred,
)
from dubio.studies.text.study_across import across_tasks

__all__ = ["Chapter", "Plate", "plates", "plates_across"]

RANKED_LABEL = f"{term(RANKED_BY).title} (lower is better)"

CAPTIONS = {
    "worth": "How many independently trained deterministic networks, pooled, have the calibrated NLL of the method. "
    "Bars: the same against the curve of growing ensembles raised and lowered by its standard deviation over random "
    "orders. {longest} networks were trained; what is better than all of them together is worth more than {longest}, "
    "and how much more is not guessed. What is worse than one network is worth 1.",
    "referral": "What is retained when the most uncertain examples, by predictive entropy, go to someone who knows. "
    "Read from left to right: more and more is referred. Bands are one standard deviation over runs. Dotted: examples "
    "referred at random, the control that any useful uncertainty must beat.",
    "rejection": "Accuracy of the kept as more and more examples are rejected, least confident first, by number and "
    "not by threshold, so that methods are compared at the same number kept.",
    "operating": "Curve: the error among the kept on the in-domain test set when the most uncertain are referred, for "
    "the first run of each method. Dotted: the error that was promised. Marker: where the policy that was fitted on "
    "examples kept aside works on the test set, with the 95 % interval of its error. A promise of 90 % "
    "confidence may fail one time in ten.",
    "entropy": "Mean over examples and runs. Predictive entropy is the sum of what every sample is uncertain about by "
    "itself and of what the samples, or members, disagree on; a single pass has no second part. Away from home the "
    "second should grow. It describes methods and ranks none.",
    "ranks": "Methods on a line of mean ranks over test sets, the best at the left; bars join those that are not told "
    "apart (Nemenyi, 5 %).",
    "density": "Share of examples per bin of predictive entropy, divided by its largest value, all runs together; the "
    "vertical axis is a square root. The less the filled hills overlap, the better a threshold parts what is answered "
    "rightly from what is foreign; dashed, the in-domain examples that are answered wrongly.",
    "severity": "Severity 0 is the in-domain test set. Bars are one standard deviation over runs. NLL is shown at "
    "temperature 1: nobody refits a temperature when inputs turn bad.",
    "cost": "Seconds of training for everything one run of the method needs, on a logarithmic axis; bars are one "
    "standard deviation over runs. The better corner is the lower left.",
}


def plates(results: Results, task: TaskView) -> Iterator[Plate]:
    """The figures of one task, in reading order; none where no run came to its end."""
    subject = Subject(results, task)
    if not subject.methods:
        return
    yield from _in_domain(subject)
    yield _referral(subject)
    draw = partial(rejection_figure, curves_of(subject, "rejection", REJECTED))
    yield Plate("rejection", "referral", "Accuracy and rejection", CAPTIONS["rejection"], draw)
    yield from screening_plates(subject)
    yield from _operating(subject)
    yield from _away(subject)
    points = costs_of(subject)
    if points:
        draw = partial(cost_figure, points, cost="training, seconds", quality=RANKED_LABEL)
        yield Plate("cost", "cost", "Quality against cost", CAPTIONS["cost"], draw)
    yield from converged(subject)


def plates_across(results: Results) -> Iterator[Plate]:
    """The figures of a whole run: mean ranks over test sets, where there are enough of both, and tasks side by side."""
    for ranking in rankings_of(results):
        found = ranking.comparison
        draw = partial(draw_cd_diagram, found.average_ranks, found.critical_difference, found.cliques)
        title, seen = f"Mean ranks by {ranking.title}", ranking_words(ranking)
        yield Plate(ranking.slug, "across", title, CAPTIONS["ranks"], draw, reading=seen)
    yield from across_tasks(results)


def _in_domain(subject: Subject) -> Iterator[Plate]:
    worth = worth_of(subject)
    if worth:
        longest = worth[0].range.central.longest
        draw, caption = partial(worth_figure, worth, longest=longest), CAPTIONS["worth"].format(longest=longest)
        yield Plate("worth", "in_domain", "Deep-ensemble equivalent", caption, draw)
    yield from (*spread_out(subject), *sized(subject), *learned(subject), *multiplied(subject))


def _operating(subject: Subject) -> Iterator[Plate]:
    panels = operating_of(subject)
    if any(panel.point for panel in panels):
        target = next(iter(subject.results.promises[subject.task.key].values())).target
        draw, few = partial(operating_figure, panels, target=target), len(panels) < 3
        yield Plate("operating", "promise", "Where each policy works", CAPTIONS["operating"], draw, narrow=few)


def _away(subject: Subject) -> Iterator[Plate]:
    places = [place for place in elsewhere(subject.task) if len(place.splits) == 1 or not subject.task.many_corruptions]
    yield from (plate for place in places for plate in _density(subject, place))
    yield from (*ridged(subject), *detected(subject), *transferred(subject))
    panels = entropies_of(subject) if subject.task.farthest else []
    if panels:
        title, draw = "Predictive entropy and its two parts", partial(entropies_figure, panels)
        yield Plate("entropy", "elsewhere", title, CAPTIONS["entropy"], draw, narrow=len(panels) < 3)
    if subject.task.many_corruptions:
        yield from severity_plates(subject)
    elif subject.task.severities:
        yield _severity(subject)


def _referral(subject: Subject) -> Plate:
    names = [method.name for method in subject.methods]
    reference = subject.results.manifest.reference(subject.task)
    at = names.index(reference) if reference in names else 0
    accuracy = curves_of(subject, "referral_accuracy", RETAINED)
    area = curves_of(subject, "referral_auc", RETAINED) if subject.task.screened else []
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
        seen = densities_reading(panels)
        draw = partial(densities_figure, panels, quantity="predictive entropy / its maximum", outside=called)
        title = f"Predictive entropy at home and on {called}"
        slug, few = f"density-{slug_of(place.title)}", len(panels) < 3
        yield Plate(slug, "elsewhere", title, CAPTIONS["density"], draw, few, graded, seen)


def _severity(subject: Subject) -> Plate:
    graded = subject.task.severities
    accuracy = {base: graded_of(subject, base, "accuracy") for base in graded}
    nll = {base: graded_of(subject, base, "nll") for base in graded}
    title, narrow = "Accuracy and NLL as inputs get worse", len(graded) == 1
    return Plate("severity", "elsewhere", title, CAPTIONS["severity"], partial(severity_figure, accuracy, nll), narrow)
