"""The results of evaluating systems: scores, tested pairs, and the one form in which they print.

``dubio evaluate`` prints the same tables and sentences that the objects print in Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubio.calibration.cross_validation import BY_POSITION, HALVED, by_position
from dubio.core.data_frame import data_frame
from dubio.core.errors import UserError, listing, plural
from dubio.core.notebook import as_html
from dubio.core.predictions import Predictions
from dubio.core.types import EmptyDecision, Metric, Target
from dubio.formats.text_tables import number_text, text_table
from dubio.metrics.detection import Detection, detect
from dubio.metrics.quantities import applicable_quantities
from dubio.statistics.bootstrap import units_of
from dubio.statistics.paired import McNemar, in_domain_rows
from dubio.statistics.subgroups import UNDERPOWERED
from dubio.statistics.verdicts import PairTest, Question

if TYPE_CHECKING:
    import pandas

    from dubio import WrittenReport
    from dubio.evaluation.gates import RequirementResults

FEW = 3
"""Up to this many systems every pair is printed; of more, those with the best one of each metric."""

SHOWN = 10
"""Rows of probability zero that a note names; .impossible and --json have all."""

DETECTION = {
    "auroc": "AUROC ↑", "aupr_ood": "AUPR ood ↑", "aupr_id": "AUPR id ↑", "fpr95": "FPR95 ↓", "correlation": "corr.",
}  # fmt: skip
"""The printed figures of a detection, with their headings."""

NOT_JUDGED = "Not judged: too few examples, groups or rows of a class for a test."

QUESTION: Question = "systems"
"""What predictions can answer: of the trainings behind them there is one each."""


@dataclass(frozen=True)
class Score:
    """One metric of one system.

    Attributes:
        value: The value; NaN where the metric documents that it is undefined.
        low: Lower end of the bootstrap interval, NaN where there is none.
        high: Upper end.
        better: Which way is better.
        comparable: Whether it may rank systems.
        why_not: Why it may not, in one sentence.
    """

    value: float
    low: float
    high: float
    better: str
    comparable: bool
    why_not: str


class Result:
    """A result that shows its tables in a notebook and has a web page."""

    def report(
        self, out: str | Path = "dubio-report", *, title: str = "", figures: str | Path | None = None, **further: Any
    ) -> WrittenReport:
        """Write ``report.html`` and ``results.csv`` of the predictions that were scored.

        Args:
            out: The folder to write to; it is created if necessary.
            title: What the page calls the data.
            figures: A folder for every figure as a file of its own.
            further: Further arguments of :func:`dubio.report`: calibration and shifted test sets, ``formats``, ….

        Raises:
            MissingExtra: Without the packages of ``dubio[report]``.
        """
        from dubio import report

        return report(self, out=out, title=title, figures=figures, **further)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return as_html(repr(self))


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Result):
    """The scores of one system's predictions.

    Attributes:
        scores: Metric name to its score. Metrics of detection use all rows; all others the in-distribution rows.
        reasons: Why each other requested metric does not apply, as a sentence.
        rows: In-distribution rows (all rows, where all are out of distribution).
        ood_rows: Out-of-distribution rows.
        unlabelled: In-distribution rows without a label, which label metrics leave out.
        samples: Number of samples per row.
        members: Number of independent fits among the samples.
        classes: Number of classes.
        target: What is predicted.
        empty_decision: How multi-label rows without a label above one half are decided; None for other targets.
        empty_rows: The number of such in-distribution rows; None likewise.
        floor: What probabilities were raised to for the likelihood; None where they were left as they are.
        floored: The metrics that were computed so; the others used probabilities as they are.
        impossible: The in-distribution rows whose true class has probability zero, by id, else by number from 0; looked
            for where a score without the floor is infinite.
        resampled: What the bootstrap draws: ``examples`` or ``groups``.
        replicates: Number of bootstrap replicates; 0 for no intervals.
        level: Confidence level of the intervals.
        seed: Seed of the bootstrap.
        predictions: The predictions that were scored.
        metrics: Every requested metric.
        subgroups: Column to value to the scores of the in-distribution rows that have it.
    """

    scores: dict[str, Score]
    reasons: dict[str, str]
    rows: int
    ood_rows: int
    unlabelled: int
    samples: int
    members: int
    classes: int
    target: Target
    empty_decision: EmptyDecision | None
    empty_rows: int | None
    floor: float | None
    floored: tuple[str, ...]
    impossible: tuple[str, ...]
    resampled: str
    replicates: int
    level: float
    seed: int
    predictions: Predictions
    metrics: tuple[Metric, ...]
    subgroups: Mapping[str, Mapping[str, Evaluation]] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """The number of groups, or of rows where there are no groups."""
        return units_of(in_domain_rows(self.predictions)).count

    def __getitem__(self, metric: str) -> float:
        """Return the value of a metric by name."""
        if metric in self.reasons:
            raise UserError(self.reasons[metric])
        if metric not in self.scores:
            raise UserError(f"metric {metric!r} was not computed; request it with metrics=({metric!r},).")
        return self.scores[metric].value

    @cached_property
    def detection(self) -> dict[str, Detection]:
        """Quantity to every figure of out-of-distribution detection; empty unless there are rows of both kinds."""
        if not self.ood_rows or self.ood_rows == len(self.predictions):
            return {}
        quantities = applicable_quantities(self.predictions)
        return {name: detect(self.predictions, name, seed=self.seed) for name in quantities}

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the predictions as plain values."""
        apart = ("predictions", "scores", "metrics", "subgroups")
        return {
            **{item.name: getattr(self, item.name) for item in fields(self) if item.name not in apart},
            "units": self.units,
            "notes": list(self.predictions.notes),
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "subgroups": {
                column: {
                    value: {"underpowered": own.units < UNDERPOWERED, **own.as_dict()} for value, own in parts.items()
                }
                for column, parts in self.subgroups.items()
            },
            "detection": {name: asdict(figures) for name, figures in self.detection.items()},
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per metric: value, low, high, better, comparable, why_not.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame({"metric": name, **asdict(score)} for name, score in self.scores.items())

    def require(self, requirements: str | Iterable[str]) -> RequirementResults:
        """Check requirements such as ``"accuracy>=0.9"`` or ``"ece<0.03@upper"``; the result is true if all are met.

        A metric that was not computed is computed now, on the same rows and replicates.

        Raises:
            UserError: For a requirement of another form, an unknown metric, or a bound without intervals.
        """
        from dubio.evaluation.gates import check_requirements

        return check_requirements({"": self}, requirements)

    def __repr__(self) -> str:
        return repr(SystemComparison({"value": self}, {}, {}, self.level))


@dataclass(frozen=True, eq=False, repr=False)
class SystemComparison(Result):
    """Systems on the same examples: their scores, and every pair tested under every metric that may rank them.

    It prints as tables of scores, of pairs (of more than :data:`FEW` systems, those with the best one of each metric)
    and of out-of-distribution detection, and sentences on how to read them.

    Attributes:
        evaluations: System to its scores.
        tests: Metric to the test of every pair; those of one metric are corrected together.
        mcnemar: Pair to McNemar's exact test of accuracy; empty where examples come in groups or have no labels.
        level: Confidence level.
        remarks: What was done to the predictions before they were scored.
    """

    evaluations: Mapping[str, Evaluation]
    tests: Mapping[str, tuple[PairTest, ...]]
    mcnemar: Mapping[tuple[str, str], McNemar]
    level: float
    remarks: tuple[str, ...] = ()

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """One row per metric and pair: difference, interval, p, smallest significant difference, better system."""
        return [{"metric": metric, **asdict(test)} for metric, tests in self.tests.items() for test in tests]

    def as_dict(self) -> dict[str, Any]:
        """Return the pairs as plain values."""
        return {
            "level": self.level,
            "question": QUESTION,
            "metrics": {metric: [asdict(test) for test in tests] for metric, tests in self.tests.items()},
            "mcnemar": [{"first": one, "second": two, **asdict(test)} for (one, two), test in self.mcnemar.items()],
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return :attr:`pairs` as a data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.pairs)

    def require(self, requirements: str | Iterable[str]) -> RequirementResults:
        """Check requirements on every system, or on the one that is named: ``"NAME:aurc<0.05"``.

        Raises:
            UserError: As for :meth:`Evaluation.require`, and for an unknown system.
        """
        from dubio.evaluation.gates import check_requirements

        return check_requirements(self.evaluations, requirements)

    @property
    def reasons(self) -> list[str]:
        """Why requested metrics do not apply, each sentence once."""
        return sorted({text for own in self.evaluations.values() for text in own.reasons.values()})

    @property
    def notes(self) -> list[str]:
        """How the numbers were computed, and why a metric does not rank, as sentences."""
        first = next(iter(self.evaluations.values()))
        notes = [
            *self.remarks,
            *dict.fromkeys(text for own in self.evaluations.values() for text in own.predictions.notes),
        ]
        if first.unlabelled:
            notes.append(f"{first.unlabelled} unlabelled rows are left out of metrics that need labels.")
        notes += [] if first.floor is None else [self._floor_sentence(first.floor)]
        notes += [_infinite_sentence(name, own) for name, own in self.evaluations.items() if own.impossible]
        if first.floor is not None:
            notes += [_without_floor_sentence(name, own) for name, own in self.evaluations.items() if _infinite(own)]
        notes += [_empty_sentence(name, own) for name, own in self.evaluations.items() if own.empty_rows]
        if any(name.startswith(HALVED) for name in first.scores) and by_position(first.predictions):
            notes.append(BY_POSITION)
        if first.replicates and first.units < 2:
            notes.append(f"No intervals: they need at least two {first.resampled}.")
        elif first.replicates:
            notes.append(f"In brackets: {first.level:.0%} bootstrap intervals, {first.replicates} replicates over "
                         f"{first.resampled}, seed {first.seed}; exact ones of shares such as accuracy.")  # fmt: skip
        if first.replicates and 1 < first.units < UNDERPOWERED:
            notes.append(f"Underpowered: {first.units} {first.resampled}, fewer than {UNDERPOWERED}, are too few for a "
                         "conclusion; intervals, except those of shares, may be too narrow.")  # fmt: skip
        if any(subgroup.units < UNDERPOWERED for values in first.subgroups.values() for subgroup in values.values()):
            notes.append(f"Underpowered: a subgroup of fewer than {UNDERPOWERED} {first.resampled}, too few for a "
                         "conclusion.")  # fmt: skip
        if first.detection:
            notes.append("Areas under precision–recall curves depend on the share of out-of-distribution rows, here "
                         f"{first.ood_rows / len(first.predictions):.3f}.")  # fmt: skip
        if len(self.evaluations) > 1:
            notes.append("*: the best value. It need not be better than the others by more than chance.")
        if self.tests:
            notes.append(pairs_remark(self.level))
            notes += [NOT_JUDGED] if any(math.isinf(pair["resolves"]) for pair in self.pairs) else []
            if len(self.evaluations) > FEW:
                notes.append("Only pairs with the best system of each metric are printed; .pairs and --json have all.")
            else:
                notes += map(_mcnemar_sentence, self.mcnemar, self.mcnemar.values())
        refused: dict[str, list[str]] = {}
        for name, score in first.scores.items():
            if not score.comparable:
                refused.setdefault(score.why_not, []).append(name)
        return notes + [f"Not ranked: {', '.join(names)}. {reason}" for reason, names in refused.items()]

    def _floor_sentence(self, floor: float) -> str:
        """Return which metrics used probabilities that were raised to the floor."""
        names = dict.fromkeys(name for own in self.evaluations.values() for name in own.floored)
        if not names:
            return f"Probabilities were raised to {floor:g} (--floor) for no metric: none of these is a likelihood."
        return (f"For {listing(names)} probabilities were raised to {floor:g} and renormalised (--floor); other "
                "metrics use them as they are.")  # fmt: skip

    @property
    def tables(self) -> list[str]:
        """The tables, line by line."""
        pairs = self.pairs
        if len(self.evaluations) > FEW:
            pairs = [pair for pair in pairs if {pair["first"], pair["second"]} & self._best(pair["metric"])]
        return [*self._score_lines(), "", *pair_lines(pairs), *self._detection_lines(), *self._subgroup_lines()]

    def _score_lines(self) -> list[str]:
        """Return a table with one line per metric and one column per system; a star marks the best value."""
        first = next(iter(self.evaluations.values()))
        ood = f" + {first.ood_rows} out of distribution" if 0 < first.ood_rows < len(first.predictions) else ""
        rows = [["metric", *self.evaluations]]
        for metric in dict.fromkeys(name for own in self.evaluations.values() for name in own.scores):
            scores, best = {name: own.scores.get(metric) for name, own in self.evaluations.items()}, self._best(metric)
            better = next(score.better for score in scores.values() if score is not None)
            cells = [score_text(score) + (" *" if name in best else "") for name, score in scores.items()]
            rows.append([metric + {"higher": " ↑", "lower": " ↓"}[better], *cells])
        counts = f"{first.rows} {plural('row', first.rows)}{ood}, {first.classes} {plural('class', first.classes)}"
        return [f"{counts}, {first.target}", "", *text_table(rows)]

    def _best(self, metric: str) -> set[str]:
        """Return the systems with the best value of a metric that may rank; none where values do not differ."""
        scores = {name: own.scores[metric] for name, own in self.evaluations.items() if metric in own.scores}
        values = {score.value for score in scores.values() if not math.isnan(score.value)}
        some = next(iter(scores.values()))
        if len(values) < 2 or not some.comparable:
            return set()
        best = max(values) if some.better == "higher" else min(values)
        return {name for name, score in scores.items() if score.value == best}

    def _detection_lines(self) -> Iterator[str]:
        """Yield a table per system: how well every quantity detects out-of-distribution rows."""
        for name, own in self.evaluations.items():
            rows = [["quantity", *DETECTION.values()]]
            for quantity, figures in own.detection.items():
                rows.append([quantity, *(number_text(getattr(figures, field)) for field in DETECTION)])
            if own.detection:
                whose = f"{name}: " if len(self.evaluations) > 1 else ""
                yield from (f"{whose}detection of out-of-distribution rows by quantity", "", *text_table(rows), "")

    def _subgroup_lines(self) -> Iterator[str]:
        """Yield a table per system and column: the scores of each subgroup."""
        for name, own in self.evaluations.items():
            for column, subgroups in own.subgroups.items():
                metrics = list(dict.fromkeys(metric for subgroup in subgroups.values() for metric in subgroup.scores))
                rows = [[column, "rows", own.resampled, *metrics]]
                for value, subgroup in subgroups.items():
                    small = " (underpowered)" if subgroup.units < UNDERPOWERED else ""
                    scores = (score_text(subgroup.scores.get(metric)) for metric in metrics)
                    rows.append([(value or "(empty)") + small, str(subgroup.rows), str(subgroup.units), *scores])
                whose = f"{name}: " if len(self.evaluations) > 1 else ""
                yield from (f"{whose}results by {column}", "", *text_table(rows), "")

    def __repr__(self) -> str:
        return "\n".join([*self.tables, *self.notes])


def named_rows(rows: Sequence[str], predictions: Predictions) -> str:
    """Return the first of some rows by their ids or numbers, and how many more there are."""
    more = len(rows) - SHOWN
    shown = ", ".join(rows[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{plural('row' if predictions.ids is None else 'id', len(rows))} {shown}"


def _infinite_sentence(name: str, own: Evaluation) -> str:
    """Return which scores are infinite, because of which rows."""
    infinite = ", ".join(_infinite(own))
    rows = named_rows(own.impossible, own.predictions)
    truth = "labels of the row have" if own.target == "multilabel" else "true class has"
    remedy = "; --floor 1e-6 raises such probabilities" if own.floor is None else ""
    return (
        f"{name}: {infinite} infinite: the {truth} probability zero in {len(own.impossible)} of {own.rows} "
        f"{plural('row', own.rows)} ({rows}). By these metrics it is not compared with other systems{remedy}."
    )


def _without_floor_sentence(name: str, own: Evaluation) -> str:
    """Return which scores are infinite although a floor was asked for."""
    return (
        f"{name}: {', '.join(_infinite(own))} infinite although --floor was given: it raises probabilities for "
        "likelihoods alone. A metric of a plugin is one where it is declared as one, @metric(…, likelihood=True)."
    )


def _infinite(own: Evaluation) -> list[str]:
    """Return the metrics without the floor whose scores are infinite."""
    return [name for name, score in own.scores.items() if math.isinf(score.value) and name not in own.floored]


def _empty_sentence(name: str, own: Evaluation) -> str:
    """Return how multi-label rows without a label above one half were decided."""
    decided = {"empty": "decided as having none (--empty-decision argmax: the most probable label)",
               "argmax": "decided as the most probable label"}[own.empty_decision or "empty"]  # fmt: skip
    rows = f"{own.empty_rows} of {own.rows} {plural('row', own.rows)}"
    return f"{name}: no label is above one half in {rows}, {decided}."


def _mcnemar_sentence(pair: tuple[str, str], test: McNemar) -> str:
    counts = f"only {pair[0]} is right on {test.only_first} examples, only {pair[1]} on {test.only_second}"
    return f"McNemar: {counts}; exact p = {test.p:.3g}."


def pair_lines(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return tested pairs as a table; they have a column ``split`` where they are of several splits."""
    places = [name for name in ("split", "metric") if pairs and name in pairs[0]]
    rows = [[*places, "first − second", "verdict", "difference", "p (Holm)", "detectable"]]
    for pair in pairs:
        facts = ["not judged", f"{pair['difference']:+.4f}", "–", "–"]
        if math.isfinite(pair["resolves"]):
            verdict = f"{pair['better']} is better" if pair["better"] else "not significantly different"
            interval = f"{pair['difference']:+.4f} ({pair['low']:+.4f}, {pair['high']:+.4f})"
            facts = [verdict, interval, f"{pair['adjusted_p']:.3g}", number_text(pair["resolves"])]
        rows.append([*(pair[name] for name in places), f"{pair['first']} − {pair['second']}", *facts])
    return [*text_table(rows), ""] if pairs else []


def pairs_remark(level: float) -> str:
    """Return how pairs are tested, in one sentence."""
    return (
        "The pairs are of these trained systems: another training of the same method may give another verdict. "
        "Paired t-tests on the same examples, p after Holm's correction over the pairs of a metric; a "
        "difference is significant where it exceeds the smallest detectable one, which is where the corrected p is at "
        f"most {1 - level:.2g}. In brackets: {level:.0%} intervals, not corrected."
    )


def score_text(score: Score | None) -> str:
    """Return a score with its interval, where it has one."""
    if score is None:
        return "–"
    ends = "" if math.isnan(score.low) else f" ({number_text(score.low)}, {number_text(score.high)})"
    return number_text(score.value) + ends
