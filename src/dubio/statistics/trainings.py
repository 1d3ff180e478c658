"""The variance that trainings give to a method's score, from repeated runs or from the members of an ensemble.

A method's score is a function of n independent trainings. Training i has a *share* u_i in its deviation, such that the
variance of the score is Σ u_i²:

- R runs, each of its own training, with values x_r:  u_r = (x_r − x̄) / √(R (R − 1)), which is s²/R, on R − 1 degrees of
  freedom.
- R runs of ensembles of M trainings, cut into g parts of which one is left out at a time, θ_rj the value of run r
  without the h_j trainings of part j (Tukey's jackknife; Efron and Stein 1981: it errs upwards):
  u_rj = (θ̄_r − θ_rj) (1 − h_j/M) √(g/(g − 1)) / R, on R (g − 1) degrees of freedom. With one training a part the sum
  over j is (M − 1)/M · Σ (θ_rj − θ̄_r)² / R².

Two methods of the same trainings differ by a score whose shares are the differences of theirs: a fit that is good for
both does not count.

A variance of few degrees of freedom says little, and trainings of different methods vary very differently (tenfold to
400-fold in variance on real fits), so that the mean variance s̄² of a group (single fits; ensembles of one size) cannot
stand for that of each method. From 4 degrees of freedom on a method's own variance s² stands alone; with fewer, d, it
is max(s², (1 + 3/d) s̄²), the latter with Satterthwaite's degrees of freedom (Σ d_m s_m²)² / Σ d_m s_m⁴. The simulations
behind this rule are in ``tests/statistics/test_trainings.py``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

VarianceTerm = tuple[float, float]
"""A term of a variance, and its degrees of freedom."""

Key = tuple[Hashable, ...]
"""The trainings that one run, or one part of an ensemble, draws from."""

ENOUGH = 4
"""Degrees of freedom from which on a method's own variance stands alone."""

CAUTION = 3.0
"""With d degrees of freedom fewer, the mean variance of a group counts 1 + CAUTION/d times."""


@dataclass(frozen=True)
class Trainings:
    """The independent trainings behind one method's score.

    Attributes:
        shares: Trainings → their share u in the score's deviation.
        freedom: Degrees of freedom of the variance; infinite where training involves no chance.
        runs: The number of runs that the score is a mean of.
    """

    shares: Mapping[Key, float]
    freedom: float
    runs: int = 1

    @property
    def variance(self) -> float:
        """The variance of the score over trainings."""
        return sum(share**2 for share in self.shares.values())


@dataclass(frozen=True)
class OwnTerm:
    """The variance of one method's score over trainings; ``group`` is the group it comes from, where not its own."""

    variance: float
    freedom: float
    group: Hashable | None = None


NO_CHANCE = Trainings({}, math.inf)
"""The training data alone determine the fit."""


def over_runs(values: Mapping[Key, float]) -> Trainings | None:
    """Return the shares of runs by their trainings; None of fewer than two, or where one is not finite."""
    x = np.array(list(values.values()))
    if len(x) < 2 or not np.isfinite(x).all():
        return None
    shares = (x - x.mean()) / math.sqrt(len(x) * (len(x) - 1))
    return Trainings(dict(zip(values, shares.tolist(), strict=True)), len(x) - 1, len(x))


def over_members(runs: Sequence[Mapping[Key, float]]) -> Trainings | None:
    """Return the shares of the trainings of ensembles.

    Args:
        runs: For every run, the trainings left out → its value without them; together they are all of its trainings.

    Returns:
        None where a run cannot be cut into two parts, or a value is not finite.
    """
    shares: dict[Key, float] = {}
    for left_out in runs:
        x, parts = np.array(list(left_out.values())), len(left_out)
        if parts < 2 or not np.isfinite(x).all():
            return None
        weights = 1 - np.array([len(key) for key in left_out]) / sum(map(len, left_out))
        own = (x.mean() - x) * weights * math.sqrt(parts / (parts - 1)) / len(runs)
        for key, share in zip(left_out, own.tolist(), strict=True):
            shares[key] = shares.get(key, 0.0) + share
    return Trainings(shares, sum(map(len, runs)) - len(runs), len(runs)) if shares else None


def own_terms(
    trainings: Mapping[str, Trainings], groups: Mapping[str, Hashable], same: Mapping[str, Hashable] | None = None
) -> dict[str, OwnTerm]:
    """Return method → the variance of its score over trainings, no less than its group's where it says little.

    Args:
        trainings: Method → its trainings.
        groups: Method → its variance group.
        same: As for :func:`first_of_same`: such methods count once in the mean variance of their group.
    """
    first = first_of_same(trainings, same or {})
    distinct = {name: own for name, own in trainings.items() if first[name] == name}
    terms = {}
    for name, own in distinct.items():
        terms[name] = OwnTerm(own.variance, own.freedom)
        if own.freedom < ENOUGH:
            group = [other for key, other in distinct.items() if groups[key] == groups[name] and other.shares]
            freedom = np.array([other.freedom for other in group])
            of_a_run = np.array([other.runs * other.variance for other in group])
            least = (1 + CAUTION / own.freedom) * float(freedom @ of_a_run / freedom.sum()) / own.runs
            if own.variance < least:
                effective = float((freedom @ of_a_run) ** 2 / (freedom @ of_a_run**2))
                terms[name] = OwnTerm(least, effective, groups[name])
    return {name: terms[first[name]] for name in trainings}


def first_of_same(names: Iterable[str], same: Mapping[str, Hashable]) -> dict[str, str]:
    """Return method → the first method that makes its predictions, itself where none does before it.

    Args:
        names: The methods.
        same: Method → what it shares with the methods that make the same predictions in every run, with them alone; a
            method that is not named makes its own.
    """
    first: dict[tuple[bool, Hashable], str] = {}
    return {name: first.setdefault((name in same, same.get(name, name)), name) for name in names}


def trainings_of_runs(values: Mapping[str, Sequence[float]]) -> dict[str, Trainings]:
    """Return method → the trainings of its runs, each with one of its own, for the methods with several."""
    every = {name: over_runs({(name, k): x for k, x in enumerate(own)}) for name, own in values.items()}
    return {name: own for name, own in every.items() if own is not None}


def pair_terms(
    one: str, two: str, trainings: Mapping[str, Trainings], terms: Mapping[str, OwnTerm]
) -> list[VarianceTerm]:
    """Return the variance of the difference of two scores over trainings: jointly, where those are the same.

    Trainings that two methods share only in part make their scores correlate positively; the sum of both variances then
    errs on the side of "not significantly different".

    Args:
        one: A method.
        two: Another.
        trainings: Method → its trainings.
        terms: Method → the variance of its score.
    """
    first, second = trainings[one], trainings[two]
    if first.shares and first.shares.keys() == second.shares.keys() and first.freedom >= ENOUGH <= second.freedom:
        variance = sum((share - second.shares[key]) ** 2 for key, share in first.shares.items())
        return [(variance, min(first.freedom, second.freedom))]
    own, other = terms[one], terms[two]
    if own.group is not None and own.group == other.group:  # one estimate serves both
        return [(own.variance + other.variance, own.freedom)]
    return [(own.variance, own.freedom), (other.variance, other.freedom)]
