"""Conformance rules for a metric: a number that depends on the predictions alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS, Entry
from dubio.core.types import TARGETS, Direction, Metric, Need, Target
from dubio.core.weights import Weights
from dubio.testing.rules import (
    Finding,
    Outcome,
    Problem,
    Rule,
    all_findings,
    apply_rules,
    attempt,
    find_entry,
    one_line,
    signature_problems,
)
from dubio.testing.toy_predictions import only_with, perfect, random, typical, with_unlabelled

FIELDS = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "probs", "log_probs")


@dataclass
class Case:
    """A metric to check."""

    entry: Entry[Any] | None
    arguments: Mapping[str, Any]
    metric: Metric

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets it is defined for, in a fixed order."""
        return tuple(target for target in TARGETS if target in self.metric.targets)


def check_metric(metric: Metric | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Finding]:
    """Return the problems of a metric; an empty list when it conforms.

    Args:
        metric: A registered name or entry, or a metric itself.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    return all_findings(examine_metric(metric, arguments=arguments))


def examine_metric(metric: Metric | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Outcome]:
    """Return the outcome of every rule; see :func:`check_metric`."""
    values = dict(arguments or {})
    if isinstance(metric, Metric):
        return apply_rules(RULES, Case(None, values, metric))
    # the metric is set by the rule that makes it, before any rule reads it
    return apply_rules(RULES, Case(find_entry(METRICS, metric), values, None))  # type: ignore[arg-type]


def _signature(case: Case) -> Iterator[Problem]:
    if case.entry is not None:
        yield from signature_problems(case.entry)


def _makes(case: Case) -> Iterator[Problem]:
    entry = case.entry
    if entry is None:
        return
    case.metric, problems = attempt(lambda: entry.make(**case.arguments), entry, case.arguments)
    yield from problems
    if problems:
        return
    if not isinstance(case.metric, Metric):
        yield Problem(f"The function returned {type(case.metric).__name__}, not a Metric.", "Return a dubio.Metric.")
    elif not case.arguments and case.metric.name != entry.name:
        yield Problem(f"It is registered as {entry.name!r} and calls itself {case.metric.name!r}.", "Use one name.")


def _declared(case: Case) -> Iterator[Problem]:
    metric = case.metric
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


def _number(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        for seed in (0, 1):
            try:
                value = case.metric.compute(typical(target, seed))
            except Exception as fault:
                yield Problem(
                    f"On {target} predictions it raised {one_line(fault)}",
                    "Compute it for every target in targets, or leave the target out.",
                )
                break
            if not isinstance(value, float):
                yield Problem(f"On {target} predictions it gives a {type(value).__name__}.", "Return float(…).")
                break
            if math.isnan(value):
                yield Problem(f"On typical {target} predictions it is NaN.", "Give a number, or declare what it needs.")
                break


def _untouched(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        predictions = typical(target)
        before = {name: copy.deepcopy(getattr(predictions, name)) for name in FIELDS}
        case.metric.compute(predictions)
        if case.metric.per_example is not None:
            case.metric.per_example(predictions)
        for name, value in before.items():
            if not np.array_equal(value, getattr(predictions, name)):
                yield Problem(
                    f"Computing it changes {name} of the predictions.",
                    "Work on a copy: other metrics read the same arrays.",
                )
                return


def _row_order(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        predictions = typical(target)
        order = np.random.default_rng(0).permutation(len(predictions))
        yield from _same(
            case,
            predictions,
            predictions.take(order),
            f"With the rows in another order ({target})",
            "A metric is of a set of examples: sort by what was predicted, and treat ties alike.",
        )


def _sample_order(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        predictions = typical(target)
        order = np.random.default_rng(1).permutation(predictions.samples)
        assert predictions.data_variance is not None
        assert predictions.model_variance is not None
        other = replace(
            predictions,
            logits=predictions.logits[order],
            member=predictions.member[order],
            data_variance=predictions.data_variance[order],
            model_variance=predictions.model_variance[order],
        )
        yield from _same(
            case,
            predictions,
            other,
            f"With the samples in another order ({target})",
            "Samples have no order: pool them (predictions.probs) or use all of them alike.",
        )


def _contributions(case: Case) -> Iterator[Problem]:
    if case.metric.per_example is None:
        return
    for target in case.targets:
        predictions = typical(target)
        values, value = np.asarray(case.metric.per_example(predictions)), case.metric.compute(predictions)
        if values.shape != (len(predictions),):
            yield Problem(
                f"per_example gives shape {values.shape} for {len(predictions)} labelled rows.",
                "Give one value per row.",
            )
        elif not _near(float(values.mean()), value):
            yield Problem(
                f"The mean of per_example is {values.mean():.6g} and the value is {value:.6g} ({target}).",
                "per_example is for metrics that are a mean of contributions; leave it out where this one is not.",
            )


def _weights(case: Case) -> Iterator[Problem]:
    weighted = case.metric.weighted
    if weighted is None:
        return
    for target in case.targets:
        predictions = typical(target)
        counts = np.ones((2, len(predictions)), dtype=np.int64)
        values, value = np.asarray(weighted(predictions, Weights.of(counts))), case.metric.compute(predictions)
        if values.shape != (2,):
            yield Problem(f"For two columns of weights it gives shape {values.shape}.", "Give one value per column.")
        elif not all(_near(float(column), value) for column in values):
            yield Problem(
                f"With every row counted once it is {values[0]:.6g}, and without weights {value:.6g} ({target}).",
                "Let a row count as often as its weight says, with weights.sums or weights.mean.",
            )


def _direction(case: Case) -> Iterator[Problem]:
    metric = case.metric
    for target in case.targets:
        best, chance = metric.compute(perfect(target)), metric.compute(random(target))
        worse = best < chance if metric.better == "higher" else best > chance
        if worse and not _near(best, chance):
            yield Problem(
                f"better is {metric.better!r}, yet a perfect predictor has {best:.4g} and a random one {chance:.4g} "
                f"({target}).",
                f"Should better be {'lower' if metric.better == 'higher' else 'higher'!r}? If it does not "
                "measure quality, set comparable=False and why_not.",
            )


def _scores_quality(case: Case) -> bool:
    return case.metric.comparable and bool(case.metric.needs & {"labels", "two_classes", "ood"})


def _unlabelled(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        if target != "multilabel":
            predictions = replace(typical(target), ids=None)
            more = replace(with_unlabelled(predictions), ids=None)
            yield from _same(
                case,
                predictions,
                more,
                f"With additional unlabelled rows ({target})",
                "Rows without a label cannot be scored: begin with predictions.labelled.",
            )


def _uses_labels(case: Case) -> bool:
    return bool(case.metric.needs & {"labels", "two_classes"})


def _suffices(case: Case) -> Iterator[Problem]:
    needs = ", ".join(sorted(case.metric.needs)) or "nothing"
    pairs = [(target, one) for target in case.targets for one in only_with(case.metric, target)]
    for target, predictions in pairs:
        try:
            value = case.metric.compute(predictions)
        except Exception as fault:
            yield Problem(
                f"It declares the needs {needs}; on {target} predictions with nothing else it raised {one_line(fault)}",
                "Declare everything that it uses in needs.",
            )
            return
        if not isinstance(value, float):
            yield Problem(f"On predictions with only what it needs it gives {value!r}.", "Return float(…).")


def _undeclared(case: Case) -> Iterator[Problem]:
    for target in case.targets:
        predictions = typical(target)
        changes: dict[Need, Predictions] = {
            "labels": replace(predictions, labels=predictions.labels[::-1].copy()),
            "ood": replace(predictions, ood=~predictions.ood),
            "data_variance": replace(predictions, data_variance=2 * np.asarray(predictions.data_variance)),
            "model_variance": replace(predictions, model_variance=2 * np.asarray(predictions.model_variance)),
        }
        for need, changed in changes.items():
            covered = {need, "two_classes"} if need == "labels" else {need}
            if not covered & case.metric.needs:
                yield from _same(
                    case,
                    predictions,
                    changed,
                    f"With other {need} ({target}), which needs does not name",
                    f"Add {need!r} to needs.",
                )


def _same(case: Case, one: Predictions, other: Predictions, when: str, advice: str) -> Iterator[Problem]:
    """Yield a problem where the values on two sets of predictions differ."""
    first, second = case.metric.compute(one), case.metric.compute(other)
    if not _near(first, second):
        yield Problem(f"{when}, the value goes from {first:.6g} to {second:.6g}.", advice)


def _near(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)


RULES: tuple[Rule[Case], ...] = (
    Rule("its arguments are keyword-only, typed and have a docstring", _signature),
    Rule("it makes a Metric of its name", _makes, ends=True),
    Rule("better, needs and targets have allowed values", _declared, ends=True),
    Rule("its value is a number", _number, ends=True),
    Rule("it does not change the predictions", _untouched),
    Rule("the order of rows does not matter", _row_order),
    Rule("the order of samples does not matter", _sample_order),
    Rule("per_example averages to the value", _contributions, applies=lambda case: case.metric.per_example is not None),
    Rule("rows that count once give the value", _weights, applies=lambda case: case.metric.weighted is not None),
    Rule("a perfect predictor is not worse than a random one", _direction, applies=_scores_quality),
    Rule("rows without a label do not matter", _unlabelled, applies=_uses_labels),
    Rule("its declared needs suffice", _suffices),
    Rule("undeclared needs do not matter", _undeclared),
)
