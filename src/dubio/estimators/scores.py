"""Scores of one system on every test split of a task, from :func:`dubio.evaluation.evaluate_predictions`.

Every labelled split is scored by itself, and by referral: the accuracy (with two classes also the AUC) of the rows that
are retained. Every split under shift or out of distribution is joined with the in-distribution test split, its own rows
flagged, and scored by how well each uncertainty detects them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from dubio.core.data_frame import data_frame
from dubio.core.errors import UserError, check_known
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.specs import to_json
from dubio.core.types import Kind, Metric, Split
from dubio.estimators.adapters import GIVEN
from dubio.evaluation import REPLICATES, STANDARD, evaluate_predictions
from dubio.evaluation.preparation import with_ood
from dubio.evaluation.results import Evaluation, Score, score_text
from dubio.formats.text_tables import number_text, text_table
from dubio.metrics.decisions import binary_problems
from dubio.metrics.metric import metric_named, name_and_arguments
from dubio.metrics.quantities import applicable_quantities
from dubio.metrics.referral_curve import FRACTIONS
from dubio.metrics.requirements import has_labels

if TYPE_CHECKING:
    import pandas

ENTROPY = "predictive_entropy"
"""The quantity rows are referred by where an estimator returns no uncertainty (R §2.4)."""

REFERRED_BY = (GIVEN, ENTROPY, "mutual_information")
"""The quantities rows are referred by, where they are defined."""

DETECTION = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation")
"""The detection metrics, each computed by every quantity."""

GAP = "generalisation_gap"


def metric_by(name: str, quantity: str, **arguments: Any) -> Metric:
    """Return a metric that ranks rows by a quantity."""
    metric: Metric = METRICS.make(name, quantity=quantity, **arguments)
    return metric


def unchanged(metric: Metric) -> Metric:
    """Return the metric."""
    return metric


DRAWN = ("ood_fpr95", "ood_correlation")
"""Metrics that need an order: ties are one threshold to the first, and no correlation to the second."""


def at_random(metric: Metric) -> Metric:
    """Return the metric as the control has it, under its own name: where it orders rows, it does so at random.

    All rows are equally uncertain, which is the expectation over random orders; :data:`DRAWN` use random numbers. A
    temperature does not change a random order, so that the calibrated area is the plain one.
    """
    name, arguments = name_and_arguments(metric.name)
    if name == "calibrated_aurc":
        name, arguments = "aurc", {}
    if "quantity" not in METRICS.entry(name).parameters():
        return metric
    arguments["quantity"] = "random" if name in DRAWN else GIVEN
    chance: Metric = METRICS.make(name, **arguments)
    return replace(chance, name=metric.name)


HEADLINE = (
    "accuracy", "class_auroc", "calibrated_nll", "brier", "aurc", "ood_auroc", metric_by("ood_auroc", GIVEN).name,
)  # fmt: skip
"""The columns of the first printed table, where they apply."""


@dataclass(frozen=True)
class BootstrapOptions:
    """How intervals are made.

    Attributes:
        replicates: Bootstrap replicates; 0 for no intervals.
        level: Confidence level.
        seed: Seed of the draws.
    """

    replicates: int = REPLICATES
    level: float = 0.95
    seed: int = 0

    def evaluate(self, predictions: Predictions, metrics: Sequence[str | Metric]) -> Evaluation:
        """Evaluate predictions with intervals made this way."""
        return evaluate_predictions(predictions, metrics=metrics, **asdict(self))


@dataclass(frozen=True)
class SplitScores:
    """The scores of a system on one test split.

    Attributes:
        name: Name of the split.
        kind: What the split is for.
        fingerprint: Of the split's content.
        examples: Number of rows.
        resampled: What the bootstrap draws: ``examples`` or ``groups``.
        referred_by: The quantities rows were referred by, the system's own first; none where no row has a label.
        scores: Metric to its score.
        reasons: Why each other metric does not apply.
    """

    name: str
    kind: Kind
    fingerprint: str
    examples: int
    resampled: str
    referred_by: tuple[str, ...]
    scores: Mapping[str, Score]
    reasons: Mapping[str, str]


def score_split(
    split: Split,
    predictions: Predictions,
    in_domain: Predictions,
    bootstrap: BootstrapOptions,
    metrics: Sequence[str] = STANDARD,
    adapt: Callable[[Metric], Metric] = unchanged,
) -> SplitScores:
    """Score a system on one split.

    Args:
        split: The split.
        predictions: The system's predictions on it.
        in_domain: Its predictions on the in-distribution test split, which every other one is compared with.
        bootstrap: How intervals are made.
        metrics: Names of metrics; those of detection are computed by every quantity and need not be named.
        adapt: Applied to every metric: :func:`at_random` for the control.
    """
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    referred_by: tuple[str, ...] = ()
    if has_labels(predictions):
        defined = applicable_quantities(predictions)
        referred_by = tuple(name for name in REFERRED_BY if name in defined)
        chosen = [metric for metric in map(metric_named, metrics) if "ood" not in metric.needs]
        referral = [metric for name in referred_by for metric in referral_metrics(predictions, name)]
        evaluation = bootstrap.evaluate(predictions, list(map(adapt, [*chosen, *referral])))
        scores, reasons = dict(evaluation.scores), dict(evaluation.reasons)
    if split.kind in ("shift", "ood"):
        both = with_ood(in_domain, predictions)
        gap = [metric_named(GAP)] if has_labels(predictions) and GAP in metrics else []
        scores |= bootstrap.evaluate(both, list(map(adapt, [*gap, *detection_metrics(both)]))).scores
    resampled = "examples" if predictions.group is None else "groups"
    return SplitScores(split.name, split.kind, split.fingerprint, len(split), resampled, referred_by, scores, reasons)


def referral_metrics(predictions: Predictions, quantity: str, fractions: Sequence[float] = FRACTIONS) -> list[Metric]:
    """Return the metrics of referral by one quantity: at every fraction retained, and over all.

    The AUC of the retained is among them where the task is one binary problem.
    """
    binary = len(binary_problems(predictions.labelled)) == 1
    names = ("referral_accuracy", "referral_auc") if binary else ("referral_accuracy",)
    at_fractions = [metric_by(name, quantity, retained=fraction) for name in names for fraction in fractions]
    return [*at_fractions, metric_by("au_arc", quantity), metric_by("referral_gain", quantity)]


def detection_metrics(both: Predictions) -> list[Metric]:
    """Return every detection metric by every quantity that is defined on these rows, the random control aside."""
    quantities = [name for name in applicable_quantities(both) if name != "random"]
    return [metric_by(name, quantity) for quantity in quantities for name in DETECTION]


@dataclass(frozen=True)
class Retained:
    """The accuracy and, of a binary problem, the AUC of the rows retained at one fraction."""

    fraction: float
    accuracy: Score
    auc: Score | None


@dataclass(frozen=True, eq=False)
class EstimatorScores:
    """The scores of one system on the test splits of a task.

    Attributes:
        task: The task's name.
        system: The system's name.
        splits: Name to scores, the in-distribution test split first.
        bootstrap: How intervals were made.
        notes: Remarks about the system.
        predictions: Split to the predictions that were scored; their ``scores`` hold the system's own uncertainty.
    """

    task: str
    system: str
    splits: Mapping[str, SplitScores]
    bootstrap: BootstrapOptions
    notes: tuple[str, ...]
    predictions: Mapping[str, Predictions]

    def __getitem__(self, key: str | tuple[str, str]) -> float:
        """Return the value of a metric on the in-distribution test split, or of (metric, split)."""
        metric, split = key if isinstance(key, tuple) else (key, None)
        return self.score(metric, split).value

    def score(self, metric: str, split: str | None = None) -> Score:
        """Return a metric's value and interval on a split, by default the in-distribution one.

        Raises:
            UserError: When it was not computed there, with the reason.
        """
        scores = self.on(split)
        if metric in scores.reasons:
            raise UserError(scores.reasons[metric])
        check_known(f"score on {scores.name!r}", [metric], scores.scores)
        return scores.scores[metric]

    def on(self, split: str | None = None) -> SplitScores:
        """Return the scores on a split, by default the in-distribution one.

        Raises:
            UnknownName: When it was not scored.
        """
        name = next(iter(self.splits)) if split is None else split
        check_known("split", [name], self.splits)
        return self.splits[name]

    def referral(self, split: str | None = None, quantity: str | None = None) -> tuple[Retained, ...]:
        """Return accuracy and AUC at every fraction retained.

        Args:
            split: By default the in-distribution one.
            quantity: What rows are referred by; by default the system's own uncertainty, else predictive entropy.
        """
        on = self.on(split)
        by = quantity or (on.referred_by[0] if on.referred_by else ENTROPY)
        check_known(f"quantity that rows of {on.name!r} were referred by", [by], on.referred_by)
        return tuple(
            Retained(
                fraction,
                on.scores[metric_by("referral_accuracy", by, retained=fraction).name],
                on.scores.get(metric_by("referral_auc", by, retained=fraction).name),
            )
            for fraction in FRACTIONS
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per split and metric: task, system, split, kind, metric, value, low, high, better, comparable."""
        return [
            {"task": self.task, "system": self.system, "split": split.name, "kind": split.kind, "metric": metric}
            | {name: value for name, value in asdict(score).items() if name != "why_not"}
            for split in self.splits.values()
            for metric, score in split.scores.items()
        ]

    def to_frame(self) -> pandas.DataFrame:
        """Return :attr:`table` as a data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.table)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the predictions as plain values."""
        facts = {"task": self.task, "system": self.system, **asdict(self.bootstrap), "notes": list(self.notes)}
        return facts | {"splits": [asdict(split) for split in self.splits.values()]}

    def to_json(self) -> str:
        """Return one JSON document; an infinite number is the text "Infinity", an undefined one null."""
        return to_json(self.as_dict())

    def __repr__(self) -> str:
        return f"<{self.system} on {self.task}: {', '.join(self.splits)}>"

    def __str__(self) -> str:
        replicates, level, seed = astuple(self.bootstrap)
        units = self.on().resampled
        remark = f"In brackets: {level:.0%} bootstrap intervals, {replicates} replicates over {units}, seed {seed}."
        lines = [*headlines([self]), "", *referrals([self]), "", *([remark] if replicates else []), *self.notes]
        return "\n".join([f"{self.system} on {self.task}", "", *lines])


def headlines(systems: Sequence[EstimatorScores]) -> list[str]:
    """Return a table of the headline metrics, one line per split and system."""
    several = len(systems) > 1
    lines = [(scores.system, scores.splits[split]) for split in systems[0].splits for scores in systems]
    shown = [name for name in HEADLINE if any(name in split.scores for _, split in lines)]
    rows = [["split", "kind", "rows", *(["system"] if several else []), *shown]]
    for system, split in lines:
        cells = [score_text(split.scores.get(name)) for name in shown]
        rows.append([split.name, split.kind, str(split.examples), *([system] if several else []), *cells])
    return text_table(rows)


def referrals(systems: Sequence[EstimatorScores]) -> list[str]:
    """Return a table of accuracy and AUC at every fraction retained, and of the gain over random referral."""
    several = len(systems) > 1
    heading = ["referral", *(["system"] if several else []), "by", "of the retained"]
    rows = [[*heading, *(f"{fraction:.0%}" for fraction in FRACTIONS), "gain over random"]]
    for name in systems[0].splits:
        for scores in systems:
            for quantity in scores.splits[name].referred_by[: 1 if several else None]:
                start = [name, *([scores.system] if several else []), quantity]
                points = scores.referral(name, quantity)
                gain = score_text(scores.splits[name].scores.get(metric_by("referral_gain", quantity).name))
                rows.append([*start, "accuracy", *(number_text(point.accuracy.value) for point in points), gain])
                areas = [number_text(point.auc.value) for point in points if point.auc is not None]
                if areas:
                    rows.append([*start, "AUC", *areas, ""])
    return text_table(rows) if len(rows) > 1 else []
