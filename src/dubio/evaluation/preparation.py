"""Predictions made ready to be scored: read from any source, recalibrated, floored, joined with OOD rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dubio.calibration.recalibration import Recalibration, apply_recalibration, fitted_on
from dubio.calibration.thresholds import fit_thresholds, metrics_at
from dubio.core.errors import UserError
from dubio.core.passes import log_softmax, row_blocks
from dubio.core.predictions import Predictions, join
from dubio.core.types import EmptyDecision, Metric, Target
from dubio.formats.arrays import predictions_from_arrays, with_roles
from dubio.formats.columns import Roles
from dubio.formats.predictions import read_labels, read_predictions
from dubio.formats.values import TOLERANCE, Values
from dubio.metrics.scoring import nll


def as_predictions(
    source: Any,
    labels: Any,
    values: Values | None,
    target: Target | None,
    tolerance: float = TOLERANCE,
    columns: Mapping[str, Any] | None = None,
    roles: Roles | None = None,
) -> Predictions:
    """Return predictions from any source that :func:`dubio.evaluate` accepts."""
    roles = roles or Roles()
    own = {name: column for name, column in (columns or {}).items() if not (column is None or isinstance(column, str))}
    if isinstance(source, Predictions | str | Path) and own:
        raise UserError(f"{next(iter(own))} goes with bare arrays; files and Predictions have their own.")
    if isinstance(source, Predictions):
        if labels is not None or (target is not None and target != source.target):
            raise UserError("Predictions have their own labels and target; omit these arguments.")
        return with_roles(source, roles)
    if isinstance(source, str | Path):
        return read_predictions(source, values=values, labels=labels, target=target, tolerance=tolerance, **vars(roles))
    arrays = dict(source) if isinstance(source, Mapping) else {"predictions": source}
    labels = read_labels(labels, roles.ids) if isinstance(labels, str | Path) else labels
    return predictions_from_arrays(
        {**arrays, **own}, values=values, labels=labels, target=target or "multiclass", tolerance=tolerance, roles=roles
    )


def recalibrated(
    systems: Mapping[str, Predictions], recalibrations: Mapping[str, Mapping[str, Recalibration]]
) -> tuple[dict[str, Predictions], list[str]]:
    """Return the systems after their recalibrations, and remarks on these."""
    changed, remarks = dict(systems), []
    for system, own in recalibrations.items():
        for name, recalibration in own.items():
            if fitted_on(recalibration, changed[system]):
                remarks.append(f"caution: {name} was fitted on these predictions of {system}; "
                               "fit it on a validation file for an honest score.")  # fmt: skip
            changed[system] = apply_recalibration(recalibration, changed[system])
            remarks.append(f"{system}: recalibrated with {name} ({recalibration.method}).")
    return changed, remarks


def threshold_metrics(predictions: Predictions, validation: Predictions) -> tuple[Metric, ...]:
    """Return the metrics at the thresholds fitted on validation predictions."""
    problem = "thresholds: validation predictions must have the"
    if validation.class_count != predictions.class_count:
        raise UserError(f"{problem} {predictions.class_count} labels of those that are scored; "
                        f"given {validation.class_count}.")  # fmt: skip
    labels = zip(predictions.classes or (), validation.classes or (), strict=False)
    for number, (own, other) in enumerate(labels, start=1):
        if own != other:
            raise UserError(f"{problem} labels of those that are scored, in their order; label {number} is {own!r} "
                            f"there and {other!r} in validation.")  # fmt: skip
    return tuple(metrics_at(fit_thresholds(validation)))


def with_empty_decision(predictions: Predictions, decision: EmptyDecision | None) -> Predictions:
    """Return the predictions with this decision about multi-label rows without a label; None leaves it."""
    return predictions if decision is None else predictions.with_checked(empty_decision=decision)


def with_ood(predictions: Predictions, ood: Predictions) -> Predictions:
    """Join two sets of predictions, the second flagged as out of distribution."""
    return join([predictions, ood.as_ood()])


def is_floored(metric: Metric, floor: float | None) -> bool:
    """Return whether a metric is computed with the floor: the likelihoods."""
    return floor is not None and metric.likelihood


def with_floor(predictions: Predictions, floor: float | None) -> Predictions:
    """Return predictions whose probabilities are at least nearly a floor ε, so that no likelihood is zero.

    Every sample's probabilities are raised to ε and divided by their sum, p'_k = max(p_k, ε) / Σ_j max(p_j, ε); those
    of labels that do not exclude each other are clipped to [ε, 1 − ε]. None leaves the predictions as they are. Only
    likelihoods are scored so: rows with a confidence above 1 − ε would be tied, and referral and detection depend on
    their order.

    Args:
        predictions: Any predictions.
        floor: ε, above 0 and below the probability of an even guess.

    Raises:
        UserError: For another floor.
    """
    if floor is None:
        return predictions
    several = predictions.target == "multilabel"
    highest = 1 / max(2, 2 if several else predictions.class_count)
    if not isinstance(floor, int | float) or not 0 < floor < highest:
        raise UserError(f"floor (--floor) must lie between 0 and {highest:.3g}, an even guess; given {floor!r}.")
    logits = np.empty(predictions.logits.shape, dtype=np.float32)
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        own = predictions.logits[:, rows].astype(np.float64)
        odds = np.log1p(-floor) - np.log(floor)
        logits[:, rows] = np.clip(own, -odds, odds) if several else np.maximum(log_softmax(own), np.log(floor))
    return predictions.with_checked(logits=logits)


def impossible_rows(predictions: Predictions) -> tuple[str, ...]:
    """Return the labelled rows whose true class has probability zero, by id, else by number from 0.

    Out-of-distribution rows are left out, as from the scores, unless every row is one.
    """
    several = predictions.target == "multilabel"
    rows = np.flatnonzero(np.ones(len(predictions)) if several else predictions.labels >= 0)
    zero = np.isinf(nll.per_example(predictions)) if len(rows) else np.empty(0, dtype=bool)
    rows = rows[zero & (~predictions.ood[rows] | predictions.ood.all())]
    return tuple(map(str, (rows if predictions.ids is None else predictions.ids[rows]).tolist()))
