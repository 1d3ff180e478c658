"""What T concludes, put to the test with what was measured here: supported, contradicted or not decided.

A claim is a planned comparison: of two methods on the same test sets, of two networks, or of a value with a range. On
every test set that can speak to it the report's own verdict decides, so that a claim is never supported by a difference
that these data do not resolve. Statements are ours, in our words; each names where T says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dubio.reporting.advice import MANY, away_standings, home_standing
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.results import Results
from dubio.reporting.standing import Standing, compared, metric_words, standing, title_of, verdict_words
from dubio.reporting.wording import counted
from dubio.statistics.verdicts import Verdict, pair_verdict

Outcome = Literal["supports", "contradicts", "undecided"]

RANDOM_RANGE = (0.50, 0.54)
"""Where T's cross-domain AUROCs lie (§IV-B)."""


@dataclass(frozen=True)
class Evidence:
    """What one test set says to a claim."""

    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper with what speaks for and against it here; ``unit`` is what a piece of evidence is."""

    statement: str
    where: str
    evidence: tuple[Evidence, ...]
    unit: str = "test set"

    @property
    def outcome(self) -> str:
        """The sum of the evidence, in a word or two."""
        counts = {kind: sum(each.outcome == kind for each in self.evidence) for kind in ("supports", "contradicts")}
        if not self.evidence:
            return "no data"
        if not any(counts.values()):
            return "cannot be decided"
        if all(counts.values()):
            return "mixed"
        word = "supported" if counts["supports"] else "contradicted"
        undecided = len(self.evidence) - sum(counts.values())
        return word if undecided <= sum(counts.values()) else f"{word} in part"

    @property
    def tally(self) -> str:
        """How many test sets say what."""
        kinds = {"supports": "for", "contradicts": "against", "undecided": "undecided"}
        told = [f"{sum(each.outcome == kind for each in self.evidence)} {word}" for kind, word in kinds.items()]
        return f"{counted(len(self.evidence), self.unit)}: {', '.join(told)}" if self.evidence else ""


def claims(results: Results) -> tuple[Claim, ...]:
    """Every claim, those without data last."""
    auroc = detection_name("ood_auroc", HEADLINE)
    homes, novel, shifted = (
        _homes(results),
        away_standings(results, "ood", auroc),
        away_standings(results, "shift", auroc),
    )
    several = _homes(results, lambda task: task.target == "multilabel")
    many = _homes(results, lambda task: task.target != "multilabel" and len(task.classes) >= MANY)
    found = (
        Claim("In-domain, a deep ensemble scores better than one network.", "T Table 3, §V",
              _pair(results, homes, "deep-ensemble", "deterministic")),
        Claim("Ensembling brings more than sampling: an ensemble of regularised networks beats MC dropout.", "T §V, A",
              _pair(results, homes, "deep-ensemble-regularised", "mc-dropout")),
        Claim("Learning the dropout rate pays: MC concrete dropout beats MC dropout at a fixed rate.", "T §V, C",
              _pair(results, homes, "mc-concrete-dropout", "mc-dropout")),
        Claim("With many classes, predicting the noise of the logits helps a single network.", "T §V, take-homes",
              _pair(results, many, "heteroscedastic", "regularised")),
        Claim("With several labels at once, any ensembling helps.", "T §V, take-homes", _ensembling(results, several)),
        Claim("For novel classes an MC concrete dropout ensemble beats a deep ensemble.", "T Table 9, §V",
              _pair(results, novel, "mc-concrete-dropout-ensemble", "deep-ensemble")),
        Claim("For novel classes MC dropout at a fixed rate is worse than one plain network.", "T Table 9, §V",
              _pair(results, novel, "deterministic", "mc-dropout")),
        Claim("Under a shift of domain networks without regularisation stay more accurate.", "T Fig. 5, §IV-B",
              _pair(results, away_standings(results, "shift", "accuracy"), "deterministic", "regularised")),
        Claim("Other domains are told from home hardly better than by a coin (AUROC 0.50 to 0.54).", "T Fig. 6, §IV-B",
              _near_a_coin(results, shifted)),
        Claim("TextCNN finds novel classes better than BERT.", "T Figs 13 and 14, §V", _networks(results, auroc)),
    )  # fmt: skip
    return tuple(sorted(found, key=lambda claim: not claim.evidence))


def _homes(results: Results, wanted: Callable[[TaskView], bool] = lambda _: True) -> list[Standing]:
    tasks = [task for task in results.manifest.tasks if results.methods_of(task) and wanted(task)]
    return [found for task in tasks if (found := home_standing(results, task)) is not None]


def _pair(results: Results, found: Iterable[Standing], better: str, worse: str) -> tuple[Evidence, ...]:
    """Whether the first method beats the second on every test set that has both."""
    told = []
    for each in found:
        verdict = compared(results, each, (better, worse))
        if verdict is not None:
            numbers = " against ".join(f"{each.told(name)} ({title_of(results, name)})" for name in (better, worse))
            text = f"{each.where}, {metric_words(each.metric)}: {numbers}; {verdict_words(verdict)}."
            told.append(Evidence(outcome_of(verdict), text))
    return tuple(told)


def outcome_of(verdict: Verdict) -> Outcome:
    """What a comparison says when the first method is claimed to be better."""
    outcomes: dict[str, Outcome] = {"best": "supports", "behind": "contradicts"}
    return outcomes.get(verdict.place, "undecided")


def _ensembling(results: Results, found: Sequence[Standing]) -> tuple[Evidence, ...]:
    """Every ensemble against the single method it is made of."""
    pairs = [(method.name, method.family) for method in results.manifest.methods if method.ensemble]
    return tuple(each for pair in pairs for each in _pair(results, found, *pair))


def _near_a_coin(results: Results, found: Sequence[Standing]) -> tuple[Evidence, ...]:
    """Whether even the best method stays in T's range; decided where its spread leaves no doubt."""
    told = []
    for each in found:
        best, last = each.order[0], each.order[-1]
        cell, top = each.cells[best], RANDOM_RANGE[1]
        doubt = 2 * (cell.std or 0.0) / cell.n**0.5
        outcome: Outcome = "undecided"
        if cell.std is not None and abs(cell.mean - top) > doubt:
            outcome = "contradicts" if cell.mean > top else "supports"
        text = (
            f"{each.where}: AUROC from {each.told(last)} ({title_of(results, last)}) to {each.told(best)} "
            f"({title_of(results, best)})."
        )
        told.append(Evidence(outcome, text))
    return tuple(told)


def _networks(results: Results, metric: str) -> tuple[Evidence, ...]:
    """The same method with both networks on the same foreign split."""
    told = []
    tasks = {(task.name, task.network): task for task in results.manifest.tasks}
    for (name, network), one in tasks.items():
        other = tasks.get((name, "bert"))
        if network != "textcnn" or other is None:
            continue
        for split in one.of_kind("ood"):
            told += _two_networks(results, one, other, split.name, metric)
    return tuple(told)


def _two_networks(results: Results, one: TaskView, other: TaskView, split: str, metric: str) -> list[Evidence]:
    told = []
    sides = [standing(results, task, (split,), metric, where=task.key) for task in (one, other)]
    if sides[0] is None or sides[1] is None:
        return []
    for method in sides[0].order:
        if method in sides[1].cells:
            cells = {"textcnn": sides[0].cells[method], "bert": sides[1].cells[method]}
            verdict = pair_verdict(cells, results.better[metric], ("textcnn", "bert"))
            text = (
                f"{one.name} → {split}, {title_of(results, method)}: {sides[0].told(method)} (TextCNN) against "
                f"{sides[1].told(method)} (BERT); {verdict_words(verdict)}."
            )
            told.append(Evidence(outcome_of(verdict), text))
    return told
