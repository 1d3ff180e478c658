"""What P concludes about ways to an ensemble, put to the test with the curves measured here.

Methods are compared with as many samples each, the number of :attr:`Study.equal`. Two methods are told apart by the
spread of their calibrated NLL over runs, as everywhere in the report; against deep ensembles, whose spread is that over
orders of one pool, the bounds of the deep-ensemble equivalent decide too (P eq. 5). What the spread does not tell stays
undecided, whatever the means are. Statements are ours, in our words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from dubio.reporting.aggregate import cell_text, decimals
from dubio.reporting.claims import Claim, Evidence, Outcome, outcome_of
from dubio.reporting.leaderboard import verdict_phrase
from dubio.statistics.ensemble_equivalent import equivalent_range
from dubio.statistics.verdicts import pair_verdict, shared_variances, smallest_difference
from dubio.studies.ensembles.apart import RULE, apart, cells_of, kin_of
from dubio.studies.ensembles.closeness import Closeness, closeness_of
from dubio.studies.ensembles.gains import NOTHING, Gain, gains_of, margin
from dubio.studies.ensembles.orders import tempered_order
from dubio.studies.ensembles.saturating import Slope, slope_of
from dubio.studies.ensembles.scatters import beside_of
from dubio.studies.ensembles.study import Line, Study
from dubio.studies.ensembles.told import agreement_words, equivalent_words, signed

SEVERAL_MODES = frozenset({"snapshot-ensemble", "csgld", "csghmc"})
"""Methods of one training that visit several modes of the loss."""
ONE_MODE = frozenset({"fge", "swag"})
"""Methods that gather weights around one mode."""
ONE_SNAPSHOT = frozenset({"mc-dropout", "mean-field-vi", "laplace"})
"""Methods that put noise on one set of weights, be it on the last layer alone."""
ONE_NETWORK = frozenset({"swa"})
"""Methods whose one prediction is that of one network: P's statements on one network and its views hold for them."""

SATURATED = 0.1
"""Below this many networks gained for a sample added, a method has saturated; a deep ensemble gains one."""
LITTLE = 0.25
"""Below this share of what one network gains from augmentation, a method gains little."""


def conclusions(studies: Sequence[Study]) -> tuple[Claim, ...]:
    """Every conclusion with what each study says to it."""
    return tuple(
        Claim(statement, where, tuple(piece for study in studies for piece in told(study)), "comparison")
        for statement, where, told in STATEMENTS
    )


def against_networks(study: Study) -> Iterable[Evidence]:
    """Every method of one training against a deep ensemble with as many samples.

    The bounds of the equivalent must leave no doubt at both ends of what the spread over runs leaves open.
    """
    size, lines = study.equal, study.chosen("network", "method", augmented=False)
    cells = cells_of(lines, size)
    shared = shared_variances(cells, kin_of(lines))
    for line in (line for line in lines if line.samples > 1 and line.name in cells):
        cell, part = cells[line.name], shared.get(line.method.members)
        doubt = None if part is None else smallest_difference([(part[0] / cell.n, part[1])], None)
        outcome: Outcome = "undecided"
        if doubt is not None:
            most, least = (equivalent_range(study.growth, "nll", cell.mean + by) for by in (-doubt, doubt))
            outcome = "supports" if most.upper.size < size else "contradicts" if least.lower.size > size else outcome
        worth = equivalent_words(equivalent_range(study.growth, "nll", cell.mean))
        text = f"{study.task.key}: {line.method.title} with {size} samples ({cell_text(cell)}) is worth {worth}."
        yield Evidence(outcome, text)


def modes_before_mode(study: Study) -> Iterable[Evidence]:
    """Methods of several modes against all that stay at one."""
    return _pairs(study, SEVERAL_MODES, ONE_MODE | ONE_SNAPSHOT)


def mode_before_snapshot(study: Study) -> Iterable[Evidence]:
    """Methods that gather weights around a mode against noise on one set of weights."""
    return _pairs(study, ONE_MODE, ONE_SNAPSHOT)


def saturation(study: Study) -> Iterable[Evidence]:
    """What the last samples bring, in networks a sample; beyond the longest ensemble, or at 1, nothing is known."""
    for line in _of(study, SEVERAL_MODES | ONE_MODE | ONE_SNAPSHOT):
        slope = slope_of(study, line)
        if slope is not None:
            side = slope.against(SATURATED)
            expected = 1 if line.method.registered in SEVERAL_MODES else -1
            outcome: Outcome = "undecided" if not side else "supports" if side == expected else "contradicts"
            yield Evidence(outcome, f"{study.task.key}: {line.method.title} is worth {_course(study, slope)}.")


def _course(study: Study, slope: Slope) -> str:
    told = " and ".join(
        f"{f'more than {len(study.growth)}' if worth == math.inf else f'{worth:.2f}'} with {size}"
        for size, worth in zip(slope.sizes, slope.worth, strict=True)
    )
    return f"{told} samples" + (f", {slope.spoken}" if slope.spoken else "")


def reordering(study: Study) -> Iterable[Evidence]:
    """Whether the order by NLL at temperature 1 is that after calibration.

    One pair that both scores tell apart, in opposite orders, is enough for another order; the same order is found only
    where both tell every pair apart and none is reversed.
    """
    found = tempered_order(study, study.equal)
    if len(found.after) < 2:
        return
    titles = {line.name: line.method.title for line in study.lines}
    first, after = (min(side, key=lambda name: side[name]) for side in (found.before, found.after))
    lead = (
        f"the lead goes from {titles[first]} to {titles[after]}" if first != after else f"{titles[after]} stays first"
    )
    judged = [name for name in found.after if study.by_name[name].role != "pool"]
    lines = [study.by_name[name] for name in judged]
    scores, kin = [cells_of(lines, study.equal, measure) for measure in ("nll", RULE)], kin_of(lines)
    told = {pair for pair in combinations(judged, 2) if all(apart(cells, kin, pair) for cells in scores)}
    turned = [pair for pair in found.swapped if pair in told or pair[::-1] in told]
    pairs = len(judged) * (len(judged) - 1) // 2
    text = (
        f"{study.task.key}, {study.equal} samples: {len(found.swapped)} of {found.pairs} pairs of methods change their "
        f"order, {len(turned)} of the {len(told)} that both scores tell apart; {agreement_words(found.tau)}; {lead}."
    )
    same = not found.swapped and pairs > 0 and len(told) == pairs
    yield Evidence("supports" if turned else "contradicts" if same else "undecided", text)


def augmentation_helps(study: Study) -> Iterable[Evidence]:
    """One network and methods of one snapshot, with augmentation against without, on the same fits."""
    lines = [*study.chosen("network", augmented=False), *_of(study, ONE_NETWORK | ONE_SNAPSHOT)]
    gains = gains_of(study, lines)
    for line in (line for line in lines if line.name in gains):
        found = margin(gains[line.name], NOTHING, len(gains))
        outcome: Outcome = "undecided" if not found.told else "supports" if found.difference > 0 else "contradicts"
        yield Evidence(
            outcome,
            f"{study.task.key}, {study.equal} samples: augmentation changes the calibrated NLL of {line.method.title} "
            f"by {signed(-found.difference)}; {found.words}.",
        )


def augmented_alike(study: Study) -> Iterable[Evidence]:
    """With augmentation, methods of one snapshot against one network: none is told to be better."""
    network = next(iter(study.chosen("network", augmented=True)), None)
    for line in _of(study, ONE_SNAPSHOT):
        twin = study.twin(line)
        if twin is not None and network is not None:
            for found in _pair(study, twin, network):
                turned: dict[Outcome, Outcome] = {"supports": "contradicts", "contradicts": "supports"}
                yield Evidence(turned.get(found.outcome, "undecided"), found.text)


def powerful_unmoved(study: Study) -> Iterable[Evidence]:
    """What augmentation brings ensembles of several weights, beside a share of what it brings one network."""
    network = next(iter(study.chosen("network", augmented=False)), None)
    gained = None if network is None else gains_of(study, [network]).get(network.name)
    if gained is None:
        return
    lines = [*study.chosen("pool", augmented=False), *_of(study, SEVERAL_MODES | ONE_MODE)]
    gains = gains_of(study, lines)
    for line in (line for line in lines if line.name in gains):
        own = gains[line.name]
        text = (
            f"{study.task.key}, {study.equal} samples: augmentation changes the calibrated NLL of "
            f"{line.method.title} by {signed(-own.mean)}, that of one network by {signed(-gained.mean)}"
        )
        outcome, why = _little(own, gained, len(gains))
        yield Evidence(outcome, f"{text}; {why}.")


def _little(own: Gain, gained: Gain, comparisons: int) -> tuple[Outcome, str]:
    """Whether a gain is below the share that counts as little, and how that is known."""
    network = margin(gained, NOTHING)
    if not (network.told and network.difference > 0):
        return "undecided", "that one network gains is not told from chance, so there is nothing to take a share of"
    apart = margin(own, gained.scaled(LITTLE), comparisons)
    outcome: Outcome = "undecided" if not apart.told else "supports" if apart.difference < 0 else "contradicts"
    side = "below" if apart.difference < 0 else "above"
    return outcome, f"{abs(apart.difference):.2g} {side} the {LITTLE:.0%} that count as little; {apart.words}"


def accuracy_and_likelihood(study: Study) -> Iterable[Evidence]:
    """How closely likelihood goes with accuracy, before and after calibration."""
    found = closeness_of(*beside_of(study.lines)[2:])
    yield Evidence(found.outcome, f"{study.task.key}: {_closeness_words(found)}.")


def _closeness_words(found: Closeness) -> str:
    if not (math.isfinite(found.before) and math.isfinite(found.after)):
        return "a correlation is not defined, since likelihood or accuracy does not vary"
    text = f"|ρ| = {found.before:.3f} at temperature 1, {found.after:.3f} after calibration"
    if found.after_range is None or found.rise_range is None:
        return f"{text}; too few families of methods to know how surely"
    (low, high), rise = found.after_range, [signed(end) for end in found.rise_range]
    return f"{text} (over families of methods {low:.3f} to {high:.3f}; change {rise[0]} to {rise[1]})"


def _of(study: Study, registered: frozenset[str]) -> list[Line]:
    """The lines without augmentation of these registered methods."""
    return [line for line in study.chosen("method", augmented=False) if line.method.registered in registered]


def _pairs(study: Study, better: frozenset[str], worse: frozenset[str]) -> Iterable[Evidence]:
    for one in _of(study, better):
        for other in _of(study, worse):
            yield from _pair(study, one, other)


def _pair(study: Study, better: Line, worse: Line) -> Iterable[Evidence]:
    """Two methods with as many samples, judged among all of one training that are augmented, or not, as they are."""
    size = study.equal
    cells = cells_of(study.chosen("network", "method", augmented=better.augmented), size)
    if better.name not in cells or worse.name not in cells:
        return
    verdict = pair_verdict(cells, "lower", (better.name, worse.name), None, kin_of(study.lines))
    places = decimals(cells.values())
    values = " against ".join(f"{cell_text(cells[x.name], places)} ({x.method.title})" for x in (better, worse))
    yield Evidence(outcome_of(verdict), f"{study.task.key}, {size} samples: {values}; {verdict_phrase(verdict)}.")


STATEMENTS: tuple[tuple[str, str, Callable[[Study], Iterable[Evidence]]], ...] = (
    ("With as many samples, no method of one training is worth as much as a deep ensemble.", "P Fig. 3, §5",
     against_networks),
    ("Methods that visit several modes (snapshot ensembles, cSGLD) come next, before all that stay at one.",
     "P Fig. 3, §4.2", modes_before_mode),
    ("Weights gathered around one mode (FGE, SWAG) come before noise on one set of weights (dropout, VI, Laplace).",
     "P §4.2", mode_before_snapshot),
    ("What stays at one mode saturates; what visits several goes on growing.", "P Fig. 3, §4.2", saturation),
    ("Log-likelihoods at temperature 1 put methods in another order than calibrated ones.", "P §3.1, Fig. 5",
     reordering),
    ("Test-time augmentation helps one network and methods of one snapshot.", "P Table 1, §4.3", augmentation_helps),
    ("With it, methods of one snapshot are no better than one augmented network.", "P §4.3", augmented_alike),
    ("Ensembles of several weights gain little from it, on small pictures.", "P Tables 7 and 8, §4.3",
     powerful_unmoved),
    ("Likelihood goes with accuracy, more closely after calibration (|ρ| above 0.95).", "P Fig. 6",
     accuracy_and_likelihood),
)  # fmt: skip
"""Statement, where P says it, and what looks for evidence."""
