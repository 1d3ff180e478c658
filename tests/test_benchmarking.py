"""dubio.benchmark: estimators of any framework on a task's splits, scored as dubio.evaluate scores predictions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dubio
from dubio.benchmarking import Bench, RandomReferral
from dubio.benchmarking.asking import ask
from dubio.benchmarking.figures import detection_figures, referral_figures
from dubio.benchmarking.frameworks import to_numpy
from dubio.errors import UnknownName, UserError
from dubio.evaluation import STANDARD, evaluate
from dubio.metrics.detection import detect
from dubio.metrics.quantities import uncertainty
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.metrics.selective import au_arc
from dubio.statistics.paired import holm
from dubio.statistics.resampling import Weights
from dubio.statistics.side_by_side import side_by_side
from dubio.types import Examples, Predictions, SourceCard, Split, Task

CARD = SourceCard("made here", "1", "none", "none")
DETECTION = {"ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "generalisation_gap"}


def made(classes=2, rows=40, target="multiclass", group=False, seed=0):
    """A small task whose inputs lean towards their class: train, val, test and a split out of distribution."""
    rng = np.random.default_rng(seed)
    names = tuple("abcdefgh"[:classes])

    def split(name, kind, shape=rows):
        labels = rng.integers(0, classes, shape)
        inputs = np.eye(classes)[labels] * 1.5 + rng.normal(size=(shape, classes))
        if target == "multilabel":
            labels = (inputs > 0.7).astype(np.int64)
        elif kind == "ood":
            labels = np.full(shape, -1)
        members = rng.integers(0, 12, shape).astype(np.str_) if group else None
        ids = np.array([f"{name}-{row}" for row in range(shape)])
        return Split.of(name, kind, Examples(inputs, labels.astype(np.int64), ids, members))

    splits = (split("train", "train"), split("val", "val"), split("test", "id"), split("far", "ood", 25))
    return Task("made", "table", target, names, splits, CARD)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def three(score):
    return [score.value, score.low, score.high]


def values_of(scores):
    return {name: score.value for name, score in scores.items()}


@pytest.fixture(scope="module")
def cancer():
    return dubio.benchmark("breast-cancer")


@pytest.fixture(scope="module")
def logistic(cancer):
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*cancer.train)


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
def test_splits_are_given_as_they_are_and_cannot_be_spoilt(target):
    bench = Bench(made(3, target=target))

    def spoiling(x):
        p = softmax(x) if target != "multilabel" else sigmoid(x)
        x[:] = 0
        return p

    assert (bench.train.inputs == bench.task.split("train").data.inputs).all()
    assert (bench.validation.labels == bench.task.split("val").data.labels).all()
    with pytest.raises(UserError, match="no split of kind 'cal'"):
        _ = bench.calibration
    bench.test.inputs[:] = 0
    found = bench.evaluate(spoiling, replicates=0, batch=7)
    again = bench.evaluate(spoiling, replicates=0)
    assert values_of(found.on().scores) == pytest.approx(values_of(again.on().scores), nan_ok=True)
    assert found["accuracy"] > 0.4


def brute_accuracy(doubt, right, fraction):
    """Mean over many orders of tied rows of the accuracy of the least uncertain."""
    rng = np.random.default_rng(0)
    keep = max(1, int(np.floor(fraction * len(right) + 0.5)))
    values = []
    for _ in range(4000):
        order = np.lexsort((rng.random(len(right)), doubt))
        values.append(right[order[:keep]].mean())
    return np.mean(values)


def test_a_given_uncertainty_decides_who_is_referred():
    bench = Bench(made(2))
    doubt = np.random.default_rng(5).normal(size=40)
    x, y = bench.test
    doubts = dict(zip(map(bytes, x), doubt, strict=True))

    def estimator(batch):
        own = np.array([doubts.get(bytes(row), 0.5) for row in batch])
        return softmax(batch)[:, 1], own

    found = bench.evaluate(estimator, replicates=0, batch=9)
    right = softmax(x).argmax(1) == y
    order = np.argsort(doubt)
    points = found.referral()
    assert [point.fraction for point in points] == list(FRACTIONS)
    assert found.on().referred_by == ("given", "predictive_entropy")
    for point in points:
        kept = order[: int(np.floor(point.fraction * 40 + 0.5))]
        assert point.accuracy.value == pytest.approx(right[kept].mean())
        assert point.auc.value == pytest.approx(roc_auc_score(y[kept], softmax(x)[kept, 1]))
    entropy = found.referral(quantity="predictive_entropy")
    plain = bench.evaluate(lambda batch: softmax(batch)[:, 1], replicates=0).referral()
    assert [each.accuracy.value for each in entropy] == [each.accuracy.value for each in plain]
    assert [each.accuracy.value for each in entropy] != [each.accuracy.value for each in points]
    assert found['au_arc(quantity="given")'] == pytest.approx(np.mean([right[order[:k]].mean() for k in range(1, 41)]))
    gain = found['referral_gain(quantity="given")']
    assert gain == pytest.approx(found['au_arc(quantity="given")'] - found["accuracy"])
    strange = np.concatenate([doubt, np.full(25, 0.5)])
    wanted = roc_auc_score(np.repeat([0, 1], [40, 25]), strange)
    assert found['ood_auroc(quantity="given")', "far"] == pytest.approx(wanted)


def test_tied_uncertainties_are_kept_in_the_average_of_all_orders():
    bench = Bench(made(2))
    x, y = bench.test
    found = bench.evaluate(lambda batch: (softmax(batch), np.round(batch[:, 0])), replicates=0, splits=[])
    right = softmax(x).argmax(1) == y
    for point in found.referral():
        wanted = brute_accuracy(np.round(x[:, 0]), right, point.fraction)
        assert point.accuracy.value == pytest.approx(wanted, abs=0.005)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), classes=st.sampled_from([2, 3]), rows=st.integers(4, 30))
def test_weighted_figures_are_the_metrics_on_repeated_rows(seed, classes, rows):
    rng = np.random.default_rng(seed)
    logits = (rng.integers(-4, 5, (2, rows, classes)) / 2).astype(np.float32)
    predictions = Predictions(logits, rng.integers(0, classes, rows), ood=np.arange(rows) % 3 == 0)
    column = uncertainty(predictions, "predictive_entropy")
    counts = rng.integers(0, 3, (1, rows))
    counts[0, :4] += 1
    repeated = predictions.take(np.repeat(np.arange(rows), counts[0]))
    weights = Weights.of(counts)
    curve = referral_curve(repeated, quantity="predictive_entropy")
    found = {
        figure.name.replace(", retained=", " "): float(figure.weighted(weights)[0])
        for figure in referral_figures(predictions, column, "own")
    }
    for place, fraction in enumerate(FRACTIONS):
        at = "" if fraction == 0.8 else f" {fraction}"
        assert found[f'referral_accuracy(quantity="own"{at})'] == pytest.approx(curve.accuracy[place])
        if classes == 2:
            assert found[f'referral_auc(quantity="own"{at})'] == pytest.approx(curve.auc[place], nan_ok=True)
    assert found['au_arc(quantity="own")'] == pytest.approx(au_arc(repeated, quantity="predictive_entropy"))
    wanted = detect(repeated, "predictive_entropy")
    figures = detection_figures(column, predictions.ood, "own")
    values = [float(figure.weighted(weights)[0]) for figure in figures]
    expected = [wanted.auroc, wanted.aupr_ood, wanted.aupr_id, wanted.fpr95, wanted.correlation]
    assert values == pytest.approx(expected, nan_ok=True, abs=1e-9)


def answers(estimator, task=None, **options):
    task = task or made(2)
    return ask(estimator, task, task.split("test"), **options)


def test_every_stated_shape_is_the_same_prediction():
    wanted = answers(softmax).predictions.log_probs
    second = [
        lambda x: softmax(x)[:, 1],
        lambda x: softmax(x)[:, 1:],
        lambda x: softmax(x)[None],
        lambda x: np.stack([softmax(x)] * 3),
        lambda x: np.stack([softmax(x)[:, 1:]] * 3),
        lambda x: pd.DataFrame(softmax(x)),
        lambda x: softmax(x).tolist(),
        lambda x: softmax(x).astype(np.float16).astype(np.float64) * 0 + softmax(x),
    ]
    for estimator in second:
        found = answers(estimator, batch=16).predictions
        assert found.log_probs == pytest.approx(wanted, abs=1e-6)
    logs = answers(lambda x: np.log(softmax(x)), values="log_probs").predictions
    raw = answers(lambda x: x, values="logits").predictions
    odds = answers(lambda x: x[:, 1] - x[:, 0], values="logits").predictions
    for found in (logs, raw, odds):
        assert found.log_probs == pytest.approx(wanted, abs=1e-6)
    samples = answers(lambda x: np.stack([softmax(x), softmax(2 * x)])).predictions
    inputs = made(2).split("test").data.inputs
    assert samples.samples == 2
    assert samples.probs == pytest.approx((softmax(inputs) + softmax(2 * inputs)) / 2, abs=1e-6)


def set_at(p, row, column, value):
    p = p.copy()
    p[row, column] = value
    return p


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (lambda x: softmax(x)[:-1], r"split 'test', rows 0 to 15: .* \[16\], \[16, 1\], \[16, 2\]"),
        (lambda x: softmax(x).T, r"given \[2, 16\]"),
        (lambda x: np.stack([softmax(x)] * 3, axis=1), r"\[S, 16, 2\]; given \[16, 3, 2\]"),
        (lambda x: np.stack([softmax(x)] * 16, axis=1), "asked about one row fewer"),
        (lambda x: np.ones((len(x), 3)) / 3, r"given \[16, 3\]"),
        (lambda x: set_at(softmax(x), 3, 1, np.nan), "probs on split 'test' .* row 3, column 1 is nan"),
        (lambda x: x, "probs on split 'test' must lie between 0 and 1; row"),
        (lambda x: softmax(x) * 0.9, "every row must sum to one within 0.001; row 0"),
        (lambda x: softmax(x)[:, 1] * 3, "must lie between 0 and 1; row .*, column 0"),
        (lambda x: softmax(x) > 0.5, "must be numbers; given an array of type bool"),
        (lambda x: [object()] * len(x), "must be numbers"),
        (lambda x: np.stack([softmax(x)] * (2 if len(x) == 16 else 3)), "rows 32 to 39: .* 3 samples, .* 2"),
        (lambda x: (softmax(x), x[:, 0]) if len(x) == 16 else softmax(x), "every batch, or for none"),
        (lambda x: (softmax(x), x), r"uncertainty: must have shape \[16\] or \[16, 1\]; given \[16, 2\]"),
        (lambda x: (softmax(x), set_at(x, 4, 0, np.inf)[:, 0]), "uncertainty must be finite; row 4, column 0 is inf"),
        (lambda x: (softmax(x), x, x), "tuple of 3"),
        (3, "an estimator must be a function .* given a int"),
    ],
)  # fmt: skip
def test_what_cannot_be_predictions_is_refused_by_place(estimator, words):
    with pytest.raises(UserError, match=words):
        answers(estimator, batch=16)


def test_as_many_samples_as_rows_is_no_trouble():
    found = answers(lambda x: np.stack([softmax(x * (1 + s / 20)) for s in range(40)]), batch=40)
    assert found.predictions.samples == 40


def test_an_estimators_own_fault_keeps_its_kind_and_says_where():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        answers(broken)
    assert caught.value.__notes__ == ["(while asking about split 'test', rows 0 to 39)"]


def test_tensors_of_any_framework_become_arrays():
    torch = pytest.importorskip("torch")
    numbers = np.array([0.25, 0.5], dtype=np.float32)

    class OnlyDlpack:
        def __dlpack__(self, **options):
            return numbers.__dlpack__(**options)

        def __dlpack_device__(self):
            return numbers.__dlpack_device__()

    class Array:
        def __array__(self, dtype=None, copy=None):
            return numbers

    for value in (
        torch.tensor(numbers, requires_grad=True),
        torch.tensor(numbers).bfloat16(),
        OnlyDlpack(),
        Array(),
        pd.Series(numbers),
        list(numbers),
    ):
        assert to_numpy(value, "it").tolist() == [0.25, 0.5]
    with pytest.raises(UserError, match="it must be numbers"):
        to_numpy("half", "it")


def test_columns_of_a_classifier_go_by_its_classes():
    task = made(3)
    x, y = Bench(task).train
    whole = LogisticRegression().fit(x, y)
    named = LogisticRegression().fit(x, np.array(["c", "b", "a"])[2 - y])  # a, b, c again, as names
    assert answers(named, task).predictions.probs == pytest.approx(answers(whole, task).predictions.probs)
    part = LogisticRegression().fit(x[y != 1], y[y != 1])
    found = answers(part, task).predictions.probs
    assert (found[:, 1] == 0).all()
    assert found[:, [0, 2]] == pytest.approx(part.predict_proba(task.split("test").data.inputs), abs=1e-6)
    stranger = LogisticRegression().fit(x, np.array(["x", "y", "z"])[y])
    with pytest.raises(UserError, match="classes_ must be indices from 0 to 2 or names"):
        answers(stranger, task)
    several = SimpleNamespace(predict_proba=lambda x: [np.ones((len(x), 2)) / 2] * 3)
    with pytest.raises(UserError, match="gave a list"):
        answers(several, task)


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


def test_the_baselines_are_the_class_shares_and_a_flat_curve(cancer, logistic):
    ready = cancer.baselines()
    assert set(ready) == {"class prior", "random referral"}
    prior = cancer.evaluate(ready["class prior"], replicates=0)
    share = np.bincount(cancer.train.labels) / len(cancer.train.labels)
    assert prior.answers["test"].predictions.probs[0] == pytest.approx(share)
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
    systems = {name: found.scores[name].answers["test"].predictions for name in ("mine", "weak", "class prior")}
    wanted = side_by_side(systems, [dubio.metrics.naming.metric_named("accuracy")], replicates=100, seed=2)
    assert found.verdicts["test"]["accuracy"] == wanted.verdicts["accuracy"]
    assert {verdict.better for verdict in found.verdicts["test"]["accuracy"]} <= {"mine", "weak", None}
    pairs = [row for row in found.pairs if row["metric"] == 'au_arc(quantity="own")']
    assert [(row["first"], row["second"]) for row in pairs] == [
        ("mine", "weak"), ("mine", "class prior"), ("weak", "class prior"),
    ]  # fmt: skip
    assert [row["adjusted_p"] for row in pairs] == pytest.approx(holm([row["p"] for row in pairs]))
    areas = {name: au_arc(each, quantity="predictive_entropy") for name, each in systems.items()}
    assert pairs[0]["difference"] == pytest.approx(areas["mine"] - areas["weak"])
    gains = found.gains["test"]
    assert gains["mine"].value == pytest.approx(areas["mine"] - found.scores["mine"]["accuracy"])
    assert gains["mine"].told
    assert (gains["class prior"].value, gains["class prior"].told) == (0, False)
    assert found.scores["random referral"].notes == ("the predictions are those of mine",)
    assert found.scores["random referral"]["accuracy"] == found.scores["mine"]["accuracy"]
    assert json.loads(found.to_json())["gains"]["test"]["mine"]["told"] is True
    assert "better than random" in str(found)
    assert {row["system"] for row in found.table} == set(found.scores)


def test_two_systems_that_are_one_are_not_told_apart():
    bench = Bench(made(3, group=True))
    both = bench.compare({"one": softmax, "two": lambda x: x}, values={"two": "logits"}, replicates=40)
    assert {row["better"] for row in both.pairs} == {None}
    assert 'ood_auroc(quantity="own")' in both.verdicts["far"]
    assert "far" not in both.gains
    with pytest.raises(UnknownName, match="Did you mean 'two'"):
        bench.compare({"one": softmax, "two": softmax}, values={"tvo": "logits"})
    with pytest.raises(UserError, match="needs a system beside the control"):
        bench.compare({"chance": RandomReferral()})


def test_multilabel_tasks_are_scored_too():
    bench = Bench(made(3, target="multilabel"))
    found = bench.evaluate(lambda x: (sigmoid(4 * (x - 0.7)), -np.abs(x - 0.7).min(1)), replicates=10)
    assert found["accuracy"] == 1
    assert found.referral()[0].auc is None
    assert 'ood_auroc(quantity="given")' in found.on("far").scores
    prior = bench.evaluate(bench.baselines()["class prior"], replicates=0)
    assert prior.answers["test"].predictions.probs[0] == pytest.approx(bench.train.labels.mean(0))


def test_names_are_known_or_the_nearest_is_told(cancer):
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


class Here:
    """An executor that does every job at once, in this process."""

    jobs = 1

    def __init__(self, store):
        from dubio.runner.jobs import Workshop
        from dubio.runner.left import load_left

        self.workshop, self.done = Workshop(store, load_left(), 600), []

    def free(self):
        return 1

    def submit(self, job):
        from dubio.runner.executor import Finished

        self.done.append(Finished(job["id"], self.workshop.do(job, lambda fraction, words: None)))

    def wait(self, seconds):
        ended, self.done = self.done, []
        return ended

    def close(self):
        pass


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A tiny run: two methods on breast cancer, two members, one epoch."""
    pytest.importorskip("torch")
    from dubio.runner import running
    from dubio.runner.benchmark import Benchmark, TaskEntry
    from dubio.runner.executor import WorkerOrders
    from dubio.runner.left import load_left
    from dubio.runner.setting import prepare
    from dubio.store import Store

    wanted = Benchmark(
        "tiny",
        (TaskEntry("breast-cancer", "mlp", training={"epochs": 1}),),
        ("deterministic", "deep-ensemble"),
        (0,),
    )
    with Store.open(tmp_path / "store") as store:
        monkeypatch.setitem(running.EXECUTORS, "here", lambda jobs, orders, logs: Here(store))
        run = running.BenchmarkRun(wanted, prepare(wanted), load_left())
        finish = run.run(store, 1, "here", WorkerOrders(store.path))
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
    assert many.answers["test"].predictions.samples > 1
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


def test_the_pages_example_runs(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "any-framework.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", blocks[0]], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "better than random" in done.stdout
    for block in blocks[1:]:
        compile(block, "any-framework.md", "exec")
