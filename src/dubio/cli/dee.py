"""``dubio dee``: the deep-ensemble equivalent of methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dubio.cli.options import JsonOption, LabelsOption, TargetOption, ValuesOption, named_files
from dubio.cli.output import make_table, print_json, print_table, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.reporting.ensemble_curves import EnsembleCurves, EquivalentMetric

ENSEMBLE = "the deep ensemble"


def dee(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="Files of sampled predictions, each PATH or NAME=PATH; with --store, names of methods."),
    ] = None,
    ensemble: Annotated[
        Path | None,
        typer.Option(help="A deep ensemble on the same examples: members × examples × classes, or with 'member'."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="A store instead of files: methods are compared with its deep ensembles.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="A run of the store, if it has several.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task of the run; may be repeated.")] = None,
    metric: Annotated[
        Literal["nll", "brier", "error", "aurc"],
        typer.Option(help="Calibrated nll, calibrated Brier score, error, or calibrated aurc."),
    ] = "nll",
    orders: Annotated[int, typer.Option(min=1, help="Random orders of members and samples to average over.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the orders and of the halves of cross-validation.")] = 0,
    values: ValuesOption = None,
    labels: LabelsOption = None,
    target: TargetOption = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the curves here: .svg, .png or .pdf.")] = None,
    json: JsonOption = False,
) -> None:
    """Print the deep-ensemble equivalent: the number of independent networks whose ensemble matches a method."""
    from dubio.formats import read_predictions
    from dubio.reporting.canvas import write_figure
    from dubio.reporting.ensemble_curves import curves_of_run, curves_of_systems, equivalents_figure
    from dubio.statistics.paired import align

    _check_options({"--ensemble": ensemble, "--values": values, "--labels": labels, "--target": target,
                    "--figure": figure}, methods, store, run or task)  # fmt: skip
    if store is not None:
        from dubio.reporting.stored_run import open_run

        opened = open_run(*filter(None, [run]), store=store)
        of_tasks = curves_of_run(opened, task or (), methods or (), orders=orders, seed=seed)
        if json:
            print_json({"tasks": {curves.task: curves.to_json(metric) for curves in of_tasks}})
            return
        for curves in of_tasks:
            typer.echo(f"\n{curves.task}: the first run of every method")
            _print(curves, metric)
        return
    named = {ENSEMBLE: str(ensemble), **named_files(methods or ())}
    read = {name: read_predictions(path, values=values, labels=labels, target=target) for name, path in named.items()}
    systems = align(read)
    networks = systems.pop(ENSEMBLE)
    curves = curves_of_systems(networks, systems, orders=orders, seed=seed)
    if len(set(networks.member.tolist())) == 1:
        say(f"--ensemble: no member is named; each of the {networks.samples} samples counts as one.")
    if figure is not None:
        say(f"figure: {write_figure(equivalents_figure(curves, metric), figure, '--figure')}")
    if json:
        print_json(curves.to_json(metric))
    else:
        _print(curves, metric)


def _check_options(
    of_files: dict[str, object], methods: list[str] | None, store: Path | None, of_store: object
) -> None:
    """Refuse options of files together with a store, and the reverse."""
    if store is not None:
        stated = [name for name, value in of_files.items() if value is not None]
        if stated:
            raise UserError(f"{stated[0]} is an option of files; it does not go with --store.")
    elif of_store:
        raise UserError("--run and --task are options of a store; give --store too.")
    elif not methods or of_files["--ensemble"] is None:
        raise UserError("give files of predictions and --ensemble FILE, or --store STORE.")


def _print(curves: EnsembleCurves, metric: EquivalentMetric) -> None:
    from dubio.reporting.ensemble_curves import TITLES

    ensemble, size = curves.ensemble, len(curves.ensemble)
    title = f"Deep-ensemble equivalent by {TITLES[metric]}; the ensemble has {size} members"
    table = make_table(("method",), ("samples", TITLES[metric], "DEE", "lower", "upper"), title=title)
    for name, ranges in curves.equivalents(metric).items():
        for index in _shown(len(ranges)):
            bounds = (str(getattr(ranges[index], bound)) for bound in ("central", "lower", "upper"))
            table.add_row(name, str(index + 1), f"{curves.methods[name].mean[metric][index]:.4f}", *bounds)
    print_table(table)
    scores = ", ".join(f"{value:.4f}" for value in ensemble.mean[metric][:12])
    typer.echo(f"The ensemble with 1, 2, … members: {scores}{' …' if size > 12 else ''}")
    say(f"DEE: the least number of independently trained networks whose ensemble reaches the method (1: a single one "
        f"does); bounds from ± one standard deviation over {ensemble.orders} random orders. "
        f'"> {size}": not even the ensemble of all {size} reaches it.')  # fmt: skip


def _shown(count: int) -> list[int]:
    """Return the indices of 1, 2, 5, 10, 20, 50, … and the last."""
    steps = [factor * 10**power for power in range(6) for factor in (1, 2, 5)]
    return [step - 1 for step in steps if step < count] + [count - 1]
