"""The conclusions of P about ensembling methods, tested with the curves measured here.

Methods are compared with the same number of samples, :attr:`Study.compared_samples`. Two methods are compared by the
spread of their calibrated NLL over runs, as everywhere in the report, all pairs of one conclusion corrected together;
against deep ensembles, whose spread is that over orders of the same networks, the bounds of the deep-ensemble
equivalent decide too (P eq. 5). A difference that is not significant leaves a conclusion undecided, whatever the means
are. Statements are in ``paper.toml``.

The gain from test-time augmentation: a method with and without it predicts from the same fits, so that their difference
is taken run by run::

    g = mean_r (nll_r − nll'_r),    v(g) = s²/n over runs r,

where s² is shared by the methods of one training, as in :mod:`dubio.statistics.verdicts`: a few runs say little about a
variance. A deep ensemble of k of L networks has orders, not runs. Its mean over orders is a U-statistic, and with s²
the variance of the difference over orders, v(g) ≤ s²·k/(L − k) (Hoeffding: Var U ≤ k/L of the variance over new sets of
k networks, of which orders of the same L networks show the share 1 − k/L).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

import numpy as np

from dubio.reporting.claims import Claim, Evidence, Outcome, Planned
from dubio.reporting.measures import RANKED_BY
from dubio.reporting.score_table import Cell, cell_text, decimals
from dubio.reporting.wording import signed
from dubio.statistics.ensemble_equivalent import equivalent_range
from dubio.statistics.trainings import OwnTerm, VarianceTerm, own_terms, trainings_of_runs
from dubio.statistics.verdicts import ALPHA, compare_methods, smallest_difference
from dubio.studies.ensembles.equivalents import equivalent_phrase, slope_of
from dubio.studies.ensembles.rank_agreement import tau_phrase, temperature_agreement
from dubio.studies.ensembles.score_correlations import correlation_change, score_pairs
from dubio.studies.ensembles.study import SampleCurve, Study
from dubio.studies.published_numbers import claims_of

SEVERAL_MODES = frozenset({"snapshot-ensemble", "csgld", "csghmc"})
"""Methods of one training that visit several modes of the loss."""
ONE_MODE = frozenset({"fge", "swag"})
"""Methods that collect weights around one mode."""
ONE_SNAPSHOT = frozenset({"mc-dropout", "mean-field-vi", "laplace"})
"""Methods that put noise on one set of weights."""
ONE_NETWORK = frozenset({"swa"})
"""Methods whose one prediction is that of one network: P's statements on one network and its views hold for them."""

SATURATED = 0.1
"""A method that gains fewer networks per sample has saturated; a deep ensemble gains one."""
LITTLE = 0.25
"""A method that gains or loses less than this share of what one network gains from augmentation is hardly affected."""


@dataclass(frozen=True)
class Gain:
    """The decrease of calibrated NLL with augmentation.

    Attributes:
        mean: The mean decrease; negative where augmentation harms.
        variance: The variance of that mean with its degrees of freedom; None where there is no spread to estimate it.
    """

    mean: float
    variance: VarianceTerm | None

    def scaled(self, factor: float) -> Gain:
        """Return a share of the gain."""
        variance = None if self.variance is None else (factor**2 * self.variance[0], self.variance[1])
        return Gain(factor * self.mean, variance)


NO_GAIN = Gain(0.0, (0.0, 1))
"""Exactly no gain."""


@dataclass(frozen=True)
class Margin:
    """By how much one gain exceeds another, and the smallest significant difference; None where it is unknown."""

    difference: float
    smallest: float | None

    @property
    def significant(self) -> bool:
        """Whether the two gains differ significantly."""
        return self.smallest is not None and abs(self.difference) > self.smallest

    @property
    def phrase(self) -> str:
        """The significance within a sentence."""
        if self.smallest is None:
            return "not judged, because there is no spread over runs"
        return f"{'' if self.significant else 'not '}significant, smallest detectable difference {self.smallest:.2g}"

    def outcome(self, expected: int) -> Outcome:
        """Return the outcome where the difference is claimed to have this sign."""
        return _outcome(self.difference * expected if self.significant else 0.0)


def _outcome(side: float) -> Outcome:
    """Return the outcome of a significant difference: positive as claimed, negative otherwise, 0 undecided."""
    return "supports" if side > 0 else "contradicts" if side < 0 else "undecided"


def margin(one: Gain, other: Gain, comparisons: int = 1) -> Margin:
    """Return by how much one gain exceeds another.

    Args:
        one: A gain.
        other: Another, of other fits or of the same: what they share errs on the side of "not significant".
        comparisons: How many are made together (Bonferroni).
    """
    difference = one.mean - other.mean
    if one.variance is None or other.variance is None:
        return Margin(difference, None)
    return Margin(difference, smallest_difference([one.variance, other.variance], level=ALPHA / comparisons))


def gains_of(study: Study, curves: Sequence[SampleCurve]) -> dict[str, Gain]:
    """Return method → its gain from augmentation, for the methods that are there with and without it.

    Args:
        study: The study.
        curves: Methods without augmentation; those of the same number of trainings share their variance over runs.
    """
    pairs = [(curve, augmented) for curve in curves if (augmented := study.with_augmentation(curve)) is not None]
    paired = [(*pair, cell) for pair in pairs if (cell := _decreases(study, *pair)).n]
    over_runs = {curve.name: cell for curve, _, cell in paired if curve.role == "method"}
    terms, gains = _variances(study, over_runs), {}
    for curve, augmented, cell in paired:
        term = terms.get(curve.name)
        variance = None if term is None else (term.variance, term.freedom)
        if curve.role == "deep_ensemble":
            variance = _order_variance(cell, study.compared_samples, min(curve.samples, augmented.samples))
        elif curve.role != "method" and cell.std is not None:
            variance = cell.std**2 / cell.n, cell.n - 1
        gains[curve.name] = Gain(cell.mean, variance)
    return gains


def _variances(study: Study, cells: Mapping[str, Cell]) -> dict[str, OwnTerm]:
    return own_terms(trainings_of_runs({name: cell.values for name, cell in cells.items()}), study.variance_groups)


def _decreases(study: Study, *pair: SampleCurve) -> Cell:
    """Return the decreases of calibrated NLL run by run, or order by order; none where one is not finite."""
    cells = [curve.at(RANKED_BY, study.compared_samples) or Cell(()) for curve in pair]
    keys: list[Sequence[object]] = [curve.runs or range(cell.n) for curve, cell in zip(pair, cells, strict=True)]
    before, after = (dict(zip(own, cell.values, strict=False)) for own, cell in zip(keys, cells, strict=True))
    decreases = tuple(before[run] - after[run] for run in before if run in after)
    return Cell(decreases if np.isfinite(decreases).all() else ())


def _order_variance(decrease: Cell, size: int, networks: int) -> VarianceTerm | None:
    """Return the bound for deep ensembles; orders say no more about a variance than there are networks."""
    freedom = min(decrease.n, networks) - 1
    if decrease.std is None or networks <= size or not freedom:
        return None
    return decrease.std**2 * size / (networks - size), freedom


def conclusions(studies: Sequence[Study]) -> tuple[Claim, ...]:
    """Return every conclusion with the evidence of each study."""
    tests = {test.__name__: test for test in TESTS}
    return claims_of("ensembles", lambda claim: chain(*map(tests[claim["test"]], studies)))


def against_networks(study: Study) -> Iterable[Evidence]:
    """Compare every method of one training with a deep ensemble of the same number of samples.

    The bounds of the equivalent must decide at both ends of the interval that the spread over runs leaves open.
    """
    size, curves = study.compared_samples, study.select("network", "method", augmented=False)
    cells = study.cells(curves)
    terms = _variances(study, cells)
    for curve in (curve for curve in curves if curve.samples > 1 and curve.name in cells):
        cell, term = cells[curve.name], terms.get(curve.name)
        error = None if term is None else smallest_difference([(term.variance, term.freedom)])
        outcome: Outcome = "undecided"
        if error is not None:
            most, least = (equivalent_range(study.growth, "nll", cell.mean + shift) for shift in (-error, error))
            outcome = _outcome(int(most.upper.size < size) - int(least.lower.size > size))
        phrase = equivalent_phrase(equivalent_range(study.growth, "nll", cell.mean))
        text = f"{study.task.key}: {curve.method.title} with {size} samples ({cell_text(cell)}) is equivalent to"
        yield Evidence(outcome, f"{text} {phrase}.")


def modes_before_mode(study: Study) -> Iterable[Planned]:
    """Compare methods of several modes with all that stay at one."""
    return _pairs(study, SEVERAL_MODES, ONE_MODE | ONE_SNAPSHOT)


def mode_before_snapshot(study: Study) -> Iterable[Planned]:
    """Compare methods that collect weights around a mode with noise on one set of weights."""
    return _pairs(study, ONE_MODE, ONE_SNAPSHOT)


def saturation(study: Study) -> Iterable[Evidence]:
    """Test the slope of the last samples, unknown beyond the longest ensemble and below one network."""
    for curve in _registered(study, SEVERAL_MODES | ONE_MODE | ONE_SNAPSHOT):
        slope = slope_of(study, curve)
        if slope is not None:
            numbers = [f"more than {len(study.growth)}" if e == math.inf else f"{e:.2f}" for e in slope.equivalents]
            text = f"{numbers[0]} networks with {slope.sizes[0]} samples and {numbers[1]} with {slope.sizes[1]}"
            text += f", {slope.phrase}" if slope.phrase else ""
            expected = 1 if curve.method.registered in SEVERAL_MODES else -1
            outcome = _outcome(expected * slope.side_of(SATURATED))
            yield Evidence(outcome, f"{study.task.key}: {curve.method.title} is equivalent to {text}.")


def reordering(study: Study) -> Iterable[Evidence]:
    """Compare the order by NLL at temperature 1 with that after calibration.

    One pair that differs significantly by both scores, in opposite orders, is enough for another order; the same order
    needs that every pair differs significantly by both and none is reversed.
    """
    agreement = temperature_agreement(study)
    if not agreement.pairs:
        return
    sides = agreement.before, agreement.after
    first, after = (study.by_name[min(side, key=lambda name: side[name])].method.title for side in sides)
    lead = f"the lead goes from {first} to {after}" if first != after else f"{after} stays first"
    judged = [name for name in agreement.after if study.by_name[name].role != "deep_ensemble"]
    scores = [study.cells([study.by_name[name] for name in judged], measure) for measure in ("nll", RANKED_BY)]
    pairs = [frozenset(pair) for pair in combinations(judged, 2) if all(study.differ(cells, pair) for cells in scores)]
    turned = [pair for pair in agreement.swapped if frozenset(pair) in pairs]
    same = not agreement.swapped and len(pairs) == math.comb(len(judged), 2) > 0
    yield Evidence(
        _outcome(bool(turned) - same),
        f"{study.task.key}, {study.compared_samples} samples: {len(agreement.swapped)} of {agreement.pairs} pairs of "
        f"methods change their order, {len(turned)} of the {len(pairs)} that differ significantly by both scores; "
        f"{tau_phrase(agreement.tau)}; {lead}.",
    )


def augmentation_helps(study: Study) -> Iterable[Evidence]:
    """Compare one network, and methods of one snapshot, with and without augmentation on the same fits."""
    curves = [*study.select("network", augmented=False), *_registered(study, ONE_NETWORK | ONE_SNAPSHOT)]
    gains = gains_of(study, curves)
    for name, gain in gains.items():
        difference = margin(gain, NO_GAIN, len(gains))
        yield Evidence(difference.outcome(1), f"{_change(study, name, gain)}; {difference.phrase}.")


def augmented_alike(study: Study) -> Iterable[Planned]:
    """Compare one network with methods of one snapshot, all augmented: none of them is claimed to be better."""
    augmented = [study.with_augmentation(curve) for curve in _registered(study, ONE_SNAPSHOT)]
    for network in study.select("network", augmented=True)[:1]:
        yield from chain(*(_pair(study, network, curve) for curve in augmented if curve is not None))


def powerful_unmoved(study: Study) -> Iterable[Evidence]:
    """Compare the change of ensembles of several weight samples with a share of the gain of one network."""
    ensembles = [*study.select("deep_ensemble", augmented=False), *_registered(study, SEVERAL_MODES | ONE_MODE)]
    gains = gains_of(study, ensembles)
    for single in gains_of(study, study.select("network", augmented=False)[:1]).values():
        for name, gain in gains.items():
            outcome, reason = _little(gain, single, len(gains))
            change = f"{_change(study, name, gain)}, that of one network by {signed(-single.mean)}"
            yield Evidence(outcome, f"{change}; {reason}.")


def _change(study: Study, name: str, gain: Gain) -> str:
    return (
        f"{study.task.key}, {study.compared_samples} samples: augmentation changes the calibrated NLL of "
        f"{study.by_name[name].method.title} by {signed(-gain.mean)}"
    )


def _little(gain: Gain, single: Gain, comparisons: int) -> tuple[Outcome, str]:
    """Return whether a gain, or a loss, is below the share that counts as little, and why: it must be so on both sides.

    A change is little if it is significantly above −share and significantly below +share, and more than that if it is
    significantly beyond one of them.
    """
    if margin(single, NO_GAIN).outcome(1) != "supports":
        return "undecided", "the gain of one network is not significant, so that there is no share to compare with"
    share = single.scaled(LITTLE)
    side = 1 if gain.mean >= 0 else -1  # the bound that is nearer decides: the other is farther from the same estimate
    difference = margin(Gain(side * gain.mean, gain.variance), share, comparisons)
    where = "below" if difference.difference < 0 else "above"
    amount = f"{abs(difference.difference):.2g} {where} the {LITTLE:.0%} of it that count as little"
    return difference.outcome(-1), f"{amount}; {difference.phrase}"


def accuracy_and_likelihood(study: Study) -> Iterable[Evidence]:
    """Test how strongly likelihood and accuracy correlate, before and after calibration."""
    change = correlation_change(*score_pairs(study.curves)[2:])
    yield Evidence(change.outcome, f"{study.task.key}: {change.phrase}.")


def _registered(study: Study, names: frozenset[str]) -> list[SampleCurve]:
    """Return the curves without augmentation of these registered methods; variants of them are none of P's methods."""
    return [curve for curve in study.select("method", augmented=False) if curve.name in names]


def _pairs(study: Study, better: frozenset[str], worse: frozenset[str]) -> Iterable[Planned]:
    for one, other in product(_registered(study, better), _registered(study, worse)):
        yield from _pair(study, one, other)


def _pair(study: Study, better: SampleCurve, worse: SampleCurve) -> Iterable[Planned]:
    """Compare two methods, whose variance over runs is that of all of one training that are augmented, or not."""
    cells = study.cells(study.select("network", "method", augmented=better.augmented))
    if better.name in cells and worse.name in cells:
        pairs = compare_methods(cells, "lower", variance_groups=study.variance_groups)
        places = decimals(cells.values())
        values = " against ".join(f"{cell_text(cells[x.name], places)} ({x.method.title})" for x in (better, worse))
        text = f"{study.task.key}, {study.compared_samples} samples: {values}"
        yield Planned(text, pairs.advantage(better.name, worse.name))


TESTS: tuple[Callable[[Study], Iterable[Evidence | Planned]], ...] = (
    against_networks, modes_before_mode, mode_before_snapshot, saturation, reordering, augmentation_helps,
    augmented_alike, powerful_unmoved, accuracy_and_likelihood,
)  # fmt: skip
"""The tests that ``paper.toml`` names."""
