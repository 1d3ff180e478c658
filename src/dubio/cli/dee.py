"""``dubio dee``: how many independently trained networks a method is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.options import named_files
from dubio.cli.output import print_json, say
from dubio.core.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.statistics.ensemble_equivalent import Equivalent, EquivalentRange, GrowthCurve


def dee(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="Files of sampled predictions, each PATH or NAME=PATH; with --store, names of methods."),
    ] = None,
    ensemble: Annotated[
        Path | None,
        typer.Option(help="A deep ensemble on the same examples: [members, examples, classes], or with 'member'."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Instead of files: a store, whose deep ensembles are the measure.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Which run of the store, where it has several.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task of the run; may be repeated.")] = None,
    metric: Annotated[
        Literal["nll", "brier", "error", "aurc"],
        typer.Option(help="Calibrated nll, calibrated Brier score, error, or calibrated aurc."),
    ] = "nll",
    orders: Annotated[int, typer.Option(min=1, help="Random orders of members and samples to average over.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the orders and of the halves of cross-validation.")] = 0,
    values: Annotated[
        Literal["probs", "log_probs", "logits"] | None,
        typer.Option(help="What the numbers are, where their names do not say it."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="A file of labels, where the predictions have none.")] = None,
    target: Annotated[
        Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="What is predicted.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the curves here: .svg, .png or .pdf.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say how many independently trained networks a method with 1, 2, … samples is worth, with bounds."""
    from dubio.formats import align, read_predictions
    from dubio.statistics.ensemble_equivalent import equivalent_curve, growth_curve

    if store is not None:
        given = {"--ensemble": ensemble, "--values": values, "--labels": labels, "--target": target, "--figure": figure}
        odd = [name for name, value in given.items() if value is not None]
        if odd:
            raise UserError(f"{odd[0]} speaks of files; it does not go with --store.")
        _of_store(store, run, task or [], methods or [], metric, orders, seed, as_json=json)
        return
    if run is not None or task:
        raise UserError("--run and --task speak of a store; give --store too.")
    if not methods or ensemble is None:
        raise UserError("give files of predictions and --ensemble FILE, or --store STORE.")
    named = {ENSEMBLE: str(ensemble), **named_files(methods)}
    read = {name: read_predictions(path, values=values, labels=labels, target=target) for name, path in named.items()}
    systems = align(read)
    members = _members(systems.pop(ENSEMBLE))
    grown = growth_curve(members, unit="member", orders=orders, seed=seed)
    curves = {name: growth_curve(each, unit="sample", orders=orders, seed=seed) for name, each in systems.items()}
    found = {name: equivalent_curve(grown, curve, metric) for name, curve in curves.items()}
    if figure is not None:
        _draw(found, len(grown), metric, figure)
    if json:
        print_json(_document(grown, curves, found, metric))
    else:
        _print(grown, curves, found, metric)


def _of_store(
    store: Path, run: str | None, tasks: list[str], methods: list[str], metric: Any, orders: int, seed: int, *,
    as_json: bool,
) -> None:  # fmt: skip
    """The same for every task of a stored run."""
    from dubio.cli.dee_store import stored_curves
    from dubio.statistics.ensemble_equivalent import equivalent_curve

    documents = {}
    for each in stored_curves(store, run, tasks, methods, orders=orders, seed=seed):
        found = {name: equivalent_curve(each.grown, curve, metric) for name, curve in each.methods.items()}
        if as_json:
            documents[each.task] = _document(each.grown, each.methods, found, metric)
        else:
            typer.echo(f"\n{each.task}: the first run of every method")
            _print(each.grown, each.methods, found, metric)
    if as_json:
        print_json({"tasks": documents})


ENSEMBLE = "the deep ensemble"


def _members(predictions: Predictions) -> Predictions:
    """The ensemble with every sample its own member, where the file does not say which sample is whose."""
    from dataclasses import replace

    import numpy as np

    if len(np.unique(predictions.member)) > 1:
        return predictions
    if predictions.samples == 1:
        raise UserError("--ensemble: a deep ensemble has at least two members, and this file has one sample.")
    say(f"--ensemble: no member is named; each of the {predictions.samples} samples counts as one.")
    return replace(predictions, member=np.arange(predictions.samples, dtype=np.int64))


def _draw(found: dict[str, tuple[EquivalentRange, ...]], longest: int, metric: str, path: Path) -> None:
    kinds = (".svg", ".png", ".pdf")
    if path.suffix.lower() not in kinds:
        raise UserError(f"--figure {str(path)!r}: the name must end in one of {', '.join(kinds)}.")
    from dubio.core.files import write_file

    try:
        from dubio.reporting.canvas import save
        from dubio.reporting.figures.equivalents import EquivalentSeries, equivalents_figure, looks_by_name
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "matplotlib":
            raise MissingExtra("drawing a figure", "report") from missing
        raise
    looks = looks_by_name(list(found))
    series = [EquivalentSeries(looks[name], ranges) for name, ranges in found.items()]
    drawn = equivalents_figure(series, longest=longest, score=TITLES[metric])
    write_file(path, save(drawn, path.suffix.lower().removeprefix(".")))
    say(f"figure: {path}")


TITLES = {"nll": "calibrated nll", "brier": "calibrated Brier", "error": "error", "aurc": "calibrated aurc"}


def _document(
    grown: GrowthCurve, curves: dict[str, GrowthCurve], found: dict[str, tuple[EquivalentRange, ...]], metric: Any
) -> dict[str, Any]:
    return {
        "metric": TITLES[metric],
        "orders": grown.orders,
        "longest": len(grown),
        "ensemble": {"mean": grown.mean[metric], "std": grown.std[metric]},
        "methods": {
            name: {
                "mean": curves[name].mean[metric],
                "std": curves[name].std[metric],
                "dee": [
                    {"samples": place + 1} | {part: _told(getattr(each, part)) for part in PARTS}
                    for place, each in enumerate(ranges)
                ],
            }
            for name, ranges in found.items()
        },
    }


PARTS = ("lower", "central", "upper")


def _told(found: Equivalent) -> float | str:
    """A number, or "> l_max"."""
    return str(found) if found.beyond else found.size


def _print(
    grown: GrowthCurve, curves: dict[str, GrowthCurve], found: dict[str, tuple[EquivalentRange, ...]], metric: Any
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Deep-ensemble equivalent by {TITLES[metric]}; the ensemble has {len(grown)} members")
    for heading in ("method", "samples", TITLES[metric], "DEE", "lower", "upper"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=heading == "method")
    for name, ranges in found.items():
        for place in _shown(len(ranges)):
            bounds = (str(getattr(ranges[place], part)) for part in ("central", "lower", "upper"))
            table.add_row(name, str(place + 1), f"{curves[name].mean[metric][place]:.4f}", *bounds)
    Console().print(table)
    typer.echo(f"The ensemble itself: {', '.join(f'{value:.4f}' for value in grown.mean[metric][:12])}"
               f"{' …' if len(grown) > 12 else ''}")  # fmt: skip
    say(f"DEE: the least number of independently trained networks whose ensemble reaches the method (1: a single one "
        f"does); bounds from ± one standard deviation over {grown.orders} random orders. "
        f'"> {len(grown)}": no ensemble at hand reaches it.')  # fmt: skip


def _shown(count: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … and the last, from 0."""
    steps = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
    return [step - 1 for step in steps if step < count] + [count - 1]
