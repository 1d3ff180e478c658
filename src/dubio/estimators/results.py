"""What ``evaluate`` gives back: one system's scores on every test split, to print, to index, to write as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dubio.core.errors import UnknownName, UserError
from dubio.estimators.asking import ENTROPY, GIVEN, Answers
from dubio.estimators.figures import quantity_name, referral_name
from dubio.estimators.scoring import Drawing, SplitScores
from dubio.evaluation import Score
from dubio.metrics.referral_curve import FRACTIONS

HEADLINE = (
    "accuracy",
    "class_auroc",
    "calibrated_nll",
    "brier",
    "aurc",
    "ood_auroc",
    quantity_name("ood_auroc", GIVEN),
)
"""What the first table prints of every split, where it applies."""


@dataclass(frozen=True)
class Retained:
    """What is kept at one fraction retained: its accuracy and, of a task with two sides, its AUC."""

    fraction: float
    accuracy: Score
    auc: Score | None


@dataclass(frozen=True, eq=False)
class Scores:
    """One system on the test splits of a task.

    Attributes:
        task: The task's name.
        system: What the system is called.
        splits: Name to scores, the in-distribution test split first.
        drawing: How intervals were drawn.
        notes: What a reader should know.
        answers: What was scored: split to predictions and uncertainty.
    """

    task: str
    system: str
    splits: Mapping[str, SplitScores]
    drawing: Drawing
    notes: tuple[str, ...]
    answers: Mapping[str, Answers]

    def __getitem__(self, key: str | tuple[str, str]) -> float:
        """The value of a metric in distribution, or of (metric, split)."""
        metric, split = key if isinstance(key, tuple) else (key, None)
        return self.score(metric, split).value

    def score(self, metric: str, split: str | None = None) -> Score:
        """A metric's value and interval on a split; in distribution by default.

        Raises:
            UserError: When it was not scored there, with the reason.
        """
        where = self.on(split)
        if metric in where.reasons:
            raise UserError(where.reasons[metric])
        if metric not in where.scores:
            raise UnknownName(f"score on {where.name!r}", metric, where.scores)
        return where.scores[metric]

    def on(self, split: str | None = None) -> SplitScores:
        """The scores of a split; the in-distribution one by default.

        Raises:
            UnknownName: When it was not scored.
        """
        name = next(iter(self.splits)) if split is None else split
        if name not in self.splits:
            raise UnknownName("split", name, self.splits)
        return self.splits[name]

    def referral(self, split: str | None = None, quantity: str | None = None) -> tuple[Retained, ...]:
        """Accuracy and AUC at every fraction retained.

        Args:
            split: The in-distribution one by default.
            quantity: What rows were referred by; the system's own uncertainty, else predictive entropy.
        """
        where = self.on(split)
        by = quantity or (where.referred_by[0] if where.referred_by else ENTROPY)
        if by not in where.referred_by:
            raise UnknownName(f"quantity that rows of {where.name!r} were referred by", by, where.referred_by)
        return tuple(
            Retained(
                fraction,
                where.scores[referral_name("referral_accuracy", by, fraction)],
                where.scores.get(referral_name("referral_auc", by, fraction)),
            )
            for fraction in FRACTIONS
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row a split and metric: task, system, split, kind, metric, value, low, high, better, comparable."""
        return [
            {"task": self.task, "system": self.system, "split": split.name, "kind": split.kind, "metric": metric}
            | {name: value for name, value in asdict(score).items() if name != "why_not"}
            for split in self.splits.values()
            for metric, score in split.scores.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the answers, as plain values."""
        return {
            "task": self.task,
            "system": self.system,
            **asdict(self.drawing),
            "notes": list(self.notes),
            "splits": [asdict(split) for split in self.splits.values()],
        }

    def to_json(self) -> str:
        """One JSON document; what is not a number is null."""
        return as_json(self.as_dict())

    def __repr__(self) -> str:
        return f"<{self.system} on {self.task}: {', '.join(self.splits)}>"

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.system} on {self.task}", "", *headlines([self]), "", *referrals([self]), *self._notes()]
        )

    def _notes(self) -> Iterable[str]:
        yield ""
        if self.drawing.replicates:
            drawn = self.on().resampled
            yield (
                f"In brackets: {self.drawing.level:.0%} bootstrap intervals, {self.drawing.replicates} replicates over "
                f"{drawn}, seed {self.drawing.seed}."
            )
        yield from self.notes


def headlines(systems: Sequence[Scores]) -> list[str]:
    """A line a split and system with the metrics read first."""
    several = len(systems) > 1
    lines = [(scores.system, scores.splits[split]) for split in systems[0].splits for scores in systems]
    shown = [name for name in HEADLINE if any(name in split.scores for _, split in lines)]
    rows = [["split", "kind", "rows", *(["system"] if several else []), *shown]]
    for system, split in lines:
        cells = [_cell(split.scores.get(name)) for name in shown]
        rows.append([split.name, split.kind, str(split.examples), *([system] if several else []), *cells])
    return aligned(rows)


def referrals(systems: Sequence[Scores]) -> list[str]:
    """Accuracy and AUC at every fraction retained, and the gain over referral at random."""
    several = len(systems) > 1
    heading = ["referral", *(["system"] if several else []), "by", "of the kept"]
    rows = [[*heading, *(f"{fraction:.0%}" for fraction in FRACTIONS), "gain over random"]]
    for name in systems[0].splits:
        for scores in systems:
            for quantity in scores.splits[name].referred_by[: 1 if several else None]:
                who = [name, *([scores.system] if several else []), quantity]
                kept = scores.referral(name, quantity)
                gain = _cell(scores.splits[name].scores.get(quantity_name("referral_gain", quantity)))
                rows.append([*who, "accuracy", *(_number(each.accuracy.value) for each in kept), gain])
                if kept[0].auc is not None:
                    areas = [_number(each.auc.value) for each in kept if each.auc is not None]
                    rows.append([*who, "AUC", *areas, ""])
    return aligned(rows) if len(rows) > 1 else []


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, columns under each other, the first row a heading."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def as_json(value: Any) -> str:
    """One JSON document; what is not a number is null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(score: Score | None) -> str:
    if score is None:
        return "–"
    if math.isnan(score.value):
        return "undefined"
    ends = "" if math.isnan(score.low) else f" ({_number(score.low)}, {_number(score.high)})"
    return _number(score.value) + ends


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"
