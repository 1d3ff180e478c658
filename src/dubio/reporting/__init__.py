"""Reports: tables, figures and one self-contained web page, from stored predictions alone.

Scoring reads every prediction once; :func:`score_run` does it, and the functions below take what it gives so that a
table, a page and a set of figures cost one reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio.core.errors import MissingExtra, one_of
from dubio.reporting.aggregate import Score
from dubio.reporting.manifest import Source
from dubio.reporting.results import Results
from dubio.reporting.scores import score_run

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Results", "Source", "score_run", "terminal_table", "with_as_published", "write_figures", "write_report"]

PAGE = "report.html"
TABLE = "results.csv"


def with_as_published(store: Source, results: Results) -> Results:
    """The same results with the published definitions that are mistaken, for a part of the report of their own.

    Args:
        store: Where the predictions are.
        results: What :func:`score_run` gave.
    """
    from dubio.reporting.as_published import score_as_published

    return replace(results, as_published=score_as_published(store, results.manifest))


def terminal_table(store: Source, manifest: Mapping[str, Any], *, results: Results | None = None) -> RenderableType:
    """The tables and sentences a terminal shows, as something rich can print.

    Args:
        store: Where the predictions are.
        manifest: The benchmark run.
        results: What :func:`score_run` gave for the same run, to save scoring it again.
    """
    from dubio.reporting.tables import results_table

    return results_table(results or score_run(store, manifest))


def write_report(store: Source, manifest: Mapping[str, Any], out_dir: Path, *, results: Results | None = None) -> Path:
    """Write ``report.html`` and ``results.csv``, and ``tables/`` of a study; each is there whole or not at all.

    Args:
        store: Where the predictions are.
        manifest: The benchmark run.
        out_dir: Made where it is not there.
        results: What :func:`score_run` gave for the same run, to save scoring it again.

    Returns:
        The path of the page.

    Raises:
        MissingExtra: Without jinja2 and matplotlib.
    """
    _need("jinja2", "writing the report")
    _need("matplotlib", "writing the report")
    from dubio.core.files import write_file
    from dubio.reporting.ensembles.tables import table_files
    from dubio.reporting.page import render
    from dubio.reporting.tables import results_csv

    found = results or score_run(store, manifest)
    write_file(out_dir / TABLE, results_csv(_every_score(found)))
    for name, content in table_files(list(found.studies.values())).items():
        write_file(out_dir / "tables" / name, content)
    return write_file(out_dir / PAGE, render(found))


def write_figures(
    store: Source,
    manifest: Mapping[str, Any],
    out_dir: Path,
    formats: Sequence[str] = ("png", "svg", "pdf"),
    *,
    results: Results | None = None,
) -> tuple[Path, ...]:
    """Write every figure of a run for use in papers, as ``<task>-<figure>.<format>``, those over tasks as ``across-…``.

    Args:
        store: Where the predictions are.
        manifest: The benchmark run.
        out_dir: Made where it is not there.
        formats: Among png, svg and pdf.
        results: What :func:`score_run` gave for the same run, to save scoring it again.

    Returns:
        The files written.

    Raises:
        UnknownName: For another format.
        MissingExtra: Without matplotlib.
    """
    _need("matplotlib", "drawing figures")
    from dubio.core.files import write_file
    from dubio.reporting.ensembles.plates import every_plate
    from dubio.reporting.figures.canvas import FORMATS, save
    from dubio.reporting.figures.catalogue import plates, plates_across
    from dubio.reporting.files import file_name

    wanted = [one_of("format", kind, FORMATS) for kind in formats]
    found = results or score_run(store, manifest)
    written = []
    drawn = [(file_name(task.key), plate) for task in found.manifest.tasks for plate in plates(found, task)]
    drawn += [("across", plate) for plate in plates_across(found)]
    drawn += [(file_name(name), plate) for name, plate in every_plate(found)]
    for name, plate in drawn:
        figure = plate.draw()
        for kind in wanted:
            written.append(write_file(out_dir / f"{name}-{file_name(plate.slug)}.{kind}", save(figure, kind)))
    return tuple(written)


def _every_score(results: Results) -> list[Score]:
    """All scores once; of published definitions those that are not scored anyway."""
    known = {(score.task, score.split, score.metric) for score in results.scores}
    extra = [score for score in results.as_published if (score.task, score.split, score.metric) not in known]
    return [*results.scores, *extra]


def _need(module: str, what: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtra(what, "report")
