"""Claims of the text study, judged on constructed worlds where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dubio.reporting.claims import Claim, Evidence
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.run_view import RunView
from dubio.studies.text.claims import claims
from dubio.studies.text.published import Paper
from tests.reporting.helpers import AUROC, run_with, task_view


def claim(run: RunView, words: str) -> Claim:
    return next(each for each in claims(run) if words in each.statement)


@pytest.mark.parametrize(
    ("single", "pooled", "outcome"),
    [
        ((0.50, 0.51, 0.49), (0.30, 0.31, 0.29), "supported"),
        ((0.30, 0.31, 0.29), (0.50, 0.51, 0.49), "contradicted"),
        ((0.30, 0.51, 0.39), (0.40, 0.31, 0.49), "cannot be decided"),
    ],
)
def test_claims_follow_the_numbers(single: tuple[float, ...], pooled: tuple[float, ...], outcome: str) -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": single, "deep-ensemble": pooled}}
    found = claim(run_with([task_view("a", 2)], values), "a deep ensemble scores better")
    assert found.outcome == outcome
    assert "Deep ensemble" in found.evidence[0].text


def test_claims_may_be_mixed_and_need_data() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {
        ("a", "test", RANKED_BY): {"deterministic": high, "deep-ensemble": low},
        ("b", "test", RANKED_BY): {"deterministic": low, "deep-ensemble": high},
    }
    results = run_with([task_view("a", 2), task_view("b", 3)], values)
    found = claim(results, "a deep ensemble scores better")
    assert found.outcome == "mixed"
    assert found.tally == "two comparisons: 1 for, 1 against, 0 undecided"
    assert claim(results, "BERT").outcome == "no data"
    tested = claims(results)
    assert len([each for each in tested if each.evidence]) == 1
    assert any("BERT" in each.statement for each in tested if not each.evidence)


def test_a_claim_that_most_test_sets_leave_open_is_supported_in_part() -> None:
    one, open_ = Evidence("supports", ""), Evidence("undecided", "")
    assert Claim("", "", (one, open_)).outcome == "supported"
    assert Claim("", "", (one, open_, open_)).outcome == "supported in part"
    assert Claim("", "", (Evidence("contradicts", ""), open_, open_)).outcome == "contradicted in part"
    assert Claim("", "", (one, *[open_] * 3)).outcome == "supported in part"
    assert Claim("", "", (one, *[open_] * 4)).outcome == "mostly undecided"


def test_textcnn_against_bert_on_the_same_novel_classes() -> None:
    one = task_view("a", 2, away=(("novel", "ood"),))
    two = replace(one, key="a (bert)", network="bert")
    values = {
        ("a", "novel", AUROC): {"deterministic": (0.80, 0.81, 0.79)},
        ("a (bert)", "novel", AUROC): {"deterministic": (0.70, 0.71, 0.69)},
    }
    found = claim(run_with([one, two], values), "BERT")
    assert found.outcome == "supported"
    assert "(TextCNN) against" in found.evidence[0].text
    of_few = run_with([one, two], values)  # ten examples, on which a tenth of AUROC is chance
    for name, mean in (("a", 0.80), ("a (bert)", 0.70)):
        rows = np.where(np.arange(10) < 5, mean + 0.2, mean - 0.2)
        of_few.scores._rows[name, "novel", "deterministic", AUROC] = (rows, 1)
    assert claim(of_few, "BERT").outcome == "cannot be decided"
    clinc = {("clinc" if name == "a" else "clinc (bert)", *key): own for (name, *key), own in values.items()}
    tasks = [replace(one, name="clinc", key="clinc"), replace(two, name="clinc", key="clinc (bert)")]
    assert claim(run_with(tasks, clinc), "BERT").outcome == "no data"


def test_a_claim_is_corrected_for_its_own_comparisons_alone() -> None:
    """Sixteen methods beside the pair take nothing from it; twelve test sets of one claim take their share."""
    pair = {"deterministic": (0.50, 0.52, 0.48), "deep-ensemble": (0.38, 0.40, 0.36)}
    others = {f"other-{i}": (0.47, 0.49, 0.45) for i in range(16)}
    one = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): {**pair, **others}})
    assert one.scores.pairs(one.tasks[0], "test", RANKED_BY).verdict(*pair).place == "tied"
    assert claim(one, "a deep ensemble scores better").outcome == "supported"
    pair["deep-ensemble"] = (0.30, 0.32, 0.28)
    for number, outcome in ((4, "supported"), (12, "cannot be decided")):
        names = [f"task-{i}" for i in range(number)]
        many = run_with([task_view(n, 2) for n in names], {(n, "test", RANKED_BY): pair for n in names})
        (test,) = many.scores.pairs(many.tasks[0], "test", RANKED_BY).tests
        assert (number * test.p < 0.05) == (outcome == "supported")
        assert claim(many, "a deep ensemble scores better").outcome == outcome


def test_the_brier_score_is_evidence_too() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {("a", "test", "brier"): {"deterministic": high, "deep-ensemble": low}}
    (evidence,) = claim(run_with([task_view("a", 2)], values), "a deep ensemble scores better").evidence
    assert evidence.outcome == "supports"
    assert "Brier" in evidence.text


def test_domains_near_a_coin() -> None:
    away = task_view("a", 2, away=(("there", "shift"),))
    near = run_with(
        [away], {("a", "there", AUROC): {"deterministic": (0.51, 0.52, 0.51), "mc-dropout": (0.5, 0.51, 0.5)}}
    )
    far = run_with(
        [away], {("a", "there", AUROC): {"deterministic": (0.61, 0.62, 0.61), "mc-dropout": (0.5, 0.51, 0.5)}}
    )
    assert claim(near, "chance").outcome == "supported"
    assert claim(far, "chance").outcome == "contradicted"
    once = run_with([away], {("a", "there", AUROC): {"deterministic": (0.61,), "mc-dropout": (0.7, 0.71)}})
    assert claim(once, "chance").outcome == "cannot be decided"


def test_other_inputs_are_not_measured_by_a_study_of_text() -> None:
    results = run_with(
        [replace(task_view("a", 2), inputs="image")], {("a", "test", RANKED_BY): {"deterministic": (0.5, 0.6)}}
    )
    assert not list(Paper().blocks(results, None))
