from __future__ import annotations

import pytest

from dubio.reporting.score_table import Cell
from dubio.studies.published_numbers import Agreement, PublishedNumber, published_numbers


@pytest.mark.parametrize("study", ["text", "ensembles"])
def test_every_number_of_a_study_is_read_once(study: str) -> None:
    numbers = published_numbers(study)
    keys = {(n.task, n.network, n.classes, n.setting, n.samples, n.method, n.metric) for n in numbers}
    assert len(keys) == len(numbers) > 100


@pytest.mark.parametrize(
    ("ours", "better", "outcome"),
    [(0.51, "lower", "within"), (0.6, "lower", "worse"), (0.6, "higher", "better"), (0.4, "lower", "better")],
)
def test_agreement_is_within_the_tolerance_or_has_a_direction(ours: float, better: str, outcome: str) -> None:
    number = PublishedNumber("digits", "mlp", "swag", "error", 0.5, None)
    agreement = Agreement(number, Cell((ours,)), 0.02, better)  # type: ignore[arg-type]
    assert agreement.outcome == outcome
    assert agreement.difference == pytest.approx(ours - 0.5)
    published, difference = agreement.cells(1, factor=100.0)
    assert published.plain == "50.0"
    assert difference.text == f"{100 * (ours - 0.5):+.1f}".replace("-", "−")
    assert (difference.place == "tied") == (outcome == "within")
