"""The page as a whole: its size on screens, its policy, without JavaScript, its accessibility, and hostile names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.referral import fit_risk_policies
from dubio.reporting.build import build_report
from dubio.reporting.manifest_view import printable
from dubio.reporting.page import render
from dubio.reporting.prediction_files import open_systems
from dubio.reporting.sheet import policy_sheet
from tests.reporting.browser.conftest import Opener
from tests.reporting.browser.reading import CHAPTER, chosen, downloaded, figure, marks
from tests.reporting.browser.worlds import HOSTILE
from tests.reporting.test_page_bounds import wide_world

WIDTH = "document.documentElement.scrollWidth"


def assert_first_screen(tab: Any) -> None:
    """The verdict, below it the whole matrix, below it the next steps: all without scrolling."""
    parts = (".verdict", ".matrix", ".commands")
    boxes = [tab.locator(f"{CHAPTER} {selector}").first.bounding_box() for selector in parts]
    assert all(above["y"] + above["height"] <= below["y"] for above, below in itertools.pairwise(boxes))
    assert boxes[-1]["y"] + boxes[-1]["height"] <= 800


def test_verdict_matrix_and_next_steps_are_on_the_first_screen_and_the_page_has_at_most_eight(tab: Any) -> None:
    assert_first_screen(tab)
    assert tab.evaluate("document.documentElement.scrollHeight") <= 8 * 800


def test_eighteen_methods_are_on_the_first_screen_with_the_next_steps(open_page: Opener, tmp_path: Path) -> None:
    path = tmp_path / "wide.html"
    path.write_text(render(build_report(*wide_world(1, 18, 120))), encoding="utf-8")
    tab = open_page(path)
    assert_first_screen(tab)
    assert tab.locator("#choose-task").is_hidden()  # there is one


def test_labels_below_wide_figures_do_not_touch(tab: Any) -> None:
    axes = figure(tab, "Scores under the chosen metric").locator(".role-axis-label")
    labels = axes.filter(has_text=re.compile(r"\d\.\d")).first
    ends = """one => [...one.querySelectorAll("text")].filter((text) => text.getAttribute("opacity") !== "0")
        .map((text) => text.getBoundingClientRect()).map(({ left, right }) => [left, right])"""
    boxes = sorted(labels.evaluate(ends))
    assert 3 <= len(boxes) <= 15
    assert all(left[1] + 3 <= right[0] for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_screen(open_page: Opener, page_file: Path, width: int) -> None:
    tab = open_page(page_file, viewport={"width": width, "height": 800})
    tab.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    assert tab.evaluate(WIDTH) <= width


def test_a_table_that_is_wider_than_its_place_scrolls(open_page: Opener, page_file: Path) -> None:
    tab = open_page(page_file, viewport={"width": 400, "height": 800})
    scroll = tab.locator(f"{CHAPTER} .scroll").filter(has=tab.locator(".matrix")).first
    scroll.evaluate("one => { one.scrollLeft = 10000; }")
    assert scroll.evaluate("one => one.scrollLeft") > 0
    assert scroll.locator("tbody th").first.bounding_box()["x"] >= 0  # the method stays in sight


def test_figures_fit_a_narrow_screen(open_page: Opener, page_file: Path) -> None:
    tab = open_page(page_file, viewport={"width": 400, "height": 800})
    tab.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    for title in ("Scores under the chosen metric", "Risk–coverage curve", "Reliability in bins", "Referral curves"):
        canvas = figure(tab, title).locator(".canvas")
        assert canvas.evaluate("one => one.scrollWidth <= one.clientWidth + 1"), title


def test_tables_and_figures_fit_the_printed_page(open_page: Opener, page_file: Path) -> None:
    tab = open_page(page_file)
    tab.evaluate("window.print = () => { window.printed = true; }")
    tab.locator("#print").click()
    tab.wait_for_function("() => window.printed", timeout=60_000)
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 720, "height": 1000})  # A4 without its margins, at 96 pixels per inch
    wide = "all => all.filter((one) => one.getBoundingClientRect().right > 722).map((one) => one.outerHTML)"
    assert tab.locator("main table:visible, main figure svg.marks").evaluate_all(wide) == []
    size = "parseFloat(getComputedStyle(ELEMENT).fontSize)"
    larger = f"one => {size.replace('ELEMENT', 'one')} > {size.replace('ELEMENT', 'one.parentElement')}"
    below_titles = tab.locator("main thead th small").evaluate_all(f"all => all.map({larger})")
    assert below_titles
    assert not any(below_titles)


def test_the_policy_allows_no_evaluated_and_no_other_script(tab: Any) -> None:
    policy = tab.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    script = re.search(r"script-src ([^;]*)", policy)
    assert script is not None
    assert all(word.startswith("'sha256-") for word in script[1].split())
    assert policy.startswith("default-src 'none'; script-src ")


def test_without_a_script_tables_and_three_figures_are_shown(open_page: Opener, page_file: Path) -> None:
    tab = open_page(page_file, java_script_enabled=False)
    assert not tab.locator("#controls").is_visible()
    assert tab.locator(".chapter[data-task] > h2:visible").count() == 2
    assert tab.locator(".matrix:visible").count() == 2
    pictures = tab.locator("noscript img, figure img")
    assert pictures.count() == 3
    for picture in pictures.all():
        assert picture.get_attribute("src").startswith("data:image/svg+xml")
        assert len(picture.get_attribute("alt")) > 20
    assert tab.locator("figure:visible").count() == 3  # no caption without its figure
    assert "Without JavaScript" in tab.locator("noscript").first.text_content()
    assert tab.locator(".fallback table:visible").count() >= 2


def test_printing_from_the_menu_leaves_no_empty_frame(tab: Any) -> None:
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    empty = tab.locator(f"{CHAPTER} figure", has=tab.locator(".canvas:empty"))
    assert empty.count() > 0
    assert tab.locator(f"{CHAPTER} .canvas:empty:visible").count() == 0
    note = "one => getComputedStyle(one, '::after').content"
    assert "the button Print of the page" in empty.first.locator("figcaption").evaluate(note)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Opener, page_file: Path, axe: str, scheme: str) -> None:
    tab = open_page(page_file, color_scheme=scheme, bypass_csp=True)  # axe is a script that the page would refuse
    figure(tab, "Scores under the chosen metric")
    tab.add_script_tag(content=axe)
    for unfolded in (False, True):
        if unfolded:
            tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        violations = tab.evaluate("axe.run({ exclude: ['figure svg'] }, { resultTypes: ['violations'] })")["violations"]
        serious = [one for one in violations if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []


def test_hostile_names_change_nothing_and_are_shown_as_text(
    open_page: Opener, hostile_file: Path, tmp_path: Path
) -> None:
    tab = open_page(hostile_file)
    task = tab.locator("#choose-task option").first.get_attribute("value")
    assert task == HOSTILE["script"]
    assert tab.locator(f"{CHAPTER} > h2").text_content() == HOSTILE["script"]
    assert tab.locator("main :is(script, iframe, object, b > b)").count() == 0
    titles = [HOSTILE[kind] for kind in ("expression", "markup", "formula")]
    assert [text.strip() for text in tab.locator(f"{CHAPTER} .matrix tbody th").all_text_contents()] == titles
    scores = figure(tab, "Scores under the chosen metric")
    assert set(marks(scores)) == set(titles)
    lines = downloaded(tab, scores.locator("button.link", has_text="CSV"), tmp_path).read_text("utf-8").splitlines()
    assert any(line.startswith('"\'=HYPERLINK') for line in lines)
    assert not any(line.startswith(("=", '"=')) for line in lines)
    chosen(tab, "split", HOSTILE["address"])
    tab.locator(f"{CHAPTER} .matrix tbody th").last.click()
    for link in tab.locator("a").all():
        assert link.get_attribute("href").startswith("#")
    chosen(tab, "task", HOSTILE["long"])
    assert tab.locator(f"{CHAPTER} > h2").text_content() == HOSTILE["long"]
    tab.evaluate("window.print = () => { window.printed = true; }")
    tab.locator("#print").click()
    tab.wait_for_function("() => window.printed", timeout=60_000)
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate(WIDTH) <= 1280
    tab.set_viewport_size({"width": 400, "height": 800})
    assert tab.evaluate(WIDTH) <= 400


def test_hostile_names_in_files_of_predictions_change_nothing(open_page: Opener, tmp_path: Path) -> None:
    """Names of systems, classes, columns, test sets, ids and the title; on the page and on the sheet of a policy."""
    names, rng = list(HOSTILE.values()), np.random.default_rng(0)
    labels = rng.integers(0, len(names), 200)

    def predictions(skill: float, **fields: Any) -> Predictions:
        logits = rng.normal(size=(1, 200, len(names))) + skill * np.eye(len(names))[labels]
        rows = np.arange(200)
        ids = np.array([f"{names[row % len(names)][:99]}{row}" for row in rows])
        columns = {name: np.array(names)[rows % 3] for name in names[:2]}
        return Predictions(logits.astype("f4"), labels, ids=ids, classes=tuple(names), columns=columns, **fields)

    chosen = [HOSTILE[kind] for kind in ("script", "expression", "formula")]  # a picture of the longest takes seconds
    systems = {name: predictions(3.0) for name in chosen}
    cal = {name: predictions(3.0, kind="cal") for name in chosen}
    shifted = {names[0]: {name: predictions(1.0) for name in chosen}}
    page = open_systems(systems, cal=cal, shift=shifted, title=names[1]).write_page(tmp_path / "page.html")
    policy = fit_risk_policies(cal, targets=(0.3, 0.4)).policies[0]
    sheet = policy_sheet(policy, systems[names[0]], by=names[:2], file=names[0]).write(tmp_path / "sheet.html")
    tab = open_page(page)
    shown = [text.strip() for text in tab.locator(f"{CHAPTER} .matrix tbody th").all_text_contents()]
    assert shown == [printable(name) for name in chosen]
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.wait_for_timeout(1000)
    for own in (tab, open_page(sheet, java_script_enabled=False)):
        assert own.locator("main :is(script, iframe, object, b > b)").count() == 0
        assert own.locator("img:not([src^='data:'])").count() == 0
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate(WIDTH) <= 1280
