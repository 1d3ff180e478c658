"""Comparisons over tasks: ranks, records and means, which test sets rank methods, and which methods are ranked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dubio.core.predictions import pool_members
from dubio.reporting.build import Report, build_report
from dubio.reporting.measures import GAP, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Figure
from dubio.reporting.sections.across_tasks import (
    MIN_TRAINING_SETS,
    across_table,
    comparison_over,
    groups,
    ranking_sentence,
    rankings,
    ranks_sentence,
)
from dubio.statistics.ranks import critical_difference
from tests.reporting.chart_checks import rows_of_chart
from tests.reporting.helpers import (
    blocks,
    of_kind,
    on_tasks,
    part_of_run,
    sort_values,
    with_manifest,
    with_scores,
    without_shift,
)
from tests.reporting.stored_runs import METHODS, SEEDS, FakeStore, identifier, make_world

World = tuple[FakeStore, dict[str, Any]]


def test_ranks_records_and_means_over_tasks(run: RunView) -> None:
    field = next(group for group in groups(run) if group.setting == "in-domain")
    assert [block.title for block in field.blocks] == ["digits", "screening", "reviews"]
    values = np.array([[round(run.scores.cells[t, "test", name, "accuracy"].mean, 3) for name, *_ in METHODS]
                       for t in ("digits", "screening", "reviews")])  # fmt: skip
    table = across_table(run, field, "accuracy")
    ranks = np.mean([stats.rankdata(-row) for row in values], axis=0)
    for place, (_, title, *_) in enumerate(METHODS):
        assert float(sort_values(table, "Mean rank")[title]) == pytest.approx(ranks[place], abs=1e-5)
        others = np.delete(values, place, axis=1)
        won, lost = (values[:, [place]] > others).sum(), (values[:, [place]] < others).sum()
        row = next(row for row in table.rows if row.title == title)
        assert row.cells[1].text == f"{won}/{others.size - won - lost}/{lost}"
        assert float(sort_values(table, "Mean")[title]) == pytest.approx(values[:, place].mean(), abs=5e-4)
    expected = stats.friedmanchisquare(*values.T)
    assert f"χ² = {expected.statistic:.2f}" in ranks_sentence(run, field, "accuracy")


def test_records_under_both_scoring_rules_count_each(run: RunView) -> None:
    field = next(group for group in groups(run) if group.setting == "in-domain")
    both = comparison_over(run, field, ["calibrated_nll", "brier"])
    assert both is not None
    assert {sum(record) for record in both.win_draw_loss.values()} == {3 * 5 * 2}


def _relabelled(run: RunView, **changes: Any) -> RunView:
    """The same results with tasks that say something else about themselves."""
    tasks = tuple(replace(task, **{k: v(task) for k, v in changes.items()}) for task in run.tasks)
    return on_tasks(run, tasks)


def test_tasks_of_one_corpus_are_compared_among_themselves(run: RunView) -> None:
    shared = _relabelled(run, task=lambda task: "reviews" if task.key != "digits" else "digits")
    titles = {field.title: len(field.blocks) for field in groups(shared)}
    assert titles == {"In-domain, reviews": 2}  # digits alone is nothing to compare over


def test_a_corpus_with_and_without_novelty_counts_once(run: RunView) -> None:
    same = {"task": lambda task: task.key if task.key == "reviews" else "same", "network": lambda task: "any"}
    twins = _relabelled(run, **same)
    (field,) = groups(twins)
    assert [block.title for block in field.blocks] == ["screening", "reviews"]


def test_each_network_has_its_own_comparison(run: RunView) -> None:
    twice = _relabelled(run, name=lambda task: "digits", network=lambda task: task.network)
    assert groups(twice) == ()


def test_a_method_that_lacks_a_test_set_is_shown_but_not_ranked(run: RunView) -> None:
    scores = [s for s in run.scores.scores if not (s.method == "mc-dropout" and s.task == "screening")]
    field = next(group for group in groups(run) if group.setting == "in-domain")
    fewer = with_scores(run, scores)
    table = across_table(fewer, field, "calibrated_nll")
    assert sort_values(table, "Mean rank")["MC dropout"] == ""
    assert sort_values(table, "reviews")["MC dropout"] != ""
    assert "MC dropout" in ranks_sentence(fewer, field, "calibrated_nll")


def test_a_method_that_learned_nothing_on_a_task_has_no_mean_rank() -> None:
    store, manifest = make_world()
    rng = np.random.default_rng(0)
    for own in manifest["runs"]:
        if (own["task"], own["method"]) == ("screening", "deterministic"):
            rows = store.predictions[own["id"], "test"]
            logits = rows.logits[:, rng.permutation(len(rows))]
            store.predictions[own["id"], "test"] = replace(rows, logits=logits)
    run = build_report(store, without_shift(manifest)).run
    field = next(group for group in groups(run) if group.setting == "in-domain")
    table = across_table(run, field, "accuracy")
    assert sort_values(table, "Mean rank")["Deterministic"] == ""
    assert sort_values(table, "screening")["Deterministic"] != ""
    assert "Not ranked on every test set: Deterministic" in ranks_sentence(run, field, "accuracy")
    accuracy = next(ranking for ranking in rankings(run) if ranking.name == "ranks-accuracy")
    assert "Deterministic" in accuracy.left_out


def test_domains_are_pairs_and_novel_classes_a_set_each() -> None:
    store, manifest = make_world((0,))
    manifest = part_of_run(manifest, "digits", "screening", "reviews", methods=("deterministic", "mc-dropout"))
    more = manifest["tasks"]
    for task in more:
        task["splits"] = [*task["splits"], {"name": "abroad", "kind": "shift", "fingerprint": "f", "examples": 220}]
    for run in manifest["runs"]:
        store.predictions[run["id"], "abroad"] = store.predictions[run["id"], "test"].as_ood()
    run = build_report(store, manifest).run
    found = next(group for group in groups(run) if group.setting == "cross-domain")
    assert {block.title for block in found.blocks} == {
        "digits → abroad", "screening → abroad", "reviews → elsewhere", "reviews → abroad"}  # fmt: skip
    table = across_table(run, found, detection_name("ood_auroc", "confidence"))
    assert float(sort_values(table, "digits → abroad")["Deterministic"]) == pytest.approx(0.5)
    gap = across_table(run, found, GAP)
    assert "Mean rank" not in [head.title for head in gap.columns]


def test_the_world_pools_its_members(world: World) -> None:
    store, manifest = world
    ensemble = next(run for run in manifest["runs"] if run["method"] == "deep-ensemble")
    members = [store.predictions[identifier("pred", fit, 0), "test"] for fit in ensemble["fits"]]
    assert len(SEEDS) == 2
    assert np.allclose(store.predictions[ensemble["id"], "test"].probs, pool_members(members).probs)


def test_each_metric_ranks_over_the_test_sets_it_is_meant_for(run: RunView) -> None:
    found = {ranking.name: ranking for ranking in rankings(run)}
    assert set(found) == {"ranks", "ranks-brier", "ranks-accuracy", "ranks-shift", "ranks-shift-accuracy"}
    assert len(found["ranks-brier"].comparison.datasets) == 3
    shifted = found["ranks-shift"].comparison
    assert set(shifted.datasets) == {"digits/blur-3", "digits/noise-3", "reviews/elsewhere"}
    places = [("digits", "blur-3"), ("digits", "noise-3"), ("reviews", "elsewhere")]
    table = np.array([
        [-run.scores.cells[task, split, m.name, "ood_auroc"].mean for m in run.methods]
        for task, split in places
    ])  # fmt: skip
    digits, reviews = np.split(table.argsort(axis=1).argsort(axis=1) + 1, [2])
    ranks = (digits.mean(axis=0) + reviews[0]) / 2  # both corruptions of the digits were met by the same networks
    assert [shifted.average_ranks[m.title] for m in run.methods] == pytest.approx(ranks)
    assert shifted.critical_difference == pytest.approx(critical_difference(6, 2, 0.05))
    assert "over three shifted test sets of two training sets, each counted once." in ranking_sentence(
        found["ranks-shift"]
    )


def test_test_sets_of_one_training_set_are_no_independent_evidence() -> None:
    store, manifest = make_world((0,))
    manifest = part_of_run(manifest, "digits", "screening", "reviews", methods=("deterministic", "mc-dropout"))
    for task in manifest["tasks"]:
        task["splits"] = [*task["splits"], {"name": "abroad", "kind": "shift", "fingerprint": "f", "examples": 220}]
    for own in manifest["runs"]:
        store.predictions[own["id"], "abroad"] = store.predictions[own["id"], "test"].as_ood()
    run = build_report(store, manifest).run
    pairs = next(group for group in groups(run) if group.setting == "cross-domain")
    assert len(pairs.blocks) == 4
    assert "over four test sets of three training sets, each counted once: Friedman" in ranks_sentence(
        run, pairs, "accuracy"
    )
    compared = comparison_over(run, pairs, ["accuracy"])
    assert compared is not None
    assert compared.friedman.datasets == 3
    assert sum(compared.win_draw_loss["deterministic"]) == 4  # every test set counts, as in the paper
    alone = on_tasks(run, [task for task in run.tasks if task.key == "reviews"])
    assert groups(alone) == ()
    assert rankings(alone) == ()


def test_two_training_sets_are_the_fewest_that_rank(run: RunView) -> None:
    assert MIN_TRAINING_SETS == 2
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


def test_a_method_that_lacks_a_test_set_is_left_out_and_named(run: RunView) -> None:
    scores = [s for s in run.scores.scores if (s.task, s.method) != ("screening", "mc-concrete-dropout")]
    ranking = rankings(with_scores(run, scores))[0]
    assert "MC concrete dropout" not in ranking.comparison.average_ranks
    assert ranking.left_out == ("MC concrete dropout",)
    assert "MC concrete dropout." in ranking_sentence(ranking)


def test_mean_ranks_over_tasks_come_with_what_they_resolve(report: Report) -> None:
    ranking = rankings(report.run)[0]
    compared = ranking.comparison
    assert ranking.name == "ranks"
    scores = np.array([
        [report.run.scores.cells[task.key, "test", m.name, "calibrated_nll"].mean for m in report.run.manifest.methods]
        for task in report.run.manifest.tasks
    ])  # fmt: skip
    ranks = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [compared.average_ranks[m.title] for m in report.run.manifest.methods] == pytest.approx(ranks)
    assert compared.critical_difference == pytest.approx(critical_difference(6, 3, 0.05))
    assert f"{compared.critical_difference:.2f}" in ranking_sentence(ranking)
    assert "so few test sets show only large differences" in ranking_sentence(ranking)


def test_one_task_or_two_methods_are_not_ranked(report: Report) -> None:
    manifest = report.run.manifest
    fewer = with_manifest(report, tasks=manifest.tasks[1:2])
    pair = with_manifest(report, methods=manifest.methods[:2])
    assert blocks(fewer, "across") == ()
    assert of_kind(blocks(pair, "across"), Figure) == []


def test_the_ranks_are_a_figure_across_tasks(report: Report) -> None:
    figures = {figure.name: figure for figure in of_kind(blocks(report, "across"), Figure)}
    ranks = {row["method"]: row["rank"] for row in rows_of_chart(figures["ranks"].chart(), "rank")}
    scores = np.array([
        [report.run.scores.cells[task, "test", name, "calibrated_nll"].mean for name, *_ in METHODS]
        for task in ("digits", "screening", "reviews")
    ])  # fmt: skip
    expected = np.mean([stats.rankdata(row) for row in scores], axis=0)
    assert [ranks[title] for _, title, *_ in METHODS] == pytest.approx(expected.tolist(), abs=1e-4)


def test_columns_of_a_metric_name_it(run: RunView) -> None:
    field = next(group for group in groups(run) if group.setting == "in-domain")
    metrics = {column.title: column.metric for column in across_table(run, field, "accuracy").columns}
    assert set(metrics.values()) == {"accuracy"}
