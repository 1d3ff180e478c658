"""What ``dubio run`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dubio.cli.output import print_json, say

if TYPE_CHECKING:
    from dubio.runner.benchmark_run import PreparedBenchmark, RunOutcome
    from dubio.runner.costs import Forecast
    from dubio.store import Store

MEGABYTE = 1e6


def say_first(prepared: PreparedBenchmark) -> None:
    """What is worth knowing before anything is trained: what is left out, notes on the data, cautions."""
    say_skipped(item.to_json() for item in prepared.skipped)
    notes: dict[str, None] = {}
    for task in prepared.tasks:
        notes |= dict.fromkeys(f"{task.name}: {note}" for note in task.task.notes)
    for note in (*notes, *(f"caution: {warning}" for warning in prepared.warnings)):
        say(note)


def say_skipped(skipped: Iterable[Mapping[str, str]]) -> None:
    """One line for each reason that some tasks are left out."""
    reasons: dict[str, list[str]] = {}
    for item in skipped:
        reasons.setdefault(item["reason"], []).append(f"{item['task']} with {item['network']}")
    for reason, tasks in reasons.items():
        say(f"skipped: {', '.join(tasks)}: {reason}")


def print_forecast(prepared: PreparedBenchmark, path: Path, jobs: int, device: str, *, as_json: bool) -> None:
    """What would be done, in all and task by task."""
    from dataclasses import asdict

    from dubio.runner.progress import duration
    from dubio.store import Store

    store = Store.open(path, create=False) if (path / "store.json").exists() else None
    ahead: Forecast = prepared.forecast(store, jobs, device)
    if as_json:
        skipped = [item.to_json() for item in prepared.skipped]
        told = {"shared": ahead.asked - ahead.trainings, "jobs": jobs, "skipped": skipped}
        print_json({**asdict(ahead), "preset": prepared.benchmark.preset, **told})
        return
    typer.echo(f"trainings     {ahead.trainings} ({ahead.asked} asked for, {ahead.asked - ahead.trainings} shared)")
    if ahead.trials:
        typer.echo(f"tuning        {_counted(ahead.trials, 'trial')}; the first values stand for the chosen ones here")
    typer.echo(f"predictions   {ahead.predictions}")
    left = _counted(ahead.trainings_left, "training"), _counted(ahead.predictions_left, "prediction")
    typer.echo(f"to be made    {', '.join(left)}")
    workers = _counted(jobs, "job")
    typer.echo(f"time          about {duration(ahead.seconds)} at most with {workers}; early stopping ends sooner")
    typer.echo(f"disk          about {ahead.bytes / MEGABYTE:.0f} MB in {path}")
    if len(ahead.tasks) > 1:
        _print_tasks(ahead)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _print_tasks(ahead: Forecast) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dubio.runner.progress import duration

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("task", no_wrap=True)
    table.add_column("network", no_wrap=True)
    for heading in ("trainings", "to be made", "time"):
        table.add_column(heading, justify="right")
    for row in ahead.tasks:
        counts = str(row.trainings), str(row.trainings_left)
        table.add_row(escape(row.task), escape(row.network), *counts, f"about {duration(row.seconds)}")
    Console().print(table)


def print_results(finish: RunOutcome, store: Store, out: Path, *, as_json: bool, as_published: bool = False) -> None:
    """The table of results, what failed and was skipped, and where everything is."""
    from dataclasses import asdict

    from rich.console import Console

    from dubio.reporting import score_run, terminal_table, with_as_published, write_report

    results = score_run(store, finish.manifest)
    if as_published:
        results = with_as_published(store, results)
    page = write_report(store, finish.manifest, out, results=results)
    failures = finish.manifest["failures"]
    if as_json:
        scores = [asdict(score) for score in results.scores]
        notes = {key: finish.manifest[key] for key in ("failures", "skipped", "advice")}
        print_json({"run": finish.path.stem, "report": str(page), **notes, "results": scores})
        return
    Console().print(terminal_table(store, finish.manifest, results=results))
    for failure in failures:
        blocked = len(failure["blocked"])
        after = f" Not made because of it: {blocked} more." if blocked else ""
        say(f"failed: {failure['what']}: {failure['error']}{after}")
    say_skipped(finish.manifest["skipped"])
    say(f"\nrun     {finish.path.stem} in {store.path}\nresults {page.with_name('results.csv')}\nreport  {page}")
