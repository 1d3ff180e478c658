"""Densities of uncertainties, and the parts of predictive entropy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.metrics.decomposition import decompose
from dubio.metrics.quantities import predictive_entropy, uncertainty
from dubio.reporting.build import Report
from dubio.reporting.charts import save, specification
from dubio.reporting.detectors import detection_on
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import detection_name
from dubio.reporting.section import Figure
from dubio.reporting.sections.densities import (
    CORRECT,
    EDGES,
    GRID_EDGES,
    INCORRECT,
    QUANTITIES,
    TAIL,
    Densities,
    Density,
    QuantityColumn,
    Shares,
    _own_scale,
    densities_chart,
    grid_chart,
    grouped_shares,
    shares,
)
from dubio.reporting.style import Style
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import EVIL, blocks, of_kind
from tests.reporting.stored_runs import FakeStore, stored, task_of

World = tuple[FakeStore, dict[str, Any]]


def densities(report: Report) -> Densities:
    (section,) = (placed.section for placed in report.sections if isinstance(placed.section, Densities))
    return section


def own_figures(report: Report, task: TaskView) -> dict[str, Figure]:
    return {figure.name: figure for figure in of_kind(blocks(report, "densities", task), Figure)}


def test_densities_are_histograms_of_correct_incorrect_and_ood_examples(text_world: World, text_report: Report) -> None:
    run = text_report.run
    found = densities(text_report).densities(run, task_of(run, "digits"), "novel")
    panels = {panel.style.title: panel for panel in found}
    panel, edges = panels["MC dropout"], EDGES
    home, away = (stored(text_world, "digits", "mc-dropout", split) for split in ("test", "novel"))

    def cumulative(predictions: list[Predictions], kept: list[np.ndarray]) -> np.ndarray:
        each = [
            np.histogram(-(p.probs * np.log(p.probs)).sum(axis=1)[rows] / np.log(4), edges)[0] / rows.sum()
            for p, rows in zip(predictions, kept, strict=True)
        ]
        return np.cumsum(np.mean(each, axis=0))

    right = [p.probs.argmax(axis=1) == p.labels for p in home]
    everything = [np.ones(len(p), dtype=bool) for p in away]
    assert np.cumsum(panel.groups.correct) == pytest.approx(cumulative(home, right), abs=1 / 400 + 1e-9)
    wrong = cumulative(home, [~each for each in right])
    assert np.cumsum(panel.groups.incorrect) == pytest.approx(wrong, abs=1 / 400 + 1e-9)
    assert np.cumsum(panel.groups.outside) == pytest.approx(cumulative(away, everything), abs=1 / 400 + 1e-9)


def test_the_grid_has_each_quantity_of_the_methods_that_have_it(text_world: World, text_report: Report) -> None:
    run = text_report.run
    found = {ridge.title: ridge for ridge in densities(text_report).grid(run, task_of(run, "digits"), "novel")}
    assert set(found) == {"1 − confidence", "predictive entropy", "mutual information", "model uncertainty"}
    ridge = found["mutual information"]
    groups = {style.title: groups for style, groups in ridge.methods}
    assert groups["Deterministic"] is None
    home, each = (
        [uncertainty(p, "mutual_information") for p in stored(text_world, "digits", "mc-dropout", split)]
        for split in ("test", "novel")
    )
    section = densities(text_report)
    sketches = [
        section.quantiles["digits", g, "mc-dropout", "mutual_information"] for g in (CORRECT, INCORRECT, "novel")
    ]
    end = np.quantile(np.concatenate([values for runs in sketches for values in runs]), TAIL)  # its own scale
    assert end < max(values.max() for values in (*home, *each))
    expected = np.mean([np.histogram(np.clip(v / end, 0, 1), GRID_EDGES)[0] / len(v) for v in each], axis=0)
    assert groups["MC dropout"] is not None
    assert np.cumsum(groups["MC dropout"].outside) == pytest.approx(np.cumsum(expected), abs=1 / 400 + 1e-9)


def test_shares_add_up_whatever_the_edges() -> None:
    values = np.random.default_rng(0).normal(size=(3, 200))
    assert shares(values, np.linspace(-0.1, 0.1, 5)).sum() == pytest.approx(1.0)


def test_quantiles_are_those_of_correct_and_of_incorrect_examples(text_world: World, text_report: Report) -> None:
    (home,) = stored(text_world, "screening", "deep-ensemble", "test")
    right = home.probs.argmax(axis=1) == home.labels
    doubt = 1 - home.probs.max(axis=1)
    for group, rows in ((CORRECT, right), (INCORRECT, ~right)):
        (sketch,) = densities(text_report).quantiles["screening", group, "deep-ensemble", "confidence"]
        assert np.median(sketch) == pytest.approx(np.quantile(doubt[rows], 0.5), abs=0.02)
        assert sketch.min() >= doubt[rows].min() - 1e-9
        assert sketch.max() <= doubt[rows].max() + 1e-9


def test_entropy_is_the_sum_of_its_parts(world: World, report: Report) -> None:
    store, manifest = world
    task = report.run.manifest.tasks[0]
    (section,) = (placed.section for placed in report.sections if isinstance(placed.section, Densities))
    styles, panels = section.entropy_panels(report.run, task)
    titles = [style.title for style in styles]
    assert list(panels) == ["in-domain", "novel", "blur, worst severity", "noise, worst severity"]
    row = titles.index("MC dropout ensemble")
    runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "mc-dropout-ensemble")]
    parts = [decompose(store.predictions[run, "novel"]) for run in runs]
    expected = [np.mean([p.expected_entropy for p in parts]), np.mean([p.mutual_information for p in parts])]
    assert panels["novel"][row] == pytest.approx(expected)
    total = np.mean([predictive_entropy(store.predictions[run, "novel"]) for run in runs])
    assert panels["novel"][row].sum() == pytest.approx(total, rel=1e-5)
    assert panels["in-domain"][titles.index("Deterministic"), 1] == pytest.approx(0.0, abs=1e-9)


def test_entropies_are_drawn_where_there_is_a_shifted_or_ood_split(report: Report) -> None:
    drawn = {t.key: "entropy" in own_figures(report, t) for t in report.run.manifest.tasks}
    assert drawn == {"digits": True, "screening": False, "reviews": True}


def test_readings_state_the_same_areas_as_the_tables(report: Report) -> None:
    run, task = report.run, report.run.tasks[0]
    areas = {
        name: cell.mean
        for name, cell in run.scores.row(task, "novel", detection_name("ood_auroc", "predictive_entropy")).items()
    }
    best, least = max(areas, key=areas.__getitem__), min(areas, key=areas.__getitem__)
    drawn = own_figures(report, task)
    reading = drawn["density-novel"].reading
    assert reading.startswith(f"Highest AUROC: {run.title(best)}, {areas[best]:.3f}; lowest: {run.title(least)}, ")
    every = [one for one in detection_on(run, task, ("novel",)).detectors if one.quantity in QUANTITIES]
    highest, lowest = (choose(every, key=lambda one: one.auroc) for choose in (max, min))
    grid = drawn["ridges-novel"].reading
    for one, words in ((highest, "highest by"), (lowest, "lowest by")):
        assert f"{words} {one.words} of {run.title(one.method)} ({one.auroc:.3f}" in grid


def test_the_scale_of_a_method_does_not_change_what_is_drawn() -> None:
    # Overlaps were taken on an axis that all methods share, where one of a small scale fills the first bin alone.
    values = [np.random.default_rng(k).gamma(2.0, 1.0 + k, (2, 200)) for k in range(3)]
    wide, narrow = (grouped_shares(_own_scale([scale * v for v in values]), GRID_EDGES) for scale in (1.0, 1e-4))
    for one, two in zip(wide, narrow, strict=True):
        assert one == pytest.approx(two, abs=0.006)


def test_values_below_zero_have_the_shares_of_the_same_values_moved_up() -> None:
    values = [np.random.default_rng(k).normal(k, size=(1, 101)) for k in range(3)]
    lowest = float(np.quantile(np.concatenate([own.ravel() for own in values]), 1 - TAIL))
    for own, moved in zip(_own_scale([v - 9 for v in values]), _own_scale([v - lowest for v in values]), strict=True):
        assert own == pytest.approx(moved)


def test_the_figure_of_densities_shows_the_shares_of_every_bin(world: World, report: Report) -> None:
    task = report.tasks[0]
    figure = own_figures(report, task)["density-novel"]
    rows = rows_of_chart(figure.chart(), "start", "end")
    away = stored(world, "digits", "deep-ensemble", "novel")
    entropy = [-(run.probs * np.log(run.probs)).sum(axis=1) / np.log(4) for run in away]
    expected = np.mean([np.histogram(values, EDGES)[0] / len(values) for values in entropy], axis=0)
    own = [row for row in rows if row["method"] == "Deep ensemble"]
    assert [row["start"] for row in own] == pytest.approx(EDGES[:-1])
    assert np.cumsum([row["outside"] for row in own]) == pytest.approx(np.cumsum(expected), abs=1 / 400 + 1e-4)
    assert figure.split == "novel"


def test_stacked_bars_show_the_two_parts_of_entropy(world: World, report: Report) -> None:
    rows = rows_of_chart(own_figures(report, report.tasks[0])["entropy"].chart(), "nats")
    parts = {row["part"]: row["nats"] for row in rows if (row["method"], row["panel"]) == ("MC dropout", "novel")}
    runs = [decompose(run) for run in stored(world, "digits", "mc-dropout", "novel")]
    assert parts["expected entropy (data)"] == pytest.approx(np.mean([p.expected_entropy for p in runs]), rel=1e-4)
    assert parts["mutual information (model)"] == pytest.approx(np.mean([p.mutual_information for p in runs]), rel=1e-4)


def test_curves_of_the_grid_have_their_own_height_and_a_missing_quantity_a_dash() -> None:
    share, style = np.linspace(0.0, 0.1, 24), Style(EVIL, "#4b5563", "o", False)
    grid = [
        QuantityColumn("one", ((style, Shares(share, 0 * share, 2 * share)),)),
        QuantityColumn("other", ((style, None),)),
    ]
    rows = rows_of_chart(grid_chart(grid), "quantity")
    bins = [row for row in rows if row.get("end") is not None]
    assert [row["quantity"] for row in rows if "missing" in row] == ["other"]
    for group in ("correct", "outside"):
        assert [row[group] for row in bins] == pytest.approx(np.linspace(0, 1, 24), abs=1e-5)
    assert {row["incorrect"] for row in bins} == {None}  # no such examples: nothing is drawn
    panel = densities_chart([Density(style, Shares(*(np.full(25, 0.04),) * 3), "AUROC 0.5")])
    for chart in (grid_chart(grid), panel):
        assert not [text for text in names_and_expressions(chart) if "script" in text]


def test_areas_lie_under_their_lines_and_not_on_top_of_each_other() -> None:
    groups = Shares(*(np.full(len(EDGES) - 1, share) for share in (0.3, 0.05, 0.2)))
    chart = densities_chart([Density(Style("a", "#123456", "o", False), groups, "")])
    svg = save(specification(chart), "svg").decode()

    def heights(kind: str) -> set[str]:
        marks = re.findall(rf'<g class="mark-{kind} role-mark[^"]*"[^>]*>(.*?)</g>', svg, re.DOTALL)
        paths = [path for mark in marks for path in re.findall(r' d="([^"]*)"', mark)]
        return {height for path in paths for height in re.findall(r"[ML][\d.]+,([\d.]+)", path)}

    areas, lines = heights("area"), heights("line")
    assert len(areas) == 3  # two shares and the axis
    assert len(areas - lines) == 1
