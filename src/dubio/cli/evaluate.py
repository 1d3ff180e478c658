"""``dubio evaluate``: score files of predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import (
    JsonOption,
    LabelsOption,
    TargetOption,
    ToleranceOption,
    ValuesOption,
    load_plugins,
    named_files,
)
from dubio.cli.output import make_table, print_json, print_table, say
from dubio.core.errors import UnknownName, UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.core.types import Metric
    from dubio.evaluation import Evaluation, Score, SystemComparison
    from dubio.statistics.verdicts import PairTest

FEW = 3
"""Up to this many systems every pair is printed; of more, those with the best one of each metric."""

SAME = "not significant"


def evaluate(
    systems: Annotated[list[str], typer.Argument(help="Files of predictions, each PATH or NAME=PATH.")],
    ood: Annotated[
        list[str] | None,
        typer.Option(help="The same system on out-of-distribution examples: PATH, or NAME=PATH for one of several."),
    ] = None,
    values: ValuesOption = None,
    labels: LabelsOption = None,
    target: TargetOption = None,
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
    tolerance: ToleranceOption = 1e-3,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates for the intervals; 0 for none.")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file that registers metrics.")] = None,
    json: JsonOption = False,
) -> None:
    """Score files of predictions: accuracy, calibration, selective prediction, out-of-distribution detection.

    Several systems on the same examples are compared pair by pair: paired t-tests, corrected after Holm.
    """
    from dubio.evaluation import compare_evaluations, evaluate_predictions, with_ood
    from dubio.formats import read_predictions
    from dubio.statistics.paired import align

    load_plugins(plugin)
    named = named_files(systems)
    ood_files = _ood_files(ood or [], named)

    def read(path: str, own_labels: Path | None = None) -> Any:
        return read_predictions(
            path, values=values, labels=own_labels, target=target, tolerance=tolerance, in_domain=in_domain
        )

    predicted = align({name: read(path, labels) for name, path in named.items()})
    remarks = _recalibrate(predicted, calibration or [])
    for paths in zip(*ood_files.values(), strict=True):
        further = align({name: read(path) for name, path in zip(ood_files, paths, strict=True)})
        _recalibrate(further, calibration or [])
        predicted = {name: with_ood(predicted[name], further[name]) for name in predicted}
    validation = {name: read(path) for name, path in _validation(thresholds_from or [], named).items()}
    if validation:
        _recalibrate(validation, calibration or [])
    results = {}
    for name, predictions in predicted.items():
        metrics = _with_thresholds(metric, predictions, validation.get(name))
        results[name] = evaluate_predictions(
            predictions, metrics=metrics, replicates=replicates, level=level, seed=seed
        )
    reasons = sorted({text for result in results.values() for text in result.reasons.values()}) if metric else []
    if metric and not any(result.scores for result in results.values()):
        raise UserError(" ".join(reasons))
    pairs = compare_evaluations(results) if len(results) > 1 and replicates else None
    notes = [*remarks, *_notes(results, pairs)]
    if json:
        documents = {name: result.as_dict() for name, result in results.items()}
        print_json({"systems": documents, "pairs": None if pairs is None else pairs.as_dict(), "notes": notes})
        return
    _print_scores(results)
    if pairs is not None and pairs.tests:
        _print_pairs(results, pairs)
    _print_detection(results)
    for text in (*notes, *reasons):
        say(text)


# Files of the systems.


def _validation(options: list[str], systems: dict[str, str]) -> dict[str, str]:
    """Return system → its validation file; every system has one, or none."""
    files = dict(_whose(text, systems, "--thresholds-from") for text in options)
    lacking = [name for name in systems if name not in files]
    if files and lacking:
        raise UserError(f"--thresholds-from: every system needs its own validation predictions; {lacking[0]} has none.")
    return files


def _ood_files(options: list[str], systems: dict[str, str]) -> dict[str, list[str]]:
    """Return system → its out-of-distribution files; every system has the same number of them."""
    files: dict[str, list[str]] = {name: [] for name in systems}
    for text in options:
        name, path = _whose(text, systems, "--ood")
        files[name].append(path)
    if len({len(paths) for paths in files.values()}) > 1:
        numbers = ", ".join(f"{name}: {len(paths)}" for name, paths in files.items())
        raise UserError(f"--ood: every system needs the same out-of-distribution examples; files given are {numbers}.")
    return files


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


def _with_thresholds(
    requested: list[str] | None, predictions: Predictions, validation: Predictions | None
) -> Sequence[str | Metric] | None:
    """Return the requested metrics, and those at the thresholds fitted on validation predictions."""
    if validation is None:
        return requested
    from dubio.calibration.thresholds import fit_thresholds, metrics_at
    from dubio.evaluation import STANDARD

    problem = "--thresholds-from: validation predictions must have the"
    if validation.class_count != predictions.class_count:
        raise UserError(f"{problem} {predictions.class_count} labels of those that are scored; "
                        f"given {validation.class_count}.")  # fmt: skip
    labels = zip(predictions.classes or (), validation.classes or (), strict=False)
    for number, (own, other) in enumerate(labels, start=1):
        if own != other:
            raise UserError(f"{problem} labels of those that are scored, in their order; label {number} is {own!r} "
                            f"there and {other!r} in validation.")  # fmt: skip
    return (*(STANDARD if requested is None else requested), *metrics_at(fit_thresholds(validation)))


# Tables and sentences.


def _print_scores(results: dict[str, Evaluation]) -> None:
    """Print every metric of every system, with intervals; the best value of a metric that may rank is bold."""
    from rich.markup import escape

    first = next(iter(results.values()))
    ood = f" + {first.ood_rows} out of distribution" if 0 < first.ood_rows < len(first.predictions) else ""
    title = f"{first.rows} rows{ood}, {first.classes} classes, {first.target}"
    table = make_table(("metric",), [escape(name) for name in results], title=title)
    for metric in dict.fromkeys(name for result in results.values() for name in result.scores):
        scores = [result.scores.get(metric) for result in results.values()]
        present = [score for score in scores if score is not None]
        best = _best(present) if len(results) > 1 else None
        arrow = {"higher": " ↑", "lower": " ↓"}[present[0].better]
        table.add_row(metric + arrow, *(_cell(score, best) for score in scores))
    print_table(table)


def _print_pairs(results: dict[str, Evaluation], pairs: SystemComparison) -> None:
    """Print every pair of systems by every metric that ranks: difference, interval, p, resolution, verdict."""
    from rich.box import SIMPLE
    from rich.markup import escape

    title = "Pairs of systems on the same examples: first − second"
    table = make_table(("metric",), title=title, box=SIMPLE, pad_edge=False, collapse_padding=True)
    table.add_column("pair")
    for heading in ("difference", "p (Holm)", "detectable"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", min_width=max(map(len, SAME.split())))
    for metric, tests in pairs.tests.items():
        for test in tests if len(results) <= FEW else _with_best(metric, tests, results):
            interval = f"{test.difference:+.4f} [dim]({_number(test.low)}, {_number(test.high)})[/dim]"
            numbers = interval, f"{test.adjusted_p:.3g}", _number(test.resolves)
            verdict = escape(f"{test.better} is better") if test.better else SAME
            table.add_row(metric, escape(f"{test.first} − {test.second}"), *numbers, verdict)
    print_table(table)


def _with_best(metric: str, tests: tuple[PairTest, ...], results: dict[str, Evaluation]) -> list[PairTest]:
    best = _best([result.scores[metric] for result in results.values()])
    names = {name for name, result in results.items() if result.scores[metric].value == best}
    return [test for test in tests if {test.first, test.second} & names]


def _print_detection(results: dict[str, Evaluation]) -> None:
    """Print how well every quantity detects out-of-distribution rows, one table per system."""
    from rich.markup import escape

    headings = {"AUROC ↑": "auroc", "AUPR ood ↑": "aupr_ood", "AUPR id ↑": "aupr_id", "FPR95 ↓": "fpr95",
                "corr.": "correlation"}  # fmt: skip
    for name, result in results.items():
        title = f"{escape(name)}: detection of out-of-distribution rows by quantity"
        table = make_table(("quantity",), tuple(headings), title=title)
        for quantity, detection in result.detection.items():
            table.add_row(quantity, *(_number(getattr(detection, field)) for field in headings.values()))
        if result.detection:
            print_table(table)


def _best(scores: list[Score]) -> float | None:
    """Return the best value of a metric that ranks, if it differs between systems."""
    values = {score.value for score in scores if not math.isnan(score.value)}
    if len(values) < 2 or not scores[0].comparable:
        return None
    return max(values) if scores[0].better == "higher" else min(values)


def _cell(score: Score | None, best: float | None) -> str:
    if score is None:
        return "–"
    text = _number(score.value)
    if not math.isnan(score.low):
        text += f" [dim]({_number(score.low)}, {_number(score.high)})[/dim]"
    return f"[bold]{text}[/bold]" if score.value == best else text


def _number(value: float) -> str:
    """Return four decimals, or three digits of a small number."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def _notes(results: dict[str, Evaluation], pairs: SystemComparison | None) -> list[str]:
    """Return one sentence for each reason not to rank a metric, and how the numbers were computed."""
    from dubio.evaluation import pairs_remark

    first = next(iter(results.values()))
    notes = []
    if first.unlabelled:
        notes.append(f"{first.unlabelled} unlabelled rows are left out of metrics that need labels.")
    if first.replicates:
        notes.append(f"In brackets: {first.level:.0%} bootstrap intervals, {first.replicates} replicates over "
                     f"{first.resampled}, seed {first.seed}.")  # fmt: skip
    if first.detection:
        share = first.ood_rows / len(first.predictions)
        notes.append("Areas under precision–recall curves depend on the share of out-of-distribution rows, here "
                     f"{share:.3f}.")  # fmt: skip
    if len(results) > 1:
        notes.append("Bold: the best value. It need not be better than the others by more than chance.")
    if pairs is not None and pairs.tests:
        notes.append(pairs_remark(pairs.level))
        if len(results) > FEW:
            notes.append("Only pairs with the best system of each metric are printed; --json has all.")
        for (one, two), test in pairs.mcnemar.items() if len(results) <= FEW else ():
            notes.append(f"McNemar: only {one} is right on {test.only_first} examples, only {two} on "
                         f"{test.only_second}; exact p = {test.p:.3g}.")  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for name, score in first.scores.items():
        if not score.comparable:
            reasons.setdefault(score.why_not, []).append(name)
    return notes + [f"Not ranked: {', '.join(names)}. {reason}" for reason, names in reasons.items()]
