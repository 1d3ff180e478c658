from __future__ import annotations

import base64
import copy
import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from dubio.core.errors import UnknownName, UserError
from dubio.core.files import write_file
from dubio.reporting import report_texts, write_figures, write_texts
from dubio.reporting.build import Report, build_report
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.page import SCHEMA, read_page_data, render, unpacked_text
from dubio.reporting.sections.model_card import card_rows
from tests.reporting.helpers import EVIL, Outline, part_of_run, with_manifest
from tests.reporting.stored_runs import World, make_world


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return render(report)


@pytest.fixture(scope="module")
def evil_page() -> str:
    """A world in which everything a user can name is an attempt to break out."""
    store, manifest = make_world((0,))
    manifest = copy.deepcopy(manifest)
    task = manifest["tasks"][0]
    kept = ("deterministic", "deep-ensemble")
    manifest["tasks"] = [task]
    manifest["methods"] = [method for method in manifest["methods"] if method["name"] in kept]
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == task["name"] and run["method"] in kept]
    for run in manifest["runs"]:
        run["task"] = EVIL if run["task"] == task["name"] else run["task"]
        run["method"] = EVIL if run["method"] == "deterministic" else run["method"]
    task["name"] = EVIL
    task["classes"] = [EVIL, "b\x00\x1b", "c", "d"]
    task["notes"] = [EVIL]
    task["card"] = dict.fromkeys(("source", "revision", "licence", "citation", "description"), EVIL)
    task["arguments"] = {EVIL: EVIL}
    manifest["methods"][0] |= {"name": EVIL, "title": EVIL, "family": EVIL}
    manifest["failures"][0] |= {"error": EVIL, "task": EVIL, "method": EVIL, "what": EVIL}
    manifest["name"] = EVIL
    manifest["benchmark"] = {"name": EVIL}
    split = next(split for split in task["splits"] if split["name"] == "novel")
    split["name"] = EVIL
    for pred, name in list(store.predictions):
        if name == "novel":
            store.predictions[pred, EVIL] = store.predictions[pred, name]
    for record in store.records.values():
        record["environment"] = {EVIL: EVIL}
    return render(build_report(store, manifest))


def test_the_page_parses_and_every_tag_is_closed(page: str) -> None:
    outline = Outline(page)
    assert outline.tags.count("html") == 1
    assert outline.tags.count("figure") >= 12
    assert outline.tags.count("table") >= 8


def scripts_of(page: str) -> list[str]:
    """The scripts that a browser would run."""
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def data_of(page: str) -> dict[str, Any]:
    return read_page_data(page)


def test_the_policy_names_the_very_scripts_and_nothing_else(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(part.strip().split(" ", 1) for part in policy.replace("&#39;", "'").split(";"))
    texts = [unpacked_text(page, "library"), *(text.encode() for text in scripts_of(page))]
    digests = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts]
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert directives["img-src"] == "data:"
    assert "connect-src" not in directives


def test_nothing_is_fetched_from_anywhere(page: str) -> None:
    for tag, name, value in Outline(page).attributes:
        if name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert value.startswith(("#", "data:")), (tag, name, value)
        assert "url(" not in value or "url(#" in value
    assert "@import" not in page
    assert re.search(r"<(link|iframe|object|embed|base)\b", page) is None


def test_anchors_point_to_something_unique(page: str) -> None:
    attributes = Outline(page).attributes
    ids = [value for _, name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value.removeprefix("#") for _, name, value in attributes if name == "href"} <= set(ids)


def test_the_document_has_a_version_and_the_data_of_every_figure(page: str, report: Report) -> None:
    document = data_of(page)
    assert document["schema"] == SCHEMA
    assert [task["key"] for task in document["tasks"]] == [task.key for task in report.tasks]
    assert [method["title"] for method in document["methods"]] == [method.title for method in report.run.methods]
    keys = [value for _, name, value in Outline(page).attributes if name == "data-figure"]
    assert sorted(keys) == sorted(document["figures"])
    for figure in document["figures"].values():
        text = json.dumps(document["specs"][figure["spec"]])
        for name, table in figure["data"].items():
            assert f'"{name}"' in text
            lengths = {len(column["rows"] if isinstance(column, dict) else column) for column in table.values()}
            assert len(lengths) <= 1
    assert sorted(value for _, name, value in Outline(page).attributes if name == "data-widget") == sorted(
        document["widgets"]
    )


def test_equal_charts_of_other_data_are_one_specification(page: str) -> None:
    document = data_of(page)
    curves = [figure["spec"] for figure in document["figures"].values() if figure["name"] == "scores"]
    assert len(curves) == len(document["tasks"]) > len(set(curves)) == 1


def test_the_page_is_small(page: str) -> None:
    assert len(page.encode()) < 2_000_000


def test_a_task_chooses_among_its_own_test_sets_and_metrics(page: str) -> None:
    digits, screening, _ = data_of(page)["tasks"]
    assert {split["kind"] for split in digits["splits"]} == {"id", "shift", "ood"}
    assert screening["splits"] == [{"name": "test", "kind": "id", "examples": 200}]
    assert {"accuracy", "calibrated_nll", "aurc"} <= {metric["name"] for metric in screening["metrics"]}


def test_whatever_a_user_names_stays_text(evil_page: str, page: str) -> None:
    clean, hostile = Outline(page), Outline(evil_page)
    assert hostile.tags.count("script") == clean.tags.count("script") == 3
    images = [value for tag, name, value in hostile.attributes if (tag, name) == ("img", "src")]
    assert {image[:14] for image in images} == {"data:image/svg"}
    assert not [name for _, name, _ in hostile.attributes if name.startswith("on")]
    assert '<script>alert("x")</script>' not in evil_page
    assert scripts_of(evil_page) == scripts_of(page)
    assert any('<script>alert("x")' in words for words in hostile.words)
    assert data_of(evil_page)["tasks"][0]["key"] == EVIL
    assert "\x00" not in evil_page
    assert "\x1b" not in evil_page


def test_every_method_task_and_failure_is_there(page: str, world: World) -> None:
    text = " ".join(Outline(page).words)
    for method in world[1]["methods"]:
        assert method["title"] in text
    assert "the loss is not a number after epoch 3" in text
    assert "3 exact duplicates" in text
    assert "A. Author (1998)" in text
    assert "Random referral (Deterministic)" in text
    assert "torch 2.6" in text


def test_what_tuning_chose_is_said(world: World) -> None:
    _, manifest = world
    task = manifest["tasks"][0]
    trials = [{"arguments": {"lr": lr}, "fit": "0" * 64, "val_nll": nll} for lr, nll in ((0.1, 0.5), (0.01, 0.25))]
    tuned = {"task": task["name"], "network": task["network"], "method": "plain", "chosen": {"lr": 0.01}}
    seen = read_manifest({**manifest, "tuning": [{**tuned, "trials": trials}]})
    said = ("tuned", "plain: lr = 0.01, the lowest validation NLL (0.25) of 2 trials")
    assert said in list(card_rows(seen.tasks[0]))
    assert said not in list(card_rows(seen.tasks[1]))


def test_what_must_not_rank_is_not_marked_and_says_why(page: str, report: Report) -> None:
    assert set(report.run.scores.not_ranked) >= {"ece", "nll"}
    text = " ".join(Outline(page).words)
    assert "ECE does not rank." in text
    task = report.run.manifest.tasks[0]
    assert report.run.scores.verdicts(task, "test", "ece") == {}
    assert report.run.scores.verdicts(task, "test", "calibrated_nll")


def test_a_task_without_a_whole_run_says_so() -> None:
    store, manifest = make_world((0,))
    runs = [run for run in manifest["runs"] if run["task"] == "screening" and run["method"] == "deterministic"]
    manifest = {**manifest, "tasks": manifest["tasks"][1:], "runs": runs}
    text = " ".join(Outline(render(build_report(store, manifest))).words)
    assert "No run of this task was completed" in text


def test_one_seed_and_one_method_make_a_page() -> None:
    store, manifest = make_world((0,))
    runs = [run for run in manifest["runs"] if run["method"] == "deterministic" and run["member"] == 0]
    manifest = {**manifest, "tasks": manifest["tasks"][1:2], "methods": manifest["methods"][:1], "failures": []}
    manifest["runs"] = [run for run in runs if run["task"] == "screening"]
    text = " ".join(Outline(render(build_report(store, manifest))).words)
    assert "it is the only method" in text
    assert "(1 run)" in text
    assert "every run of the plan is in this report" in text


def test_the_report_is_written_whole_beside_its_table(world: World, report: Report, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    small = with_manifest(report, tasks=report.run.manifest.tasks[1:2])
    path = write_texts(report_texts(small), out)
    assert path == out / "report.html"
    assert sorted(item.name for item in out.iterdir()) == ["report.html", "results.csv"]
    first = path.read_bytes()
    assert write_texts(report_texts(small), out).read_bytes() == first
    assert first.rstrip().endswith(b"</html>")


def test_a_report_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"report\.html': the disk is full"):
        write_file(tmp_path / "report.html", b"page")
    assert list(tmp_path.iterdir()) == []


def test_cells_carry_the_number_that_the_script_sorts_by(page: str, report: Report) -> None:
    cell = report.run.scores.cells["digits", "test", "deterministic", "accuracy"]
    assert f'title="{cell.mean:.6g}, {cell.n} runs' in page
    cells = re.findall(r"<td[^>]*>", page)
    assert all("data-sort=" in own or re.search(r'title="(?:-?\d|inf)', own) for own in cells)


def test_figures_are_written_in_every_format_with_their_data(report: Report, tmp_path: Path) -> None:
    sections = ("two-class-referral", "calibration", "in-domain", "cost", "densities")
    written = write_figures(_only(report, "screening", *sections), tmp_path, ("png", "svg", "pdf"))
    stems = {path.stem for path in written}
    assert len(written) == 5 * len(stems) >= 25
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            pixels = np.asarray(Image.open(path).convert("L"))
            assert (pixels < 200).mean() > 0.002
        elif path.suffix == ".svg":
            assert len(list(ElementTree.fromstring(content).iter())) > 20
        elif path.suffix == ".pdf":
            assert content.startswith(b"%PDF")
        elif path.suffix == ".json":
            rows = [row for rows in json.loads(content)["datasets"].values() for row in rows]
            assert len(path.with_suffix(".csv").read_text("utf-8").splitlines()) == len(rows) + 1 > 1


def test_the_same_figures_come_out_the_same(world: World, report: Report, tmp_path: Path) -> None:
    small = _only(report, "screening", "two-class-referral", "calibration")
    first, second = (
        [path.read_bytes() for path in write_figures(small, tmp_path / name, ("svg",))] for name in ("a", "b")
    )
    assert first == second


def test_an_unknown_format_is_refused_with_the_nearest(world: World, report: Report, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"pgn.*png"):
        write_figures(report, tmp_path, ("pgn",))


def _only(report: Report, task: str, *sections: str) -> Report:
    tasks = tuple(view for view in report.run.manifest.tasks if view.key == task)
    chosen = with_manifest(report, tasks=tasks)
    return Report(chosen.run, tuple(placed for placed in chosen.sections if not sections or placed.name in sections))


def test_a_page_of_own_data_names_what_ran_and_compares_with_no_paper(world: World) -> None:
    """It had the description of another benchmark, conclusions of a paper, and tasks of which nothing was made."""
    store, manifest = world
    manifest = part_of_run(manifest, "digits", "screening", "reviews", methods=("deterministic", "deep-ensemble"))
    shared, lost = manifest["tasks"][2], manifest["tasks"][0]["name"]
    assert shared["inputs"] == "text"
    own = {**shared, "arguments": {"data": "my.csv", "text": "body"}}
    runs = [run for run in manifest["runs"] if run["task"] != lost]
    changed = {**manifest, "runs": runs, "tasks": [*manifest["tasks"][:2], own]}
    pages = [render(build_report(store, {**changed, "tasks": [*changed["tasks"][:2], task]})) for task in (shared, own)]
    assert "Agreement with the paper" in pages[0]
    assert "Agreement with the paper" not in pages[1]
    assert "quick benchmark" not in pages[1]
    title = pages[1].split("<h1>")[1].split("</h1>")[0]
    assert shared["name"] in title
    assert lost not in title
