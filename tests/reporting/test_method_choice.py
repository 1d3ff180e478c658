from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dubio
from dubio.core.predictions import Predictions
from dubio.reporting.build import build_report
from dubio.reporting.manifest_view import MethodRun
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.method_choice import deployment_commands, stored_name, supported_method
from tests.reporting.helpers import run_with, task_view, with_scores_on_features
from tests.reporting.stored_runs import make_world

CLEAR = {"deterministic": (0.50, 0.51, 0.49), "deep-ensemble": (0.30, 0.31, 0.29)}


def run_of(cells, *tasks):
    return run_with(list(tasks), {(task.key, "test", RANKED_BY): cells for task in tasks})


def test_the_verdict_supports_a_clear_winner_and_says_so():
    task = task_view("a", 2)
    method, verdict = supported_method(run_of(CLEAR, task), task)
    assert method == "deep-ensemble"
    assert verdict.startswith("Take Deep ensemble")


def test_one_run_per_method_supports_none():
    task = task_view("a", 2)
    method, verdict = supported_method(run_of({"deterministic": (0.5,), "deep-ensemble": (0.3,)}, task), task)
    assert method is None
    assert "these data do not decide" in verdict


def test_the_commands_are_filled_in():
    task = task_view("a", 2)
    own = run_of(CLEAR, task)
    vars(own).update(store="other store")  # beside the costs that it holds
    commands = deployment_commands(own, task, "it's-1a2b")
    words = shlex.split(commands["Predict new rows"])
    assert words[:5] == ["dubio", "predict", "it's-1a2b", "--method", "best"]
    assert words[words.index("--store") + 1] == "other store"
    assert "--task" not in words
    undecided = run_of({"deterministic": (0.5,), "deep-ensemble": (0.3,)}, task)
    assert "--method deep-ensemble" in deployment_commands(undecided, task, "run")["Export a model"]
    several = run_of(CLEAR, task, task_view("b", 3))
    assert "--task a" in deployment_commands(several, task, "run")["Export a model"]


@pytest.mark.parametrize(("error", "goal"), [(0.0, "--max-risk 0.05"), (0.4, "--capacity 0.2")])
def test_the_policy_of_the_commands_is_one_that_the_calibration_split_allows(error, goal):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    answers = np.where(rng.random(200) < error, 1 - labels, labels)
    predictions = Predictions((4 * np.eye(2)[answers] + rng.normal(size=(200, 2)))[None].astype(np.float32), labels)
    task = task_view("a", 2)
    (test,) = task.of_kind("id")
    task = replace(task, splits=(*task.splits, replace(test, name="cal", kind="cal")))
    own = run_of(CLEAR, task)
    runs = (MethodRun("p", (), {}, task.key, "textcnn", "deep-ensemble"),)
    source = SimpleNamespace(read_predictions=lambda *names: predictions.with_checked(kind="cal"))
    vars(own).update(manifest=replace(own.manifest, runs=runs), source=source)  # beside the costs that it holds
    assert deployment_commands(own, task, "run")["Export a model"].endswith(goal)


def test_commands_name_the_run_in_full_beside_others_that_begin_alike(texts_run, tmp_path):
    folder = shutil.copytree(texts_run.store, tmp_path / "store")
    (name,) = dubio.open_store(folder).manifests()
    view = dubio.open_run(name, store=folder).built.run
    store = view.source
    store.write_manifest({**store.manifest(name), "runs": []}, "0" * 8)
    assert len(store.manifests()) == 2
    assert stored_name(view) == name != view.manifest.name
    assert stored_name(run_of(CLEAR, task_view("a", 2))) == "made"


def test_the_method_to_predict_with_is_the_cheaper_of_two_with_the_same_predictions():
    """With one seed, too: another training of the same network would give both other predictions."""
    store, manifest = make_world((0,))
    for order in (("posthoc", "deterministic"), ("deterministic", "posthoc")):
        view = build_report(store, with_scores_on_features(store, manifest, "screening", order)).run
        method, verdict = supported_method(view, view.tasks[0])
        assert method == "deterministic"
        assert verdict.endswith("Post-hoc scores makes the same predictions as Deterministic.")
