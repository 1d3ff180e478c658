"""Numbers and claims of a study's paper, read from the data files in its folder, and their agreement with ours."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dubio.core.documents import parse_toml
from dubio.core.types import Direction
from dubio.reporting.claims import Claim, Evidence, Planned, judged
from dubio.reporting.score_table import Cell
from dubio.reporting.tables import TableCell
from dubio.reporting.wording import signed


@dataclass(frozen=True)
class PublishedNumber:
    """One published number; a field that the paper's table does not have is 0, or empty.

    Attributes:
        task: The registered name of the data set.
        network: Our name of the network.
        method: The registered name of the method.
        metric: The metric, or the measure.
        value: The number.
        std: Its standard deviation; None where it is not published.
        setting: Under which conditions it was measured.
        classes: The number of classes.
        samples: The number of samples.
        runs: The number of runs.
    """

    task: str
    network: str
    method: str
    metric: str
    value: float
    std: float | None = None
    setting: str = ""
    classes: int = 0
    samples: int = 0
    runs: int = 0


NUMBERS: Mapping[str, type] = {"value": float, "std": float, "classes": int, "samples": int, "runs": int}
"""Columns that are not text, with their types."""


@cache
def published_numbers(study: str) -> tuple[PublishedNumber, ...]:
    """Return every published number of a study, from its ``published.csv``."""
    rows = csv.DictReader(line for line in _lines(study, "published.csv") if not line.startswith("#"))
    typed = ({name: NUMBERS.get(name, str)(text) for name, text in row.items() if text} for row in rows)
    return tuple(PublishedNumber(**row) for row in typed)


@cache
def paper_of(study: str) -> dict[str, Any]:
    """Return the facts about a study's paper, from its ``paper.toml``: ``source``, ``claim`` and others of its own."""
    return parse_toml("\n".join(_lines(study, "paper.toml")), "paper.toml")


def claims_of(
    study: str, test: Callable[[Mapping[str, Any]], Iterable[Evidence | Planned]]
) -> tuple[Claim, ...]:
    """Return every claim of a study's paper with its evidence.

    Args:
        study: The study.
        test: Yields the evidence for one claim of ``paper.toml``, which names the kind of test and its arguments.
    """
    return tuple(Claim(c["statement"], c["where"], judged(test(c))) for c in paper_of(study)["claim"])


def _lines(study: str, name: str) -> list[str]:
    return (files(f"dubio.studies.{study}") / name).read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Agreement:
    """A published number beside ours.

    Attributes:
        published: The published number.
        ours: Our values.
        tolerance: Differences up to this count as agreement.
        better: Which direction is better.
    """

    published: PublishedNumber
    ours: Cell
    tolerance: float
    better: Direction = "lower"

    @property
    def difference(self) -> float:
        """Ours minus the published value."""
        return self.ours.mean - self.published.value

    @property
    def outcome(self) -> str:
        """Within the tolerance, or better or worse than that."""
        if abs(self.difference) <= self.tolerance:
            return "within"
        return "better" if (self.difference > 0) == (self.better == "higher") else "worse"

    def cells(self, places: int, factor: float = 1.0) -> tuple[TableCell, TableCell]:
        """Return the published number and the difference as cells of a table.

        Args:
            places: Decimals.
            factor: What numbers are multiplied with, such as 100 for per cent.
        """
        value, std, difference = self.published.value, self.published.std, self.difference
        spread = "" if std is None else f"± {factor * std:.{places}f}"
        agrees = "tied" if self.outcome == "within" else ""
        return (
            TableCell(f"{factor * value:.{places}f}", spread, f"{value}", "unranked"),
            TableCell(signed(factor * difference, places), self.outcome, f"{difference:.9g}", agrees),
        )
