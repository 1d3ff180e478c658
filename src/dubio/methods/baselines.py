"""Plain baselines, which join every comparison: class frequencies, a linear model, boosted trees.

A method whose training is costly should beat them. They take the same splits as the other methods, and seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dubio.core.registry import method
from dubio.core.specs import part
from dubio.methods.boosted_trees import BoostedTrees
from dubio.methods.estimator import Estimator, EstimatorRecipe
from dubio.methods.logistic_regression import LogisticRegression


@part("class-frequencies")
@dataclass(frozen=True)
class ClassFrequencies(Estimator):
    """The frequency of every class (label) in the training split, whatever the input."""

    fits_classes: ClassVar[bool] = False


@method("prior", family="baseline", colour=17, role="baseline", trainings_vary=False)
def prior() -> EstimatorRecipe:
    """The class frequencies of the training split, whatever the input."""
    return EstimatorRecipe(ClassFrequencies(), "prior", "Class frequencies")


@method("linear", family="baseline", colour=18, role="baseline", trainings_vary=False)
def linear() -> EstimatorRecipe:
    """Logistic regression: on TF-IDF weights of texts, on columns of tables, on pixels of images."""
    return EstimatorRecipe(LogisticRegression(), "linear", "Linear")


@method("boosting", family="baseline", colour=19, role="baseline", inputs=("table",), trainings_vary=False)
def boosting(*, rounds: int = 100) -> EstimatorRecipe:
    """Gradient boosting of trees, for tables."""
    return EstimatorRecipe(BoostedTrees(rounds), "boosting", "Boosted trees")
