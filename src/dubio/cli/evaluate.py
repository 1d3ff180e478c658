"""``dubio evaluate``: score files of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.options import named_files
from dubio.cli.output import print_json, say
from dubio.core.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.core.types import Metric


def evaluate(
    systems: Annotated[list[str], typer.Argument(help="Files of predictions, each PATH or NAME=PATH.")],
    ood: Annotated[
        list[str] | None,
        typer.Option(help="The same system on out-of-distribution examples: PATH, or NAME=PATH for one of several."),
    ] = None,
    values: Annotated[
        Literal["probs", "log_probs", "logits"] | None,
        typer.Option(help="Kind of numbers in the file, if their names do not show it."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A file of labels, if the files of predictions have none.")
    ] = None,
    target: Annotated[
        Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="The kind of target.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric, such as nll or 'ece(bins=10)'; may be repeated.")
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(help="A recalibration made by dubio calibrate fit: PATH, or NAME=PATH for one of several."),
    ] = None,
    thresholds_from: Annotated[
        list[str] | None,
        typer.Option(
            help="Validation predictions that say where multi-label decisions are cut, label by label: PATH, or "
            "NAME=PATH for one of several."
        ),
    ] = None,
    in_domain: Annotated[str | None, typer.Option(help="The in-distribution value of the column domain.")] = None,
    tolerance: Annotated[float, typer.Option(help="How far the sum of a row of probabilities may be from one.")] = 1e-3,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates for the intervals; 0 for none.")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file that registers metrics.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Score files of predictions: accuracy, calibration, selective prediction, out-of-distribution detection.

    Several systems on the same examples are compared pair by pair: paired t-tests, corrected after Holm.
    """
    from dubio.cli.evaluate_tables import notes_on, print_detection, print_pairs, print_scores
    from dubio.core.registry import load_entry_points, load_plugin
    from dubio.evaluation import compare_evaluations, evaluate_predictions, with_ood
    from dubio.formats import read_predictions
    from dubio.statistics.paired import align

    load_entry_points()
    for file in plugin or ():
        load_plugin(file)
    named = named_files(systems)
    ood_files = _ood_files(ood or [], named)

    def read(path: str, own_labels: Path | None) -> Any:
        return read_predictions(
            path, values=values, labels=own_labels, target=target, tolerance=tolerance, in_domain=in_domain
        )

    predicted = align({name: read(path, labels) for name, path in named.items()})
    remarks = _recalibrate(predicted, calibration or [])
    for paths in zip(*ood_files.values(), strict=True):
        further = align({name: read(path, None) for name, path in zip(ood_files, paths, strict=True)})
        _recalibrate(further, calibration or [])
        predicted = {name: with_ood(predicted[name], further[name]) for name in predicted}
    validation = {name: read(path, None) for name, path in _validation(thresholds_from or [], named).items()}
    if validation:
        _recalibrate(validation, calibration or [])
    results = {
        name: evaluate_predictions(
            predictions,
            metrics=_with_thresholds(metric, predictions, validation.get(name)),
            replicates=replicates,
            level=level,
            seed=seed,
        )
        for name, predictions in predicted.items()
    }
    if metric and not any(result.scores for result in results.values()):
        raise UserError(" ".join(sorted({text for result in results.values() for text in result.reasons.values()})))
    pairs = compare_evaluations(results) if len(results) > 1 and replicates else None
    notes = [*remarks, *notes_on(results, pairs)]
    if json:
        print_json({"systems": {name: result.as_dict() for name, result in results.items()},
                    "pairs": None if pairs is None else pairs.as_dict(), "notes": notes})  # fmt: skip
        return
    print_scores(results)
    print_pairs(results, pairs)
    print_detection(results)
    for note in notes:
        say(note)
    for reason in sorted({text for result in results.values() for text in result.reasons.values()} if metric else ()):
        say(reason)


def _validation(options: list[str], systems: dict[str, str]) -> dict[str, str]:
    """Return system → its validation file; every system has one, or none."""
    files = dict(_whose(text, systems, "--thresholds-from") for text in options)
    lacking = [name for name in systems if name not in files]
    if files and lacking:
        raise UserError(f"--thresholds-from: every system needs its own validation predictions; {lacking[0]} has none.")
    return files


def _with_thresholds(
    requested: list[str] | None, predictions: Predictions, validation: Predictions | None
) -> Sequence[str | Metric] | None:
    """Return the requested metrics, and those at the thresholds fitted on validation predictions."""
    if validation is None:
        return requested
    from dubio.calibration.thresholds import fit_thresholds, metrics_at
    from dubio.evaluation import STANDARD

    if validation.class_count != predictions.class_count:
        raise UserError(
            f"--thresholds-from: validation predictions must have the {predictions.class_count} labels of those "
            f"that are scored; given {validation.class_count}."
        )
    if validation.classes is not None and predictions.classes is not None:
        for number, (own, other) in enumerate(zip(predictions.classes, validation.classes, strict=True), start=1):
            if own != other:
                raise UserError(
                    "--thresholds-from: validation predictions must have the labels of those that are scored, in "
                    f"their order; label {number} is {own!r} there and {other!r} in validation."
                )
    return (*(STANDARD if requested is None else requested), *metrics_at(fit_thresholds(validation)))


def _recalibrate(systems: dict[str, Predictions], options: list[str]) -> list[str]:
    """Apply the recalibrations, PATH or NAME=PATH with several systems, and return remarks on them."""
    from dubio.calibration.recalibration import apply_recalibration, fitted_on, read_recalibration

    remarks = []
    for text in options:
        name, path = _whose(text, systems, "--calibration")
        recalibration = read_recalibration(Path(path))
        if fitted_on(recalibration, systems[name]):
            remarks.append(f"caution: {path} was fitted on these predictions of {name}; "
                           "fit it on a validation file for an honest score.")  # fmt: skip
        systems[name] = apply_recalibration(recalibration, systems[name])
        remarks.append(f"{name}: recalibrated with {path} ({recalibration.method}).")
    return remarks


def _ood_files(options: list[str], systems: dict[str, str]) -> dict[str, list[str]]:
    """Return system → its out-of-distribution files; every system has the same number of them."""
    files: dict[str, list[str]] = {}
    for text in options:
        name, path = _whose(text, systems, "--ood")
        files.setdefault(name, []).append(path)
    counts = {name: len(files.get(name, ())) for name in systems}
    if files and len(set(counts.values())) > 1:
        numbers = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise UserError(f"--ood: every system needs the same out-of-distribution examples; files given are {numbers}.")
    return {name: files[name] for name in systems} if files else {}


def _whose(text: str, systems: Mapping[str, Any], option: str) -> tuple[str, str]:
    """Return (system, path) of an option that is PATH for the only system, or NAME=PATH."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        if len(systems) > 1:
            raise UserError(f"{option} {text!r}: with several systems, name one of them: NAME=PATH.")
        return next(iter(systems)), text
    if name not in systems:
        raise UnknownName(f"system in {option}", name, systems)
    return name, path
