"""``dubio run``: train, predict and judge a benchmark, or your own data; what exists is never made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import say
from dubio.cli.run_printing import print_forecast, print_results, say_first
from dubio.errors import UserError

if TYPE_CHECKING:
    from dubio.runner.running import BenchmarkRun, Finish
    from dubio.store import Store

OWN = (
    "text", "label", "features", "label_separator", "target", "order", "id", "group", "time", "domain", "train_domain",
    "split", "novel", "fractions", "split_seed", "size",
)  # fmt: skip
"""Options that speak of your own data."""

INTERRUPTED = 130

_DATA = "Your own data"
_CHANGE = "Changing a benchmark"


def run(
    benchmark: Annotated[str | None, typer.Argument(help="A benchmark's name (quick, text) or a TOML file.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="CSV, TSV, JSONL, Parquet, npz, or a folder of images, instead.", rich_help_panel=_DATA),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of texts.", rich_help_panel=_DATA)] = None,
    label: Annotated[str | None, typer.Option(help="Column of classes.", rich_help_panel=_DATA)] = None,
    features: Annotated[
        str | None, typer.Option(help="Numeric columns, with commas; * for all others.", rich_help_panel=_DATA)
    ] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="What stands between several labels of a row.", rich_help_panel=_DATA)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="multiclass, multilabel or ordinal.", rich_help_panel=_DATA)
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Classes in their order, with commas.", rich_help_panel=_DATA)
    ] = None,
    id: Annotated[str | None, typer.Option(help="Column of unique ids.", rich_help_panel=_DATA)] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of what belongs together (a patient).", rich_help_panel=_DATA)
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of times: oldest rows train, newest test.", rich_help_panel=_DATA)
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Column of domains.", rich_help_panel=_DATA)] = None,
    train_domain: Annotated[str | None, typer.Option(help="The domain to train on.", rich_help_panel=_DATA)] = None,
    split: Annotated[
        str | None, typer.Option(help="Column of given parts (train, val, cal, test).", rich_help_panel=_DATA)
    ] = None,
    novel: Annotated[
        str | None, typer.Option(help="Classes held out of training, with commas, or auto.", rich_help_panel=_DATA)
    ] = None,
    fractions: Annotated[str | None, typer.Option(help="Shares of train,val,cal,test.", rich_help_panel=_DATA)] = None,
    split_seed: Annotated[int | None, typer.Option(help="Seed of the split.", rich_help_panel=_DATA)] = None,
    size: Annotated[
        int | None, typer.Option(help="Both sides of every image, in pixels.", rich_help_panel=_DATA)
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this task, such as amazon, amazon-books or 20news-novelty; may be repeated.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A preset of the benchmark, such as paper or small.", rich_help_panel=_CHANGE)
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="This method instead; may be repeated.", rich_help_panel=_CHANGE)
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="Only the tasks with this network; if none has it, this network for every task.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="So many seeds (5 is 0 to 4), or these: 0,1,2 or 0-4; the seed 5 alone is 5-5.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PLACE.]KEY=VALUE",
            help="An argument; PLACE is training (if left out), task, network, encoding or a method. May be repeated.",
            rich_help_panel=_CHANGE,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="A folder with the data of a benchmark's tasks; DUBIO_DATA names another one."),
    ] = None,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file of yours to load; may be repeated.")] = None,
    store: Annotated[Path, typer.Option(help="Where fits and predictions are kept.")] = Path("dubio-store"),
    out: Annotated[Path, typer.Option(help="Where report.html and results.csv go.")] = Path("dubio-report"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at a time; one a core if left out.")] = None,
    executor: Annotated[
        str, typer.Option(help="Who does the work: local processes, or ray (actors, also on a cluster).")
    ] = "local",
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="How often a training under way is saved.")] = 600.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done; do nothing.")] = False,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="The report also has published definitions that are mistaken.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Train and judge methods on tasks. Stop it whenever you like: the same command goes on where it was."""
    given = dict(locals())
    try:
        prepared = _prepare(given)
        say_first(prepared)
        count = jobs or _cores()
        if dry_run:
            print_forecast(prepared, store, count, as_json=json)
            return
        _make_folder(out)
        finish, opened = _carry_out(prepared, given, count)
        print_results(finish, opened, out, as_json=json, as_published=as_published)
    except KeyboardInterrupt:
        say(f"\nInterrupted. What is finished is kept in {store}; run the same command again to go on.")
        raise typer.Exit(INTERRUPTED) from None
    if finish.outcome.failures:
        raise typer.Exit(1)


def _prepare(given: dict[str, Any]) -> BenchmarkRun:
    """Read the benchmark or the user's data and everything they name."""
    from dubio.cli.data import own_arguments
    from dubio.registry import load_entry_points, load_plugin
    from dubio.runner.benchmark import built_in, load_benchmark
    from dubio.runner.left import load_left
    from dubio.runner.overrides import Overrides, parse_seeds
    from dubio.runner.own import own_benchmark
    from dubio.runner.running import BenchmarkRun
    from dubio.runner.setting import prepare_what_is_here

    about_data = [name for name in OWN if given[name] is not None]
    if (given["benchmark"] is None) == (given["data"] is None):
        raise UserError(f"name a benchmark ({', '.join(built_in())}, or a TOML file) or give --data, one of the two.")
    if given["data"] is None and about_data:
        raise UserError(f"--{about_data[0].replace('_', '-')} speaks of your own data; give --data too.")
    about_benchmark = [name for name in ("preset", "data_dir") if given[name] is not None]
    if given["data"] is not None and about_benchmark:
        raise UserError(f"--{about_benchmark[0].replace('_', '-')} speaks of a benchmark; it does not go with --data.")
    load_entry_points()
    for path in given["plugin"] or ():
        load_plugin(path)
    known = {}
    if given["data"] is None:
        benchmark = load_benchmark(given["benchmark"], given["preset"])
    else:
        benchmark, known[0] = own_benchmark(own_arguments({key: given[key] for key in ("data", *OWN)}))
    overrides = Overrides(
        tasks=given["task"] or (),
        methods=given["method"] or (),
        seeds=parse_seeds(given["seeds"]) if given["seeds"] else (),
        network=given["network"],
        settings=given["set"] or (),
        data_dir=given["data_dir"],
    )
    changed = overrides.apply(benchmark)
    read = known if changed.tasks[0].arguments == benchmark.tasks[0].arguments else {}
    found = prepare_what_is_here(changed, read)
    return BenchmarkRun(changed, found.settings, load_left(), found.skipped)


def _carry_out(prepared: BenchmarkRun, given: dict[str, Any], jobs: int) -> tuple[Finish, Store]:
    from dubio.runner.executor import WorkerOrders
    from dubio.store import Store

    store = Store.open(given["store"])
    orders = WorkerOrders(store.path, given["plugin"] or (), given["checkpoint_seconds"])
    try:
        finish = prepared.run(store, jobs, given["executor"], orders)
    finally:
        store.close()
    for words in finish.damaged:
        say(f"not used by this run, but damaged: {words}")
    return finish, store


def _make_folder(out: Path) -> None:
    """Make the report's folder before anything is trained: hours later would be a bad time to find that one cannot."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"--out {str(out)!r} cannot be made: {fault.strerror}.") from fault


def _cores() -> int:
    """The cores this process may use."""
    import os

    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
