"""Advice on constructed worlds where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting.leaderboard import in_domain_leaderboard
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.sections.advice import Advice, advice, conclusion
from tests.reporting.helpers import AUROC, ENTROPY, run_with, task_view


def about(found: tuple[Advice, ...], words: str) -> Advice:
    return next(each for each in found if each.circumstance.startswith(words))


def test_a_clear_winner_is_advised_with_its_numbers() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50, 0.51, 0.49), "deep-ensemble": (0.30, 0.31, 0.29)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    assert few.conclusion.startswith("Take Deep ensemble (five trainings)")
    (sentence,) = few.evidence
    for words in (
        "a (2 classes)",
        "Deep ensemble, 0.300",
        "0.010",
        "Deterministic, 0.500",
        "difference 0.2,",
    ):
        assert words in sentence


def test_what_cannot_be_told_apart_is_said_and_the_cheaper_named() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.40, 0.60, 0.50), "deep-ensemble": (0.49, 0.59, 0.39)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    assert "No significant differences" in few.conclusion
    assert "Deterministic (one training)" in few.conclusion
    assert "not significantly different" in few.evidence[0]


def test_one_run_a_method_decides_nothing() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50,), "deep-ensemble": (0.30,)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    assert "do not decide" in few.conclusion
    assert "difference 0.2; not judged" in few.evidence[0]


def test_different_winners_give_no_general_advice() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {
        ("a", "test", RANKED_BY): {"deterministic": high, "deep-ensemble": low},
        ("b", "test", RANKED_BY): {"deterministic": low, "deep-ensemble": high},
    }
    few = about(advice(run_with([task_view("a", 2), task_view("b", 3)], values)), "Few classes")
    assert few.conclusion.startswith("No method is among the best on both test sets")
    assert len(few.evidence) == 2


def test_classes_labels_and_places_decide_the_circumstance() -> None:
    cells = {"deterministic": (0.50, 0.51), "deep-ensemble": (0.30, 0.31)}
    tasks = [
        task_view("few", 19),
        task_view("many", 20),
        task_view("labels", 5, "multilabel", (("novel", "ood"), ("there", "shift"))),
    ]
    values = {(t.key, "test", RANKED_BY): cells for t in tasks}
    found = advice(run_with(tasks, values))
    assert [each.circumstance.partition(" (")[0] for each in found] == [
        "Few classes", "Many classes", "Several labels per example", "Little memory or training time: one training",
        "Low latency: one network, one pass"]  # fmt: skip
    assert "labels (5 labels)" in about(found, "Several labels").evidence[0]
    more = {**values, ("labels", "novel", AUROC): cells, ("labels", "there", "accuracy"): cells}
    circumstances = [each.circumstance for each in advice(run_with(tasks, more))]
    assert "Novel classes may occur: detect them" in circumstances
    assert "Inputs may shift: stay accurate" in circumstances
    assert "Inputs may shift: detect it" not in circumstances


@pytest.mark.parametrize(("names", "share"), [(("one",), "the only test set"), (("one", "two"), "2 of 2 test sets")])
def test_the_uncertainty_to_look_at_is_counted_over_test_sets(names: tuple[str, ...], share: str) -> None:
    tasks = [task_view(name, 5, away=(("novel", "ood"),)) for name in names]
    values = {
        (name, "novel", metric): {"deterministic": (low, low + 0.01), "deep-ensemble": (low + 0.1, low + 0.11)}
        for name in names
        for metric, low in ((AUROC, 0.6), (ENTROPY, 0.7))
    }
    lead = about(advice(run_with(tasks, values)), "Which uncertainty").conclusion
    assert lead == f"Predictive entropy detects novel classes best on {share}."


def test_a_limit_on_trainings_says_what_it_costs() -> None:
    cells = {
        "deterministic": (0.50, 0.51, 0.49),
        "mc-dropout": (0.40, 0.41, 0.39),
        "deep-ensemble": (0.30, 0.31, 0.29),
    }
    values = {("a", "test", RANKED_BY): cells}
    found = advice(run_with([task_view("a", 2)], values))
    memory = about(found, "Little memory")
    assert memory.conclusion.startswith("Take MC dropout (one training)")
    assert "2 MB of weights, 10 s of training" in memory.evidence[0]
    assert "without that limit Deep ensemble, 0.300" in memory.evidence[0]
    answer = about(found, "Low latency")
    assert answer.conclusion == "Deterministic is the only such method here."
    assert "500 examples per second" in answer.evidence[0]


def test_a_pair_is_judged_alike_under_every_limit() -> None:
    cells = {
        "mc-concrete-dropout": (0.300, 0.420, 0.360),
        "deterministic": (0.400, 0.401, 0.402),
        "mc-dropout": (0.399, 0.452, 0.505),
        "deep-ensemble": (0.290, 0.295, 0.300),
    }
    run = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): cells})
    (only,) = run.tasks
    whole = in_domain_leaderboard(run, only, RANKED_BY)
    assert whole is not None
    for limit in (("deterministic", "mc-dropout"), ("deterministic", "mc-dropout", "mc-concrete-dropout")):
        part = in_domain_leaderboard(run, only, RANKED_BY, among=limit)
        assert part is not None
        assert set(part.cells) == set(part.verdicts) == set(limit)
        for name in limit:
            if name != part.order[0]:
                verdict = whole.verdict(name, part.order[0])
                assert verdict is not None
                assert part.verdicts[name] == verdict


def test_nothing_is_said_without_data_or_with_one_method() -> None:
    assert advice(run_with([task_view("a", 2)], {("a", "test", RANKED_BY): {"deterministic": (0.5, 0.6)}})) == ()
    assert advice(run_with([task_view("a", 2)], {("a", "test", "accuracy"): {"deterministic": (1.0,)}})) == ()


def test_an_infinite_loss_is_never_advised() -> None:
    values = {("a", "test", RANKED_BY): {
        "deterministic": (np.inf, np.inf), "mc-dropout": (0.4, 0.41), "deep-ensemble": (0.40, 0.42)}}  # fmt: skip
    run = run_with([task_view("a", 2)], values)
    found = in_domain_leaderboard(run, run.tasks[0], RANKED_BY)
    assert found is not None
    assert "deterministic" not in found.cells
    assert "Deterministic" not in conclusion(run, [found])
