"""Which method is best, and which ones these runs cannot tell from it.

Two methods A and B differ by D = mean(A) − mean(B). Its variance has parts: the test set is a sample (paired, over
examples or groups), and so are the trainings behind the n_A and n_B runs:

    v = v_examples + s_A²/n_A + s_B²/n_B,    v_examples = G/(G−1) · Σ_g (Σ_{i∈g} (d_i − d̄))² / N²,

where d_i is the difference of the two methods' losses on example i, each averaged over its runs. A few seeds tell
little about a variance, so methods of one *kin* (single fits; ensembles of the same size) share theirs, as in an
analysis of variance: s² = Σ (n_m − 1) s_m² / Σ (n_m − 1). Degrees of freedom are Satterthwaite's. The smallest
difference resolved is t·√v at level α over the number of pairs, k(k − 1)/2 (Bonferroni): the best is chosen after
looking, so any pair could have been the one compared. Fits that two methods share make the parts correlate positively,
which errs on the side of "not distinguishable".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from dubio.core.types import Direction, FloatArray, StrArray
from dubio.reporting.aggregate import Cell

ALPHA = 0.05

Place = Literal["best", "tied", "behind", "unjudged"]
"""``tied``: not distinguishable from the best. ``unjudged``: there is no spread, over runs or examples, to judge by."""

Part = tuple[float, int]
"""A part of a variance, and its degrees of freedom."""


@dataclass(frozen=True)
class Verdict:
    """Where a method stands against the best one.

    Attributes:
        place: Best, tied with it, behind it, or not judged.
        difference: How much worse than the best, ≥ 0.
        resolves: The smallest difference that would have been told apart; None where it cannot be known.
    """

    place: Place
    difference: float
    resolves: float | None


@dataclass(frozen=True, eq=False)
class Losses:
    """A method's loss on every test example, averaged over its runs, and the groups that are sampled together."""

    values: FloatArray
    group: StrArray | None = None


def against_best(
    cells: Mapping[str, Cell],
    better: Direction,
    losses: Mapping[str, Losses] | None = None,
    kin: Mapping[str, Hashable] | None = None,
    among: Collection[str] = (),
) -> dict[str, Verdict]:
    """Judge every method that has a value against the one with the best mean.

    Args:
        cells: Method → its cell.
        better: Which way is better.
        losses: Method → per-example losses, where the metric is a mean over examples.
        kin: Method → what methods whose variance over runs is alike have in common; by default nothing has.
        among: The methods that are judged, against the best of them; all by default. Variances and the level stay those
            of all, so that a pair is judged alike whatever it is shown with.
    """
    asked = {method: cell for method, cell in cells.items() if not among or method in among}
    known = {method: cell for method, cell in asked.items() if cell.n and math.isfinite(cell.mean)}
    # An infinite loss is behind any finite one, and no spread is needed to say so.
    verdicts = {method: Verdict("behind", math.inf, None) for method, cell in asked.items() if math.isinf(cell.mean)}
    if not known:
        return verdicts
    sign = 1.0 if better == "lower" else -1.0
    best = min(known, key=lambda method: sign * known[method].mean)
    verdicts[best] = Verdict("best", 0.0, None)
    for method in known:
        if method != best:
            verdicts[method] = told_apart(cells, better, (method, best), losses, kin)
    return verdicts


def told_apart(
    cells: Mapping[str, Cell],
    better: Direction,
    pair: tuple[str, str],
    losses: Mapping[str, Losses] | None = None,
    kin: Mapping[str, Hashable] | None = None,
) -> Verdict:
    """How the first of two methods stands against the second, judged as strictly as against the best of all.

    Args:
        cells: Method → its cell, of all methods that are compared: they share variances and the level.
        better: Which way is better.
        pair: Two of them, both with a finite mean.
        losses: As for :func:`against_best`.
        kin: As for :func:`against_best`.

    Returns:
        ``best`` where the first is told from the second and better, ``behind`` where it is told and worse, ``tied``
        where the difference is below what is resolved, ``unjudged`` where there is no spread. The difference is
        positive where the first is worse.
    """
    known = {method: cell for method, cell in cells.items() if cell.n and math.isfinite(cell.mean)}
    level = ALPHA / max(1, len(known) * (len(known) - 1) // 2)
    related = {method: method if kin is None else kin[method] for method in known}
    first, second = pair
    difference = (1.0 if better == "lower" else -1.0) * (known[first].mean - known[second].mean)
    examples = None if losses is None else _example_part(losses, first, second)
    spreads = shared_variances(known, related)
    parts = _run_parts({name: known[name] for name in pair}, related, spreads, examples)
    resolves = smallest_difference(parts, examples, level=level)
    if resolves is None:
        return Verdict("unjudged", difference, None)
    if abs(difference) <= resolves:
        return Verdict("tied", difference, resolves)
    return Verdict("behind" if difference > 0 else "best", difference, resolves)


def shared_variances(cells: Mapping[str, Cell], kin: Mapping[str, Hashable]) -> dict[Hashable, Part]:
    """Kin → the variance over runs that its methods share, with its degrees of freedom; none where no run repeats."""
    found: dict[Hashable, list[Part]] = {}
    for method, cell in cells.items():
        if cell.std is not None:
            found.setdefault(kin[method], []).append((cell.std**2, cell.n - 1))
    return {
        name: (sum(variance * freedom for variance, freedom in parts) / total, total)
        for name, parts in found.items()
        for total in [sum(freedom for _, freedom in parts)]
    }


def smallest_difference(runs: list[Part] | None, examples: Part | None, *, level: float = ALPHA) -> float | None:
    """The smallest difference of two means that is told from none at this two-sided level.

    Args:
        runs: The parts of the variance that come from trainings; None where they are not known for both methods.
        examples: The part that comes from the test set being a sample, where it is known.
        level: Error rate, both sides together.

    Returns:
        None where neither is known.
    """
    if runs is None and examples is None:
        return None
    parts = [*(runs or ()), *([examples] if examples is not None else ())]
    variance = sum(part for part, _ in parts)
    if variance == 0.0:
        return 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return float(stats.t.ppf(1 - level / 2, freedom)) * math.sqrt(variance)


def paired_variance(difference: FloatArray, group: StrArray | None) -> Part | None:
    """Variance of the mean difference over examples, or over groups of them, with its degrees of freedom."""
    centred = difference - difference.mean()
    if group is not None:
        _, index = np.unique(group, return_inverse=True)
        centred = np.bincount(index, weights=centred)
    units = centred.size
    if units < 2:
        return None
    return float(units / (units - 1) * np.sum(centred**2) / difference.size**2), units - 1


def _run_parts(
    pair: Mapping[str, Cell], kin: Mapping[str, Hashable], spreads: Mapping[Hashable, Part], examples: Part | None
) -> list[Part] | None:
    """s²/n of both methods; two of one kin make one part, since they share their estimate of s².

    Where the spread of one method is not known, that of the other still counts beside that of the examples; without
    examples nothing is known.
    """
    shares: dict[Hashable, float] = {}
    for method, cell in pair.items():
        shares[kin[method]] = shares.get(kin[method], 0.0) + 1 / cell.n
    if examples is None and not shares.keys() <= spreads.keys():
        return None
    return [(spreads[name][0] * share, spreads[name][1]) for name, share in shares.items() if name in spreads]


def _example_part(losses: Mapping[str, Losses], method: str, best: str) -> Part | None:
    one, other = losses.get(method), losses.get(best)
    if one is None or other is None or one.values.shape != other.values.shape:
        return None
    return paired_variance(one.values - other.values, other.group)
