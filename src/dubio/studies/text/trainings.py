"""Single trainings by the method they are of: every fit once, under the first method that draws from it."""

from __future__ import annotations

from dubio.reporting.figures.drawn_from import Subject
from dubio.reporting.fits import FitFacts
from dubio.reporting.manifest_view import MethodView


def trainings_of(subject: Subject) -> dict[MethodView, tuple[FitFacts, ...]]:
    """Method → what is known of its fits; single methods come before the ensembles that share their fits."""
    seen: set[str] = set()
    found: dict[MethodView, tuple[FitFacts, ...]] = {}
    for method in sorted(subject.methods, key=lambda method: method.ensemble):
        runs = subject.results.manifest.runs_of(subject.task.key, method.name)
        fits = dict.fromkeys(fit for run in runs for fit in run.fits if fit not in seen)
        seen |= set(fits)
        known = tuple(subject.results.fits[fit] for fit in fits if fit in subject.results.fits)
        if known:
            found[method] = known
    return found
