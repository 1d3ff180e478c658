"""The referral cockpit: every number equals the operating points in Python, and a saved policy is the fitted one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dubio.cli.refer import app
from dubio.formats.predictions import write_predictions
from dubio.referral import fit_risk_policies
from dubio.referral.operating_curve import OperatingPoints, operating_points
from dubio.referral.risk_grid import PolicyGrid
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.sections.cockpit import POINTS
from tests.cli.helpers import invoke
from tests.reporting.browser.conftest import Opener
from tests.reporting.browser.reading import CHAPTER, chosen, downloaded, figure, toggle_method
from tests.reporting.browser.worlds import METHODS
from tests.reporting.stored_runs import World, stored

FIRST = "deep-ensemble"
"""The best by calibrated NLL, with which the cockpit begins."""


@pytest.fixture(scope="module")
def grid(calibrated: World) -> PolicyGrid:
    return fit_risk_policies({name: stored(calibrated, "digits", name, "cal")[0] for name in METHODS})


def points_of(world: World, grid: PolicyGrid, name: str = FIRST) -> OperatingPoints:
    thresholds = [stop.policy.threshold for stop in grid.systems[name] if stop.policy is not None]
    return operating_points(stored(world, "digits", name, "test")[0], stops=thresholds, most=POINTS)


class Cockpit:
    """The cockpit of the shown task, by what its reader sees."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab
        self.element = tab.locator(f"{CHAPTER} .widget.cockpit")
        self.slider = self.element.locator("input[type=range]")
        self.status = self.element.locator(".status")
        self.stops = self.element.locator(".stops button")

    def readings(self, column: int = 0) -> dict[str, str]:
        rows = self.element.locator(".readings tbody tr")
        names = rows.locator("th").all_text_contents()
        return dict(zip(names, rows.locator(f"td:nth-child({column + 2})").all_text_contents(), strict=True))

    def counts(self, column: int = 0) -> tuple[int, int, int]:
        """Rows referred, errors and rows retained."""
        own = self.readings(column)
        referred = re.search(r"\(([\d,]+) of", own["Referred"])
        errors = re.search(r"\((\d+) of ([\d,]+)\)", own["Error of the retained"])
        assert referred is not None
        assert errors is not None
        rows, wrong, retained = (int(text.replace(",", "")) for text in (referred[1], *errors.groups()))
        return rows, wrong, retained

    def choose(self, label: str, option: str) -> None:
        self.element.locator("label", has_text=re.compile(f"^{label}")).locator("select").select_option(label=option)


@pytest.fixture
def cockpit(tab: Any) -> Cockpit:
    return Cockpit(tab)


def test_it_starts_near_80_per_cent_without_a_guarantee(cockpit: Cockpit, calibrated: World, grid: PolicyGrid) -> None:
    points = points_of(calibrated, grid)
    nearest = min(points.points, key=lambda point: abs(point.retained - 0.8 * points.rows))
    assert cockpit.counts() == (points.rows - nearest.retained, nearest.errors, nearest.retained)
    assert cockpit.status.text_content().startswith("No guarantee.")


def test_arrow_keys_move_through_the_operating_points(cockpit: Cockpit, calibrated: World, grid: PolicyGrid) -> None:
    points = points_of(calibrated, grid)
    index = int(cockpit.slider.input_value())
    cockpit.slider.focus()
    for key, step in (("ArrowLeft", -1), ("ArrowLeft", -1), ("ArrowRight", 1), ("End", 0), ("ArrowLeft", -1)):
        index = len(points.points) - 1 if key == "End" else index + step
        cockpit.tab.keyboard.press(key)
        point = points.points[index]
        assert cockpit.counts() == (points.rows - point.retained, point.errors, point.retained)
        assert point.risk is not None
        shown = [float(text) / 100 for text in re.findall(r"([\d.]+) %", cockpit.readings()["Error of the retained"])]
        assert shown == pytest.approx([point.risk.value, *point.risk.interval], abs=6e-4)
        referred = f"{100 * (1 - point.retained / points.rows):.1f} % referred"
        assert cockpit.slider.get_attribute("aria-valuetext") == referred


def test_every_row_can_be_referred(cockpit: Cockpit) -> None:
    cockpit.slider.focus()
    cockpit.tab.keyboard.press("Home")
    assert cockpit.readings()["Retained"] == "every row is referred"
    assert cockpit.readings()["Referred"].startswith("100.0 %")
    part = cockpit.tab.locator(f"{CHAPTER} details.part").filter(has=cockpit.tab.locator(".widget.examples"))
    part.locator("summary").first.click()
    assert set(part.locator(".examples-retained, .examples-referred").all_text_contents()) == {"referred"}


def test_a_stop_is_guaranteed_and_its_policy_is_the_fitted_one(
    cockpit: Cockpit, calibrated: World, grid: PolicyGrid, tmp_path: Path
) -> None:
    points, files = points_of(calibrated, grid), grid.files()
    stops = grid.systems[FIRST]
    assert [not button.is_disabled() for button in cockpit.stops.all()] == [stop.guaranteed for stop in stops]
    positions = iter(points.stops)
    for index, stop in enumerate(stops):
        if stop.policy is None:
            continue
        cockpit.stops.nth(index).click()
        point = points.points[next(positions)]
        assert cockpit.counts() == (points.rows - point.retained, point.errors, point.retained)
        assert cockpit.stops.nth(index).get_attribute("aria-pressed") == "true"
        assert cockpit.status.text_content().startswith(f"Guaranteed. {stop.policy.guarantee}")
        path = downloaded(cockpit.tab, cockpit.status.locator("button"), tmp_path)
        assert path.read_text("utf-8") == files[path.name]
        assert path.name == grid.file_names()[FIRST, stop.target]
    test, new = stored(calibrated, "digits", FIRST, "test")[0], tmp_path / "test.npz"
    write_predictions(new, test)
    retained = (1 - test.probs.max(axis=1) <= stops[-1].policy.threshold).sum()  # type: ignore[union-attr]
    assert retained == point.retained
    result = invoke(app, "apply", path, new, "-o", tmp_path / "decisions.csv")
    assert result.exit_code == 0
    decisions = (tmp_path / "decisions.csv").read_text("utf-8")
    assert decisions.count(",retain,") == retained
    cockpit.slider.focus()
    cockpit.tab.keyboard.press("ArrowLeft")
    assert cockpit.status.text_content().startswith("No guarantee.")
    assert cockpit.status.locator("button").count() == 0


def test_prices_make_the_cost_and_the_cheapest_point(cockpit: Cockpit, calibrated: World, grid: PolicyGrid) -> None:
    points = points_of(calibrated, grid)
    for mistake, referral in ((10.0, 1.0), (3.0, 2.5), (0.0, 1.0)):
        for label, value in (("Price of a mistake", mistake), ("of a referral", referral)):
            cockpit.element.get_by_label(label).fill(str(value))
        referred, errors, _ = cockpit.counts()
        cost = float(cockpit.readings()["Cost of 1,000 examples"].replace(",", ""))
        assert cost == pytest.approx(1000 * (errors * mistake + referred * referral) / points.rows, abs=0.06)
        cockpit.element.get_by_role("button", name="Cheapest point").click()
        costs = [p.errors * mistake + (points.rows - p.retained) * referral for p in points.points]
        cost = float(cockpit.readings()["Cost of 1,000 examples"].replace(",", ""))
        assert cost == pytest.approx(1000 * min(costs) / points.rows, abs=0.06)


def test_two_systems_stand_side_by_side_at_the_same_share(
    cockpit: Cockpit, calibrated: World, grid: PolicyGrid
) -> None:
    cockpit.choose("Compare with", "Deterministic")
    other = points_of(calibrated, grid, "deterministic")
    retained = cockpit.counts()[2]
    nearest = min(other.points, key=lambda point: abs(point.retained - retained))
    assert cockpit.counts(1) == (other.rows - nearest.retained, nearest.errors, nearest.retained)
    cockpit.choose("System", "MC dropout")
    own = points_of(calibrated, grid, "mc-dropout")
    nearest = min(own.points, key=lambda point: abs(point.retained - retained))
    assert cockpit.counts() == (own.rows - nearest.retained, nearest.errors, nearest.retained)


def test_a_highlighted_method_is_the_system_until_another_is_chosen(cockpit: Cockpit) -> None:
    heads = cockpit.element.locator(".readings thead th")
    cockpit.tab.locator(f"{CHAPTER} .matrix tbody th", has_text="Deterministic").click()
    assert heads.all_text_contents()[1:] == ["Deterministic"]
    cockpit.choose("System", "MC dropout")
    assert heads.all_text_contents()[1:] == ["MC dropout"]


def test_subgroups_add_up_to_all_rows(cockpit: Cockpit, calibrated: World) -> None:
    cockpit.element.locator(".subgroups summary").click()
    rows = [row.locator("td").all_text_contents() for row in cockpit.element.locator(".subgroups tbody tr").all()]
    assert sum(int(row[0]) for row in rows) == 300
    counts = [re.search(r"\((\d+) of (\d+)\)", row[2]) for row in rows]
    _, errors, retained = cockpit.counts()
    assert [sum(int(match[k]) for match in counts if match) for k in (1, 2)] == [errors, retained]


def test_subgroups_have_intervals_that_hold_at_once_at_stops_and_say_so(
    cockpit: Cockpit, calibrated: World, grid: PolicyGrid
) -> None:
    def shown() -> list[tuple[float, float]]:
        rows = cockpit.element.locator(".subgroups tbody tr")
        texts = [row.locator("td").all_text_contents()[2] for row in rows.all()]
        return [tuple(float(end) for end in re.findall(r"([\d.]+) %[,\]]", text)) for text in texts]  # type: ignore[misc]

    columns = read_manifest(calibrated[1]).tasks[0].columns["test"]
    test = stored(calibrated, "digits", FIRST, "test")[0].with_checked(columns=columns)
    (column,) = columns
    thresholds = [stop.policy.threshold for stop in grid.systems[FIRST] if stop.policy is not None]
    level = 0.05 / len(grid.policies) / len(set(test.columns[column]))
    points = operating_points(test, by=[column], stops=thresholds, stop_level=level, most=POINTS)
    groups = points.subgroups[column].values()
    cockpit.element.locator(".subgroups summary").click()
    note = cockpit.element.locator(".subgroups details p")
    assert "no guarantee" in note.text_content()
    at = int(cockpit.slider.input_value())
    expected = [[100 * end for end in share.interval] for own in groups if (share := own.risk[at])]
    assert shown() == [pytest.approx(interval, abs=0.06) for interval in expected]
    enabled = cockpit.stops.and_(cockpit.tab.locator(":enabled"))
    enabled.last.click()
    assert note.is_visible()  # what was unfolded stays so
    assert "hold all at once with 95 % confidence" in note.text_content()
    assert "not about a subgroup" in note.text_content()
    expected = [[100 * end for end in share.interval] for own in groups if (share := own.at_stops[-1])]
    assert shown() == [pytest.approx(interval, abs=0.06) for interval in expected]


def test_a_binary_task_has_sensitivity_and_specificity(cockpit: Cockpit, calibrated: World) -> None:
    chosen(cockpit.tab, "task", "screening")
    other = Cockpit(cockpit.tab)
    test = stored(calibrated, "screening", FIRST, "test")[0]
    order = test.probs.max(axis=1).argsort()[::-1][: other.counts()[2]]
    answers, labels = test.probs[order].argmax(axis=1), test.labels[order]
    values = {
        name: (answers[labels == side] == side).mean() for name, side in (("Sensitivity", 1), ("Specificity", 0))
    }
    shown = {name.split()[0]: float(text.split()[0]) / 100 for name, text in other.readings().items() if name[0] == "S"}
    assert shown == pytest.approx(values, abs=6e-4)


def test_examples_at_the_border_are_the_nearest_on_either_side_of_the_threshold(
    cockpit: Cockpit, calibrated: World
) -> None:
    test = stored(calibrated, "digits", FIRST, "test")[0]
    confidence, answers = test.probs.max(axis=1), test.probs.argmax(axis=1)
    least = sorted(confidence)[-cockpit.counts()[2]]
    lines = cockpit.element.locator(".border li")
    assert [text[:8] for text in lines.all_text_contents()] == ["retained"] * 2 + ["referred"] * 2
    shown = []
    for text in lines.all_text_contents():
        row, said = next((n, text.removeprefix(f"{text[:8]}the digit of row {n}")) for n in range(299, -1, -1)
                         if f"row {n}{answers[n]} " in text)  # fmt: skip
        assert text.startswith("retained" if confidence[row] >= least else "referred")
        outcome = "correct" if answers[row] == test.labels[row] else f"label: {test.labels[row]}"
        assert said == f"{answers[row]} {100 * confidence[row]:.1f} %{outcome}"
        shown.append(confidence[row])
    assert shown == sorted(shown, reverse=True)
    cockpit.slider.focus()
    cockpit.tab.keyboard.press("End")
    assert [text[:8] for text in lines.all_text_contents()] == ["retained"] * 4


def test_the_curve_follows_the_slider(cockpit: Cockpit) -> None:
    curve = figure(cockpit.tab, "Risk–coverage curve")
    line = curve.locator("svg .mark-rule line").last
    before = line.get_attribute("transform")
    cockpit.slider.focus()
    cockpit.tab.keyboard.press("Home")
    moved = "([one, was]) => one.getAttribute('transform') !== was"
    cockpit.tab.wait_for_function(moved, arg=[line.element_handle(), before])
    assert curve.locator('svg [aria-roledescription="line mark"]').count() == len(METHODS)


def test_the_points_on_the_curves_are_the_operating_points_of_both_systems(cockpit: Cockpit) -> None:
    curve = figure(cockpit.tab, "Risk–coverage curve")
    cockpit.choose("Compare with", "Deterministic")
    dots = curve.locator(".mark-symbol.role-mark").last.locator("path")
    group = dots.first.locator("..").element_handle()
    cockpit.tab.wait_for_function("(group) => group.children.length === 2", arg=group)
    labels = dots.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    values = [dict(item.partition(": ")[::2] for item in text.split("; ")) for text in labels]
    points = {own["method"]: (float(own["share retained"]), float(own["error"])) for own in values}
    for column, title in enumerate(("Deep ensemble", "Deterministic")):
        _, errors, retained = cockpit.counts(column)
        assert points[title] == pytest.approx((retained / 300, errors / retained), rel=1e-4)


def test_controls_numbers_and_curve_are_in_sight_together(cockpit: Cockpit) -> None:
    curve = figure(cockpit.tab, "Risk–coverage curve")
    cockpit.choose("Compare with", "Deterministic")
    place = "one => window.scrollTo({ top: one.getBoundingClientRect().top + scrollY - 50, behavior: 'instant' })"
    cockpit.element.locator(".panel").evaluate(place)
    for part in (cockpit.slider, cockpit.stops.last, cockpit.status, cockpit.element.locator(".readings"),
                 cockpit.element.locator(".border"), curve.locator("svg.marks")):  # fmt: skip
        box = part.bounding_box()
        assert box["y"] >= 45
        assert box["y"] + box["height"] <= 800


def test_the_operating_point_is_in_the_address_and_comes_back(
    cockpit: Cockpit, open_page: Opener, page_file: Path, grid: PolicyGrid
) -> None:
    cockpit.choose("System", "MC dropout")
    cockpit.choose("Compare with", "Deep ensemble")
    cockpit.slider.focus()
    cockpit.tab.keyboard.press("ArrowLeft")
    address, readings = cockpit.tab.evaluate("location.hash"), (cockpit.readings(), cockpit.readings(1))
    other = Cockpit(open_page(page_file, address))
    assert (other.readings(), other.readings(1)) == readings
    index = next(i for i, stop in enumerate(grid.systems["mc-dropout"]) if stop.guaranteed)
    cockpit.stops.nth(index).click()
    other = Cockpit(open_page(page_file, cockpit.tab.evaluate("location.hash")))
    assert other.status.text_content() == cockpit.status.text_content()
    assert other.readings() == cockpit.readings()
    chosen(cockpit.tab, "task", "screening")
    assert cockpit.tab.evaluate("location.hash") == "#task=screening"
    broken = Cockpit(open_page(page_file, "#system=MC+dropout&referred=1e9&stop=x&compare=y"))
    assert broken.status.text_content().startswith("No guarantee.")


def test_a_hidden_method_is_no_system(cockpit: Cockpit) -> None:
    toggle_method(cockpit.tab, "Deep ensemble")
    assert cockpit.element.locator(".readings thead th").all_text_contents()[1:] != ["Deep ensemble"]
