"""Manifests as the report reads them."""

from __future__ import annotations

import gc
from time import process_time
from typing import Any

import pytest

from dubio.core.errors import BadFile
from dubio.core.types import families_by_name
from dubio.reporting.manifest_view import SplitView, TaskView, read_manifest
from tests.reporting.stored_runs import make_world


@pytest.mark.parametrize("change", [{"schema": 2}, {"tasks": [{"name": "x"}]}, {"runs": [{"id": "a"}]}])
def test_a_manifest_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    _, manifest = make_world((0,))
    with pytest.raises(BadFile):
        read_manifest({**manifest, **change})


def test_a_task_without_an_in_domain_test_split_is_refused() -> None:
    _, manifest = make_world((0,))
    splits = [split for split in manifest["tasks"][0]["splits"] if split["kind"] != "id"]
    manifest["tasks"][0]["splits"] = splits
    with pytest.raises(BadFile, match="digits has no in-domain test split"):
        read_manifest(manifest)


def test_one_task_under_two_networks_keeps_them_apart() -> None:
    _, manifest = make_world((0,))
    task = manifest["tasks"][1]
    twice = {**manifest, "tasks": [task, {**task, "network": "cnn"}], "runs": []}
    assert [view.key for view in read_manifest(twice).tasks] == ["screening (mlp)", "screening (cnn)"]


def test_domains_that_end_in_numbers_are_no_severities() -> None:
    def severities(**sizes: int) -> dict[str, list[str]]:
        named = {name.replace("_", "-"): size for name, size in sizes.items()}
        families = families_by_name(named)  # the rule for manifests that state neither family nor severity
        splits = tuple(
            SplitView(name, "shift", "0" * 64, size, *families.get(name, (None, None))) for name, size in named.items()
        )
        view = TaskView("t", "net", "text", "multiclass", ("a", "b"), splits, key="t")
        return {base: [split.name for split in found] for base, found in view.severities.items()}

    assert severities(noise_2=50, noise_1=50, blur_1=50) == {"noise": ["noise-1", "noise-2"]}
    assert severities(hospital_1=40, hospital_2=55) == {}
    assert severities(hospital_2=40, hospital_3=40) == {}


def test_severities_are_read_from_names_only_in_manifests_that_do_not_state_them() -> None:
    _, manifest = make_world((0,))
    assert list(read_manifest(manifest).tasks[0].severities) == ["blur", "noise"]
    for split in manifest["tasks"][0]["splits"]:
        split["family"], split["severity"] = None, None
    assert read_manifest(manifest).tasks[0].severities == {}


def test_a_run_of_a_task_that_is_not_listed_is_refused() -> None:
    _, manifest = make_world((0,))
    manifest["tasks"] = manifest["tasks"][1:]
    with pytest.raises(BadFile, match="no task 'digits'"):
        read_manifest(manifest)


def test_a_run_that_is_listed_twice_is_refused() -> None:
    # a damaged manifest that repeated its runs a thousand times kept `dubio dee` busy for minutes
    _, manifest = make_world((0,))
    manifest["runs"] *= 2
    with pytest.raises(BadFile, match="occurs twice on task 'digits' with seed 0"):
        read_manifest(manifest)


def test_the_time_to_read_a_manifest_grows_with_its_size_alone() -> None:
    _, manifest = make_world((0,))
    task = manifest["tasks"][1]
    splits = [split for split in task["splits"] if split["kind"] == "id"]

    def seconds(count: int) -> float:
        names = [f"task-{index}" for index in range(count)]
        tuning = [{"task": name, "network": "mlp", "method": "m", "chosen": {}, "trials": []} for name in names]
        tasks = [{**task, "name": name, "splits": splits, "facts": {}} for name in names]
        many = {**manifest, "tasks": tasks, "tuning": tuning, "runs": []}
        gc.disable()  # the collector visits everything that other tests left, not this manifest alone
        started = process_time()
        assert len(read_manifest(many).tasks) == count
        taken = process_time() - started
        gc.enable()
        return taken

    # Sixteen times the tasks take 16 times as long; searches of a list per task made it 45 times.
    assert min(seconds(8000), seconds(8000)) < 30 * max(seconds(500), seconds(500))


def test_the_registered_reference_is_the_reference_in_whatever_order_methods_are_named() -> None:
    """Policies aimed at the error of the packed ensemble, because the command had named it first."""
    _, manifest = make_world((0,))
    names = [method["name"] for method in manifest["methods"]]
    for first in ("mc-dropout", "deterministic"):
        order = [first, *(name for name in names if name != first)]
        methods = sorted(manifest["methods"], key=lambda method: order.index(method["name"]))
        view = read_manifest({**manifest, "methods": methods})
        assert view.reference(view.tasks[0]) == "deterministic"
        assert next(iter(view.simplest_first(dict.fromkeys(order)))) == "deterministic"
    others = [method for method in manifest["methods"] if method["name"] != "deterministic"]
    runs = [run for run in manifest["runs"] if run["method"] != "deterministic"]
    view = read_manifest({**manifest, "methods": others, "runs": runs})
    assert view.reference(view.tasks[0]) == "mc-dropout"
