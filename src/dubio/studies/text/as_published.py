"""Published definitions beside the correct ones: how correcting a formula changes the numbers.

Every definition of :mod:`dubio.metrics.as_published` is computed again from the stored predictions, each with its
correct counterpart on the same rows. Published detection scores depend on the order of rows: where the ids of the
in-domain and the other rows number one common list, that is their order, else the other rows come last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

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
from dubio.reporting.wording import signed
from dubio.statistics.ranks import kendall_tau

IN_DOMAIN = (
    "nll", "ece", "brier", "tace", "aurc",
    *(f"referral_{metric}(quantity={REFERRED_BY}, retained={fraction})"
      for metric in ("accuracy", "auc") for fraction in (FRACTIONS[1], FRACTIONS[3])),
)  # fmt: skip
"""Metrics of an in-domain test set whose published form has the same arguments."""

DETECTION = ("ood_auroc", "ood_aupr")

CORRELATED = {"confidence": "confidence", "entropy": "predictive_entropy", "mutual_information": "mutual_information",
              "model_uncertainty": "model_uncertainty"}  # fmt: skip
"""T's name of a quantity → ours."""

SAMPLED = ("mutual_information", "model_uncertainty")
"""Quantities that need several samples."""

NUMBERED = re.compile(r"(.*?)(\d+)")

OPTION = "as-published"
"""The name under which the section is requested."""

Pairs = list[tuple[str, str]]
"""Names of a published definition and of the correct one."""


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
        key = item.task.key, item.split.name, item.split.kind, item.run.method, item.run.seed, item.run.member
        item.report.extra_scores.extend(Score(*key, metric, float(value)) for metric, value in values.items())

    def finish(self, run: RunView, task: TaskView) -> None:
        """Forget the predictions of the last run."""
        self._inside = None

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield both values side by side, and how the order of methods changes."""
        if run.extra_scores:
            yield Text(
                "Some published definitions, or the code behind them, are mistaken. Each is computed here beside the "
                "correct one, so that published numbers can be traced. Nothing in this section ranks methods."
            )
        for scored, pairs in ((task, corrections(run, task)) for task in run.tasks):
            if pairs:
                yield Headline(scored.key)
                tables = [correction_table(run, scored, split) for split in dict.fromkeys(pair.split for pair in pairs)]
                yield from (table for table in tables if table is not None)
                sentences = tuple(text for pair in pairs if (text := correction_sentence(run, pair)))
                yield Text(sentences, "small", title="Effect of the corrections")

    def document(self, run: RunView) -> dict[str, Any]:
        """Return the scores under both definitions."""
        return {"as_published": [vars(score) for score in run.extra_scores]}


def in_domain_pairs(kind: MethodKind) -> Pairs:
    """Return the definitions that are compared on an in-domain test set, for one of T's kinds of methods."""
    return [*_renamed(IN_DOMAIN), (f"mean_model_uncertainty{PUBLISHED}(kind={kind})", "mean_sample_variance")]


def detection_pairs(kind: MethodKind) -> Pairs:
    """Return the definitions that are compared on a shifted or OOD split."""
    return [
        *_renamed(DETECTION),
        *((f"ood_correlation{PUBLISHED}(quantity={theirs}, kind={kind})", f"ood_correlation(quantity={ours})")
          for theirs, ours in CORRELATED.items()),
    ]  # fmt: skip


def _renamed(names: Sequence[str]) -> Pairs:
    """Return pairs whose published name is the correct one with a suffix."""
    return [(re.sub(r"^\w+", rf"\g<0>{PUBLISHED}", name), name) for name in names]


def in_domain_values(predictions: Predictions) -> dict[str, float]:
    """Return published and correct values on an in-domain test set."""
    return _values(predictions, in_domain_pairs(kind_of(predictions)))


def detection_values(inside: Predictions, outside: Predictions) -> dict[str, float]:
    """Return published and correct values of detecting a shifted or OOD split."""
    both = in_tested_order(inside, outside)
    pairs = detection_pairs(kind_of(both))
    return _values(both, [pair for pair in pairs if both.samples > 1 or not any(name in pair[1] for name in SAMPLED)])


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


def _values(predictions: Predictions, pairs: Pairs) -> dict[str, float]:
    """Return score name → value, for the pairs whose published definition applies."""
    values: dict[str, float] = {}
    for pair in pairs:
        metrics = [metric_named(name) for name in pair]
        for metric in metrics if why_not_applicable(metrics[0], predictions) is None else ():
            with suppress(UserError):  # too few rows for that definition: no value, and the table shows none
                values[score_name(metric.name)] = metric.compute(predictions)
    return values


def score_name(metric: str) -> str:
    """Return a metric's name without the kind of method, which differs within one column."""
    return re.sub(r',? ?kind="\w+"', "", metric).replace("(, ", "(").removesuffix("()")


@cache
def correct_names() -> dict[str, str]:
    """Return the name of every published score → that of the correct one."""
    pairs = (*in_domain_pairs("dropout"), *detection_pairs("dropout"))
    return {score_name(metric_named(one).name): score_name(metric_named(other).name) for one, other in pairs}


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
        theirs, ours = (
            [side[name].mean if way == "lower" else -side[name].mean for name in self.names]
            for side, way in zip((self.theirs, self.ours), self.better, strict=True)
        )
        return theirs, ours

    @property
    def agreement(self) -> float | None:
        """Kendall's τ-b between the two orders of methods; None for fewer than two methods, or where all are tied."""
        return kendall_tau(*self.losses)


def corrections(run: RunView, task: TaskView) -> tuple[Correction, ...]:
    """Return every pair of definitions that was scored on a task, in order."""
    cells, names = aggregate(run.extra_scores), correct_names()
    present = dict.fromkeys((s.split, s.metric) for s in run.extra_scores if s.task == task.key and s.metric in names)
    pairs = []
    for split, metric in present:
        sides = metric, names[metric]
        theirs, ours = ({m.name: cell for m in run.methods_of(task)
                         if (cell := cells.get((task.key, split, m.name, name))) is not None and cell.n}
                        for name in sides)  # fmt: skip
        better = metric_named(sides[0]).better, metric_named(sides[1]).better
        pairs.append(Correction(split, *sides, better, theirs, ours))
    return tuple(pairs)


def correction_table(run: RunView, task: TaskView, split: str) -> Table | None:
    """Return the correct and the published value of every metric on one test set."""
    columns: list[FilledColumn] = []
    for pair in (pair for pair in corrections(run, task) if pair.split == split):
        title, (theirs, ours) = _title(pair.plain), (ARROWS[way] for way in pair.better)
        columns.append(score_column(Column(title, "correct", ours, unranked=True), pair.ours, places=3))
        columns.append(score_column(Column(title, "as published", theirs, unranked=True), pair.theirs, places=3))
    caption = f"“{split}”: correct and published definitions; they do not rank methods"
    return method_table(run.methods_of(task), columns, run.styles, caption=caption) if columns else None


def correction_sentence(run: RunView, pair: Correction) -> str:
    """Return how correcting a definition changes the order of methods."""
    tau, names = pair.agreement, pair.names
    if tau is None:
        return ""
    was, now = (run.title(names[int(np.argmin(values))]) for values in pair.losses)
    lead = f"{now} leads under both" if was == now else f"{was} would lead as published, {now} leads now"
    change = signed(float(np.mean([pair.ours[name].mean - pair.theirs[name].mean for name in names])))
    orders = f"Kendall’s τ of the two orders {tau:.2f}"
    return f"{_title(pair.plain)} on “{pair.split}”: {orders}; {lead}; mean change {change}."


def _title(metric: str) -> str:
    """Return a metric as a column head: its name with its arguments."""
    base, _, options = metric.partition("(")
    quoted = [piece.partition("=")[2].strip('" ') for piece in options.removesuffix(")").split(",") if piece]
    return " ".join([base, *quoted]).replace("_", " ")
