from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from dubio.core.errors import UnknownName
from dubio.core.registry import METHODS
from dubio.core.types import families_by_name
from dubio.reporting import terminal_table, write_figures
from dubio.reporting.build import Report
from dubio.reporting.canvas import Series
from dubio.reporting.manifest_view import MethodView, SplitView, TaskView, read_manifest
from dubio.reporting.score_table import Score
from dubio.reporting.sections.in_domain import variance_parts
from dubio.reporting.style import OUTLINES, PALETTE, SPARE, styles_of
from dubio.reporting.terminal import results_csv
from tests.reporting.helpers import figure_names, with_manifest
from tests.reporting.world import FakeStore

World = tuple[FakeStore, dict[str, Any]]


def test_each_task_has_the_figures_its_splits_allow(report: Report) -> None:
    slugs = {task.key: figure_names(report, task) for task in report.tasks}
    always = [
        "ranking",
        "reliability",
        "temperature",
        "variance",
        "worth",
        "diversity",
        "size",
        "referral",
        "rejection",
    ]
    home = ["roc-test", "certainty-test"]
    assert sorted(slugs["screening"]) == sorted([*always, *home, "cost"])
    studied = ["ridges-elsewhere", "correlation-elsewhere", "transfer"]
    screened = [*home, "referral-elsewhere", "roc-elsewhere", "certainty-elsewhere"]
    assert sorted(slugs["reviews"]) == sorted([*always, *screened, "density-elsewhere", *studied, "entropy", "cost"])
    studied = ["ridges-novel", "correlation-novel", "transfer"]
    away = ["density-novel", "density-blur", "density-noise", *studied, "entropy", "severity"]
    assert sorted(slugs["digits"]) == sorted([*always, *away, "cost"])


def test_domains_that_end_in_numbers_are_no_severities() -> None:
    def severities(**sizes: int) -> dict[str, list[str]]:
        named = {name.replace("_", "-"): size for name, size in sizes.items()}
        families = families_by_name(named)  # the rule for manifests that state neither family nor severity
        splits = tuple(
            SplitView(name, "shift", "0" * 64, size, *families.get(name, (None, None))) for name, size in named.items()
        )
        view = TaskView("t", "net", "text", "multiclass", ("a", "b"), splits, key="t")
        return {base: [split.name for split in found] for base, found in view.severities.items()}

    assert severities(noise_2=50, noise_1=50, blur_1=50) == {"noise": ["noise-1", "noise-2"]}
    assert severities(hospital_1=40, hospital_2=55) == {}
    assert severities(hospital_2=40, hospital_3=40) == {}


def test_figures_are_written_in_every_format_and_show_something(world: World, report: Report, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    small = _only(report, "screening")
    written = write_figures(small, tmp_path, ("png", "svg", "pdf"))
    assert len(written) == 36
    assert dict(matplotlib.rcParams) == before
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            pixels = np.asarray(Image.open(path).convert("L"))
            assert (pixels < 200).mean() > 0.002
        elif path.suffix == ".svg":
            assert len(list(ElementTree.fromstring(content).iter())) > 50
        else:
            assert content.startswith(b"%PDF")


def test_the_same_figures_come_out_the_same(world: World, report: Report, tmp_path: Path) -> None:
    small = _only(report, "screening")
    first, second = (
        [path.read_bytes() for path in write_figures(small, tmp_path / name, ("svg",))] for name in ("a", "b")
    )
    assert first == second


def test_an_unknown_format_is_refused_with_the_nearest(world: World, report: Report, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"pgn.*png"):
        write_figures(report, tmp_path, ("pgn",))


def test_a_band_is_one_sample_standard_deviation_of_the_defined_runs(report: Report) -> None:
    style = next(iter(styles_of(report.run.manifest.methods).values()))
    runs = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan]])
    series = Series(style, np.arange(3.0), runs)
    assert series.mean[:2] == pytest.approx([2.0, 2.0])
    assert math.isnan(series.mean[2])
    assert series.std[:2] == pytest.approx([math.sqrt(2), 0.0])


def test_an_ensemble_shares_its_familys_colour_and_is_drawn_otherwise(report: Report) -> None:
    found = styles_of(report.run.manifest.methods)
    single, ensemble = found["mc-dropout"], found["mc-dropout-ensemble"]
    assert (single.colour, single.marker) == (ensemble.colour, ensemble.marker)
    assert single.line["linestyle"] != ensemble.line["linestyle"]
    assert single.point["markerfacecolor"] != ensemble.point["markerfacecolor"]


def test_families_differ_in_colour_and_marker_and_have_an_outline() -> None:
    first, others = PALETTE[:9], PALETTE[9:]
    for together in ([*first, *SPARE], [*others, first[0], first[2]]):
        assert len({colour for colour, _ in together}) == len({marker for _, marker in together}) == len(together)
        assert {marker for _, marker in together} <= set(OUTLINES)


def test_a_method_has_the_colour_of_its_registration_and_a_variant_a_spare_one() -> None:
    methods = [
        MethodView("a", family="a", facts={"colour": 4}),
        MethodView("a-ensemble", family="a", members=5, facts={"colour": 4}),
        MethodView("a-small", method="a", family="a-small", facts={"colour": 4}),
        MethodView("b", family="b"),
    ]
    colours = {name: style.colour for name, style in styles_of(methods).items()}
    assert colours == {"a": PALETTE[4][0], "a-ensemble": PALETTE[4][0], "a-small": SPARE[0][0], "b": SPARE[1][0]}


def test_methods_of_version_0_1_have_the_colours_of_their_registration() -> None:
    """Their manifests state no facts; a method that dubio never had takes a spare colour."""
    path = Path(__file__).parents[1] / "store" / "data" / "store-0.1" / "store" / "runs" / "quick-a4f56c7a.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["methods"].append({"name": "mine"})
    view = read_manifest(manifest)
    assert all(not method.get("facts") for method in manifest["methods"])
    facts = {entry.name: entry.facts for entry in METHODS.entries()}
    styles = styles_of(view.methods)
    for method in view.methods[:-1]:
        assert styles[method.name].colour == PALETTE[facts[method.name]["colour"]][0]
    assert styles["mine"].colour == SPARE[0][0]
    assert view.network_methods == {"deterministic"}


def test_the_long_table_reads_back(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(report.scores))))
    assert len(rows) == len(report.scores)
    for row, score in zip(rows, report.scores, strict=True):
        assert (row["task"], row["metric"]) == (score.task, score.metric)
        assert float(row["value"]) == score.value
    undefined = [Score("t", "s", "id", "m", 0, None, "auc", float("nan"))]
    assert results_csv(undefined).splitlines()[1] == "t,s,id,m,0,,auc,"


def test_the_terminal_shows_every_method_with_its_spread(world: World, report: Report) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal_table(report))
    text = console.export_text()
    for method in world[1]["methods"]:
        assert text.count(method["title"]) >= 3
    cell = report.run.scores.cells["digits", "test", "deterministic", "accuracy"]
    assert f"{cell.mean:.3f} ± {cell.std:.3f}" in text
    assert "[bold]" not in text


def _only(report: Report, task: str) -> Report:
    tasks = tuple(view for view in report.run.manifest.tasks if view.key == task)
    return with_manifest(report, tasks=tasks)


def test_parts_of_the_variance_are_those_of_the_predictions(world: World) -> None:
    store, manifest = world
    for run in manifest["runs"]:
        predictions = store.predictions[run["id"], "test"]
        parts = variance_parts(predictions)
        assert parts.sum() == pytest.approx((predictions.probs * (1 - predictions.probs)).mean(), abs=1e-6)
        assert (parts[2] > 0) == ("ensemble" in run["method"])
