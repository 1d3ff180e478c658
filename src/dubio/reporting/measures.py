"""What is measured on one set of predictions: scores, per-example losses, and the few numbers that figures need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from dubio.calibration.cross_validation import calibrated_nll
from dubio.calibration.thresholds import TUNED, fit_thresholds, metrics_at
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.types import Direction, FloatArray, Metric
from dubio.metrics.areas import auroc, average_precision, correlation, fpr_at_tpr
from dubio.metrics.calibration_error import reliability
from dubio.metrics.decomposition import decompose
from dubio.metrics.quantities import QUANTITIES, applicable_quantities, uncertainty
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.metrics.requirements import why_not_applicable
from dubio.reporting.kept import REFERRED_BY, kept_accuracy
from dubio.reporting.manifest_view import MethodRun, Source, TaskView
from dubio.reporting.results import BINS, REJECTED, RETAINED, RunCurves

RANKED_BY = "calibrated_nll"
"""What the report ranks by: log-likelihoods at temperature 1 mostly compare temperatures (P §3.1)."""

ORDINAL = ("quadratic_kappa", "rps", "auc_from_grade")
"""What is measured of grades alone (agreement, ranked probabilities, referable or not)."""
IN_DOMAIN = ("accuracy", "macro_f1", "micro_f1", *ORDINAL, "nll", "brier", "ece", "aurc", "diversity")
SHIFTED = ("accuracy", "nll")
DETECTION = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation")
DETECTED_BY = tuple(name for name in QUANTITIES if name != "random")
"""The uncertainty quantities that detection is scored for."""
HEADLINE = "confidence"
"""The quantity that detection is told by first (T §III-D)."""
GAP = "generalisation_gap"
"""Accuracy at home minus accuracy under shift (T Fig. 4)."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Metric → value, and metric → loss of every labelled example where the metric is such a mean."""

    values: Mapping[str, float]
    losses: Mapping[str, FloatArray]


AT_THRESHOLDS = tuple(f"{name}{TUNED}" for name in ("accuracy", "micro_f1", "macro_f1"))
"""Multi-label scores where validation says each label is cut best; higher is better."""


def at_thresholds(store: Source, task: TaskView, run: MethodRun, predictions: Predictions) -> dict[str, float]:
    """Scores at the thresholds of the run's own validation predictions, where the benchmark asks for them.

    Raises:
        DubioError: When those cannot be read.
    """
    if task.thresholds != "validation" or task.target != "multilabel":
        return {}
    (split, *_) = task.of_kind("val")
    fitted = fit_thresholds(store.read_predictions(run.id, split.name, split.fingerprint))
    return {metric.name: metric.compute(predictions) for metric in metrics_at(fitted)}


def metrics_for(names: tuple[str, ...]) -> tuple[Metric, ...]:
    """The metrics of these names, from the registry."""
    return tuple(METRICS.make(name) for name in names)


def in_domain_metrics() -> tuple[Metric, ...]:
    """Everything scored on an in-domain test set, the ranking metric first, those of plugins last."""
    return (calibrated_nll.metric(), *metrics_for(IN_DOMAIN), *plugin_metrics())


def plugin_metrics() -> tuple[Metric, ...]:
    """The metrics that plugins have registered and that can be made without arguments, by name."""
    foreign = [entry for entry in METRICS.entries() if entry.origin.partition(".")[0] != "dubio"]
    return tuple(entry.factory() for entry in foreign if entry.defaults().keys() == entry.parameters().keys())


def measure(metrics: tuple[Metric, ...], predictions: Predictions) -> Measured:
    """Those of the metrics that are meant for such predictions; NaN where one refuses these (too few examples, say)."""
    values, losses = {}, {}
    for metric in metrics:
        if why_not_applicable(metric, predictions) is not None:
            continue
        try:
            values[metric.name] = metric.compute(predictions)
        except UserError:
            values[metric.name] = math.nan
            continue
        if metric.per_example is not None and metric.comparable:
            losses[metric.name] = metric.per_example(predictions)
    return Measured(values, losses)


@cache
def detection_name(metric: str, quantity: str) -> str:
    """How a detection metric of a quantity is written, as the registry writes it."""
    made: Metric = METRICS.make(metric, quantity=quantity)
    return made.name


def uncertainties(predictions: Predictions) -> dict[str, FloatArray]:
    """The uncertainties that detection is reported for, higher = more uncertain, where they are defined."""
    known = applicable_quantities(predictions)
    return {name: uncertainty(predictions, name) for name in DETECTED_BY if name in known}


def detection(inside: Mapping[str, FloatArray], outside: Mapping[str, FloatArray]) -> dict[str, float]:
    """Detection of the outside rows by every quantity, from the uncertainties of both sides.

    The correlation is that of the quantity as it is defined, so that confidence, which falls where things are strange,
    has a negative one where detection works.
    """
    values: dict[str, float] = {}
    for quantity in (name for name in inside if name in outside):
        scores = np.concatenate([inside[quantity], outside[quantity]])
        flag = np.repeat([False, True], [len(inside[quantity]), len(outside[quantity])])
        sign = 1.0 if QUANTITIES[quantity].higher_is_more_uncertain else -1.0
        found = (
            auroc(scores, flag),
            average_precision(scores, flag),
            average_precision(-scores, ~flag),
            fpr_at_tpr(scores, flag),
            sign * correlation(scores, flag),
        )
        values |= {detection_name(metric, quantity): value for metric, value in zip(DETECTION, found, strict=True)}
    return values


def referral_name(metric: str, fraction: float) -> str:
    """How a referral metric at a fraction retained is written, as the registry writes it."""
    made: Metric = METRICS.make(metric, quantity=REFERRED_BY, retained=fraction)
    return made.name


def referral_values(curves: RunCurves) -> dict[str, float]:
    """Accuracy and area under the ROC curve at the fractions retained that enter tables."""
    return values_at_fractions(curves.referral_accuracy, curves.referral_auc)


def values_at_fractions(accuracy: FloatArray, auc: FloatArray | None) -> dict[str, float]:
    """The same from curves over all fractions."""
    values = {}
    for fraction in FRACTIONS:
        place = int(np.argmin(np.abs(RETAINED - fraction)))
        values[referral_name("referral_accuracy", fraction)] = float(accuracy[place])
        if auc is not None:
            values[referral_name("referral_auc", fraction)] = float(auc[place])
    return values


def curves_of(task: TaskView, run: MethodRun, predictions: Predictions) -> RunCurves:
    """The few numbers that figures need of one run on its in-domain test set."""
    known = predictions.labelled
    bins = reliability(known, bins=BINS)
    area = referral_curve(known, quantity=REFERRED_BY, fractions=tuple(RETAINED)).auc if task.screened else None
    return RunCurves(
        run=run,
        count=bins.count,
        confidence=np.nan_to_num(bins.confidence) * bins.count,
        correct=np.nan_to_num(bins.accuracy) * bins.count,
        rejection=kept_accuracy(known, "confidence", 1.0 - REJECTED),
        referral_accuracy=kept_accuracy(known, REFERRED_BY, RETAINED),
        referral_auc=area,
        variance=_variance_parts(predictions),
    )


def entropy_parts(predictions: Predictions) -> FloatArray:
    """Means over examples of expected entropy and of mutual information, the two parts of predictive entropy."""
    found = decompose(predictions)
    return np.array([found.expected_entropy.mean(), found.mutual_information.mean()])


def _variance_parts(predictions: Predictions) -> FloatArray:
    """Means over examples of the parts of the total variance (T eq. 3)."""
    found = decompose(predictions)
    return np.array([found.expected_variance.mean(), found.within_members.mean(), found.between_members.mean()])


def directions(metrics: tuple[Metric, ...]) -> dict[str, Direction]:
    """Which way is better, for every metric of the long table."""
    better: dict[str, Direction] = {metric.name: metric.better for metric in metrics}
    for metric in DETECTION:
        for quantity in DETECTED_BY:
            made: Metric = METRICS.make(metric, quantity=quantity)
            better[made.name] = made.better
    better |= {GAP: "lower", **dict.fromkeys(AT_THRESHOLDS, "higher")}
    for metric in ("referral_accuracy", "referral_auc"):
        better |= {referral_name(metric, fraction): "higher" for fraction in FRACTIONS}
    return better
