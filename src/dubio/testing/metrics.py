"""Rules for a metric: a number that depends on what was predicted, and on nothing else."""

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
from dubio.testing.factories import entry_of, missing_arguments, signature_problems
from dubio.testing.findings import Finding, Outcome, Problem, Rule, flattened, follow, spoken
from dubio.testing.forecasts import only_with, ordinary, perfect, random, with_unlabelled

FIELDS = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "probs", "log_probs")


@dataclass
class Subject:
    """A metric under examination."""

    entry: Entry[Any] | None
    arguments: Mapping[str, Any]
    metric: Metric

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets it is defined for, in a fixed order."""
        return tuple(target for target in TARGETS if target in self.metric.targets)


def check_metric(metric: Metric | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Finding]:
    """What is wrong with a metric; empty when nothing is.

    Args:
        metric: A registered name or entry, or a metric itself.
        arguments: For the registered function, where its defaults will not do.
    """
    return flattened(examine_metric(metric, arguments=arguments))


def examine_metric(metric: Metric | Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Outcome]:
    """The same as :func:`check_metric`, rule by rule."""
    given = dict(arguments or {})
    if isinstance(metric, Metric):
        return follow(RULES, Subject(None, given, metric))
    # until the rule that makes it has run there is no metric, and no rule before it looks
    return follow(RULES, Subject(entry_of(METRICS, metric), given, None))  # type: ignore[arg-type]


def _signature(subject: Subject) -> Iterator[Problem]:
    if subject.entry is not None:
        yield from signature_problems(subject.entry)


def _makes(subject: Subject) -> Iterator[Problem]:
    entry = subject.entry
    if entry is None:
        return
    lacking = list(missing_arguments(entry, subject.arguments))
    if lacking:
        yield from lacking
        return
    try:
        made = entry.make(**subject.arguments)
    except Exception as fault:
        yield Problem(f"Making it raised {spoken(fault)}", "Make it work with its default arguments.")
        return
    if not isinstance(made, Metric):
        yield Problem(f"The function returned {type(made).__name__}, not a Metric.", "Return a dubio.Metric.")
        return
    subject.metric = made
    if not subject.arguments and made.name != entry.name:
        yield Problem(f"It is registered as {entry.name!r} and calls itself {made.name!r}.", "Use one name.")


def _declared(subject: Subject) -> Iterator[Problem]:
    metric = subject.metric
    if metric.better not in get_args(Direction):
        yield Problem(f"better is {metric.better!r}.", "It must be 'higher' or 'lower'.")
    for name, given, known in (("needs", metric.needs, get_args(Need)), ("targets", metric.targets, TARGETS)):
        if not isinstance(given, frozenset):
            yield Problem(f"{name} is a {type(given).__name__}.", "Give a frozenset.")
        elif given - set(known):
            yield Problem(f"{name} holds {', '.join(sorted(given - set(known)))}.", f"Known are {', '.join(known)}.")
    if not metric.targets:
        yield Problem("targets is empty, so that it is defined for nothing.", "Name at least one target.")
    if not metric.comparable and not metric.why_not:
        yield Problem("It is not comparable and does not say why.", "Give why_not, one sentence for the reader.")
    if not isinstance(metric.version, int) or metric.version < 1:
        yield Problem(f"version is {metric.version!r}.", "It must be a whole number from 1.")


def _number(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        for seed in (0, 1):
            try:
                value = subject.metric.compute(ordinary(target, seed))
            except Exception as fault:
                yield Problem(
                    f"On {target} predictions it raised {spoken(fault)}",
                    "Compute it for every target in targets, or leave the target out.",
                )
                break
            if not isinstance(value, float):
                yield Problem(f"On {target} predictions it gives a {type(value).__name__}.", "Return float(…).")
                break
            if math.isnan(value):
                yield Problem(
                    f"On ordinary {target} predictions it is NaN.", "Give a number, or declare what it needs."
                )
                break


def _untouched(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        given = ordinary(target)
        before = {name: copy.deepcopy(getattr(given, name)) for name in FIELDS}
        subject.metric.compute(given)
        if subject.metric.per_example is not None:
            subject.metric.per_example(given)
        for name, value in before.items():
            if not np.array_equal(value, getattr(given, name)):
                yield Problem(
                    f"Computing it changes {name} of the predictions it was given.",
                    "Work on a copy: other metrics read the same arrays.",
                )
                return


def _row_order(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        given = ordinary(target)
        order = np.random.default_rng(0).permutation(len(given))
        yield from _same(
            subject,
            given,
            given.take(order),
            f"With the rows in another order ({target})",
            "A metric is of a set of examples: sort by what was predicted, and treat ties alike.",
        )


def _sample_order(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        given = ordinary(target)
        order = np.random.default_rng(1).permutation(given.samples)
        assert given.data_variance is not None
        assert given.model_variance is not None
        other = replace(
            given,
            logits=given.logits[order],
            member=given.member[order],
            data_variance=given.data_variance[order],
            model_variance=given.model_variance[order],
        )
        yield from _same(
            subject,
            given,
            other,
            f"With the samples in another order ({target})",
            "Samples have no order: pool them (predictions.probs) or use all of them alike.",
        )


def _contributions(subject: Subject) -> Iterator[Problem]:
    if subject.metric.per_example is None:
        return
    for target in subject.targets:
        given = ordinary(target)
        found, value = np.asarray(subject.metric.per_example(given)), subject.metric.compute(given)
        if found.shape != (len(given),):
            yield Problem(
                f"per_example gives shape {found.shape} for {len(given)} labelled rows.", "Give one value a row."
            )
        elif not _near(float(found.mean()), value):
            yield Problem(
                f"The mean of per_example is {found.mean():.6g} and the value is {value:.6g} ({target}).",
                "per_example is for metrics that are a mean of contributions; leave it out where this one is not.",
            )


def _weights(subject: Subject) -> Iterator[Problem]:
    weighted = subject.metric.weighted
    if weighted is None:
        return
    for target in subject.targets:
        given = ordinary(target)
        counts = np.ones((2, len(given)), dtype=np.int64)
        values, value = np.asarray(weighted(given, Weights.of(counts))), subject.metric.compute(given)
        if values.shape != (2,):
            yield Problem(f"For two columns of weights it gives shape {values.shape}.", "Give one value per column.")
        elif not all(_near(float(each), value) for each in values):
            yield Problem(
                f"With every row counted once it is {values[0]:.6g}, and without weights {value:.6g} ({target}).",
                "Let a row count as often as its weight says, with weights.sums or weights.mean.",
            )


def _direction(subject: Subject) -> Iterator[Problem]:
    metric = subject.metric
    for target in subject.targets:
        best, chance = metric.compute(perfect(target)), metric.compute(random(target))
        worse = best < chance if metric.better == "higher" else best > chance
        if worse and not _near(best, chance):
            yield Problem(
                f"better is {metric.better!r}, yet a perfect predictor has {best:.4g} and a random one {chance:.4g} "
                f"({target}).",
                f"Should better be {'lower' if metric.better == 'higher' else 'higher'!r}? If it says nothing of "
                "quality, set comparable=False and why_not.",
            )


def _judges(subject: Subject) -> bool:
    return subject.metric.comparable and bool(subject.metric.needs & {"labels", "two_classes", "ood"})


def _unlabelled(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        if target != "multilabel":
            given = replace(ordinary(target), ids=None)
            more = replace(with_unlabelled(given), ids=None)
            yield from _same(
                subject,
                given,
                more,
                f"With rows added whose label is −1 ({target})",
                "Rows without a label cannot be judged: begin with predictions.labelled.",
            )


def _uses_labels(subject: Subject) -> bool:
    return bool(subject.metric.needs & {"labels", "two_classes"})


def _suffices(subject: Subject) -> Iterator[Problem]:
    needs = ", ".join(sorted(subject.metric.needs)) or "nothing"
    given = [(target, made) for target in subject.targets for made in only_with(subject.metric, target)]
    for target, predictions in given:
        try:
            value = subject.metric.compute(predictions)
        except Exception as fault:
            yield Problem(
                f"needs says {needs}; on {target} predictions that have just that it raised {spoken(fault)}",
                "Add to needs what else it uses.",
            )
            return
        if not isinstance(value, float):
            yield Problem(f"On predictions with just what it needs it gives {value!r}.", "Return float(…).")


def _undeclared(subject: Subject) -> Iterator[Problem]:
    for target in subject.targets:
        given = ordinary(target)
        changes: dict[Need, Predictions] = {
            "labels": replace(given, labels=given.labels[::-1].copy()),
            "ood": replace(given, ood=~given.ood),
            "data_variance": replace(given, data_variance=2 * np.asarray(given.data_variance)),
            "model_variance": replace(given, model_variance=2 * np.asarray(given.model_variance)),
        }
        for need, changed in changes.items():
            covered = {need, "two_classes"} if need == "labels" else {need}
            if not covered & subject.metric.needs:
                yield from _same(
                    subject,
                    given,
                    changed,
                    f"With other {need} ({target}), which needs does not name",
                    f"Add {need!r} to needs.",
                )


def _same(subject: Subject, one: Predictions, other: Predictions, when: str, advice: str) -> Iterator[Problem]:
    """A problem where the value on the two differs."""
    first, second = subject.metric.compute(one), subject.metric.compute(other)
    if not _near(first, second):
        yield Problem(f"{when}, the value goes from {first:.6g} to {second:.6g}.", advice)


def _near(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)


RULES: tuple[Rule[Subject], ...] = (
    Rule("its arguments are keyword-only, typed and have a docstring", _signature),
    Rule("it makes a Metric of its name", _makes, ends=True),
    Rule("better, needs and targets are known words", _declared, ends=True),
    Rule("its value is a number", _number, ends=True),
    Rule("it leaves the predictions as they were", _untouched),
    Rule("the order of rows does not matter", _row_order),
    Rule("the order of samples does not matter", _sample_order),
    Rule("per_example averages to the value", _contributions, applies=lambda s: s.metric.per_example is not None),
    Rule("rows that count once give the value", _weights, applies=lambda s: s.metric.weighted is not None),
    Rule("a perfect predictor is not worse than a random one", _direction, applies=_judges),
    Rule("rows without a label do not matter", _unlabelled, applies=_uses_labels),
    Rule("it computes with no more than it needs", _suffices),
    Rule("what it does not need does not matter", _undeclared),
)
