"""Coverage and size of conformal sets as metrics of one set of predictions.

The examples are cut into random halves, each half's sets use the threshold of the other, and the two are averaged by
size, five times: as in test-time cross-validation, since predictions alone come without a calibration split.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from dubio.calibration.conformal import ScoreName, fit_conformal, prediction_sets, summarise_sets
from dubio.calibration.halves import random_halves
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import Metric, Need, Target
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled

REPEATS = 5

_LABELS: frozenset[Need] = frozenset({"labels"})
_TARGETS: frozenset[Target] = frozenset({"multiclass", "ordinal"})


def halved(
    predictions: Predictions, *, figure: Literal["coverage", "size"], alpha: float, score: ScoreName, seed: int = 0
) -> float:
    """Coverage or mean size of sets whose thresholds were fitted on the other half."""
    known = labelled(predictions, f"conformal {figure}")
    total = 0.0
    for half in random_halves(known, repeats=REPEATS, seed=seed):
        for fitted in (half, ~half):
            conformal = fit_conformal(known.take(fitted), alpha=alpha, score=score, seed=seed, allow_selected=True)
            rest = known.take(~fitted)
            summary = summarise_sets(prediction_sets(conformal, rest), rest.labels)
            total += getattr(summary, figure) * float(np.mean(~fitted))
    return total / REPEATS


@metric("conformal_coverage")
def conformal_coverage(*, alpha: float = 0.1, score: ScoreName = "lac") -> Metric:
    """Share of split conformal sets that contain the truth; should be close to 1 − alpha."""
    return Metric(written("conformal_coverage", alpha=(alpha, 0.1), score=(score, "lac")), "higher",
                  partial(halved, figure="coverage", alpha=alpha, score=score), None, _LABELS, _TARGETS,
                  comparable=False,
                  why_not="Every model is set to the same coverage; conformal_set_size tells what it costs.",
                  summary="Share of conformal sets that contain the truth.")


@metric("conformal_set_size")
def conformal_set_size(*, alpha: float = 0.1, score: ScoreName = "lac") -> Metric:
    """Mean number of classes in a split conformal set of coverage 1 − alpha."""
    return Metric(written("conformal_set_size", alpha=(alpha, 0.1), score=(score, "lac")), "lower",
                  partial(halved, figure="size", alpha=alpha, score=score), None, _LABELS, _TARGETS,
                  summary="Mean size of conformal sets.")
