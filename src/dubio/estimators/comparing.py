"""Several systems on the same test examples: every pair tested, and every one against referral at random."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dubio.core.predictions import Predictions
from dubio.estimators.asking import Answers
from dubio.estimators.figures import Figure, detection_figures, quantity_name, referral_figures
from dubio.estimators.results import Scores, aligned, as_json, headlines, referrals
from dubio.estimators.scoring import against, both_columns
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import percentile_interval, replicate, units_of
from dubio.statistics.paired import Verdict, better_of, bootstrap_p, holm, pairs_of_draws, side_by_side

OWN = "own"
"""Each system's own quantity: the uncertainty it gives, else its predictive entropy."""

COMPARED = (
    "accuracy", "micro_f1", "quadratic_kappa", "rps", "class_auroc", "calibrated_nll", "brier", "aurc",
)  # fmt: skip
"""The metrics of one split that pairs are tested by."""

RETAINED = (0.5, 0.8)
"""The fractions retained at which pairs are tested."""

PRINTED = ("accuracy", "calibrated_nll", quantity_name("au_arc", OWN), quantity_name("ood_auroc", OWN))
"""The metrics whose pairs are printed; a comparison holds all."""

FEW = 3
"""Up to this many systems every pair is printed; of more, those with the first one."""


@dataclass(frozen=True)
class Gain:
    """What referral by a system's own uncertainty gains over referral of the same predictions at random.

    Attributes:
        value: Mean accuracy of the kept over all coverages, less accuracy.
        low: Lower end of its interval.
        high: Upper end.
        adjusted_p: Two-sided bootstrap p that there is no gain, corrected after Holm over the systems.
        told: Whether it is told from none.
    """

    value: float
    low: float
    high: float
    adjusted_p: float
    told: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """Systems compared on the same examples.

    Attributes:
        scores: System to its scores.
        verdicts: Split to metric to every pair of systems; the control is not among them.
        gains: Split to system to its gain over referral at random.
        level: Confidence level.
    """

    scores: Mapping[str, Scores]
    verdicts: Mapping[str, Mapping[str, tuple[Verdict, ...]]]
    gains: Mapping[str, Mapping[str, Gain]]
    level: float

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows of every system's table."""
        return [row for scores in self.scores.values() for row in scores.table]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """A row a split, metric and pair: the paired test and which system is better, if any is."""
        return [
            {"split": split, "metric": metric, **asdict(verdict.test), "better": verdict.better}
            for split, metrics in self.verdicts.items()
            for metric, verdicts in metrics.items()
            for verdict in verdicts
        ]

    def to_json(self) -> str:
        """One JSON document; what is not a number is null."""
        gains = {split: {name: asdict(gain) for name, gain in each.items()} for split, each in self.gains.items()}
        systems = {name: scores.as_dict() for name, scores in self.scores.items()}
        return as_json({"level": self.level, "systems": systems, "pairs": self.pairs, "gains": gains})

    def __repr__(self) -> str:
        return f"<{', '.join(self.scores)} on {next(iter(self.scores.values())).task}>"

    def __str__(self) -> str:
        systems = list(self.scores.values())
        parts = [*headlines(systems), "", *referrals(systems), "", *self._pair_lines(), *self._gain_lines()]
        notes = [f"{name}: {note}" for name, scores in self.scores.items() for note in scores.notes]
        return "\n".join([*parts, *self._words(), *notes])

    def _pair_lines(self) -> list[str]:
        rows = [["split", "metric", "first − second", "difference", "p (Holm)", "resolves", "verdict"]]
        for each in self._printed():
            ends = f" ({each['low']:+.3f}, {each['high']:+.3f})"
            rows.append([
                each["split"], each["metric"], f"{each['first']} − {each['second']}",
                f"{each['difference']:+.3f}{ends}", f"{each['adjusted_p']:.3g}", f"{each['resolves']:.3f}",
                f"{each['better']} is better" if each["better"] else "not distinguishable",
            ])  # fmt: skip
        return [*aligned(rows), ""] if len(rows) > 1 else []

    def _gain_lines(self) -> list[str]:
        rows = [["split", "system", "gain over random referral", "p (Holm)", "verdict"]]
        for split, gains in self.gains.items():
            for name, gain in gains.items():
                better = "better than random" if gain.value > 0 else "worse than random"
                said = better if gain.told else "not distinguishable from random"
                interval = f"{gain.value:+.4f} ({gain.low:+.4f}, {gain.high:+.4f})"
                rows.append([split, name, interval, f"{gain.adjusted_p:.3g}", said])
        return [*aligned(rows), ""] if len(rows) > 1 else []

    def _printed(self) -> list[dict[str, Any]]:
        shown = [each for each in self.pairs if each["metric"] in PRINTED]
        first = next(iter(self.scores))
        many = len({each["first"] for each in shown} | {each["second"] for each in shown}) > FEW
        return [each for each in shown if each["first"] == first] if many else shown

    def _words(self) -> list[str]:
        return [
            f"Pairs: paired bootstrap on the same examples, p corrected after Holm over the pairs of a metric; not "
            f"distinguishable: p above {1 - self.level:.2g}, or a difference smaller than these examples resolve.",
            f"{len(self._printed())} of {len(self.pairs)} tests are printed; .pairs has all.",
            f"quantity={OWN!r}: the uncertainty a system gives, else its predictive entropy.",
        ]


def compare_scores(
    scores: Mapping[str, Scores], controls: Sequence[str], *, replicates: int, level: float, seed: int
) -> Comparison:
    """Test every pair of systems on every split they were scored on.

    Args:
        scores: System to its scores, all on the same splits.
        controls: Systems that are referred at random: shown, and not among the pairs.
        replicates: Of the bootstrap; more where the correction for this many pairs asks for them.
        level: Confidence level.
        seed: Of the bootstrap.
    """
    judged = {name: each for name, each in scores.items() if name not in controls}
    # the smallest p of r replicates is 2/(1 + r), and Holm multiplies it by the number of tests
    tests = max(math.comb(len(judged), 2), len(judged))
    draws = max(replicates, math.ceil(4 * tests / (1 - level)))
    verdicts: dict[str, dict[str, tuple[Verdict, ...]]] = {}
    gains: dict[str, dict[str, Gain]] = {}
    first = next(iter(scores.values()))
    home = next(iter(first.splits))
    for split, where in first.splits.items():
        answers = {name: each.answers[split] for name, each in judged.items()}
        at_home = {name: each.answers[home] for name, each in judged.items()}
        away = at_home if where.kind in ("shift", "ood") else None
        question = _Questions(answers, away, draws, level, seed)
        if len(judged) > 1:
            verdicts[split] = question.pairs()
        if next(iter(answers.values())).has_labels:
            gains[split] = question.gains()
    return Comparison(scores, verdicts, gains, level)


@dataclass(frozen=True, eq=False)
class _Questions:
    """The systems on one split, and how they are tested."""

    answers: Mapping[str, Answers]
    home: Mapping[str, Answers] | None
    replicates: int
    level: float
    seed: int

    def pairs(self) -> dict[str, tuple[Verdict, ...]]:
        """Metric to the verdicts on every pair."""
        found: dict[str, tuple[Verdict, ...]] = {}
        some = next(iter(self.answers.values()))
        if some.has_labels:
            metrics = [metric_named(name) for name in COMPARED]
            systems = {name: each.predictions for name, each in self.answers.items()}
            tested = side_by_side(systems, metrics, replicates=self.replicates, seed=self.seed, level=self.level)
            found |= tested.verdicts
            found |= self._tested(self._referral(), some.labelled.predictions)
        if self.home is not None:
            both = against(next(iter(self.home.values())).predictions, some.predictions)
            found |= self._tested(self._detection(self.home), both)
        return found

    def gains(self) -> dict[str, Gain]:
        """System to its gain over referral at random."""
        rows = next(iter(self.answers.values())).labelled.predictions
        figures = {name: each[-1] for name, each in self._referral().items()}
        forms = {name: figure.weighted for name, figure in figures.items()}
        draws = replicate(forms, units_of(rows), replicates=self.replicates, seed=self.seed)
        adjusted = holm([bootstrap_p(draws[name]) for name in figures])
        gains = {}
        for (name, figure), p in zip(figures.items(), adjusted, strict=True):
            interval = percentile_interval(figure.value(len(rows)), draws[name], level=self.level)
            gains[name] = Gain(
                interval.value, interval.low, interval.high, p, p <= 1 - self.level and interval.value != 0
            )
        return gains

    def _referral(self) -> dict[str, list[Figure]]:
        known = {name: each.labelled for name, each in self.answers.items()}
        return {
            name: referral_figures(each.predictions, each.columns[each.own], OWN, RETAINED)
            for name, each in known.items()
        }

    def _detection(self, home: Mapping[str, Answers]) -> dict[str, list[Figure]]:
        return {
            name: detection_figures(*both_columns(home[name], each, (home[name].own, each.own)), OWN)[:1]
            for name, each in self.answers.items()
        }

    def _tested(self, figures: Mapping[str, Sequence[Figure]], rows: Predictions) -> dict[str, tuple[Verdict, ...]]:
        """Figures of every system, in the same order, tested pair by pair where all are defined."""
        found = {}
        for place, figure in enumerate(next(iter(figures.values()))):
            forms = {name: each[place].weighted for name, each in figures.items()}
            values = {name: each[place].value(len(rows)) for name, each in figures.items()}
            if not figure.comparable or not all(map(math.isfinite, values.values())):
                continue
            draws = replicate(forms, units_of(rows), replicates=self.replicates, seed=self.seed)
            tests = pairs_of_draws(values, draws, self.level)
            found[figure.name] = tuple(Verdict(test, better_of(test, figure.better, self.level)) for test in tests)
        return found
