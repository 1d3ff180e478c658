"""What published numbers were made with, where a paper's formula or code is wrong: for reproducing, never for ranking.

Every metric here has a plain counterpart that does the right thing. None is computed or shown unless it is named, and
none may rank models. T is the study of text classification, P the study of ensembling, R the retina benchmark.

===================================  ==============================================================================
``nll_as_published``                 T, multi-label: rows divided by their sum, negatives ignored,
                                     −mean_i Σ_k y_k log(p̄_k / Σ_j p̄_j)
``ece_as_published``                 T: 100 bins
``ood_auroc_as_published``           T: in-distribution rows taken at the *mirrored* places n − 1 − i of the strange
                                     ones i (an index inverted bit by bit)
``ood_aupr_as_published``            T: the same rows, and 1 − average precision of confidence, strange rows positive
``ood_correlation_as_published``     T: absolute; "entropy" is the expected entropy, "model_uncertainty" one of three
``mean_model_uncertainty_as_…``      T: by kind of method √Σ_k Var_s p_k (dropout), mean_k Var_s of the logits
                                     (heteroscedastic), or a variance over *classes* (ensemble): sharpness
``brier_as_published``               P's text: divided by the number of classes
``tace_as_published``                P eq. 2: divided by the number of bins once more
``aurc_as_published``                P: every ⌊n/1000⌋-th coverage summed by trapezoids and divided by 1000, whatever
                                     the number of coverages; defined from 1000 rows, right only where n ≈ 1000 k
===================================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from dubio.core.errors import UserError
from dubio.core.passes import log_sigmoid, log_softmax, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import BoolArray, Direction, FloatArray, Metric, Need, Target
from dubio.metrics.calibration_error import ece, tace
from dubio.metrics.decomposition import decompose
from dubio.metrics.naming import written
from dubio.metrics.needs import labelled, require
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import confidence, doubt, mutual_information
from dubio.metrics.ranking import auroc, average_precision, correlation
from dubio.metrics.scoring import brier
from dubio.metrics.selective import expected_errors

SUFFIX = "_as_published"
WHY_NOT = "It repeats a published mistake, to trace published numbers; use its plain counterpart."

MethodKind = Literal["dropout", "heteroscedastic", "ensemble"]
PublishedQuantity = Literal["confidence", "entropy", "model_uncertainty", "mutual_information"]

STEPS = 1000
"""How many coverages P's code divides by, and meant to sum."""


def published(
    name: str,
    better: Direction,
    compute: Callable[[Predictions], float],
    summary: str,
    *,
    needs: frozenset[Need] = frozenset({"labels"}),
    targets: frozenset[Target] = frozenset({"multiclass", "ordinal"}),
) -> Metric:
    """A metric that ranks nothing."""
    interval: Literal["percentile", "centred"] = "centred" if name.startswith(("ece", "tace")) else "percentile"
    return Metric(name, better, compute, None, needs, targets, False, WHY_NOT, summary=summary, interval=interval)


def nll_as_published(predictions: Predictions) -> float:
    """T, multi-label: −mean_i Σ_k y_k log(p̄_k / Σ_j p̄_j); +inf where a true label has probability zero."""
    known = labelled(predictions, "nll_as_published")
    truth = known.labels.astype(bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(truth, known.log_probs - np.log(known.probs.sum(axis=1, keepdims=True)), 0.0)
    return float(-logs.sum(axis=1).mean())


def mirrored_rows(ood: BoolArray) -> tuple[BoolArray, FloatArray]:
    """(which of the compared rows are strange, the place of each): strange rows i against the rows n − 1 − i."""
    strange = np.flatnonzero(ood)
    places = np.concatenate([len(ood) - 1 - strange, strange])
    return np.arange(len(places)) >= len(strange), places


def ood_auroc_as_published(predictions: Predictions) -> float:
    """T: AUROC by confidence of the strange rows i against the rows n − 1 − i; depends on the order of rows."""
    require(predictions, {"ood"}, "ood_auroc_as_published")
    flag, places = mirrored_rows(predictions.ood)
    return auroc(doubt_of_highest(predictions)[places], flag)


def ood_aupr_as_published(predictions: Predictions) -> float:
    """T: 1 − average precision of *confidence* with strange rows positive, on the rows of the AUROC above."""
    require(predictions, {"ood"}, "ood_aupr_as_published")
    flag, places = mirrored_rows(predictions.ood)
    return 1.0 - average_precision(-doubt_of_highest(predictions)[places], flag)


def doubt_of_highest(predictions: Predictions) -> FloatArray:
    """1 − max_k p̄_k, for several labels too (T's code takes the maximum there as well)."""
    if predictions.target != "multilabel":
        return doubt(predictions)
    highest = predictions.log_probs.argmax(axis=1)[:, None]
    return np.exp(np.take_along_axis(predictions.log_complements, highest, axis=1))[:, 0]


def model_uncertainty_as_published(predictions: Predictions, *, kind: MethodKind) -> FloatArray:
    """T's three quantities of one name, ``[N]``.

    Args:
        predictions: With at least two samples.
        kind: ``dropout``: √Σ_k Var_s p_s,k. ``heteroscedastic``: mean_k Var_s of the logits as they were stored.
            ``ensemble``: mean_s (Var_k p_s,k + (mean_k p_s,k)²) − (mean_k p̄_k)², the variance over classes.
    """
    require(predictions, {"samples"}, "model_uncertainty_as_published")
    if kind == "dropout":
        return np.sqrt(decompose(predictions).sample_variance * predictions.class_count)
    found = np.empty(len(predictions))
    for rows in row_blocks(predictions.samples, len(predictions), predictions.class_count):
        logits = predictions.logits[:, rows].astype(np.float64)
        if kind == "heteroscedastic":
            if not np.isfinite(logits).all():
                raise UserError("model_uncertainty_as_published(kind=heteroscedastic) needs finite logits.")
            found[rows] = logits.var(axis=0).mean(axis=-1)
        else:
            probs = np.exp(log_sigmoid(logits) if predictions.target == "multilabel" else log_softmax(logits))
            spread = probs.var(axis=-1) + probs.mean(axis=-1) ** 2
            found[rows] = spread.mean(axis=0) - probs.mean(axis=(0, -1)) ** 2
    return found


def ood_correlation_as_published(
    predictions: Predictions, *, quantity: PublishedQuantity, kind: MethodKind = "dropout"
) -> float:
    """T Figs 8 and 23: |point-biserial correlation| of a quantity with the flag."""
    require(predictions, {"ood"}, "ood_correlation_as_published")
    if quantity == "model_uncertainty":
        values = model_uncertainty_as_published(predictions, kind=kind)
    elif quantity == "mutual_information":
        require(predictions, {"samples"}, "ood_correlation_as_published")
        values = mutual_information(predictions)
    elif quantity == "entropy":
        values = decompose(predictions).expected_entropy
    else:
        values = confidence(predictions)
    return abs(correlation(values, predictions.ood))


def aurc_as_published(predictions: Predictions) -> float:
    """P: 1 − trapezoids over every ⌊n/1000⌋-th accuracy of the kept, divided by 1000.

    Raises:
        UserError: With fewer than 1000 rows, where the step is zero.
    """
    known = labelled(predictions, "aurc_as_published")
    step = len(known) // STEPS
    if step == 0:
        raise UserError(f"aurc_as_published cannot be computed: it needs at least {STEPS} rows; given {len(known)}.")
    errors = expected_errors(doubt(known), ~correct(known))
    kept = len(errors) - np.arange(1, len(errors), step)  # the least certain row is always left out
    accuracies = 1.0 - errors[kept - 1] / kept
    area = accuracies.sum() - (accuracies[0] + accuracies[-1]) / 2
    return 1.0 - float(area) / STEPS


@metric("nll_as_published")
def nll_as_published_metric() -> Metric:
    """Multi-label likelihood of renormalised rows, negatives ignored (T's code)."""
    return published("nll_as_published", "lower", nll_as_published, "As T's code: renormalised rows, no negatives.",
                     targets=frozenset({"multilabel"}))  # fmt: skip


@metric("ece_as_published")
def ece_as_published_metric() -> Metric:
    """Expected calibration error with 100 bins (T's code)."""
    return published("ece_as_published", "lower", lambda p: ece(p, bins=100), "As T's code: 100 bins.")


@metric("brier_as_published")
def brier_as_published_metric() -> Metric:
    """Brier score divided by the number of classes (P's text; its tables are not)."""
    return published("brier_as_published", "lower", lambda p: brier(p) / p.class_count, "As P's text: divided by K.")


@metric("tace_as_published")
def tace_as_published_metric(*, bins: int = 15, threshold: float = 1e-3) -> Metric:
    """Thresholded adaptive calibration error divided by the number of bins once more (P eq. 2)."""
    return published(
        written("tace_as_published", bins=(bins, 15), threshold=(threshold, 1e-3)),
        "lower",
        lambda p: tace(p, bins=bins, threshold=threshold) / bins,
        "As P eq. 2: averaged over bins twice.",
    )


@metric("aurc_as_published")
def aurc_as_published_metric() -> Metric:
    """Area under the risk–coverage curve with a wrong step (P's code)."""
    return published("aurc_as_published", "lower", aurc_as_published, "As P's code: divided by 1000 steps.")


def _of_ood(name: str, compute: Callable[[Predictions], float], summary: str) -> Metric:
    kinds: dict[str, Any] = {"needs": frozenset({"ood"}), "targets": frozenset({"multiclass", "ordinal", "multilabel"})}
    return published(name, "higher", compute, summary, **kinds)


@metric("ood_auroc_as_published")
def ood_auroc_as_published_metric() -> Metric:
    """AUROC of strange rows against the rows at mirrored places (T's code)."""
    return _of_ood("ood_auroc_as_published", ood_auroc_as_published, "As T's code: rows at mirrored places.")


@metric("ood_aupr_as_published")
def ood_aupr_as_published_metric() -> Metric:
    """One minus an average precision (T's code)."""
    return _of_ood("ood_aupr_as_published", ood_aupr_as_published, "As T's code: 1 − average precision.")


@metric("ood_correlation_as_published")
def ood_correlation_as_published_metric(
    *, quantity: PublishedQuantity = "entropy", kind: MethodKind = "dropout"
) -> Metric:
    """Absolute correlation of one of T's quantities with the out-of-distribution flag."""
    return _of_ood(
        written("ood_correlation_as_published", quantity=(quantity, "entropy"), kind=(kind, "dropout")),
        lambda p: ood_correlation_as_published(p, quantity=quantity, kind=kind),
        "As T's code: absolute, with its own entropy and model uncertainty.",
    )


@metric("mean_model_uncertainty_as_published")
def mean_model_uncertainty_as_published_metric(*, kind: MethodKind = "dropout") -> Metric:
    """Mean of one of T's three model uncertainties."""
    return published(
        written("mean_model_uncertainty_as_published", kind=(kind, "dropout")),
        "lower",
        lambda p: float(model_uncertainty_as_published(p, kind=kind).mean()),
        "As T's code: one of three quantities.",
        needs=frozenset({"samples"}),
        targets=frozenset({"multiclass", "ordinal", "multilabel"}),
    )
