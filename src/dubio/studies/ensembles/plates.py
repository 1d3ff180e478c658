"""The figures of the study, what they are called and how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dubio.reporting.manifest_view import Manifest
from dubio.reporting.plate import Plate
from dubio.reporting.results import Results
from dubio.reporting.style import Style
from dubio.studies.ensembles import told
from dubio.studies.ensembles.curves import curves_figure, tempered_figure
from dubio.studies.ensembles.orders import taces_of, tempered_order
from dubio.studies.ensembles.panels import study_looks
from dubio.studies.ensembles.rankings import reordered_figure, taces_figure
from dubio.studies.ensembles.scatters import beside_figure, beside_of
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.worths import TITLES, averaged_worths, worths_figure, worths_of

CAPTIONS = {
    "worth": "How many independently trained networks, pooled, score as well as the method with so many samples; both "
    "axes are logarithmic. Bands: the same against the curve of growing ensembles raised and lowered by its standard "
    "deviation over random orders. A deep ensemble itself is the diagonal; a method with one sample is a point. All "
    "orders end in the same ensemble, that of all {longest} networks (dashed): in the grey part, above half of them, "
    "orders share most of their networks, the bands are too narrow, and at the dashed line they are nothing. An arrow "
    "over it is more than {longest} networks; nothing is extrapolated.",
    "average": "How many independently trained networks, pooled, score as well as the method with so many samples: the "
    "mean over {tasks}. Bands: the means of the lower and of the upper bounds. A method is beyond the longest ensemble "
    "(an arrow over the dashed line) as soon as it is so on one. In the grey part, above half of the networks, bands "
    "are too narrow, since all orders end in the same ensemble.",
    "curves": "Scores of 1, 2, … samples of every method (snapshots: the latest), their probabilities averaged; lower "
    "is better. Bands are one standard deviation over runs, for deep ensembles over random orders of all networks, and "
    "then up to half of them only: beyond, orders share most of their networks, and their spread says little. A method "
    "with one sample is a point. NLL, Brier score and AURC are at cross-validated temperature.",
    "likelihood": "Left and middle share their axis: the likelihood as the method gives it and at its best "
    "temperature. Right: that temperature, the median of the cross-validated ones; above the dotted line a method is "
    "too sure of itself.",
    "order": "The same methods ranked twice, the best at the top, {samples} samples each (one network has one). In "
    "full ink those that change places with another.",
    "beside": "Every point is a method with some number of samples in one run. Left at temperature 1, right at the "
    "cross-validated one; ρ is Pearson's.",
    "tace": "Thresholded adaptive calibration error with all samples, at each method's best temperature. Below, the "
    "rank that it gives. A score whose order of methods hangs on its settings cannot rank them.",
    "pooled": "As above, for ensembles of methods: samples are taken from one member after the other.",
}
"""How each figure is read."""


def study_plates(manifest: Manifest, study: Study) -> Iterator[Plate]:
    """The figures of one task, in reading order."""
    drawn, longest = study_looks(manifest.methods, study), len(study.growth)
    lines, plain = study.chosen("network", "pool", "method"), study.chosen("network", "pool", "method", augmented=False)
    panels = [(score, worths_of(study, lines, score)) for score in TITLES]
    augmented = study.chosen("network", "pool", "method", augmented=True)
    draw, seen = partial(worths_figure, panels, drawn, longest), told.worth_words(study, augmented)
    caption = CAPTIONS["worth"].format(longest=longest)
    yield Plate("worth", "ensembles", "Deep-ensemble equivalents", caption, draw, reading=seen)
    draw, seen = partial(curves_figure, lines, drawn), told.curve_words(study, plain)
    yield Plate("curves", "ensembles", "Scores against the number of samples", CAPTIONS["curves"], draw, reading=seen)
    draw, seen = partial(tempered_figure, lines, drawn), told.temperature_words(study, plain)
    title = "Likelihood before and after temperature, against samples"
    yield Plate("likelihood", "ensembles", title, CAPTIONS["likelihood"], draw, reading=seen)
    yield from _orders(study, drawn)
    beside = beside_of(lines)
    draw, title, seen = (
        partial(beside_figure, beside, drawn),
        "Likelihood, Brier score and accuracy",
        told.beside_words(beside),
    )
    yield Plate("beside", "ensembles", title, CAPTIONS["beside"], draw, False, True, seen)
    taces = taces_of(plain)
    draw, title = partial(taces_figure, taces, drawn), "Why TACE must not rank"
    yield Plate("tace", "ensembles", title, CAPTIONS["tace"], draw, False, True, told.taces_words(taces))
    yield from _pooled(study, drawn)


def _orders(study: Study, drawn: dict[str, Style]) -> Iterator[Plate]:
    found = tempered_order(study, study.equal)
    if len(found.after) > 1:
        titles = {line.name: line.title for line in study.lines}
        draw, caption = partial(reordered_figure, found, drawn, titles), CAPTIONS["order"].format(samples=study.equal)
        seen = told.reordering_words(found, titles, study.equal)
        yield Plate("order", "ensembles", "What temperature does to the order", caption, draw, reading=seen)


def _pooled(study: Study, drawn: dict[str, Style]) -> Iterator[Plate]:
    """Ensembles of methods beside deep ensembles, where there are any."""
    pooled = study.chosen("ensemble")
    if not pooled:
        return
    lines = (*study.chosen("pool"), *pooled)
    panels = [(score, worths_of(study, lines, score)) for score in TITLES]
    draw, seen = partial(worths_figure, panels, drawn, len(study.growth)), told.worth_words(study, lines)
    title = "Deep-ensemble equivalents of ensembles of methods"
    yield Plate("worth-pooled", "ensembles", title, CAPTIONS["pooled"], draw, False, True, seen)
    draw, seen = partial(curves_figure, lines, drawn), told.curve_words(study, lines)
    title = "Ensembles of methods against the number of samples"
    yield Plate("curves-pooled", "ensembles", title, CAPTIONS["pooled"], draw, False, True, seen)


def averaged_plates(manifest: Manifest, studies: Sequence[Study]) -> Iterator[Plate]:
    """Deep-ensemble equivalents averaged over the tasks that have a study (P Fig. 3); none of fewer than two."""
    if len(studies) < 2:
        return
    first, longest = studies[0], min(len(study.growth) for study in studies)
    lines = first.chosen("network", "pool", "method")
    panels = [(score, averaged_worths(studies, lines, score)) for score in TITLES]
    if panels[0][1]:
        draw = partial(worths_figure, panels, study_looks(manifest.methods, first), longest)
        caption = CAPTIONS["average"].format(tasks=", ".join(study.task.key for study in studies))
        yield Plate("worth", "ensembles", "Deep-ensemble equivalents, averaged", caption, draw)


def every_plate(results: Results) -> Iterator[tuple[str, Plate]]:
    """All figures of the study, each with what its file's name begins with."""
    studies = list(results.studies.values())
    yield from (("ensembles", plate) for plate in averaged_plates(results.manifest, studies))
    for study in studies:
        yield from ((f"{study.task.key}-ensembles", plate) for plate in study_plates(results.manifest, study))
