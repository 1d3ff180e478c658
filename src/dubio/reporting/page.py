"""Write the web page: one self-contained file without network requests, a loop over the blocks of sections.

Figures are fitted into the page: unique ids, no namespaces, colours and fonts that follow the page's scheme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dubio import __version__
from dubio.reporting.build import Placed, Report
from dubio.reporting.canvas import inline_svg
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.section import Block, Figure
from dubio.reporting.wording import counted, number

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"(?<=url\(#)")
_FONT = re.compile(r"font-family: [^;]*")
_DROPPED = ("metadata", "style")


def themed(colour: str) -> str:
    """A colour that the page may exchange in its dark scheme: ``var(--f-0072b2, #0072b2)``."""
    return f"var(--f-{colour[1:]}, {colour})"


def for_page(svg: str, name: str) -> str:
    """An SVG document as an element of an HTML page.

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
        attributes = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _attribute(key, value, name) for key, value in attributes.items()})
    for size in ("width", "height"):
        root.attrib.pop(size, None)
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


LEAD = "Does the classifier know when it does not know, and which uncertainty method makes it know best?"


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page: headings with the blocks below them; an empty heading adds none."""

    anchor: str
    title: str
    intro: tuple[str, ...]
    notes: tuple[str, ...]
    parts: tuple[tuple[str, tuple[Block, ...]], ...]


def render(report: Report) -> str:
    """Return the whole page as HTML; the template engine escapes everything from outside."""
    environment = Environment(
        loader=PackageLoader("dubio.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["themed"] = themed
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["svg"] = _Inliner()
    own = files("dubio.reporting") / "templates"
    manifest = report.run.manifest
    return environment.get_template("report.html.j2").render(
        title=_title(report),
        lead=str(manifest.benchmark.get("description") or LEAD),
        facts=_facts(report),
        chapters=_chapters(report),
        version=__version__,
        css=Markup((own / "report.css").read_text(encoding="utf-8")),
        js=Markup((own / "report.js").read_text(encoding="utf-8")),
    )


class _Inliner:
    """Draws figures as inline SVG with ids that occur once on the page."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, figure: Figure) -> Markup:
        """Return the SVG; Markup because matplotlib has escaped every text in it."""
        self.count += 1
        return Markup(for_page(inline_svg(figure.draw()), f"f{self.count}"))


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
    return Chapter(f"task-{index + 1}", task.key, intro, task.notes, tuple(part for part in parts if part[1]))


def task_summary(task: TaskView) -> str:
    """Return inputs, network, classes and sizes in one sentence."""
    sizes = {kind: sum(s.examples for s in task.of_kind(kind)) for kind in ("train", "val", "id")}
    classes = task.classes if len(task.classes) <= 12 else (*task.classes[:10], f"and {len(task.classes) - 10} more")
    return (
        f"{task.inputs.capitalize()} inputs, network {task.network}, {task.target} with {number(len(task.classes))} "
        f"classes ({', '.join(classes)}). {sizes['train']:,} training examples, {sizes['val']:,} validation examples, "
        f"{sizes['id']:,} in-domain test examples."
    )


def _title(report: Report) -> str:
    manifest = report.run.manifest
    name = manifest.benchmark.get("name") or manifest.name
    return f"{name}: {counted(len(manifest.methods), 'method')} on {', '.join(task.key for task in manifest.tasks)}"


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
