"""The pages of `pages.toml`: their studies, the commands of these, and the parts in which they are made."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from dubio.core.errors import UserError, check_known, one_of

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("pages.toml")

Filled = TypeVar("Filled", "Study", "Across")

PART_HOURS = 2.0
"""The most that one part may take on two cores."""

PAGE_HOURS = 6.0
"""The most that a page may take on two cores."""


@dataclass(frozen=True)
class Study:
    """One run of a page.

    Attributes:
        heading: The heading of its section.
        command: The arguments of `dubio run`; `{data}` stands for the folder of the data.
        trainings: The number of trainings whose weights predict, as the page states it; trials of tuning are more.
        made_of: What these are, if the number alone would surprise.
        parts: The number of shards in which it is made.
        sections: The sections of its report whose tables the page shows.
        without: Endings of headings in these sections; what stands below such a heading is left out.
        figures: The figures of its report that the page shows, by the names of their files.
        prefix: The beginning of these files' names on the page, where figures of other studies have the same names.
    """

    heading: str
    command: str
    trainings: int
    made_of: str = ""
    parts: int = 1
    sections: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    prefix: str = ""

    def arguments(self, data: Path) -> list[str]:
        """Return the arguments of `dubio run`."""
        return [word.format(data=data) for word in shlex.split(self.command)]


@dataclass(frozen=True)
class Across:
    """The last section of a page, on several of its studies together.

    Attributes:
        heading: Its heading.
        studies: The headings of these studies; their numbers of seeds may differ.
        sections: The sections of their common report that it shows.
        without: Endings of headings in these sections; what stands below such a heading is left out.
        figures: The figures of that report, by the names of their files.
    """

    heading: str
    studies: tuple[str, ...]
    sections: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page of `docs/results`.

    Attributes:
        name: The name of its file.
        title: Its title.
        studies: Its sections.
        scope: What its numbers may be compared with, in sentences.
        across: What it says of several studies together.
    """

    name: str
    title: str
    studies: tuple[Study, ...]
    scope: str = ""
    across: Across | None = None

    @property
    def path(self) -> Path:
        """Its file."""
        return ROOT / "docs" / "results" / f"{self.name}.md"

    def chosen(self, headings: Collection[str]) -> tuple[Study, ...]:
        """Return the studies of these headings, all of them without any.

        Raises:
            UnknownName: For a heading that no study has.
        """
        check_known("STUDY", headings, [study.heading for study in self.studies])
        return tuple(study for study in self.studies if not headings or study.heading in headings)

    @property
    def parts(self) -> tuple[tuple[Study, int], ...]:
        """Every part as a study and the number of its shard."""
        return tuple((study, shard) for study in self.studies for shard in range(1, study.parts + 1))


def read_pages(path: Path = FILE) -> dict[str, Page]:
    """Return the pages by name.

    Raises:
        UserError: For a key that a study does not have, or a study that a page does not have.
    """
    pages = {}
    for name, table in tomllib.loads(path.read_text(encoding="utf-8"))["page"].items():
        studies = tuple(_filled(Study, f"key of a study of {name}", study) for study in table["study"])
        across = _filled(Across, f"key of {name}.across", table["across"]) if "across" in table else None
        check_known(f"study of {name}.across", across.studies if across else (), [study.heading for study in studies])
        pages[name] = Page(name, table["title"], studies, table.get("scope", ""), across)
    return pages


def _filled(kind: type[Filled], what: str, table: Mapping[str, Any]) -> Filled:
    """Return a dataclass with the values of a table, its lists as tuples."""
    check_known(what, table, [field.name for field in fields(kind)])
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return kind(**values)


def page_named(name: str) -> Page:
    """Return a page.

    Raises:
        UnknownName: When there is none of that name.
    """
    pages = read_pages()
    return pages[one_of("PAGE", name, pages)]


def run_study(study: Study, data: Path, store: Path, *further: str) -> str:
    """Run the command of a study and return what it prints; a folder of data is searched before the sources."""
    command = [sys.executable, "-m", "dubio", "run", *study.arguments(data), "--store", str(store), "--jobs", "2"]
    searched = {"DUBIO_DATA": str(data)} if data.is_dir() else {}
    environment, command = {**os.environ, **searched}, [*command, *further]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=environment)
    return done.stdout


def forecast(study: Study, data: Path, store: Path) -> Mapping[str, Any]:
    """Return what `dubio run --dry-run` says of a study."""
    report: Mapping[str, Any] = json.loads(run_study(study, data, store, "--dry-run", "--json"))
    return report


def check_forecast(page: Page, forecasts: Mapping[Study, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what contradicts the file: other numbers of trainings, parts or pages that take too long."""
    for study, cost in forecasts.items():
        name = f"{page.name}, {study.heading}"
        if (planned := cost["trainings"]) != study.trainings:
            yield f"{name}: the command makes {planned} trainings, pages.toml says {study.trainings}."
        needed = math.ceil(cost["seconds"] / 3600 / PART_HOURS)
        if needed > study.parts:
            yield f"{name}: needs {needed} parts of two hours, pages.toml says {study.parts}."
    hours = sum(cost["seconds"] for cost in forecasts.values()) / 3600
    if hours > PAGE_HOURS:
        yield f"{page.name}: forecast {hours:.1f} hours of two cores, at most {PAGE_HOURS:g} are allowed."


def _report_of(store: Path) -> Path:
    """Return the folder of the reports, beside the store: a store holds what dubio stores alone."""
    return store.with_name(f"{store.name}-report")


def make_part(page: Page, number: int, data: Path, store: Path) -> None:
    """Make one part of a page in a store; the same call continues where it stopped.

    Raises:
        UserError: For a part that the page does not have.
    """
    if not 1 <= number <= len(page.parts):
        raise UserError(f"PART must be 1 to {len(page.parts)} for the page {page.name}; given {number}.")
    study, shard = page.parts[number - 1]
    divided = ("--shard", f"{shard}/{study.parts}") if study.parts > 1 else ()
    run_study(study, data, store, "--out", str(_report_of(store)), *divided)


def make_run(study: Study, data: Path, store: Path) -> str:
    """Make what is missing of a study, with its manifest; return the name of the run."""
    return str(json.loads(run_study(study, data, store, "--out", str(_report_of(store)), "--json"))["run"])
