"""Published numbers that come with a study, and their agreement with ours."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dubio.core.types import Direction
from dubio.reporting.score_table import Cell
from dubio.reporting.tables import TableCell


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
    std: float | None
    setting: str = ""
    classes: int = 0
    samples: int = 0
    runs: int = 0


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
        shown = f"{factor * difference:+.{places}f}".replace("-", "−")
        verdict = "tied" if self.outcome == "within" else ""
        return (
            TableCell(f"{factor * value:.{places}f}", spread, f"{value}", "unranked"),
            TableCell(shown, self.outcome, f"{difference:.9g}", verdict),
        )


@cache
def published_numbers(study: str) -> tuple[PublishedNumber, ...]:
    """Return every published number of a study, from the ``published.csv`` in its folder."""
    text = (files(f"dubio.studies.{study}") / "published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        PublishedNumber(
            task=row["task"],
            network=row["network"],
            method=row["method"],
            metric=row["metric"],
            value=float(row["value"]),
            std=float(row["std"]) if row["std"] else None,
            setting=row.get("setting", ""),
            classes=int(row.get("classes") or 0),
            samples=int(row.get("samples") or 0),
            runs=int(row.get("runs") or 0),
        )
        for row in rows
    )
