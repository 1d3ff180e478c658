from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dubio.studies.ensembles.curve_figures import study_styles
from dubio.studies.ensembles.score_correlations import (
    correlation_change,
    correlations_chart,
    families_of,
    score_pairs,
)
from dubio.studies.ensembles.study import Study
from tests.studies.charts import rows_of
from tests.studies.ensembles.helpers import curve, scattered


def test_intervals_come_from_resampled_families() -> None:
    example = scattered((1.0, 0.5), families=7)
    panels = score_pairs(example.curves)[2:]
    change = correlation_change(panels[0], panels[1])
    assert change.after == pytest.approx(abs(panels[1].pearson))
    generator, afters, rises = np.random.default_rng(5), [], []
    for _ in range(1000):
        chosen = generator.integers(0, 7, 7)
        before, after = (
            abs(stats.pearsonr(*(np.concatenate([side[at] for at in chosen]) for side in (panel.x, panel.y))).statistic)
            for panel in panels
        )
        afters.append(after)
        rises.append(after - before)
    assert change.after_range == pytest.approx(np.quantile(afters, [0.025, 0.975]), abs=0.05)
    assert change.rise_range == pytest.approx(np.quantile(rises, [0.025, 0.975]), abs=0.05)
    flat = [[1.5] * 5]
    assert families_of([curve("swag", flat), curve("swag-views", flat, base="swag")]) == ["swag", "swag"]


def test_correlations_are_scipys_over_all_methods_samples_and_runs(study: Study) -> None:
    curves = study.select("method", "deep_ensemble", "network")
    pairs = score_pairs(curves)
    nll = np.concatenate([each.of("calibrated_nll").ravel() for each in curves])
    right = 1 - np.concatenate([each.of("error").ravel() for each in curves])
    assert pairs[3].pearson == pytest.approx(stats.pearsonr(nll, right).statistic)
    assert pairs[3].spearman == pytest.approx(stats.spearmanr(nll, right).statistic)
    rows = rows_of(correlations_chart(pairs, study_styles([each.method for each in study.curves], study)))
    assert [row["calibrated_nll"] for row in rows] == pytest.approx(list(nll), rel=1e-4)
    assert [row["accuracy"] for row in rows] == pytest.approx(list(right), rel=1e-4)
    (swag,) = {tuple(row["samples"] for row in rows if row["method"] == "SWAG")}
    assert swag == study.by_name["swag"].sizes * 2
