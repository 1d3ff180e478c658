"""The table of costs."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting import build_report
from dubio.reporting.sections.cost import cost_table
from tests.reporting.helpers import sort_values
from tests.reporting.stored_runs import make_world


def test_cost_has_an_epoch_and_the_epoch_of_convergence() -> None:
    store, manifest = make_world((0,))
    for place, record in enumerate(store.records.values()):
        if "parameters" in record:
            record |= {"seconds_per_epoch": 0.5 + place, "best_epoch": 3 + place, "environment": {"device": "cpu"}}
    run = build_report(store, manifest).run
    table = cost_table(run, run.tasks[1])
    fits = next(run["fits"] for run in manifest["runs"] if run["task"] == "screening" and len(run["fits"]) == 2)
    epochs = [store.records[fit]["seconds_per_epoch"] for fit in fits]
    assert float(sort_values(table, "Epoch")["Deep ensemble"]) == pytest.approx(np.mean(epochs))
    assert float(sort_values(table, "Converged")["Deep ensemble"]) == pytest.approx(np.mean(epochs) + 2.5)
    assert next(head.sub for head in table.columns if head.title == "Inference") == "examples per second, cpu"
