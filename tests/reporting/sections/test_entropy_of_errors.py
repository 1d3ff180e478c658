from __future__ import annotations

import numpy as np
import pytest

from dubio.metrics.decisions import correct
from dubio.reporting import Report
from dubio.reporting.section import Figure
from dubio.reporting.sections.entropy_of_errors import binned_entropy, entropy_chart
from dubio.reporting.style import Style
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import EVIL, blocks, of_kind
from tests.reporting.sections.helpers import World, runs_of


def test_bins_hold_every_example_once(eyes_world: World) -> None:
    run = runs_of(eyes_world, "deterministic", "test")[0]
    right, wrong = binned_entropy(run)
    assert right[0].sum() == correct(run).sum()
    assert wrong[0].sum() == (~correct(run)).sum()
    assert right[1].sum() + wrong[1].sum() == pytest.approx(run.probs[:, 1].sum(), rel=1e-5)


def test_every_test_set_has_a_figure_and_shifted_ones_are_folded(eyes: Report) -> None:
    figures = of_kind(blocks(eyes, "entropy-of-errors", eyes.tasks[0]), Figure)
    assert {figure.name: figure.folded for figure in figures} == {
        "certainty-test": False,
        "certainty-poor": True,
        "certainty-severe": True,
    }
    assert [figure.split for figure in figures] == ["", "poor", "severe"]


def test_dots_are_mean_entropies_of_bins_of_the_probability(eyes_world: World, eyes: Report) -> None:
    figure = of_kind(blocks(eyes, "entropy-of-errors", eyes.tasks[0]), Figure)[0]
    dots = [row for row in rows_of_chart(figure.chart(), "share") if row["method"] == "Deterministic"]
    runs = runs_of(eyes_world, "deterministic", "test")
    probability = np.concatenate([run.probs[:, 1] for run in runs])
    entropy = -np.concatenate([(run.probs * np.log(run.probs)).sum(axis=1) for run in runs])
    right = np.concatenate([run.probs.argmax(axis=1) == run.labels for run in runs])
    assert sum(dot["share"] for dot in dots) == pytest.approx(1.0, abs=1e-4)
    for dot in dots:
        low = np.floor(dot["probability"] * 40) / 40
        rows = (probability >= low) & (probability < low + 1 / 40) & (right == (dot["side"] == "correct"))
        assert dot["entropy"] == pytest.approx(entropy[rows].mean(), rel=1e-3)
        assert dot["signed"] == (1 if dot["side"] == "correct" else -1) * dot["entropy"]
        assert dot["share"] == pytest.approx(rows.mean(), abs=1e-5)


def test_the_name_of_the_positive_side_is_a_title_and_never_evaluated() -> None:
    chart = entropy_chart({Style(EVIL, "#4b5563", "o", False): np.ones((2, 3, 40))}, positive=EVIL)
    assert {row["method"] for row in rows_of_chart(chart, "method")} == {EVIL}
    assert not [text for text in names_and_expressions(chart) if "script" in text]
