from __future__ import annotations

import io
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
from dubio.reporting import terminal_table, write_figures
from dubio.reporting.build import Report
from dubio.reporting.canvas import Series
from dubio.reporting.sections.in_domain import variance_parts
from dubio.reporting.style import styles_of
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
        "equivalents",
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
