"""Published definitions beside the correct ones: how correcting a formula changes the numbers.

Every definition of :mod:`dubio.metrics.as_published` is computed again from the stored predictions, each with its
correct counterpart on the same rows. Published detection scores depend on the order of rows: where the ids of the
in-domain and the other rows number one common list, that is their order, else the other rows come last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Direction
from dubio.metrics.as_published import MethodKind
from dubio.metrics.metric import PUBLISHED, metric_named
from dubio.metrics.referral_curve import FRACTIONS
from dubio.metrics.requirements import why_not_applicable
from dubio.reporting.manifest_view import MethodRun, TaskView
from dubio.reporting.measures import REFERRED_BY
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell, Score, aggregate
from dubio.reporting.section import Block, Headline, Section, Text, Visit, section
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column

IN_DOMAIN_PAIRS = {
    f"nll{PUBLISHED}": "nll",
    f"ece{PUBLISHED}": "ece",
    f"brier{PUBLISHED}": "brier",
    f"tace{PUBLISHED}": "tace",
    f"aurc{PUBLISHED}": "aurc",
    **{
        f"referral_{metric}{PUBLISHED}(quantity={REFERRED_BY}, retained={fraction})": (
            f"referral_{metric}(quantity={REFERRED_BY}, retained={fraction})"
        )
        for metric in ("accuracy", "auc")
        for fraction in (FRACTIONS[1], FRACTIONS[3])
    },
}
"""Published name → correct name, of the metrics of an in-domain test set."""

DETECTION_PAIRS = {f"ood_auroc{PUBLISHED}": "ood_auroc", f"ood_aupr{PUBLISHED}": "ood_aupr"}

CORRELATED = {"confidence": "confidence", "entropy": "predictive_entropy", "mutual_information": "mutual_information",
              "model_uncertainty": "model_uncertainty"}  # fmt: skip
"""T's name of a quantity → ours."""

NUMBERED = re.compile(r"(.*?)(\d+)")

MODEL = f"mean_model_uncertainty{PUBLISHED}"
CORRELATION = f"ood_correlation{PUBLISHED}"


OPTION = "as-published"
"""The name under which the section is requested."""


@section("as-published", part="closing", order=30)
class AsPublished(Section):
    """Published definitions that are mistaken, beside the correct ones."""

    title = "As published"

    def __init__(self) -> None:
        """Start without any run."""
        self._inside: tuple[MethodRun, Predictions] | None = None

    def visit(self, item: Visit) -> None:
        """Score every published definition and its correct counterpart, where they were requested."""
        if OPTION not in item.report.options:
            return
        values: dict[str, float] = {}
        if item.is_in_domain_test:
            self._inside = item.run, item.predictions
            values = in_domain_values(item.predictions)
        elif self._inside is not None and self._inside[0] == item.run and item.split in item.task.farthest:
            values = detection_values(self._inside[1], item.predictions)
        place = item.task.key, item.split.name, item.split.kind, item.run.method, item.run.seed, item.run.member
        item.report.extra_scores.extend(Score(*place, metric, float(value)) for metric, value in values.items())

    def finish(self, run: RunView, task: TaskView) -> None:
        """Forget the predictions of the last run."""
        self._inside = None

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield both values side by side, and how the order of methods changes."""
        found = {each.key: pairs for each in run.tasks if (pairs := corrections(run, each))}
        if found:
            yield Text(
                "Some published definitions, or the code behind them, are mistaken. Each is computed here beside the "
                "correct one, so that published numbers can be traced. Nothing in this section ranks methods."
            )
        for each in run.tasks:
            if each.key in found:
                yield Headline(each.key)
                tables = [
                    correction_table(run, each, split) for split in dict.fromkeys(p.split for p in found[each.key])
                ]
                yield from (table for table in tables if table is not None)
                sentences = tuple(text for pair in found[each.key] if (text := correction_sentence(run, pair)))
                yield Text(sentences, "small", title="Effect of the corrections")

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the scores under both definitions."""
        return {"as_published": [vars(score) for score in run.extra_scores]}


def in_domain_values(predictions: Predictions) -> dict[str, float]:
    """Return published and correct values on an in-domain test set."""
    values = _pairs(predictions, IN_DOMAIN_PAIRS)
    if predictions.samples > 1:
        values |= _pairs(predictions, {f"{MODEL}(kind={kind_of(predictions)})": "mean_sample_variance"})
    return values


def detection_values(inside: Predictions, outside: Predictions) -> dict[str, float]:
    """Return published and correct values of detecting a shifted or OOD split."""
    both = in_tested_order(inside, outside)
    kind = kind_of(both)
    values = _pairs(both, DETECTION_PAIRS)
    for published, plain in CORRELATED.items():
        if published in ("model_uncertainty", "mutual_information") and both.samples < 2:
            continue
        name = f"{CORRELATION}(quantity={published}, kind={kind})"
        values |= _pairs(both, {name: f"ood_correlation(quantity={plain})"})
    return values


def in_tested_order(inside: Predictions, outside: Predictions) -> Predictions:
    """Join both sets of rows, in the order of a common numbering of their ids, if they have one."""
    both = join([inside, outside.as_ood()])
    if both.ids is None:
        return both
    matches = [NUMBERED.fullmatch(name) for name in both.ids.tolist()]
    numbered = [match for match in matches if match is not None]
    if len(numbered) < len(matches) or len({match[1] for match in numbered}) > 1:
        return both
    return both.take(np.argsort([int(match[2]) for match in numbered], kind="stable"))


def kind_of(predictions: Predictions) -> MethodKind:
    """Return which of T's three model uncertainties its code would have computed."""
    if len(np.unique(predictions.member)) > 1:
        return "ensemble"
    return "dropout" if predictions.data_variance is None else "heteroscedastic"


def _pairs(predictions: Predictions, pairs: Mapping[str, str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for published, plain in pairs.items():
        for name in (published, plain):
            metric = metric_named(name)
            if why_not_applicable(metric_named(published), predictions) is None:
                try:
                    values[_bare(metric.name)] = metric.compute(predictions)
                except UserError:  # too few rows for that definition: no value, and the table shows none
                    continue
    return values


def _bare(name: str) -> str:
    """Return a metric's name without the kind of method, which differs within one column."""
    bare = re.sub(r',? ?kind="\w+"', "", name)
    return bare.replace("(, ", "(").removesuffix("()")


@dataclass(frozen=True)
class Correction:
    """A published definition and the correct one on one test set.

    Attributes:
        split: The test set.
        published: The published metric's name.
        plain: The correct one's.
        better: Which direction of the published one is better, and which of the correct one: of confidence, the
            absolute correlation that was published should rise and the signed one fall.
        theirs: Method → values under the published definition.
        ours: Method → values under the correct one.
    """

    split: str
    published: str
    plain: str
    better: tuple[Direction, Direction]
    theirs: Mapping[str, Cell]
    ours: Mapping[str, Cell]

    @property
    def names(self) -> list[str]:
        """The methods that have both values."""
        return [name for name in self.theirs if name in self.ours]

    @property
    def losses(self) -> tuple[list[float], list[float]]:
        """Both values of these methods, signed so that lower is better."""
        signs = [1.0 if way == "lower" else -1.0 for way in self.better]
        theirs = [signs[0] * self.theirs[name].mean for name in self.names]
        return theirs, [signs[1] * self.ours[name].mean for name in self.names]

    @property
    def agreement(self) -> float | None:
        """Kendall's τ-b between the two orders of methods; None for fewer than two methods, or where all are tied."""
        if len(self.names) < 2:
            return None
        tau = stats.kendalltau(*self.losses).statistic
        return None if np.isnan(tau) else float(tau)


def corrections(run: RunView, task: TaskView) -> tuple[Correction, ...]:
    """Return every pair of definitions that was scored on a task, in order."""
    cells = aggregate(run.extra_scores)
    present = dict.fromkeys((s.split, s.metric) for s in run.extra_scores if s.task == task.key)
    found = []
    for split, metric in present:
        if PUBLISHED not in metric:
            continue
        plain = plain_name(metric)
        theirs, ours = ({m.name: c for m in run.methods_of(task)
                         if (c := cells.get((task.key, split, m.name, name))) is not None and c.n}
                        for name in (metric, plain))  # fmt: skip
        ways = metric_named(metric).better, metric_named(plain).better
        found.append(Correction(split, metric, plain, ways, theirs, ours))
    return tuple(found)


def plain_name(published: str) -> str:
    """Return the correct metric's name for a published one."""
    if published == MODEL:
        return "mean_sample_variance"
    if published.startswith(CORRELATION):
        quantity = published.partition('"')[2].partition('"')[0] or "entropy"
        return metric_named(f"ood_correlation(quantity={CORRELATED[quantity]})").name
    return published.replace(PUBLISHED, "")


def correction_table(run: RunView, task: TaskView, split: str) -> Table | None:
    """Return the correct and the published value of every metric on one test set."""
    columns: list[FilledColumn] = []
    for pair in corrections(run, task):
        if pair.split == split:
            title, (theirs, ours) = _title(pair.plain), (ARROWS[way] for way in pair.better)
            columns.append(score_column(Column(title, "correct", ours, unranked=True), pair.ours, places=3))
            columns.append(score_column(Column(title, "as published", theirs, unranked=True), pair.theirs, places=3))
    if not columns:
        return None
    caption = f"“{split}”: correct and published definitions; they do not rank methods"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption)


def correction_sentence(run: RunView, pair: Correction) -> str:
    """Return how correcting a definition changes the order of methods."""
    tau, names = pair.agreement, pair.names
    if tau is None:
        return ""
    was, now = (names[int(np.argmin(values))] for values in pair.losses)
    shift = float(np.mean([pair.ours[name].mean - pair.theirs[name].mean for name in names]))
    lead = (
        f"{run.title(now)} leads under both"
        if was == now
        else f"{run.title(was)} would lead as published, {run.title(now)} leads now"
    )
    moved = f"{shift:+.3f}".replace("-", "−")
    return (
        f"{_title(pair.plain)} on “{pair.split}”: Kendall’s τ of the two orders {tau:.2f}; {lead}; mean change {moved}."
    )


def _title(metric: str) -> str:
    """Return a metric as a column head: its name with its arguments."""
    base, _, options = metric.partition("(")
    quoted = [piece.partition("=")[2].strip('" ') for piece in options.removesuffix(")").split(",") if piece]
    return " ".join([base, *quoted]).replace("_", " ")
