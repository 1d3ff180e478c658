"""Reports: tables, figures and one self-contained web page, from stored predictions alone.

:func:`build_report` reads every prediction once; the other functions write what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dubio.core.errors import MissingExtra, one_of
from dubio.reporting.build import Report, build_report
from dubio.reporting.manifest_view import Source

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Report", "Source", "build_report", "terminal_table", "write_figures", "write_report"]

PAGE = "report.html"
TABLE = "results.csv"


def terminal_table(report: Report) -> RenderableType:
    """Return the tables and sentences that a terminal shows, as something rich can print."""
    from dubio.reporting.terminal import results_table

    return results_table(report)


def write_report(report: Report, out_dir: Path) -> Path:
    """Write ``report.html``, ``results.csv`` and the files of sections; each is written completely or not at all.

    Args:
        report: The report.
        out_dir: The folder to write to; it is created if necessary.

    Returns:
        The path of the page.

    Raises:
        MissingExtra: Without jinja2 and matplotlib.
    """
    _need("jinja2", "writing the report")
    _need("matplotlib", "writing the report")
    from dubio.core.files import write_file
    from dubio.reporting.page import render
    from dubio.reporting.terminal import results_csv

    write_file(out_dir / TABLE, results_csv(report.scores))
    for name, content in report.files().items():
        write_file(out_dir / name, content)
    return write_file(out_dir / PAGE, render(report))


def write_figures(report: Report, out_dir: Path, formats: Sequence[str] = ("png", "svg", "pdf")) -> tuple[Path, ...]:
    """Write every figure for use in papers, as ``<task>-<figure>.<format>``, those over tasks as ``across-…``.

    Args:
        report: The report.
        out_dir: The folder to write to; it is created if necessary.
        formats: Among png, svg and pdf.

    Returns:
        The files written.

    Raises:
        UnknownName: For another format.
        MissingExtra: Without matplotlib.
    """
    _need("matplotlib", "drawing figures")
    from dubio.core.files import write_file
    from dubio.reporting.canvas import FORMATS, save
    from dubio.reporting.wording import file_name

    kinds = [one_of("format", kind, FORMATS) for kind in formats]
    written = []
    for name, figure in report.figures():
        drawing = figure.draw()
        written += [write_file(out_dir / f"{file_name(name)}.{kind}", save(drawing, kind)) for kind in kinds]
    return tuple(written)


def _need(module: str, what: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtra(what, "report")
