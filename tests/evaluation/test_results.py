"""Results of evaluations: as they print, and as a data frame."""

import json
import math

import numpy as np

import dubio
from dubio.calibration.cross_validation import BY_POSITION
from dubio.estimators import EstimatorBenchmark
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
