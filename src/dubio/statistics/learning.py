"""Evidence of learning: is a method better than the class frequencies alone?

Training with class weights shifts the odds of classes, and a network may be far too sure; neither says that nothing was
learned. A method is therefore recalibrated with an intercept per class before it is compared,

    q = softmax(b·log p̄ + c), b ≥ 0    (multi-label: σ(b·logit p̄ + c), label by label),

by maximum likelihood on one half of the test set, and scored on the other (test-time cross-validation, the halves of
``calibrated_nll``). With b = 0 these are the class frequencies of the fitted half: the reference is nested in the
recalibrated method, whatever the frequencies of training were. Both have one more example of each class, at the mean
log-probabilities, so that a class absent from a half is not impossible (multi-label: one with every label, one with
none). Intercepts of many classes overfit few examples: where the temperature alone gives more, it counts.

- *Gain*: the mean over examples and runs of log q(y) − log f(y), f the frequencies. Its one-sided upper limit counts
  the variance over examples (groups, where given) and over runs.
- *Test* that the gain is not zero. If predictions say nothing about labels, labels may be exchanged between examples
  (groups as a whole). The score statistic of b at b = 0, Σ_i z_i(y_i) with z = log p̄ centred class by class, is
  compared with its value after random exchanges of labels, which needs no approximation for few examples or rare
  classes. A group that gets the labels of a larger one gets the first of them, of a smaller one all of them again and
  again. Runs are averaged after division by their own deviation over the exchanges; methods are corrected together
  after Holm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dubio.calibration.class_maps import fit_intercepts, recalibration_features
from dubio.calibration.cross_validation import REPEATS, random_halves
from dubio.core.passes import log_sigmoid, log_softmax
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, FloatArray, IntArray, StrArray
from dubio.statistics.verdicts import ALPHA, Rows, Runs, holm, smallest_difference

MARGIN = 0.03
"""Share of the NLL of the class frequencies: a gain whose upper limit is below it is hardly one."""

CLEAR = 0.5
"""Share of the NLL of the class frequencies: where the temperature alone gains more, intercepts are not fitted."""

ROUNDING = 1e-6
"""Spread of the score per example that rounded, equal predictions may have."""

EXCHANGES = 999
"""Random exchanges of labels, at least."""

Learned = Literal["learned", "hardly", "no evidence", "constant"]


@dataclass(frozen=True, eq=False)
class Gain:
    """One run against the class frequencies.

    Attributes:
        rows: log q(y) − log f(y) of every labelled example ``[N]``.
        reference: The NLL of the class frequencies.
        score: The score statistic, first as it is, then after every exchange of labels ``[1 + exchanges]``.
    """

    rows: FloatArray
    reference: float
    score: FloatArray


@dataclass(frozen=True)
class Learning:
    """The gain of a method over the class frequencies.

    Attributes:
        learned: ``constant`` where every example has the same prediction, ``no evidence`` where the gain is not
            significant, ``hardly`` where its upper limit is below the margin.
        gain: The mean gain in log-likelihood per example, cross-validated.
        high: Its one-sided upper limit at the level 1 − α.
        margin: The margin, in the same unit.
        p: One-sided p-value after Holm's correction over methods.
    """

    learned: Learned
    gain: float
    high: float
    margin: float
    p: float


def gain_of(predictions: Predictions, calibrated: FloatArray, *, exchanges: int = EXCHANGES, seed: int = 0) -> Gain:
    """Compare one run with the class frequencies.

    Args:
        predictions: Labelled predictions of a test set; unlabelled examples are left out.
        calibrated: The calibrated NLL of every labelled example ``[N]``.
        exchanges: Random exchanges of labels.
        seed: Of halves and exchanges, the same for all runs on a test set.

    Raises:
        UserError: When there are fewer than two labelled examples (groups).
    """
    rows = predictions.labelled
    features, hot = recalibration_features(rows), _hot(rows)
    halves = [side for half in random_halves(rows, repeats=REPEATS, seed=seed) for side in (half, ~half)]
    reference = np.zeros(len(rows))
    for fitted in halves:
        reference[~fitted] += _frequency_nll(rows, hot[fitted], hot[~fitted]) / REPEATS
    gain = reference - np.nan_to_num(calibrated, posinf=1e300)
    if gain.mean() <= CLEAR * reference.mean():
        recalibrated = np.zeros(len(rows))
        for fitted in halves:
            recalibrated[~fitted] += _recalibrated_nll(rows, features, fitted) / REPEATS
        gain = max(gain, reference - recalibrated, key=np.mean)
    score = _exchanged_scores(features, rows.labels, rows.group, exchanges, seed)
    return Gain(gain, float(reference.mean()), score)


def judge_learning(methods: Mapping[str, Sequence[Gain]], group: StrArray | None = None) -> dict[str, Learning]:
    """Judge every method by its runs on one test set; methods of the same predictions are one in the correction.

    Args:
        methods: Method → its runs, on the same examples and exchanges.
        group: The unit each example belongs to; units are sampled as a whole.
    """
    scores = {name: tuple(run.score.tobytes() for run in runs) for name, runs in methods.items()}
    p_values = {scores[name]: _p_value(runs) for name, runs in methods.items()}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return {name: _judged(runs, group, corrected[scores[name]]) for name, runs in methods.items()}


def enough_exchanges(methods: int) -> int:
    """Return the number of exchanges at which the smallest p-value is significant after correction over methods."""
    return max(EXCHANGES, round(2 * methods / ALPHA))


def _judged(runs: Sequence[Gain], group: StrArray | None, p: float) -> Learning:
    rows, means = np.mean([run.rows for run in runs], axis=0), Runs(tuple(float(run.rows.mean()) for run in runs))
    examples = Rows({"method": rows, "frequencies": np.zeros(len(rows))}, group).term("method", "frequencies")
    terms = [] if examples is None else [examples]
    terms += [] if means.std is None else [(means.std**2 / means.n, means.n - 1)]
    high = means.mean + smallest_difference(terms, level=2 * ALPHA)
    margin = MARGIN * float(np.mean([run.reference for run in runs]))
    learned: Learned = "no evidence" if p > ALPHA else "hardly" if high < margin else "learned"
    if all(np.ptp(run.score) <= ROUNDING * len(rows) for run in runs):  # class frequencies, say
        learned = "constant"
    return Learning(learned, means.mean, high, margin, p)


def _p_value(runs: Sequence[Gain]) -> float:
    """Return the share of exchanges, the data as they are among them, whose mean score is as large."""
    scores = np.mean([run.score / (run.score.std() or 1.0) for run in runs], axis=0)
    return float(np.mean(scores >= scores[0] - 1e-9))


def _hot(rows: Predictions) -> IntArray:
    """Return the labels as 0 or 1 for each class ``[N, K]``."""
    if rows.target == "multilabel":
        return rows.labels
    return np.equal.outer(rows.labels, np.arange(rows.class_count)).astype(np.int64)


def _frequency_nll(rows: Predictions, fitted: IntArray, scored: IntArray) -> FloatArray:
    """Return the NLL of some examples under the frequencies of others, each class counted once more."""
    counts = fitted.sum(axis=0) + 1.0
    if rows.target != "multilabel":
        return np.asarray(-(scored @ np.log(counts / counts.sum())))
    shares = counts / (len(fitted) + 2.0)
    return np.asarray(-(scored @ np.log(shares) + (1 - scored) @ np.log1p(-shares)))


def _recalibrated_nll(rows: Predictions, features: FloatArray, fitted: BoolArray) -> FloatArray:
    """Return the NLL of the examples that are not fitted, recalibrated with intercepts on those that are."""
    several, classes = rows.target == "multilabel", rows.class_count
    more = np.stack([np.zeros(classes), np.ones(classes)]).astype(np.int64) if several else np.arange(classes)
    mean = np.broadcast_to(features[fitted].mean(axis=0), (len(more), classes))
    data = np.concatenate([features[fitted], mean]), np.concatenate([rows.labels[fitted], more])
    b, intercepts = fit_intercepts(*data)
    logits, labels = b * features[~fitted] + intercepts, rows.labels[~fitted]
    if several:
        return np.asarray(-log_sigmoid(np.where(labels == 1, logits, -logits)).sum(axis=1))
    return np.asarray(-log_softmax(logits)[np.arange(len(labels)), labels])


def _exchanged_scores(
    features: FloatArray, labels: IntArray, group: StrArray | None, exchanges: int, seed: int
) -> FloatArray:
    """Return Σ_i z_i(y_i), then the same after each random exchange of labels between examples (groups)."""
    centred = features - features.mean(axis=0)
    code = labels
    if labels.ndim == 2:  # every combination of labels is a class, whose z is the sum over its labels
        combinations, code = np.unique(labels, axis=0, return_inverse=True)
        centred = centred @ combinations.T
    unit = np.arange(len(code)) if group is None else np.unique(group, return_inverse=True)[1]
    order = np.argsort(unit, kind="stable")
    unit, code, centred = unit[order], code.reshape(-1)[order], centred[order]
    sizes = np.bincount(unit)
    starts = np.cumsum(sizes) - sizes
    flat, first = centred.ravel(), np.arange(len(code)) * centred.shape[1]
    offset = np.arange(len(code)) - starts[unit]
    rng = np.random.default_rng(np.random.SeedSequence([seed, len(code)]))
    scores = [flat.take(first + code).sum()]
    for _ in range(exchanges):
        if group is None:  # every example is a unit
            exchanged = rng.permutation(code)
        else:
            source = rng.permutation(len(sizes))[unit]
            exchanged = code[starts[source] + offset % sizes[source]]
        scores.append(flat.take(first + exchanged).sum())
    return np.array(scores)
