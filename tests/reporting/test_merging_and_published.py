"""Several runs in one report, published figures beside ours, and published definitions beside the right ones."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.areas import auroc
from dubio.metrics.as_published import mirrored_rows, ood_auroc_as_published
from dubio.metrics.calibration_error import ece
from dubio.reporting import build_report
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.merging import merge
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Score, aggregate
from dubio.reporting.wording import draws
from dubio.studies.published_numbers import published_numbers
from dubio.studies.text.as_published import (
    correction_sentence,
    correction_table,
    corrections,
    detection_values,
    in_domain_values,
    in_tested_order,
    kind_of,
)
from dubio.studies.text.published import agreement_sentence, agreement_table, agreements
from tests.reporting.helpers import blocks, on_tasks, texts, with_scores
from tests.reporting.world import FakeStore

World = tuple[FakeStore, dict[str, Any]]


def part(manifest: dict[str, Any], *tasks: str, methods: tuple[str, ...] = (), **benchmark: Any) -> dict[str, Any]:
    """A run of some tasks and methods of the world."""
    made = copy.deepcopy(manifest)
    made["tasks"] = [task for task in made["tasks"] if task["name"] in tasks]
    made["methods"] = [method for method in made["methods"] if not methods or method["name"] in methods]
    made["runs"] = [run for run in made["runs"] if run["task"] in tasks and (not methods or run["method"] in methods)]
    made["benchmark"] = {**made["benchmark"], **benchmark}
    made["failures"] = []
    return made


def test_two_runs_of_different_tasks_are_one_report(world: World) -> None:
    store, manifest = world
    runs = {"a": part(manifest, "screening", preset="paper"), "b": part(manifest, "reviews", preset="small")}
    report = build_report(store, merge(store, runs))
    whole = build_report(store, part(manifest, "screening", "reviews"))
    assert [task.key for task in report.tasks] == ["screening", "reviews"]
    assert set(report.scores) == set(whole.scores)
    told = [text for text in texts(blocks(report, "setup")) if ": preset" in text]
    assert told[0].startswith("a: preset paper, six methods on screening (mlp)")
    assert told[1].startswith("b: preset small")


def test_further_seeds_of_the_same_method_are_added_and_the_same_run_counts_once(world: World) -> None:
    store, manifest = world
    first = part(manifest, "screening")
    second = copy.deepcopy(first)
    first["runs"] = [run for run in first["runs"] if run["seed"] == 0]
    merged = merge(store, {"a": first, "b": second})
    assert len(merged["runs"]) == len(second["runs"])
    assert read_manifest(merged).seeds == (0, 1)


def test_the_same_method_made_otherwise_is_refused(world: World) -> None:
    _, manifest = world
    store = FakeStore(manifest)
    first, second = part(manifest, "screening"), part(manifest, "screening")
    for run in second["runs"]:
        run["id"] = f"other-{run['id']}"
    for name, runs, rate in (("a", first, 0.001), ("b", second, 0.01)):
        for run in runs["runs"]:
            store.specs[run["id"]] = {"kind": "prediction", "fit": f"{name}-fit", "samples": 0, "seed": run["seed"]}
        store.specs[f"{name}-fit"] = {"kind": "fit", "recipe": {"optimiser": {"lr": rate}}, "seed": 3, "member": 1}
    with pytest.raises(UserError, match=r"'a' and 'b' both have 'deterministic' on 'screening'.*lr is 0\.001.*0\.01"):
        merge(store, {"a": first, "b": second})
    store.specs["b-fit"] = {**store.specs["a-fit"], "seed": 7}
    assert len(merge(store, {"a": first, "b": second})["runs"]) == len(first["runs"])


def test_a_task_on_other_data_is_refused(world: World) -> None:
    store, manifest = world
    other = part(manifest, "screening")
    other["tasks"][0]["splits"][0]["fingerprint"] = "0" * 64
    with pytest.raises(UserError, match=r"both have the task 'screening'.*splits differ"):
        merge(store, {"a": part(manifest, "screening"), "b": other})


def test_ensembles_of_different_sizes_say_so(world: World) -> None:
    store, manifest = world
    small = part(manifest, "reviews", methods=("deterministic", "deep-ensemble"))
    small["methods"][1]["members"] = 3
    merged = read_manifest(merge(store, {"a": part(manifest, "screening"), "b": small}))
    told = {method.name: draws(method) for method in merged.methods}
    assert told["deep-ensemble"] == "2 × one pass on screening; 3 × one pass on reviews"
    assert told["deterministic"] == "one pass"


def test_what_one_run_skipped_and_another_ran_is_not_missing(world: World) -> None:
    store, manifest = world
    first, second = part(manifest, "screening"), part(manifest, "reviews")
    first["skipped"] = [{"task": name, "network": "textcnn", "reason": "no data"} for name in ("reviews", "aapd")]
    merged = read_manifest(merge(store, {"a": first, "b": second}))
    assert [skipped.task for skipped in merged.skipped] == ["aapd"]


def as_clinc(run: RunView, shifted: float) -> RunView:
    """The first task as CLINC, its deterministic accuracy that far from the published one."""
    task = replace(run.tasks[0], name="clinc", network="textcnn", classes=tuple(map(str, range(150))))
    value = next(
        n.value
        for n in published_numbers("text")
        if (n.task, n.method, n.metric) == ("clinc", "deterministic", "accuracy")
    )
    scores = [s for s in run.scores.scores if not (s.metric == "accuracy" and s.split == "test")]
    scores += [Score(task.key, "test", "id", "deterministic", seed, 0, "accuracy", value + shifted) for seed in (0, 1)]
    return with_scores(on_tasks(run, (task,)), scores)


def test_the_shipped_figures_are_those_of_the_paper() -> None:
    figures = {(f.task, f.setting, f.method, f.metric): f.value for f in published_numbers("text")}
    assert len(figures) == len(published_numbers("text")) == 5 * 18 * 4 + 5
    for method, accuracy, area in (
        ("deterministic", 0.876, 0.878), ("mc-dropout", 0.859, 0.866), ("deep-ensemble", 0.898, 0.897),
        ("concrete-dropout-ensemble", 0.915, 0.912), ("mc-concrete-dropout-ensemble", 0.917, 0.917)):  # fmt: skip
        assert figures["clinc", "in-domain", method, "accuracy"] == pytest.approx(accuracy, abs=6e-4)
        assert figures["clinc", "novelty", method, "ood_auroc"] == area


@pytest.mark.parametrize(("shifted", "outcome"), [(0.019, "within"), (0.03, "better"), (-0.03, "worse")])
def test_ours_beside_published(run: RunView, shifted: float, outcome: str) -> None:
    ours = as_clinc(run, shifted)
    task = ours.tasks[0]
    found = [
        a for a in agreements(ours, task) if (a.published.method, a.published.metric) == ("deterministic", "accuracy")
    ]
    assert [each.outcome for each in found] == [outcome]
    assert found[0].difference == pytest.approx(shifted)
    table = agreement_table(ours, task)
    assert table is not None
    cell = table.rows[0].cells[2]
    assert cell.text == f"{shifted:+.3f}".replace("-", "−")
    assert cell.spread == outcome
    assert "Accuracy: " in agreement_sentence(ours, task)


def test_other_tasks_and_other_numbers_of_classes_are_not_compared(run: RunView) -> None:
    assert all(agreement_table(run, task) is None for task in run.tasks)
    ours = as_clinc(run, 0.0)
    fewer = replace(ours.tasks[0], classes=tuple(map(str, range(149))))
    assert agreements(ours, fewer) == ()


def test_calibration_error_is_compared_only_under_its_published_definition(run: RunView) -> None:
    ours = as_clinc(run, 0.0)
    task = ours.tasks[0]
    assert "ece" not in {each.published.metric for each in agreements(ours, task)}
    score = Score(task.key, "test", "id", "deterministic", 0, 0, "ece_as_published", 0.05)
    again = agreements(replace(ours, extra_scores=[score]), task)
    assert [a.ours.mean for a in again if a.published.metric == "ece"] == [0.05]


def test_published_definitions_are_those_of_the_metrics(world: World) -> None:
    store, manifest = world
    run = next(r for r in manifest["runs"] if r["method"] == "mc-dropout" and r["task"] == "digits")
    inside, outside = (store.predictions[run["id"], split] for split in ("test", "novel"))
    home, there = in_domain_values(inside), detection_values(inside, outside)
    assert home["ece_as_published"] == pytest.approx(ece(inside, bins=100))
    assert home["ece"] == pytest.approx(ece(inside))
    assert home["brier_as_published"] == pytest.approx(home["brier"] / 4)
    both = in_tested_order(inside, outside)
    assert there["ood_auroc_as_published"] == ood_auroc_as_published(both)
    doubt = 1 - both.probs.max(axis=1)
    flag, places = mirrored_rows(both.ood)
    assert there["ood_auroc_as_published"] == pytest.approx(auroc(doubt[places], flag))
    assert there["ood_auroc"] == pytest.approx(auroc(doubt, both.ood))
    assert there["ood_correlation_as_published"] >= 0  # of the entropy, and absolute


def test_rows_go_in_the_order_of_a_common_numbering() -> None:
    def rows(names: list[str], ood: bool) -> Predictions:
        logits = np.arange(len(names) * 2, dtype=np.float32).reshape(1, -1, 2)
        return Predictions(logits, np.zeros(len(names), np.int64), ids=np.array(names), ood=np.full(len(names), ood))

    mixed = in_tested_order(rows(["test/1", "test/10", "test/3"], False), rows(["test/2", "test/4"], True))
    assert mixed.ood.tolist() == [False, True, False, True, False]
    apart = in_tested_order(rows(["books/1", "books/2"], False), rows(["dvd/1"], True))
    assert apart.ood.tolist() == [False, False, True]


def test_kinds_of_methods_are_read_from_predictions(world: World) -> None:
    store, manifest = world
    first = {m: next(r["id"] for r in manifest["runs"] if r["method"] == m) for m in ("mc-dropout", "deep-ensemble")}
    assert kind_of(store.predictions[first["mc-dropout"], "test"]) == "dropout"
    assert kind_of(store.predictions[first["deep-ensemble"], "test"]) == "ensemble"
    noisy = store.predictions[first["mc-dropout"], "test"]
    assert kind_of(replace(noisy, data_variance=np.ones_like(noisy.logits))) == "heteroscedastic"


def test_mending_is_told_with_kendalls_tau(world: World) -> None:
    store, manifest = world
    report = build_report(store, part(manifest, "digits"), options=("as-published",))
    found = report.run
    (task,) = found.tasks
    pair = next(p for p in corrections(found, task) if (p.split, p.published) == ("novel", "ood_auroc_as_published"))
    cells = aggregate(found.extra_scores)
    names = [m.name for m in found.methods_of(task)]
    values = [[cells[task.key, "novel", n, metric].mean for n in names] for metric in (pair.published, pair.plain)]
    assert pair.agreement == pytest.approx(stats.kendalltau(*values).statistic)
    assert f"τ of the two orders {pair.agreement:.2f}" in correction_sentence(found, pair)
    signed = next(
        p for p in corrections(found, task) if p.published == 'ood_correlation_as_published(quantity="confidence")'
    )
    assert signed.agreement is not None
    assert signed.agreement > 0.9  # absolute against signed: the same order turned round
    table = correction_table(found, task, "novel")
    assert table is not None
    assert all(head.unranked for head in table.columns)
    assert {cell.place for row in table.rows for cell in row.cells} == {"unranked"}
    plain = build_report(store, part(manifest, "digits"))
    assert set(found.scores.scores) == set(plain.run.scores.scores)
    assert blocks(report, "as-published")
    assert not blocks(plain, "as-published")
