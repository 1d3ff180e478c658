"""A section of the report: what it notes while predictions are read, what it shows, and what it adds to the JSON.

To write a section, make one file in ``reporting/sections`` (or in a study, or in a plugin)::

    @section("calibration", part="task", order=35)
    class Calibration(Section):
        title = "Calibration"

        def __init__(self) -> None:
            self.bins = Collected[FloatArray]()

        def visit(self, item: Visit) -> None:
            if item.is_in_domain_test:
                self.bins.add(item, reliability(item.predictions))

        def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
            yield Table(...)
            chart = partial(reliability_chart, self.bins.methods(run, task))
            yield Figure("reliability", "Reliability", CAPTION, chart)

and one test that calls ``blocks``. The builder (:mod:`dubio.reporting.build`) reads every stored prediction once and
shows it to all sections in their order; then it calls ``finish`` for the task. The page, the terminal, the figure files
and the JSON document are loops over what sections return.

Rules:

- Scores that several sections read are in ``run.scores`` (:class:`~dubio.reporting.score_table.ScoreTable`); a section
  adds further ones to ``item.values`` in ``visit``, and they enter ``results.csv``.
- Everything else that a section needs from predictions it stores in itself. Sections never import each other.
- A figure stands in its section's file: a function that computes its rows, a function that returns its chart
  (:mod:`dubio.reporting.charts`), its caption and its reading. Altair is imported inside the latter, because tables
  work without it.
- A block that shows one test set alone names it (``split``), so that the page's choice of a test set hides the others.
- ``blocks`` is called once for every task with results, then once with None for what spans tasks. Sections of the part
  "task" show the former below their title within the task, the latter under "All tasks"; one that shows nothing across
  tasks defines ``task_blocks`` alone. Sections of the parts "opening" and "closing" are called with None alone and make
  a chapter of their own, before or after the tasks.
- A section without data yields nothing, and then the page has no such heading.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from dubio.core.csv_files import CsvTable
from dubio.core.predictions import Predictions
from dubio.core.registry import Registry
from dubio.core.types import FloatArray, StrArray
from dubio.reporting.charts import drawn, save
from dubio.reporting.manifest_view import MethodRun, SplitView, TaskView
from dubio.reporting.measures import uncertainties
from dubio.reporting.run_view import RunView
from dubio.reporting.tables import Table

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

Json = dict[str, Any]

Part = Literal["opening", "task", "closing"]
"""Where a section stands: before the tasks, within each of them, or after them."""


@dataclass(frozen=True)
class Headline:
    """A heading within a section; ``split`` names the test set below it, where it is one."""

    text: str
    split: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph, or a list where there are several texts.

    Attributes:
        text: The paragraph, or the items of a list.
        kind: How it is set; "code" keeps line breaks.
        title: Where given, the text is folded below this title.
        split: The test set it is about, where it is one.
    """

    text: str | tuple[str, ...]
    kind: Literal["plain", "small", "note", "warning", "code", "verdict"] = "plain"
    title: str = ""
    split: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn.

    Attributes:
        name: The name of its file, after the task's.
        title: Its title.
        caption: How to read it.
        chart: Returns it.
        folded: Whether the page shows it only on demand.
        reading: The result it shows, in a sentence with numbers.
        split: The test set it is about, where it is one.
    """

    name: str
    title: str
    caption: str
    chart: Callable[[], Chart] = field(repr=False)
    folded: bool = False
    reading: str = ""
    split: str = ""

    def _repr_html_(self) -> str:
        """Return the figure as a notebook shows it: a picture that needs no script, and its caption."""
        image = base64.b64encode(save(drawn(self.chart), "svg")).decode()
        title, text = escape(self.title), escape(f"{self.caption} {self.reading}".strip())
        picture = f'<img alt="{title}" src="data:image/svg+xml;base64,{image}">'
        return f"<figure>{picture}<figcaption><b>{title}.</b> {text}</figcaption></figure>"


@dataclass(frozen=True)
class Card:
    """A titled statement with the evidence behind it.

    Attributes:
        title: What it is about.
        texts: The statement, the most important sentence first.
        evidence: Sentences that support it, shown on demand.
        source: Where the statement was published, if it was.
        aside: Whether it is set apart from the others.
    """

    title: str
    texts: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    source: str = ""
    aside: bool = False


@dataclass(frozen=True)
class Cards:
    """Cards side by side ("cards") or one below the other ("list")."""

    cards: tuple[Card, ...]
    kind: Literal["cards", "list"] = "cards"


@dataclass(frozen=True)
class Definitions:
    """Terms with their explanations, or purposes with their commands."""

    rows: tuple[tuple[str, str], ...]
    kind: Literal["plain", "commands"] = "plain"


@dataclass(frozen=True)
class Widget:
    """An interactive part of the page, drawn by the script of its kind from data; the fallback is shown without it."""

    kind: str
    data: Json
    fallback: tuple[Block, ...] = ()


Block = Headline | Text | Table | Figure | Cards | Definitions | Widget


@dataclass(frozen=True, eq=False)
class InDomain:
    """Facts of a run on its in-domain test set that its other splits are compared with.

    Attributes:
        uncertainties: Quantity → its value for every example.
        values: Metric → its score.
        temperature: The median of the cross-validated temperatures, where there are any.
        group: The unit each example belongs to, such as a patient, where there are any.
    """

    uncertainties: Mapping[str, FloatArray] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None
    group: StrArray | None = None


@dataclass(eq=False)
class Visit:
    """One set of stored predictions, shown to every section once.

    Attributes:
        report: The benchmark run; its score table is complete only after all visits.
        task: The task.
        split: The test split; the in-domain test splits come first.
        run: The run of a method, and its seed and member.
        predictions: Its predictions on the split.
        in_domain: The same run on the in-domain test set; None while that is visited, or where it cannot be read.
        values: Metric → score on this split; a section may add to it.
        temperature: The median of the temperatures cross-validated on it, where there are any.
    """

    report: RunView
    task: TaskView
    split: SplitView
    run: MethodRun
    predictions: Predictions
    in_domain: InDomain | None = None
    values: dict[str, float] = field(default_factory=dict)
    temperature: float | None = None

    @property
    def is_in_domain_test(self) -> bool:
        """Whether the split is the task's (first) in-domain test split."""
        return self.split == self.task.in_domain

    @property
    def is_shown(self) -> bool:
        """Whether figures show the split: the in-domain test split, OOD and shifted ones; the worst of a corruption."""
        return self.is_in_domain_test or self.split in self.task.farthest

    @property
    def key(self) -> tuple[str, str, str]:
        """Task, split and method."""
        return self.task.key, self.split.name, self.run.method

    @property
    def has_labels(self) -> bool:
        """Whether any example has a label."""
        return bool((self.predictions.labels >= 0).any())

    @cached_property
    def uncertainties(self) -> dict[str, FloatArray]:
        """Quantity → uncertainty of every example, higher = more uncertain."""
        return uncertainties(self.predictions)


T = TypeVar("T")


class Collected(Generic[T]):
    """One value per run that a section has visited, by task, split and method."""

    def __init__(self) -> None:
        """Start without any run."""
        self.runs: dict[tuple[str, str, str], list[T]] = {}

    def add(self, item: Visit, value: T) -> None:
        """Add the value of a run."""
        self.runs.setdefault(item.key, []).append(value)

    def splits(self, task: TaskView) -> tuple[str, ...]:
        """Return the splits of a task with values, in the order in which they were visited."""
        return tuple(dict.fromkeys(split for key, split, _ in self.runs if key == task.key))

    def methods(self, run: RunView, task: TaskView, split: str = "") -> dict[str, list[T]]:
        """Return method → the values of its runs on a split (by default in-domain), in the benchmark's order."""
        keys = {method.name: (task.key, split or task.in_domain.name, method.name) for method in run.methods_of(task)}
        return {name: self.runs[key] for name, key in keys.items() if key in self.runs}


class Section:
    """A section of the report; every method may be left out."""

    title: str = ""
    """The heading: a chapter's, or within each task."""

    def visit(self, item: Visit) -> None:
        """Note what is needed of one set of predictions; it is not shown again."""

    def finish(self, run: RunView, task: TaskView) -> None:
        """Complete a task after all its predictions were visited."""

    def blocks(self, run: RunView, task: TaskView | None) -> Iterable[Block]:
        """Return what the page shows for a task, or, with None, for the whole run."""
        return () if task is None else self.task_blocks(run, task)

    def task_blocks(self, run: RunView, task: TaskView) -> Iterable[Block]:
        """Return what the page shows for a task; sections that also span tasks define :meth:`blocks` instead."""
        return ()

    def document(self, run: RunView) -> Json:
        """Return the section's keys of the JSON document."""
        return {}

    def files(self, run: RunView) -> Mapping[str, str | CsvTable]:
        """Return further files to write beside the page: relative path → text or table."""
        return {}


SECTIONS: Registry[Section] = Registry("section", "dubio.reporting.sections", "dubio.studies")

Made = TypeVar("Made", bound=type[Section])


def section(name: str, *, part: Part = "task", order: int) -> Callable[[Made], Made]:
    """Register a section.

    Args:
        name: Its unique name, which is also its anchor on the page.
        part: Where it stands.
        order: Its place within the part, ascending; built-in sections leave gaps.
    """
    return SECTIONS.register(name, part=part, order=order)
