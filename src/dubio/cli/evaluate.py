"""``dubio evaluate``: score files of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dubio.cli.options import (
    EmptyDecisionOption,
    JsonOption,
    PluginOption,
    ReadingOptions,
    load_plugins,
    named_files,
    with_reading_options,
)
from dubio.cli.output import print_result, say
from dubio.core.errors import UnknownName, UserError


@with_reading_options()
def evaluate(
    reading: ReadingOptions,
    systems: Annotated[list[str], typer.Argument(help="Files of predictions, each PATH or NAME=PATH.")],
    ood: Annotated[
        list[str] | None,
        typer.Option(help="The same system on out-of-distribution examples: PATH, or NAME=PATH for one of several."),
    ] = None,
    empty_decision: EmptyDecisionOption = None,
    floor: Annotated[
        float | None,
        typer.Option(help="For likelihoods, raise probabilities to this one, such as 1e-6, so that none is zero."),
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
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates for the intervals; 0 for none.")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Score files of predictions: accuracy, calibration, selective prediction, out-of-distribution detection.

    Several systems on the same examples are compared pair by pair: paired t-tests, corrected after Holm.
    """
    from dubio.calibration.recalibration import read_recalibration
    from dubio.evaluation import evaluate_systems

    load_plugins(plugin)
    named = named_files(systems)
    ood_files = _files_of_systems("--ood", ood, named)
    validation = _files_of_systems("--thresholds-from", thresholds_from, named)
    calibrations = _files_of_systems("--calibration", calibration, named, every=False)
    compared = evaluate_systems(
        {name: reading.read(path, labels=reading.labels) for name, path in named.items()},
        ood=[
            dict(zip(ood_files, map(reading.read, paths), strict=True))
            for paths in zip(*ood_files.values(), strict=True)
        ],
        recalibrations={name: {path: read_recalibration(Path(path)) for path in calibrations[name]} for name in named},
        validation={name: reading.read(paths[-1]) for name, paths in validation.items() if paths},
        empty_decision=empty_decision,
        floor=floor,
        metrics=metric,
        replicates=replicates,
        level=level,
        seed=seed,
        test_pairs=replicates > 0,
        by=reading.by or (),
    )
    documents = {name: own.as_dict() for name, own in compared.evaluations.items()}
    pairs = compared.as_dict() if len(named) > 1 and replicates else None
    print_result(json, {"systems": documents, "pairs": pairs, "notes": compared.notes}, compared.tables)
    for text in () if json else (*compared.notes, *(compared.reasons if metric else ())):
        say(text)


def _files_of_systems(
    option: str, texts: list[str] | None, systems: Mapping[str, str], *, every: bool = True
) -> dict[str, list[str]]:
    """Return system → files of an option that is PATH for the only system, or NAME=PATH.

    Args:
        option: The option.
        texts: Its values.
        systems: Name → file.
        every: Whether every system needs the same number of them.
    """
    files: dict[str, list[str]] = {name: [] for name in systems}
    for text in texts or ():
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            if len(systems) > 1:
                raise UserError(f"{option} {text!r}: with several systems, name one of them: NAME=PATH.")
            name, path = next(iter(systems)), text
        if name not in systems:
            raise UnknownName(f"system in {option}", name, systems)
        files[name].append(path)
    if every and len({len(paths) for paths in files.values()}) > 1:
        numbers = ", ".join(f"{name}: {len(paths)}" for name, paths in files.items())
        raise UserError(f"{option}: every system needs the same number of files; files given are {numbers}.")
    return files
