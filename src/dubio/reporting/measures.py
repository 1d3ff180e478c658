"""Measure one set of predictions: scores, per-example losses, detection, and scores at fractions retained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np

from dubio.calibration.cross_validation import calibrated_nll
from dubio.calibration.temperature import evidence_of
from dubio.calibration.thresholds import TUNED, fit_thresholds, metrics_at
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.types import Direction, FloatArray, Metric
from dubio.evaluation import evaluate_predictions
from dubio.metrics.areas import retained_count
from dubio.metrics.calibration_error import ece
from dubio.metrics.detection import detection_of
from dubio.metrics.quantities import QUANTITIES, applicable_quantities, uncertainty
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.metrics.requirements import why_not_applicable
from dubio.metrics.selective import rejection_curve
from dubio.reporting.manifest_view import MethodRun, Source, SplitView, TaskView

RANKED_BY = "calibrated_nll"
"""The metric that ranks: log-likelihoods at temperature 1 mostly compare temperatures (P §3.1)."""

ORDINAL = ("quadratic_kappa", "rps", "auc_from_grade")
"""Metrics of ordinal classes alone."""

IN_DOMAIN = ("accuracy", "macro_f1", "micro_f1", *ORDINAL, "nll", "brier", "ece", "aurc", "diversity")
SHIFTED = ("accuracy", "nll")
DETECTION = {
    "ood_auroc": "auroc", "ood_aupr": "aupr_ood", "id_aupr": "aupr_id", "ood_fpr95": "fpr95",
    "ood_correlation": "correlation",
}  # fmt: skip
"""Detection metric → the figure of :class:`~dubio.metrics.detection.Detection` that it is."""

DETECTED_BY = tuple(name for name in QUANTITIES if name != "random")
"""The uncertainty quantities that detection is scored for."""

HEADLINE = "confidence"
"""The quantity that detection is reported for first."""

GAP = "generalisation_gap"
"""In-domain accuracy minus accuracy under shift."""

AT_IN_DOMAIN_TEMPERATURE = "nll_at_in_domain_temperature"
"""NLL at the temperature fitted on the in-domain test set."""

REFERRED_BY = "predictive_entropy"

RETAINED_SHARE = 0.8
"""The share retained that sentences on referral are about."""

ACCURACY_CHANGE = "accuracy_change"
"""What referral of the other rows changes of the accuracy: values per example that no table shows."""
"""The quantity by which examples are referred."""

RETAINED = np.arange(50, 101) / 100
"""Fractions retained of referral curves."""

REJECTED = np.arange(96) / 100
"""Fractions rejected of accuracy–rejection curves."""

AT_THRESHOLDS = tuple(f"{name}{TUNED}" for name in ("accuracy", "micro_f1", "macro_f1"))
"""Multi-label scores at each label's best threshold on the validation set; higher is better."""

IN_DOMAIN_COLUMNS = (
    RANKED_BY, "accuracy", "macro_f1", "micro_f1", *ORDINAL, *AT_THRESHOLDS, "brier", "aurc", "nll", "ece", "diversity",
)  # fmt: skip
"""The metrics of the in-domain table: those that rank first, then those that must not."""


def at_thresholds(store: Source, task: TaskView, run: MethodRun, predictions: Predictions) -> dict[str, float]:
    """Return scores at the thresholds fitted on the run's validation predictions, where the benchmark asks for them.

    Raises:
        DubioError: When those cannot be read.
    """
    if task.thresholds != "validation" or task.target != "multilabel":
        return {}
    if not (splits := task.of_kind("val")):
        raise UserError(f'thresholds = "validation" needs a validation split; task {task.name} has none.')
    fitted = fit_thresholds(task.read(store, run, splits[0]))
    return {metric.name: metric.compute(predictions) for metric in metrics_at(fitted)}


def metrics_for(names: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return the metrics of these names."""
    return tuple(METRICS.make(name) for name in names)


def in_domain_metrics() -> tuple[Metric, ...]:
    """Return every metric of the in-domain test set, the ranking metric first, those of plugins last."""
    return (calibrated_nll.metric(), *metrics_for(IN_DOMAIN), *plugin_metrics())


def plugin_metrics() -> tuple[Metric, ...]:
    """Return the metrics that plugins have registered and that need no arguments, by name."""
    plugins = [entry for entry in METRICS.entries() if entry.origin.partition(".")[0] != "dubio"]
    return tuple(entry.factory() for entry in plugins if entry.defaults().keys() == entry.parameters().keys())


def measure(metrics: tuple[Metric, ...], predictions: Predictions) -> dict[str, float]:
    """Evaluate the metrics that apply to such predictions; NaN where one refuses these, as for too few examples."""
    scores = evaluate_predictions(predictions, metrics=metrics, replicates=0).scores
    applicable = [metric.name for metric in metrics if why_not_applicable(metric, predictions) is None]
    return {name: scores[name].value if name in scores else math.nan for name in applicable}


def values_per_example(
    metrics: tuple[Metric, ...], predictions: Predictions, values: Mapping[str, float]
) -> dict[str, FloatArray]:
    """Return metric → the value of every labelled example, of the metrics that may rank and have such values."""
    return {
        metric.name: metric.per_example(predictions)
        for metric in metrics
        if metric.per_example is not None and metric.comparable and not math.isnan(values.get(metric.name, math.nan))
    }


@cache
def detection_name(metric: str, quantity: str) -> str:
    """Return the name of a detection metric by a quantity."""
    metric_object: Metric = METRICS.make(metric, quantity=quantity)
    return metric_object.name


def own_quantities(predictions: Predictions) -> tuple[str, ...]:
    """Return the system's own uncertainties, such as the confidence that a language model states."""
    return tuple(name for name in predictions.scores if name not in QUANTITIES)


def own_metrics(quantities: Iterable[str]) -> tuple[Metric, ...]:
    """Return AURC by a system's own uncertainties."""
    return tuple(METRICS.make("aurc", quantity=name) for name in quantities)


def uncertainties(predictions: Predictions) -> dict[str, FloatArray]:
    """Return the uncertainties that detection is scored for, higher = more uncertain, where they are defined."""
    applicable = applicable_quantities(predictions)
    names = (*DETECTED_BY, *own_quantities(predictions))
    return {name: uncertainty(predictions, name) for name in names if name in applicable}


def detection(inside: Mapping[str, FloatArray], outside: Mapping[str, FloatArray]) -> dict[str, float]:
    """Score the detection of OOD or shifted rows by every quantity, from the uncertainties of both sides.

    The correlation is that of the quantity as it is defined: confidence, which should fall on OOD and shifted examples,
    has a negative one where detection works.
    """
    values: dict[str, float] = {}
    for quantity in (name for name in inside if name in outside):
        scores = np.concatenate([inside[quantity], outside[quantity]])
        ood = np.repeat([False, True], [len(inside[quantity]), len(outside[quantity])])
        figures = detection_of(scores, ood, quantity)
        values |= {detection_name(metric, quantity): getattr(figures, field) for metric, field in DETECTION.items()}
    return values


def referral_name(metric: str, fraction: float) -> str:
    """Return the name of a referral metric at a fraction retained."""
    metric_object: Metric = METRICS.make(metric, quantity=REFERRED_BY, retained=fraction)
    return metric_object.name


def values_at_fractions(accuracy: FloatArray, auc: FloatArray | None) -> dict[str, float]:
    """Return accuracy and AUC at the fractions of the tables, from curves at :data:`RETAINED`."""
    curves = {"referral_accuracy": accuracy} | ({} if auc is None else {"referral_auc": auc})
    nearest = {fraction: int(np.argmin(np.abs(RETAINED - fraction))) for fraction in FRACTIONS}
    return {
        referral_name(metric, fraction): float(curve[index])
        for fraction, index in nearest.items()
        for metric, curve in curves.items()
    }


def retained_accuracy(predictions: Predictions, quantity: str, fractions: FloatArray) -> FloatArray:
    """Return the accuracy of the retained at these fractions."""
    rows = len(predictions)
    retained = retained_count(rows, fractions).astype(np.int64)
    return np.asarray(rejection_curve(predictions, quantity=quantity).accuracy[rows - retained])


def referral_values(task: TaskView, predictions: Predictions) -> dict[str, float]:
    """Return accuracy, and AUC where a task has a positive side, of the retained at the fractions of the tables."""
    if not task.has_positive_side:
        return values_at_fractions(retained_accuracy(predictions.labelled, REFERRED_BY, RETAINED), None)
    curve = referral_curve(predictions.labelled, quantity=REFERRED_BY, fractions=tuple(RETAINED))
    return values_at_fractions(curve.accuracy, curve.auc)


def corrupted_values(
    task: TaskView, split: SplitView, predictions: Predictions, temperature: float | None
) -> dict[str, float]:
    """Return ECE, and NLL at the in-domain temperature, on one severity of a corruption; nothing on other splits.

    A deployed model is not recalibrated when its inputs get worse: NLL is taken at the temperature of the in-domain
    test set, so that methods do not differ by a scale that one number corrects there.
    """
    graded = {level for splits in task.severities.values() for level in splits}
    if split not in graded or not len(predictions.labelled):
        return {}
    values = {"ece": ece(predictions)}
    if temperature is not None:
        values[AT_IN_DOMAIN_TEMPERATURE] = float(evidence_of(predictions).scores(1.0 / temperature).nll.mean())
    return values


def detectors(quantities: Iterable[str]) -> tuple[Metric, ...]:
    """Return every detection metric by some quantities."""
    return tuple(METRICS.make(metric, quantity=quantity) for metric in DETECTION for quantity in quantities)


def directions(metrics: tuple[Metric, ...]) -> dict[str, Direction]:
    """Return which direction is better, for every metric of the long table."""
    better: dict[str, Direction] = {metric.name: metric.better for metric in (*metrics, *detectors(DETECTED_BY))}
    referral = [referral_name(m, fraction) for m in ("referral_accuracy", "referral_auc") for fraction in FRACTIONS]
    return better | {GAP: "lower"} | dict.fromkeys((*AT_THRESHOLDS, *referral), "higher")
