"""``dubio predict``: predict new rows with a method of a run, or with an exported model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import STORE, JsonOption, PluginOption, RawCsvOption, StoreOption, load_plugins
from dubio.cli.output import INTERRUPTED, check_output, print_result, say
from dubio.core.errors import UserError, plural

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.deployment.model import Model
    from dubio.deployment.prediction_job import PredictionJob
    from dubio.referral.application import Applied

SHOWN_EVERY = 0.2
LOGGED_EVERY = 10.0

TaskOption = Annotated[str | None, typer.Option(help="The task, if the run has several.")]
NetworkOption = Annotated[str | None, typer.Option(help="The network, if the task has several.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="The seed of the run; the first one if omitted.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Accept a policy that was fitted for another model.")]


def predict(
    run: str,
    rows: Path,
    output: Annotated[Path, typer.Option("--output", "-o")],
    method: str | None = None,
    samples: Annotated[bool | None, typer.Option("--samples/--pooled")] = None,
    policy: Path | None = None,
    decisions: Path | None = None,
    force: ForceOption = False,
    task: TaskOption = None,
    network: NetworkOption = None,
    seed: SeedOption = None,
    device: str = "cpu",
    store: StoreOption = STORE,
    plugin: PluginOption = None,
    raw_csv: RawCsvOption = False,
    json: JsonOption = False,
) -> None:
    """Predict new rows. Interrupt it at any time: the same command continues where it stopped.

    Args:
        run: Name of a run, or the folder of an exported model.
        rows: New rows like the run's own data: CSV, TSV, JSONL, Parquet, npz, or a folder of images.
        output: Write predictions here: .safetensors, .parquet, .csv or .npz.
        method: A method of the run, or best for the one that the verdict supports.
        samples: Write every sample, or pooled probabilities; if omitted: samples to .safetensors, else pooled.
        policy: A referral policy; the model's own if it has one.
        decisions: Write a decision and its reason for each row here, as CSV.
        device: Where to predict, such as cpu or cuda:0.
    """
    from dubio.deployment.prediction_job import PredictionJob
    from dubio.deployment.row_files import RowFile

    load_plugins(plugin)
    check_output(output, rows, policy)
    if decisions is not None:
        check_output(decisions, rows, policy, option="--decisions")
        if decisions.resolve() == output.resolve():
            raise UserError(f"--decisions {str(decisions)!r} is the file of --output; name another file.")
    choices = {"task": task, "network": network, "seed": seed}
    model, notes = open_model(run, method, store, choices, device)
    chosen = _policy(policy, model, decisions, force)
    source = RowFile(rows, model.form, model.classes, model.target)
    all_samples = output.suffix.lower() == ".safetensors" if samples is None else samples
    job = PredictionJob(model, source, output, all_samples, _progress())
    try:
        predictions, unlike = job.run()
        applied = None if decisions is None else model.decided(predictions, chosen, force=force)
        if applied is not None and decisions is not None:
            _write_decisions(decisions, applied, raw_csv)
        _report(job, predictions, applied, [*notes, *predictions.notes], unlike, decisions, json)
        job.finish()
    except KeyboardInterrupt:
        say(f"\nInterrupted. Finished rows are in {job.parts}; run the same command again to continue.")
        raise typer.Exit(INTERRUPTED) from None


def open_model(
    run: str, method: str | None, store: Path, choices: dict[str, Any], device: str
) -> tuple[Model, tuple[str, ...]]:
    """Return the model that a run and a method, or the folder of an exported one, name, and what to say about it."""
    from dubio.deployment.folder import DESCRIPTION, load
    from dubio.deployment.run_models import RunModel, resolve_method
    from dubio.methods.fitting import check_device
    from dubio.reporting.stored_run import open_run

    check_device(device, "--device")
    if Path(run, DESCRIPTION).exists():
        stated = [f"--{name}" for name, value in {"method": method, **choices}.items() if value is not None]
        if stated:
            raise UserError(f"{', '.join(stated)}: for a run; {run!r} is an exported model, which is one method.")
        return load(run, device=device), ()
    opened = open_run(run, store=store)
    if method is None:
        raise UserError("--method must name a method of the run, or best for the one that the verdict supports.")
    name, verdict = resolve_method(opened, method, task=choices["task"], network=choices["network"])
    selected = RunModel.select(opened, name, **choices)
    model = selected.model(device=device)
    notes = [f"method: {name}. {verdict}"] if verdict else []
    if isinstance(selected.task, str):
        notes.append(f"Whether the rows look unlike training is not checked: {selected.task}")
    return model, tuple(notes)


def _policy(path: Path | None, model: Model, decisions: Path | None, force: bool) -> Any:
    """Return the policy that decides, checked against the model before anything is predicted."""
    from dubio.core.validate import read_json
    from dubio.referral import Policy

    if decisions is None:
        if path is not None:
            raise UserError("--policy decides about rows: name the file of decisions with --decisions.")
        return None
    return model.check_policy(model.policy if path is None else read_json(Policy, path), force=force)


def _write_decisions(path: Path, applied: Applied, raw: bool) -> None:
    from dubio.core.files import open_atomic, writing

    with writing(path), open_atomic(path) as sink:
        for line in applied.csv_lines(raw=raw):
            sink.write(line.encode("utf-8"))


def _report(
    job: PredictionJob, predictions: Predictions, applied: Applied | None, notes: list[str], unlike: tuple[str, ...],
    decisions: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print what was predicted and decided, and what looks unlike training."""
    count, names = len(predictions), job.model.names
    title = f"{names.title} of the run {names.run}"
    lines = [f"{count:,} {plural('row', count)} predicted by {title} (model {job.model.identity[:12]})"]
    document: dict[str, Any] = {"rows": count, "model": job.model.identity, **vars(names), "path": str(job.output)}
    document |= {"notes": notes, "unlike_training": unlike}
    if applied is not None:
        lines += applied.lines
        document["decisions"] = {**applied.as_dict(), "path": str(decisions)}
        notes = [*notes, *(note for note in applied.notes if note not in notes)]
    for warning in (*unlike, *(applied.warnings if applied is not None else ())):
        say(f"warning: {warning}")
    print_result(as_json, document, lines, output=job.output)
    written = [f"predictions: {job.output}", *([f"decisions: {decisions}"] if decisions else ())]
    for text in () if as_json else (*(f"note: {note}" for note in dict.fromkeys(notes)), *written):
        say(text)


def _progress() -> Any:
    """Return a function that shows the number of predicted rows: on one line of a terminal, else now and then."""
    terminal = sys.stderr.isatty()
    last = [time.monotonic()]

    def show(rows: int) -> None:
        now = time.monotonic()
        if now - last[0] < (SHOWN_EVERY if terminal else LOGGED_EVERY):
            return
        last[0] = now
        sys.stderr.write(f"\rpredicted {rows:,} rows" if terminal else f"predicted {rows:,} rows\n")
        sys.stderr.flush()

    return show
