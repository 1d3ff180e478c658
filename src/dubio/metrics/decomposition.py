"""Where the uncertainty of sampled predictions comes from: entropies and the parts of the total variance.

All parts describe the samples as they were drawn, before any temperature. With p_s the predictive of sample s and p̄ the
mean over samples (T §II-C, eq. 3)::

    H(p̄)            = mean_s H(p_s)          + mutual information
    mean_k p̄(1−p̄)  = mean_s mean_k p_s(1−p_s) + mean_k Var_s p_s
    Var_s p_s       = Var_m p̄_m               + mean_m Var_{s in m} p_s       (between and within members)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from weakref import WeakKeyDictionary

import numpy as np

from dubio.core.passes import Scratch, over_rows, row_blocks
from dubio.core.predictions import Predictions
from dubio.core.registry import metric
from dubio.core.types import FloatArray, Metric
from dubio.metrics.decomposition_passes import Moments, Parts, members_of, plain_parts


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The uncertainty of each row and its parts, every array ``[N]``.

    Attributes:
        pooled_entropy: H(p̄); multi-label: the sum of Bernoulli entropies.
        expected_entropy: mean_s H(p_s).
        mutual_information: Their difference, never negative.
        total_variance: mean_k p̄_k(1 − p̄_k).
        expected_variance: mean_s mean_k p_s,k(1 − p_s,k).
        sample_variance: mean_k Var_s p_s,k.
        between_members: The part of ``sample_variance`` that members disagree on; zero for one member.
        within_members: The part that is left within members.
    """

    pooled_entropy: FloatArray
    expected_entropy: FloatArray
    mutual_information: FloatArray
    total_variance: FloatArray
    expected_variance: FloatArray
    sample_variance: FloatArray
    between_members: FloatArray
    within_members: FloatArray


_KNOWN: WeakKeyDictionary[Predictions, Decomposition] = WeakKeyDictionary()


def decompose(predictions: Predictions) -> Decomposition:
    """Decompose the uncertainty of every row in one pass; asked again for the same predictions, it is remembered."""
    known = _KNOWN.get(predictions)
    if known is None:
        plain = predictions.target == "multilabel"
        known = _KNOWN[predictions] = Decomposition(**(_plain(predictions) if plain else _fast(predictions)))
    return known


def forget(predictions: Predictions) -> None:
    """Drop what is remembered of these predictions."""
    _KNOWN.pop(predictions, None)


def _plain(predictions: Predictions) -> Parts:
    """The parts of multi-label predictions."""
    members = members_of(predictions.member)
    parts: Parts = {field.name: np.empty(len(predictions)) for field in fields(Decomposition)}

    def work(rows: slice, room: Scratch) -> None:
        found = plain_parts(predictions.logits[:, rows].astype(np.float64), members, per_label=True)
        for name, values in parts.items():
            values[rows] = found[name]

    over_rows(predictions.logits, work)
    return parts


def _fast(predictions: Predictions) -> Parts:
    """The parts of multi-class predictions: by moments, and once more where those lose digits."""
    members = members_of(predictions.member)
    moments = Moments.empty(len(predictions))
    over_rows(
        predictions.logits, lambda rows, room: moments.fill(rows, predictions.logits[:, rows], members, room)
    )
    parts = moments.parts(predictions.class_count, members)
    again = moments.doubtful(parts, predictions.class_count, members)
    for block in row_blocks(predictions.samples, len(again), predictions.class_count):
        found = plain_parts(predictions.logits[:, again[block]].astype(np.float64), members, per_label=False)
        for name, values in parts.items():
            values[again[block]] = found[name]
    return parts


def _mean_of(part: str, summary: str) -> Metric:
    """The mean of one part over rows, as a descriptive metric: it says what a model is like, not how good."""
    return Metric(
        name=f"mean_{part}",
        better="lower",
        compute=lambda predictions: float(getattr(decompose(predictions), part).mean()),
        per_example=lambda predictions: np.asarray(getattr(decompose(predictions), part)),
        comparable=False,
        why_not="It describes how uncertain a model is, and neither more nor less of it is better by itself.",
        summary=summary,
    )


@metric("mean_total_variance")
def mean_total_variance() -> Metric:
    """Mean over rows of mean_k p̄(1 − p̄), the total variance."""
    return _mean_of("total_variance", "Mean total variance of the predictive.")


@metric("mean_expected_variance")
def mean_expected_variance() -> Metric:
    """Mean over rows of mean_s mean_k p_s(1 − p_s), the part that averaging cannot remove."""
    return _mean_of("expected_variance", "Mean variance within a single sample's predictive.")


@metric("mean_sample_variance")
def mean_sample_variance() -> Metric:
    """Mean over rows of mean_k Var_s p_s, the part that samples disagree on."""
    return _mean_of("sample_variance", "Mean variance between samples.")


@metric("mean_between_members")
def mean_between_members() -> Metric:
    """Mean over rows of the variance between members."""
    return _mean_of("between_members", "Mean variance between members.")


@metric("mean_within_members")
def mean_within_members() -> Metric:
    """Mean over rows of the variance within members."""
    return _mean_of("within_members", "Mean variance within members.")
