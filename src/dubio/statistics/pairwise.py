"""Every pair of methods over datasets: Wilcoxon's signed-rank test, corrected after Holm.

The paired counterpart of Nemenyi's test: it looks at the differences of two methods alone, whatever other methods are
in the table. With few datasets its smallest possible p is 2^(1−N): five datasets can never reach 0.05.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from dubio.statistics.paired import holm
from dubio.statistics.results import Grid


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of two methods over datasets."""

    first: str
    second: str
    p: float
    adjusted_p: float


def signed_rank_tests(grid: Grid) -> tuple[SignedRank, ...]:
    """Test every pair of methods under one metric; a pair that is equal everywhere has p = 1."""
    tests = []
    for one, two in combinations(range(len(grid.methods)), 2):
        gaps = np.array([float(row[one] - row[two]) for row in grid.values])
        p = float(stats.wilcoxon(gaps).pvalue) if gaps.any() else 1.0
        tests.append(SignedRank(grid.methods[one], grid.methods[two], p, p))
    adjusted = holm([test.p for test in tests])
    return tuple(replace(test, adjusted_p=p) for test, p in zip(tests, adjusted, strict=True))
