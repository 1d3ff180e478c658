"""Correlations of uncertainties with out-of-distribution examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr

from dubio.metrics.quantities import uncertainty
from dubio.reporting.run_view import RunView
from dubio.studies.text.correlations import (
    SIGNS,
    Correlations,
    correlation_chart,
    correlations_across,
    correlations_of,
    correlations_reading,
)
from tests.reporting.stored_runs import World, stored, task_of
from tests.studies.charts import HOSTILE, interpreted, rows_of


def test_correlations_are_pearsons_of_the_quantity_as_defined(text_world: World, text_run: RunView) -> None:
    heat = correlations_of(text_run, task_of(text_run, "digits"), "novel")
    assert heat is not None
    home, away = (stored(text_world, "digits", "deep-ensemble", split)[0] for split in ("test", "novel"))
    flag = np.repeat([0.0, 1.0], [len(home), len(away)])
    confidence = np.concatenate([home.probs.max(axis=1), away.probs.max(axis=1)])
    information = np.concatenate([uncertainty(p, "mutual_information") for p in (home, away)])
    row = heat.rows.index("Deep ensemble")
    at = {name: heat.values[row, column] for column, name in enumerate(heat.quantities)}
    assert at["confidence"] == pytest.approx(pearsonr(confidence, flag).statistic)
    assert at["confidence"] < 0
    assert at["mutual_information"] == pytest.approx(pearsonr(information, flag).statistic)
    assert np.isnan(heat.values[heat.rows.index("Deterministic"), heat.quantities.index("mutual_information")])
    assert "data_uncertainty" not in heat.quantities


def test_correlations_everywhere_are_means_over_methods(text_run: RunView) -> None:
    heat, single = correlations_across(text_run), correlations_of(text_run, task_of(text_run, "digits"), "novel")
    assert heat is not None
    assert single is not None
    means = np.nanmean(single.values, axis=0)
    assert heat.values[heat.rows.index("digits → novel")] == pytest.approx(means)
    assert "correlates most" in correlations_reading(heat)
    assert correlations_of(text_run, task_of(text_run, "screening"), "test") is None


def test_a_cell_has_its_number_its_sign_and_its_size() -> None:
    table = Correlations(
        (HOSTILE,), ("confidence", "total_variance", "mutual_information"), np.array([[-0.4, 0.25, np.nan]])
    )
    for field in ("method", "test_set"):
        chart = correlation_chart(table, field)
        low, high, none = rows_of(chart)
        assert low == {field: HOSTILE, "quantity": "confidence", "text": "−0.40", "sign": SIGNS[1], "size": 0.4}
        assert (high["quantity"], high["text"], high["sign"], high["size"]) == (
            "total variance",
            "+0.25",
            SIGNS[0],
            0.25,
        )
        assert none == {field: HOSTILE, "quantity": "mutual information", "text": "–"}
        assert not any(HOSTILE in text for text in interpreted(chart))
