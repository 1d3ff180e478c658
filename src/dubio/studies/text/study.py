"""The figures that look behind the scores of one task: diversity, size, learned rates, detection by every quantity."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dubio.reporting.figures import growing, ridges
from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.manifest_view import SplitView
from dubio.reporting.plate import Plate, slug_of
from dubio.studies.text import correlations, diversity, epochs, rates, spectral, transfer
from dubio.studies.text.clouds import clouds_figure, common_frame


def spread_out(subject: Subject) -> Iterator[Plate]:
    """Accuracy against diversity."""
    cloud = diversity.diversity_of(subject)
    if cloud is not None:
        draw = partial(clouds_figure, [cloud], x="diversity (mean KL from the pooled prediction, nats)", y="accuracy")
        seen = diversity.diversity_reading(cloud)
        yield Plate("diversity", "in_domain", "Accuracy and diversity", diversity.CAPTION, draw, reading=seen)


def sized(subject: Subject) -> Iterator[Plate]:
    """Scores against the number of members."""
    panels = growing.sized_of(subject)
    if panels:
        draw, seen = partial(growing.sized_figure, panels), growing.sized_reading(panels)
        yield Plate("size", "in_domain", "Ensemble size", growing.CAPTION, draw, reading=seen)


def learned(subject: Subject) -> Iterator[Plate]:
    """The dropout rates of layers that learned them."""
    found = rates.rates_of(subject)
    if found is not None:
        draw, seen = partial(rates.rates_figure, [found]), rates.rates_reading([found])
        yield Plate("rates", "in_domain", "Learned dropout rates", rates.CAPTION, draw, True, reading=seen)


def multiplied(subject: Subject) -> Iterator[Plate]:
    """Scores against the multiplier of spectral normalisation."""
    panels = spectral.multiplied_of(subject)
    if panels:
        draw, seen = partial(spectral.multiplied_figure, panels), spectral.multiplied_reading(panels)
        title = "The multiplier of spectral normalisation"
        yield Plate("spectral", "in_domain", title, spectral.CAPTION, draw, reading=seen)


def converged(subject: Subject) -> Iterator[Plate]:
    """The epoch of convergence."""
    found = epochs.epochs_of(subject)
    if found is not None:
        draw, seen = partial(epochs.epochs_figure, [found]), epochs.epochs_reading([found])
        yield Plate("epochs", "cost", "Epoch of convergence", epochs.CAPTION, draw, True, reading=seen)


def ridged(subject: Subject) -> Iterator[Plate]:
    """Densities of every uncertainty, for novel classes where there are any, else for every shifted test set."""
    for split in _telling(subject):
        found = ridges.ridges_of(subject, split.name)
        if found:
            draw, title = partial(ridges.ridges_figure, found, outside=split.name), f"Every uncertainty on {split.name}"
            caption, seen = ridges.CAPTION.format(outside=split.name), ridges.ridges_reading(found)
            yield Plate(f"ridges-{slug_of(split.name)}", "elsewhere", title, caption, draw, False, True, seen)


def detected(subject: Subject) -> Iterator[Plate]:
    """Signed correlations of every quantity; the first place is shown, the others when asked."""
    for order, split in enumerate(_telling(subject)):
        heat = correlations.correlations_of(subject, split.name)
        if heat is not None:
            title, slug = f"Uncertainties and being foreign: {split.name}", f"correlation-{slug_of(split.name)}"
            draw, seen = partial(correlations.heat_figure, heat), correlations.correlations_reading(heat)
            caption = correlations.CAPTION.format(place=split.name)
            yield Plate(slug, "elsewhere", title, caption, draw, False, order > 0, seen)


def transferred(subject: Subject) -> Iterator[Plate]:
    """Detection against accuracy under shift."""
    panels = transfer.transfer_of(subject)
    if panels:
        draw = partial(
            clouds_figure, panels, x="accuracy on the shifted test set", y="AUROC", frame=common_frame(panels)
        )
        title, seen = "Detection and accuracy under shift", transfer.transfer_reading(panels)
        yield Plate("transfer", "elsewhere", title, transfer.CAPTION, draw, reading=seen)


def _telling(subject: Subject) -> tuple[SplitView, ...]:
    """The sets of novel classes, or, without any, one shifted test set a place."""
    return subject.task.of_kind("ood") or subject.task.farthest
