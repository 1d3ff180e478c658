"""``dubio.evaluate``: every metric of one system's predictions, with bootstrap intervals.

The command ``dubio evaluate``, ``dubio.benchmark`` and Python all score predictions with :func:`evaluate_predictions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dubio.calibration.recalibration import Recalibration, RecalibrationMethod, fit_recalibration
from dubio.core import passes
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Metric, Target
from dubio.formats.arrays import predictions_from_arrays
from dubio.formats.predictions import read_predictions
from dubio.formats.values import TOLERANCE, Values
from dubio.metrics.detection import Detection, detect
from dubio.metrics.metric import metric_named, score_each
from dubio.metrics.quantities import applicable_quantities
from dubio.statistics.bootstrap import bootstrap, guarded

STANDARD = (
    "accuracy",
    "micro_f1",
    "macro_f1",
    "quadratic_kappa",
    "rps",
    "class_auroc",
    "nll",
    "brier",
    "calibrated_nll",
    "calibrated_brier",
    "aurc",
    "augrc",
    "misclassification_auroc",
    "ece",
    "ece_adaptive",
    "classwise_ece",
    "ood_auroc",
    "ood_aupr",
    "id_aupr",
    "ood_fpr95",
    "generalisation_gap",
    "diversity",
    "disagreement",
)
"""The metrics computed by default; those that do not apply are left out."""

REPLICATES = 200


@dataclass(frozen=True)
class Score:
    """One metric of one system.

    Attributes:
        value: The value; NaN where the metric documents that it is undefined.
        low: Lower end of the bootstrap interval, NaN where there is none.
        high: Upper end.
        better: Which way is better.
        comparable: Whether it may rank systems.
        why_not: Why it may not, in one sentence.
    """

    value: float
    low: float
    high: float
    better: str
    comparable: bool
    why_not: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of one system's predictions.

    Attributes:
        scores: Metric name to its score. Metrics of detection use all rows; all others the in-distribution rows.
        reasons: Why each other requested metric does not apply, as a sentence.
        rows: In-distribution rows (all rows, where all are out of distribution).
        ood_rows: Out-of-distribution rows.
        unlabelled: In-distribution rows without a label, which label metrics leave out.
        samples: Number of samples per row.
        members: Number of independent fits among the samples.
        classes: Number of classes.
        target: What is predicted.
        resampled: What the bootstrap draws: ``examples`` or ``groups``.
        replicates: Number of bootstrap replicates; 0 for no intervals.
        level: Confidence level of the intervals.
        seed: Seed of the bootstrap.
        predictions: The predictions that were scored.
    """

    scores: dict[str, Score]
    reasons: dict[str, str]
    rows: int
    ood_rows: int
    unlabelled: int
    samples: int
    members: int
    classes: int
    target: Target
    resampled: str
    replicates: int
    level: float
    seed: int
    predictions: Predictions

    def __getitem__(self, metric: str) -> float:
        """Return the value of a metric by name."""
        if metric in self.reasons:
            raise UserError(self.reasons[metric])
        if metric not in self.scores:
            raise UserError(f"metric {metric!r} was not computed; request it with metrics=({metric!r},).")
        return self.scores[metric].value

    @cached_property
    def detection(self) -> dict[str, Detection]:
        """Quantity to every figure of out-of-distribution detection; empty unless there are rows of both kinds."""
        if not self.ood_rows or self.ood_rows == len(self.predictions):
            return {}
        quantities = applicable_quantities(self.predictions)
        return {name: detect(self.predictions, name, seed=self.seed) for name in quantities}

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the predictions as plain values."""
        names = [field.name for field in fields(self) if field.name not in ("predictions", "scores")]
        facts = {name: getattr(self, name) for name in names}
        return {
            **facts,
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "detection": {name: asdict(figures) for name, figures in self.detection.items()},
        }


def evaluate(
    predictions: Any,
    labels: Any = None,
    *,
    values: Values | None = None,
    ood: Any = None,
    target: Target | None = None,
    metrics: Sequence[str | Metric] | None = None,
    ids: Any = None,
    group: Any = None,
    member: Any = None,
    tolerance: float = TOLERANCE,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    threads: int = 1,
) -> Evaluation:
    """Score predictions from any framework.

    Args:
        predictions: :class:`~dubio.core.predictions.Predictions`, the path of a file of predictions, a mapping of named
            arrays, or an array of shape [N, K], [S, N, K] or (binary) [N], of any type with ``__array__``.
        labels: Class indices ``[N]`` (−1: unlabelled) or multi-hot ``[N, K]``, or a file of them.
        values: ``"probs"``, ``"log_probs"`` or ``"logits"``: what a bare array holds.
        ood: Predictions of the same system on out-of-distribution examples, in any of the forms above.
        target: By default that of the file, else ``"multiclass"``.
        metrics: Names such as ``"ece(bins=10)"``, or metrics; :data:`STANDARD` by default.
        ids: ``[N]`` names of the examples.
        group: ``[N]`` the unit each example belongs to (a patient, a document); units are resampled as a whole.
        member: ``[S]`` which independent fit each sample came from.
        tolerance: How far from one a row of probabilities may sum.
        replicates: Bootstrap replicates for the intervals; 0 for none.
        level: Confidence level of the intervals.
        seed: Seed of the bootstrap.
        threads: Number of threads for passes over the predictions; it does not change the results.

    Raises:
        UserError: When the input cannot be predictions, or a requested metric is unknown.
    """
    columns = {"ids": ids, "group": group, "member": member}
    columns = {name: column for name, column in columns.items() if column is not None}
    with passes.threads(threads):
        own = _as_predictions(predictions, labels, values, target, tolerance, columns)
        if ood is not None:
            members = {} if member is None else {"member": member}
            own = with_ood(own, _as_predictions(ood, None, values, target, tolerance, members))
        return evaluate_predictions(own, metrics=metrics, replicates=replicates, level=level, seed=seed)


def with_ood(predictions: Predictions, ood: Predictions) -> Predictions:
    """Join two sets of predictions, the second flagged as out of distribution."""
    return join([predictions, ood.as_ood()])


def _as_predictions(
    source: Any, labels: Any, values: Values | None, target: Target | None, tolerance: float, columns: dict[str, Any]
) -> Predictions:
    if isinstance(source, Predictions | str | Path) and columns:
        raise UserError(f"{next(iter(columns))} goes with bare arrays; files and Predictions have their own.")
    if isinstance(source, Predictions):
        if labels is not None or (target is not None and target != source.target):
            raise UserError("Predictions have their own labels and target; omit these arguments.")
        return source
    if isinstance(source, str | Path):
        return read_predictions(source, values=values, labels=labels, target=target, tolerance=tolerance)
    arrays = dict(source) if isinstance(source, Mapping) else {"predictions": source}
    return predictions_from_arrays(
        {**arrays, **columns}, values=values, labels=labels, target=target or "multiclass", tolerance=tolerance
    )


def evaluate_predictions(
    predictions: Predictions,
    *,
    metrics: Sequence[str | Metric] | None = None,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Score one set of predictions; arguments as for :func:`evaluate`."""
    if replicates < 0 or replicates == 1:
        raise UserError(f"replicates must be 0 (no intervals) or at least 2; given {replicates}.")
    names = STANDARD if metrics is None else metrics
    requested = [metric_named(item) if isinstance(item, str) else item for item in names]
    flagged = int(predictions.ood.sum())
    mixed = 0 < flagged < len(predictions)
    if mixed and predictions.target != "multilabel":
        _ = predictions.summary  # computed once for all rows: the rows taken next inherit it
    in_domain = predictions.take(~predictions.ood) if mixed else predictions
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    for rows, chosen in (
        (in_domain, [metric for metric in requested if "ood" not in metric.needs]),
        (predictions, [metric for metric in requested if "ood" in metric.needs]),
    ):
        own_scores, own_reasons = _score_rows(rows, chosen, replicates, level, seed)
        scores |= own_scores
        reasons |= own_reasons
    unlabelled = 0 if in_domain.target == "multilabel" else int(np.count_nonzero(in_domain.labels < 0))
    return Evaluation(
        {metric.name: scores[metric.name] for metric in requested if metric.name in scores},
        reasons,
        len(in_domain),
        flagged,
        unlabelled,
        predictions.samples,
        len(np.unique(predictions.member)),
        predictions.class_count,
        predictions.target,
        "examples" if predictions.group is None else "groups",
        replicates,
        level,
        seed,
        predictions,
    )


def _score_rows(
    predictions: Predictions, metrics: list[Metric], replicates: int, level: float, seed: int
) -> tuple[dict[str, Score], dict[str, str]]:
    values = score_each(predictions, metrics)
    chosen = {name: guarded(values.metrics[name]) for name in values.values}
    nan = float("nan")
    ends = dict.fromkeys(chosen, (nan, nan))
    if replicates and chosen:
        intervals = bootstrap(chosen, predictions, replicates=replicates, seed=seed, level=level)
        ends = {name: (interval.low, interval.high) for name, interval in intervals.items()}
    scores = {
        name: Score(value, *ends[name], chosen[name].better, chosen[name].comparable, chosen[name].why_not)
        for name, value in values.values.items()
    }
    return scores, values.reasons


def calibrate(
    validation: Any,
    labels: Any = None,
    *,
    method: RecalibrationMethod = "temperature",
    values: Values | None = None,
    target: Target | None = None,
) -> Recalibration:
    """Fit a recalibration to validation predictions from any framework.

    Apply it to other predictions of the same system with :func:`dubio.apply_recalibration`.

    Args:
        validation: Labelled predictions that are not used for scoring, in any form that :func:`evaluate` accepts.
        labels: As for :func:`evaluate`.
        method: ``"temperature"``, ``"vector"`` (a weight and a bias per class) or ``"isotonic"`` (a monotone map per
            class).
        values: As for :func:`evaluate`.
        target: Likewise.

    Raises:
        UserError: When the input cannot be predictions, or has no labels.
    """
    return fit_recalibration(_as_predictions(validation, labels, values, target, TOLERANCE, {}), method)
