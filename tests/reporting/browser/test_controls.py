"""The page's controls: each is used, and its effect on numbers, tables and figures is compared with the scores."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dubio.reporting.build import Report
from tests.reporting.browser.conftest import Opener
from tests.reporting.browser.reading import (
    CHAPTER,
    chosen,
    downloaded,
    figure,
    marks,
    matrix,
    shown_rows,
    toggle_method,
)

SCORES = "Scores under the chosen metric"
TITLES = ["Deterministic", "MC dropout", "Deep ensemble"]


def means(report: Report, task: str, split: str, metric: str) -> dict[str, float]:
    """Title of a method → its mean score."""
    view = next(one for one in report.tasks if one.key == task)
    return {report.run.title(name): cell.mean for name, cell in report.run.scores.row(view, split, metric).items()}


def assert_scores(tab: Any, values: dict[str, float]) -> None:
    """The figure of the scores shows these means."""
    tab.wait_for_function(
        """(texts) => { const points = [...document.querySelectorAll(".chapter:not([hidden]) figure svg "
        + "[aria-roledescription=point]")].map((one) => one.getAttribute("aria-label"));
        return texts.every((text) => points.some((one) => one.includes(text))); }""",
        arg=[f"mean: {value:.6g};" for value in values.values()],
    )
    points = {method: float(own["mean"]) for method, own in marks(figure(tab, SCORES)).items()}
    assert points == pytest.approx(values, rel=1e-4)


def test_a_task_shows_its_own_chapter_and_numbers(tab: Any, calibrated_report: Report) -> None:
    assert tab.locator(f"{CHAPTER} > h2").all_text_contents() == ["digits"]
    chosen(tab, "task", "screening")
    assert tab.locator(f"{CHAPTER} > h2").all_text_contents() == ["screening"]
    assert tab.locator("#choose-split option").all_text_contents() == ["all", "test (in-domain)"]
    assert_scores(tab, means(calibrated_report, "screening", "test", "calibrated_nll"))


def test_a_test_set_hides_the_blocks_of_others(tab: Any, calibrated_report: Report) -> None:
    hidden = f"{CHAPTER} [data-split='blur']"
    assert tab.locator(hidden).count() > 0
    assert tab.locator(f"{hidden}[hidden]").count() == 0
    chosen(tab, "split", "novel")
    assert tab.locator(f"{hidden}:not([hidden])").count() == 0
    assert tab.locator(f"{CHAPTER} [data-split='novel'][hidden]").count() == 0
    chosen(tab, "split", "blur-3")
    assert tab.locator(f"{hidden}:not([hidden])").count() > 0  # the block of all severities
    assert tab.locator(f"{CHAPTER} [data-split='novel']:not([hidden])").count() == 0
    chosen(tab, "metric", "accuracy")
    assert_scores(tab, means(calibrated_report, "digits", "blur-3", "accuracy"))
    chosen(tab, "split", "")
    assert_scores(tab, means(calibrated_report, "digits", "test", "accuracy"))


def test_a_metric_changes_the_figure_and_marks_its_column_and_default_returns(
    tab: Any, calibrated_report: Report
) -> None:
    first = means(calibrated_report, "digits", "test", "calibrated_nll")
    assert_scores(tab, first)
    for metric in ("accuracy", "aurc"):
        chosen(tab, "metric", metric)
        assert_scores(tab, means(calibrated_report, "digits", "test", metric))
        heads = matrix(tab).locator("thead th.chosen")
        assert set(heads.evaluate_all("all => all.map((one) => one.dataset.metric)")) == {metric}
        assert matrix(tab).locator("tbody td.chosen").count() == len(TITLES) * heads.count()
    chosen(tab, "metric", "")
    assert_scores(tab, first)
    assert tab.locator(".chosen").count() == 0


def test_a_method_that_is_hidden_leaves_tables_and_figures(tab: Any) -> None:
    scores, curve = figure(tab, SCORES), figure(tab, "Risk–coverage curve")
    assert set(marks(scores)) == set(marks(curve, "line mark")) == set(TITLES)
    toggle_method(tab, "MC dropout")
    assert shown_rows(matrix(tab)) == ["Deterministic", "Deep ensemble"]
    assert tab.locator("main tbody tr[data-method='MC dropout']:visible").count() == 0
    tab.wait_for_function(
        "() => ![...document.querySelectorAll('figure svg [aria-roledescription=point]')]"
        ".some((one) => one.getAttribute('aria-label').includes('MC dropout;'))"
    )
    assert set(marks(scores)) == set(marks(curve, "line mark")) == {"Deterministic", "Deep ensemble"}
    assert tab.locator("#method-count").text_content() == "(2 of 3)"
    tab.locator("#show-all").click()
    assert shown_rows(matrix(tab)) == TITLES


def test_a_click_on_a_row_and_on_a_mark_highlights_a_method_everywhere(tab: Any) -> None:
    matrix(tab).locator("tbody th", has_text="Deep ensemble").click()
    rows = tab.locator("tr.highlighted").evaluate_all("all => [...new Set(all.map((one) => one.dataset.method))]")
    assert rows == ["Deep ensemble"]
    point = figure(tab, SCORES).locator('svg [aria-roledescription="point"]')
    tab.wait_for_function(
        "() => [...document.querySelectorAll('figure svg [aria-roledescription=point]')]"
        ".filter((one) => Number(one.getAttribute('opacity') || 1) < 0.5).length >= 2"
    )
    point.nth(0).click()
    assert tab.locator("tr.highlighted").first.get_attribute("data-method") == "Deterministic"
    assert "method=Deterministic" in tab.evaluate("location.hash")
    point.nth(0).click()
    assert tab.locator("tr.highlighted").count() == 0


def test_the_filter_keeps_rows_with_its_words(tab: Any) -> None:
    tab.locator("#filter").fill("DROP")
    assert shown_rows(matrix(tab)) == ["MC dropout"]
    assert tab.evaluate("location.hash") == "#filter=DROP"
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert shown_rows(matrix(tab)) == ["MC dropout"]
    tab.locator("#filter").fill("")
    assert shown_rows(matrix(tab)) == TITLES
    assert tab.evaluate("location.hash") == ""


def test_a_test_set_leaves_the_columns_of_others_out_of_tables(tab: Any) -> None:
    table = tab.locator(f"{CHAPTER} table", has=tab.locator("th[data-test='novel']")).last
    tab.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    heads = table.locator("thead th")
    assert len({one.get_attribute("data-test") for one in heads.all()}) > 2
    chosen(tab, "split", "novel")
    shown = {one.get_attribute("data-test") for one in heads.all() if one.is_visible()}
    assert shown == {None, "novel"}
    rows = table.locator("tbody tr").first.locator("td")
    assert sum(one.is_visible() for one in rows.all()) == sum(one.is_visible() for one in heads.all()) - 1
    chosen(tab, "split", "test")
    assert table.is_hidden()  # it is about other test sets alone
    chosen(tab, "split", "")
    assert all(one.is_visible() for one in heads.all())


def test_a_column_is_sorted_in_both_directions_by_its_numbers(tab: Any, calibrated_report: Report) -> None:
    for metric, better in (("accuracy", "descending"), ("aurc", "ascending")):
        values = means(calibrated_report, "digits", "test", metric)
        head = matrix(tab).locator(f"thead th[data-metric='{metric}']").first
        for direction in (better, {"descending": "ascending", "ascending": "descending"}[better]):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == direction
            assert shown_rows(matrix(tab)) == sorted(values, key=values.__getitem__, reverse=direction == "descending")


def test_the_state_is_in_the_address_and_comes_back(open_page: Opener, page_file: Path, tab: Any) -> None:
    chosen(tab, "split", "blur-3")
    chosen(tab, "metric", "accuracy")
    toggle_method(tab, "Deterministic")
    matrix(tab).locator("tbody th", has_text="Deep ensemble").click()
    fragment = tab.evaluate("location.hash")
    assert fragment == "#split=blur-3&metric=accuracy&method=Deep+ensemble&hide=Deterministic"
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert [tab.locator(f"#choose-{name}").input_value() for name in ("split", "metric", "method")] == [
        "blur-3", "accuracy", "Deep ensemble",
    ]  # fmt: skip
    assert shown_rows(matrix(tab)) == ["MC dropout", "Deep ensemble"]
    other = open_page(page_file, "#task=screening")
    assert other.locator(f"{CHAPTER} > h2").all_text_contents() == ["screening"]
    wrong = open_page(page_file, "#task=nothing&split=</script>&metric=x&method=y&hide=z")
    assert wrong.locator(f"{CHAPTER} > h2").all_text_contents() == ["digits"]
    assert shown_rows(matrix(wrong)) == TITLES


def test_a_place_on_the_page_is_no_choice(tab: Any) -> None:
    chosen(tab, "task", "screening")
    tab.evaluate("location.hash = 'main'")
    tab.wait_for_function("() => location.hash === '#main'")
    assert tab.locator(f"{CHAPTER} > h2").all_text_contents() == ["screening"]


def test_the_scheme_changes_and_says_so(tab: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    tab.locator("#scheme").click()
    assert tab.evaluate(paper) != light
    assert tab.locator("#scheme").get_attribute("aria-pressed") == "true"
    tab.locator("#scheme").click()
    assert tab.evaluate(paper) == light


def test_printing_opens_all_details_and_draws_all_figures_of_all_tasks(tab: Any) -> None:
    tab.evaluate(
        "window.print = () => { window.printed = ["
        "document.querySelectorAll('main details:not([open])').length,"
        "document.querySelectorAll('figure[data-figure]').length,"
        "[...document.querySelectorAll('figure svg.marks')].filter((one) => one.clientWidth > 200).length]; }"
    )
    tab.locator("#print").click()
    tab.wait_for_function("() => window.printed", timeout=60_000)
    closed, figures, drawn = tab.evaluate("window.printed")
    assert closed == 0
    assert drawn == figures > 20
    assert tab.locator(f"{CHAPTER} > h2").all_text_contents() == ["digits"]


def test_a_figure_is_saved_as_csv_json_and_svg(tab: Any, calibrated_report: Report, tmp_path: Path) -> None:
    one = figure(tab, SCORES)
    button = {name: one.locator("button.link", has_text=name) for name in ("CSV", "JSON", "SVG")}
    rows = json.loads(downloaded(tab, button["JSON"], tmp_path).read_text("utf-8"))
    lines = list(csv.DictReader(downloaded(tab, button["CSV"], tmp_path).read_text("utf-8").splitlines()))
    assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows] == [
        {key: value.removesuffix(".0") for key, value in line.items()} for line in lines
    ]
    for metric in ("accuracy", "calibrated_nll"):
        own = {row["method"]: row["mean"] for row in rows if (row["metric"], row["split"]) == (metric, "test")}
        assert own == pytest.approx(means(calibrated_report, "digits", "test", metric), rel=1e-5)
    assert downloaded(tab, button["SVG"], tmp_path).read_text("utf-8").startswith("<svg")


def test_hovering_shows_value_and_interval(tab: Any) -> None:
    one = figure(tab, SCORES)
    own = marks(one)["Deterministic"]
    one.locator('svg [aria-roledescription="point"]').first.hover()
    tab.locator("#vg-tooltip-element.visible").wait_for()
    text = tab.locator("#vg-tooltip-element").inner_text()
    assert "Deterministic" in text
    shown = [float(number) for number in re.findall(r"\d+\.\d+", text)]
    assert shown == pytest.approx([float(own[name]) for name in ("mean", "lower", "upper")], rel=1e-3)
