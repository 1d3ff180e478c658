"""The examples of a report: which rows, with which answers and tags, and never one that may not be shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.core.errors import StoreError, UserError
from dubio.reporting import Report, build_report
from dubio.reporting.example_rows import EXTREMES
from dubio.reporting.measures import uncertainties
from dubio.reporting.page import render
from dubio.reporting.section import Text, Widget
from dubio.reporting.sections.examples import NOT_SHOWN, NOT_STORED
from dubio.runner.examples import thumbnail
from dubio.store import Store
from dubio.store.examples import LONGEST_TEXT
from tests.reporting.helpers import EVIL, Outline, blocks, of_kind, part_of_run
from tests.reporting.sections.helpers import World, runs_of, screening_world
from tests.reporting.stored_runs import identifier, make_world

IMAGE = thumbnail(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
HOSTILE = (f"{EVIL}</script>", "\x00\x1b\u202eabc\ud800", "x" * 10_000, "{{7*7}} datum['x']", "javascript:alert(1)", "")


def with_texts(world: World, *splits: str) -> World:
    store, manifest = world
    for split in splits:
        texts = {row: f"{split} row {row} {HOSTILE[row % len(HOSTILE)]}" for row in range(120)}
        store.examples[identifier("eyes", split)] = texts
    return store, manifest


def shown(report: Report, count: int | None = None) -> dict[str, Any]:
    """The data of the widget, as JSON says it."""
    run = report.run if count is None else replace(report.run, examples=count)
    report = Report(run, report.sections)
    (widget,) = of_kind(blocks(report, "examples", report.tasks[0]), Widget)
    assert widget.kind == "examples"
    return json.loads(json.dumps(widget.data, allow_nan=False))


def page_of(report: Report) -> str:
    """The page with the examples alone, which is drawn quickly."""
    return render(Report(report.run, tuple(placed for placed in report.sections if placed.name == "examples")))


@pytest.fixture(scope="module")
def world() -> World:
    return with_texts(screening_world(), "test", "poor")


@pytest.fixture(scope="module")
def report(world: World) -> Report:
    return build_report(*world)


def test_answers_and_doubts_are_those_of_the_first_run(world: World, report: Report) -> None:
    data = shown(report)
    assert data["methods"] == ["deterministic", "mc-dropout"]
    names = [quantity["name"] for quantity in data["quantities"]]
    for item in data["items"]:
        split = data["splits"][item["split"]]["name"]
        for index, method in enumerate(data["methods"]):
            run = runs_of(world, method, split)[0]
            row = item["row"]
            assert item["answers"][index] == run.probs[row].argmax()
            assert item["confidence"][index] == pytest.approx(run.probs[row].max(), rel=5e-4)
            assert (item["label"], item["id"]) == (run.labels[row], f"{split}-{row}")
            assert item.get("ood", False) == (split == "poor")
            for name, value in zip(names, item["uncertainty"][index], strict=True):
                assert value == pytest.approx(uncertainties(run)[name][row], rel=5e-4, abs=1e-12)


def test_tags_are_those_of_sorting_all_rows_of_the_split(world: World, report: Report) -> None:
    data = shown(report, 10_000)
    for index, split in enumerate(data["splits"]):
        for number, method in enumerate(data["methods"]):
            run = runs_of(world, method, split["name"])[0]
            certain = np.argsort(-run.probs.max(axis=1), kind="stable")
            right = run.probs.argmax(axis=1) == run.labels
            errors, hits = certain[~right[certain]], certain[right[certain]]
            few, half = len(errors) < 2 * EXTREMES, (len(errors) + 1) // 2  # few errors are shared out
            expected = {
                "confident wrong": errors[: half if few else EXTREMES],
                "confident right": hits[:EXTREMES],
                "uncertain wrong": errors[half if few else -EXTREMES :],
                "uncertain right": hits[-EXTREMES:],
                "most certain OOD": certain[:EXTREMES] if split["name"] == "poor" else [],
            }
            for tag, rows in expected.items():
                items = [item for item in data["items"] if item["split"] == index]
                assert {item["row"] for item in items if number in item["tags"].get(tag, ())} == set(map(int, rows))


def test_the_page_grows_with_the_number_of_examples_and_not_with_the_rows(world: World, report: Report) -> None:
    for count in (1, 7, 60):
        data = shown(report, count)
        assert [sum(item["split"] == k for item in data["items"]) for k in (0, 1)] == [min(count, 120), min(count, 80)]
    small = shown(report, 12)
    assert any("confident wrong" in item["tags"] for item in small["items"])
    assert {item["label"] for item in small["items"]} == {0, 1}


def test_a_row_that_the_predictions_lack_is_not_shown(world: World, report: Report) -> None:
    assert max(item["row"] for item in shown(report, 10_000)["items"] if item["split"] == 1) == 79


def test_hostile_texts_are_cut_and_stay_text(report: Report) -> None:
    data = shown(report, 10_000)
    for item in data["items"]:
        assert len(item["text"]) <= LONGEST_TEXT
        assert not {"\x00", "\x1b", "\ud800"} & set(item["text"])
    page = page_of(report)
    outline = Outline(page)
    assert outline.tags.count("script") == 2  # the data and the page's own script; this page has no figure
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    assert '<script>alert("x")</script>' not in page


def test_the_static_table_has_the_errors_of_the_best_method(world: World, report: Report) -> None:
    (widget,) = of_kind(blocks(report, "examples", report.tasks[0]), Widget)
    (table,) = widget.fallback
    best = runs_of(world, widget.data["best"], "test")[0]
    entropy = uncertainties(best)["predictive_entropy"]
    wrong = [row for row in np.argsort(entropy) if best.probs[row].argmax() != best.labels[row]]
    titles = [row.title for row in table.rows if row.cells[1].text == "confident and incorrect"]
    assert titles[:3] == [f"“test” test-{row}" for row in wrong[:3]]
    assert 9 <= len(table.rows) <= 18


def test_images_and_columns_of_any_source_are_shown() -> None:
    store, manifest = screening_world()
    table = {0: {"<b>age</b>": "7\x00"}, 1: {"age": "9" * 500}}
    store.examples |= {identifier("eyes", "test"): {3: IMAGE, 5: IMAGE}, identifier("eyes", "severe"): table}
    data = shown(build_report(store, manifest))
    images = [item["image"] for item in data["items"] if item["kind"] == "image"]
    assert len(images) == 2
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in images)
    cells = [item["cells"] for item in data["items"] if item["kind"] == "cells"]
    assert cells[0] == [["<b>age</b>", "7\ufffd"]]
    assert len(cells[1][0][1]) == 60


def test_a_store_with_old_pictures_alone_shows_them(tmp_path) -> None:
    store, manifest = screening_world()
    folder = tmp_path / "store" / "pictures" / identifier("eyes", "test")
    with Store.open(tmp_path / "store") as opened:
        folder.mkdir(parents=True)
        (folder / "4.png").write_bytes(IMAGE)
        store.read_examples = opened.read_examples  # type: ignore[method-assign]
        (item,) = shown(build_report(store, manifest))["items"]
    assert (item["row"], item["kind"]) == (4, "image")


def test_several_labels_are_lists() -> None:
    store, manifest = screening_world()
    manifest["tasks"][0]["target"] = "multilabel"
    generator = np.random.default_rng(0)
    for key, run in list(store.predictions.items()):
        labels = generator.integers(0, 2, (len(run), 2))
        logits = generator.normal(0, 2, run.logits.shape).astype(np.float32)
        store.predictions[key] = replace(run, logits=logits, labels=labels, target="multilabel")
    store.examples[identifier("eyes", "test")] = dict.fromkeys(range(120), "text")
    data = shown(build_report(store, manifest))
    run = runs_of((store, manifest), "deterministic", "test")[0]
    for item in data["items"]:
        assert item["answers"][0] == np.flatnonzero(run.probs[item["row"]] > 0.5).tolist()
        assert item["label"] == np.flatnonzero(run.labels[item["row"]]).tolist()


def test_without_examples_nothing_of_the_data_is_on_the_page(world: World, report: Report) -> None:
    store, manifest = world
    refused = build_report(store, {**manifest, "examples": False})
    hidden = Report(replace(report.run, examples=0), report.sections)
    for other, note in ((refused, NOT_STORED), (hidden, NOT_SHOWN)):
        assert blocks(other, "examples", other.tasks[0]) == (Text(note, "small"),)
        page = page_of(other)
        assert "test row" not in page
        assert note in " ".join(Outline(page).words)
    assert "test row" in page_of(report)


def test_a_run_without_stored_examples_has_no_such_heading(eyes: Report) -> None:
    assert blocks(eyes, "examples", eyes.tasks[0]) == ()
    assert "Examples" not in Outline(page_of(eyes)).words


def test_examples_that_cannot_be_read_hide_nothing_else(world: World) -> None:
    class Broken(type(world[0])):  # type: ignore[misc]
        def read_examples(self, fingerprint: str) -> dict[int, Any]:
            raise StoreError("the disk is gone.")

    store, manifest = screening_world()
    store.__class__ = Broken
    report = build_report(store, manifest)
    assert report.run.missing == []
    assert blocks(report, "examples", report.tasks[0]) == ()


def test_a_negative_number_of_examples_is_refused(report: Report) -> None:
    with pytest.raises(UserError, match=r"examples.*-1"):
        replace(report.run, examples=-1)


def test_tasks_show_their_own_examples_and_only_of_the_worst_severity() -> None:
    store, manifest = make_world((0,))
    manifest = part_of_run(manifest, "digits", "reviews", methods=("deterministic",))
    for task in manifest["tasks"]:
        for split in task["splits"]:
            store.examples[split["fingerprint"]] = {0: f"{task['name']} {split['name']}"}
    report = build_report(store, manifest)
    texts = {}
    for task in report.tasks:
        (widget,) = of_kind(blocks(report, "examples", task), Widget)
        texts[task.key] = [item["text"] for item in widget.data["items"]]
    assert texts == {
        "digits": ["digits test", "digits novel", "digits blur-3", "digits noise-3"],
        "reviews": ["reviews test", "reviews elsewhere"],
    }
