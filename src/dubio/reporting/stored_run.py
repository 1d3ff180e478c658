"""Open a benchmark run of a store: its scores, its data frame, its report."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio.core.data_frame import data_frame
from dubio.core.errors import UserError
from dubio.reporting.build import Report, build_report
from dubio.reporting.canvas import FORMATS
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.measures import in_domain_metrics, measure
from dubio.reporting.merging import merge
from dubio.reporting.page import TABLE, write_figures, write_report
from dubio.reporting.run_view import MARGIN, check_margin
from dubio.reporting.score_table import ScoreTable
from dubio.reporting.terminal import terminal_table
from dubio.store import Store
from dubio.store.records import with_defaults

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

STORE = Path("dubio-store")
OUT = Path("dubio-report")
TEXT_WIDTH = 120


@dataclass(frozen=True, eq=False)
class Run:
    """A benchmark run in a store. It prints as tables in a terminal and in a notebook.

    Attributes:
        name: The run's name in the store, or the names of several runs reported together.
        manifest: What was run and where its predictions are.
        store: The folder of the store.
        progress: Called with a sentence before each long step of scoring and of the report.
    """

    name: str
    manifest: Mapping[str, Any]
    store: Path
    progress: Callable[[str], None] = field(default=lambda text: None, repr=False)

    @cached_property
    def built(self) -> Report:
        """Every score and section, computed from the stored predictions when first used."""
        return build_report(self._opened, self.manifest, progress=self.progress)

    @property
    def results(self) -> ScoreTable:
        """Every score: ``results.scores`` is the long list, ``results.cell(…)`` a mean over runs."""
        return self.built.run.scores

    @property
    def failures(self) -> tuple[Mapping[str, Any], ...]:
        """The fits and predictions that failed, each with its ``error`` and what it ``blocked``."""
        return tuple(self.manifest["failures"])

    @property
    def skipped(self) -> tuple[Mapping[str, Any], ...]:
        """The tasks that the machine could not run, each with the ``reason``."""
        return tuple(self.manifest["skipped"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to distrust the results."""
        return tuple(self.manifest["advice"])

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
    ) -> WrittenReport:
        """Write ``report.html`` and ``results.csv``.

        Args:
            out: The folder to write to; it is created if necessary.
            figures: A folder for every figure as a file of its own, for papers.
            formats: Formats of those files, among png, svg and pdf.
            as_published: Whether published definitions that are mistaken are computed too, apart from the others.
            margin: How much worse than the best a cheaper method may be and still be advised, in nats of NLL, or as a
                share in accuracy and AUROC.
            raw_csv: Write text cells that a spreadsheet would take for formulas as they are.

        Raises:
            UserError: For a margin that is negative or not finite.
            MissingExtra: Without jinja2 and matplotlib.
        """
        check_margin(margin)
        options = ("as-published",)
        if as_published:
            built = build_report(self._opened, self.manifest, options=options, progress=self.progress)
        else:
            built = self.built
        if margin != built.run.margin:
            built = Report(replace(built.run, margin=margin), built.sections)
        self.progress("writing the report")
        page = write_report(built, Path(out), raw_csv=raw_csv)
        files = () if figures is None else write_figures(built, Path(figures), formats)
        return WrittenReport(page, page.with_name(TABLE), files, built)

    @cached_property
    def _opened(self) -> Store:
        return Store.open(self.store, create=False)

    def __rich__(self) -> Any:
        return terminal_table(self.built)

    def __str__(self) -> str:
        return self._printed().export_text().rstrip()

    def __repr__(self) -> str:
        return f"<run {self.name!r} in {str(self.store)!r}>"

    def _repr_html_(self) -> str:
        return self._printed().export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _printed(self) -> Console:
        from rich.console import Console

        console = Console(record=True, file=io.StringIO(), width=TEXT_WIDTH)
        console.print(self)
        return console


@dataclass(frozen=True, eq=False)
class WrittenReport:
    """The files of a report.

    Attributes:
        page: ``report.html``.
        table: ``results.csv``.
        figures: The files of the figures.
        report: What they show.
    """

    page: Path
    table: Path
    figures: tuple[Path, ...]
    report: Report

    def __str__(self) -> str:
        return str(self.page)


def open_run(*names: str, store: str | Path = STORE) -> Run:
    """Open a benchmark run of a store, or several as one.

    Args:
        names: Names of runs, or their beginnings; may be omitted if the store has one run. The same method on the same
            task may come from several runs, such as further seeds.
        store: The folder of the store.

    Raises:
        StoreError: If there is no store.
        UnknownName: For an unknown name.
        UserError: If no name is given and the store does not have exactly one run.
    """
    opened = Store.open(store, create=False)
    names = names or (_only_run(opened.manifests(), Path(store)),)
    manifests = {name: with_defaults(opened.manifest(name)) for name in dict.fromkeys(names)}
    manifest = merge(opened, manifests) if len(manifests) > 1 else manifests[names[0]]
    return Run(" + ".join(manifests), manifest, Path(store))


def _only_run(names: Sequence[str], store: Path) -> str:
    if not names:
        raise UserError(f"the store {str(store)!r} has no benchmark run; make one with: dubio run quick")
    if len(names) > 1:
        raise UserError(f"the store {str(store)!r} has {len(names)} runs; name one: {', '.join(names)}.")
    return names[0]


def describe(name: str, store: str | Path = STORE) -> dict[str, Any]:
    """Return what a store holds of a run, a fit or a prediction, with the scores of a run or a prediction.

    Args:
        name: The name of a run, the id of a fit or prediction, or the beginning of either.
        store: The folder of the store.

    Raises:
        UserError: When nothing, or more than one, fits.
    """
    opened = Store.open(store, create=False)
    kind, full_name = opened.find(name)
    if kind == "runs":
        run = open_run(full_name, store=store)
        keys = ("id", "task", "method", "seed", "member", "fits")
        return {
            "kind": "run",
            "name": run.manifest["name"],
            "tasks": [task["name"] for task in run.manifest["tasks"]],
            "methods": [method["name"] for method in run.manifest["methods"]],
            "predictions": [{key: row.get(key) for key in keys} for row in run.manifest["runs"]],
            **run.built.document(),
        }
    record = opened.record(full_name)
    document = {"kind": kind[:-1], "id": full_name, "spec": opened.spec(kind, full_name), "record": record}
    if kind == "predictions":  # an ensemble has the splits of its first member
        files = record["files"] or opened.record(record["members"][0])["files"]
        decision = _empty_decision(opened, full_name)
        document["scores"] = {
            facts["split"]: measure(
                in_domain_metrics(),
                opened.read_predictions(full_name, facts["split"], facts["fingerprint"]).with_checked(**decision),
            )
            for facts in files.values()
        }
    return document


def _empty_decision(store: Store, prediction: str) -> dict[str, Any]:
    """Return the decision about multi-label rows without a label, as the first run with these predictions states it."""
    for name in store.manifests():
        manifest = read_manifest(store.manifest(name))
        decisions = {task.key: task.empty_decision for task in manifest.tasks}
        for run in manifest.runs:
            if run.id == prediction:
                return {"empty_decision": decisions[run.task]}
    return {}


def report(
    run: Run | str | Sequence[str] | None = None,
    *,
    store: str | Path = STORE,
    out: str | Path = OUT,
    figures: str | Path | None = None,
    formats: Sequence[str] = FORMATS,
    as_published: bool = False,
    margin: float = MARGIN,
    raw_csv: bool = False,
) -> WrittenReport:
    """Write the report of a benchmark run, or of several together: ``report.html`` and ``results.csv``.

    Args:
        run: A run, a name, or several names in the order of the report; may be omitted if the store has one run.
        store: The folder of the store.
        out: The folder to write to; it is created if necessary.
        figures: A folder for every figure as a file of its own, for papers.
        formats: Formats of those files, among png, svg and pdf.
        as_published: Whether published definitions that are mistaken are computed too, apart from the others.
        margin: How much worse than the best a cheaper method may be and still be advised, in nats of NLL, or as a share
            in accuracy and AUROC.
        raw_csv: Write text cells that a spreadsheet would take for formulas as they are.

    Raises:
        UserError: For an unknown run, or a margin that is negative or not finite.
        MissingExtra: Without jinja2 and matplotlib.
    """
    if not isinstance(run, Run):
        names = () if run is None else (run,) if isinstance(run, str) else tuple(run)
        run = open_run(*names, store=store)
    return run.report(out, figures=figures, formats=formats, as_published=as_published, margin=margin, raw_csv=raw_csv)
