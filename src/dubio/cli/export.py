"""``dubio export``: write a method of a run as a folder that predicts without the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dubio.cli.options import STORE, JsonOption, PluginOption, StoreOption, load_plugins
from dubio.cli.output import print_result, say
from dubio.cli.predict import ForceOption, NetworkOption, SeedOption, TaskOption
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.deployment.model import Model
    from dubio.deployment.run_models import RunModel


def export(
    run: str,
    method: Annotated[str, typer.Option()],
    output: Annotated[Path, typer.Option("--output", "-o")],
    calibrate: Literal["none", "temperature", "vector", "isotonic"] = "none",
    policy: Path | None = None,
    max_risk: float | None = None,
    capacity: float | None = None,
    onnx: bool = False,
    force: ForceOption = False,
    task: TaskOption = None,
    network: NetworkOption = None,
    seed: SeedOption = None,
    store: StoreOption = STORE,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Export a model: weights, encoder, recipe, classes, calibration, policy and card, sealed against damage.

    Args:
        run: Name of a run.
        method: A method of the run, or best for the one that the verdict supports.
        output: The new folder of the model.
        calibrate: A temperature or map to fit on the run's validation split and apply to every prediction.
        policy: A policy that was fitted on this method's calibration predictions.
        max_risk: Fit a policy on the run's calibration split: an error of the retained below this.
        capacity: The same: refer at most this share of rows, on average.
        onnx: Also write an ONNX graph of a method that predicts in single passes, compared with torch to 1e-5.
    """
    from dubio.core.files import check_new_folder
    from dubio.deployment.folder import export_model, recalibrated
    from dubio.deployment.run_models import RunModel, resolve_method
    from dubio.reporting.stored_run import open_run

    load_plugins(plugin)
    check_new_folder(output)
    opened = open_run(run, store=store)
    name, verdict = resolve_method(opened, method, task=task, network=network)
    selected = RunModel.select(opened, name, task=task, network=network, seed=seed)
    model = selected.model()
    if calibrate != "none":
        model = recalibrated(selected, model, calibrate)
    model = _with_policy(selected, model, policy, max_risk, capacity, force)
    folder = export_model(selected, model, output, onnx=onnx)
    notes = [f"method: {name}. {verdict}"] if verdict else []
    if isinstance(selected.task, str):
        notes.append(f"The model will not notice rows unlike training: {selected.task}")
    document = {"path": str(folder), "model": model.identity, **vars(model.names), "notes": notes}
    lines = [f"{model.names.title} on {model.names.task}, model {model.identity[:12]}: {folder}"]
    if model.policy is not None:
        document["policy"] = model.policy.guarantee
        lines.append(f"{model.policy.guarantee} Rule: {model.policy.rule}.")
    print_result(json, document, lines)
    for note in () if json else notes:
        say(f"note: {note}")


def _with_policy(
    selected: RunModel, model: Model, path: Path | None, max_risk: float | None, capacity: float | None, force: bool
) -> Model:
    """Return the model with the policy of a file, or with one fitted on the run's calibration split, or without."""
    from dubio.core.validate import read_json
    from dubio.deployment.folder import with_own_policy
    from dubio.referral import Policy, fit_capacity_policy, fit_risk_policy

    goals = {"--policy": path, "--max-risk": max_risk, "--capacity": capacity}
    stated = [name for name, goal in goals.items() if goal is not None]
    if len(stated) > 1:
        raise UserError(f"give one of {', '.join(goals)}; given {', '.join(stated)}.")
    if not stated:
        return model
    if path is not None:
        return with_own_policy(selected, model, read_json(Policy, path), force=force)
    rows = selected.stored("cal", model)
    if rows is None:
        raise UserError(f"{stated[0]}: the run has no calibration split (cal = 0) to fit a policy on.")
    if max_risk is not None:
        return model.with_parts(policy=fit_risk_policy(rows, max_risk=max_risk))
    return model.with_parts(policy=fit_capacity_policy(rows, capacity=float(capacity or 0.0)))
