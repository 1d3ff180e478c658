"""``dubio evaluate``: score files of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dubio.cli.options import (
    EmptyDecisionOption,
    JsonOption,
    PluginOption,
    ReadingOptions,
    files_of_systems,
    load_plugins,
    named_files,
    with_reading_options,
)
from dubio.cli.output import FAILED, check_output, print_result, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.evaluation.results import SystemComparison


@with_reading_options()
def evaluate(
    reading: ReadingOptions,
    systems: list[str],
    ood: list[str] | None = None,
    empty_decision: EmptyDecisionOption = None,
    floor: float | None = None,
    metric: list[str] | None = None,
    calibration: list[str] | None = None,
    thresholds_from: list[str] | None = None,
    replicates: int = 200,
    level: float = 0.95,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    require: list[str] | None = None,
    junit: Path | None = None,
    report: Path | None = None,
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Score files of predictions: accuracy, calibration, selective prediction, out-of-distribution detection.

    Several systems on the same examples are compared pair by pair: paired t-tests with Holm's correction.

    Args:
        systems: Files of predictions, each PATH or NAME=PATH.
        ood: The same system on out-of-distribution examples: PATH, or NAME=PATH for one of several.
        floor: For likelihoods, raise probabilities to this one, such as 1e-6, so that none is zero.
        metric: A metric, such as nll or 'ece(bins=10)'; may be repeated.
        calibration: A recalibration made by dubio calibrate fit: PATH, or NAME=PATH for one of several.
        thresholds_from: Validation predictions that say where multi-label decisions are cut, label by label: PATH, or
            NAME=PATH for one of several.
        replicates: Bootstrap replicates for the intervals; 0 for none.
        level: Confidence level of the intervals.
        seed: Seed of the bootstrap.
        require: Exit with code 3 unless this is met: 'accuracy>=0.9', on an end of the interval 'ece<0.03@upper', for
            one of several systems 'NAME:aurc<0.05'; may be repeated.
        junit: Write the outcome of --require here, as JUnit XML.
        report: Also write the report of these predictions here, a web page such as page.html.
    """
    from dubio.calibration.recalibration import read_recalibration
    from dubio.core.files import write_file
    from dubio.evaluation import evaluate_systems
    from dubio.evaluation.gates import metrics_of, parse_requirements

    load_plugins(plugin)
    named = named_files(systems)
    requirements = parse_requirements(require, named, replicates) if require else ()
    ood_files = files_of_systems("--ood", ood, named)
    validation = files_of_systems("--thresholds-from", thresholds_from, named)
    calibrations = files_of_systems("--calibration", calibration, named, every=False)
    if junit is not None:
        _check_junit(junit, require, reading, named, ood_files, validation, calibrations)
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
        further_metrics=metrics_of(requirements),
        replicates=replicates,
        level=level,
        seed=seed,
        by=reading.by or (),
    )
    notes, written = list(compared.notes), {}
    if report is not None:
        for path in (*named.values(), *(path for paths in ood_files.values() for path in paths)):
            check_output(report, Path(path), option="--report")
        apart = {"--metric": metric, "--thresholds-from": thresholds_from}
        notes += _write_page(compared, report, [option for option, values in apart.items() if values])
        written = {"report": str(report)}
    documents = {name: own.as_dict() for name, own in compared.evaluations.items()}
    pairs = compared.as_dict() if len(named) > 1 else None
    results = compared.require(require) if require else None
    if junit is not None and results is not None:
        write_file(junit, results.to_junit())
    outcomes = results.as_dicts() if results is not None else []
    document = {"systems": documents, "pairs": pairs, "notes": notes, "requirements": outcomes, **written}
    print_result(json, document, compared.tables, output=junit)
    pages = [f"{name}: {path}" for name, path in written.items()]
    for text in () if json else (*notes, *(compared.reasons if metric else ()), *pages):
        say(text)
    if results is not None:
        for text in results.lines:
            say(text)
        if not results:
            raise typer.Exit(FAILED)


def _check_junit(
    junit: Path,
    require: list[str] | None,
    reading: ReadingOptions,
    systems: Mapping[str, str],
    *further: Mapping[str, list[str]],
) -> None:
    """Refuse a file of outcomes without requirements, or over a file that the command reads."""
    if not require:
        raise UserError("--junit writes the outcome of requirements: give at least one --require.")
    paths = [*systems.values(), *(path for files in further for own in files.values() for path in own)]
    check_output(junit, *map(Path, paths), reading.labels, option="--junit")


def _write_page(compared: SystemComparison, path: Path, unused: list[str]) -> list[str]:
    """Write the page of systems that were scored, and return what it does not use, as sentences."""
    from dubio.reporting.prediction_files import open_evaluation

    ignored = [f"{option}: not on the page, which has metrics of its own." for option in unused]
    opened = open_evaluation(compared, ignored=ignored)
    opened.write_page(path)
    return [note for note in opened.notes if note not in compared.notes]
