"""Scores drawn against each other."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as sk

from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.style import SPARE, Style
from dubio.studies.text.scatter import (
    Panel,
    Point,
    diversity_of,
    diversity_reading,
    likelihoods_of,
    scatter_chart,
    transfer_of,
)
from tests.reporting.stored_runs import World, stored, task_of
from tests.studies.charts import HOSTILE, interpreted, rows_of


def test_diversity_is_drawn_against_accuracy_where_something_is_pooled(text_run: RunView) -> None:
    cloud = diversity_of(text_run, task_of(text_run, "digits"))
    assert cloud is not None
    titles = {m.title: m.name for m in text_run.methods}
    assert "Deterministic" not in {point.style.title for point in cloud.points}
    for point in cloud.points:
        name = titles[point.style.title]
        assert point.x.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "diversity"].mean)
        assert point.y.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "accuracy"].mean)
    expected = spearmanr([p.x.mean for p in cloud.points], [p.y.mean for p in cloud.points]).statistic
    assert f"{expected:+.2f}".replace("-", "−") in diversity_reading(cloud)


def test_detection_is_drawn_against_accuracy_only_where_shifted_data_have_labels(
    text_world: World, text_run: RunView
) -> None:
    assert transfer_of(text_run, task_of(text_run, "screening")) == []
    panels = {panel.title: panel for panel in transfer_of(text_run, task_of(text_run, "digits"))}
    assert set(panels) == {"digits → blur, worst severity", "digits → noise, worst severity"}
    point = next(p for p in panels["digits → blur, worst severity"].points if p.style.title == "Deterministic")
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-3"))
    areas = [
        sk.roc_auc_score(np.repeat([0, 1], [len(a), len(b)]), -np.concatenate([a.probs.max(1), b.probs.max(1)]))
        for a, b in zip(home, away, strict=True)
    ]
    assert point.y.values == pytest.approx(areas, abs=1e-4)  # confidences that round to one are tied in 1 − max p
    assert point.x.values == pytest.approx([(p.probs.argmax(axis=1) == p.labels).mean() for p in away])


def test_likelihoods_are_those_of_the_table(text_run: RunView) -> None:
    cloud = likelihoods_of(text_run, task_of(text_run, "screening"))
    names = {m.title: m.name for m in text_run.methods}
    for point in cloud.points:
        name = names[point.style.title]
        cells = [text_run.scores.cells["screening", "test", name, m] for m in ("nll", "calibrated_nll")]
        assert (point.x.mean, point.y.mean) == pytest.approx([cell.mean for cell in cells])


def panel(title: str, *points: tuple[tuple[float, ...], tuple[float, ...]]) -> Panel:
    styles = [Style(f"{HOSTILE}{index}", *SPARE[index], False) for index in range(len(points))]
    return Panel(title, tuple(Point(style, Cell(x), Cell(y)) for style, (x, y) in zip(styles, points, strict=True)))


def test_points_are_means_with_one_standard_deviation_and_the_diagonal_runs_through_them() -> None:
    near, far = (
        panel(HOSTILE, ((1.0, 2.0, 6.0), (2.0,)), ((5.0,), (4.0,))),
        panel("b", ((1.0,), (1.0,)), ((40.0,), (2.0,))),
    )
    chart = scatter_chart([near, far], x="NLL", y="calibrated NLL", diagonal=True)
    rows = rows_of(chart)
    first = next(row for row in rows if row.get("x_high", 0) > 5)
    spread = statistics.stdev([1, 2, 6])
    assert (first["x"], first["x_low"], first["x_high"]) == pytest.approx((3, 3 - spread, 3 + spread), rel=1e-5)
    assert (first["y"], first["y_low"], first["y_high"]) == (2, 2, 2)
    assert [(row["x"], row["y"]) for row in rows if "method" not in row] == [(3, 3), (4, 4), (1, 1), (2, 2)]
    assert not any(HOSTILE in text for text in interpreted(chart))


def test_panels_have_scales_of_their_own_or_a_common_one() -> None:
    near, far = panel("a", ((1.0, 3.0), (2.0,)), ((5.0,), (4.0,))), panel("b", ((1.0,), (1.0,)), ((40.0,), (2.0,)))
    for common, expected in ((False, [("linear", [2 - 2**0.5, 5]), ("log", [1, 40])]), (True, [("log", [1, 40])] * 2)):
        spec = scatter_chart([near, far], x="x", y="y", common=common).to_dict()
        scales = [child["layer"][-1]["encoding"]["x"]["scale"] for child in spec["concat"]]
        assert [scale.get("type", "linear") for scale in scales] == [kind for kind, _ in expected]
        for scale, (_, domain) in zip(scales, expected, strict=True):
            assert scale["domain"] == pytest.approx(domain)
    wide = panel("a", ((0.1, 0.0, 0.2, 7.7), (1.0,)), ((1.0,), (2.0,)), ((80.0,), (1.0,)))
    row = rows_of(scatter_chart([wide], x="x", y="y"))[0]
    assert (row["x"], row["x_low"]) == (2, 1)  # a logarithmic axis has no bar below zero
