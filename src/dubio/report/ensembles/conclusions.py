"""What P concludes about ways to an ensemble, put to the test with the curves measured here.

Methods are compared with as many samples each, the number of :attr:`Study.equal`. Two methods are told apart by the
spread of their calibrated NLL over runs, as everywhere in the report; against deep ensembles, whose spread is that over
orders of one pool, the bounds of the deep-ensemble equivalent decide (P eq. 5). Statements are ours, in our words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dubio.report.aggregate import Cell, decimals, spoken
from dubio.report.claims import Claim, Evidence, Outcome, outcome_of
from dubio.report.comparison import told_apart
from dubio.report.ensembles.orders import tempered_order
from dubio.report.ensembles.prefixes import SIZES
from dubio.report.ensembles.scatters import beside_of
from dubio.report.ensembles.study import Line, Study
from dubio.report.ensembles.told import equivalent_words, signed
from dubio.report.standing import verdict_words

SEVERAL_MODES = frozenset({"snapshot-ensemble", "csgld", "csghmc"})
"""Methods of one training that visit several modes of the loss."""
ONE_MODE = frozenset({"fge", "swag"})
"""Methods that gather weights around one mode."""
ONE_SNAPSHOT = frozenset({"mc-dropout", "mean-field-vi", "laplace"})
"""Methods that put noise on one set of weights."""

SATURATED = 0.1
"""Below this many networks gained for a sample added, a method has saturated; a deep ensemble gains one."""
LITTLE = 0.25
"""Below this share of what one network gains from augmentation, a method gains little."""
RULE = "calibrated_nll"


def conclusions(studies: Sequence[Study]) -> tuple[Claim, ...]:
    """Every conclusion with what each study says to it."""
    return tuple(
        Claim(statement, where, tuple(piece for study in studies for piece in told(study)), "comparison")
        for statement, where, told in STATEMENTS
    )


def against_networks(study: Study) -> Iterable[Evidence]:
    """Every method of one training against a deep ensemble with as many samples."""
    size = study.equal
    for line in study.chosen("method", augmented=False):
        worth = study.equivalent_at(line, size)
        if line.samples > 1 and worth is not None:
            outcome: Outcome = "supports" if worth.upper.size < size else "undecided"
            outcome = "contradicts" if worth.lower.size > size else outcome
            text = f"{study.task.key}: {line.method.title} with {size} samples is worth {equivalent_words(worth)}."
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
        sizes = [size for size in line.sizes if size in SIZES]
        worths = [study.equivalents(line)[line.sizes.index(size)].central.size for size in sizes]
        if len(worths) < 3:
            continue
        before, last = sizes[-2:]
        several = line.method.registered in SEVERAL_MODES
        unknown = worths[-1] == float("inf") or worths[-2:] == [1.0, 1.0]
        goes_on = not unknown and (worths[-1] - worths[-2]) / (last - before) >= SATURATED
        told = " and ".join(
            f"{'more than ' + str(len(study.growth)) if worth == float('inf') else f'{worth:.2f}'} with {size}"
            for size, worth in zip(sizes[-2:], worths[-2:], strict=True)
        )
        text = f"{study.task.key}: {line.method.title} is worth {told} samples."
        outcome: Outcome = "supports" if several == goes_on else "contradicts"
        yield Evidence("undecided" if unknown else outcome, text)


def reordering(study: Study) -> Iterable[Evidence]:
    """Whether the order by NLL at temperature 1 is that after calibration."""
    found = tempered_order(study, study.equal)
    if len(found.after) < 2:
        return
    titles = {line.name: line.method.title for line in study.lines}
    first, after = (min(side, key=lambda name: side[name]) for side in (found.before, found.after))
    lead = (
        f"the lead goes from {titles[first]} to {titles[after]}" if first != after else f"{titles[after]} stays first"
    )
    apart = [pair for pair in found.swapped if all(_apart(study, pair, measure) for measure in ("nll", RULE))]
    text = (
        f"{study.task.key}, {study.equal} samples: {len(found.swapped)} of {found.pairs} pairs of methods change their "
        f"order, {len(apart)} of them told apart by both scores; Kendall's τ = {found.tau:.2f}; {lead}."
    )
    outcome: Outcome = "supports" if apart else "undecided"
    yield Evidence(outcome if found.swapped else "contradicts", text)


def augmentation_helps(study: Study) -> Iterable[Evidence]:
    """One network and methods of one snapshot, with augmentation against without."""
    for line in (*study.chosen("network", augmented=False), *_of(study, ONE_SNAPSHOT)):
        twin = study.twin(line)
        if twin is not None:
            yield from _pair(study, twin, line)


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
    """What augmentation brings ensembles of several weights, beside what it brings one network."""
    network = next(iter(study.chosen("network", augmented=False)), None)
    gained = None if network is None else _gain(study, network)
    if gained is None or gained <= 0:
        return
    for line in (*study.chosen("pool", augmented=False), *_of(study, SEVERAL_MODES | ONE_MODE)):
        own = _gain(study, line)
        if own is not None:
            text = (
                f"{study.task.key}, {study.equal} samples: augmentation changes the calibrated NLL of "
                f"{line.method.title} by {signed(-own)}, that of one network by {signed(-gained)}."
            )
            yield Evidence("supports" if own < LITTLE * gained else "contradicts", text)


def accuracy_and_likelihood(study: Study) -> Iterable[Evidence]:
    """How closely likelihood goes with accuracy, before and after calibration."""
    before, after = (abs(found.pearson) for found in beside_of(study.lines)[2:])
    text = f"{study.task.key}: |ρ| = {before:.3f} at temperature 1, {after:.3f} after calibration."
    outcome: Outcome = "supports" if after > max(before, 0.95) else "undecided"
    yield Evidence("contradicts" if after < before else outcome, text)


def _of(study: Study, registered: frozenset[str]) -> list[Line]:
    """The lines without augmentation of these registered methods."""
    return [line for line in study.chosen("method", augmented=False) if line.method.registered in registered]


def _pairs(study: Study, better: frozenset[str], worse: frozenset[str]) -> Iterable[Evidence]:
    for one in _of(study, better):
        for other in _of(study, worse):
            yield from _pair(study, one, other)


def _pair(study: Study, better: Line, worse: Line) -> Iterable[Evidence]:
    """Two methods with as many samples, judged among all methods but deep ensembles."""
    size = study.equal
    cells = _cells(study, size)
    if better.name not in cells or worse.name not in cells:
        return
    kin = {line.name: line.method.members for line in study.lines}
    verdict = told_apart(cells, "lower", (better.name, worse.name), None, kin)
    places = decimals(cells.values())
    values = " against ".join(f"{spoken(cells[x.name], places)} ({x.method.title})" for x in (better, worse))
    yield Evidence(outcome_of(verdict), f"{study.task.key}, {size} samples: {values}; {verdict_words(verdict)}.")


def _apart(study: Study, pair: tuple[str, str], measure: str) -> bool:
    """Whether two methods with as many samples are told apart by a measure; never those that are not judged."""
    cells = _cells(study, study.equal, measure)
    kin = {line.name: line.method.members for line in study.lines}
    return set(pair) <= cells.keys() and outcome_of(told_apart(cells, "lower", pair, None, kin)) != "undecided"


def _cells(study: Study, size: int, measure: str = RULE) -> dict[str, Cell]:
    found = {line.name: line.at(measure, size) for line in study.lines if line.role != "pool"}
    return {name: cell for name, cell in found.items() if cell is not None}


def _gain(study: Study, line: Line) -> float | None:
    """How much calibrated NLL falls by augmentation; None without a twin of as many samples."""
    twin = study.twin(line)
    with_views = None if twin is None else twin.at(RULE, study.equal)
    without = line.at(RULE, study.equal)
    return None if with_views is None or without is None else without.mean - with_views.mean


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
