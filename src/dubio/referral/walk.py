"""The search for the largest coverage with a bounded error where rows are independent: walks outward over counts.

**Procedure.** Candidate b has a count j_b fixed beforehand (every hundredth of n, and the starts below). With T_b the
(j_b + 1)-th smallest uncertainty (∞ for j_b = n) it keeps the rows with u < T_b: M_b ≤ j_b of them, as ties are not
parted, K_b of them wrong. Its p-value is P(Bin(M_b, r) ≤ K_b), r the bound. A walk starts at a fixed candidate and goes
outward as long as p ≤ its level. The main walk has 9/10 of α = 1 − confidence and starts where three wrong rows would
still do (earlier where n is small); twenty more, from every twentieth of n, share the rest and catch what the main one
misses: an unlucky start, or many rows that are equally certain. The largest candidate any walk has shown is chosen.

**Why it is valid.** Let R(t) = P(wrong | u < t) and call a place t *bad* if R(t) ≥ r, that is if
D(t) = E[(wrong − r) 1{u < t}] ≥ 0 with P(u < t) > 0.

1. *One candidate.* Given T_b = t, M_b = m and the rows at or above t, the m rows below are independent draws from the
   law given u < t. So K_b is Bin(m, R(t)), and P(p_b ≤ a) ≤ a if t is bad.
2. *One walk.* It errs only if p_I ≤ a for its first candidate I at a bad place. Given I = i, T_i = t, M_i = m the rows
   below are draws as in 1, but conditioned on E: no earlier candidate of the walk is at a bad place. E can only raise
   K_i. For cut the places below t into alternating stretches, good and bad. D is ≥ 0 where a bad stretch begins and
   ≤ 0 where it ends: a bad stretch that ends lacks as many errors, counted from r, as the good stretches before and
   after it have too many. So rows can be dealt, by coins that depend on nothing but their stretch, into clusters,
   each a part of a bad stretch and a part of a good one beside it, such that the mean of ``wrong`` in a cluster is r
   (in the last, which t cuts off, at least r), in its bad part at most r and in its good part at least r. Given the
   sizes of clusters, "this row is in the bad part" is an independent coin per row, the chance of {K_i > k} falls with
   every such coin, and so does E: a row that moves from a bad stretch into the good one beside it leaves to the bad
   stretch fewer of the places in order, and none that was not its own. What falls with independent coins is
   positively correlated (Harris 1960), so P(K_i > k | E) ≥ P(K_i > k) ≥ P(Bin(m, r) > k), and P(p_I ≤ a) ≤ a.
3. *All walks.* The probability that any of them errs is at most the sum of their levels, α.

Nothing is assumed of how error depends on uncertainty, and ties are allowed. (A walk without fixed starts, or the
largest threshold whose own bound holds, has no such guarantee; the tests show the latter break it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.special import bdtr

from dubio.core.types import FloatArray, IntArray
from dubio.referral.bounds import binomial_upper
from dubio.referral.units import just_below

STEPS = 100
GUARDS = 20
GUARD_SHARE = 0.1
"""The part of α that the further walks share."""

TENTHS = 10
"""Coverages among which the best bound is sought where none is good enough."""

ALLOWED = 3
"""Wrong rows that the start of the main walk can bear."""

EARLIEST = 0.4
"""The share of rows below which the main walk starts where n is too small for that."""


@dataclass(frozen=True)
class Candidate:
    """A threshold and what the calibration set says of it.

    Attributes:
        threshold: Rows up to it are kept.
        kept: How many are.
        wrong: How many of those are wrong.
    """

    threshold: float
    kept: int
    wrong: int

    @property
    def error(self) -> float:
        """Share of the kept that is wrong; 0 where none is kept."""
        return self.wrong / self.kept if self.kept else 0.0


@dataclass(frozen=True, eq=False)
class Walks:
    """Independent rows made ready to be searched.

    Attributes:
        ascending: ``[n]`` graded uncertainties in ascending order.
        errors: ``[n + 1]`` wrong rows among the first so many.
        risk: The bound r.
        level: α.
    """

    ascending: FloatArray
    errors: FloatArray
    risk: float
    level: float

    @classmethod
    def over(cls, uncertainty: FloatArray, wrong: FloatArray, *, risk: float, level: float) -> Walks:
        """From rows in any order, their uncertainties graded."""
        order = np.argsort(uncertainty, kind="stable")
        return cls(uncertainty[order], np.append(0.0, np.cumsum(wrong[order])), risk, level)

    def largest(self) -> Candidate | None:
        """The candidate that keeps most among those shown by any walk, or None."""
        counts = self._counts()
        found = [self.candidate(count) for count in counts.tolist()]
        kept, wrong = np.array([each.kept for each in found]), np.array([each.wrong for each in found])
        p_values = np.where(kept > 0, bdtr(wrong, kept, self.risk), 1.0)
        shown = -1
        for start, level in self._starts():
            first = int(np.searchsorted(counts, start))
            failed = np.flatnonzero(p_values[first:] > level)
            last = (first + int(failed[0]) if len(failed) else len(counts)) - 1
            if last >= first:
                shown = max(shown, last)
        return found[shown] if shown >= 0 else None

    def best_bound(self) -> tuple[float, Candidate]:
        """(the lowest upper bound on the error, its candidate) over every tenth of n, valid for all together."""
        rows = len(self.ascending)
        counts = sorted({round(rows * step / TENTHS) for step in range(1, TENTHS + 1)} - {0})
        found = [self.candidate(count) for count in counts]
        bounds = [binomial_upper(each.error, each.kept, self.level / len(counts)) for each in found]
        lowest = int(np.argmin(bounds))
        return bounds[lowest], found[lowest]

    def candidate(self, count: int) -> Candidate:
        """The candidate with this count: the rows strictly more certain than the next one in order."""
        if count >= len(self.ascending):
            return Candidate(inf, len(self.ascending), int(self.errors[-1]))
        limit = self.ascending[count]
        kept = int(np.searchsorted(self.ascending, limit, side="left"))
        return Candidate(just_below(float(limit)), kept, int(self.errors[kept]))

    def _counts(self) -> IntArray:
        rows = len(self.ascending)
        steps = np.rint(rows * np.arange(1, STEPS + 1) / STEPS).astype(np.int64)
        return np.unique(np.append(steps, [start for start, _ in self._starts()]))

    def _starts(self) -> list[tuple[int, float]]:
        """(count, level) of each walk, from n, the bound and α alone."""
        rows, main = len(self.ascending), (1.0 - GUARD_SHARE) * self.level
        least = self._bears(0, main)
        start = min(rows, max(least, min(self._bears(ALLOWED, main), int(EARLIEST * rows))))
        guards = {round(rows * step / GUARDS) for step in range(1, GUARDS + 1)} - {0}
        return [(start, main), *((count, GUARD_SHARE * self.level / GUARDS) for count in sorted(guards))]

    def _bears(self, wrong: int, level: float) -> int:
        """The fewest rows among which so many wrong ones still show the bound."""
        low, high = wrong, wrong + 1
        while bdtr(wrong, high, self.risk) > level:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if bdtr(wrong, middle, self.risk) <= level else (middle, high)
        return high
