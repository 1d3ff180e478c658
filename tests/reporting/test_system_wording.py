"""Sentences of sections, worded for systems."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import dubio.reporting
import dubio.studies
from dubio.reporting.section import Card, Cards, Headline, Text
from dubio.reporting.system_wording import PHRASES, worded_for_systems
from dubio.reporting.tables import Column, Row, Table, TableCell
from tests.reporting.helpers import run_with, task_view

TASK = task_view("t", 3)
RUN = run_with([TASK], {("t", "test", "accuracy"): {"deterministic": (0.9,), "mc-dropout": (0.8,)}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Methods differ; every method is judged.", "Systems differ; every system is judged."),
        ("12 examples; mean ± standard deviation over runs", "12 examples; in brackets 95 % intervals"),
        ("Mean over runs, with 95 % intervals that resample groups.", "With 95 % intervals that resample groups."),
        ("A useful uncertainty is low for truncated inputs.", "A useful uncertainty is low for truncated inputs."),
    ],
)
def test_sentences_about_methods_are_about_systems(text: str, expected: str) -> None:
    assert worded_for_systems(RUN)(Text(text)) == Text(expected)


def test_every_part_of_a_block_is_worded_and_keys_stay() -> None:
    word = worded_for_systems(RUN)
    table = Table(
        (Column("Gain", note="of a method", metric="method"),), (Row("x", (TableCell("1", hint="a method"),)),)
    )
    worded = word(table)
    assert (worded.first, worded.columns[0].note, worded.rows[0].cells[0].hint) == ("System", "of a system", "a system")
    assert worded.columns[0].metric == "method"
    assert word((Headline("Methods"), Cards((Card("a", ("no method",), ("one method",)),)))) == (
        Headline("Systems"), Cards((Card("a", ("no system",), ("one system",)),)),
    )  # fmt: skip


def test_names_of_users_stay_as_they_are() -> None:
    task = replace(TASK, classes=("method acting", "other", "third"))
    methods = tuple(
        replace(method, title=title) for method, title in zip(RUN.methods, ("my best method", "b"), strict=True)
    )
    named = replace(RUN, manifest=replace(RUN.manifest, tasks=(task,), methods=methods))
    text = "The method my best method beats every method on method acting."
    expected = "The system my best method beats every system on method acting."
    assert worded_for_systems(named)(Text(text)) == Text(expected)


def test_every_phrase_is_one_that_a_report_says() -> None:
    """A phrase whose sentence was reworded did nothing, and the sentence stayed one about runs."""
    folders = [Path(package.__file__).parent for package in (dubio.reporting, dubio.studies)]
    sources = [path for own in folders for path in own.rglob("*.py") if path.name != "system_wording.py"]
    # a sentence may be cut into several strings, with values between its words
    said = re.sub(r'"\s*(?:f|r)?"', "", "\n".join(path.read_text("utf-8") for path in sources))
    silent = [pattern for pattern, _ in PHRASES if not re.search(relaxed(pattern), said)]
    assert silent == []


def relaxed(pattern: str) -> str:
    """The pattern in the code of a sentence, where numbers and lists are written by f-strings."""
    return pattern.replace(r"\d+", r"(?:\d+|\{[^{}]*\})").replace(r"(each|every)", r"(each|every|\{[^{}]*\})")
