"""Which test sets rank methods, which methods are ranked, and what is said of those left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dubio.reporting.across import FEWEST_SETS, ranking_words, rankings_of

from dubio.reporting.results import Results


def test_each_metric_ranks_over_the_test_sets_it_is_meant_for(results: Results) -> None:
    found = {ranking.slug: ranking for ranking in rankings_of(results)}
    assert set(found) == {"ranks", "ranks-brier", "ranks-accuracy", "ranks-shift", "ranks-shift-accuracy"}
    assert len(found["ranks-brier"].comparison.datasets) == 3
    shifted = found["ranks-shift"].comparison
    assert set(shifted.datasets) == {"digits/blur-5", "digits/noise-5", "reviews/elsewhere"}
    places = [("digits", "blur-5"), ("digits", "noise-5"), ("reviews", "elsewhere")]
    table = np.array([
        [-results.cells[task, split, m.name, "ood_auroc"].mean for m in results.manifest.methods]
        for task, split in places
    ])  # fmt: skip
    ranks = table.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [shifted.average_ranks[m.title] for m in results.manifest.methods] == pytest.approx(ranks)
    assert "over three shifted test sets" in ranking_words(found["ranks-shift"])


def test_two_test_sets_are_the_fewest_that_rank(results: Results) -> None:
    assert FEWEST_SETS == 2
    manifest = results.manifest
    two = replace(results, manifest=replace(manifest, tasks=manifest.tasks[:2]))
    assert "ranks" in {ranking.slug for ranking in rankings_of(two)}
    one = replace(results, manifest=replace(manifest, tasks=manifest.tasks[1:2]))
    assert rankings_of(one) == ()


def test_a_task_counts_once_and_test_sets_of_few_methods_do_not(scored: Results) -> None:
    ranking = rankings_of(scored)[0]
    assert set(ranking.comparison.datasets) == {"digits/test", "screening/test", "reviews (textcnn)/test"}
    assert ranking.left_out == ("bounded-a", "bounded-b", "bounded-c")
    cells = {key: cell for key, cell in scored.cells.items() if key[0] != "screening" or key[2] == "deterministic"}
    fewer = replace(scored)
    fewer.__dict__["cells"] = cells
    ranking = rankings_of(fewer)[0]
    assert ranking.sparse == ("screening/test",)
    assert "screening/test" in ranking_words(ranking)


def test_a_method_that_lacks_a_test_set_is_left_out_and_said_so(results: Results) -> None:
    cells = {
        key: cell for key, cell in results.cells.items() if (key[0], key[2]) != ("screening", "mc-concrete-dropout")
    }
    fewer = replace(results)
    fewer.__dict__["cells"] = cells
    ranking = rankings_of(fewer)[0]
    assert "MC concrete dropout" not in ranking.comparison.average_ranks
    assert ranking.left_out == ("MC concrete dropout",)
    assert "Left out, for want of a value somewhere: MC concrete dropout." in ranking_words(ranking)
