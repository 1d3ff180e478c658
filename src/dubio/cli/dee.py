"""``dubio dee``: the deep-ensemble equivalent of methods."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dubio.cli.options import JsonOption, ReadingOptions, named_files, with_reading_options
from dubio.cli.output import print_result, say
from dubio.core.errors import UserError


@with_reading_options("by")
def dee(
    reading: ReadingOptions,
    methods: Annotated[list[str] | None, typer.Argument()] = None,
    ensemble: Path | None = None,
    store: Path | None = None,
    run: str | None = None,
    task: list[str] | None = None,
    metric: Literal["nll", "brier", "error", "aurc"] = "nll",
    orders: Annotated[int, typer.Option(min=1)] = 5,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    figure: Path | None = None,
    json: JsonOption = False,
) -> None:
    """Print the deep-ensemble equivalent: the number of independent networks whose ensemble matches a method.

    Args:
        methods: Files of sampled predictions, each PATH or NAME=PATH; with --store, names of methods.
        ensemble: A deep ensemble on the same examples: members × examples × classes, or with 'member'.
        store: A store instead of files: methods are compared with its deep ensembles.
        run: A run of the store, if it has several.
        task: Only this task of the run; may be repeated.
        metric: Calibrated nll, calibrated Brier score, error, or calibrated aurc.
        orders: Random orders of members and samples to average over.
        seed: Seed of the orders and of the halves of cross-validation.
        figure: Draw the curves here: .svg, .png or .pdf.
    """
    from dubio.reporting.ensemble_curves import curves_of_run, curves_of_systems
    from dubio.reporting.stored_run import open_run

    _check_options({"--ensemble": ensemble, "--figure": figure, **reading.stated()}, methods, store, run or task)
    document: dict[str, Any]
    if store is not None:
        opened = open_run(*filter(None, [run]), store=store)
        curves = curves_of_run(opened, task or (), methods or (), orders=orders, seed=seed)
        document = {"tasks": {item.task: item.to_json(metric) for item in curves}}
    else:
        read = partial(reading.read, labels=reading.labels)
        systems = {name: read(path) for name, path in named_files(methods or ()).items()}
        reference = read(str(ensemble))
        curves = (curves_of_systems(reference, systems, orders=orders, seed=seed),)
        notes = list(dict.fromkeys(note for own in (reference, *systems.values()) for note in own.notes))
        document = {**curves[0].to_json(metric), "notes": notes}
        say(*(f"note: {note}" for note in notes), *(f"--ensemble: {note}" for note in curves[0].notes))
        if figure is not None:
            say(f"figure: {curves[0].figure(metric, figure)}")
    print_result(json, document, (line for item in curves for line in item.table(metric)))
    say(*(item.reading for item in curves if not json))


def _check_options(of_files: dict[str, object], methods: list[str] | None, store: Path | None, of_run: object) -> None:
    """Refuse options of files together with a store, and the reverse."""
    if store is not None:
        stated = [name for name, value in of_files.items() if value is not None]
        if stated:
            raise UserError(f"{stated[0]} is an option of files; it does not go with --store.")
    elif of_run:
        raise UserError("--run and --task are options of a store; give --store too.")
    elif not methods or of_files["--ensemble"] is None:
        raise UserError("give files of predictions and --ensemble FILE, or --store STORE.")
