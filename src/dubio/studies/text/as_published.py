"""Published variants beside the right ones: what mending a formula changed, never what ranks methods.

Every definition of :mod:`dubio.metrics.as_published` and :mod:`dubio.metrics.as_published` is computed again
from the stored predictions, each with its plain counterpart on the same rows. Published detection scores depend on the
order of rows: where the ids of the in-domain and the foreign rows number one common list, that is their order, else
foreign rows come last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dubio.core.errors import DubioError, UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Direction
from dubio.metrics.as_published import MethodKind
from dubio.metrics.metric import PUBLISHED, metric_named
from dubio.metrics.referral_curve import FRACTIONS
from dubio.metrics.requirements import why_not_applicable
from dubio.reporting.aggregate import Cell, Score, aggregate
from dubio.reporting.kept import REFERRED_BY
from dubio.reporting.manifest_view import Manifest, MethodRun, Source, SplitView, TaskView
from dubio.reporting.results import Results
from dubio.reporting.standing import title_of
from dubio.reporting.style import styles_of
from dubio.reporting.tables import ARROWS, Column, FilledColumn, Table, method_table, score_column

PAIRS_AT_HOME = {
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
"""Published name → plain name, of what is scored on an in-domain test set."""

PAIRS_AWAY = {f"ood_auroc{PUBLISHED}": "ood_auroc", f"ood_aupr{PUBLISHED}": "ood_aupr"}

CORRELATED = {"confidence": "confidence", "entropy": "predictive_entropy", "mutual_information": "mutual_information",
              "model_uncertainty": "model_uncertainty"}  # fmt: skip
"""T's name of a quantity → ours."""

NUMBERED = re.compile(r"(.*?)(\d+)")

MODEL = f"mean_model_uncertainty{PUBLISHED}"
CORRELATION = f"ood_correlation{PUBLISHED}"


def score_as_published(store: Source, view: Manifest) -> tuple[Score, ...]:
    """Every published variant and its plain counterpart, for every run of a manifest.

    Predictions that cannot be read are left out here: the report lists them among what failed.
    """
    found: list[Score] = []
    for task in view.tasks:
        for run in view.runs_of(task.key):
            home = task.of_kind("id")[0]
            inside = _read(store, run, home)
            if inside is None:
                continue
            found += _scores(task, home, run, at_home(inside))
            for split in task.farthest:
                outside = _read(store, run, split)
                if outside is not None:
                    found += _scores(task, split, run, away(inside, outside))
    return tuple(found)


def at_home(predictions: Predictions) -> dict[str, float]:
    """Published and plain values on an in-domain test set."""
    values = _pairs(predictions, PAIRS_AT_HOME)
    if predictions.samples > 1:
        values |= _pairs(predictions, {f"{MODEL}(kind={kind_of(predictions)})": "mean_sample_variance"})
    return values


def away(inside: Predictions, outside: Predictions) -> dict[str, float]:
    """Published and plain values of telling a foreign split from the in-domain one."""
    both = in_tested_order(inside, outside)
    kind = kind_of(both)
    values = _pairs(both, PAIRS_AWAY)
    for published, plain in CORRELATED.items():
        if published in ("model_uncertainty", "mutual_information") and both.samples < 2:
            continue
        name = f"{CORRELATION}(quantity={published}, kind={kind})"
        values |= _pairs(both, {name: f"ood_correlation(quantity={plain})"})
    return values


def in_tested_order(inside: Predictions, outside: Predictions) -> Predictions:
    """Both sets of rows as one, in the order in which a common numbering of their ids has them."""
    both = join([inside, outside.as_ood()])
    if both.ids is None:
        return both
    matches = [NUMBERED.fullmatch(name) for name in both.ids.tolist()]
    numbered = [match for match in matches if match is not None]
    if len(numbered) < len(matches) or len({match[1] for match in numbered}) > 1:
        return both
    return both.take(np.argsort([int(match[2]) for match in numbered], kind="stable"))


def kind_of(predictions: Predictions) -> MethodKind:
    """Which of T's three model uncertainties its code would have computed."""
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
    """A metric's name without the kind of method: that differs from method to method within one column."""
    told = re.sub(r',? ?kind="\w+"', "", name)
    return told.replace("(, ", "(").removesuffix("()")


def _read(store: Source, run: MethodRun, split: SplitView) -> Predictions | None:
    try:
        return store.read_predictions(run.id, split.name, split.fingerprint)
    except DubioError:
        return None


def _scores(task: TaskView, split: SplitView, run: MethodRun, values: Mapping[str, float]) -> Iterable[Score]:
    return [
        Score(task.key, split.name, split.kind, run.method, run.seed, run.member, metric, float(value))
        for metric, value in values.items()
    ]


@dataclass(frozen=True)
class Mended:
    """A published definition and the right one on one test set.

    Attributes:
        split: The test set.
        published: The published metric's name.
        plain: The right one's.
        better: Which way the published one is better, and which way the right one: of confidence, the absolute
            correlation that was published should rise and the signed one fall.
        theirs: Method → values under the published definition.
        ours: Method → values under the right one.
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
        """Both values of these methods, turned so that lower is better."""
        signs = [1.0 if way == "lower" else -1.0 for way in self.better]
        theirs = [signs[0] * self.theirs[name].mean for name in self.names]
        return theirs, [signs[1] * self.ours[name].mean for name in self.names]

    @property
    def agreement(self) -> float | None:
        """Kendall's τ-b between the two orders of methods; None of fewer than two methods, or where all are tied."""
        if len(self.names) < 2:
            return None
        tau = stats.kendalltau(*self.losses).statistic
        return None if np.isnan(tau) else float(tau)


def mended(results: Results, task: TaskView) -> tuple[Mended, ...]:
    """Every pair that was scored on a task, in order."""
    cells = aggregate(results.as_published)
    present = dict.fromkeys((s.split, s.metric) for s in results.as_published if s.task == task.key)
    found = []
    for split, metric in present:
        if PUBLISHED not in metric:
            continue
        plain = plain_name(metric)
        theirs, ours = ({m.name: c for m in results.methods_of(task)
                         if (c := cells.get((task.key, split, m.name, name))) is not None and c.n}
                        for name in (metric, plain))  # fmt: skip
        ways = metric_named(metric).better, metric_named(plain).better
        found.append(Mended(split, metric, plain, ways, theirs, ours))
    return tuple(found)


def plain_name(published: str) -> str:
    """The right metric's name for a published one, as both are filed."""
    if published == MODEL:
        return "mean_sample_variance"
    if published.startswith(CORRELATION):
        quantity = published.partition('"')[2].partition('"')[0] or "entropy"
        return metric_named(f"ood_correlation(quantity={CORRELATED[quantity]})").name
    return published.replace(PUBLISHED, "")


def mended_grid(results: Results, task: TaskView, split: str) -> Table | None:
    """The right value and the published one of every metric side by side on one test set."""
    columns: list[FilledColumn] = []
    for pair in mended(results, task):
        if pair.split == split:
            title, (theirs, ours) = _title(pair.plain), (ARROWS[way] for way in pair.better)
            columns.append(score_column(Column(title, "right", ours, unranked=True), pair.ours, places=3))
            columns.append(score_column(Column(title, "as published", theirs, unranked=True), pair.theirs, places=3))
    if not columns:
        return None
    caption = f"“{split}”: right definitions beside published ones; nothing here ranks methods"
    return method_table(results.methods_of(task), columns, styles_of(results.manifest.methods), caption=caption)


def mended_words(results: Results, pair: Mended) -> str:
    """What mending a definition changed in the order of methods."""
    tau, names = pair.agreement, pair.names
    if tau is None:
        return ""
    was, now = (names[int(np.argmin(values))] for values in pair.losses)
    shift = float(np.mean([pair.ours[name].mean - pair.theirs[name].mean for name in names]))
    lead = (
        f"{title_of(results, now)} leads under both"
        if was == now
        else f"{title_of(results, was)} would lead as published, {title_of(results, now)} leads now"
    )
    moved = f"{shift:+.3f}".replace("-", "−")
    return (
        f"{_title(pair.plain)} on “{pair.split}”: Kendall’s τ of the two orders {tau:.2f}; {lead}; mean change {moved}."
    )


def _title(metric: str) -> str:
    """A metric as a column head: its name with the arguments in words."""
    base, _, told = metric.partition("(")
    quoted = [piece.partition("=")[2].strip('" ') for piece in told.removesuffix(")").split(",") if piece]
    return " ".join([base, *quoted]).replace("_", " ")
