"""What mistakes in training did: the same methods and seeds, trained as corrected and with one mistake.

The difference of a method's scores has two sources of chance: the trainings and the test rows. Both enter its interval
as everywhere else (:mod:`dubio.statistics.verdicts`); with one training per side only the rows do, and the page says
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray, IntArray
from dubio.core.weights import Weights
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import Statistic, deciding_units, metric_statistic, replicate, units_of
from dubio.statistics.trainings import VarianceTerm
from dubio.statistics.verdicts import (
    PairTest,
    Replicates,
    Rows,
    Sample,
    judge_differences,
)
from dubio.statistics.verdicts import Runs as Values
from results.stored import Runs, Stored

REPLICATES = 1000


@dataclass(frozen=True)
class Study:
    """Tasks that differ in one mistake.

    Attributes:
        title: Its heading.
        base: The task as corrected.
        mistakes: Title of a mistake → the task with it.
        metrics: The headline numbers.
        methods: The methods that the mistakes can touch.
        note: What the reader should know of them.
        beside: A method whose scores on the base help to read them, if any.
    """

    title: str
    base: str
    mistakes: Mapping[str, str]
    metrics: tuple[str, ...]
    methods: tuple[str, ...]
    note: str = ""
    beside: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """All its tasks."""
        return (self.base, *self.mistakes.values())


STUDIES = (
    Study(
        "Reading texts (T), CLINC", "clinc",
        {"unmasked padding": "clinc-unmasked-padding", "unmasked padding, no unknown token": "clinc-no-unknown-token",
         "vocabulary from all text": "clinc-vocabulary-from-all-text",
         "words of one character dropped": "clinc-one-letter-words",
         "requests of fewer than five words dropped": "clinc-short-requests", "all mistakes in reading": "clinc-all"},
        ("accuracy", "calibrated_nll", "ood_auroc"),
        ("deterministic", "mc-dropout", "mc-concrete-dropout", "deep-ensemble"),
        "T states that padding is masked (Appendix A); its [code](../sources.md) masks none. It sorts the texts of "
        "training and validation by length before it cuts them into batches of 32, so that hardly any padding is "
        "trained on. Test texts stay in the order of TensorFlow Datasets, which is random, and are filled up to the "
        "longest of their batch; one random order stands for it here. *Unmasked padding*: it counts like a word whose "
        "vector is zero. *No unknown token*: it has the vector of unknown words, as in T's code. Both act at "
        "prediction alone, so that their rows compare the same trainings and have narrower intervals. Words of one "
        "character (*i*, *a*, *5*) and punctuation are dropped, and so are requests of fewer than five words of two or "
        "more characters, from all splits: without them there are 3,931 requests and 938 out of scope to test on, "
        "instead of 4,500 and 1,000. Fixed batches have a section of their own. T's code also drops the last, "
        "incomplete batch of a set, which is not repeated here.",
    ),
    Study(
        "Batching texts (T), CLINC", "clinc",
        {"fixed batches": "clinc-fixed-batches", "fixed batches, all mistakes in reading": "clinc-all-fixed-batches"},
        ("accuracy", "calibrated_nll", "ood_auroc"),
        ("deterministic", "mc-dropout", "mc-concrete-dropout", "deep-ensemble"),
        "T's code sorts the training texts by length and cuts them into batches once: a batch holds the same texts, of "
        "nearly one length, in every epoch and for every network, and only the order of the batches changes. T's paper "
        "does not say so. As corrected, texts are shuffled in every epoch, and those of similar length share a batch.",
    ),
    Study(
        "Softmax on labels (T), Reuters", "reuters", {"softmax on labels": "reuters-softmax-on-labels"},
        ("accuracy", "calibrated_nll", "ood_auroc"),
        ("concrete-dropout", "mc-concrete-dropout", "mc-concrete-dropout-ensemble"),
        "Texts are cut at 100 words and trained for at most 12 epochs with a patience of 3: scores are not those of "
        "the [text page](text.md).",
    ),
    Study(
        "KL divergence without 1/N (R), DeepDRiD", "retina", {"unscaled KL": "retina-unscaled-kl"},
        ("accuracy", "calibrated_nll", "class_auroc"), ("mean-field-vi",),
        "The published network with b = 8 (variational inference with b = 6, β = 1): scores are not those of the "
        "[retina page](retina.md), which has another network.",
    ),
    Study(
        "K-FAC Laplace (P), CIFAR-10", "cifar10",
        {"K-FAC sums": "cifar10-kfac-sums", "L⁻¹z": "cifar10-untransposed-factors",
         "exact damping, no mistake": "cifar10-exact-damping"},
        ("accuracy", "calibrated_nll"), ("laplace",),
        "The corrected base has P's prior, which is the weight decay, and P's damping, which splits the prior between "
        "both Kronecker factors. dubio adds it to their product by default, which is exact: the last row shows what "
        "that changes. The scale of the draws is chosen by NLL on validation for each row. All rows draw around the "
        "same networks. Where the corrected base is worse than these without draws, as below the table, a mistake "
        "that changes the draws can improve the score.", "deterministic",
    ),
    Study(
        "Cyclical sampling (P), CIFAR-10", "cifar10", {"noise by batches": "cifar10-noise-by-batches"},
        ("accuracy", "calibrated_nll"), ("csgld",),
        "The temperature of P's code is n/batches², 1.0 here and 0.08 with P's 50,000 images, that of the method's "
        "authors 1/n, 2.5e-4 here ([what it does](../sgmcmc.md#the-temperature)). At 1.0 the samples are of the "
        "posterior, at 1/n of a much colder one: the change is what warm samples cost here, not what P's code cost P. "
        "Trainings are those of the preset `small` of the [ensembling study](ensembles.md).",
    ),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Change:
    """A method's score with a mistake and without it.

    Attributes:
        method: The method.
        metric: The score.
        corrected: Its values without the mistake.
        mistaken: Its values with it.
        test: Mistaken less corrected.
    """

    method: str
    metric: str
    corrected: Values
    mistaken: Values
    test: PairTest


def training_changes(runs: Runs, base: str, task: str, metrics: Iterable[str], methods: Iterable[str]) -> list[Change]:
    """Return the changes of methods that were trained with and without a mistake, on the seeds that both have."""
    changes = []
    for method in methods:
        sides = runs.get((base, method), {}), runs.get((task, method), {})
        shared = [key for key in sides[0] if key in sides[1]]
        if not shared or sides[0][shared[0]].tested == sides[1][shared[0]].tested:
            continue  # not run, or untouched by the mistake: the same prediction
        for metric in metrics:
            pairs = {name: [side[key] for key in shared] for name, side in zip(SIDES, sides, strict=True)}
            changes.append(compared(method, metric, pairs))
    return changes


SIDES = ("corrected", "mistaken")


def compared(method: str, name: str, sides: Mapping[str, list[Stored]]) -> Change:
    """Return the change of one score, judged over trainings and test rows, or over rows for a single training.

    A mistake in reading test sets, or in what follows a training, leaves the trainings as they are: then every training
    has a difference of its own. Otherwise both sides have as many runs, and each the variance of its own (Welch).
    """
    metric = metric_named(name)
    detection = "ood" in metric.needs
    predictions = {side: [_read(stored, detection) for stored in own] for side, own in sides.items()}
    values = {side: Values(tuple(metric.compute(p) for p in own)) for side, own in predictions.items()}
    sample = sample_of(name, predictions)
    difference = values["corrected"].mean - values["mistaken"].mean
    terms = [term for term in (sample.term(*SIDES),) if term is not None]
    if min(runs.n for runs in values.values()) > 1:
        paired = all(one.first_trainings == two.first_trainings for one, two in zip(*sides.values(), strict=True))
        corrected, mistaken = (np.array(runs.values) for runs in values.values())
        terms += [mean_term(corrected - mistaken)] if paired else [mean_term(corrected), mean_term(mistaken)]
    (test,) = judge_differences({SIDES: (difference, terms)}, metric.better)
    sign = 1.0 if test.first == "mistaken" else -1.0
    low, high = sorted((sign * test.low, sign * test.high))
    oriented = PairTest("mistaken", "corrected", sign * test.difference, test.error, test.freedom, low, high,
                        test.p, test.adjusted_p, test.resolves, test.better)  # fmt: skip
    return Change(method, name, values["corrected"], values["mistaken"], oriented)


def mean_term(values: FloatArray) -> VarianceTerm:
    """Return the variance of the mean of values, and its degrees of freedom."""
    return float(values.var(ddof=1)) / len(values), len(values) - 1.0


def sample_of(name: str, sides: Mapping[str, list[Predictions]]) -> Sample:
    """Return both sides' values on the test rows as a sample, each averaged over its runs.

    A mistake may leave out test rows. The side without them is a mean over a part S of the N rows that are sampled,
    whose linearised value of row i is m + [i in S]·(N/|S|)·(x_i − m) with the mean m.
    """
    metric = metric_named(name)
    everything = max((own[0] for own in sides.values()), key=len)
    rows = {side: rows_within(own[0], everything) for side, own in sides.items()}
    if metric.per_example is not None:
        values = {side: np.mean([metric.per_example(p) for p in own], axis=0) for side, own in sides.items()}
        whole = {side: linearised(own, rows[side], len(everything)) for side, own in values.items()}
        return Rows(whole, everything.group)
    forms = {
        (side, i): partial(_on_rows, metric_statistic(metric, p), rows[side])
        for side, own in sides.items()
        for i, p in enumerate(own)
    }
    draws = replicate(forms, units_of(everything), replicates=REPLICATES, seed=0)
    means = {side: np.mean([draws[side, i] for i in range(len(own))], axis=0) for side, own in sides.items()}
    smaller = min((own[0] for own in sides.values()), key=len)
    return Replicates(means, deciding_units(metric, smaller))


def rows_within(part: Predictions, everything: Predictions) -> IntArray:
    """Return the places of rows among all rows, by their ids where some are missing.

    Raises:
        ValueError: For a row that is not among them.
    """
    if len(part) == len(everything):
        return np.arange(len(part), dtype=np.int64)
    assert part.ids is not None, "rows without ids cannot be matched"
    assert everything.ids is not None, "rows without ids cannot be matched"
    places = {name: row for row, name in enumerate(everything.ids.tolist())}
    try:
        return np.array([places[name] for name in part.ids.tolist()], dtype=np.int64)
    except KeyError as missing:
        raise ValueError(f"row {missing} is on one side alone") from missing


def linearised(values: FloatArray, rows: IntArray, count: int) -> FloatArray:
    """Return ``count`` values with the mean of some rows' values, and with the variance of that mean."""
    mean = values.mean()
    whole = np.full(count, mean)
    whole[rows] += (values - mean) * (count / len(rows))
    return whole


def _on_rows(statistic: Statistic, rows: IntArray, weights: Weights) -> FloatArray:
    """Evaluate a statistic of some rows on weights of all rows."""
    return statistic(weights if len(rows) == len(weights.counts) else Weights(weights.counts[rows]))


def _read(stored: Stored, detection: bool) -> Predictions:
    predictions = stored.with_ood() if detection else stored.in_domain()
    assert predictions is not None, f"{stored.task.key} has no OOD test set"
    return predictions
