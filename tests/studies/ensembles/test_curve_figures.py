"""All methods of the shipped benchmark in one study: augmented pairs, styles, and methods of one sample."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dubio.reporting.manifest_view import MethodView, read_manifest, tta_pairs
from dubio.reporting.style import styles_of
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.curve_figures import LIKELIHOODS, SCORES, curves_chart, likelihood_chart, study_styles
from dubio.studies.ensembles.equivalents import averaged_equivalents, equivalents_chart
from dubio.studies.ensembles.overview import task_figures
from dubio.studies.ensembles.study import Study
from tests.reporting.stored_runs import FakeStore
from tests.studies.charts import HOSTILE, interpreted, rows_of
from tests.studies.ensembles.helpers import curve
from tests.studies.ensembles.helpers import study as study_of


@pytest.fixture(scope="module")
def methods() -> list[MethodView]:
    """The methods of ensembles.toml as a manifest of them reads."""
    table = tomllib.loads((files("dubio.studies.ensembles") / "benchmark.toml").read_text(encoding="utf-8"))
    rows = []
    for name in table["methods"]:
        own = dict(table["variant"].get(name, {}))
        method, title = own.pop("method", name), own.pop("title", name)
        pooled = name.endswith("-ensemble") and name != "snapshot-ensemble"
        family = "deterministic" if name == "deep-ensemble" else name.removesuffix("-ensemble") if pooled else name
        rows.append({"name": name, "title": title, "members": 3 if pooled else 1, "samples": 20, "family": family,
                     "method": method, "arguments": own})  # fmt: skip
    manifest = {"schema": 1, "name": "x", "tasks": [], "methods": rows, "runs": []}
    return list(read_manifest(manifest).methods)


def test_every_augmented_method_has_its_own_pair(methods: list[MethodView]) -> None:
    augmented = [method.name for method in methods if method.views]
    assert "laplace-last-tta" in augmented
    assert tta_pairs(methods) == {name: name.removesuffix("-tta") for name in augmented}


def lab(colour: str) -> np.ndarray:
    """CIE L*a*b* of an sRGB colour under D65."""
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    mixed = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = mixed @ linear / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_ways_to_an_ensemble_differ_in_colour_and_in_marker(methods: list[MethodView]) -> None:
    styles = styles_of(methods)
    ways = {method.family: styles[method.name] for method in methods if not method.views}
    assert {"swa", "laplace-last", "csghmc"} < set(ways)
    for one, other in combinations(ways.values(), 2):
        assert one.marker != other.marker
        assert np.linalg.norm(lab(one.colour) - lab(other.colour)) > 20
    assert styles["laplace-last-tta"].colour == styles["laplace-last"].colour != styles["laplace"].colour


def test_mean_weights_are_one_sample_everywhere(study: Study, study_world: tuple[FakeStore, dict]) -> None:  # type: ignore[type-arg]
    swa = study.by_name["swa"]
    assert (swa.role, swa.sizes, swa.title) == ("method", (1,), "SWA (1 sample)")
    assert study.by_name["swa-ensemble"].sizes == (1, 2)
    assert study.by_name["swa-ensemble"].title == "Ensemble of SWA"
    styles = study_styles(read_manifest(study_world[1]).methods, study)
    panels = [(score, averaged_equivalents([study], [swa], score)) for score in ("nll", "error", "brier", "aurc")]
    rows = rows_of(equivalents_chart(panels, styles, len(study.growth)))  # type: ignore[arg-type]
    (point,) = [row for row in rows if row.get("method") == "SWA" and row["panel"] == "by error"]
    assert point["x"] == 1
    mean = swa.of("error").mean()
    assert point["y"] == pytest.approx(np.interp(-mean, -study.growth.mean["error"], np.arange(1, 11)), rel=1e-4)
    growing = {"P Fig. 3, §5", "P Fig. 3, §4.2", "P §4.2", "P §4.3", "P Tables 7 and 8, §4.3"}
    for claim in conclusions([study]):
        if claim.where in growing:
            assert not any("SWA " in each.text or "SWA," in each.text for each in claim.evidence)


def test_variants_are_no_evidence_for_statements_about_the_papers_methods(study: Study) -> None:
    """Last-layer Laplace, which P does not have and which was far behind, alone supported two of its conclusions."""
    places = {"P Fig. 3, §4.2", "P §4.2", "P Table 1, §4.3", "P §4.3", "P Tables 7 and 8, §4.3"}
    about_methods = [claim for claim in conclusions([study]) if claim.where in places]
    assert {claim.where for claim in about_methods} == places
    assert not any("last layer" in each.text for claim in about_methods for each in claim.evidence)
    everything = next(claim for claim in conclusions([study]) if claim.where == "P Fig. 3, §5")
    assert any("Laplace, last layer" in each.text for each in everything.evidence)


@pytest.mark.parametrize(("chart_of", "titles"), [(curves_chart, SCORES), (likelihood_chart, LIKELIHOODS)])
def test_lines_are_means_over_runs_with_one_standard_deviation(
    chart_of: Any, titles: dict[str, str], study: Study
) -> None:
    curves = study.select("network", "deep_ensemble", "method")
    rows = rows_of(chart_of(curves, study_styles([each.method for each in study.curves], study)))
    by_key = {(row["method"], row["panel"], row["x"]): row for row in rows if "method" in row}
    assert len(by_key) == len(titles) * sum(len(each.sizes) for each in curves)
    for each in curves:
        for measure, title in titles.items():
            for index, size in enumerate(each.sizes):
                row, values = by_key[each.method.title, title, size], each.of(measure)[:, index]
                assert row["y"] == pytest.approx(values.mean(), rel=1e-4)
                if each.augmented or (each.role == "deep_ensemble" and size > each.samples / 2):
                    assert row["low"] is row["high"] is None
                else:
                    assert (row["high"] - row["low"]) / 2 == pytest.approx(values.std(ddof=1), rel=1e-3, abs=1e-5)
    assert ([row["y"] for row in rows if "method" not in row] == [1.0]) is (titles is LIKELIHOODS)


def test_where_a_run_is_infinite_there_is_no_mean() -> None:
    runs = curve("swag", [[1.0, 2.0, np.inf, 1.0, 1.0], [3.0, 2.0, 1.0, 1.0, 1.0]])
    example = study_of(runs)
    rows = rows_of(curves_chart([runs], study_styles([runs.method], example)))
    assert [row["x"] for row in rows if row["panel"] == "Calibrated NLL"] == [1, 2, 5, 10]
    assert rows[0]["value"] == "2 ± 1.4"


def test_no_figure_interprets_the_name_of_a_method() -> None:
    named = [curve(f"{HOSTILE}{index}", [[1.9, 1.5, 1.4, 1.3 - index, 0.2]] * 2) for index in range(2)]
    pooled = curve(f"{HOSTILE} pooled", [[1.9, 1.5, 1.4, 1.3, 0.2]] * 2, role="ensemble")
    example = study_of(*named, pooled)
    figures = list(task_figures(example, study_styles([each.method for each in example.curves], example)))
    assert len(figures) == 8
    for figure in figures:
        chart = figure.chart()
        assert any(HOSTILE in row.get("method", "") for row in rows_of(chart))
        assert not any(HOSTILE in text for text in interpreted(chart))
