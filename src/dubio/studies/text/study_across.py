"""Tasks side by side: learned rates, convergence, correlations, likelihoods, shifts, and networks that share a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.plate import Plate, slug_of
from dubio.reporting.results import Results
from dubio.studies.text import architectures, correlations, epochs, likelihoods, rates, transfer
from dubio.studies.text.clouds import clouds_figure, common_frame


def across_tasks(results: Results) -> Iterator[Plate]:
    """What takes two tasks at least: what one task has alone stands with that task."""
    subjects = [Subject(results, task) for task in results.manifest.tasks if results.methods_of(task)]
    yield from _architectures(results)
    if len(subjects) > 1:
        yield from _likelihoods(subjects)
        yield from _shifts(subjects)
        yield from _correlations(subjects)
        yield from _rates(subjects)
        yield from _epochs(subjects)


def _architectures(results: Results) -> Iterator[Plate]:
    for found in architectures.architectures_of(results):
        title, slug = f"{found.task}: {' against '.join(found.networks)}", f"networks-{slug_of(found.task)}"
        draw, seen = partial(architectures.architectures_figure, found), architectures.architectures_reading(found)
        yield Plate(slug, "across", title, architectures.CAPTION, draw, reading=seen)


def _likelihoods(subjects: Sequence[Subject]) -> Iterator[Plate]:
    panels = [cloud for subject in subjects if (cloud := likelihoods.likelihoods_of(subject)) is not None]
    if len(panels) > 1:
        draw = partial(clouds_figure, panels, x="NLL", y="calibrated NLL", diagonal="no change")
        seen = likelihoods.likelihoods_reading(panels)
        yield Plate("likelihood", "across", "NLL and calibrated NLL", likelihoods.CAPTION, draw, reading=seen)


def _shifts(subjects: Sequence[Subject]) -> Iterator[Plate]:
    panels = [cloud for subject in subjects for cloud in transfer.transfer_of(subject)]
    if len({panel.title.partition(" → ")[0] for panel in panels}) > 1:
        axes = {"x": "accuracy on the shifted test set", "y": "AUROC"}
        draw = partial(clouds_figure, panels, frame=common_frame(panels), **axes)
        title, seen = "Detection and accuracy over all shifts", transfer.transfer_reading(panels)
        yield Plate("transfer", "across", title, transfer.CAPTION, draw, reading=seen)


def _correlations(subjects: Sequence[Subject]) -> Iterator[Plate]:
    heat = correlations.correlations_across(subjects)
    if heat is not None and len(heat.rows) > 1:
        draw, seen = partial(correlations.heat_figure, heat), correlations.correlations_reading(heat)
        title = "Uncertainties and being foreign, everywhere"
        yield Plate("correlation", "across", title, correlations.ACROSS, draw, reading=seen)


def _rates(subjects: Sequence[Subject]) -> Iterator[Plate]:
    panels = [found for subject in subjects if (found := rates.rates_of(subject)) is not None]
    if len(panels) > 1:
        draw, seen = partial(rates.rates_figure, panels), rates.rates_reading(panels)
        yield Plate("rates", "across", "Learned dropout rates by task", rates.CAPTION, draw, reading=seen)


def _epochs(subjects: Sequence[Subject]) -> Iterator[Plate]:
    panels = [found for subject in subjects if (found := epochs.epochs_of(subject)) is not None]
    if len(panels) > 1:
        draw, seen = partial(epochs.epochs_figure, panels), epochs.epochs_reading(panels)
        yield Plate("epochs", "across", "Epoch of convergence by task", epochs.CAPTION, draw, reading=seen)
