"""What is measured on one set of predictions: scores, per-example losses, and the few numbers that figures need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dubio.calibration.cross_validation import calibrated_nll
from dubio.errors import UserError
from dubio.metrics.calibration_error import reliability
from dubio.metrics.decomposition import decompose
from dubio.metrics.needs import why_not_applicable
from dubio.metrics.quantities import applicable_quantities, predictive_entropy, uncertainty
from dubio.metrics.ranking import auroc, average_precision, fpr_at_tpr
from dubio.metrics.referral_curve import FRACTIONS, referral_curve
from dubio.pooling import FloatArray
from dubio.registry import METRICS
from dubio.report.kept import REFERRED_BY, kept_accuracy
from dubio.report.manifest import RunView, TaskView
from dubio.report.results import BINS, DENSITY_EDGES, REJECTED, RETAINED, RunCurves
from dubio.report.words import QUANTITIES
from dubio.types import Metric, Predictions

RANKED_BY = "calibrated_nll"
"""What the report ranks by: log-likelihoods at temperature 1 mostly compare temperatures (P §3.1)."""

IN_DOMAIN = ("accuracy", "nll", "brier", "ece", "aurc", "diversity")
SHIFTED = ("accuracy", "nll")
DETECTION = ("ood_auroc", "ood_aupr", "ood_fpr95")


@dataclass(frozen=True, eq=False)
class Measured:
    """Metric → value, and metric → loss of every labelled example where the metric is such a mean."""

    values: Mapping[str, float]
    losses: Mapping[str, FloatArray]


def metrics_for(names: tuple[str, ...]) -> tuple[Metric, ...]:
    """The metrics of these names, from the registry."""
    return tuple(METRICS.make(name) for name in names)


def in_domain_metrics() -> tuple[Metric, ...]:
    """Everything scored on an in-domain test set, the ranking metric first, those of plugins last."""
    return (calibrated_nll(), *metrics_for(IN_DOMAIN), *plugin_metrics())


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


def detection_name(metric: str, quantity: str) -> str:
    """How a detection metric of a quantity is written, as the registry writes it."""
    made: Metric = METRICS.make(metric, quantity=quantity)
    return made.name


def uncertainties(predictions: Predictions) -> dict[str, FloatArray]:
    """The uncertainties that detection is reported for, higher = more uncertain, where they are defined."""
    known = applicable_quantities(predictions)
    return {name: uncertainty(predictions, name) for name in QUANTITIES if name in known}


def detection(inside: Mapping[str, FloatArray], outside: Mapping[str, FloatArray]) -> dict[str, float]:
    """Detection of the outside rows by every quantity, from the uncertainties of both sides."""
    values: dict[str, float] = {}
    for quantity, ordinary in inside.items():
        scores = np.concatenate([ordinary, outside[quantity]])
        flag = np.repeat([False, True], [len(ordinary), len(outside[quantity])])
        found = auroc(scores, flag), average_precision(scores, flag), fpr_at_tpr(scores, flag)
        values |= {detection_name(metric, quantity): value for metric, value in zip(DETECTION, found, strict=True)}
    return values


def referral_name(metric: str, fraction: float) -> str:
    """How a referral metric at a fraction retained is written, as the registry writes it."""
    made: Metric = METRICS.make(metric, quantity=REFERRED_BY, retained=fraction)
    return made.name


def referral_values(curves: RunCurves) -> dict[str, float]:
    """Accuracy and area under the ROC curve at the fractions retained that enter tables."""
    values = {}
    for fraction in FRACTIONS:
        place = int(np.argmin(np.abs(RETAINED - fraction)))
        values[referral_name("referral_accuracy", fraction)] = float(curves.referral_accuracy[place])
        if curves.referral_auc is not None:
            values[referral_name("referral_auc", fraction)] = float(curves.referral_auc[place])
    return values


def curves_of(task: TaskView, run: RunView, predictions: Predictions) -> RunCurves:
    """The few numbers that figures need of one run on its in-domain test set."""
    known = predictions.labelled
    bins = reliability(known, bins=BINS)
    area = referral_curve(known, quantity=REFERRED_BY, fractions=tuple(RETAINED)).auc if task.binary else None
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


def entropy_shares(task: TaskView, predictions: Predictions) -> FloatArray:
    """Share of examples per bin of predictive entropy, divided by the largest there can be."""
    classes = len(task.classes)
    largest = classes * np.log(2) if task.target == "multilabel" else np.log(classes)
    scaled = np.clip(predictive_entropy(predictions) / largest, 0.0, 1.0)
    counts, _ = np.histogram(scaled, DENSITY_EDGES)
    return np.asarray(counts / counts.sum())
