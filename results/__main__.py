"""Remake a page of `docs/results`: `python -m results text [--part 1] [--dry-run]`; see `pages.toml`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dubio.core.errors import DubioError, UserError
from dubio.reporting.stored_run import open_run
from results.errata import write_errata
from results.pages import Page, Study, check_forecast, forecast, make_part, make_run, page_named
from results.weak_labels import left_to_train, write_weak_labels
from results.writing import write_page


def main(arguments: Sequence[str] | None = None) -> int:
    """Forecast, make or write a page; return 0, 1 for a failed command or a wrong statement, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m results", description=__doc__)
    parser.add_argument("page", help="text, methods-since, retina, weak-labels, ensembles or errata")
    parser.add_argument("--part", type=int, help="make this part alone, and no page")
    parser.add_argument("--study", action="append", help="make and write the section of this heading alone; repeatable")
    parser.add_argument("--dry-run", action="store_true", help="state trainings and forecast, and check pages.toml")
    parser.add_argument("--write", action="store_true", help="write the page from what the store has, and make nothing")
    parser.add_argument("--computed", action="store_true", help="as --write, without scores not computed before")
    parser.add_argument("--store", type=Path, help="results-store/PAGE if omitted")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DUBIO_DATA", "data")))
    options = parser.parse_args(arguments)
    try:
        page = page_named(options.page)
        store = (options.store or Path("results-store") / page.name).resolve()
        data = options.data.resolve()
        if page.name == "weak-labels" and (options.part is not None or options.study):
            raise UserError("PART, STUDY: the page weak-labels is made at once.")
        studies = page.chosen(options.study or ())
        if options.dry_run:
            return state(page, studies, data, store)
        if options.part is not None:
            make_part(page, options.part, data, store)
            return 0
        if page.name == "errata" and options.computed:
            print(write_errata(page, store, computes=False))
            return 0
        print(write(page, studies, data, store, make=not options.write))
    except DubioError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd))} ended with code {error.returncode}.", file=sys.stderr)
        return 1
    return 0


def state(page: Page, studies: Sequence[Study], data: Path, store: Path) -> int:
    """Print trainings and forecast of studies of a page, and what contradicts `pages.toml`."""
    if page.name == "weak-labels":
        print(f"{left_to_train(data, store)} trainings to be made")
        return 0
    forecasts = {study: forecast(study, data, store) for study in studies}
    for study, cost in forecasts.items():
        number = page.parts.index((study, 1)) + 1
        last = number + study.parts - 1
        parts = f"part {number}" if study.parts == 1 else f"parts {number} to {last}"
        trainings, hours = cost["trainings"], cost["seconds"] / 3600
        missing = f"{cost['trainings_left']} to be made, at most {hours:.1f} h of two cores"
        print(f"{parts}: {study.heading}: {trainings} trainings, {missing}")
    complaints = list(check_forecast(page, forecasts))
    print(*complaints, sep="\n", file=sys.stderr, end="\n" if complaints else "")
    return 1 if complaints else 0


def write(page: Page, studies: Sequence[Study], data: Path, store: Path, *, make: bool) -> Path:
    """Make what is missing of studies, unless only the page is wanted, and write their sections.

    Where only the page is wanted, sections of studies whose trainings are missing stay as they are, and are named.

    Raises:
        UserError: When only the page is wanted and no study is complete; the errata state what is not run themselves.
    """
    if page.name == "weak-labels":
        if not make and (missing := left_to_train(data, store)):
            raise UserError(f"--write trains nothing, and {missing} trainings of the page are not in {store}.")
        return write_weak_labels(page, data, store)
    if page.name == "errata":
        for study in studies if make else ():
            make_run(study, data, store)
        return write_errata(page, store)
    left = {} if make else {study: int(forecast(study, data, store)["trainings_left"]) for study in studies}
    lacking = [f"{study.heading} ({missing})" for study, missing in left.items() if missing]
    if len(lacking) == len(studies):
        raise UserError(f"--write trains nothing, and {sum(left.values())} trainings of the page are not in {store}.")
    complete = [study for study in studies if not left.get(study)]
    runs = {study: open_run(make_run(study, data, store), store=store) for study in complete}
    dropped = write_page(page, runs)
    if lacking:
        print(f"Sections that stay as they are, with the trainings they lack: {', '.join(lacking)}.", file=sys.stderr)
    if dropped:
        print(f"Sections that pages.toml does not name, now gone: {', '.join(dropped)}.", file=sys.stderr)
    return page.path


if __name__ == "__main__":
    sys.exit(main())
