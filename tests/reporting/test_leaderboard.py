"""Places of methods in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dubio.reporting.build import Report, build_report
from dubio.reporting.leaderboard import in_domain_leaderboard, leader, not_ranked_sentences, verdict_phrase
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.sections.advice import advice
from dubio.reporting.tables import Table
from dubio.reporting.terminal import terminal_table
from dubio.statistics.verdicts import Verdict
from tests.reporting.helpers import blocks, texts
from tests.reporting.stored_runs import make_world

SINGLES = ("deterministic", "mc-dropout")


def screening(nothing_learned: tuple[str, ...]) -> Report:
    """One task, whose labels some methods' predictions know nothing of."""
    store, manifest = make_world()
    manifest["tasks"] = [task for task in manifest["tasks"] if task["name"] == "screening"]
    manifest["failures"] = []
    names = ("deterministic", "mc-dropout", "deep-ensemble")
    manifest["methods"] = [method for method in manifest["methods"] if method["name"] in names]
    own = {method["name"] for method in manifest["methods"]}
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == "screening" and run["method"] in own]
    rng = np.random.default_rng(0)
    for run in manifest["runs"]:
        if run["method"] in nothing_learned:
            rows = store.predictions[run["id"], "test"]
            logits = rows.logits[:, rng.permutation(len(rows))]
            store.predictions[run["id"], "test"] = replace(rows, logits=logits)
    return build_report(store, manifest)


def printed(report: Report) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(terminal_table(report))
    return " ".join(capture.get().split())


def test_methods_that_learned_nothing_are_not_ranked() -> None:
    report = screening(SINGLES)
    run, (task,) = report.run, report.run.tasks
    sentence = "Not ranked, no evidence of learning (no significant gain in likelihood over the class frequencies): "
    assert not_ranked_sentences(run, task) == [f"{sentence}Deterministic and MC dropout."]
    board = in_domain_leaderboard(run, task, RANKED_BY)
    assert board is not None
    assert board.order == ("deep-ensemble",)
    assert leader(run, task) == "deep-ensemble"
    assert run.scores.verdicts(task, "test", "accuracy").keys() == {"deep-ensemble"}
    assert any(sentence in text for text in texts(blocks(report, "in-domain", task)))
    assert sentence in printed(report)
    rows: list[dict[str, Any]] = report.document()["learning"]
    assert {row["method"]: row["learned"] for row in rows} == {
        "deterministic": "no evidence", "mc-dropout": "no evidence", "deep-ensemble": "learned",
    }  # fmt: skip
    assert {row["method"] for row in report.document()["standing"]} == {"deep-ensemble"}
    assert "Deterministic" not in " ".join(item.conclusion for item in advice(run))


def test_without_any_method_that_learned_nobody_leads() -> None:
    report = screening((*SINGLES, "deep-ensemble"))
    run, (task,) = report.run, report.run.tasks
    assert leader(run, task) is None
    assert in_domain_leaderboard(run, task, RANKED_BY) is None
    assert advice(run) == ()
    assert "lowest calibrated NLL" not in printed(report)
    assert "no evidence of learning" in printed(report)
    assert all(row["gain"] < row["margin"] == pytest.approx(0.03 * np.log(2), rel=0.05)
               for row in report.document()["learning"])  # fmt: skip


def test_a_difference_and_what_would_be_resolved_are_not_the_same_number() -> None:
    tied, worse = Verdict("tied", 0.00368, 0.00374), Verdict("behind", -0.00374, 0.00368)
    assert verdict_phrase(tied).startswith("not significantly different: difference 0.00368")
    assert verdict_phrase(tied).endswith("0.00374")
    assert verdict_phrase(worse).startswith("significantly different: difference 0.00374")
    assert verdict_phrase(worse).endswith("0.00368")


def with_test_predictions(chosen: dict[str, str]) -> Report:
    """Two classes; ``sharp`` methods make one error with much confidence, ``constant`` ones see nothing."""
    store, manifest = make_world()
    manifest["tasks"] = [task for task in manifest["tasks"] if task["name"] == "screening"]
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == "screening"]
    manifest["failures"] = []
    for run in manifest["runs"]:
        rows = store.predictions[run["id"], "test"]
        sides = np.where(rows.labels == 1, 2.0, -2.0)
        sides[0] *= -1
        logits = np.stack([np.zeros(len(rows)), sides if chosen.get(run["method"]) == "sharp" else sides * 0 + 3.0], -1)
        if run["method"] in chosen:
            changed = replace(rows, logits=np.broadcast_to(logits, rows.logits.shape).astype(np.float32))
            store.predictions[run["id"], "test"] = changed
    return build_report(store, manifest)


def test_no_method_leads_where_one_error_decides_the_temperature_of_an_accurate_one() -> None:
    report = with_test_predictions({"deterministic": "sharp"})
    run, (task,) = report.run, report.run.tasks
    cells = run.scores.row(task, "test", RANKED_BY)
    assert run.scores.row(task, "test", "accuracy")["deterministic"].mean > 0.99
    assert cells["deterministic"].mean == max(cell.mean for cell in cells.values())  # although it is the best method
    assert run.scores.without_temperature(task) == ["deterministic"]
    assert leader(run, task) is None
    assert "no temperature is optimal for Deterministic, because" in printed(report)
    assert "lowest calibrated NLL" not in printed(report)
    assert not any("calibrated NLL" in item.conclusion for item in advice(run))
    document = report.document()
    assert (document["standing"], document["without_temperature"]) == ([], {"screening": ["deterministic"]})
    table = next(block for block in blocks(report, "in-domain", task) if isinstance(block, Table))
    assert not {row.cells[0].place for row in table.rows} & {"best", "leading", "tied", "behind"}


def test_predictions_that_say_nothing_have_no_gain_and_are_not_called_correct() -> None:
    report = with_test_predictions({"deterministic": "constant"})
    run, (task,) = report.run, report.run.tasks
    assert run.scores.temperatures[task.key, "deterministic"].at_bound == 0
    assert not any("have no optimum" in text for text in texts(blocks(report, "in-domain", task)))
    table = next(block for block in blocks(report, "in-domain", task) if isinstance(block, Table))
    gain = next(index for index, column in enumerate(table.columns) if column.title == "Gain")
    assert {row.title: row.cells[gain].text for row in table.rows}["Deterministic"] == "–"
