"""The page of a wide run: it grows with tasks × methods × (bins + examples), never with the number of test rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dubio.reporting.build import build_report
from dubio.reporting.page import SCHEMA, read_page_data, render
from tests.reporting.stored_runs import FakeStore, World, identifier, predictions

LONGEST = "a sentence of a review, with its words and its doubts, as a user would write it; " * 4
"""A text of the length of a short review."""


def wide_world(tasks: int, methods: int, rows: int) -> World:
    """One run of every method on every task, each with a calibration, a shifted and an OOD split, and texts."""
    sizes = [("cal", "cal", 400), ("test", "id", rows), ("novel", "ood", rows // 2), ("other", "shift", rows // 2)]
    names = [f"method-{index}" for index in range(methods)]
    manifest: dict[str, Any] = {
        "schema": 1, "name": "wide-0a1b2c3d", "benchmark": {"name": "wide", "seeds": [0]}, "runs": [], "failures": [],
        "methods": [{"name": name, "title": name.capitalize(), "members": 1, "samples": 5} for name in names],
        "tasks": [
            {
                "name": f"task-{index}", "arguments": {}, "inputs": "text", "target": "multiclass",
                "classes": ["a", "b", "c", "d"], "network": "textcnn", "network_arguments": {}, "card": {}, "notes": [],
                "splits": [{"name": name, "kind": kind, "fingerprint": identifier(index, name), "examples": count}
                           for name, kind, count in [("train", "train", 1000), *sizes]],
            }
            for index in range(tasks)
        ],
    }  # fmt: skip
    store = FakeStore(manifest)
    for task in manifest["tasks"]:
        for split in task["splits"][2:]:
            texts = {row: f"{row} {LONGEST}" for row in range(min(300, split["examples"]))}
            store.examples[split["fingerprint"]] = dict(texts)
        for number, name in enumerate(names):
            fit, pred = identifier("fit", task["name"], name), identifier("pred", task["name"], name)
            for split, kind, count in sizes:
                facts: Any = {"draw": (fit,), "samples": 5, "strength": 1 + number / 20}
                store.predictions[pred, split] = predictions(task["name"], split, kind, count, 4, **facts)
            store.records[fit] = {"seconds": 1.0, "parameters": 9, "bytes": 9}
            store.records[pred] = {"seconds": 0.1, "examples": 99}
            run = {"id": pred, "task": task["name"], "network": "textcnn", "method": name, "seed": 0, "member": 0}
            manifest["runs"].append({**run, "fits": [fit], "spec": {}})
    return store, manifest


@pytest.fixture(scope="module")
def page() -> str:
    return render(build_report(*wide_world(1, 2, 400)))


def test_four_times_the_test_rows_do_not_make_a_larger_page(page: str) -> None:
    larger = render(build_report(*wide_world(1, 2, 1600)))
    assert len(larger.encode()) < 1.05 * len(page.encode())


@pytest.mark.slow
def test_eighteen_methods_on_seven_tasks_have_at_most_six_megabytes() -> None:
    page = render(build_report(*wide_world(7, 18, 200)))
    assert len(page.encode()) <= 6_000_000
    assert "matrix dense" in page  # so that 18 methods are on the first screen


def test_captions_are_sentences_and_few_methods_have_room(page: str) -> None:
    assert "†: not judged" in page
    assert ".; †" not in page
    assert "matrix dense" not in page


def test_the_document_follows_its_schema(page: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "page-data.schema.json").read_text("utf-8"))
    document = read_page_data(page)
    assert schema["properties"]["schema"]["const"] == SCHEMA
    assert {widget["kind"] for widget in document["widgets"].values()} == {"cockpit", "examples"}
    validator = jsonschema.Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    for wrong in ({"schema": 2}, {"tasks": [{"key": "a"}]}, {"widgets": {"w1": {"kind": "other"}}}):
        assert not validator.is_valid({**document, **wrong})
