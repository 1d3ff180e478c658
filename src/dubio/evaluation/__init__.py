"""``dubio.evaluate`` and ``dubio.compare``: every metric of a system's predictions, and every pair of systems tested.

The command ``dubio evaluate``, ``dubio.benchmark``, reports and Python all score predictions with
:func:`evaluate_predictions` and test differences with :mod:`dubio.statistics.verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dubio.calibration.recalibration import Recalibration, RecalibrationMethod, fit_recalibration
from dubio.calibration.thresholds import TUNED
from dubio.core import passes
from dubio.core.errors import UserError, check_between_0_and_1
from dubio.core.predictions import Predictions
from dubio.core.types import EmptyDecision, Metric, Target
from dubio.evaluation.preparation import (
    as_predictions,
    impossible_rows,
    is_floored,
    recalibrated,
    threshold_metrics,
    with_empty_decision,
    with_floor,
    with_ood,
)
from dubio.evaluation.results import Evaluation, Score, SystemComparison
from dubio.formats.columns import Roles
from dubio.formats.values import TOLERANCE, Values
from dubio.metrics.decisions import labels_above_half
from dubio.metrics.metric import metric_named, score_each
from dubio.statistics.bootstrap import bootstrap, check_replicates, guarded, units_of
from dubio.statistics.paired import align, in_domain_rows, mcnemar_tests, pair_tests
from dubio.statistics.subgroups import parts_of
from dubio.statistics.verdicts import PairTest

STANDARD = (
    "accuracy", "micro_f1", "macro_f1", "quadratic_kappa", "rps", "class_auroc", "nll", "brier", "calibrated_nll",
    "calibrated_brier", "aurc", "augrc", "misclassification_auroc", "ece", "ece_adaptive", "classwise_ece",
    "ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "generalisation_gap", "diversity", "disagreement",
)  # fmt: skip
"""The metrics computed by default; those that do not apply are left out."""

IN_SUBGROUPS = ("accuracy", "micro_f1", "nll", "brier", "ece", "aurc")
"""The metrics computed for subgroups unless others are requested: those of few rows, and of one distribution."""

REPLICATES = 200
LEVEL = 0.95

NO_LABELS = (
    "labels: no row has one, and no requested metric does without. Name a file of labels with labels (--labels FILE), "
    "or add an array 'labels' (a column 'label') to the predictions; for out-of-distribution detection alone give ood "
    "(--ood)."
)
"""Why nothing can be scored, and what helps."""


def evaluate(
    predictions: Any,
    labels: Any = None,
    *,
    values: Values | None = None,
    ood: Any = None,
    target: Target | None = None,
    empty_decision: EmptyDecision | None = None,
    floor: float | None = None,
    metrics: Sequence[str | Metric] | None = None,
    ids: Any = None,
    group: Any = None,
    member: Any = None,
    by: Sequence[str] = (),
    rows_are_independent: bool = False,
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
        empty_decision: How multi-label rows without a label above its threshold are decided: ``"argmax"``, their most
            probable label, where every row of the training data has a label, or ``"empty"``, none. By default as the
            predictions say, else ``"empty"``.
        floor: For the scores of the likelihood (``nll``, ``calibrated_nll``, …) raise probabilities to this one and
            renormalise, so that none is zero; other scores use them as they are. None leaves them.
        metrics: Names such as ``"ece(bins=10)"``, or metrics; :data:`STANDARD` by default.
        ids: ``[N]`` names of the examples; of a file or a mapping also the name of the column that has them.
        group: ``[N]`` the unit each example belongs to (a patient, a document), or likewise the name of a column; units
            are resampled as a whole.
        member: ``[S]`` which independent fit each sample came from.
        by: Columns of subgroups, such as a site: results for each of their values are in ``subgroups``.
        rows_are_independent: Accept a column that looks like groups and is not used.
        tolerance: How far from one a row of probabilities may sum.
        replicates: Bootstrap replicates for the intervals; 0 for none.
        level: Confidence level of the intervals.
        seed: Seed of the bootstrap.
        threads: Number of threads for passes over the predictions; it does not change the results.

    Raises:
        UserError: When the input cannot be predictions, or a requested metric is unknown.
    """
    columns = {"ids": ids, "group": group, "member": member}
    roles = Roles(_name(group), _name(ids), (by,) if isinstance(by, str) else tuple(by), rows_are_independent)
    with passes.threads(threads):
        own = as_predictions(predictions, labels, values, target, tolerance, columns, roles)
        if ood is not None:
            own = with_ood(own, as_predictions(ood, None, values, target, tolerance, {"member": member}, roles))
        own = with_empty_decision(own, empty_decision)
        options: Any = {"metrics": metrics, "replicates": replicates, "level": level, "seed": seed, "by": roles.by}
        evaluation = evaluate_predictions(own, floor=floor, **options)
        _check_scored(SystemComparison({"value": evaluation}, {}, {}, level))
        return evaluation


def compare(
    systems: Mapping[str, Any],
    labels: Any = None,
    *,
    values: Values | None = None,
    ood: Mapping[str, Any] | None = None,
    target: Target | None = None,
    empty_decision: EmptyDecision | None = None,
    floor: float | None = None,
    metrics: Sequence[str | Metric] | None = None,
    ids: Any = None,
    group: Any = None,
    by: Sequence[str] = (),
    rows_are_independent: bool = False,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> SystemComparison:
    """Score systems on the same examples, and test every pair under every metric that may rank models.

    It is the comparison of ``dubio evaluate A B``, of ``dubio.benchmark`` and of reports, with the same verdicts. To
    rank methods over several data sets, see :func:`dubio.rank_methods`.

    Args:
        systems: Name to predictions, in any form that :func:`evaluate` accepts.
        labels: As for :func:`evaluate`.
        values: As for :func:`evaluate`.
        ood: Name to the same system's predictions on out-of-distribution examples, of every system or of none.
        target: As for :func:`evaluate`.
        empty_decision: As for :func:`evaluate`.
        floor: As for :func:`evaluate`.
        metrics: As for :func:`evaluate`; those that may not rank models are scored and not compared.
        ids: As for :func:`evaluate`. Files and predictions with ids are aligned by them.
        group: As for :func:`evaluate`; groups are the units of the tests too.
        by: As for :func:`evaluate`.
        rows_are_independent: As for :func:`evaluate`.
        replicates: As for :func:`evaluate`; tests under metrics without values per example draw at least 80.
        level: Confidence level of intervals and tests.
        seed: Seed of the bootstrap.

    Raises:
        UserError: For fewer than two systems, systems on different examples, or as for :func:`evaluate`.
    """
    if len(systems) < 2:
        raise UserError(f"a comparison needs at least two systems; given {len(systems)}.")
    if ood is not None and ood.keys() != systems.keys():
        raise UserError(f"ood must name the same systems: {', '.join(systems)}; given {', '.join(ood)}.")
    roles = Roles(_name(group), _name(ids), (by,) if isinstance(by, str) else tuple(by), rows_are_independent)
    options: Any = {"values": values, "target": target, "roles": roles}
    columns = {"ids": ids, "group": group}
    read = {name: as_predictions(systems[name], labels, columns=columns, **options) for name in systems}
    further = [] if ood is None else [{name: as_predictions(ood[name], None, **options) for name in systems}]
    options = {"metrics": metrics, "replicates": replicates, "level": level, "seed": seed, "by": roles.by}
    return evaluate_systems(read, ood=further, empty_decision=empty_decision, floor=floor, **options)


def evaluate_systems(
    systems: Mapping[str, Predictions],
    *,
    ood: Iterable[Mapping[str, Predictions]] = (),
    recalibrations: Mapping[str, Mapping[str, Recalibration]] | None = None,
    validation: Mapping[str, Predictions] | None = None,
    empty_decision: EmptyDecision | None = None,
    floor: float | None = None,
    metrics: Sequence[str | Metric] | None = None,
    further_metrics: Sequence[str | Metric] = (),
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    by: Sequence[str] = (),
) -> SystemComparison:
    """Score one or more systems on the same examples, and test every pair of them.

    Args:
        systems: Name to predictions; they are aligned by their ids.
        ood: Every system's predictions on further sets of examples, all out of distribution.
        recalibrations: System to its recalibrations by name; they are applied to all its predictions, in their order.
        validation: System to multi-label validation predictions. Metrics are also computed at thresholds fitted there.
        empty_decision: As for :func:`evaluate`.
        floor: Likewise.
        metrics: Likewise.
        further_metrics: Computed beside those, such as required ones.
        replicates: Likewise.
        level: Likewise.
        seed: Likewise.
        by: Columns of subgroups, each scored on its own.

    Raises:
        UserError: For systems on different examples, or if none of the requested metrics applies.
    """
    joined, remarks = recalibrated(align(systems), recalibrations or {})
    for examples in ood:
        further, _ = recalibrated(align(examples), recalibrations or {})
        joined = {name: with_ood(own, further[name]) for name, own in joined.items()}
    fitted, _ = recalibrated(validation, recalibrations or {}) if validation else ({}, [])
    evaluations = {}
    for name, own in joined.items():
        own = with_empty_decision(own, empty_decision)
        tuned = threshold_metrics(own, fitted[name]) if validation else ()
        options: Any = {"metrics": metrics, "further_metrics": (*further_metrics, *tuned), "floor": floor, "by": by}
        evaluations[name] = evaluate_predictions(own, replicates=replicates, level=level, seed=seed, **options)
    compared = SystemComparison(evaluations, {}, {}, level, tuple(remarks))
    _check_scored(compared)
    return _with_tests(compared) if len(systems) > 1 else compared


def _check_scored(compared: SystemComparison) -> None:
    """Refuse an evaluation without any score.

    Raises:
        UserError: Saying what is missing.
    """
    if any(own.scores for own in compared.evaluations.values()):
        return
    if all(own.unlabelled == own.rows for own in compared.evaluations.values()):
        raise UserError(NO_LABELS)
    raise UserError(" ".join(compared.reasons))


def _with_tests(compared: SystemComparison) -> SystemComparison:
    """Test every pair of systems under the metrics that were computed for both.

    Decisions at thresholds that were fitted for each system are not compared.
    """
    evaluations = compared.evaluations
    first = next(iter(evaluations.values()))
    metrics = [metric for metric in first.metrics if not metric.name.endswith(TUNED)]
    systems = {name: own.predictions for name, own in evaluations.items()}
    floored = {name: with_floor(own, first.floor) for name, own in systems.items()}
    tests: dict[str, tuple[PairTest, ...]] = {}
    for rows, likelihood in ((systems, False), (floored, True)):
        chosen = [metric for metric in metrics if is_floored(metric, first.floor) == likelihood]
        if chosen:
            tests |= pair_tests(rows, chosen, replicates=first.replicates, seed=first.seed, level=first.level)
    tests = {metric.name: tests[metric.name] for metric in metrics if metric.name in tests}
    return replace(compared, tests=tests, mcnemar=mcnemar_tests(systems))


def _name(column: Any) -> str | None:
    """Return the name of a column where it is named, not given."""
    return column if isinstance(column, str) else None


def evaluate_predictions(
    predictions: Predictions,
    *,
    floor: float | None = None,
    metrics: Sequence[str | Metric] | None = None,
    further_metrics: Sequence[str | Metric] = (),
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    by: Sequence[str] = (),
) -> Evaluation:
    """Score one set of predictions, under further metrics too; other arguments as for :func:`evaluate`."""
    check_replicates(replicates)
    check_between_0_and_1("level", level)
    if seed < 0:
        raise UserError(f"seed must be at least 0; given {seed}.")
    if isinstance(metrics, str):
        raise UserError(f"metrics must be a list of names, such as [{metrics!r}]; given {metrics!r}.")
    requested = _distinct((*(STANDARD if metrics is None else metrics), *further_metrics))
    in_domain, several = in_domain_rows(predictions), predictions.target == "multilabel"
    scores, reasons = _scores(predictions, in_domain, requested, floor, replicates, level, seed)
    raised = tuple(metric.name for metric in requested if metric.name in scores and is_floored(metric, floor))
    infinite = any(math.isinf(score.value) for name, score in scores.items() if name not in raised)
    return Evaluation(
        scores=scores,
        reasons=reasons,
        rows=len(in_domain),
        ood_rows=int(predictions.ood.sum()),
        unlabelled=0 if several else int(np.count_nonzero(in_domain.labels < 0)),
        samples=predictions.samples,
        members=len(np.unique(predictions.member)),
        classes=predictions.class_count,
        target=predictions.target,
        empty_decision=predictions.empty_decision if several else None,
        empty_rows=int((~labels_above_half(in_domain).any(axis=1)).sum()) if several else None,
        floor=floor,
        floored=raised,
        impossible=impossible_rows(predictions) if infinite else (),
        resampled="examples" if predictions.group is None else "groups",
        replicates=replicates,
        level=level,
        seed=seed,
        predictions=predictions,
        metrics=requested,
        subgroups={
            column: {
                value: evaluate_predictions(
                    in_domain.take(rows),
                    floor=floor,
                    metrics=metrics or IN_SUBGROUPS,
                    further_metrics=further_metrics,
                    replicates=replicates,
                    level=level,
                    seed=seed,
                )
                for value, rows in parts_of(in_domain.columns[column]).items()
            }
            for column in by
        },
    )


def _distinct(metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Return metrics, each name once."""
    named = (metric_named(item) if isinstance(item, str) else item for item in metrics)
    return tuple({metric.name: metric for metric in named}.values())


def _scores(
    predictions: Predictions,
    in_domain: Predictions,
    metrics: Sequence[Metric],
    floor: float | None,
    replicates: int,
    level: float,
    seed: int,
) -> tuple[dict[str, Score], dict[str, str]]:
    """Return the scores in the order of the metrics, and why others do not apply.

    Detection is scored on all rows, what the floor changes on in-domain rows with raised probabilities, all else on
    in-domain rows.
    """
    floored = [metric for metric in metrics if is_floored(metric, floor)]
    unfloored = [metric for metric in metrics if not is_floored(metric, floor)]
    detection = [metric for metric in unfloored if "ood" in metric.needs]
    others = [metric for metric in unfloored if "ood" not in metric.needs]
    raised = in_domain_rows(with_floor(predictions, floor))
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    for rows, chosen in ((in_domain, others), (raised, floored), (predictions, detection)):
        own_scores, own_reasons = _score_rows(rows, chosen, replicates, level, seed)
        scores |= own_scores
        reasons |= own_reasons
    return {metric.name: scores[metric.name] for metric in metrics if metric.name in scores}, reasons


def _score_rows(
    predictions: Predictions, metrics: list[Metric], replicates: int, level: float, seed: int
) -> tuple[dict[str, Score], dict[str, str]]:
    """Return the scores of some rows with their intervals, and why other metrics do not apply."""
    values = score_each(predictions, metrics)
    chosen = {name: guarded(values.metrics[name]) for name in values.values}
    nan = float("nan")
    ends = dict.fromkeys(chosen, (nan, nan))
    if replicates and chosen and units_of(predictions).count > 1:
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
    group: str | None = None,
    rows_are_independent: bool = False,
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
        group: The name of a column of groups; a recalibration does not use them, and ignores none unnoticed.
        rows_are_independent: As for :func:`evaluate`.

    Raises:
        UserError: When the input cannot be predictions, has no labels, or has a column that looks like groups.
    """
    roles = Roles(group=group, rows_are_independent=rows_are_independent)
    return fit_recalibration(as_predictions(validation, labels, values, target, roles=roles), method)
