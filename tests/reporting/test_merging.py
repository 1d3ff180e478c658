"""Several runs merged into one report."""

from __future__ import annotations

import copy

import pytest

from dubio.core.errors import UserError
from dubio.reporting import build_report
from dubio.reporting.manifest_view import read_manifest
from dubio.reporting.merging import merge
from dubio.reporting.wording import draws
from tests.reporting.helpers import blocks, part_of_run, texts
from tests.reporting.stored_runs import FakeStore, World


def test_two_runs_of_different_tasks_are_one_report(world: World) -> None:
    store, manifest = world
    runs = {
        "a": part_of_run(manifest, "screening", preset="paper"),
        "b": part_of_run(manifest, "reviews", preset="small"),
    }
    report = build_report(store, merge(store, runs))
    whole = build_report(store, part_of_run(manifest, "screening", "reviews"))
    assert [task.key for task in report.tasks] == ["screening", "reviews"]
    assert set(report.scores) == set(whole.scores)
    told = [text for text in texts(blocks(report, "setup")) if ": preset" in text]
    assert told[0].startswith("a: preset paper, six methods on screening (mlp)")
    assert told[1].startswith("b: preset small")


def test_further_seeds_of_the_same_method_are_added_and_the_same_run_counts_once(world: World) -> None:
    store, manifest = world
    first = part_of_run(manifest, "screening")
    second = copy.deepcopy(first)
    first["runs"] = [run for run in first["runs"] if run["seed"] == 0]
    merged = merge(store, {"a": first, "b": second})
    assert len(merged["runs"]) == len(second["runs"])
    assert read_manifest(merged).seeds == (0, 1)


def test_the_same_method_made_otherwise_is_refused(world: World) -> None:
    _, manifest = world
    store = FakeStore(manifest)
    first, second = part_of_run(manifest, "screening"), part_of_run(manifest, "screening")
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
    other = part_of_run(manifest, "screening")
    other["tasks"][0]["splits"][0]["fingerprint"] = "0" * 64
    with pytest.raises(UserError, match=r"both have the task 'screening'.*splits differ"):
        merge(store, {"a": part_of_run(manifest, "screening"), "b": other})


def test_ensembles_of_different_sizes_say_so(world: World) -> None:
    store, manifest = world
    small = part_of_run(manifest, "reviews", methods=("deterministic", "deep-ensemble"))
    small["methods"][1]["members"] = 3
    merged = read_manifest(merge(store, {"a": part_of_run(manifest, "screening"), "b": small}))
    told = {method.name: draws(method) for method in merged.methods}
    assert told["deep-ensemble"] == "2 × one pass on screening; 3 × one pass on reviews"
    assert told["deterministic"] == "one pass"


def test_what_one_run_skipped_and_another_ran_is_not_missing(world: World) -> None:
    store, manifest = world
    first, second = part_of_run(manifest, "screening"), part_of_run(manifest, "reviews")
    first["skipped"] = [{"task": name, "network": "textcnn", "reason": "no data"} for name in ("reviews", "aapd")]
    merged = read_manifest(merge(store, {"a": first, "b": second}))
    assert [skipped.task for skipped in merged.skipped] == ["aapd"]
