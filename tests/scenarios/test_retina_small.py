"""The preset `small` of the retina benchmark beside the linear baseline: a weak signal in noisy, unbalanced labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubio.core.registry import METHODS, TASKS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.runner.benchmark_file import load_benchmark
from dubio.runner.prepare import method_arguments

pytest.importorskip("torch")

from dubio.methods.fitting import FitContext, fit
from dubio.methods.prediction import predictor
from dubio.methods.specification import NetworkSpec, fit_spec, pred_spec


def small(name: str = "regularised"):
    """Return a method of the preset, and its network."""
    benchmark = load_benchmark("retina")
    entry = benchmark.tasks[0]
    recipe = METHODS.make(name, **method_arguments(benchmark, entry)[name])
    return recipe, NetworkSpec(entry.network, entry.network_arguments)


def auc_and_scores(recipe, network, task, seed=0):
    """Return the AUC on the test split, and P(positive) of its rows."""
    spec = fit_spec(recipe, task, network.encoding(), network, seed=seed, member=0)
    done = fit(spec, task, FitContext())
    prediction = pred_spec(recipe, "fit", seed=seed, member=0)
    test = task.split("test")
    scores = predictor(spec, prediction, done.tensors, done.encoder)(test).probs[:, 1]
    return roc_auc_score(test.data.labels, scores), scores


def noisy_task(x, y, parts, flips, rng):
    """Return a task of images whose training and validation labels are flipped at random; those of test are true."""
    names = {"train": "train", "val": "val", "test": "id"}
    splits = []
    for (name, kind), rows in zip(names.items(), parts, strict=True):
        labels = y[rows] if name == "test" else np.where(rng.random(len(rows)) < flips, 1 - y[rows], y[rows])
        splits.append(Split.of(name, kind, Examples(x[rows], labels)))
    card = SourceCard("made up", "1", "none", "none")
    return Task("noisy", "image", "multiclass", ("no", "yes"), tuple(splits), card)


@pytest.fixture(scope="module")
def weak() -> Task:
    """Grey images of 16 pixels, a quarter of them a little brighter in one corner; a quarter of the labels is wrong."""
    rng = np.random.default_rng(0)
    y = (rng.random(1100) < 0.25).astype(np.int64)
    x = rng.normal(128, 40, (1100, 16, 16, 1))
    x[:, 2:8, 2:8] += 24.0 * y[:, None, None, None]
    rows = np.arange(1100)
    return noisy_task(x.clip(0, 255).astype(np.uint8), y, (rows[:400], rows[400:450], rows[450:]), 0.25, rng)


def test_small_learns_a_weak_signal_as_well_as_the_linear_baseline(weak):
    recipe, network = small()
    linear, _ = auc_and_scores(METHODS.make("linear"), network, weak)
    learned, _ = auc_and_scores(recipe, network, weak)
    assert linear > 0.7
    assert learned > linear - 0.05


def differences(task, seeds=(0, 1, 2), draws=500):
    """Return draws of AUC(small) − AUC(linear), the mean over seeds; patients are resampled where there are any."""
    recipe, network = small()
    _, linear = auc_and_scores(METHODS.make("linear"), network, task)
    scores = [auc_and_scores(recipe, network, task, seed)[1] for seed in seeds]
    data = task.split("test").data
    groups = np.arange(len(data)) if data.group is None else np.unique(data.group, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    values = []
    while len(values) < draws:
        chosen = rng.integers(groups.max() + 1, size=groups.max() + 1)
        rows = np.concatenate([np.flatnonzero(groups == group) for group in chosen])
        labels = data.labels[rows]
        mean = np.mean([roc_auc_score(labels, own[rows]) for own in scores])
        values.append(mean - roc_auc_score(labels, linear[rows]))
    return np.array(values)


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["quality", "severity"])
def test_small_is_not_behind_linear_on_real_photographs(data_dir, shift):
    path = data_dir / "deepdrid_64.npz"
    if not path.is_file():
        pytest.skip("no deepdrid_64.npz")
    values = differences(TASKS.make("retina", data=str(path), shift=shift))
    assert np.quantile(values, 0.975) > 0  # not significantly behind
    assert values.mean() > -0.02


@pytest.mark.slow
def test_small_is_not_behind_linear_on_photographs_with_noisy_labels(data_dir):
    path = data_dir / "deepdrid_64.npz"
    if not path.is_file():
        pytest.skip("no deepdrid_64.npz")
    task = TASKS.make("retina", data=str(path), shift="none", cal=0.0)
    rng = np.random.default_rng(0)

    def flipped(split):
        labels = split.data.labels
        wrong = rng.random(len(labels)) < (0.0 if split.name == "test" else 0.3)
        return Split.of(split.name, split.kind, replace(split.data, labels=np.where(wrong, 1 - labels, labels)))

    values = differences(replace(task, splits=tuple(map(flipped, task.splits))))
    assert np.quantile(values, 0.975) > 0
    assert values.mean() > -0.02
