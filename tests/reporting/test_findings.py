"""What the report says in words, where the numbers would mislead."""

from __future__ import annotations

from dataclasses import replace

from dubio.reporting.findings import findings, leader

from dubio.reporting.results import Results


def said(results: Results) -> str:
    return " ".join(str(finding) for finding in findings(results))


def test_no_method_leads_where_no_temperature_has_an_optimum(results: Results) -> None:
    task = results.manifest.tasks[0]
    best = leader(results, task)
    settled = replace(results, unsettled={(task.key, best): (9, 10)})
    unsettled = replace(results, unsettled={(task.key, best): (10, 10)})
    assert "cannot rank here" not in said(settled)
    assert said(unsettled).count("cannot rank here") == 1
    assert said(unsettled).count("has the lowest calibrated NLL") == said(settled).count("lowest calibrated NLL") - 1
