"""Conclusions of the retina study, judged on constructed worlds where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.reporting.build import registered_sections
from dubio.reporting.claims import Claim
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import referral_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Cards
from dubio.studies.retina.conclusions import Conclusions, claims
from tests.reporting.helpers import run_with, task_view

HALF = {metric: referral_name(metric, 0.5) for metric in ("referral_accuracy", "referral_auc")}
LOW, HIGH = (0.80, 0.81, 0.79), (0.95, 0.96, 0.94)


def retina(name: str = "retina") -> TaskView:
    return replace(task_view(name, 2, away=(("bad-quality", "shift"),)), inputs="image", network="cnn-linear")


def claim(run: RunView, words: str) -> Claim:
    return next(each for each in claims(run, list(run.tasks)) if words in each.statement)


@pytest.mark.parametrize(("sampled", "single", "outcome"), [(HIGH, LOW, "supported"), (LOW, HIGH, "contradicted"),
                                                            (LOW, LOW, "cannot be decided")])  # fmt: skip
def test_the_numbers_decide_in_domain_and_under_shift(
    sampled: tuple[float, ...], single: tuple[float, ...], outcome: str
) -> None:
    pair = {"mc-dropout": sampled, "regularised": single}
    values = {("retina", split, name): pair for split in ("test", "bad-quality") for name in HALF.values()}
    found = claim(run_with([retina()], values), "one deterministic network")
    assert found.outcome == outcome
    texts = [item.text for item in found.evidence]
    assert len(texts) == 4
    assert sum("bad-quality" in text for text in texts) == sum("AUC, 50% retained" in text for text in texts) == 2


def test_every_method_of_one_side_is_compared_with_every_one_of_the_other() -> None:
    pair = {"mc-dropout": HIGH, "mc-dropout-ensemble": HIGH, "mean-field-vi": LOW, "regularised": LOW}
    run = run_with([retina()], {("retina", "test", HALF["referral_accuracy"]): pair})
    counts = {words: len(claim(run, words).evidence) for words in ("one deterministic", "all other", "mean-field")}
    assert counts == {"one deterministic": 3, "all other": 3, "mean-field": 2}


def test_the_section_is_on_the_page() -> None:
    assert any(isinstance(placed.section, Conclusions) for placed in registered_sections())


def test_other_tasks_have_no_part_in_it() -> None:
    pair = {"mc-dropout": HIGH, "regularised": LOW}
    run = run_with([retina("digits")], {("digits", "test", HALF["referral_accuracy"]): pair})
    assert list(Conclusions().blocks(run, None)) == []
    own = run_with([retina()], {("retina", "test", HALF["referral_accuracy"]): pair})
    assert any(isinstance(block, Cards) for block in Conclusions().blocks(own, None))
