"""Write the web page: one self-contained file that makes no request, a loop over the blocks of sections.

The page is HTML that is complete without a script: every table, text and, of the first task, three figures. The script
adds the choice of task, test set, metric and methods, interactive figures and widgets. It reads one JSON document in
the page (``docs/page-data.md``), whose texts from users are values, never markup or code, and runs under a content
security policy that allows this very script and nothing else: no address, no ``eval``.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio import __version__
from dubio.core.csv_files import CsvTable
from dubio.core.documents import parse_json
from dubio.core.errors import MissingExtra, UserError, one_of
from dubio.core.files import cache_dir, write_file
from dubio.reporting.build import Placed, Report
from dubio.reporting.charts import CONFIG, FORMATS, Rows, data_of, drawn, save, vegalite_version
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.score_table import results_table
from dubio.reporting.section import Block, Figure, Json, Text, Widget
from dubio.reporting.style import Style
from dubio.reporting.wording import counted, file_name, named_few, term

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
TABLE = "results.csv"
SCHEMA = 1
"""Version of the JSON document in the page."""

HEADLINES = ("scores", "risk-coverage", "ranking")
"""Figures of the first task that are in the page as pictures too, for readers without JavaScript."""

LONGEST_TITLE = 80
"""Characters of the systems' names in the heading; longer ones are counted."""

SHOWN_FROM = 10
"""Sections of a task from this order on are folded, but for the first of them."""

SCRIPTS = ("state", "tables", "figures", "cockpit", "examples", "start")
STYLES = ("page", "cockpit", "examples")


@dataclass(frozen=True)
class Part:
    """A section's blocks under its heading; an empty heading adds none, a folded one is shown on demand."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page: its parts, of one task or of the whole run (``task`` is empty)."""

    anchor: str
    title: str
    parts: tuple[Part, ...]
    task: str = ""


@dataclass
class PageData:
    """Figures, widgets and swatches of a page, collected while it is rendered; equal specifications are stored once."""

    static: frozenset[str] = frozenset()
    specs: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Json] = field(default_factory=dict)
    widgets: dict[str, Json] = field(default_factory=dict)
    swatches: dict[Style, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add_figure(self, figure: Figure) -> str:
        """Store a figure, its data apart from its specification; return its key."""
        spec, key = drawn(figure.chart), f"f{next(self._numbers)}"
        data = {name: packed(rows) for name, rows in spec.pop("datasets", {}).items()}
        spec["config"] = {name: value for name, value in spec["config"].items() if CONFIG.get(name) != value}
        names = {name: f"d{index}" for index, name in enumerate(data)}
        text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
        for name, short in names.items():  # the same chart of other data is the same specification
            text = text.replace(f'"{name}"', f'"{short}"')
        index = self.specs.setdefault(text, len(self.specs))
        self.figures[key] = {"name": figure.name, "spec": index, "data": {names[n]: rows for n, rows in data.items()}}
        return key

    def add_widget(self, widget: Widget) -> str:
        """Store the data of a widget; return its key."""
        key = f"w{next(self._numbers)}"
        self.widgets[key] = {"kind": widget.kind, **widget.data}
        return key

    def add_swatch(self, style: Style) -> str:
        """Store how a method is drawn; return the id of its symbol."""
        return self.swatches.setdefault(style, f"m{len(self.swatches)}")

    def picture(self, figure: Figure) -> str:
        """Return a headline figure of the first task as the address of a picture, another one as nothing."""
        if figure.name not in self.static or figure.split:
            return ""
        self.static -= {figure.name}
        image = save(drawn(figure.chart), "svg").decode()
        # A tenth of a pixel: three digits would be half of the picture.
        image = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), image)
        return f"data:image/svg+xml;base64,{base64.b64encode(image.encode()).decode()}"


def fields_of(rows: Rows) -> list[str]:
    """Return the fields of rows, in the order in which they occur."""
    return list(dict.fromkeys(name for row in rows for name in row))


def packed(rows: Rows) -> Json:
    """Return rows by columns, those of texts as numbers of distinct values: a third of the length of plain JSON."""
    columns: Json = {}
    for name in fields_of(rows):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, str) for value in values):
            distinct = list(dict.fromkeys(values))
            numbers = {value: index for index, value in enumerate(distinct)}
            columns[name] = {"values": distinct, "rows": [numbers[value] for value in values]}
        else:
            columns[name] = values
    return columns


def report_texts(report: Report, *, raw_csv: bool = False) -> dict[str, str]:
    """Return the files of a report: name → text, the page last.

    Args:
        report: The report.
        raw_csv: Write text cells that a spreadsheet would take for formulas as they are.

    Raises:
        MissingExtra: Without jinja2, Altair and vl-convert.
    """
    others = {TABLE: results_table(report.scores), **report.files()}
    texts = {name: own.text(raw_csv) if isinstance(own, CsvTable) else own for name, own in others.items()}
    return {**texts, PAGE: render(report, beside=TABLE)}


def write_texts(texts: Mapping[str, str], out_dir: Path) -> Path:
    """Write the files of a report into a folder, each completely or not at all; return the path of the page."""
    for name, text in texts.items():
        write_file(out_dir / name, text)
    return out_dir / PAGE


def write_figures(report: Report, out_dir: Path, formats: Sequence[str] = FORMATS) -> tuple[Path, ...]:
    """Write every figure for use in papers, as ``<task>-<figure>.<format>``, and its data as CSV and JSON.

    Args:
        report: The report.
        out_dir: The folder to write to; it is created if necessary.
        formats: Among png, svg and pdf.

    Returns:
        The files written.

    Raises:
        UnknownName: For another format.
        MissingExtra: Without Altair and vl-convert.
    """
    need_report_extra("drawing figures")
    kinds = [one_of("format", kind, FORMATS) for kind in formats]
    written = []
    for name, figure in report.figures():
        spec, stem = drawn(figure.chart), out_dir / file_name(name)
        rows = data_of(spec)
        fields = fields_of(rows)
        table = CsvTable(fields, [tuple(row.get(name) for name in fields) for row in rows])
        written += [write_file(stem.with_name(f"{stem.name}.{kind}"), save(spec, kind)) for kind in kinds]
        written.append(write_file(stem.with_name(f"{stem.name}.csv"), table.escaped()))
        written.append(write_file(stem.with_name(f"{stem.name}.json"), json.dumps(spec, ensure_ascii=False)))
    return tuple(written)


def need_report_extra(action: str) -> None:
    """Refuse an action that needs the extra ``report`` where it is not installed."""
    if any(find_spec(module) is None for module in ("jinja2", "altair", "vl_convert")):
        raise MissingExtra(action, "report")


def render(report: Report, *, beside: str = "") -> str:
    """Return the whole page as HTML; the template engine escapes everything from outside.

    Args:
        report: The report.
        beside: The file beside the page that has every score, where there is one.
    """
    noun = "system" if report.run.question == "systems" else "method"
    chapters = _chapters(report)
    data = PageData(frozenset(HEADLINES))
    document = {
        "noun": noun,
        "tasks": [_task_data(report, task) for task in report.tasks],
        "methods": [
            {"name": m.name, "title": m.title, "colour": report.run.styles[m.name].colour, "ensemble": m.ensemble}
            for m in report.run.methods
        ],
    }
    return render_page(
        "report.html.j2",
        data,
        document,
        title=_title(report),
        noun=noun,
        beside=beside,
        facts=_facts(report),
        chapters=chapters,
        tasks=document["tasks"],
        styles=report.run.styles,
    )


def _title(report: Report) -> str:
    """Return the heading of the page: the run with its tasks, or the data with the names of the systems."""
    manifest = report.run.manifest
    name = manifest.benchmark.get("name") or manifest.name
    if report.run.question == "systems":
        names = named_few(list(report.run.titles.values()))
        return f"{name}: {names if len(names) <= LONGEST_TITLE else counted(len(manifest.methods), 'system')}"
    return f"{name}: {counted(len(manifest.methods), 'method')} on {', '.join(task.key for task in report.tasks)}"


def render_page(template: str, data: PageData, document: Json, **values: Any) -> str:
    """Return a page of a template with dubio's look, script and policy.

    Args:
        template: The template's file.
        data: Collects figures and widgets while the template is rendered.
        document: Further entries of the page's JSON document.
        values: Values of the template.

    Raises:
        MissingExtra: Without jinja2, Altair and vl-convert.
    """
    environment = _environment(data)
    body = environment.get_template(template).render(version=__version__, **values)
    document = {"schema": SCHEMA, "dubio": __version__, **document, "config": CONFIG, "specs": []}
    document |= {"figures": data.figures, "widgets": data.widgets}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace('"specs":[]', f'"specs":[{",".join(data.specs)}]', 1)
    return _framed(environment, values["title"], body, STYLES, {
        "data": text, "library": javascript_library() if data.figures else "", "script": script(),
    })  # fmt: skip


def render_sheet(template: str, pictures: Sequence[str], **values: Any) -> str:
    """Return a page of a template to be printed, without any script.

    Args:
        template: The template's file.
        pictures: The names of its figures, which it shows as pictures.
        values: Values of the template.

    Raises:
        MissingExtra: Without jinja2, Altair and vl-convert.
    """
    environment = _environment(PageData(frozenset(pictures)))
    body = environment.get_template(template).render(version=__version__, **values)
    return _framed(environment, values["title"], body, ("sheet",))


def _environment(data: PageData) -> Environment:
    need_report_extra("writing the page")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dubio.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "figure": data.add_figure,
        "widget": data.add_widget,
        "swatch": data.add_swatch,
        "picture": data.picture,
    }
    environment.globals["swatches"] = data.swatches
    return environment


def _framed(
    environment: Environment, title: str, body: str, styles: Sequence[str], texts: Mapping[str, str] | None = None
) -> str:
    """Return a document: its body and styles, and a policy that allows its own scripts and nothing else.

    Data and library are deflated, which saves more than half a megabyte; the library's hash is that of its plain text,
    which the page's script adds to the document when the first figure is drawn.
    """
    from markupsafe import Markup

    texts = texts or {}
    return environment.get_template("frame.html.j2").render(
        title=title,
        body=Markup(body),
        css=Markup("\n".join(_asset(f"{name}.css") for name in styles)),
        packed={name: packed_text(texts[name]) for name in ("data", "library") if texts.get(name)},
        script=Markup(texts.get("script", "")),
        hashes=[_csp_hash(texts[name]) for name in ("library", "script") if texts.get(name)],
    )


FREE_OF_MARKUP = str.maketrans("<&>", ",.:")
"""Three letters of base85 that mean something in HTML, and what stands for them."""


def packed_text(text: str) -> str:
    """Return a text deflated (RFC 1950) and in base85, which takes 6 % less than base64."""
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode().translate(FREE_OF_MARKUP)


def unpacked_text(page: str, name: str) -> bytes:
    """Return a deflated text of a page: its ``data`` or ``library``."""
    (text,) = re.findall(f'id="page-{name}">([^<]*)</script>', page)
    return zlib.decompress(base64.b85decode(text.translate({new: old for old, new in FREE_OF_MARKUP.items()})))


def read_page_data(page: str) -> Json:
    """Return the JSON document in a page."""
    document: Json = parse_json(unpacked_text(page, "data"), "the data of a page")
    return document


def _asset(name: str) -> str:
    return (files("dubio.reporting") / "templates" / "page" / name).read_text(encoding="utf-8")


def script() -> str:
    """Return the page's own script: its files one after the other, in a scope of their own."""
    return '"use strict";\n(function () {\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();"


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def javascript_library() -> str:
    """Return Vega, Vega-Lite and vega-embed as vl-convert bundles them; bundled once and cached per version."""
    vl_convert: Any = import_module("vl_convert")  # its stubs ask for a snippet, which is optional
    name = f"vega-{version('vl-convert-python')}-{vegalite_version()}.js"
    path = cache_dir() / "page" / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        bundle = str(vl_convert.javascript_bundle(vl_version=vegalite_version()))
    with suppress(UserError):  # a cache that cannot be written costs seconds, no page
        write_file(path, bundle)
    return bundle


def _chapters(report: Report) -> list[Chapter]:
    chapters = [_task_chapter(report, task, index) for index, task in enumerate(report.run.tasks)]
    across = [Part(placed.name, "", report.blocks(placed)) for placed in report.of_part("task")]
    chapters += [_own_chapter(report, placed) for placed in report.of_part("opening")]
    chapters.append(Chapter("across", "All tasks", tuple(own for own in across if own.blocks)))
    chapters += [_own_chapter(report, placed) for placed in report.of_part("closing")]
    return [chapter for chapter in chapters if any(own.blocks for own in chapter.parts)]


def _own_chapter(report: Report, placed: Placed) -> Chapter:
    blocks = Part(placed.name, "", report.blocks(placed))
    return Chapter(placed.name, placed.section.title, (blocks,))


def _task_chapter(report: Report, task: TaskView, index: int) -> Chapter:
    anchor = f"task-{index + 1}"
    if not report.run.methods_of(task):
        notes = (*task.notes, "No run of this task was completed; see the failures below.")
        return Chapter(anchor, task.key, (Part("notes", "", (Text(notes, "note"),)),), task.key)
    parts = [
        Part(placed.name, placed.section.title, blocks, folded=placed.order > SHOWN_FROM)
        for placed in report.of_part("task")
        if (blocks := report.blocks(placed, task))
    ]
    return Chapter(anchor, task.key, tuple(parts), task.key)


def _task_data(report: Report, task: TaskView) -> Json:
    """Return what the script knows of a task: its test sets and the metrics that have values on them."""
    names = [split.name for split in task.of_kind("id", "shift", "ood")]
    metrics = dict.fromkeys(
        metric for key, split, _, metric in report.run.scores.cells if key == task.key and split in names
    )
    better = report.run.scores.better
    return {
        "key": task.key,
        "splits": [
            {"name": split.name, "kind": split.kind, "examples": split.examples}
            for split in task.of_kind("id", "shift", "ood")
        ],
        "metrics": [
            {"name": name, "title": term(name).title, "better": better[name]}
            for name in metrics
            if "(" not in name and name in better
        ],
    }


def _facts(report: Report) -> dict[str, str]:
    manifest = report.run.manifest
    if report.run.question == "systems":
        examples = {"systems": len(manifest.methods)}
        examples |= {split.name: split.examples for task in manifest.tasks for split in task.splits}
        return {name: f"{value:,}" for name, value in examples.items()}
    facts = {
        "tasks": len(manifest.tasks),
        "methods": len(manifest.methods),
        "seeds": len(manifest.seeds),
        "trainings": len({fit for run in manifest.runs for fit in run.fits}),
        "failures": len(report.run.failures),
    }
    return {name: f"{value:,}" for name, value in facts.items()}
