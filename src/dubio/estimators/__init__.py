"""A task as a benchmark for estimators of any framework: exact splits to train on, one call to be judged."""

from dubio.estimators.baselines import ClassPrior, RandomReferral, Stored
from dubio.estimators.bench import Bench, Part, benchmark
from dubio.estimators.comparing import Comparison, Gain
from dubio.estimators.results import Retained, Scores

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
