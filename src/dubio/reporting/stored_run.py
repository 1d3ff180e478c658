"""Open a benchmark run of a store: its scores, its data frame, its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio.core.errors import UserError, one_of
from dubio.core.predictions import Predictions
from dubio.evaluation.results import Evaluation, SystemComparison
from dubio.formats.predictions import is_prediction_file
from dubio.reporting.charts import FORMATS
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.measures import in_domain_metrics, measure
from dubio.reporting.merging import merge
from dubio.reporting.prediction_files import SystemFiles, open_evaluation, open_systems
from dubio.reporting.report_cache import ReportCache
from dubio.reporting.reported import OUT, Reported, WrittenReport
from dubio.reporting.run_view import EXAMPLES, MARGIN
from dubio.store import Store
from dubio.store.records import with_defaults

if TYPE_CHECKING:
    from dubio import Model

STORE = Path("dubio-store")


@dataclass(frozen=True, eq=False)
class Run(Reported):
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

    @cached_property
    def source(self) -> Store:
        """The opened store."""
        return Store.open(self.store, create=False)

    @property
    def named_store(self) -> str:
        """The folder of the store as commands must name it; empty for the usual one."""
        return "" if self.store == STORE else str(self.store)

    def predictor(
        self,
        method: str,
        *,
        task: str | None = None,
        network: str | None = None,
        seed: int | None = None,
        device: str = "cpu",
    ) -> Model:
        """Return a method of the run as a model that predicts raw rows.

        Args:
            method: The method, by its name in the run.
            task: The task; may be omitted where the run has one.
            network: The network; may be omitted where the task has one.
            seed: The seed; the first of the run if omitted.
            device: The device to predict on.
        """
        import dubio

        return dubio.model_of_run(self, method, task=task, network=network, seed=seed, device=device)

    def _cache(self) -> ReportCache:
        stored = with_defaults(json.loads(json.dumps(self.manifest)))  # that of a run that just ended is as when opened
        return ReportCache(self.source, stored)

    def predictions(self, task: str, method: str, split: str = "", *, seed: int | None = None) -> Predictions:
        """Return the stored predictions of a method on a split, of its first run unless a seed is given.

        Args:
            task: The task, as the report names it.
            method: The name of the method.
            split: The split, such as ``cal``; the in-domain test set by default.
            seed: The seed of the run.

        Raises:
            UnknownName: For a task, method, split or seed that the run does not have.
        """
        view = read_manifest(self.manifest)
        tasks = {own.key: own for own in view.tasks}
        own = tasks[one_of("task", task, tasks)]
        one_of("method", method, dict.fromkeys(run.method for run in view.runs_of(task)))
        runs = {run.seed: run for run in reversed(view.runs_of(task, method))}
        chosen = view.runs_of(task, method)[0].seed if seed is None else int(one_of("seed", str(seed), map(str, runs)))
        splits = {item.name: item for item in own.splits if item.kind not in ("train", "val")}
        item = splits[one_of("split", split or own.in_domain.name, splits)]
        predictions = own.read(self.source, runs[chosen], item)
        columns = own.columns.get(item.name)
        return predictions.with_checked(columns={**predictions.columns, **columns}) if columns else predictions

    def __repr__(self) -> str:
        return f"<run {self.name!r} in {str(self.store)!r}>"


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
    run: Reported | Evaluation | SystemComparison | SystemFiles | Sequence[str] | None = None,
    *,
    cal: SystemFiles | None = None,
    shift: Mapping[str, SystemFiles] | None = None,
    ood: Mapping[str, SystemFiles] | None = None,
    title: str = "",
    store: str | Path = STORE,
    out: str | Path = OUT,
    figures: str | Path | None = None,
    formats: Sequence[str] = FORMATS,
    as_published: bool = False,
    margin: float = MARGIN,
    raw_csv: bool = False,
    examples: int = EXAMPLES,
) -> WrittenReport:
    """Write the report of benchmark runs, or of systems that are known by their predictions.

    It is a folder with ``report.html`` and ``results.csv``.

    Args:
        run: A run, a name, or several names in the order of the report; may be omitted if the store has one run. Or
            predictions: one file or :class:`~dubio.core.predictions.Predictions`, several as a mapping from the
            system's name, or the result of ``dubio.evaluate`` or ``dubio.compare``.
        cal: With predictions: the same systems on a calibration set, on which referral policies are fitted.
        shift: Likewise: name of a shifted test set to the same systems on it.
        ood: Likewise: name of an out-of-distribution test set to the same systems on it.
        title: Likewise: what the page calls the data.
        store: The folder of the store.
        out: The folder to write to; it is created if necessary.
        figures: A folder for every figure as a file of its own, for papers.
        formats: Formats of those files, among png, svg and pdf.
        as_published: Whether published definitions that are mistaken are computed too, apart from the others.
        margin: How much worse than the best a cheaper method may be and still be advised, in nats of NLL, or as a share
            in accuracy and AUROC.
        raw_csv: Write text cells that a spreadsheet would take for formulas as they are.
        examples: Largest number of examples (texts, table rows, small images) of each test set; 0 for none.

    Raises:
        UserError: For an unknown run, systems on different examples, a margin that is negative or not finite, or a
            negative number of examples.
        MissingExtra: Without the packages of ``dubio[report]``.
    """
    further: dict[str, Any] = {"cal": cal, "shift": shift, "ood": ood, "title": title}
    opened = _opened(run, store, {name: value for name, value in further.items() if value})
    options: Any = {"figures": figures, "formats": formats, "as_published": as_published, "margin": margin}
    options["examples"] = examples
    return opened.report(out, raw_csv=raw_csv, **options)


def _opened(run: Any, store: str | Path, further: Mapping[str, Any]) -> Reported:
    """Open what is to be reported; ``further`` goes with predictions."""
    if isinstance(run, Predictions | Mapping | Path) or (isinstance(run, str) and is_prediction_file(run)):
        return open_systems(run, **further)
    if isinstance(run, Evaluation | SystemComparison):
        return open_evaluation(run, **further)
    if further:
        raise UserError(f"{', '.join(further)}: for predictions, not for benchmark runs.")
    if isinstance(run, Reported):
        return run
    return open_run(*(() if run is None else (run,) if isinstance(run, str) else tuple(run)), store=store)
