"""Many metrics of one set of predictions at once, with the reason for every one that does not apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.types import Metric
from dubio.metrics.as_published import SUFFIX
from dubio.metrics.naming import metric_named
from dubio.metrics.needs import why_not_applicable


@dataclass(frozen=True)
class Scores:
    """Values of metrics, and reasons where there is none.

    Attributes:
        metrics: Every metric asked for, by the name it is written with.
        values: Those that apply; NaN is an answer a metric documents (an area without positives, say).
        reasons: Why each of the others does not apply, as a sentence.
    """

    metrics: dict[str, Metric]
    values: dict[str, float]
    reasons: dict[str, str]


def all_metrics() -> tuple[Metric, ...]:
    """Every registered metric with its default arguments, by name, but those that repeat a published mistake."""
    return tuple(metric_named(name) for name in METRICS.names() if not name.endswith(SUFFIX))


def applies(metric: Metric, predictions: Predictions) -> str | None:
    """Why a metric does not apply to these predictions, as a sentence, or None when it does."""
    reason = why_not_applicable(metric, predictions)
    return None if reason is None else f"{metric.name} does not apply: {reason}."


def score_each(predictions: Predictions, metrics: Iterable[Metric | str] | None = None) -> Scores:
    """Compute the metrics that apply and say why the others do not.

    Args:
        predictions: What to score.
        metrics: Metrics, or names such as ``"ece(bins=10)"``; by default all but ``…_as_published``.
    """
    wanted = all_metrics() if metrics is None else tuple(_made(item) for item in metrics)
    values, reasons = {}, {}
    for metric in wanted:
        reason = applies(metric, predictions)
        if reason is None:
            try:
                values[metric.name] = float(metric.compute(predictions))
            except UserError as refusal:
                reason = str(refusal)
        if reason is not None:
            reasons[metric.name] = reason
    return Scores({metric.name: metric for metric in wanted}, values, reasons)


def score(predictions: Predictions, metrics: Iterable[Metric | str] | None = None) -> dict[str, float]:
    """The values of metrics by name.

    Args:
        predictions: What to score.
        metrics: Metrics or their names; by default all that apply, but no ``…_as_published``.

    Raises:
        UserError: When a metric asked for does not apply, with the reason.
    """
    found = score_each(predictions, metrics)
    if metrics is not None and found.reasons:
        raise UserError(next(iter(found.reasons.values())))
    return found.values


def _made(item: Metric | str) -> Metric:
    return metric_named(item) if isinstance(item, str) else item
