"""From the long table of scores to cells: mean ± standard deviation over runs, with how many there were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Score:
    """One value of one run.

    ``member`` is None for a method that pools several fits; ``value`` is NaN where the metric is not defined (the area
    under a ROC curve of a single class, say).
    """

    task: str
    split: str
    kind: str
    method: str
    seed: int
    member: int | None
    metric: str
    value: float


@dataclass(frozen=True)
class Cell:
    """The values of one method for one metric on one split.

    Single-model rows hold a value for every (seed, member), ensembles one for every seed.
    """

    values: tuple[float, ...]
    undefined: int = 0

    @property
    def n(self) -> int:
        """How many runs have a value."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def std(self) -> float | None:
        """Their sample standard deviation (n − 1); None for fewer than two values, or where one is infinite."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 and np.isfinite(self.values).all() else None


Key = tuple[str, str, str, str]
"""(task, split, method, metric)."""


def aggregate(scores: Iterable[Score]) -> dict[Key, Cell]:
    """Group scores by (task, split, method, metric); undefined values are counted, never averaged."""
    values: dict[Key, list[float]] = {}
    undefined: dict[Key, int] = {}
    for score in scores:
        key = (score.task, score.split, score.method, score.metric)
        values.setdefault(key, [])
        if math.isnan(score.value):
            undefined[key] = undefined.get(key, 0) + 1
        else:
            values[key].append(score.value)
    return {key: Cell(tuple(found), undefined.get(key, 0)) for key, found in values.items()}


def average_over(cells: Mapping[Key, Cell], task: str, splits: Iterable[str], method: str, metric: str) -> Cell | None:
    """The cell of several splits taken together: each run's mean over the splits, then as usual over runs.

    None where a split has no such cell or the runs of the splits do not correspond.
    """
    found = [cells.get((task, split, method, metric)) for split in splits]
    present = [cell for cell in found if cell is not None]
    if len(present) < len(found) or not present or len({cell.n for cell in present}) > 1:
        return None
    if any(cell.undefined for cell in present):
        return None
    stacked = np.array([cell.values for cell in present])
    return Cell(tuple(float(value) for value in stacked.mean(axis=0)))


def decimals(cells: Iterable[Cell | None]) -> int:
    """Decimals that show these cells with their spread: at least a digit of the median one, between 3 and 5."""
    spreads = [cell.std for cell in cells if cell is not None and cell.std]
    if not spreads:
        return 3
    return int(np.clip(math.floor(-math.log10(float(np.median(spreads)))) + 1, 3, 5))


def cell_text(cell: Cell | None, places: int = 3) -> str:
    """A cell as text: never a bare mean where there is a spread, and one run says so."""
    if cell is None or (cell.n == 0 and not cell.undefined):
        return "–"
    if cell.n == 0:
        return "undefined"
    if math.isinf(cell.mean):
        return f"∞ ({sum(map(math.isinf, cell.values))} of {cell.n} runs)"
    if cell.std is None:
        return f"{cell.mean:.{places}f}\N{NO-BREAK SPACE}(1\N{NO-BREAK SPACE}run)"
    return f"{cell.mean:.{places}f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{cell.std:.{places}f}"
