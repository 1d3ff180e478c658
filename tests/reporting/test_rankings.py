"""Which test sets rank methods, which methods are ranked, and what is said of those left out."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.reporting.run_view import RunView
from dubio.reporting.sections.across_tasks import MIN_TEST_SETS, ranking_sentence, rankings
from tests.reporting.helpers import on_tasks, with_scores


def test_each_metric_ranks_over_the_test_sets_it_is_meant_for(run: RunView) -> None:
    found = {ranking.name: ranking for ranking in rankings(run)}
    assert set(found) == {"ranks", "ranks-brier", "ranks-accuracy", "ranks-shift", "ranks-shift-accuracy"}
    assert len(found["ranks-brier"].comparison.datasets) == 3
    shifted = found["ranks-shift"].comparison
    assert set(shifted.datasets) == {"digits/blur-5", "digits/noise-5", "reviews/elsewhere"}
    places = [("digits", "blur-5"), ("digits", "noise-5"), ("reviews", "elsewhere")]
    table = np.array([
        [-run.scores.cells[task, split, m.name, "ood_auroc"].mean for m in run.methods]
        for task, split in places
    ])  # fmt: skip
    ranks = table.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [shifted.average_ranks[m.title] for m in run.methods] == pytest.approx(ranks)
    assert "over three shifted test sets" in ranking_sentence(found["ranks-shift"])


def test_two_test_sets_are_the_fewest_that_rank(run: RunView) -> None:
    assert MIN_TEST_SETS == 2
    assert "ranks" in {ranking.name for ranking in rankings(on_tasks(run, run.tasks[:2]))}
    assert rankings(on_tasks(run, run.tasks[1:2])) == ()


def test_a_task_counts_once_and_test_sets_of_few_methods_do_not(text_run: RunView) -> None:
    ranking = rankings(text_run)[0]
    assert set(ranking.comparison.datasets) == {"digits/test", "screening/test", "reviews (textcnn)/test"}
    assert ranking.left_out == ("bounded-a", "bounded-b", "bounded-c")
    scores = [s for s in text_run.scores.scores if s.task != "screening" or s.method == "deterministic"]
    ranking = rankings(with_scores(text_run, scores))[0]
    assert ranking.sparse == ("screening/test",)
    assert "screening/test" in ranking_sentence(ranking)


def test_a_method_that_lacks_a_test_set_is_left_out_and_said_so(run: RunView) -> None:
    scores = [s for s in run.scores.scores if (s.task, s.method) != ("screening", "mc-concrete-dropout")]
    ranking = rankings(with_scores(run, scores))[0]
    assert "MC concrete dropout" not in ranking.comparison.average_ranks
    assert ranking.left_out == ("MC concrete dropout",)
    assert "MC concrete dropout." in ranking_sentence(ranking)
