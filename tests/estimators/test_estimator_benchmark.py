"""dubio.benchmark: estimators of any framework on a task's splits, scored as dubio.evaluate scores predictions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.estimators import EstimatorBenchmark
from dubio.evaluation import STANDARD, evaluate
from tests.estimators.helpers import make_task, sigmoid, softmax, three, values_of

DETECTION = {"ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "generalisation_gap"}


def test_a_scikit_learn_model_scores_as_its_predictions_do(cancer, logistic):
    found = cancer.evaluate(logistic, seed=3, replicates=50, batch=32)
    x, y = cancer.test
    ids = cancer.task.split("test").data.ids
    wanted = evaluate(logistic.predict_proba(x), y, values="probs", ids=ids, seed=3, replicates=50)
    for name in wanted.scores:
        assert three(found.score(name)) == pytest.approx(three(wanted.scores[name]), nan_ok=True), name
    assert found["class_auroc"] == pytest.approx(roc_auc_score(y, logistic.predict_proba(x)[:, 1]))
    assert {row["metric"] for row in found.table if not row["metric"].startswith(("referral", "au_arc"))} == set(
        wanted.scores
    )
    parsed = json.loads(found.to_json())
    assert parsed["splits"][0]["scores"]["accuracy"]["value"] == found["accuracy"]
    assert "50%" in str(found)
    assert "50 replicates over examples, seed 3" in str(found)
    assert repr(found) == "<estimator on breast-cancer: test>"


def test_a_torch_module_scores_as_its_predictions_do():
    torch = pytest.importorskip("torch")
    bench = dubio.benchmark("digits")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))

    def logits(images):
        return net(torch.from_numpy(images).float() / 255)

    x, y = bench.train
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits(x), torch.from_numpy(y)).backward()
        optimiser.step()
    found = bench.evaluate(logits, values="logits", splits=["novel", "noise-3"], replicates=20)
    assert list(found.splits) == ["test", "novel", "noise-3"]
    with torch.no_grad():
        home, novel, noisy = (
            logits(part.inputs).numpy() for part in (bench.test, bench.shifts["novel"], bench.shifts["noise-3"])
        )
    ids = bench.task.split("test").data.ids
    alone = evaluate(home, bench.test.labels, values="logits", ids=ids, replicates=20)
    wanted = evaluate(home, bench.test.labels, values="logits", ood=novel, replicates=20)
    for name, score in {**wanted.scores, **alone.scores}.items():
        split = "novel" if name in DETECTION else "test"
        assert three(found.score(name, split)) == pytest.approx(three(score), rel=1e-4, abs=1e-6, nan_ok=True), name
    for quantity, figures in wanted.detection.items():
        if quantity != "random":
            name = "ood_auroc" if quantity == "confidence" else f'ood_auroc(quantity="{quantity}")'
            assert found[name, "novel"] == pytest.approx(figures.auroc, abs=1e-4)
    shifted = evaluate(noisy, bench.shifts["noise-3"].labels, values="logits", replicates=0)
    assert found["accuracy", "noise-3"] == pytest.approx(shifted["accuracy"])
    assert found["generalisation_gap", "noise-3"] == pytest.approx(found["accuracy"] - shifted["accuracy"])


@pytest.mark.parametrize("target", ["multiclass", "ordinal", "multilabel"])
def test_splits_are_copies_that_an_estimator_may_overwrite(target):
    bench = EstimatorBenchmark(make_task(3, target=target))

    def overwriting(x):
        p = softmax(x) if target != "multilabel" else sigmoid(x)
        x[:] = 0
        return p

    assert (bench.train.inputs == bench.task.split("train").data.inputs).all()
    assert (bench.validation.labels == bench.task.split("val").data.labels).all()
    with pytest.raises(UserError, match="no split of kind 'cal'"):
        _ = bench.calibration
    bench.test.inputs[:] = 0
    found = bench.evaluate(overwriting, replicates=0, batch=7)
    again = bench.evaluate(overwriting, replicates=0)
    assert values_of(found.on().scores) == pytest.approx(values_of(again.on().scores), nan_ok=True)
    assert found["accuracy"] > 0.4


def test_texts_come_as_lists_and_groups_are_resampled(tmp_path):
    rng = np.random.default_rng(0)
    mood = rng.integers(0, 2, 200)
    lines = [f"{['bad', 'good'][m]} day number {i}" if rng.random() < 0.8 else f"day {i}" for i, m in enumerate(mood)]
    table = pd.DataFrame({"text": lines, "mood": np.array(["sad", "glad"])[mood], "who": rng.integers(0, 30, 200)})
    table.to_csv(tmp_path / "moods.csv", index=False)
    bench = dubio.benchmark("own", data=tmp_path / "moods.csv", text="text", label="mood", group="who", name="moods")
    assert bench.task.name == "moods"
    assert isinstance(bench.train.inputs, list)
    glad = bench.task.classes.index("glad")

    def estimator(texts):
        assert isinstance(texts, list)
        p = np.array([0.9 if "good" in text else 0.1 if "bad" in text else 0.5 for text in texts])
        return p if glad == 1 else 1 - p

    found = bench.evaluate(estimator, replicates=60, seed=1)
    data = bench.task.split("test").data
    wanted = evaluate(
        estimator(bench.test.inputs), data.labels, values="probs", group=data.group, replicates=60, seed=1
    )
    assert found.on().resampled == "groups"
    assert found.score("accuracy") == wanted.scores["accuracy"]
    assert found.score("accuracy") != evaluate(
        estimator(bench.test.inputs), data.labels, values="probs", replicates=60, seed=1
    ).scores["accuracy"]  # fmt: skip


def test_multilabel_tasks_are_scored_too():
    bench = EstimatorBenchmark(make_task(3, target="multilabel"))
    found = bench.evaluate(lambda x: (sigmoid(4 * (x - 0.7)), -np.abs(x - 0.7).min(1)), replicates=10)
    assert found["accuracy"] == 1
    assert found.referral()[0].auc is None
    assert 'ood_auroc(quantity="given")' in found.on("far").scores
    prior = bench.evaluate(bench.baselines()["class prior"], replicates=0)
    labels = bench.train.labels
    assert prior.predictions["test"].probs[0] == pytest.approx((labels.sum(0) + 0.5) / (len(labels) + 1))


def test_an_unknown_name_is_refused_with_the_nearest(cancer):
    with pytest.raises(UnknownName, match="Did you mean 'digits'"):
        dubio.benchmark("digit")
    with pytest.raises(UnknownName, match="Did you mean 'fractions'"):
        dubio.benchmark("breast-cancer", fraction=(1,))
    found = cancer.evaluate(cancer.baselines()["class prior"], replicates=0)
    with pytest.raises(UnknownName, match="Did you mean 'accuracy'"):
        _ = found["acuracy"]
    with pytest.raises(UnknownName, match="split 'tests'"):
        _ = found["accuracy", "tests"]
    with pytest.raises(UnknownName, match="test split of breast-cancer 'noise'"):
        cancer.evaluate(cancer.baselines()["class prior"], splits=["noise"])
    with pytest.raises(UserError, match="it needs at least two samples"):
        _ = found["diversity"]
    with pytest.raises(UserError, match="batch must be at least 1"):
        cancer.evaluate(lambda x: x, batch=0)
    with pytest.raises(UserError, match="replicates must be 0"):
        cancer.evaluate(lambda x: x, replicates=1)
    assert set(STANDARD) >= DETECTION


def test_the_pages_example_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "any-framework.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", blocks[0]], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "better than random" in done.stdout
    for block in blocks[1:]:
        compile(block, "any-framework.md", "exec")
