"""``dubio run``: train, predict and evaluate a benchmark, or your own data; nothing is made twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.options import (
    MARGIN,
    NOT_GIVEN,
    STORE,
    JsonOption,
    MarginOption,
    PluginOption,
    RawCsvOption,
    data_arguments,
    with_data_options,
)
from dubio.cli.output import INTERRUPTED, MEGABYTE, print_json, print_result, print_table, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.deployment.folder import ModelFile
    from dubio.reporting.reported import WrittenReport
    from dubio.reporting.stored_run import Run
    from dubio.runner.benchmark_file import Benchmark
    from dubio.runner.benchmark_run import PreparedBenchmark
    from dubio.runner.costs import Forecast

SHIPPED = tuple(sorted(path.parent.name for path in (Path(__file__).parents[1] / "studies").glob("*/benchmark.toml")))
"""The benchmarks that come with dubio, for the help, which must not wait for the imports that reading one takes."""


_DATA = "Your own data"
_data = partial(typer.Option, rich_help_panel=_DATA)
_change = partial(typer.Option, rich_help_panel="Changing a benchmark")


@with_data_options(_DATA)
def run(
    benchmark: Annotated[
        str | None, typer.Argument(help=f"A benchmark's name ({', '.join(SHIPPED)}) or a TOML file.")
    ] = None,
    data: Annotated[Path | None, _data()] = None,
    data_options: Mapping[str, Any] = NOT_GIVEN,
    from_model: Annotated[Path | None, _data("--from")] = None,
    shift: Annotated[str | None, _data()] = None,
    shift_data: Annotated[Path | None, _data()] = None,
    verify: Annotated[bool, _data("--verify")] = False,
    task: Annotated[list[str] | None, _change()] = None,
    preset: Annotated[str | None, _change()] = None,
    method: Annotated[list[str] | None, _change("--method", "--methods")] = None,
    baselines: Annotated[bool, _change("--baselines/--no-baselines")] = True,
    network: Annotated[list[str] | None, _change()] = None,
    seeds: Annotated[str | None, _change()] = None,
    set: Annotated[list[str] | None, _change(metavar="[PREFIX.]KEY=VALUE")] = None,
    data_dir: Path | None = None,
    plugin: PluginOption = None,
    store: Path = STORE,
    out: Path = Path("dubio-report"),
    jobs: Annotated[int | None, typer.Option(min=1)] = None,
    devices: str | None = None,
    executor: str = "local",
    resources: str | None = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0)] = 600.0,
    shard: Annotated[str | None, typer.Option(metavar="I/N")] = None,
    dry_run: bool = False,
    as_published: bool = False,
    margin: MarginOption = MARGIN,
    no_examples: bool = False,
    raw_csv: RawCsvOption = False,
    json: JsonOption = False,
) -> None:
    """Train and evaluate methods on tasks. Interrupt it at any time: the same command continues where it stopped.

    Args:
        data: CSV, TSV, JSONL, Parquet, npz, or a folder of images, instead of a benchmark; or the data of a benchmark
            that asks for it.
        from_model: Folder of an exported model: train its method again, with its data options and recipe, on --data,
            which has all rows, old and new.
        shift: Photographs: those held out of training, by quality, severity or site, several with +, or none.
        shift_data: Photographs: another data set as the shift.
        verify: Photographs: read all files again and check the cache.
        task: Only this task of the benchmark; may be repeated.
        preset: A preset of the benchmark, such as paper or small.
        method: This method instead, beside the baselines; may be repeated. "all" means every one that applies.
        baselines: Plain baselines in the first rows of every table.
        network: Only the tasks with this network; if none has it, this network for every task. May be repeated.
        seeds: Number of seeds, or a list such as 0,1,2 or 0-4; the seed 5 alone is 5-5.
        set: An argument; PREFIX is training (if omitted), task, network, encoding or a method. May be repeated.
        data_dir: Folder with the data of a benchmark's tasks; DUBIO_DATA names another one.
        store: Folder of fits and predictions.
        out: Folder for report.html and results.csv.
        jobs: Processes at a time; one per core if omitted.
        devices: Where trainings run, separated by commas, such as cuda:0,cuda:1: one process on each; cpu if omitted.
        executor: local (processes on this machine) or ray (actors, also on a cluster).
        resources: With --executor ray: what a job takes, such as cpu=2,gpu=0.5,memory=4GB; one core if omitted.
        checkpoint_seconds: Interval of a training's checkpoints.
        shard: Make only part I of N equal parts, without a report; merge their stores with dubio store merge.
        dry_run: Print the number of trainings, the expected time and disk space; train nothing.
        as_published: Also report published definitions that are mistaken.
        no_examples: Neither store nor show texts, table rows or small images of test examples.
    """
    from dubio.runner.benchmark_run import check_executor, prepare_run, workers_of
    from dubio.runner.overrides import Overrides
    from dubio.runner.progress import LogProgress
    from dubio.runner.ray_cluster import check_cluster
    from dubio.runner.sharding import Shard
    from dubio.runner.worker_process import declare_command
    from dubio.store import open_store
    from dubio.tasks.sources.locate import sealed

    declare_command()
    _check_margin(margin)
    job_resources = check_executor(executor, resources, devices)
    if executor == "ray" and not dry_run:
        check_cluster()
    own_shard = None if shard is None else Shard.parse(shard)
    try:
        options = data_arguments({"data": data, **data_options, "shift": shift, "shift_data": shift_data})
        refreshed = None if from_model is None else _refreshed(from_model, benchmark, options)
        overrides = Overrides(
            task or (), method or (), network or (), seeds or (), set or (), {} if refreshed else options, data_dir,
            baselines,
        )  # fmt: skip
        count, names = workers_of(jobs, devices)
        with sealed() if dry_run else nullcontext():
            named = benchmark if refreshed is None else refreshed[0]
            prepared = prepare_run(named, overrides, preset=preset, plugins=plugin or (), verify=verify)
            prepared = replace(prepared, shard=own_shard)
            say(*prepared.notes)
            if dry_run:
                _print_forecast(prepared, store, count, names[0], as_json=json)
                return
        work = {"devices": names, "checkpoint_seconds": checkpoint_seconds, "resources": job_resources}
        if own_shard is not None:
            _run_shard(prepared, store, count, executor, work, as_json=json)
            return
        with open_store(store, create=True) as opened:
            _make_folder(out)  # after the store, which it may lie in: a new store must be an empty directory
            outcome = prepared.run(opened, count, executor, examples=not no_examples, meanwhile=_load_report, **work)
        say(*(f"not used by this run, but damaged: {damage}" for damage in outcome.damaged))
        say(*(f"caution: {warning}" for warning in outcome.warnings))
        from dubio.reporting.stored_run import Run

        finished = Run(outcome.path.stem, outcome.manifest, store, LogProgress({}).note)
        written = finished.report(out, as_published=as_published, margin=margin, raw_csv=raw_csv)
        _print_results(finished, written, as_json=json)
        if refreshed is not None:
            from dubio.deployment.refresh import changes

            say(f"compared with the model in {from_model}:", *changes(refreshed[1], finished))
    except KeyboardInterrupt:
        say(f"\nInterrupted. Finished work is in {store}; run the same command again to continue.")
        raise typer.Exit(INTERRUPTED) from None
    if outcome.outcome.failures:
        raise typer.Exit(1)


def _check_margin(margin: float) -> None:
    """Refuse a wrong margin before anything is trained; the usual one must not wait for the reports to be loaded."""
    if margin != MARGIN:
        from dubio.reporting.run_view import check_margin

        check_margin(margin)


def _load_report() -> Iterator[None]:
    """Load the reports, step by step, while the workers train; what goes wrong goes wrong again when one is written."""
    with suppress(Exception):
        import_module("dubio.statistics.bootstrap")  # it loads scipy, which takes as long as all the rest

        yield
        from dubio.reporting.reported import get_ready

        yield
        yield from get_ready()


def _refreshed(model: Path, benchmark: str | None, options: Mapping[str, Any]) -> tuple[Benchmark, ModelFile]:
    """Return the benchmark that trains a model's method on other data; its data options are the model's own."""
    from dubio.deployment.refresh import refreshed_benchmark

    stated = [f"--{name.replace('_', '-')}" for name in options if name != "data"]
    if benchmark is not None or stated:
        named = ", ".join([*([repr(benchmark)] if benchmark else ()), *stated])
        raise UserError(f"--from takes benchmark and data options from the model; given {named} too.")
    return refreshed_benchmark(model, Path(options["data"]) if "data" in options else None)


def _run_shard(
    prepared: PreparedBenchmark, path: Path, jobs: int, executor: str, work: Mapping[str, Any], *, as_json: bool
) -> None:
    """Make one part of a run and say what to do when all are complete; a report of a part would mislead."""
    from dubio.store import open_store

    with open_store(path, create=True) as store:
        executed = prepared.make(store, jobs, executor, **work)
    failures = list(executed.outcome.failures.values())
    _say_failures(failures)
    fits, predictions = len(executed.plan.of_kind("fit")), len(executed.plan.of_kind("predict", "method"))
    listed = f"{_counted(fits, 'training')}, {_counted(predictions, 'prediction')}"
    shard = prepared.shard
    lines = [
        f"shard {shard} of {prepared.name}: {listed} in {path}; {len(failures)} failed",
        "A shard has no report; --out and the like are not used. When every shard is complete, merge their stores:",
        "  dubio store merge STORE STORE … --into MERGED",
        "and write the report, for which nothing is trained again:",
        f"  {prepared.command} --store MERGED",
    ]
    document: dict[str, Any] = {"run": prepared.name, "shard": str(shard), "store": str(path), "failures": failures}
    document |= {"trainings": fits, "predictions": predictions}
    print_result(as_json, document, lines)
    if failures:
        raise typer.Exit(1)


def _make_folder(out: Path) -> None:
    """Make the report's folder before anything is trained: an error hours later would be worse."""
    from dubio.core.files import make_directories

    try:
        make_directories(out)
    except OSError as error:
        raise UserError(f"--out {str(out)!r} cannot be created: {error.strerror}.") from error


def _print_forecast(prepared: PreparedBenchmark, path: Path, jobs: int, device: str, *, as_json: bool) -> None:
    """Print the cost of the run, in total and for each task."""
    from dubio.store import open_store

    store = open_store(path) if (path / "store.json").exists() else None
    forecast = prepared.forecast(store, jobs, device)
    facts = {"preset": prepared.benchmark.preset, "shared": forecast.asked - forecast.trainings, "jobs": jobs}
    facts |= {"skipped": [item.to_json() for item in prepared.skipped], "rows": prepared.row_accounts}
    lines = list(_forecast_lines(forecast, path, jobs))
    if prepared.shard is not None:
        facts["shard"] = str(prepared.shard)
        lines.insert(0, f"shard         {prepared.shard} of {prepared.name}")
    print_result(as_json, {**vars(forecast), **facts}, lines)


def _forecast_lines(forecast: Forecast, path: Path, jobs: int) -> Iterator[str]:
    from dubio.formats.text_tables import text_table
    from dubio.runner.progress import duration

    shared = forecast.asked - forecast.trainings
    yield f"trainings     {forecast.trainings} ({forecast.asked} without sharing, {shared} shared)"
    if forecast.trials:
        yield f"tuning        {_counted(forecast.trials, 'trial')}; costs are those of the first values"
    yield f"predictions   {forecast.predictions}"
    trainings, predictions = forecast.trainings_left, forecast.predictions_left
    yield f"to be made    {_counted(trainings, 'training')}, {_counted(predictions, 'prediction')}"
    time = duration(forecast.seconds)
    yield f"time          about {time} at most with {_counted(jobs, 'job')}; early stopping ends sooner"
    parts = {"trainings": forecast.training_seconds, "predictions": forecast.prediction_seconds}
    parts["report"] = forecast.report_seconds
    yield f"              {', '.join(f'{name} {duration(seconds)}' for name, seconds in parts.items())}"
    if forecast.not_timed:
        yield f"              without {', '.join(forecast.not_timed)}, whose time is not known"
    yield f"disk          about {forecast.bytes / MEGABYTE:.0f} MB in {path}"
    if len(forecast.tasks) > 1:
        rows = [["task", "network", "trainings", "to be made", "time"]]
        for row in forecast.tasks:
            counts = str(row.trainings), str(row.trainings_left)
            rows.append([row.task, row.network, *counts, f"about {duration(row.seconds)}"])
        yield from ("", *text_table(rows))


def _print_results(run: Run, report: WrittenReport, *, as_json: bool) -> None:
    """Print the table of results, failures and skipped tasks, and where everything is."""
    from dubio.reporting.manifest_view import read_manifest
    from dubio.reporting.method_choice import deployment_commands
    from dubio.reporting.sections.setup import row_accounts
    from dubio.runner.benchmark_run import skipped_sentences

    if as_json:
        notes = {"failures": run.failures, "skipped": run.skipped, "advice": run.warnings}
        notes |= {"rows": tuple(row_accounts(read_manifest(run.manifest).tasks))}
        print_json({"run": run.name, "report": str(report.page), **notes, "results": run.results.scores})
        return
    print_table(run)
    _say_failures(run.failures)
    say(*skipped_sentences(run.skipped))
    say(f"\nrun     {run.name} in {run.store}\nresults {report.table}\nreport  {report.page}")
    view = report.report.run
    for task in view.tasks[:1]:
        for purpose, command in deployment_commands(view, task, run.name).items():
            say(f"{purpose.lower()}: {command}")


def _say_failures(failures: Iterable[Mapping[str, Any]]) -> None:
    for failure in failures:
        blocked = len(failure["blocked"])
        consequence = f" {blocked} more were not made because of it." if blocked else ""
        say(f"failed: {failure['what']}: {failure['error']}{consequence}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
