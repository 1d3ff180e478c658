"""``dubio evaluate``: score files of predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.output import print_json, say
from dubio.errors import UserError

if TYPE_CHECKING:
    from dubio.evaluation import Evaluation, Score


def evaluate(
    systems: Annotated[list[str], typer.Argument(help="Files of predictions, each PATH or NAME=PATH.")],
    ood: Annotated[
        list[str] | None,
        typer.Option(help="The same system on out-of-distribution examples: PATH, or NAME=PATH for one of several."),
    ] = None,
    values: Annotated[
        Literal["probs", "log_probs", "logits"] | None,
        typer.Option(help="What the numbers are, where their names do not say it."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A file of labels, where the files of predictions have none.")
    ] = None,
    target: Annotated[
        Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="What is predicted.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric, such as nll or 'ece(bins=10)'; may be repeated.")
    ] = None,
    in_domain: Annotated[str | None, typer.Option(help="Of a column domain: the one that is in distribution.")] = None,
    tolerance: Annotated[float, typer.Option(help="How far from one a row of probabilities may sum.")] = 1e-3,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates for the intervals; 0 for none.")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file that registers metrics.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Score files of predictions: accuracy, calibration, selective prediction, out-of-distribution detection."""
    from dubio.evaluation import evaluate_predictions, with_ood
    from dubio.formats import align, read_predictions
    from dubio.registry import load_entry_points, load_plugin

    load_entry_points()
    for file in plugin or ():
        load_plugin(file)
    named = _named(systems)
    strange = _strange(ood or [], named)

    def read(path: str, own_labels: Path | None) -> Any:
        return read_predictions(
            path, values=values, labels=own_labels, target=target, tolerance=tolerance, in_domain=in_domain
        )

    found = align({name: read(path, labels) for name, path in named.items()})
    for name, paths in strange.items():
        for path in paths:
            found[name] = with_ood(found[name], read(path, None))
    results = {
        name: evaluate_predictions(predictions, metrics=metric, replicates=replicates, level=level, seed=seed)
        for name, predictions in found.items()
    }
    if json:
        print_json({"systems": {name: result.as_dict() for name, result in results.items()}, "notes": _notes(results)})
        return
    _print_table(results)
    _print_detection(results)
    for note in _notes(results):
        say(note)
    for reason in sorted({text for result in results.values() for text in result.reasons.values()} if metric else ()):
        say(reason)


def _named(systems: list[str]) -> dict[str, str]:
    """Name to path, in the order given."""
    named: dict[str, str] = {}
    for text in systems:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if not name or not path:
            raise UserError(f"system {text!r} must be PATH or NAME=PATH.")
        if name in named:
            raise UserError(f"two systems are called {name!r}; name them with NAME=PATH.")
        named[name] = path
    return named


def _strange(given: list[str], systems: dict[str, str]) -> dict[str, list[str]]:
    """System name to its out-of-distribution files; every system has as many as the others, or none has any."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            if len(systems) > 1:
                raise UserError(f"--ood {text!r}: with several systems, say whose it is with NAME=PATH.")
            name, path = next(iter(systems)), text
        if name not in systems:
            from dubio.errors import UnknownName

            raise UnknownName("system in --ood", name, systems)
        found.setdefault(name, []).append(path)
    counts = {name: len(found.get(name, ())) for name in systems}
    if found and len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise UserError(f"--ood: every system needs the same out-of-distribution examples; files given are {told}.")
    return found


def _print_table(results: dict[str, Evaluation]) -> None:
    from rich.console import Console
    from rich.table import Table

    first = next(iter(results.values()))
    strange = (
        f" + {first.ood_rows} out of distribution" if first.ood_rows and first.ood_rows < len(first.predictions) else ""
    )
    table = Table(title=f"{first.rows} rows{strange}, {first.classes} classes, {first.target}")
    table.add_column("metric", no_wrap=True)
    for name in results:
        table.add_column(name, justify="right")
    for metric in dict.fromkeys(name for result in results.values() for name in result.scores):
        scores = [result.scores.get(metric) for result in results.values()]
        best = _best([score for score in scores if score is not None]) if len(results) > 1 else None
        arrow = {"higher": " ↑", "lower": " ↓"}[next(score.better for score in scores if score is not None)]
        table.add_row(metric + arrow, *(_cell(score, best) for score in scores))
    Console().print(table)


def _print_detection(results: dict[str, Evaluation]) -> None:
    """Every quantity as a detector of out-of-distribution rows, one table a system."""
    from rich.console import Console
    from rich.table import Table

    for name, result in results.items():
        if not result.detection:
            continue
        table = Table(title=f"{name}: telling out-of-distribution rows by each quantity")
        table.add_column("quantity", no_wrap=True)
        for heading in ("AUROC ↑", "AUPR ood ↑", "AUPR id ↑", "FPR95 ↓", "corr."):
            table.add_column(heading, justify="right")
        for quantity, found in result.detection.items():
            figures = (found.auroc, found.aupr_ood, found.aupr_id, found.fpr95, found.correlation)
            table.add_row(quantity, *("undefined" if math.isnan(figure) else _number(figure) for figure in figures))
        Console().print(table)


def _best(scores: list[Score]) -> float | None:
    """The best value of a metric that ranks, where it differs between systems."""
    known = {score.value for score in scores if not math.isnan(score.value)}
    if len(known) < 2 or not scores[0].comparable:
        return None
    return max(known) if scores[0].better == "higher" else min(known)


def _cell(score: Score | None, best: float | None) -> str:
    if score is None:
        return "–"
    if math.isnan(score.value):
        return "undefined"
    text = _number(score.value)
    if not math.isnan(score.low):
        text += f" [dim]({_number(score.low)}, {_number(score.high)})[/dim]"
    return f"[bold]{text}[/bold]" if score.value == best else text


def _number(value: float) -> str:
    """Four decimals, or three digits of a small number."""
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def _notes(results: dict[str, Evaluation]) -> list[str]:
    """One sentence a reason for what is not ranked, and what the figures were made from."""
    first = next(iter(results.values()))
    notes = []
    if first.unlabelled:
        notes.append(f"{first.unlabelled} unlabelled rows are left out of metrics that need labels.")
    if first.replicates:
        notes.append(f"In brackets: {first.level:.0%} bootstrap intervals, {first.replicates} replicates over "
                     f"{first.resampled}, seed {first.seed}.")  # fmt: skip
    if first.detection:
        share = first.ood_rows / len(first.predictions)
        notes.append(
            f"Areas under precision–recall curves depend on the share of out-of-distribution rows, here {share:.3f}."
        )
    if len(results) > 1:
        notes.append("Bold: the best value; whether a difference is more than chance is what dubio compare tests.")
    reasons: dict[str, list[str]] = {}
    for name, score in first.scores.items():
        if not score.comparable:
            reasons.setdefault(score.why_not, []).append(name)
    notes.extend(f"Not ranked: {', '.join(names)}. {reason}" for reason, names in reasons.items())
    return notes
