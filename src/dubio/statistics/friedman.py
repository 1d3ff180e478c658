"""Friedman's test: do the methods' ranks differ more than chance would have them?

With r_ij the rank of method j on dataset i, R_j = Σ_i r_ij, N datasets and k methods,

    χ² = (k − 1) Σ_j (R_j − N(k+1)/2)² / (Σ_ij r_ij² − N k (k+1)²/4),

which is the usual statistic corrected for ties, and stays right for ranks averaged over several metrics since a block
still sums to k(k+1)/2. Iman and Davenport's F = (N − 1) χ² / (N (k − 1) − χ²), with k − 1 and (k − 1)(N − 1) degrees of
freedom, is less conservative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from dubio.core.errors import UserError
from dubio.statistics.ranks import Ranks


@dataclass(frozen=True)
class Friedman:
    """The outcome of Friedman's test and of Iman and Davenport's refinement."""

    chi2: float
    p: float
    iman_davenport: float
    iman_davenport_p: float
    methods: int
    datasets: int


def friedman(ranks: Ranks) -> Friedman:
    """Test that all methods have the same mean rank; where all are tied everywhere, χ² = 0 and p = 1.

    Raises:
        UserError: For fewer than two methods or two datasets.
    """
    values = ranks.values
    blocks, methods = values.shape
    if methods < 2:
        raise UserError(f"comparing needs at least two methods; given one, {ranks.methods[0]!r}.")
    if blocks < 2:
        raise UserError(f"comparing by ranks needs at least two datasets; given one, {ranks.datasets[0]!r}. "
                        "On one dataset, compare two systems on the same examples: dubio evaluate a=FILE b=FILE.")
    between = float(np.square(values.sum(axis=0) - blocks * (methods + 1) / 2).sum())
    within = float(np.square(values).sum()) - blocks * methods * (methods + 1) ** 2 / 4
    chi2 = (methods - 1) * between / within if within > 1e-12 else 0.0
    spare = blocks * (methods - 1) - chi2
    refined = (blocks - 1) * chi2 / spare if spare > 1e-9 else np.inf
    return Friedman(
        chi2=chi2,
        p=float(stats.chi2.sf(chi2, methods - 1)),
        iman_davenport=float(refined),
        iman_davenport_p=float(stats.f.sf(refined, methods - 1, (methods - 1) * (blocks - 1))),
        methods=methods,
        datasets=blocks,
    )
