"""``dubio.evaluate`` and ``dubio.compare``: every metric of a system's predictions, and every pair of systems tested.

The command ``dubio evaluate``, ``dubio.benchmark``, reports and Python all score predictions with
:func:`evaluate_predictions` and test differences with :mod:`dubio.statistics.verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.calibration.recalibration import Recalibration, RecalibrationMethod, fit_recalibration
from dubio.calibration.thresholds import TUNED
from dubio.core import passes
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Metric, Target
from dubio.formats.arrays import predictions_from_arrays
from dubio.formats.data_frame import data_frame
from dubio.formats.predictions import read_predictions
from dubio.formats.values import TOLERANCE, Values
from dubio.metrics.detection import Detection, detect
from dubio.metrics.metric import metric_named, score_each
from dubio.metrics.quantities import applicable_quantities
from dubio.statistics.bootstrap import bootstrap, guarded
from dubio.statistics.paired import McNemar, align, in_domain_rows, mcnemar_tests, pair_tests
from dubio.statistics.verdicts import PairTest

if TYPE_CHECKING:
    import pandas

STANDARD = (
    "accuracy", "micro_f1", "macro_f1", "quadratic_kappa", "rps", "class_auroc", "nll", "brier", "calibrated_nll",
    "calibrated_brier", "aurc", "augrc", "misclassification_auroc", "ece", "ece_adaptive", "classwise_ece",
    "ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "generalisation_gap", "diversity", "disagreement",
)  # fmt: skip
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


@dataclass(frozen=True, eq=False, repr=False)
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
        metrics: Every requested metric.
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
    metrics: tuple[Metric, ...]

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
        names = [item.name for item in fields(self) if item.name not in ("predictions", "scores", "metrics")]
        return {
            **{name: getattr(self, name) for name in names},
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "detection": {name: asdict(figures) for name, figures in self.detection.items()},
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per metric: value, low, high, better, comparable, why_not.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame({"metric": name, **asdict(score)} for name, score in self.scores.items())

    def __repr__(self) -> str:
        return "\n".join(_score_lines({"value": self}))


@dataclass(frozen=True, eq=False, repr=False)
class SystemComparison:
    """Systems on the same examples: their scores, and every pair tested under every metric that may rank them.

    Attributes:
        evaluations: System to its scores.
        tests: Metric to the test of every pair; those of one metric are corrected together.
        mcnemar: Pair to McNemar's exact test of accuracy; empty where examples come in groups or have no labels.
        level: Confidence level.
    """

    evaluations: Mapping[str, Evaluation]
    tests: Mapping[str, tuple[PairTest, ...]]
    mcnemar: Mapping[tuple[str, str], McNemar]
    level: float

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """One row per metric and pair: difference, interval, p, smallest significant difference, better system."""
        return [{"metric": metric, **asdict(test)} for metric, tests in self.tests.items() for test in tests]

    def as_dict(self) -> dict[str, Any]:
        """Return the pairs as plain values."""
        return {
            "level": self.level,
            "metrics": {metric: [asdict(test) for test in tests] for metric, tests in self.tests.items()},
            "mcnemar": [{"first": one, "second": two, **asdict(test)} for (one, two), test in self.mcnemar.items()],
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return :attr:`pairs` as a data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.pairs)

    def __repr__(self) -> str:
        return "\n".join([*_score_lines(self.evaluations), "", *pair_lines(self.pairs), pairs_remark(self.level)])


def _score_lines(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Return a table with one line per metric and one column per system."""
    first = next(iter(evaluations.values()))
    ood = f" + {first.ood_rows} out of distribution" if 0 < first.ood_rows < len(first.predictions) else ""
    rows = [["metric", *evaluations]]
    for metric in dict.fromkeys(name for own in evaluations.values() for name in own.scores):
        scores = [own.scores.get(metric) for own in evaluations.values()]
        arrow = {"higher": " ↑", "lower": " ↓"}[next(score.better for score in scores if score is not None)]
        rows.append([metric + arrow, *map(score_text, scores)])
    ends = f"; in brackets: {first.level:.0%} bootstrap intervals" if first.replicates else ""
    return [f"{first.rows} rows{ood}, {first.classes} classes, {first.target}{ends}", "", *text_table(rows)]


def pair_lines(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return tested pairs as a table; they have a column ``split`` where they are of several splits."""
    places = [name for name in ("split", "metric") if pairs and name in pairs[0]]
    rows = [[*places, "first − second", "difference", "p (Holm)", "detectable", "verdict"]]
    for pair in pairs:
        verdict = f"{pair['better']} is better" if pair["better"] else "not significantly different"
        interval = f"{pair['difference']:+.3f} ({pair['low']:+.3f}, {pair['high']:+.3f})"
        facts = [interval, f"{pair['adjusted_p']:.3g}", f"{pair['resolves']:.3f}", verdict]
        rows.append([*(pair[name] for name in places), f"{pair['first']} − {pair['second']}", *facts])
    return [*text_table(rows), ""] if pairs else []


def pairs_remark(level: float) -> str:
    """Return how pairs are tested, in one sentence."""
    return (
        "Pairs: paired t-tests on the same examples, p after Holm's correction over the pairs of a metric; a "
        "difference is significant where it exceeds the smallest detectable one, which is where the corrected p is at "
        f"most {1 - level:.2g}. In brackets: {level:.0%} intervals, not corrected."
    )


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, the first row as heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def score_text(score: Score | None) -> str:
    """Return a score with its interval, where it has one."""
    if score is None or math.isnan(score.value):
        return "–" if score is None else "undefined"
    ends = "" if math.isnan(score.low) else f" ({number_text(score.low)}, {number_text(score.high)})"
    return number_text(score.value) + ends


def number_text(value: float) -> str:
    """Return three decimals, or two digits of a small number."""
    return "undefined" if math.isnan(value) else f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"


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
    with passes.threads(threads):
        own = _as_predictions(predictions, labels, values, target, tolerance, columns)
        if ood is not None:
            own = with_ood(own, _as_predictions(ood, None, values, target, tolerance, {"member": member}))
        return evaluate_predictions(own, metrics=metrics, replicates=replicates, level=level, seed=seed)


def compare(
    systems: Mapping[str, Any],
    labels: Any = None,
    *,
    values: Values | None = None,
    ood: Mapping[str, Any] | None = None,
    target: Target | None = None,
    metrics: Sequence[str | Metric] | None = None,
    ids: Any = None,
    group: Any = None,
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
        metrics: As for :func:`evaluate`; those that may not rank models are scored and not compared.
        ids: As for :func:`evaluate`. Files and predictions with ids are aligned by them.
        group: As for :func:`evaluate`; groups are the units of the tests too.
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
    columns = {"ids": ids, "group": group}
    read = align({name: _as_predictions(systems[name], labels, values, target, columns=columns) for name in systems})
    if ood is not None:
        further = align({name: _as_predictions(ood[name], None, values, target) for name in systems})
        read = {name: with_ood(own, further[name]) for name, own in read.items()}
    return compare_evaluations({
        name: evaluate_predictions(own, metrics=metrics, replicates=replicates, level=level, seed=seed)
        for name, own in read.items()
    })  # fmt: skip


def compare_evaluations(evaluations: Mapping[str, Evaluation]) -> SystemComparison:
    """Test every pair of evaluated systems under the metrics that were computed for all of them.

    Decisions at thresholds that were fitted for each system are not compared.
    """
    first = next(iter(evaluations.values()))
    shared = set.intersection(*(set(own.scores) for own in evaluations.values()))
    metrics = [metric for metric in first.metrics if metric.name in shared and not metric.name.endswith(TUNED)]
    systems = {name: own.predictions for name, own in evaluations.items()}
    tests = pair_tests(systems, metrics, replicates=first.replicates, seed=first.seed, level=first.level)
    return SystemComparison(evaluations, tests, mcnemar_tests(systems), first.level)


def with_ood(predictions: Predictions, ood: Predictions) -> Predictions:
    """Join two sets of predictions, the second flagged as out of distribution."""
    return join([predictions, ood.as_ood()])


def _as_predictions(
    source: Any,
    labels: Any,
    values: Values | None,
    target: Target | None,
    tolerance: float = TOLERANCE,
    columns: Mapping[str, Any] | None = None,
) -> Predictions:
    """Return predictions from any source that :func:`evaluate` accepts."""
    own = {name: column for name, column in (columns or {}).items() if column is not None}
    if isinstance(source, Predictions | str | Path) and own:
        raise UserError(f"{next(iter(own))} goes with bare arrays; files and Predictions have their own.")
    if isinstance(source, Predictions):
        if labels is not None or (target is not None and target != source.target):
            raise UserError("Predictions have their own labels and target; omit these arguments.")
        return source
    if isinstance(source, str | Path):
        return read_predictions(source, values=values, labels=labels, target=target, tolerance=tolerance)
    arrays = dict(source) if isinstance(source, Mapping) else {"predictions": source}
    return predictions_from_arrays(
        {**arrays, **own}, values=values, labels=labels, target=target or "multiclass", tolerance=tolerance
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
    requested = tuple(metric_named(item) if isinstance(item, str) else item for item in names)
    in_domain = in_domain_rows(predictions)
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    for ood, rows in ((False, in_domain), (True, predictions)):
        chosen = [metric for metric in requested if ("ood" in metric.needs) == ood]
        own_scores, own_reasons = _score_rows(rows, chosen, replicates, level, seed)
        scores |= own_scores
        reasons |= own_reasons
    return Evaluation(
        scores={metric.name: scores[metric.name] for metric in requested if metric.name in scores},
        reasons=reasons,
        rows=len(in_domain),
        ood_rows=int(predictions.ood.sum()),
        unlabelled=0 if in_domain.target == "multilabel" else int(np.count_nonzero(in_domain.labels < 0)),
        samples=predictions.samples,
        members=len(np.unique(predictions.member)),
        classes=predictions.class_count,
        target=predictions.target,
        resampled="examples" if predictions.group is None else "groups",
        replicates=replicates,
        level=level,
        seed=seed,
        predictions=predictions,
        metrics=requested,
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
    return fit_recalibration(_as_predictions(validation, labels, values, target), method)
