"""Charts: their link to the page's choice of methods, and files that are the same twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import UserError
from dubio.reporting.charts import (
    FORMATS,
    Series,
    chart_of,
    curve_panels,
    curves,
    data_of,
    save,
    specification,
    write_figure,
)
from dubio.reporting.style import Style
from tests.reporting.helpers import EVIL

altair = pytest.importorskip("altair", reason="needs the extra report")


def style(title: str = "Deterministic") -> Style:
    return Style(title, "#0072b2", "o", ensemble=False)


def some_curves(title: str = "Deterministic") -> Any:
    series = Series(style(title), np.linspace(0, 1, 5), np.array([[5.0, 4, 3, 2, 1], [3.0, 4, 1, 2, np.nan]]))
    return curves(series.rows(), [style(title)], x="share", y="error")


def nodes(value: Any) -> list[dict[str, Any]]:
    """Every object of a specification, at any depth."""
    if isinstance(value, list):
        return [node for item in value for node in nodes(item)]
    return [value, *(node for item in value.values() for node in nodes(item))] if isinstance(value, dict) else []


def expressions(spec: dict[str, Any]) -> list[str]:
    """Every text that Vega would parse as code."""
    keys = ("expr", "test", "filter", "calculate", "update", "signal")
    return [text for node in nodes(spec) for key in keys if isinstance(text := node.get(key), str)]


def test_a_series_has_mean_and_standard_deviation_of_the_defined_runs() -> None:
    rows = data_of(specification(some_curves()))
    values = np.array([[5.0, 3], [4, 4], [3, 1], [2, 2]])
    assert [row["y"] for row in rows] == pytest.approx([*values.mean(axis=1), 1])
    spread = [*values.std(axis=1, ddof=1), 0]
    assert [row["high"] - row["y"] for row in rows] == pytest.approx(spread, abs=1e-5)
    assert [row["y"] - row["low"] for row in rows] == pytest.approx(spread, abs=1e-5)


def test_data_with_methods_are_linked_to_the_choice_of_methods() -> None:
    spec = specification(some_curves())
    assert [param["name"] for param in spec["params"]] == ["shown", "highlighted"]
    assert spec["transform"] == [{"filter": "shown == null || indexof(shown, datum.method) >= 0"}]
    opacities = [node["opacity"] for node in nodes(spec) if isinstance(node.get("opacity"), dict)]
    fading = [opacity["condition"]["test"] for opacity in opacities]
    assert fading == ["highlighted == '' || datum.method == highlighted"] * 2  # the band and the line


def test_data_without_methods_have_no_link() -> None:
    spec = specification(chart_of([{"x": 1}]).mark_point().encode(x="x:Q"))
    assert "params" not in spec
    assert expressions(spec) == []


def test_panels_and_nested_layers_are_linked_once_for_each_data_set() -> None:
    series = Series(style(), np.arange(1.0, 4), np.array([[1.0, 2, 3]]))
    assert json.dumps(specification(curve_panels({"a": [series], "b": [series]}, x="size"))).count("indexof") == 1
    other = chart_of([{"method": "Deterministic", "x": 0.5}]).mark_rule().encode(x="x:Q")
    assert json.dumps(specification(altair.LayerChart(layer=[some_curves(), other]))).count("indexof") == 2


def test_numbers_that_are_not_finite_are_null() -> None:
    chart = chart_of([{"x": np.nan, "y": np.float64(0.123456789), "z": np.inf, "n": np.int64(3)}]).mark_point()
    assert data_of(specification(chart)) == [{"x": None, "y": 0.123457, "z": None, "n": 3}]


@given(st.text(min_size=1, max_size=40) | st.sampled_from([EVIL, "datum['x']", "'; alert(1); '", "{{7*7}}", "a.b[0]"]))
@settings(max_examples=60, deadline=None)
def test_no_name_is_ever_part_of_an_expression_or_a_field(name: str) -> None:
    plain, named = specification(some_curves()), specification(some_curves(name))
    assert expressions(named) == expressions(plain)
    fields = [[node["field"] for node in nodes(spec) if "field" in node] for spec in (plain, named)]
    assert fields[0] == fields[1]
    assert {row["method"] for row in data_of(named)} == {name}


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_gives_the_same_bytes(kind: str) -> None:
    assert save(specification(some_curves()), kind) == save(specification(some_curves()), kind)


def test_every_format_is_one() -> None:
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    assert set(starts) == set(FORMATS)
    assert all(save(specification(some_curves()), kind).startswith(start) for kind, start in starts.items())


def test_a_hostile_name_is_text_in_a_file() -> None:
    image = save(specification(some_curves(EVIL)), "svg")
    assert b"<script" not in image
    assert b"&lt;script&gt;" in image


def test_a_legend_names_every_one_of_many_methods() -> None:
    """Vega shows 30 entries of a legend and counts the others."""
    titles = [f"method {number:02d}" for number in range(60)]
    styles = [style(title) for title in titles]
    rows = [row for own in styles for row in Series(own, np.array([0.0, 1.0]), np.array([[1.0, 2.0]])).rows()]
    image = save(specification(curves(rows, styles, x="share", y="error")), "svg").decode()
    assert all(f">{title}</text>" in image for title in titles)
    assert "entries" not in image


def test_a_figure_as_wide_as_the_page_has_the_width_of_a_text_in_a_file() -> None:
    chart = some_curves().properties(width="container", height=100)
    spec = specification(chart)
    assert spec["width"] == "container"
    assert b'width="640"' in save(spec, "svg")


def test_another_ending_is_refused_by_the_name_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--figure .*curve\.gif.*\.png, \.svg, \.pdf"):
        write_figure(some_curves(), tmp_path / "curve.gif", "--figure")
    assert list(tmp_path.iterdir()) == []
    path = write_figure(some_curves(), tmp_path / "curve.SVG", "--figure")
    assert path.read_bytes() == save(specification(some_curves()), "svg")
