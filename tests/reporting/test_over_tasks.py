"""Tables over tasks, and of places away from home, against brute force on the invented world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from dubio.core.predictions import join, pool_members
from dubio.metrics.quantities import uncertainty
from dubio.reporting import build_report
from dubio.reporting.measures import GAP, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.sections.across_tasks import across_table, comparison_over, groups, ranks_sentence
from dubio.reporting.sections.cost import cost_table
from dubio.reporting.sections.in_domain import in_domain_table
from dubio.reporting.sections.shift import (
    correlation_table,
    detection_table,
    every_quantity_table,
    summary_table,
)
from dubio.reporting.tables import Table
from tests.reporting.helpers import on_tasks, with_scores
from tests.reporting.world import METHODS, SEEDS, FakeStore, identifier, make_world

World = tuple[FakeStore, dict[str, Any]]


def column(grid: Table, title: str, sub: str = "") -> dict[str, str]:
    place = next(k for k, c in enumerate(grid.columns) if c.title == title and (not sub or c.sub == sub))
    return {row.title: row.cells[place].sort_key for row in grid.rows}


def runs(world: World, task: str, method: str) -> list[str]:
    return [run["id"] for run in world[1]["runs"] if run["task"] == task and run["method"] == method]


def test_in_domain_f1_is_scikit_learns(world: World, run: RunView) -> None:
    store = world[0]
    table = in_domain_table(run, run.tasks[0])
    shown = column(table, "Macro F1")
    assert "Micro F1" not in [head.title for head in table.columns]  # one label an example: nothing but accuracy
    for name, title, *_ in METHODS:
        found = [store.predictions[made, "test"] for made in runs(world, "digits", name)]
        values = [sk.f1_score(p.labels, p.probs.argmax(1), average="macro") for p in found]
        assert float(shown[title]) == pytest.approx(np.mean(values), abs=1e-9)


def test_a_place_away_from_home_against_scikit_learn(world: World, run: RunView) -> None:
    store, task = world[0], run.tasks[0]
    novel = task.test_sets[0]
    assert novel.title == "novel"
    table, more = detection_table(run, task, novel), every_quantity_table(run, task, novel)
    correlations = correlation_table(run, task, novel)
    for name, title, *_ in METHODS:
        found: dict[str, list[float]] = {}
        for made in runs(world, "digits", name):
            both = join([store.predictions[made, "test"], store.predictions[made, "novel"]])
            doubt, entropy = uncertainty(both, "confidence"), uncertainty(both, "predictive_entropy")
            found.setdefault("auroc", []).append(sk.roc_auc_score(both.ood, doubt))
            found.setdefault("foreign", []).append(sk.average_precision_score(both.ood, doubt))
            found.setdefault("home", []).append(sk.average_precision_score(~both.ood, -doubt))
            found.setdefault("entropy", []).append(sk.average_precision_score(both.ood, entropy))
            found.setdefault("correlation", []).append(np.corrcoef(1 - doubt, both.ood)[0, 1])
        mean = {key: np.mean(values) for key, values in found.items()}
        assert float(column(table, "AUROC", "confidence")[title]) == pytest.approx(mean["auroc"], abs=1e-6)
        outside = column(table, "AUPR", "confidence, OOD or shifted positive")[title]
        assert float(outside) == pytest.approx(mean["foreign"])
        assert float(column(table, "AUPR", "confidence, in-domain positive")[title]) == pytest.approx(mean["home"])
        shown = column(more, "AUPR", "predictive entropy, OOD or shifted positive")[title]
        assert float(shown) == pytest.approx(mean["entropy"], abs=1e-6)
        assert float(column(correlations, "confidence")[title]) == pytest.approx(mean["correlation"], abs=1e-6)
        assert mean["correlation"] < 0
    assert "0.33 with OOD" in table.caption
    assert "0.67 with in-domain" in table.caption


def test_the_gap_is_accuracy_at_home_minus_accuracy_there(world: World, run: RunView) -> None:
    store, task = world[0], run.tasks[2]
    shown = column(detection_table(run, task, task.test_sets[0]), "Gap")
    for name, title, *_ in METHODS:
        gaps = []
        for made in runs(world, "reviews", name):
            home, there = (store.predictions[made, split] for split in ("test", "elsewhere"))
            right = [np.mean(p.probs.argmax(1) == p.labels) for p in (home, there)]
            gaps.append(right[0] - right[1])
        assert float(shown[title]) == pytest.approx(np.mean(gaps))
    assert GAP in run.scores.not_ranked


def test_every_place_has_its_columns(run: RunView) -> None:
    table = summary_table(run, run.tasks[0])
    assert [head.sub for head in table.columns if head.title == "AUROC"] == ["novel", "blur", "noise"]
    assert [head.sub for head in table.columns if head.title == "Gap"] == ["blur", "noise"]


def test_cost_has_an_epoch_and_the_epoch_of_convergence() -> None:
    store, manifest = make_world((0,))
    for place, record in enumerate(store.records.values()):
        if "parameters" in record:
            record |= {"seconds_per_epoch": 0.5 + place, "best_epoch": 3 + place, "environment": {"device": "cpu"}}
    run = build_report(store, manifest).run
    table = cost_table(run, run.tasks[1])
    fits = next(run["fits"] for run in manifest["runs"] if run["task"] == "screening" and len(run["fits"]) == 2)
    epochs = [store.records[fit]["seconds_per_epoch"] for fit in fits]
    assert float(column(table, "Epoch")["Deep ensemble"]) == pytest.approx(np.mean(epochs))
    assert float(column(table, "Converged")["Deep ensemble"]) == pytest.approx(np.mean(epochs) + 2.5)
    assert next(head.sub for head in table.columns if head.title == "Inference") == "examples per second, cpu"


def test_ranks_records_and_means_over_tasks(run: RunView) -> None:
    field = next(group for group in groups(run) if group.setting == "in-domain")
    assert [block.title for block in field.blocks] == ["digits", "screening", "reviews"]
    values = np.array([[round(run.scores.cells[t, "test", name, "accuracy"].mean, 3) for name, *_ in METHODS]
                       for t in ("digits", "screening", "reviews")])  # fmt: skip
    table = across_table(run, field, "accuracy")
    ranks = np.mean([stats.rankdata(-row) for row in values], axis=0)
    for place, (_, title, *_) in enumerate(METHODS):
        assert float(column(table, "Mean rank")[title]) == pytest.approx(ranks[place], abs=1e-5)
        others = np.delete(values, place, axis=1)
        won, lost = (values[:, [place]] > others).sum(), (values[:, [place]] < others).sum()
        row = next(row for row in table.rows if row.title == title)
        assert row.cells[1].text == f"{won}/{others.size - won - lost}/{lost}"
        assert float(column(table, "Mean")[title]) == pytest.approx(values[:, place].mean(), abs=5e-4)
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


def test_a_corpus_that_is_there_whole_and_with_novelty_counts_once(run: RunView) -> None:
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
    assert column(table, "Mean rank")["MC dropout"] == ""
    assert column(table, "reviews")["MC dropout"] != ""
    assert "MC dropout" in ranks_sentence(fewer, field, "calibrated_nll")


def test_domains_are_pairs_and_novel_classes_a_set_each() -> None:
    store, manifest = make_world((0,))
    more = [dict(task) for task in manifest["tasks"]]
    for task in more:
        task["splits"] = [*task["splits"], {"name": "abroad", "kind": "shift", "fingerprint": "f", "examples": 220}]
    for run in manifest["runs"]:
        store.predictions[run["id"], "abroad"] = store.predictions[run["id"], "test"].as_ood()
    run = build_report(store, {**manifest, "tasks": more}).run
    found = next(group for group in groups(run) if group.setting == "cross-domain")
    assert {block.title for block in found.blocks} == {
        "digits → abroad", "screening → abroad", "reviews → elsewhere", "reviews → abroad"}  # fmt: skip
    table = across_table(run, found, detection_name("ood_auroc", "confidence"))
    assert float(column(table, "digits → abroad")["Deterministic"]) == pytest.approx(0.5)
    gap = across_table(run, found, GAP)
    assert "Mean rank" not in [head.title for head in gap.columns]


def test_one_run_of_each_method_is_judged_by_examples_away_from_home() -> None:
    store, manifest = make_world((0,))
    task = manifest["tasks"][0]
    kept = ("deep-ensemble", "mc-dropout-ensemble")
    chosen = [run for run in manifest["runs"] if run["task"] == task["name"] and run["method"] in kept]
    methods = [method for method in manifest["methods"] if method["name"] in kept]
    run = build_report(store, {**manifest, "tasks": [task], "methods": methods, "runs": chosen}).run
    verdicts = run.scores.verdicts(run.tasks[0], "novel", detection_name("ood_auroc", "confidence"))
    assert {verdict.place for verdict in verdicts.values()} <= {"best", "tied", "behind"}
    by_entropy = run.scores.verdicts(run.tasks[0], "novel", detection_name("ood_auroc", "predictive_entropy"))
    assert "unjudged" in {verdict.place for verdict in by_entropy.values()}


def test_the_world_pools_what_it_says(world: World) -> None:
    store, manifest = world
    ensemble = next(run for run in manifest["runs"] if run["method"] == "deep-ensemble")
    members = [store.predictions[identifier("pred", fit, 0), "test"] for fit in ensemble["fits"]]
    assert len(SEEDS) == 2
    assert np.allclose(store.predictions[ensemble["id"], "test"].probs, pool_members(members).probs)
