from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.statistics.ensemble_equivalent import SCORES
from dubio.studies.ensembles.conclusions import saturation
from dubio.studies.ensembles.curve_figures import study_styles
from dubio.studies.ensembles.equivalents import (
    CAPTION,
    averaged_equivalents,
    averaged_figures,
    equivalent_figures,
    slope_of,
)
from dubio.studies.ensembles.study import SCORED, Study
from tests.studies.charts import rows_of
from tests.studies.ensembles.helpers import curve, equivalent_to, growing
from tests.studies.ensembles.helpers import study as study_of


def explicit_equivalent(growth: list[float], value: float) -> float:
    """The least l ≥ 1 at which the curve, linear in between, is down at the value, but for rounding."""
    value += 1e-9
    if growth[0] <= value:
        return 1.0
    for size in range(1, len(growth)):
        if growth[size] <= value:
            return size + (growth[size - 1] - value) / (growth[size - 1] - growth[size])
    return math.inf


@pytest.mark.parametrize("score", SCORED)
def test_equivalents_are_explicit_interpolation(study: Study, score: Any) -> None:
    mean, std = study.growth.mean[score], study.growth.std[score]
    for each in study.curves:
        for value, bounds in zip(each.mean(SCORED[score]), study.equivalents(each, score), strict=True):
            for bound, growth in ((bounds.lower, mean - std), (bounds.central, mean), (bounds.upper, mean + std)):
                assert bound.size == pytest.approx(explicit_equivalent(list(growth), value), rel=1e-5)


def test_averaging_over_networks_is_the_mean_and_beyond_where_one_is(study: Study) -> None:
    snapshots = study.by_name["snapshot-ensemble"]
    (alone,) = averaged_equivalents([study, study], [snapshots], "nll")
    assert np.allclose(alone.central, [bounds.central.size for bounds in study.equivalents(snapshots)])
    strong, weak = (
        replace(study, growth=replace(study.growth, mean={k: v + by for k, v in study.growth.mean.items()}))
        for by in (-10, 10)
    )
    (mixed,) = averaged_equivalents([study, strong], [snapshots], "nll")
    assert np.allclose(mixed.central, (alone.central + 1) / 2)
    (beyond,) = averaged_equivalents([study, weak], [snapshots], "nll")
    assert np.isinf(beyond.central).all()
    styles = study_styles([each.method for each in study.curves], study)
    assert list(averaged_figures([study], styles)) == []
    (figure,) = averaged_figures([study, study], styles)
    central = {row["x"]: row["y"] for row in rows_of(figure.chart()) if row.get("method") == "Snapshot ensemble"
               and row["panel"] == "by calibrated NLL"}  # fmt: skip
    assert list(central.values()) == pytest.approx(list(alone.central), rel=1e-4)


def test_the_figure_shows_where_orders_share_their_networks() -> None:
    beyond = [curve(name, [equivalent_to(1.0, 2.0, 4.0, 8.0, 30.0)]) for name in ("swag", "fge")]
    example = study_of(*beyond)
    (figure,) = equivalent_figures(example, study_styles([each.method for each in beyond], example))
    rows = rows_of(figure.chart())
    (grey,) = [row for row in rows if "method" not in row]
    assert (grey["low"], grey["high"], grey["text"]) == (10, 20, "all 20 networks")
    lines = [row for row in rows if row.get("panel") == "by error" and row["x"] < 10]
    assert [row["y"] for row in lines] == pytest.approx([1, 2, 4, 8] * 2)
    arrows = [row for row in rows if row.get("panel") == "by error" and "arrow" in row]
    assert [(row["x"], row["y"], row["value"]) for row in arrows] == [(10, None, "beyond the longest ensemble")] * 2
    assert len({row["arrow"] for row in arrows}) == 2  # side by side, none hidden
    assert all(row["top"] > 20 for row in arrows)
    assert "bands are too narrow" in CAPTION
    assert set(SCORED) == set(SCORES)


def test_slopes_are_networks_per_sample_and_the_bounds_of_the_curve_must_agree() -> None:
    runs = [(4.0, 4.6), (4.2, 4.7), (3.9, 4.5)]
    slope = slope_of(study_of(growing(*runs)), growing(*runs))
    assert slope is not None
    assert slope.values is not None
    assert slope.values[1] == pytest.approx([(last - before) / 5 for before, last in runs])
    sloping = study_of(growing((4.0, 4.3), (4.01, 4.31), (4.02, 4.32)))
    assert [each.outcome for each in saturation(sloping)] == ["supports"]  # 0.06 networks per sample
    growth = sloping.growth
    rising = {**growth.std, "nll": np.where(np.arange(1, 21) < 5, 0.0, 0.04)}  # a kink just where the method is
    kinked = replace(sloping, growth=replace(growth, std=rising))
    assert [each.outcome for each in saturation(kinked)] == ["undecided"]
