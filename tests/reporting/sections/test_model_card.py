"""The model card of a task: what is known, and what nobody stated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.reporting.build import Report
from dubio.reporting.section import Text
from dubio.reporting.sections import model_card
from dubio.reporting.sections.model_card import card_rows, caveats, split_table
from tests.reporting.stored_runs import task_of


def test_the_card_names_use_source_and_what_was_tried(report: Report) -> None:
    task = task_of(report.run, "digits")
    card = dict(card_rows(task))
    assert "one of four classes (0, 1, 2, 3) to images" in card["intended use"]
    assert card["licence"] == task.card["licence"]
    assert card["out of scope"].endswith("novel, blur and noise.")
    bare = dict(card_rows(replace(task, card={}, splits=task.of_kind("train", "id"))))
    assert bare["source"] == "not stated"
    assert bare["out of scope"].endswith("no shifted or OOD test set was tried.")


def test_many_classes_are_counted_and_several_labels_are_said(report: Report) -> None:
    task = replace(task_of(report.run, "digits"), classes=tuple(map(str, range(50))), target="multilabel")
    use = dict(card_rows(task))["intended use"]
    assert "any of 50 classes (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 40 more)" in use


def test_the_splits_have_their_use_and_size(report: Report) -> None:
    task = replace(task_of(report.run, "digits"), left_out={"empty": 7}, rows=5000)
    rows = {row.title: [cell.text for cell in row.cells] for row in split_table(task).rows}
    for split in task.splits:
        assert rows[split.name][1] == f"{split.examples:,}"
    assert rows["left out, empty"][1] == "7"
    assert rows["all rows read"][1] == "5,000"


def test_caveats_say_what_is_missing_and_what_goes_unnoticed(report: Report) -> None:
    task = task_of(report.run, "digits")
    texts = list(caveats(report.run, task))
    assert set(task.notes) <= set(texts)
    assert any("no calibration split" in text for text in texts)
    assert any("errors may be more frequent in subgroups" in text for text in texts)
    assert not any("trained once" in text for text in texts)
    once = {run.method: run for run in report.run.manifest.runs if run.task == "digits"}
    alone = replace(report.run, manifest=replace(report.run.manifest, runs=tuple(once.values())))
    assert any("trained once" in text for text in caveats(alone, task))


def test_without_caveats_there_is_no_empty_note(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_card, "caveats", lambda run, task: iter(()))
    shown = list(model_card.ModelCard().task_blocks(report.run, task_of(report.run, "digits")))
    assert not [block for block in shown if isinstance(block, Text)]
