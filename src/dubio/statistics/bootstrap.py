"""The bootstrap over examples or groups: seeded, shared between metrics, written as weights.

A replicate draws as many examples (groups, where given) as there are, with replacement; what counts is how often each
was drawn, so a replicate is a vector of multinomial weights and a metric that is a mean, or that knows its weighted
form, is evaluated for many replicates at once. Every statistic sees the same weights for the same seed: two systems
scored with one seed are scored on the same resampled examples.

Percentile interval: the α/2 and 1 − α/2 quantiles of the replicates. Centred interval: the same, moved so that the
mean of the replicates lies on the estimate; for binned calibration errors, which resampling pushes up (drawn rows are
noisier than rows, and |·| turns noise into bias), so that their percentile interval may leave out the estimate itself.
It says where the same estimator would fall on other test sets of this size, not where the error without bins would. BCa
(Efron 1987) shifts those levels by the bias z₀ = Φ⁻¹(share of replicates below the estimate, ties half) and the
acceleration a = Σd³ / (6 (Σd²)^{3/2}), d the centred leave-one-unit-out estimates; it is offered for means, whose
leave-one-out values need no further pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from dubio.core.errors import UserError, one_of
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, Metric
from dubio.statistics.resampling import Units, Weights, units_of
from dubio.statistics.weighted_forms import weighted_form

Statistic = Callable[[Weights], FloatArray]
"""Weights of some replicates to the value of each."""


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval; the interval is undefined (NaN) where there is one unit only.

    Attributes:
        value: The estimate on the data as they are.
        low: Lower end.
        high: Upper end.
        level: Confidence level.
        error: Standard error: the standard deviation of the replicates.
    """

    value: float
    low: float
    high: float
    level: float
    error: float


def mean_statistic(contributions: FloatArray) -> Statistic:
    """The weighted mean of per-example contributions; infinite where an infinite one was drawn, NaN where both were."""
    finite = np.isfinite(contributions)
    if finite.all():
        return lambda weights: weights.sums(contributions) / weights.totals
    if np.isnan(contributions).any():
        raise UserError(f"contributions must not be NaN; example {int(np.isnan(contributions).argmax())} is.")
    usual = mean_statistic(np.where(finite, contributions, 0.0))
    ends = [(end, (contributions == end).astype(np.float64)) for end in (np.inf, -np.inf)]

    def statistic(weights: Weights) -> FloatArray:
        values = usual(weights)
        with np.errstate(invalid="ignore"):
            for end, rows in ends:
                values += np.where(weights.sums(rows) > 0, end, 0.0)
        return values

    return statistic


def metric_statistic(metric: Metric, predictions: Predictions) -> Statistic:
    """A metric as a function of weights.

    The mean of its contributions where it has them; else its weighted form, where one is known; else the metric
    computed again on the drawn examples of every replicate, which is right for every metric and slow.
    """
    if metric.per_example is not None:
        return mean_statistic(metric.per_example(predictions))
    form = weighted_form(metric, predictions)
    if form is not None:
        return form
    return lambda weights: np.array([metric.compute(predictions.take(rows)) for rows in weights.replicates()])


def replicate(
    statistics: Mapping[str, Statistic], units: Units, *, replicates: int, seed: int
) -> dict[str, FloatArray]:
    """Every statistic on the same replicates.

    Args:
        statistics: By name.
        units: What to resample.
        replicates: How many times.
        seed: Seed of the draws.

    Returns:
        Name to ``[replicates]`` values.
    """
    if replicates < 2:
        raise UserError(f"replicates must be at least 2; given {replicates}.")
    collected: dict[str, list[FloatArray]] = {name: [] for name in statistics}
    for weights in units.weights(replicates, seed):
        for name, statistic in statistics.items():
            collected[name].append(statistic(weights))
    return {name: np.concatenate(values) for name, values in collected.items()}


def percentile_interval(value: float, draws: FloatArray, *, level: float = 0.95) -> Interval:
    """The percentile interval of replicates; replicates on which the metric is undefined are left out."""
    check_level(level)
    known = draws[~np.isnan(draws)]
    if len(known) == 0:
        return Interval(value, np.nan, np.nan, level, np.nan)
    low, high = _quantiles(known, np.array([(1 - level) / 2, (1 + level) / 2]))
    return Interval(value, low, high, level, _spread(known))


def centred_interval(value: float, draws: FloatArray, *, level: float = 0.95) -> Interval:
    """The percentile interval of replicates moved so that their mean is the estimate.

    It does not cross zero where neither the estimate nor any replicate does. An infinite replicate leaves nothing to
    centre: then it is the percentile interval.
    """
    known = draws[~np.isnan(draws)]
    if len(known) == 0 or not np.isfinite(known).all() or not np.isfinite(value):
        return percentile_interval(value, draws, level=level)
    moved = percentile_interval(value, known + (value - known.mean()), level=level)
    if value >= 0 and known.min() >= 0:
        return replace(moved, low=max(moved.low, 0.0))
    return moved


def bca_interval(contributions: FloatArray, units: Units, draws: FloatArray, *, level: float = 0.95) -> Interval:
    """The bias-corrected and accelerated interval of a mean of contributions.

    Args:
        contributions: ``[N]``, finite; their mean is the estimate.
        units: What was resampled.
        draws: The replicates of the mean.
        level: Confidence level.

    Raises:
        UserError: When there are fewer than two units, or a contribution is not finite.
    """
    check_level(level)
    if units.count < 2 or not np.isfinite(contributions).all():
        raise UserError("a BCa interval needs two units or more and finite contributions; use the percentile interval.")
    value = float(contributions.mean())
    sums = np.bincount(units.index, weights=contributions, minlength=units.count)
    sizes = np.bincount(units.index, minlength=units.count)
    left_out = (contributions.sum() - sums) / (len(contributions) - sizes)
    d = left_out.mean() - left_out
    scale = float(np.square(d).sum()) ** 1.5
    acceleration = float((d**3).sum()) / (6.0 * scale) if scale > 0 else 0.0
    share = float((draws < value).mean() + 0.5 * (draws == value).mean())
    bias = float(stats.norm.ppf(np.clip(share, 0.5 / len(draws), 1 - 0.5 / len(draws))))
    z = bias + stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
    low, high = _quantiles(draws, stats.norm.cdf(bias + z / (1 - acceleration * z)))
    return Interval(value, low, high, level, _spread(draws))


def bootstrap(
    metrics: Mapping[str, Metric],
    predictions: Predictions,
    *,
    replicates: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    kind: Literal["percentile", "bca"] = "percentile",
) -> dict[str, Interval]:
    """Confidence intervals of several metrics on one set of predictions, from shared replicates.

    Args:
        metrics: By name.
        predictions: What they score; its groups are what is resampled, where it has any.
        replicates: How many.
        seed: Seed of the draws.
        level: Confidence level.
        kind: Which interval: each metric's own (percentile, or centred where it says so), or ``bca`` for metrics that
            are means of contributions.

    Raises:
        UserError: When BCa is asked for a metric that is no mean.
    """
    one_of("kind", kind, ("percentile", "bca"))
    bases = {name: basis(metric, predictions) for name, metric in metrics.items()}
    result: dict[str, Interval] = {}
    for unlabelled in {base is predictions for base in bases.values()}:
        chosen = {name: metrics[name] for name, base in bases.items() if (base is predictions) == unlabelled}
        base = predictions if unlabelled else predictions.labelled
        units = units_of(base)
        forms = {name: metric_statistic(metric, base) for name, metric in chosen.items()}
        draws = replicate(forms, units, replicates=replicates, seed=seed)
        for name, metric in chosen.items():
            if kind == "percentile":
                form = centred_interval if metric.interval == "centred" else percentile_interval
                result[name] = form(float(metric.compute(base)), draws[name], level=level)
            elif metric.per_example is None:
                raise UserError(f"metric {name!r} is not a mean of contributions: use kind='percentile'.")
            else:
                result[name] = bca_interval(metric.per_example(base), units, draws[name], level=level)
    return {name: result[name] for name in metrics}


def guarded(metric: Metric) -> Metric:
    """The metric, undefined (NaN) on a replicate that happens to lack what it needs, such as a class."""

    def compute(predictions: Predictions) -> float:
        try:
            return metric.compute(predictions)
        except UserError:
            return float("nan")

    return replace(metric, compute=compute)


def resolvable(error: float, *, level: float = 0.95) -> float:
    """The smallest difference that data with this standard error of a difference tell from nothing: z·error."""
    check_level(level)
    return float(stats.norm.ppf((1 + level) / 2)) * error


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0, 1)."""
    if not 0.0 < level < 1.0:
        raise UserError(f"level must lie between 0 and 1; given {level}.")


def basis(metric: Metric, predictions: Predictions) -> Predictions:
    """What a metric is computed on: the labelled examples where it needs labels."""
    return predictions.labelled if "labels" in metric.needs else predictions


def _quantiles(draws: FloatArray, levels: FloatArray) -> tuple[float, float]:
    """Quantiles that stay defined beside infinite replicates: no interpolation with them."""
    if np.isfinite(draws).all():
        low, high = np.quantile(draws, levels)
    else:
        low = np.quantile(draws, levels[0], method="lower")
        high = np.quantile(draws, levels[1], method="higher")
    return float(low), float(high)


def _spread(draws: FloatArray) -> float:
    if len(draws) < 2:
        return float("nan")
    return float(draws.std(ddof=1)) if np.isfinite(draws).all() else float("inf")
