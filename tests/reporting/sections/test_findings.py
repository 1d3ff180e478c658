"""Sentences of the findings, where the numbers alone would mislead."""

from __future__ import annotations

from dataclasses import replace

from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import TemperatureFits
from dubio.reporting.sections.findings import how_to_read, leader, task_findings
from tests.reporting.helpers import with_scores


def test_no_method_leads_where_no_temperature_has_an_optimum(run: RunView) -> None:
    task = run.tasks[0]
    best = leader(run, task)
    assert best is not None
    for at_bound, ranked in ((9, True), (10, False)):
        changed = with_scores(run, run.scores.scores)
        changed.scores.temperatures[task.key, best] = TemperatureFits([1.0] * 10, at_bound)
        first = task_findings(replace(changed), task)[0]
        assert ("has the lowest calibrated NLL" in first) == ranked
        assert ("cannot rank" in first) != ranked


def test_nothing_spreads_over_one_seed(run: RunView) -> None:
    assert "over two seeds" in how_to_read(run)
    runs = tuple(replace(one, seed=0) for one in run.manifest.runs)
    once = how_to_read(replace(run, manifest=replace(run.manifest, runs=runs)))
    assert "over one seed" not in once
    assert "with one seed an ensemble has no spread" in once
