"""``dubio report``: the web page, the long table and the figures of benchmark runs, or of files of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dubio.cli.options import (
    EXAMPLES,
    MARGIN,
    STORE,
    EmptyDecisionOption,
    MarginOption,
    PluginOption,
    RawCsvOption,
    ReadingOptions,
    StoreOption,
    files_of_systems,
    load_plugins,
    named_files,
    with_reading_options,
)
from dubio.cli.output import print_json, print_table, say
from dubio.core.errors import UserError

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.reporting.prediction_files import Systems
    from dubio.reporting.stored_run import Run

UNUSED_MARGIN = "--margin: not used, because nothing is advised without known costs."


@with_reading_options()
def report(
    reading: ReadingOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN | FILE...]")] = None,
    run: list[str] | None = None,
    store: StoreOption = STORE,
    cal: list[str] | None = None,
    shift: list[str] | None = None,
    ood: list[str] | None = None,
    title: str = "",
    empty_decision: EmptyDecisionOption = None,
    out: Path = Path("dubio-report"),
    figures: Path | None = None,
    format: str = "png,svg,pdf",
    plugin: PluginOption = None,
    as_published: bool = False,
    margin: MarginOption = MARGIN,
    examples: Annotated[int, typer.Option(min=0)] = EXAMPLES,
    no_examples: bool = False,
    raw_csv: RawCsvOption = False,
    json: bool = False,
) -> None:
    """Write the report of a run, of several together, or of files of predictions.

    Args:
        names: Name of the run, which may be omitted if the store has one; or files of predictions, each PATH or
            NAME=PATH, compared side by side.
        run: Several runs in one report: repeat it, in the order of the report.
        cal: The same systems on a calibration set, for referral policies: PATH, or NAME=PATH for one of several
            systems.
        shift: The same systems on shifted examples: PATH, or NAME=PATH for one of several systems; may be repeated.
        ood: The same systems on out-of-distribution examples: PATH, or NAME=PATH for one of several systems; may be
            repeated.
        title: With files of predictions: what the page calls the data.
        out: Folder for report.html and results.csv.
        figures: Also write every figure into this folder, for papers.
        format: Formats of the figures, among png, svg and pdf.
        as_published: Also report published definitions that are mistaken.
        examples: Texts, table rows or small images shown of each test set; 0 for none.
        no_examples: Show none: for data that must not leave.
        json: Print the scores as one JSON document.
    """
    from dubio.reporting.prediction_files import open_systems

    load_plugins(plugin)
    apart = {"--cal": cal, "--shift": shift, "--ood": ood, "--title": title, "--empty-decision": empty_decision}
    stated = [*(option for option, value in apart.items() if value), *reading.stated()]
    opened: Run | Systems
    if not _are_files(names or []):
        opened = _runs([*(names or ()), *(run or ())], len(names or ()), store, stated)
    elif run or store != STORE:
        raise UserError("--run and --store are for benchmark runs; these are files of predictions.")
    else:
        systems = named_files(names or [])
        opened = open_systems(
            {name: reading.read(path, labels=reading.labels) for name, path in systems.items()},
            cal=_calibration(cal, systems, reading),
            shift=_test_sets("--shift", shift, systems, reading),
            ood=_test_sets("--ood", ood, systems, reading),
            title=title,
            empty_decision=empty_decision,
            ignored=[UNUSED_MARGIN] if margin != MARGIN else (),
        )
    formats = [text.strip() for text in format.split(",") if text.strip()]
    written = opened.report(
        out, figures=figures, formats=formats, as_published=as_published, margin=margin, raw_csv=raw_csv,
        examples=0 if no_examples else examples,
    )  # fmt: skip
    if json:
        paths = {"report": str(written.page), "figures": [str(path) for path in written.figures]}
        print_json({**paths, **written.report.document(), "notes": opened.notes})
        return
    print_table(opened)
    say(*opened.notes, f"report: {written.page}")
    if figures is not None:
        say(f"figures: {len(written.figures)} files in {figures}")


def _runs(names: list[str], arguments: int, store: Path, stated: list[str]) -> Run:
    """Open runs of a store; at most one is named as an argument, and no option is for files of predictions."""
    from dubio.reporting.stored_run import open_run

    if stated:
        raise UserError(f"{', '.join(stated)}: for files of predictions, not for benchmark runs.")
    if arguments > 1:
        raise UserError(f"name one run, or each with --run; given {', '.join(names)}.")
    return open_run(*names, store=store)


def _are_files(names: list[str]) -> bool:
    """Return whether the arguments are files of predictions.

    Raises:
        UserError: Where some are and some are not.
    """
    from dubio.formats.predictions import is_prediction_file

    files = [name for name in names if is_prediction_file(name) or is_prediction_file(name.partition("=")[2] or ".")]
    others = [name for name in names if name not in files]
    if files and others:
        raise UserError(
            f"a report is of runs or of files of predictions: {files[0]!r} is a file, and {others[0]!r} is not."
        )
    return bool(files)


def _test_sets(
    option: str, texts: list[str] | None, systems: dict[str, str], reading: ReadingOptions
) -> dict[str, dict[str, Predictions]]:
    """Return test set → system → its predictions: every system's first file, every one's second, and so on."""
    from dubio.reporting.prediction_files import name_of_files, unique_names

    files = files_of_systems(option, texts, systems)
    sets = list(zip(*files.values(), strict=True))
    names = unique_names(name_of_files(paths, option.removeprefix("--")) for paths in sets)
    read = [dict(zip(files, map(reading.read, paths), strict=True)) for paths in sets]
    return dict(zip(names, read, strict=True))


def _calibration(
    texts: list[str] | None, systems: dict[str, str], reading: ReadingOptions
) -> dict[str, Predictions] | None:
    sets = list(_test_sets("--cal", texts, systems, reading).values())
    if len(sets) > 1:
        raise UserError(f"--cal: every system has one calibration set; given {len(sets)}.")
    return sets[0] if sets else None
