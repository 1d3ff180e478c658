"""``dubio run``: train, predict and judge a benchmark, or your own data; what exists is never made again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubio.cli.output import say
from dubio.cli.run_printing import print_forecast, print_results, say_first
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.runner.benchmark_run import PreparedBenchmark, RunOutcome
    from dubio.store import Store

OWN = (
    "text", "label", "features", "label_separator", "target", "order", "id", "group", "time", "domain", "train_domain",
    "split", "novel", "fractions", "split_seed", "size",
)  # fmt: skip
"""Options that speak of your own data, or of the data that a benchmark is told."""

TOLD = ("shift", "shift_data")
"""Options that speak of the data a benchmark is told alone."""

SHIPPED = tuple(sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.toml")))
"""The benchmarks that come with dubio, for the help, which must not wait for the imports that reading one takes."""

INTERRUPTED = 130

_DATA = "Your own data"
_CHANGE = "Changing a benchmark"


def run(
    benchmark: Annotated[
        str | None, typer.Argument(help=f"A benchmark's name ({', '.join(SHIPPED)}) or a TOML file.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="CSV, TSV, JSONL, Parquet, npz, or a folder of images, instead of a benchmark; or the data of one "
            "that is told it (retina).",
            rich_help_panel=_DATA,
        ),
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
        str | None,
        typer.Option(help="multiclass, multilabel or ordinal; retina: binary or ordinal.", rich_help_panel=_DATA),
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
    shift: Annotated[
        str | None,
        typer.Option(
            help="retina: what is held out of training: quality, severity, site, several with +, or none.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    shift_data: Annotated[
        Path | None,
        typer.Option(help="retina: another data set, whole, as the shift.", rich_help_panel=_DATA),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="retina: read every file again and check the cache.", rich_help_panel=_DATA),
    ] = False,
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
    devices: Annotated[
        str | None,
        typer.Option(
            help="Where trainings run, with commas, such as cuda:0,cuda:1: one process on each; cpu if left out."
        ),
    ] = None,
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
        from dubio.runner.benchmark_run import check_devices, default_jobs

        places = check_devices(devices)
        count = jobs or default_jobs(devices)
        if dry_run:
            print_forecast(prepared, store, count, places[0], as_json=json)
            return
        _make_folder(out)
        finish, opened = _carry_out(prepared, given, count, places)
        print_results(finish, opened, out, as_json=json, as_published=as_published)
    except KeyboardInterrupt:
        say(f"\nInterrupted. What is finished is kept in {store}; run the same command again to go on.")
        raise typer.Exit(INTERRUPTED) from None
    if finish.outcome.failures:
        raise typer.Exit(1)


def _prepare(given: dict[str, Any]) -> PreparedBenchmark:
    """Read the benchmark or the user's data and everything they name."""
    from dubio.cli.data import arguments_of
    from dubio.runner.benchmark_run import prepare_run

    return prepare_run(
        given["benchmark"],
        tasks=given["task"] or (),
        methods=given["method"] or (),
        networks=[given["network"]] if given["network"] else (),
        seeds=given["seeds"] or None,
        preset=given["preset"],
        settings=given["set"] or (),
        data_options=arguments_of({key: given[key] for key in ("data", *OWN, *TOLD)}),
        data_dir=given["data_dir"],
        plugins=given["plugin"] or (),
        verify=given["verify"],
    )


def _carry_out(
    prepared: PreparedBenchmark, given: dict[str, Any], jobs: int, devices: Sequence[str]
) -> tuple[RunOutcome, Store]:
    from dubio.runner.executor import WorkerOrders
    from dubio.store import Store

    store = Store.open(given["store"])
    orders = WorkerOrders(store.path, given["plugin"] or (), given["checkpoint_seconds"], devices=devices)
    try:
        finish = prepared.run(store, jobs, given["executor"], orders)
    finally:
        store.close()
    for words in finish.damaged:
        say(f"not used by this run, but damaged: {words}")
    for warning in finish.warnings:
        say(f"caution: {warning}")
    return finish, store


def _make_folder(out: Path) -> None:
    """Make the report's folder before anything is trained: hours later would be a bad time to find that one cannot."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"--out {str(out)!r} cannot be made: {fault.strerror}.") from fault
