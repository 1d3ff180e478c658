"""The model behind a row of a run's table: a method on a task with a seed, with its fits from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dubio.calibration.recalibration import apply_recalibration
from dubio.core.errors import DubioError, UnknownName, UserError, listing
from dubio.core.predictions import Predictions
from dubio.core.registry import TASKS
from dubio.core.types import Kind, Task
from dubio.deployment.inputs import IMAGE, InputForm
from dubio.deployment.model import Model, ModelFit, ModelNames
from dubio.deployment.training_summary import TrainingSummary
from dubio.reporting.method_choice import supported_method
from dubio.reporting.stored_run import Run
from dubio.store import Store
from dubio.store.fits import WEIGHTS

TEXT = "text"
"""The column of a text where the run's data has no name for it."""


@dataclass(frozen=True, eq=False)
class RunModel:
    """A method of a run, as its manifest and its store hold it.

    Attributes:
        run: The run.
        entry: The task, as the manifest describes it.
        row: The row of the manifest: method, seed, fits, predictions.
        fits: The fits of the row.
    """

    run: Run
    entry: Mapping[str, Any]
    row: Mapping[str, Any]
    fits: tuple[ModelFit, ...]

    @classmethod
    def select(
        cls, run: Run, method: str, *, task: str | None = None, network: str | None = None, seed: int | None = None
    ) -> RunModel:
        """Select a method of a run; arguments as of :func:`model_of_run`."""
        entry = choose_task(run, task, network)
        row = _choose_row(run, entry, method, seed)
        if not row["fits"]:
            reason = "its fits are not stored, so that it cannot predict again"
            raise UserError(f"method {method!r} is not a recipe: {reason}.")
        return cls(run, entry, row, tuple(_fits(run.source, row)))

    @cached_property
    def task(self) -> Task | str:
        """The run's data if they are here and have not changed, else the reason why not."""
        return read_task(self.entry, self.fits[0])

    def model(self, *, device: str = "cpu") -> Model:
        """Return the model, with a summary of the run's rows where its data can be read."""
        row, titles = self.row, {item["name"]: item.get("title") for item in self.run.manifest["methods"]}
        title = titles.get(row["method"]) or row["method"]
        run = next((name for name in self.run.source.manifests() if name.startswith(self.run.name)), self.run.name)
        names = ModelNames(row["method"], title, row["task"], row["network"], run, row["seed"])
        form, decision = input_form(self.entry, self.fits[0], self.task), self.entry.get("empty_decision", "empty")
        model = Model(names, form, self.fits, empty_decision=decision, device=device)
        if isinstance(self.task, str):
            return model
        return model.with_parts(training=TrainingSummary.of(self.task, model.encoder, model.columns))

    def stored(self, kind: Kind, model: Model) -> Predictions | None:
        """Return the run's own predictions on its first split of a kind, as the model recalibrates them, or None."""
        split = next((split for split in self.entry["splits"] if split["kind"] == kind), None)
        if split is None:
            return None
        raw = self.run.source.read_predictions(self.row["id"], split["name"], split["fingerprint"])
        raw = raw.with_checked(empty_decision=model.empty_decision, system=model.identity)
        return raw if model.recalibration is None else apply_recalibration(model.recalibration, raw)


BEST = "best"
"""The method that the verdict supports."""


def resolve_method(run: Run, method: str, *, task: str | None = None, network: str | None = None) -> tuple[str, str]:
    """Return the name of a method, and for ``best`` the verdict in words: the method that the run's results support.

    Args:
        run: The run.
        method: A method of the run, or ``best``.
        task: The task; may be omitted where the run has one.
        network: The network; may be omitted where the task has one.

    Raises:
        UserError: When the results support no method; with the reason.
    """
    entry = choose_task(run, task, network)
    if method != BEST or any(item["name"] == BEST for item in run.manifest["methods"]):
        return method, ""
    view = run.built.run
    shown = next(own for own in view.tasks if (own.name, own.network) == (entry["name"], entry["network"]))
    choice, verdict = supported_method(view, shown)
    if choice is None:
        raise UserError(f"--method best: the run supports none. {verdict} Name one with --method, or add seeds.")
    return choice, verdict


def model_of_run(
    run: Run,
    method: str,
    *,
    task: str | None = None,
    network: str | None = None,
    seed: int | None = None,
    device: str = "cpu",
) -> Model:
    """Return a method of a run as a model that predicts raw rows.

    Args:
        run: The run.
        method: The method, by its name in the run, or ``best`` for the one that the verdict supports.
        task: The task; may be omitted where the run has one.
        network: The network; may be omitted where the task has one.
        seed: The seed; the first of the run if omitted.
        device: The device to predict on.

    Raises:
        UnknownName: For a method, task or seed that the run does not have.
        UserError: Where several tasks fit, or the method's fits are not stored.
    """
    name, _ = resolve_method(run, method, task=task, network=network)
    return RunModel.select(run, name, task=task, network=network, seed=seed).model(device=device)


def choose_task(run: Run, task: str | None, network: str | None) -> Mapping[str, Any]:
    """Return the task of a run that a name and a network select, as the manifest describes it.

    Raises:
        UserError: When none, or more than one, fits.
    """
    entries: Sequence[Mapping[str, Any]] = run.manifest["tasks"]
    for label, value, key in (("task", task, "name"), ("network", network, "network")):
        names = dict.fromkeys(str(entry[key]) for entry in entries)
        if value is not None and value not in names:
            raise UnknownName(f"{label} of the run {run.name}", value, names)
        entries = [entry for entry in entries if value in (None, entry[key])]
    if len(entries) != 1:
        setups = listing(f"{entry['name']} with {entry['network']}" for entry in entries)
        raise UserError(f"the run {run.name} has {len(entries)} tasks; name one with task (--task), or network "
                        f"(--network) too: {setups}.")  # fmt: skip
    return entries[0]


def _choose_row(run: Run, entry: Mapping[str, Any], method: str, seed: int | None) -> Mapping[str, Any]:
    own = [row for row in run.manifest["runs"] if (row["task"], row["network"]) == (entry["name"], entry["network"])]
    methods = dict.fromkeys(row["method"] for row in own)
    if method not in methods:
        raise UnknownName(f"method of the run {run.name}", method, methods)
    rows = [row for row in own if row["method"] == method]
    seeds = dict.fromkeys(row["seed"] for row in rows)
    if seed is not None and seed not in seeds:
        raise UserError(f"seed (--seed) must be one of the run's, {listing(map(str, seeds))}; given {seed}.")
    return next(row for row in rows if seed in (None, row["seed"]))  # of a seed, the first member


def _fits(store: Store, row: Mapping[str, Any]) -> Sequence[ModelFit]:
    """Return the fits of a row, verified, each with the specification of its predictions."""
    spec = row["spec"]
    predictions = [store.spec("predictions", member) for member in spec["members"]] if "members" in spec else [spec]
    fits = []
    for fit_id, prediction in zip(row["fits"], predictions, strict=True):
        fit = store.read_fit(fit_id)
        fits.append(ModelFit(fit.spec, prediction, fit.tensors, fit.encoder, fit.record["files"][WEIGHTS]["sha256"]))
    return fits


def input_form(entry: Mapping[str, Any], fit: ModelFit, task: Task | str) -> InputForm:
    """Return the form of a raw row, as the run's own data was described.

    Args:
        entry: The task, as the manifest describes it.
        fit: A fit on it.
        task: The task, or the reason why its data are not here.
    """
    arguments = entry["arguments"]
    roles = {name: arguments.get(name) for name in ("label", "label_separator", "id", "group")}
    if entry["inputs"] == "text":
        return InputForm("text", (arguments.get("text") or TEXT,), **roles)
    if entry["inputs"] == "image":
        channels, height, width = fit.encoder["shape"]
        folder = entry["task"] == "own" and Path(arguments["data"]).suffix.lower() != ".npz"
        return InputForm(
            "image", (IMAGE,), (height, width, channels), stretch=folder or bool(arguments.get("size")), **roles
        )
    count = len(fit.encoder["mean"])
    names = tuple(arguments.get("features") or ())
    if len(names) != count or "*" in names:
        names = task.features if isinstance(task, Task) else ()
    return InputForm("table", names if len(names) == count else tuple(f"x{k}" for k in range(count)), **roles)


def read_task(entry: Mapping[str, Any], fit: ModelFit) -> Task | str:
    """Return the data of a run's task if they are here and are still those of a fit, else the reason.

    Args:
        entry: The task, as the manifest describes it.
        fit: A fit on it.
    """
    try:
        task: Task = TASKS.make(entry["task"] or entry["name"], **entry["arguments"])
    except (DubioError, OSError) as fault:
        return f"the run's data cannot be read: {fault}"
    if [split.fingerprint for split in task.of_kind("train")] != [fit.spec["task"]["train"]]:
        return "the run's data have changed since it was made."
    return task
