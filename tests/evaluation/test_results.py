"""Results of evaluations: as they print, and as a data frame."""

import json
import math
from dataclasses import replace

import numpy as np

import dubio
from dubio.calibration.cross_validation import BY_POSITION
from dubio.estimators import EstimatorBenchmark
from dubio.metrics.metric import metric_named
from tests.estimators.helpers import SYSTEMS, make_task


def test_a_comparison_prints_and_gives_a_data_frame():
    task = make_task(3, rows=60)
    compared = EstimatorBenchmark(task).compare(SYSTEMS, replicates=20, splits=[])
    python = dubio.compare({name: own.predictions["test"] for name, own in compared.scores.items()}, replicates=20)
    assert isinstance(python, dubio.SystemComparison)
    frame = python.to_frame()
    assert {
        "metric",
        "first",
        "second",
        "difference",
        "error",
        "freedom",
        "low",
        "high",
        "p",
        "adjusted_p",
        "resolves",
        "better",
    } == set(frame)
    assert set(frame["metric"]) == set(python.tests)
    assert len(frame) == 3 * len(python.tests)
    text = str(python)
    assert python.as_dict()["question"] == json.loads(compared.to_json())["question"] == "systems"
    for words in ("sharp − rough", "accuracy ↑", "significant", "these trained systems"):
        assert words in text
    evaluation = python.evaluations["sharp"]
    assert set(evaluation.to_frame()["metric"]) == set(evaluation.scores)
    assert "accuracy ↑" in str(evaluation) == repr(evaluation)
    assert all(math.isfinite(error) for error in frame["error"])


def test_scores_by_halves_say_where_rows_have_no_ids():
    given = {"probs": [[0.2, 0.8], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]], "labels": [1, 0, 0, 0]}
    options = {"metrics": ["calibrated_nll"], "replicates": 0}
    assert BY_POSITION in str(dubio.evaluate(given, **options))
    assert BY_POSITION not in str(dubio.evaluate(given, metrics=["nll"], replicates=0))
    assert "change with the order of rows" in BY_POSITION
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.ones(2), 600), rng.integers(0, 2, 600)
    orders = (np.arange(600), np.argsort(labels))
    ordered = [dubio.evaluate({"probs": probs[order], "labels": labels[order]}, **options) for order in orders]
    first, second = (result.scores["calibrated_nll"].value for result in ordered)
    assert first != second
    ood = {"probs": [[0.5, 0.5]], "labels": [-1], "ids": ["e"], "group": ["f"]}
    assert BY_POSITION in str(dubio.evaluate(given, ood=ood, **options))
    for names in ({"ids": list("abcd")}, {"group": list("aabb")}):
        assert BY_POSITION not in str(dubio.evaluate(given, **options, **names))


def test_one_row_is_counted_in_the_singular():
    for rows, said in ((1, "1 row, 2 classes, "), (2, "2 rows, 2 classes, ")):
        result = dubio.evaluate({"probs": [[0.9, 0.1]] * rows, "labels": [0] * rows}, metrics=["nll"], replicates=0)
        assert said in repr(result)


def log_scores(likelihood):
    """The NLL as a plugin writes it, which says or does not say that it is a likelihood."""
    own = metric_named("nll")
    return replace(own, name="log-score", likelihood=likelihood)


def test_a_floor_names_what_it_acts_on_and_what_stays_infinite():
    """The note said that likelihoods were floored, whatever a plugin's metric was declared as."""
    labels, probs = np.array([0, 1] * 20), np.full((40, 2), 0.5)
    probs[0] = [0.0, 1.0]
    given = {"probs": probs, "labels": labels}
    options = {"replicates": 0, "floor": 1e-6}
    of_plugin = dubio.evaluate(given, metrics=["nll", log_scores(likelihood=False), "brier"], **options)
    assert of_plugin.floored == ("nll",)
    assert (of_plugin["log-score"], of_plugin.impossible) == (math.inf, ("0",))
    text = str(of_plugin)
    assert "For nll probabilities were raised to 1e-06" in text
    assert "log-score infinite although --floor was given" in text
    assert "@metric(…, likelihood=True)" in text
    assert "--floor 1e-6 raises" not in text
    declared = dubio.evaluate(given, metrics=["nll", log_scores(likelihood=True)], **options)
    floored = 1e-6 / (1 + 1e-6)
    assert declared["log-score"] == declared["nll"]
    assert abs(declared["nll"] - (39 * math.log(2) - math.log(floored)) / 40) < 1e-6
    assert "For nll, log-score probabilities were raised" in str(declared)
    assert "infinite" not in str(declared)
    assert "for no metric: none of these is a likelihood" in str(dubio.evaluate(given, metrics=["brier"], **options))
    plain = dubio.evaluate(given, metrics=["nll"], replicates=0)
    assert plain.floored == ()
    assert "although" not in str(plain)
    assert "--floor 1e-6 raises such probabilities." in str(plain)


def test_copies_of_a_system_make_no_verdict_stricter():
    """Of dubio.compare, as of dubio evaluate: p of two systems was 0.015, and 0.045 beside a copy of one."""
    rng, labels = np.random.default_rng(5), np.random.default_rng(4).integers(0, 3, 300)
    logits = [rng.normal(size=(300, 3)) + skill * np.eye(3)[labels] for skill in (1.5, 1.2)]
    options = {"values": "logits", "metrics": ["brier", "nll", "aurc"], "replicates": 40, "floor": 1e-6}
    two = dict(zip("ab", logits, strict=True))
    alone = dubio.compare(two, labels, **options).tests
    beside = dubio.compare(two | {"copy": logits[0].copy(), "copy 2": logits[1].copy()}, labels, **options).tests
    for metric, tests in alone.items():
        assert [test for test in beside[metric] if {test.first, test.second} == {"a", "b"}] == list(tests)


def test_a_pair_without_a_test_is_not_judged():
    """It read "not significantly different", with (+nan, +nan) for an interval and inf for what is detectable."""
    labels, rng = np.r_[1, np.zeros(29, dtype=int)], np.random.default_rng(0)
    systems = {name: {"logits": rng.normal(size=(30, 2)), "labels": labels} for name in "ab"}
    lines = repr(dubio.compare(systems, metrics=["accuracy", "class_auroc"])).splitlines()
    (judged,) = (line for line in lines if line.startswith("accuracy") and "a − b" in line)
    (single,) = (line for line in lines if line.startswith("class_auroc") and "a − b" in line)
    assert [("not judged" in line, "nan" in line) for line in (single, judged)] == [(True, False), (False, False)]
    assert "Not judged: too few examples, groups or rows of a class for a test." in lines
