"""A task as a benchmark for estimators of any framework: exact splits to train on, one call to be judged."""

from dubio.benchmarking.baselines import ClassPrior, RandomReferral, Stored
from dubio.benchmarking.bench import Bench, Part, benchmark
from dubio.benchmarking.comparing import Comparison, Gain
from dubio.benchmarking.results import Retained, Scores

__all__ = [
    "Bench",
    "ClassPrior",
    "Comparison",
    "Gain",
    "Part",
    "RandomReferral",
    "Retained",
    "Scores",
    "Stored",
    "benchmark",
]
