"""Series with their bands, and figures that keep names as text."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from dubio.reporting.build import Report, build_report
from dubio.reporting.canvas import Series, inline_svg
from dubio.reporting.style import styles_of
from tests.reporting.helpers import figures
from tests.reporting.stored_runs import make_text_world


def test_a_band_is_one_sample_standard_deviation_of_the_defined_runs(report: Report) -> None:
    style = next(iter(styles_of(report.run.manifest.methods).values()))
    runs = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan]])
    series = Series(style, np.arange(3.0), runs)
    assert series.mean[:2] == pytest.approx([2.0, 2.0])
    assert math.isnan(series.mean[2])
    assert series.std[:2] == pytest.approx([math.sqrt(2), 0.0])


OF_REVIEWS = (
    "diversity",
    "size",
    "rates",
    "spectral",
    "epochs",
    "ridges-elsewhere",
    "correlation-elsewhere",
    "transfer",
)

MARKUP = '<script>alert("x")</script>&$\\frac{$'


def test_every_new_figure_is_drawn_and_says_what_is_seen(text_report: Report) -> None:
    new = ("diversity", "size", "rates", "spectral", "epochs", "ridges", "correlation", "transfer", "density")
    every = [figure for task in text_report.tasks for figure in figures(text_report, task).values()]
    shown = [figure for figure in every if figure.name.startswith(new)]
    shown += list(figures(text_report).values())
    assert {figure.name.partition("-")[0] for figure in shown} >= {*new, "networks", "likelihood", "ranks"}
    for figure in shown:
        assert figure.reading.endswith(".")
        assert "nan" not in figure.reading
    one_each = {figure.name.partition("-")[0]: figure for figure in shown}
    for figure in one_each.values():
        assert len(list(ElementTree.fromstring(inline_svg(figure.draw())).iter())) > 50


def test_names_stay_text_in_every_new_figure() -> None:
    store, manifest = make_text_world()
    kept = ("deterministic", "mc-concrete-dropout", "deep-ensemble", "bounded-a", "bounded-b")
    manifest["methods"] = [method for method in manifest["methods"] if method["name"] in kept]
    manifest["tasks"] = [task for task in manifest["tasks"] if task["name"] == "reviews"]
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == "reviews" and run["method"] in kept]
    for place, method in enumerate(manifest["methods"]):
        method["title"] = f"{MARKUP}{place}"
    for run in manifest["runs"]:
        run["task"], run["network"] = MARKUP, f"{run['network']}{MARKUP}"
    for task in manifest["tasks"]:
        task["name"], task["network"] = MARKUP, f"{task['network']}{MARKUP}"
    for record in store.records.values():
        if "rates" in record:
            record["rates"] = {MARKUP: 0.3}
    built = build_report(store, manifest)
    first = [figure for name, figure in figures(built, built.tasks[0]).items() if name in OF_REVIEWS]
    across = figures(built)
    assert {figure.name for figure in first} == set(OF_REVIEWS)
    assert {"likelihood", "correlation"} <= set(across)
    for figure in (*first, *across.values()):
        drawn = ElementTree.fromstring(inline_svg(figure.draw()))
        assert "script" not in {element.tag.rpartition("}")[2] for element in drawn.iter()}
        assert any("<script>" in text for text in drawn.itertext())
