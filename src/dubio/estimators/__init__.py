"""A task as a benchmark for estimators of any framework: its splits to train on, and one call that scores them."""

from dubio.estimators.baselines import ClassPrior, RandomReferral, Stored
from dubio.estimators.comparison import EstimatorComparison, Gain
from dubio.estimators.estimator_benchmark import EstimatorBenchmark, SplitData, benchmark
from dubio.estimators.scores import EstimatorScores, Retained, SplitScores

__all__ = [
    "ClassPrior", "EstimatorBenchmark", "EstimatorComparison", "EstimatorScores", "Gain", "RandomReferral", "Retained",
    "SplitData", "SplitScores", "Stored", "benchmark",
]  # fmt: skip
