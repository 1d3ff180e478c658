"""Marks of the tables of retained examples."""

from __future__ import annotations

from dubio.reporting.build import build_report
from dubio.reporting.tables import Table
from tests.reporting.helpers import blocks, of_kind
from tests.reporting.stored_runs import make_world


def test_tables_of_the_retained_judge_the_same_methods_as_that_of_all_examples() -> None:
    store, manifest = make_world((0,))
    kept = [run for run in manifest["runs"] if run["method"] != "mc-dropout" or run["member"] == 0]
    report = build_report(store, {**manifest, "runs": kept})
    for task in report.run.tasks:
        section = "two-class-referral" if task.has_positive_side else "referral"
        table = next(
            one for one in of_kind(blocks(report, section, task), Table) if one.caption.startswith("Accuracy of the")
        )
        first = {row.title: row.cells[0].spread for row in table.rows if not row.control}
        judged = report.run.scores.verdicts(task, "test", "accuracy")
        unjudged = {report.run.title(name) for name, verdict in judged.items() if verdict.place == "unjudged"}
        assert {title for title, spread in first.items() if spread.endswith("†")} == unjudged == {"MC dropout"}
        assert "†: not judged" in table.caption
