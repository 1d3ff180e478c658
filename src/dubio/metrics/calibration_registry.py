"""The calibration errors as registered metrics. None of them ranks models, and each says why."""

from __future__ import annotations

from collections.abc import Callable

from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import TARGETS, Metric, Target
from dubio.metrics.calibration_error import ace, classwise_ece, ece, ece_adaptive, ece_pooled, tace
from dubio.metrics.naming import written
from dubio.metrics.smooth_calibration import ece_smooth

WHY_NOT = (
    "Calibration errors depend on the binning and are estimated with a bias that differs between models; "
    "compare calibrated_nll or brier instead."
)


def _error(name: str, compute: Callable[[Predictions], float], summary: str, *targets: Target) -> Metric:
    return Metric(
        name,
        "lower",
        compute,
        needs=frozenset({"labels"}),
        targets=frozenset(targets or TARGETS),
        comparable=False,
        why_not=WHY_NOT,
        summary=summary,
        interval="centred",  # resampled rows add noise, which the absolute value of every bin turns into bias
    )


@metric("ece")
def ece_metric(*, bins: int = 15) -> Metric:
    """Expected calibration error, equal-width right-closed bins."""
    return _error(written("ece", bins=(bins, 15)), lambda p: ece(p, bins=bins), "Confidence against accuracy, in bins.")


@metric("ece_pooled")
def ece_pooled_metric(*, bins: int = 15) -> Metric:
    """Multi-label calibration error with all decisions in the same bins."""
    return _error(
        written("ece_pooled", bins=(bins, 15)),
        lambda p: ece_pooled(p, bins=bins),
        "Calibration error of all decisions together.",
        "multilabel",
    )


@metric("ece_adaptive")
def ece_adaptive_metric(*, bins: int = 15) -> Metric:
    """Expected calibration error, bins of equal mass."""
    return _error(
        written("ece_adaptive", bins=(bins, 15)),
        lambda p: ece_adaptive(p, bins=bins),
        "Confidence against accuracy, in bins of equal mass.",
    )


@metric("ece_smooth")
def ece_smooth_metric() -> Metric:
    """Smooth calibration error: a kernel in place of bins."""
    return _error("ece_smooth", ece_smooth, "Confidence against accuracy, smoothed by a kernel.")


@metric("classwise_ece")
def classwise_ece_metric(*, bins: int = 15) -> Metric:
    """Calibration error of every class's probability, equal-width bins."""
    return _error(
        written("classwise_ece", bins=(bins, 15)),
        lambda p: classwise_ece(p, bins=bins),
        "Calibration error of every class, averaged.",
    )


@metric("sce")
def sce_metric(*, bins: int = 15) -> Metric:
    """Static calibration error: another name of classwise_ece."""
    return _error(
        written("sce", bins=(bins, 15)), lambda p: classwise_ece(p, bins=bins), "Another name of classwise_ece."
    )


@metric("ace")
def ace_metric(*, bins: int = 15) -> Metric:
    """Adaptive calibration error: every class's probability, bins of equal mass."""
    return _error(
        written("ace", bins=(bins, 15)),
        lambda p: ace(p, bins=bins),
        "Calibration error of every class, bins of equal mass.",
    )


@metric("tace")
def tace_metric(*, bins: int = 15, threshold: float = 1e-3) -> Metric:
    """Thresholded adaptive calibration error."""
    return _error(
        written("tace", bins=(bins, 15), threshold=(threshold, 1e-3)),
        lambda p: tace(p, bins=bins, threshold=threshold),
        "As ace, over probabilities above a threshold.",
    )
