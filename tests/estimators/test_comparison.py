"""Comparisons with baselines, with each other, and with the stored runs of a benchmark."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.estimators import EstimatorBenchmark, RandomReferral
from dubio.evaluation import evaluate
from dubio.metrics.selective import au_arc
from dubio.statistics.paired import pair_tests
from dubio.statistics.verdicts import holm
from tests.estimators.helpers import make_task, softmax


def test_the_baselines_are_the_class_shares_and_a_flat_curve(cancer, logistic):
    ready = cancer.baselines()
    assert set(ready) == {"class prior", "random referral"}
    prior = cancer.evaluate(ready["class prior"], replicates=0)
    share = (np.bincount(cancer.train.labels) + 0.5) / (len(cancer.train.labels) + 1)  # smoothed: never 0
    assert prior.predictions["test"].probs[0] == pytest.approx(share)
    assert prior['referral_gain(quantity="predictive_entropy")'] == 0
    control = cancer.evaluate(RandomReferral(logistic), replicates=0)
    whole = cancer.evaluate(logistic, replicates=0)
    assert {round(point.accuracy.value, 12) for point in control.referral()} == {round(whole["accuracy"], 12)}
    assert {round(point.auc.value, 12) for point in control.referral()} == {round(whole["class_auroc"], 12)}
    alone = cancer.evaluate(ready["random referral"], replicates=0)
    assert alone["accuracy"] == prior["accuracy"]
    assert alone.notes == ("the predictions are those of the class prior",)


def test_a_comparison_tests_every_pair_and_everyone_against_chance(cancer, logistic):
    weak = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3)).fit(*cancer.train)
    found = cancer.compare({"mine": logistic, "weak": weak, **cancer.baselines()}, replicates=100, seed=2)
    systems = {name: found.scores[name].predictions["test"] for name in ("mine", "weak", "class prior")}
    expected = pair_tests(systems, [dubio.metrics.metric.metric_named("accuracy")], replicates=100, seed=2)
    assert found.tests["test"]["accuracy"] == expected["accuracy"]
    assert {test.better for test in found.tests["test"]["accuracy"]} <= {"mine", "weak", None}
    pairs = [row for row in found.pairs if row["metric"] == 'au_arc(quantity="own")']
    assert [(row["first"], row["second"]) for row in pairs] == [
        ("mine", "weak"), ("mine", "class prior"), ("weak", "class prior"),
    ]  # fmt: skip
    assert [row["adjusted_p"] for row in pairs] == pytest.approx(holm([row["p"] for row in pairs]))
    areas = {name: au_arc(each, quantity="predictive_entropy") for name, each in systems.items()}
    assert pairs[0]["difference"] == pytest.approx(areas["mine"] - areas["weak"])
    gains = found.gains["test"]
    assert gains["mine"].value == pytest.approx(areas["mine"] - found.scores["mine"]["accuracy"])
    assert gains["mine"].significant
    assert (gains["class prior"].value, gains["class prior"].significant) == (0, False)
    assert found.scores["random referral"].notes == ("the predictions are those of mine",)
    assert found.scores["random referral"]["accuracy"] == found.scores["mine"]["accuracy"]
    assert json.loads(found.to_json())["gains"]["test"]["mine"]["significant"] is True
    assert "better than random" in str(found)
    assert {row["system"] for row in found.table} == set(found.scores)
    assert len(found.to_frame()) == len(found.pairs)
    assert len(found.scores["mine"].to_frame()) == len(found.scores["mine"].table)


def test_two_equal_systems_do_not_differ_significantly():
    bench = EstimatorBenchmark(make_task(3, group=True))
    both = bench.compare({"one": softmax, "two": lambda x: x}, values={"two": "logits"}, replicates=40)
    assert {row["better"] for row in both.pairs} == {None}
    assert 'ood_auroc(quantity="own")' in both.tests["far"]
    assert "far" not in both.gains
    with pytest.raises(UnknownName, match="Did you mean 'two'"):
        bench.compare({"one": softmax, "two": softmax}, values={"tvo": "logits"})
    with pytest.raises(UserError, match="needs a system beside the control"):
        bench.compare({"chance": RandomReferral()})


@pytest.fixture
def stored(tmp_path):
    """A tiny run: two methods on breast cancer, two members, one epoch."""
    pytest.importorskip("torch")
    from dubio.runner import benchmark_run as running
    from dubio.runner.benchmark_file import Benchmark, TaskEntry
    from dubio.runner.trainer import load_trainer
    from dubio.store import Store
    from tests.executor_here import training_here
    from tests.runner.helpers import prepare

    wanted = Benchmark(
        "tiny",
        (TaskEntry("breast-cancer", "mlp", training={"epochs": 1}),),
        ("deterministic", "deep-ensemble"),
        (0,),
    )
    run = running.PreparedBenchmark(wanted, prepare(wanted), load_trainer())
    with Store.open(tmp_path / "store") as store, training_here():
        finish = run.run(store, 1)
    assert not finish.outcome.failures
    return tmp_path / "store", finish.manifest


def test_stored_runs_stand_beside_the_users_own(stored, cancer, logistic):
    path, manifest = stored
    ready = cancer.baselines(store=path)
    assert set(ready) == {"class prior", "random referral", "deterministic", "deep-ensemble"}
    single = next(run for run in manifest["runs"] if run["method"] == "deterministic" and run["member"] == 0)
    assert ready["deterministic"].prediction == single["id"]
    from dubio.store import Store

    split = cancer.task.split("test")
    kept = Store.open(path, create=False).read_predictions(single["id"], "test", split.fingerprint)
    found = cancer.evaluate(ready["deterministic"], replicates=30)
    assert found["accuracy"] == evaluate(kept, replicates=0)["accuracy"]
    assert found["calibrated_nll"] == evaluate(kept, replicates=0)["calibrated_nll"]
    many = cancer.evaluate(ready["deep-ensemble"], replicates=0)
    assert many.predictions["test"].samples > 1
    assert 'referral_gain(quantity="mutual_information")' in many.on().scores
    compared = cancer.compare({"mine": logistic, **ready}, replicates=50)
    assert {row["first"] for row in compared.pairs} == {"mine", "class prior", "deterministic", "deep-ensemble"} - {
        list(ready)[-1]
    }
    assert "seed 0, member 0, of run tiny-" in str(compared)
    other = dubio.benchmark("breast-cancer", split_seed=1)
    with pytest.raises(UserError, match="no run on the same test examples as 'breast-cancer'; its runs: tiny-"):
        other.baselines(store=path)
    with pytest.raises(UserError, match="no dubio store"):
        cancer.baselines(store=path / "nowhere")
    with pytest.raises(UserError, match="give store too"):
        cancer.baselines(run="tiny")


def test_the_control_is_random_in_every_column():
    """Every metric that orders rows has its value under random orders, whatever quantity it names."""
    bench = EstimatorBenchmark(make_task(3))
    scores = bench.compare({"mine": softmax, "control": RandomReferral()}, replicates=20).scores
    control, mine = scores["control"], scores["mine"]
    (test, *_), far = control.splits, control.on("far")
    error = 1 - control["accuracy"]
    assert control["accuracy"] == mine["accuracy"]
    assert control["aurc"] == pytest.approx(error)
    assert control["augrc"] == pytest.approx(error / 2, rel=0.05)
    assert control["misclassification_auroc"] == pytest.approx(0.5)
    share = far.examples / (far.examples + control.on(test).examples)
    for name, score in far.scores.items():
        wanted = {"ood_auroc": 0.5, "ood_aupr": share, "id_aupr": 1 - share}.get(name.partition("(")[0])
        if wanted is not None:
            assert score.value == pytest.approx(wanted), name
        if name.startswith("ood_fpr95"):
            assert score.value == pytest.approx(0.95, abs=0.1)
        if name.startswith("ood_correlation"):
            assert score.value == pytest.approx(0.0, abs=0.25)
    gains = [score.value for name, score in control.on().scores.items() if name.startswith("referral_gain")]
    assert gains == pytest.approx([0.0] * len(gains))
    assert mine["aurc"] < error - 0.01
