"""One system's answers on every test split, scored: what it is worth at home, under shift, and against the strange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dubio.core.predictions import Predictions, join
from dubio.core.types import BoolArray, FloatArray, Kind, Split
from dubio.estimators.asking import ENTROPY, GIVEN, Answers
from dubio.estimators.figures import Figure, detection_figures, referral_figures, scored
from dubio.evaluation import REPLICATES, STANDARD, Evaluation, Score, evaluate_predictions
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import units_of

REFERRED_BY = (ENTROPY, "mutual_information")
"""What rows are referred by, beside an estimator's own uncertainty."""

GAP = "generalisation_gap"


@dataclass(frozen=True)
class Drawing:
    """How intervals are drawn.

    Attributes:
        replicates: Bootstrap replicates; 0 for no intervals.
        level: Confidence level.
        seed: Of the draws.
    """

    replicates: int = REPLICATES
    level: float = 0.95
    seed: int = 0

    def figures(self, figures: Sequence[Figure], predictions: Predictions) -> dict[str, Score]:
        """Figures on these rows, with intervals."""
        units = units_of(predictions)
        return scored(figures, units, replicates=self.replicates, level=self.level, seed=self.seed)

    def metrics(self, names: Sequence[str], predictions: Predictions) -> Evaluation:
        """Metrics on these rows, with intervals."""
        return evaluate_predictions(
            predictions, metrics=names, replicates=self.replicates, level=self.level, seed=self.seed
        )


@dataclass(frozen=True)
class SplitScores:
    """A system on one test split.

    Attributes:
        name: Of the split.
        kind: What the split is for.
        fingerprint: Of the split's content.
        examples: Its rows.
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
    split: Split, answers: Answers, home: Answers, drawing: Drawing, metrics: Sequence[str] = STANDARD
) -> SplitScores:
    """Everything about one split.

    Args:
        split: Which.
        answers: The system's answers on it.
        home: Its answers on the in-distribution test split, which every other one is set against.
        drawing: How intervals are drawn.
        metrics: Names of metrics; those of detection are scored for every quantity and need not be named.
    """
    scores: dict[str, Score] = {}
    reasons: dict[str, str] = {}
    referred_by: tuple[str, ...] = ()
    away = split.kind in ("shift", "ood")
    if answers.has_labels:
        found = drawing.metrics([name for name in metrics if not _sets_against(name)], answers.predictions)
        scores, reasons = dict(found.scores), dict(found.reasons)
        known = answers.labelled
        referred_by = tuple(name for name in known.columns if name in (GIVEN, *REFERRED_BY))
        figures = [
            each for name in referred_by for each in referral_figures(known.predictions, known.columns[name], name)
        ]
        scores |= drawing.figures(figures, known.predictions)
    if away:
        both = against(home.predictions, answers.predictions)
        if answers.has_labels and GAP in metrics:
            scores |= drawing.metrics((GAP,), both).scores
        scores |= drawing.figures(_detecting(home, answers), both)
    resampled = "examples" if answers.predictions.group is None else "groups"
    return SplitScores(split.name, split.kind, split.fingerprint, len(split), resampled, referred_by, scores, reasons)


def against(home: Predictions, away: Predictions) -> Predictions:
    """The in-distribution rows and, flagged, those of another split."""
    return join([home, away.as_ood()])


def both_columns(home: Answers, away: Answers, quantity: tuple[str, str]) -> tuple[FloatArray, BoolArray]:
    """Uncertainty of the rows at home and away, by the quantity named for each, and which of them are away."""
    inside, outside = home.columns[quantity[0]], away.columns[quantity[1]]
    return np.concatenate([inside, outside]), np.repeat([False, True], [len(inside), len(outside)])


def _detecting(home: Answers, away: Answers) -> list[Figure]:
    shared = [name for name in home.columns if name in away.columns]
    return [each for name in shared for each in detection_figures(*both_columns(home, away, (name, name)), name)]


def _sets_against(name: str) -> bool:
    """Whether a metric sets strange rows against ordinary ones."""
    return "ood" in metric_named(name).needs
