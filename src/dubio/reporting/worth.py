"""How many independent networks each method is worth on a task: its deep-ensemble equivalent (P eqs 4–5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, pool_members
from dubio.reporting.manifest_view import Manifest, TaskView
from dubio.reporting.score_table import Cell
from dubio.statistics.ensemble_equivalent import EquivalentRange, GrowthCurve, equivalent_range, growth_curve

NETWORK = "deterministic"
"""The family of networks that a method is measured in."""

ORDERS = 10
"""Random orders in which the networks are added."""


def networks_of(view: Manifest, task: TaskView) -> frozenset[str]:
    """Ids of the runs that are single networks of a deep ensemble; none where the run has no deep ensemble."""
    pooled = {method.name for method in view.methods if method.ensemble and method.family == NETWORK}
    single = {method.name for method in view.methods if not method.ensemble and method.family == NETWORK}
    runs = view.runs_of(task.key)
    if not any(run.method in pooled for run in runs):
        return frozenset()
    return frozenset(run.id for run in runs if run.method in single)


def growth_of(networks: Sequence[Predictions]) -> GrowthCurve | None:
    """The curve of deep ensembles of 1, 2, … of these networks, over all seeds; None of fewer than two."""
    if len(networks) < 2:
        return None
    try:
        return growth_curve(pool_members(list(networks)), orders=ORDERS)
    except UserError:
        return None


def equivalents(curve: GrowthCurve, cells: Mapping[str, Cell]) -> dict[str, EquivalentRange]:
    """Method → its deep-ensemble equivalent, from its mean calibrated log-likelihood over runs."""
    known = {name: cell.mean for name, cell in cells.items() if cell.n and np.isfinite(cell.mean)}
    return {name: equivalent_range(curve, "nll", value) for name, value in known.items()}
