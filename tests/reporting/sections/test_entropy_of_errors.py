from __future__ import annotations

import pytest

from dubio.metrics.decisions import correct
from dubio.reporting import Report
from dubio.reporting.section import Figure
from dubio.reporting.sections.entropy_of_errors import binned_entropy
from tests.reporting.helpers import blocks, of_kind
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
    assert len(figures[0].draw().axes) == 2
