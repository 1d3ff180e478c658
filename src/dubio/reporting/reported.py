"""Everything that a report can be written of: a run of a store, or systems known by their predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio.core.data_frame import data_frame
from dubio.core.files import write_file
from dubio.core.notebook import as_html, as_text
from dubio.reporting.build import Report, build_report, registered_sections
from dubio.reporting.charts import FORMATS, chart_of, drawn, save
from dubio.reporting.manifest_view import Source
from dubio.reporting.page import TABLE, need_report_extra, render, report_texts, write_figures, write_texts
from dubio.reporting.report_cache import ReportCache, ReportTexts, code_digest
from dubio.reporting.run_view import EXAMPLES, MARGIN, check_examples, check_margin
from dubio.reporting.score_table import ScoreTable
from dubio.reporting.section import Figure
from dubio.reporting.terminal import TerminalBlock, terminal_blocks, terminal_table

if TYPE_CHECKING:
    import pandas

OUT = Path("dubio-report")


@dataclass(frozen=True, eq=False)
class WrittenReport:
    """The files of a report.

    Attributes:
        page: ``report.html``.
        table: ``results.csv``.
        figures: The files of the figures.
        build: Returns what they show.
    """

    page: Path
    table: Path
    figures: tuple[Path, ...] = field(repr=False)
    build: Callable[[], Report] = field(repr=False)

    @cached_property
    def report(self) -> Report:
        """Everything that the files show; of a report that was reused it is computed now."""
        return self.build()

    def __str__(self) -> str:
        return str(self.page)

    def _repr_html_(self) -> str:
        page = escape(self.page.as_posix())
        return f'<p>report: <a href="{page}" target="_blank">{page}</a></p>'


class Reported(ABC):
    """Predictions with a manifest of them. It prints as tables in a terminal and in a notebook."""

    manifest: Mapping[str, Any]
    progress: Callable[[str], None]
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def source(self) -> Source:
        """Where the predictions are read from."""

    @property
    def built(self) -> Report:
        """Every score and section, computed from the predictions when first used."""
        return self._build(())

    def _build(self, options: tuple[str, ...]) -> Report:
        """Return the report with optional sections; one that has them all serves any other purpose too."""
        for names, report in self._builds.items():
            if set(options) <= set(names):
                return report
        self._builds[options] = build_report(
            self.source, self.manifest, options=options, progress=self.progress, store=self.named_store
        )
        return self._builds[options]

    @property
    def named_store(self) -> str:
        """The folder of the store as commands must name it; empty where there is none, or the usual one."""
        return ""

    @cached_property
    def _builds(self) -> dict[tuple[str, ...], Report]:
        return {}

    @cached_property
    def _terminal(self) -> list[tuple[TerminalBlock, ...]]:
        """Hold the blocks that a terminal prints, once a report has been written or reused."""
        return []

    def _cache(self) -> ReportCache | None:
        """Return where reports are kept for reuse; nowhere by default."""
        return None

    @property
    def results(self) -> ScoreTable:
        """Every score: ``results.scores`` is the long list, ``results.cell(…)`` a mean over runs."""
        return self.built.run.scores

    @property
    def figures(self) -> dict[str, Figure]:
        """Every figure of the report by the name of its file; a notebook shows it with its caption."""
        return dict(self.built.figures())

    def to_frame(self) -> pandas.DataFrame:
        """Return the scores as a data frame: task, split, kind, method, seed, member, metric, value.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(asdict(score) for score in self.results.scores)

    def report(
        self,
        out: str | Path = OUT,
        *,
        figures: str | Path | None = None,
        formats: Sequence[str] = FORMATS,
        as_published: bool = False,
        margin: float = MARGIN,
        raw_csv: bool = False,
        examples: int = EXAMPLES,
    ) -> WrittenReport:
        """Write ``report.html`` and ``results.csv``.

        Args:
            out: The folder to write to; it is created if necessary.
            figures: A folder for every figure as a file of its own, for papers.
            formats: Formats of those files, among png, svg and pdf.
            as_published: Whether published definitions that are mistaken are computed too, apart from the others.
            margin: How much worse than the best a cheaper method may be and still be advised, in nats of NLL, or as a
                share in accuracy and AUROC; prediction files know no cost, and nothing is advised from them.
            raw_csv: Write text cells that a spreadsheet would take for formulas as they are.
            examples: Largest number of examples (texts, table rows, small images) of each test set; 0 for none.

        Raises:
            UserError: For a margin that is negative or not finite, or a negative number of examples.
            MissingExtra: Without the packages of ``dubio[report]``.
        """
        check_margin(margin)
        check_examples(examples)
        options = {"as_published": as_published, "margin": margin, "examples": examples, "raw_csv": raw_csv,
                   "store": self.named_store}  # fmt: skip
        cache = None if figures is not None or self._builds else self._cache()
        path = None if cache is None else cache.path(options)
        texts = None if cache is None or path is None else cache.read(path)

        def build() -> Report:
            built = self._build(("as-published",) if as_published else ())
            if (margin, examples) != (built.run.margin, built.run.examples):
                built = Report(replace(built.run, margin=margin, examples=examples), built.sections)
            return built

        if texts is None:
            report = build()
            self.progress("writing the report")
            texts = ReportTexts(report_texts(report, raw_csv=raw_csv), terminal_blocks(report))
            if cache is not None and path is not None:
                cache.write(path, texts)
        self._terminal[:] = [texts.terminal]
        page = write_texts(texts.files, Path(out))
        paths = () if figures is None else write_figures(build(), Path(figures), formats)
        return WrittenReport(page, page.with_name(TABLE), paths, build)

    def write_page(self, path: str | Path) -> Path:
        """Write the page alone, as this file.

        Raises:
            MissingExtra: Without the packages of ``dubio[report]``.
        """
        return write_file(Path(path), render(self.built))

    def __rich__(self) -> Any:
        return terminal_table(self._terminal[0] if self._terminal else self.built)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def get_ready() -> Iterator[None]:
    """Load the packages that draw, start the one that makes pictures, and hash the code that a report depends on.

    It yields between its steps, so that it need not be finished. Nothing is said: what goes wrong here goes wrong again
    in the report, which says so.
    """
    need = partial(need_report_extra, "writing the report")
    steps: tuple[Callable[[], object], ...] = (code_digest, registered_sections, need, first_picture)
    with suppress(Exception):
        for step in steps:
            step()
            yield


def first_picture() -> bytes:
    """Return the picture of a point: whatever is drawn, the first one takes longest."""
    import altair

    return save(drawn(lambda: chart_of([{"x": 0}]).mark_point().encode(altair.X("x:Q"))), "svg")
