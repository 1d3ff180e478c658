"""A model as a folder: exported from a run, sealed by hash, loaded again.

``model.json`` holds everything but weights and encoders: names, form of a row, recipe, recalibration, policy, summary
of the run's rows, fingerprints of its data, and the SHA-256 of every other file; its own hash is its ``seal``.
``weights-0.safetensors`` and so on are the store's own files, ``encoder-0.json`` the encoders, ``card.md`` the model
card. ``parts.npz`` holds a digest of each row of the user's own data with its part, for a later run on more rows.

The seal shows damage: a file that was cut off, exchanged or edited. It is no signature: whoever can write the folder
can seal it again. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dubio import __version__
from dubio.calibration.recalibration import (
    Recalibration,
    RecalibrationMethod,
    fit_recalibration,
)
from dubio.core.errors import BadFile, CorruptFile, DubioError, UserError
from dubio.core.files import new_folder
from dubio.core.specs import canonical, identity
from dubio.core.types import EmptyDecision, Examples, Kind
from dubio.core.validate import NonNegative, decode, document, encode, entries
from dubio.deployment.inputs import InputForm
from dubio.deployment.model import Model, ModelFit, ModelNames
from dubio.deployment.model_card import model_card
from dubio.deployment.onnx_graph import write_onnx
from dubio.deployment.run_models import RunModel
from dubio.deployment.training_summary import TrainingSummary
from dubio.formats.safetensors import read_tensors, write_tensors
from dubio.referral.policy import Policy
from dubio.referral.units import rounded_uncertainty
from dubio.reporting.measures import in_domain_metrics, measure
from dubio.store.records import SEAL, StoredFile, check_file, file_facts, json_bytes, read_json, seal, verify_file
from dubio.tasks.own.earlier_parts import write_parts
from dubio.torch_module.fit_file import FAULTS

DESCRIPTION, CARD, GRAPH, PARTS = "model.json", "card.md", "model.onnx", "parts.npz"

COMPARED_ROWS = 64
"""Rows on which an ONNX graph is compared with the model."""

FORCED = "The policy was accepted by force: whether it was fitted for this model was not checked."


@dataclass(frozen=True)
class FitFiles:
    """One fit: its specification, that of its predictions, and the names of its files."""

    spec: Mapping[str, Any]
    prediction: Mapping[str, Any]
    weights: str
    encoder: str


@dataclass(frozen=True)
class DataSplit:
    """A split of the run's data."""

    name: str
    kind: Kind
    examples: NonNegative
    fingerprint: str


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        task: The task as the run's manifest describes it: data options, network, encoding, source card.
        benchmark: The benchmark as it was run.
        command: The command of the run, where it has one.
        splits: Its data.
        scores: Scores on the in-domain test split, as this model is calibrated; None where one is undefined.
        cautions: Reasons to distrust the run's results of this method.
    """

    task: Mapping[str, Any]
    benchmark: Mapping[str, Any]
    command: str
    splits: tuple[DataSplit, ...]
    scores: Mapping[str, float | None]
    cautions: tuple[str, ...] = ()


@document("model", schema=1)
@dataclass(frozen=True)
class ModelFile:
    """The content of ``model.json``; attributes as of :class:`~dubio.deployment.model.Model`."""

    identity: str
    names: ModelNames
    form: InputForm
    empty_decision: EmptyDecision
    fits: Annotated[tuple[FitFiles, ...], entries(1)]
    recalibration: Recalibration | None
    policy: Policy | None
    training: TrainingSummary | None
    source: ModelSource
    files: Mapping[str, StoredFile]
    version: str


def export_model(selected: RunModel, model: Model, out: str | Path, *, onnx: bool = False) -> Path:
    """Write a model as a new folder, all of it or nothing.

    Args:
        selected: The method of the run.
        model: Its model, with recalibration and policy.
        out: The folder; it must not exist, or be empty.
        onnx: Whether the folder also holds the model as an ONNX graph, ``model.onnx``.

    Raises:
        UserError: When the folder has files already, or cannot be written.
    """
    folder = Path(out)
    source = model_source(selected, model)
    with new_folder(folder) as fresh:
        fits = _write_fits(fresh, model)
        if onnx:
            write_onnx(model, fresh / GRAPH, _rows_to_compare(selected))
        if selected.entry.get("task") == "own" and not isinstance(selected.task, str):
            write_parts(fresh / PARTS, selected.task)
        (fresh / CARD).write_text(model_card(model, source), encoding="utf-8")
        files = {path.name: StoredFile(**file_facts(path)) for path in sorted(fresh.iterdir())}
        parts = model.empty_decision, fits, model.recalibration, model.policy, model.training
        content = ModelFile(model.identity, model.names, model.form, *parts, source, files, __version__)
        (fresh / DESCRIPTION).write_bytes(seal(encode(content)))
    return folder


def _rows_to_compare(selected: RunModel) -> Examples:
    """Return some test rows of the run, on which a graph is compared with the model.

    Raises:
        UserError: When the run's data are not here.
    """
    if isinstance(selected.task, str):
        raise UserError(f"--onnx: the graph is compared with the model on rows of the run: {selected.task}")
    rows = selected.task.of_kind("id", "val", "train")[0].data
    return rows.take(np.arange(min(len(rows), COMPARED_ROWS)))


def _write_fits(folder: Path, model: Model) -> tuple[FitFiles, ...]:
    """Write weights, and every encoder once; the bytes of weights are those of the store."""
    encoders: dict[bytes, str] = {}
    fits = []
    for index, fit in enumerate(model.fits):
        text, weights = canonical(fit.encoder), f"weights-{index}.safetensors"
        if text not in encoders:
            encoders[text] = f"encoder-{len(encoders)}.json"
            (folder / encoders[text]).write_bytes(json_bytes(fit.encoder))
        write_tensors(folder / weights, fit.tensors, {})
        fits.append(FitFiles(fit.spec, fit.prediction, weights, encoders[text]))
    return tuple(fits)


def model_source(selected: RunModel, model: Model) -> ModelSource:
    """Return where a model comes from, with its scores on the run's test split."""
    manifest, entry = selected.run.manifest, selected.entry
    keys = ("name", "kind", "examples", "fingerprint")
    splits = tuple(DataSplit(**{key: split[key] for key in keys}) for split in entry["splits"])
    task = {key: value for key, value in entry.items() if key not in ("splits", "facts", "budgets")}
    tested = selected.stored("id", model)
    values = {} if tested is None else measure(in_domain_metrics(), tested)
    scores = {name: float(value) if value == value and abs(value) != float("inf") else None
              for name, value in values.items()}  # fmt: skip
    benchmark, command = manifest.get("benchmark") or {}, str(manifest.get("command", ""))
    names = {row["name"] for row in manifest["methods"]}
    cautions = tuple(text for text in manifest["advice"] if _is_about(model.names.method, text, names))
    return ModelSource(task, benchmark, command, splits, scores, cautions)


def _is_about(method: str, caution: str, names: Collection[str]) -> bool:
    """Return whether a caution of a run concerns a method: it names it, or none of the run's methods."""
    named = set(re.findall(r"[\w-]+", caution)) & set(names)
    return not named or method in named


def load(path: str | Path, *, device: str = "cpu") -> Model:
    """Load a model that ``dubio export`` wrote; every file is compared with its hash first.

    Args:
        path: The folder.
        device: The device to predict on.

    Raises:
        BadFile: When it is no such folder, or a file is missing or damaged.
    """
    folder = Path(path)
    content = read_description(folder)
    try:
        fits = tuple(_read_fit(folder, fit, content.files) for fit in content.fits)
        parts: dict[str, Any] = {name: getattr(content, name) for name in ("recalibration", "policy", "training")}
        model = Model(content.names, content.form, fits, empty_decision=content.empty_decision, device=device, **parts)
        model.check_usable()
    except CorruptFile as fault:
        raise BadFile(f"the model {str(folder)!r} is damaged: {fault}") from fault
    except (DubioError, *FAULTS) as fault:
        raise BadFile(f"the model {str(folder)!r} cannot be used: {fault}") from fault
    if model.identity != content.identity:
        raise BadFile(f"the model {str(folder)!r} is not the one that its {DESCRIPTION} describes.")
    return model


def read_description(folder: Path) -> ModelFile:
    """Return the content of ``model.json``, checked against its seal.

    Raises:
        BadFile: When there is none, or it is not what was written.
    """
    if not (folder / DESCRIPTION).is_file():
        raise BadFile(f"{str(folder)!r} is not a model, as dubio export writes it: it has no {DESCRIPTION}.")
    try:
        plain = read_json(folder / DESCRIPTION)
        if not isinstance(plain, dict) or plain.pop(SEAL, None) != identity(plain):
            raise CorruptFile(f"{DESCRIPTION} is not what was written.")
        content = decode(ModelFile, plain, DESCRIPTION)
        for name, facts in plain["files"].items():
            check_file(folder / DESCRIPTION, name, facts, StoredFile)
            verify_file(folder, name, facts)
    except (CorruptFile, UserError) as fault:
        raise BadFile(f"the model {str(folder)!r} is damaged, or was written by another version: {fault}") from fault
    return content


def _read_fit(folder: Path, fit: FitFiles, files: Mapping[str, StoredFile]) -> ModelFit:
    for name in (fit.weights, fit.encoder):
        if name not in files:
            raise CorruptFile(f"{DESCRIPTION} names {name!r} and does not list it among its files.")
    tensors, _ = read_tensors(folder / fit.weights)
    return ModelFit(fit.spec, fit.prediction, tensors, read_json(folder / fit.encoder), files[fit.weights].sha256)


def recalibrated(selected: RunModel, model: Model, method: RecalibrationMethod) -> Model:
    """Return a model with a recalibration fitted on the run's validation split.

    The calibration split stays unused for policies, whose guarantees need rows that nothing was fitted to.

    Raises:
        UserError: When the run has no validation split.
    """
    plain = model.with_parts(recalibration=None)
    rows = selected.stored("val", plain)
    if rows is None:
        raise UserError("--calibrate: the run has no validation split (val = 0) to fit a temperature or map on.")
    return model.with_parts(recalibration=fit_recalibration(rows, method))


def with_own_policy(selected: RunModel, model: Model, policy: Policy, *, force: bool = False) -> Model:
    """Return a model with a policy that was fitted for it: on the run's calibration split, or on the model's output.

    A policy without a system is recognised by its calibration uncertainties, which must be those of this method.

    Raises:
        UserError: When it was fitted for another system and is not forced.
    """
    model.check_policy(policy, force=force)
    if policy.system is None and not force:
        rows = selected.stored("cal", model)
        own = set() if rows is None else set(rounded_uncertainty(rows, policy.quantity).tolist())
        if not own >= set(policy.seen):
            reason = "its calibration uncertainties are not those of this method on the run's calibration split"
            raise UserError(f"--policy was not fitted for this model: {reason}. Fit it on them, or accept it all the "
                            "same with --force.")  # fmt: skip
    forced = (FORCED,) if force else ()
    return model.with_parts(policy=replace(policy, system=model.identity, notes=(*policy.notes, *forced)))
