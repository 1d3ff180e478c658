"""Several systems on the same test examples: every pair tested, and each system against random referral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any

from dubio.core.data_frame import data_frame
from dubio.core.predictions import Predictions
from dubio.core.specs import to_json
from dubio.estimators.adapters import GIVEN
from dubio.estimators.baselines import RANDOM
from dubio.estimators.scores import (
    ENTROPY,
    BootstrapOptions,
    EstimatorScores,
    headlines,
    metric_by,
    referral_metrics,
    referrals,
)
from dubio.evaluation.preparation import with_ood
from dubio.evaluation.results import NOT_JUDGED, QUESTION, pair_lines, pairs_remark
from dubio.formats.text_tables import text_table
from dubio.metrics.metric import metric_named
from dubio.metrics.quantities import uncertainty
from dubio.metrics.requirements import has_labels
from dubio.statistics.bootstrap import metric_statistic, replicate, units_of, units_of_errors
from dubio.statistics.paired import enough_replicates, pair_tests
from dubio.statistics.verdicts import PairTest, Replicates, judge_differences

if TYPE_CHECKING:
    import pandas

OWN = "own"
"""Each system's own quantity: the uncertainty it returns, else its predictive entropy."""

COMPARED = (
    "accuracy", "micro_f1", "quadratic_kappa", "rps", "class_auroc", "calibrated_nll", "brier", "aurc",
)  # fmt: skip
"""The metrics of one split that pairs are tested by, beside those of referral and detection by their own quantity."""

RETAINED = (0.5, 0.8)
"""The fractions retained at which pairs are tested."""

PRINTED = ("accuracy", "calibrated_nll", metric_by("au_arc", OWN).name, metric_by("ood_auroc", OWN).name)
"""The metrics whose pairs are printed; a comparison holds all."""

FEW = 3
"""Up to this number of systems every pair is printed; of more, the pairs with the first system."""


@dataclass(frozen=True)
class Gain:
    """The gain of referral by a system's own uncertainty over random referral of the same predictions.

    Attributes:
        value: Mean accuracy of the retained over all coverages, less the accuracy of all.
        low: Lower end of its interval.
        high: Upper end.
        adjusted_p: Two-sided p of no gain, after Holm's correction over the systems.
        significant: Whether it differs significantly from zero.
    """

    value: float
    low: float
    high: float
    adjusted_p: float
    significant: bool


@dataclass(frozen=True, eq=False)
class EstimatorComparison:
    """Systems compared on the same examples.

    Attributes:
        scores: System to its scores.
        tests: Split to metric to every pair of systems; the controls are not among them.
        gains: Split to system to its gain over random referral.
        level: Confidence level.
    """

    scores: Mapping[str, EstimatorScores]
    tests: Mapping[str, Mapping[str, tuple[PairTest, ...]]]
    gains: Mapping[str, Mapping[str, Gain]]
    level: float

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows of every system's table."""
        return [row for scores in self.scores.values() for row in scores.table]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """One row per split, metric and pair: the paired test, and the better system or None."""
        return [
            {"split": split, "metric": metric, **asdict(test)}
            for split, metrics in self.tests.items()
            for metric, tests in metrics.items()
            for test in tests
        ]

    def to_frame(self) -> pandas.DataFrame:
        """Return :attr:`pairs` as a data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.pairs)

    def to_json(self) -> str:
        """Return one JSON document; an infinite number is the text "Infinity", an undefined one null."""
        gains = {split: {name: asdict(gain) for name, gain in own.items()} for split, own in self.gains.items()}
        systems = {name: scores.as_dict() for name, scores in self.scores.items()}
        document = {"level": self.level, "question": QUESTION, "systems": systems, "pairs": self.pairs, "gains": gains}
        return to_json(document)

    def __repr__(self) -> str:
        return f"<{', '.join(self.scores)} on {next(iter(self.scores.values())).task}>"

    def __str__(self) -> str:
        systems = list(self.scores.values())
        tables = [*headlines(systems), "", *referrals(systems), "", *pair_lines(self._printed()), *self._gain_lines()]
        notes = [f"{name}: {note}" for name, scores in self.scores.items() for note in scores.notes]
        return "\n".join([*tables, *self._remarks(), *notes])

    def _gain_lines(self) -> list[str]:
        rows = [["split", "system", "gain over random referral", "p (Holm)", "verdict"]]
        for split, gains in self.gains.items():
            for name, gain in gains.items():
                direction = "better than random" if gain.value > 0 else "worse than random"
                facts = [f"{gain.value:+.4f}", "–", "not judged: too few errors"]
                if isfinite(gain.low):
                    verdict = direction if gain.significant else "not significantly different from random"
                    interval = f"{gain.value:+.4f} ({gain.low:+.4f}, {gain.high:+.4f})"
                    facts = [interval, f"{gain.adjusted_p:.3g}", verdict]
                rows.append([split, name, *facts])
        return [*text_table(rows), ""] if len(rows) > 1 else []

    def _printed(self) -> list[dict[str, Any]]:
        shown = [pair for pair in self.pairs if pair["metric"] in PRINTED]
        first = next(iter(self.scores))
        many = len({pair["first"] for pair in shown} | {pair["second"] for pair in shown}) > FEW
        return [pair for pair in shown if pair["first"] == first] if many else shown

    def _remarks(self) -> list[str]:
        return [
            pairs_remark(self.level),
            *([NOT_JUDGED] if any(isinf(pair["resolves"]) for pair in self._printed()) else []),
            f"{len(self._printed())} of {len(self.pairs)} tests are printed; .pairs has all.",
            f"quantity={OWN!r}: the uncertainty a system returns, else its predictive entropy.",
        ]


def compare_scores(scores: Mapping[str, EstimatorScores], controls: Sequence[str]) -> EstimatorComparison:
    """Test every pair of systems on every split they were scored on.

    Args:
        scores: System to its scores, all on the same splits.
        controls: Systems that are referred at random: shown, and not among the pairs.
    """
    systems = {name: own.predictions for name, own in scores.items() if name not in controls}
    tests: dict[str, dict[str, tuple[PairTest, ...]]] = {}
    gains: dict[str, dict[str, Gain]] = {}
    first = next(iter(scores.values()))
    in_domain = {name: _with_own(own[first.on().name]) for name, own in systems.items()}
    for split in first.splits.values():
        predictions = {name: _with_own(own[split.name]) for name, own in systems.items()}
        if len(systems) > 1:
            others = in_domain if split.kind in ("shift", "ood") else None
            tests[split.name] = _pairs(predictions, others, first.bootstrap)
        if has_labels(next(iter(predictions.values()))):
            gains[split.name] = _gains(predictions, first.bootstrap)
    return EstimatorComparison(scores, tests, gains, first.bootstrap.level)


def _with_own(predictions: Predictions) -> Predictions:
    """Return the predictions with their own quantity as the only score."""
    quantity = GIVEN if GIVEN in predictions.scores else ENTROPY
    return predictions.with_checked(scores={OWN: uncertainty(predictions, quantity)})


def _pairs(
    systems: Mapping[str, Predictions], in_domain: Mapping[str, Predictions] | None, options: BootstrapOptions
) -> dict[str, tuple[PairTest, ...]]:
    """Return metric → the tests of every pair.

    Args:
        systems: System to its predictions on one split.
        in_domain: The same on the in-distribution test split, where the split is another one.
        options: Of the bootstrap.
    """
    tests: dict[str, tuple[PairTest, ...]] = {}
    first = next(iter(systems.values()))
    if has_labels(first):
        metrics = [*map(metric_named, COMPARED), *referral_metrics(first, OWN, RETAINED)]
        tests |= pair_tests(systems, metrics, **asdict(options))
    if in_domain is not None:
        both = {name: with_ood(in_domain[name], predictions) for name, predictions in systems.items()}
        tests |= pair_tests(both, [metric_by("ood_auroc", OWN)], **asdict(options))
    return tests


def _gains(systems: Mapping[str, Predictions], options: BootstrapOptions) -> dict[str, Gain]:
    """Return system → its gain over random referral."""
    metric = metric_by("referral_gain", OWN)
    labelled = {name: predictions.labelled for name, predictions in systems.items()}
    forms = {name: metric_statistic(metric, rows) for name, rows in labelled.items()}
    units = units_of(next(iter(labelled.values())))
    count = enough_replicates(options.replicates, len(systems), options.level)
    draws = replicate(forms, units, replicates=count, seed=options.seed)
    differences = {}
    for name, rows in labelled.items():
        term = Replicates(draws, units_of_errors(rows)).own_term(name)
        differences[name, RANDOM] = metric.compute(rows), [] if term is None else [term]
    tests = judge_differences(differences, metric.better, alpha=1.0 - options.level)
    return {t.first: Gain(t.difference, t.low, t.high, t.adjusted_p, t.better is not None) for t in tests}
