"""Find the largest coverage with a bounded error where rows are independent: fixed-sequence tests over counts.

**Procedure.** Candidate b has a count j_b fixed beforehand (every hundredth of n, and the starts below). With T_b the
(j_b + 1)-th smallest uncertainty (∞ for j_b = n) it retains the rows with u < T_b: M_b ≤ j_b of them, as ties stay
together, K_b of them wrong. Its p-value is P(Bin(M_b, r) ≤ K_b), r the bound. A sequence starts at a fixed candidate
and tests larger ones in order until the first with p above its level. The main sequence has 9/10 of α = 1 − confidence
and starts at the smallest count at which three errors still pass (earlier where n is small); twenty more, from every
twentieth of n, share the remaining tenth and cover an unlucky start or many equally certain rows. The largest candidate
accepted by any sequence is chosen.

**Why it is valid.** Let R(t) = P(wrong | u < t) and call a threshold t *bad* if R(t) ≥ r, that is if
D(t) = E[(wrong − r) 1{u < t}] ≥ 0 with P(u < t) > 0.

1. *One candidate.* Given T_b = t, M_b = m and the rows at or above t, the m rows below are independent draws from the
   law given u < t. So K_b is Bin(m, R(t)), and P(p_b ≤ a) ≤ a if t is bad.
2. *One sequence.* It errs only if p_I ≤ a for its first candidate I at a bad threshold. Given I = i, T_i = t, M_i = m
   the rows below are draws as in 1, but conditioned on E: no earlier candidate of the sequence is at a bad threshold.
   E can only raise K_i. To see this, divide the thresholds below t into alternating stretches, good and bad. D is ≥ 0
   where a bad stretch begins and ≤ 0 where it ends: relative to r, the errors missing in a bad stretch that ends
   balance the excess in the good stretches before and after it. So rows can be dealt, by coins that depend on nothing
   but their stretch, into clusters, each a part of a bad stretch and a part of a good one beside it, such that the
   mean of ``wrong`` in a cluster is r (in the last, which t cuts off, at least r), in its bad part at most r and in
   its good part at least r. Given the sizes of clusters, "this row is in the bad part" is an independent coin per row,
   the chance of {K_i > k} falls with every such coin, and so does E: a row that moves from a bad stretch into the good
   one beside it leaves the bad stretch fewer positions in the order, and none that was not its own. Decreasing
   functions of independent coins are positively correlated (Harris 1960), so P(K_i > k | E) ≥ P(K_i > k) ≥ P(Bin(m, r)
   > k), and P(p_I ≤ a) ≤ a.
3. *All sequences.* The probability that any of them errs is at most the sum of their levels, α.

Nothing is assumed of how error depends on uncertainty, and ties are allowed. (A sequence without a fixed start, or
the largest threshold whose own bound holds, has no such guarantee; the tests show the latter violate it.)
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.special import bdtr

from dubio.core.types import FloatArray, IntArray
from dubio.referral.bounds import binomial_upper
from dubio.referral.units import just_below

MOST_ROWS = 1 << 30
"""Larger than any calibration set, and still in the range of ``bdtr``."""

STEPS = 100
GUARDS = 20
GUARD_SHARE = 0.1
"""The share of α divided among the guard sequences."""

TENTHS = 10
"""Number of coverages among which the best bound is sought where no candidate passes."""

ALLOWED = 3
"""Errors at which the first candidate of the main sequence still passes."""

EARLIEST = 0.4
"""The share of rows at which the main sequence starts at the latest, where n is small."""


@dataclass(frozen=True)
class Candidate:
    """A threshold with its counts on the calibration set.

    Attributes:
        threshold: Rows up to it are retained.
        retained: Number of retained rows.
        wrong: Number of errors among them.
    """

    threshold: float
    retained: int
    wrong: int

    @property
    def error(self) -> float:
        """Share of errors among the retained; 0 where none is retained."""
        return self.wrong / self.retained if self.retained else 0.0


@dataclass(frozen=True, eq=False)
class FixedSequences:
    """Independent rows, sorted for the fixed-sequence tests.

    Attributes:
        ascending: ``[n]`` rounded uncertainties in ascending order.
        errors: ``[n + 1]`` number of errors among the k most certain rows.
        risk: The bound r.
        level: α.
    """

    ascending: FloatArray
    errors: FloatArray
    risk: float
    level: float

    @classmethod
    def over(cls, uncertainty: FloatArray, wrong: FloatArray, *, risk: float, level: float) -> FixedSequences:
        """Sort rows given in any order; uncertainties are rounded (:func:`~dubio.referral.units.rounded`)."""
        order = np.argsort(uncertainty, kind="stable")
        return cls(uncertainty[order], np.append(0.0, np.cumsum(wrong[order])), risk, level)

    def largest(self) -> Candidate | None:
        """Return the candidate with the largest coverage accepted by any sequence, or None."""
        counts = self._counts()
        candidates = [self.candidate(count) for count in counts.tolist()]
        retained = np.array([candidate.retained for candidate in candidates])
        wrong = np.array([candidate.wrong for candidate in candidates])
        p_values = np.where(retained > 0, bdtr(wrong, retained, self.risk), 1.0)
        accepted = -1
        for start, level in self._starts():
            first = int(np.searchsorted(counts, start))
            failed = np.flatnonzero(p_values[first:] > level)
            last = (first + int(failed[0]) if len(failed) else len(counts)) - 1
            if last >= first:
                accepted = max(accepted, last)
        return candidates[accepted] if accepted >= 0 else None

    def best_bound(self) -> tuple[float, Candidate]:
        """Return (the lowest upper bound on the error, its candidate) over every tenth of n, valid simultaneously."""
        rows = len(self.ascending)
        counts = sorted({round(rows * step / TENTHS) for step in range(1, TENTHS + 1)} - {0})
        candidates = [self.candidate(count) for count in counts]
        level = self.level / len(counts)
        bounds = [binomial_upper(candidate.error, candidate.retained, level) for candidate in candidates]
        lowest = int(np.argmin(bounds))
        return bounds[lowest], candidates[lowest]

    def candidate(self, count: int) -> Candidate:
        """Return the candidate of a count: the rows strictly more certain than the next one in order."""
        if count >= len(self.ascending):
            return Candidate(inf, len(self.ascending), int(self.errors[-1]))
        limit = self.ascending[count]
        retained = int(np.searchsorted(self.ascending, limit, side="left"))
        return Candidate(just_below(float(limit)), retained, int(self.errors[retained]))

    def _counts(self) -> IntArray:
        rows = len(self.ascending)
        steps = np.rint(rows * np.arange(1, STEPS + 1) / STEPS).astype(np.int64)
        return np.unique(np.append(steps, [start for start, _ in self._starts()]))

    def _starts(self) -> list[tuple[int, float]]:
        """Return (count, level) of each sequence, from n, the bound and α alone."""
        rows, main = len(self.ascending), (1.0 - GUARD_SHARE) * self.level
        least = self._fewest_rows(0, main)
        start = min(rows, max(least, min(self._fewest_rows(ALLOWED, main), int(EARLIEST * rows))))
        guards = {round(rows * step / GUARDS) for step in range(1, GUARDS + 1)} - {0}
        return [(start, main), *((count, GUARD_SHARE * self.level / GUARDS) for count in sorted(guards))]

    def _fewest_rows(self, wrong: int, level: float) -> int:
        """Return the fewest rows for which this number of errors still passes the test."""
        counts = range(wrong + 1, MOST_ROWS)
        return wrong + 1 + bisect_left(counts, True, key=lambda rows: bool(bdtr(wrong, rows, self.risk) <= level))
