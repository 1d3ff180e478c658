"""Write the web page: one self-contained file without network requests, a loop over the blocks of sections.

Figures are fitted into the page: unique ids, no namespaces, colours and fonts that follow the page's scheme.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from dubio import __version__
from dubio.core.csv_files import CsvTable
from dubio.core.errors import MissingExtra, one_of
from dubio.core.files import write_file
from dubio.reporting.build import Placed, Report
from dubio.reporting.canvas import FORMATS, inline_svg, save
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.score_table import results_table
from dubio.reporting.section import Block, Figure
from dubio.reporting.wording import counted, file_name, number

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"(?<=url\(#)")
_FONT = re.compile(r"font-family: [^;]*")
_DROPPED = ("metadata", "style")


def themed(colour: str) -> str:
    """Return a colour that the page may exchange in its dark scheme: ``var(--f-0072b2, #0072b2)``."""
    return f"var(--f-{colour[1:]}, {colour})"


def for_page(svg: str, name: str) -> str:
    """Return an SVG document as an element of an HTML page.

    Only attributes are rewritten; text stays as it is, escaped.

    Args:
        svg: As matplotlib writes it.
        name: Put before every id, so that no two figures of a page share one.
    """
    root = ElementTree.fromstring(svg)
    for element in list(root.iter()):
        # HTML needs no namespaces, and without them nothing in the page looks like an address.
        element.tag = _local(element.tag)
        for child in [child for child in element if _local(child.tag) in _DROPPED]:
            element.remove(child)
        element.attrib = {_local(key): _attribute(_local(key), value, name) for key, value in element.attrib.items()}
    root.attrib = {key: value for key, value in root.attrib.items() if key not in ("width", "height")}
    root.set("aria-hidden", "true")
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = _REFERENCE.sub(f"{name}-", value)
    if key in ("style", "fill", "stroke"):
        value = _COLOUR.sub(lambda match: themed(match[0]), value)
        value = _FONT.sub("font-family: var(--figure)", value)
    return value


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


PAGE = "report.html"
TABLE = "results.csv"
LEAD = "Does the classifier know when it does not know, and which uncertainty method makes it know best?"


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page: headings with the blocks below them; an empty heading adds none."""

    anchor: str
    title: str
    intro: tuple[str, ...]
    notes: tuple[str, ...]
    parts: tuple[tuple[str, tuple[Block, ...]], ...]


def write_report(report: Report, out_dir: Path, *, raw_csv: bool = False) -> Path:
    """Write ``report.html``, ``results.csv`` and the files of sections; each is written completely or not at all.

    Args:
        report: The report.
        out_dir: The folder to write to; it is created if necessary.
        raw_csv: Write text cells that a spreadsheet would take for formulas as they are.

    Returns:
        The path of the page.

    Raises:
        MissingExtra: Without jinja2 and matplotlib.
    """
    _need("writing the report", "jinja2", "matplotlib")
    for name, content in {TABLE: results_table(report.scores), **report.files()}.items():
        write_file(out_dir / name, content.text(raw_csv) if isinstance(content, CsvTable) else content)
    return write_file(out_dir / PAGE, render(report))


def write_figures(report: Report, out_dir: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
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
    _need("drawing figures", "matplotlib")
    kinds = [one_of("format", kind, FORMATS) for kind in formats]
    written = []
    for name, figure in report.figures():
        drawing = figure.draw()
        written += [write_file(out_dir / f"{file_name(name)}.{kind}", save(drawing, kind)) for kind in kinds]
    return tuple(written)


def _need(action: str, *modules: str) -> None:
    if any(find_spec(module) is None for module in modules):
        raise MissingExtra(action, "report")


def render(report: Report) -> str:
    """Return the whole page as HTML; the template engine escapes everything from outside."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    numbers = itertools.count(1)

    def inline(figure: Figure) -> Markup:
        """Return the SVG, whose texts matplotlib has escaped, with ids that occur once on the page."""
        return Markup(for_page(inline_svg(figure.draw()), f"f{next(numbers)}"))

    environment = Environment(
        loader=PackageLoader("dubio.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["themed"], environment.filters["svg"] = themed, inline
    environment.filters["kind"] = lambda block: type(block).__name__
    templates, manifest = files("dubio.reporting") / "templates", report.run.manifest
    assets = {kind: Markup((templates / f"report.{kind}").read_text(encoding="utf-8")) for kind in ("css", "js")}
    name = manifest.benchmark.get("name") or manifest.name
    return environment.get_template("report.html.j2").render(
        title=f"{name}: {counted(len(manifest.methods), 'method')} on {', '.join(task.key for task in report.tasks)}",
        lead=LEAD,
        facts=_facts(report),
        chapters=_chapters(report),
        version=__version__,
        **assets,
    )


def _chapters(report: Report) -> list[Chapter]:
    chapters = [_own_chapter(report, placed) for placed in report.of_part("opening")]
    chapters += [_task_chapter(report, task, index) for index, task in enumerate(report.run.tasks)]
    across = tuple(("", report.blocks(placed)) for placed in report.of_part("task"))
    chapters.append(Chapter("across", "All tasks", (), (), across))
    chapters += [_own_chapter(report, placed) for placed in report.of_part("closing")]
    return [chapter for chapter in chapters if chapter.intro or any(blocks for _, blocks in chapter.parts)]


def _own_chapter(report: Report, placed: Placed) -> Chapter:
    return Chapter(placed.name, placed.section.title, (), (), (("", report.blocks(placed)),))


def _task_chapter(report: Report, task: TaskView, index: int) -> Chapter:
    intro = tuple(text for text in (task.card.get("description", ""), task_summary(task)) if text)
    if not report.run.methods_of(task):
        notes = (*task.notes, "No run of this task was completed; see the failures below.")
        return Chapter(f"task-{index + 1}", task.key, intro, notes, ())
    parts = tuple((placed.section.title, report.blocks(placed, task)) for placed in report.of_part("task"))
    return Chapter(f"task-{index + 1}", task.key, intro, task.notes, tuple(block for block in parts if block[1]))


def task_summary(task: TaskView) -> str:
    """Return inputs, network, classes and sizes in one sentence."""
    sizes = {kind: sum(s.examples for s in task.of_kind(kind)) for kind in ("train", "val", "id")}
    classes = task.classes if len(task.classes) <= 12 else (*task.classes[:10], f"and {len(task.classes) - 10} more")
    return (
        f"{task.inputs.capitalize()} inputs, network {task.network}, {task.target} with {number(len(task.classes))} "
        f"classes ({', '.join(classes)}). {sizes['train']:,} training examples, {sizes['val']:,} validation examples, "
        f"{sizes['id']:,} in-domain test examples."
    )


def _facts(report: Report) -> dict[str, str]:
    manifest = report.run.manifest
    facts = {
        "tasks": len(manifest.tasks),
        "methods": len(manifest.methods),
        "seeds": len(manifest.seeds),
        "trainings": len({fit for run in manifest.runs for fit in run.fits}),
        "failures": len(report.run.failures),
    }
    return {name: f"{value:,}" for name, value in facts.items()}
