"""Conformance rules for a metric: a number that depends on the predictions alone; and the predictions to test it on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS, Entry
from dubio.core.types import TARGETS, UNLABELLED, Direction, Metric, Need, Target
from dubio.core.weights import Weights
from dubio.testing.rules import SIGNATURE, Case, Outcome, Problem, Rule, apply_rules, case_of, findings_of, one_line

MetricCase = Case[Metric]

FIELDS = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "probs", "log_probs")


def examine_metric(metric: Metric | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Outcome]:
    """Check a metric: :func:`examine_metric` returns the outcome of every rule, :func:`check_metric` the problems.

    Args:
        metric: A registered name or entry, or a metric itself.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    return apply_rules(RULES, case_of(Case, METRICS, metric, arguments))


check_metric = findings_of(examine_metric)
"""Return the problems of a metric, with the arguments of :func:`examine_metric`; an empty list when it conforms."""


def _makes(case: MetricCase) -> Iterator[Problem]:
    succeeded = yield from case.made()
    metric, entry = case.subject, case.entry
    if succeeded and not isinstance(metric, Metric):
        yield Problem(f"The function returned {type(metric).__name__}, not a Metric.", "Return a dubio.Metric.")
    elif succeeded and entry is not None and not case.arguments and metric.name != entry.name:
        yield Problem(f"It is registered as {entry.name!r} and calls itself {metric.name!r}.", "Use one name.")


def _declared(case: MetricCase) -> Iterator[Problem]:
    metric = case.subject
    if metric.better not in get_args(Direction):
        yield Problem(f"better is {metric.better!r}.", "It must be 'higher' or 'lower'.")
    for name, values, allowed in (("needs", metric.needs, get_args(Need)), ("targets", metric.targets, TARGETS)):
        if not isinstance(values, frozenset):
            yield Problem(f"{name} is a {type(values).__name__}.", "Give a frozenset.")
        elif unknown := values - set(allowed):
            yield Problem(f"{name} holds {', '.join(sorted(unknown))}.", f"Allowed are {', '.join(allowed)}.")
    if not metric.targets:
        yield Problem("targets is empty.", "Name at least one target.")
    if not metric.comparable and not metric.why_not:
        yield Problem("It is not comparable and does not say why.", "Give why_not, one sentence for the reader.")
    if not isinstance(metric.version, int) or metric.version < 1:
        yield Problem(f"version is {metric.version!r}.", "It must be a whole number from 1.")


def _targets(case: MetricCase) -> tuple[Target, ...]:
    """Return the targets a metric is defined for, in a fixed order."""
    return tuple(target for target in TARGETS if target in case.subject.targets)


def _on_typical(case: MetricCase) -> Iterator[tuple[Target, Predictions]]:
    """Yield typical predictions for every target."""
    return ((target, typical(target)) for target in _targets(case))


def _number(case: MetricCase) -> Iterator[Problem]:
    for target in _targets(case):
        problems = (_number_problem(case.subject, target, typical(target, seed)) for seed in (0, 1))
        yield from [problem for problem in problems if problem is not None][:1]


def _number_problem(metric: Metric, target: Target, predictions: Predictions) -> Problem | None:
    try:
        value = metric.compute(predictions)
    except Exception as fault:
        advice = "Compute it for every target in targets, or leave the target out."
        return Problem(f"On {target} predictions it raised {one_line(fault)}", advice)
    if not isinstance(value, float):
        return Problem(f"On {target} predictions it gives a {type(value).__name__}.", "Return float(…).")
    if math.isnan(value):
        return Problem(f"On typical {target} predictions it is NaN.", "Give a number, or declare what it needs.")
    return None


def _untouched(case: MetricCase) -> Iterator[Problem]:
    for _, predictions in _on_typical(case):
        before = {name: copy.deepcopy(getattr(predictions, name)) for name in FIELDS}
        case.subject.compute(predictions)
        if case.subject.per_example is not None:
            case.subject.per_example(predictions)
        changed = [name for name in FIELDS if not np.array_equal(before[name], getattr(predictions, name))]
        if changed:
            advice = "Work on a copy: other metrics read the same arrays."
            yield Problem(f"Computing it changes {changed[0]} of the predictions.", advice)
            return


def _reordered(case: MetricCase, noun: str, advice: str) -> Iterator[Problem]:
    for target, predictions in _on_typical(case):
        other = reordered(predictions, noun)
        yield from _same(case, predictions, other, f"With the {noun} in another order ({target})", advice)


def _contributions(case: MetricCase) -> Iterator[Problem]:
    per_example = case.subject.per_example
    if per_example is None:
        return
    for target, predictions in _on_typical(case):
        values, value = np.asarray(per_example(predictions)), case.subject.compute(predictions)
        if values.shape != (len(predictions),):
            problem = f"per_example gives shape {values.shape} for {len(predictions)} labelled rows."
            yield Problem(problem, "Give one value per row.")
        elif not _near(float(values.mean()), value):
            problem = f"The mean of per_example is {values.mean():.6g} and the value is {value:.6g} ({target})."
            advice = "per_example is for metrics that are a mean of contributions; leave it out where this one is not."
            yield Problem(problem, advice)


def _weights(case: MetricCase) -> Iterator[Problem]:
    weighted = case.subject.weighted
    if weighted is None:
        return
    for target, predictions in _on_typical(case):
        counts = Weights.of(np.ones((2, len(predictions)), dtype=np.int64))
        values, value = np.asarray(weighted(predictions, counts)), case.subject.compute(predictions)
        if values.shape != (2,):
            yield Problem(f"For two columns of weights it gives shape {values.shape}.", "Give one value per column.")
        elif not all(_near(float(column), value) for column in values):
            problem = f"With every row counted once it is {values[0]:.6g}, and without weights {value:.6g} ({target})."
            yield Problem(problem, "Let a row count as often as its weight says, with weights.sums or weights.mean.")


def _direction(case: MetricCase) -> Iterator[Problem]:
    metric = case.subject
    for target in _targets(case):
        best, chance = metric.compute(perfect(target)), metric.compute(random(target))
        worse = best < chance if metric.better == "higher" else best > chance
        if worse and not _near(best, chance):
            values = f"a perfect predictor has {best:.4g} and a random one {chance:.4g} ({target})"
            other = "lower" if metric.better == "higher" else "higher"
            advice = f"Should better be {other!r}? If it does not measure quality, set comparable=False and why_not."
            yield Problem(f"better is {metric.better!r}, yet {values}.", advice)


def _unlabelled(case: MetricCase) -> Iterator[Problem]:
    advice = "Rows without a label cannot be scored: begin with predictions.labelled."
    for target, predictions in _on_typical(case):
        if target != "multilabel":
            one, other = (replace(p, ids=None) for p in (predictions, with_unlabelled(predictions)))
            yield from _same(case, one, other, f"With additional unlabelled rows ({target})", advice)


def _suffices(case: MetricCase) -> Iterator[Problem]:
    needs = ", ".join(sorted(case.subject.needs)) or "nothing"
    for target, predictions in ((t, one) for t in _targets(case) for one in only_with(case.subject, t)):
        try:
            value = case.subject.compute(predictions)
        except Exception as fault:
            problem = f"on {target} predictions with nothing else it raised {one_line(fault)}"
            yield Problem(f"It declares the needs {needs}; {problem}", "Declare everything that it uses in needs.")
            return
        if not isinstance(value, float):
            yield Problem(f"On predictions with only what it needs it gives {value!r}.", "Return float(…).")


def _undeclared(case: MetricCase) -> Iterator[Problem]:
    for target, predictions in _on_typical(case):
        changes: dict[Need, Any] = {
            "labels": predictions.labels[::-1].copy(),
            "ood": ~predictions.ood,
            "data_variance": 2 * np.asarray(predictions.data_variance),
            "model_variance": 2 * np.asarray(predictions.model_variance),
        }
        covered = case.subject.needs | ({"labels"} if "two_classes" in case.subject.needs else set())
        for need in (need for need in changes if need not in covered):
            when, other = f"With other {need} ({target}), which needs does not name", {need: changes[need]}
            yield from _same(case, predictions, replace(predictions, **other), when, f"Add {need!r} to needs.")


def _same(case: MetricCase, one: Predictions, other: Predictions, when: str, advice: str) -> Iterator[Problem]:
    """Yield a problem where the values on two sets of predictions differ."""
    first, second = case.subject.compute(one), case.subject.compute(other)
    if not _near(first, second):
        yield Problem(f"{when}, the value goes from {first:.6g} to {second:.6g}.", advice)


def _near(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)


def _needs(*names: Need) -> Callable[[MetricCase], bool]:
    """Return whether a metric needs one of these."""
    return lambda case: bool(case.subject.needs & set(names))


ROWS_ADVICE = "A metric is of a set of examples: sort by what was predicted, and treat ties alike."
SAMPLES_ADVICE = "Samples have no order: pool them (predictions.probs) or use all of them alike."

RULES: tuple[Rule[MetricCase], ...] = (
    SIGNATURE,
    Rule("it makes a Metric of its name", _makes, ends=True),
    Rule("better, needs and targets have allowed values", _declared, ends=True),
    Rule("its value is a number", _number, ends=True),
    Rule("it does not change the predictions", _untouched),
    Rule("the order of rows does not matter", partial(_reordered, noun="rows", advice=ROWS_ADVICE)),
    Rule("the order of samples does not matter", partial(_reordered, noun="samples", advice=SAMPLES_ADVICE)),
    Rule("per_example averages to the value", _contributions, applies=lambda c: c.subject.per_example is not None),
    Rule("rows that count once give the value", _weights, applies=lambda c: c.subject.weighted is not None),
    Rule("a perfect predictor is not worse than a random one", _direction,
         applies=lambda case: case.subject.comparable and _needs("labels", "two_classes", "ood")(case)),
    Rule("rows without a label do not matter", _unlabelled, applies=_needs("labels", "two_classes")),
    Rule("its declared needs suffice", _suffices),
    Rule("undeclared needs do not matter", _undeclared),
)  # fmt: skip


# --- predictions to test with -----------------------------------------------------------------------------------------

SAMPLES, ROWS, CLASSES = 6, 80, 5


def _predictions(target: Target, signal: tuple[float, float], noise: float, seed: int) -> Predictions:
    """Return predictions with evidence for the right class, except on every fourth row (OOD)."""
    generator = np.random.default_rng(seed)
    if target == "multilabel":
        labels = hot = (generator.random((ROWS, CLASSES)) < 0.4).astype(np.int64)
    else:
        labels = generator.permutation(np.arange(ROWS, dtype=np.int64) % CLASSES)
        hot = np.eye(CLASSES, dtype=np.int64)[labels]
    ood = np.arange(ROWS) % 4 == 0
    strength = np.where(ood, 0.0, generator.uniform(*signal, ROWS))[None, :, None]
    spread = np.where(ood, max(noise, signal[0]), noise)[None, :, None]
    logits = strength * (2.0 * hot - 1.0) + spread * generator.standard_normal((SAMPLES, ROWS, CLASSES))
    return Predictions(
        logits.astype(np.float32),
        labels,
        target=target,
        ood=ood,
        member=np.arange(SAMPLES, dtype=np.int64) // 2,
        data_variance=(spread * generator.uniform(0.5, 1.5, logits.shape)).astype(np.float32),
        model_variance=(spread[..., 0] * generator.uniform(0.5, 1.5, logits.shape[:2])).astype(np.float32),
        ids=np.array([f"row-{row:03d}" for row in range(ROWS)]),
    )


def typical(target: Target, seed: int = 0) -> Predictions:
    """Return predictions of varying confidence, often right, with everything a metric may need."""
    return _predictions(target, (0.0, 4.0), 1.0, seed)


def random(target: Target) -> Predictions:
    """Return predictions without information."""
    return _predictions(target, (0.0, 0.0), 1.0, 1)


def perfect(target: Target) -> Predictions:
    """Return predictions that are right and confident in-domain, and uncertain on unlabelled other rows."""
    sure = _predictions(target, (30.0, 30.0), 0.01, 1)
    return sure if target == "multilabel" else replace(sure, labels=np.where(sure.ood, UNLABELLED, sure.labels))


def reordered(predictions: Predictions, noun: str) -> Predictions:
    """Return the predictions with their ``rows`` or their ``samples`` in another order."""
    if noun == "rows":
        return predictions.take(np.random.default_rng(0).permutation(len(predictions)))
    order = np.random.default_rng(1).permutation(predictions.samples)
    return _samples(predictions, order, ("data_variance", "model_variance"))


def _samples(predictions: Predictions, samples: Any, variances: tuple[str, ...]) -> Predictions:
    """Return these samples with these variances."""
    per_sample = {name: np.asarray(getattr(predictions, name))[samples] for name in ("logits", "member", *variances)}
    return replace(predictions, **{"data_variance": None, "model_variance": None, **per_sample})


def with_unlabelled(predictions: Predictions) -> Predictions:
    """Return the predictions with sixteen more rows that have no label."""
    generator, count = np.random.default_rng(3), len(predictions)
    more = predictions.take(np.concatenate([np.arange(count), generator.integers(0, count, 16)]))
    labels, logits = more.labels.copy(), more.logits.copy()
    labels[count:] = UNLABELLED
    logits[:, count:] = generator.standard_normal(logits[:, count:].shape)
    return replace(more, logits=logits, labels=labels, ids=np.array([f"row-{row:03d}" for row in range(len(more))]))


def only_with(metric: Metric, target: Target) -> tuple[Predictions, ...]:
    """Return predictions with what a metric declares that it needs, and nothing else."""
    needs, every = metric.needs, typical(target, 4)
    variances = tuple(name for name in ("data_variance", "model_variance") if name in needs)
    predictions = _samples(every, slice(None if "samples" in needs else 1), variances)
    predictions = replace(predictions, ood=every.ood & ("ood" in needs), ids=None)
    if target == "multilabel" or "two_classes" in needs:
        return (predictions,)
    if "labels" not in needs:
        return (replace(predictions, labels=np.full(ROWS, UNLABELLED, dtype=np.int64)),)
    return predictions, replace(predictions, labels=np.zeros(ROWS, dtype=np.int64))
