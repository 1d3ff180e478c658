"""Does a method detect OOD or shifted examples at all? Confidence limits of the AUROC of every method and quantity.

A detector is one quantity of one method. Its AUROC over a test set varies with the examples (DeLong's variance, the
units being groups where there are any) and with the trainings (the variance over runs). The intervals of all methods ×
quantities of a test set hold together (Bonferroni): a detector *detects* where its lower limit is above 0.5, and is
*inverted* where its upper limit is below. Few OOD examples say little about a variance, so that its degrees of freedom
are those of the smaller side; and where all of them lie above the in-domain ones the variance is not 0: each side
counts four further examples, two placed at the top and two at the bottom (after Agresti and Coull, 1998),

    v = v_DeLong + 2 (θ² + (1 − θ)²) (1/n² + 1/m²),

for an area θ of n OOD and m in-domain units. A method that was trained once has no interval beside
methods whose trainings vary; where none was repeated, intervals are about these trained systems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from dubio.core.predictions import join_names
from dubio.core.types import FloatArray, StrArray
from dubio.metrics.detection import placements
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.wording import listed, quantity_words
from dubio.statistics.bootstrap import Interval
from dubio.statistics.limits import intervals
from dubio.statistics.trainings import VarianceTerm, own_terms, pair_terms
from dubio.statistics.verdicts import Estimate, Pairs, Question, Rows, judge_differences

if TYPE_CHECKING:
    from dubio.reporting.run_view import RunView

CHANCE = 0.5

ONCE = "No method was trained more than once: this is about these trained systems."

NOBODY = "Detection is not judged, because no method is ranked on this task: do not rely on it."

Outcome = Literal["detects", "inverted", "undecided", "unjudged"]
"""Whether the AUROC is above chance, below, or neither; ``unjudged``: there is no interval."""

REMARKS: dict[Outcome, str] = {
    "detects": "",
    "inverted": ", below chance: inverted",
    "undecided": ", not significantly different from chance",
    "unjudged": "",
}


class DetectionVariances:
    """DeLong's variances of every run: of each quantity's AUROC, and of the difference of every two."""

    def __init__(self) -> None:
        """Start without any run."""
        self._runs: dict[tuple[str, str, str], list[dict[frozenset[str], float]]] = {}
        self._freedom: dict[tuple[str, str], int] = {}

    def add(
        self,
        key: tuple[str, str, str],
        inside: Mapping[str, FloatArray],
        outside: Mapping[str, FloatArray],
        groups: tuple[StrArray | None, StrArray | None],
    ) -> None:
        """Add one run.

        Args:
            key: Task, split and method.
            inside: Quantity → uncertainty of every in-domain example.
            outside: Quantity → uncertainty of every OOD or shifted example.
            groups: The units that the examples of either side belong to.
        """
        names = [name for name in inside if name in outside]
        sizes = [len(sides[names[0]]) for sides in (inside, outside)] if names else []
        if not names or min(sizes) < 2:
            return
        units = [size if group is None else len(np.unique(group)) for size, group in zip(sizes, groups, strict=True)]
        ood = np.repeat([False, True], sizes)
        values = {name: placements(np.concatenate([inside[name], outside[name]]), ood) for name in names}
        rows = Rows({**values, "": np.zeros(sum(sizes))}, join_names(list(groups), sizes))
        variances = {}
        for one, two in combinations(rows.values, 2):
            term = rows.term(one, two)
            variances[frozenset((one, two))] = np.nan if term is None else term[0]
        for name, own in values.items():
            area = own.mean()
            further = 2 * (area**2 + (1 - area) ** 2) * sum(1 / count**2 for count in units)
            variances[frozenset((name, ""))] += further
        self._runs.setdefault(key, []).append(variances)
        self._freedom[key[:2]] = min(units) - 1

    def term(self, task: str, splits: Sequence[str], method: str, first: str, second: str = "") -> VarianceTerm | None:
        """Return the variance over examples of a quantity's AUROC, or of its difference to another's.

        The mean over runs, and over the splits of a test set, varies at most as much as they do on average.
        """
        pair, errors = frozenset((first, second)), []
        for split in splits:
            runs = self._runs.get((task, split, method), [])
            unknown = any(np.isnan(run.get(pair, np.nan)) for run in runs)
            if not runs or unknown or self._freedom[task, split] < 1:
                return None
            errors.append(np.mean([sqrt(run[pair]) for run in runs]))
        return float(np.mean(errors)) ** 2, min(self._freedom[task, split] for split in splits)


@dataclass(frozen=True)
class Detector:
    """One quantity of one method on one test set; ``interval`` is None where there is none."""

    method: str
    quantity: str
    auroc: float
    interval: Interval | None

    @property
    def outcome(self) -> Outcome:
        """Whether it detects."""
        if self.interval is None:
            return "unjudged"
        return "detects" if self.interval.low > CHANCE else "inverted" if self.interval.high < CHANCE else "undecided"

    @property
    def words(self) -> str:
        """The quantity in words."""
        return quantity_words(self.quantity)

    @property
    def phrase(self) -> str:
        """The AUROC, and what must be said of it beside chance."""
        return f"{self.auroc:.3f}{REMARKS[self.outcome]}"


@dataclass(frozen=True)
class Detection:
    """All detectors of one test set."""

    detectors: tuple[Detector, ...]
    question: Question

    def methods(self, outcome: Outcome, quantity: str = HEADLINE) -> list[str]:
        """Return the methods with this outcome by a quantity."""
        return [one.method for one in self.detectors if one.quantity == quantity and one.outcome == outcome]

    def sentences(self, run: RunView, quantities: Sequence[str] = (HEADLINE,)) -> list[str]:
        """Return what a reader must know before relying on detection: where there is none, and inverted orders."""
        if not self.detectors:
            return [NOBODY]
        texts = [] if self.methods("detects") else [self._caution(run)]
        inverted: dict[tuple[str, ...], list[str]] = {}
        for quantity in quantities:
            inverted.setdefault(tuple(self.methods("inverted", quantity)), []).append(quantity)
        for methods, order in inverted.items():
            if methods:
                highest = max(_high(d) for d in self.detectors if d.method in methods and d.quantity in order)
                names, by = listed([run.title(name) for name in methods]), listed(list(map(quantity_words, order)))
                texts.append(
                    f"The order by {by} is inverted for {names}: more certain on these than on in-domain examples "
                    f"(AUROC at most {min(1.0, highest):.3f})."
                )
        return [*texts, ONCE] if texts and self.question == "systems" != run.question else texts

    def _caution(self, run: RunView) -> str:
        """Return that no method detects the examples by confidence, and which other quantity does, if any."""
        judged = [one for one in self.detectors if one.interval is not None]
        if not judged:
            return "Whether any method detects these is not judged, for want of repeated trainings: do not rely on it."
        best = max(judged, key=_low)
        name, limit = run.title(best.method), f"AUROC {best.auroc:.3f}, at least {max(0.0, _low(best)):.3f}"
        if best.outcome == "detects":
            return f"No method detects these by {HEADLINE}; by {quantity_words(best.quantity)}, {name} does ({limit})."
        by = quantity_words(best.quantity)
        return f"No method here detects these: do not rely on it (highest lower limit: {name} by {by}, {limit})."


def _low(detector: Detector) -> float:
    return detector.interval.low if detector.interval else -inf


def _high(detector: Detector) -> float:
    return detector.interval.high if detector.interval else inf


def detection_on(run: RunView, task: TaskView, splits: Sequence[str]) -> Detection:
    """Return every method × quantity with an AUROC on a split, or on several averaged; all intervals hold together."""
    scores, estimates = run.scores, dict[tuple[str, str], Estimate]()
    copies: dict[tuple[str, str], tuple[str, str]] = {}  # methods of the same predictions are one in the correction
    repeated = scores.trainings(task, splits, detection_name("ood_auroc", HEADLINE)).values()
    question: Question = "methods" if any(own.shares for own in repeated) else "systems"
    for quantity in scores.quantities:
        name = detection_name("ood_auroc", quantity)
        cells = {method: cell for method, cell in scores.ranked_row(task, splits, name).items() if cell.n}
        same = scores.same(task, cells)
        trainings = own_terms(scores.trainings(task, splits, name), scores.variance_groups, same)
        copies |= {(method, quantity): (own, quantity) for method, own in same.items() if method != own}
        for method, cell in cells.items():
            examples, own = scores.detection.term(task.key, splits, method, quantity), trainings.get(method)
            over_trainings = [] if own is None else [(own.variance, own.freedom)]
            terms = [] if examples is None else [examples, *over_trainings]
            estimates[method, quantity] = cell.mean, terms if over_trainings or question == "systems" else []
    limits = intervals({key: estimate for key, estimate in estimates.items() if key not in copies})
    detectors = (
        Detector(*key, value, limits.get(copies.get(key, key))) for key, (value, _) in estimates.items()
    )
    return Detection(tuple(detectors), question)


def quantity_pairs(
    run: RunView, task: TaskView, splits: Sequence[str], method: str, quantities: Sequence[str]
) -> Pairs:
    """Test every two quantities of one method, by the words for them, on the same examples and the same trainings."""
    names = {quantity: detection_name("ood_auroc", quantity) for quantity in quantities}
    cells = {quantity: run.scores.row(task, splits, name)[method] for quantity, name in names.items()}
    every = {quantity: run.scores.trainings(task, splits, name).get(method) for quantity, name in names.items()}
    trainings = {quantity: own for quantity, own in every.items() if own is not None}
    variances = own_terms(trainings, {quantity: quantity for quantity in quantities})
    differences = dict[tuple[str, str], Estimate]()
    for one, two in combinations(quantities, 2):
        examples = run.scores.detection.term(task.key, splits, method, one, two)
        terms = []
        if examples is not None and {one, two} <= trainings.keys():
            terms = [examples, *pair_terms(one, two, trainings, variances)]
        differences[quantity_words(one), quantity_words(two)] = cells[one].mean - cells[two].mean, terms
    scores = {quantity_words(quantity): cell for quantity, cell in cells.items()}
    return Pairs(scores, "higher", judge_differences(differences, "higher"), "methods")
