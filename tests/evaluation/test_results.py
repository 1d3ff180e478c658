"""Results of evaluations: as they print, and as a data frame."""

import json
import math

import dubio
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
