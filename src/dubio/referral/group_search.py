"""Find the largest coverage whose claims hold among the retained, for groups and for several claims at once.

**Procedure** (learn then test, Angelopoulos et al. 2021, with a fixed sequence). The units are split at random into a
*design* set (one fifth) and a *test* set, by hash (:mod:`dubio.core.draws`). The design set alone gives a list of
thresholds t_1 < … < t_m, its own quantiles of uncertainty and last ∞ (retain everything), and the index s at which to
start, where it predicts the strongest evidence. On the test set the claims are tested at t_s, t_{s+1}, …, each at the
full level α = 1 − confidence, up to the first that is not rejected. The last threshold that passed is chosen.

**Why it is valid.** Write R(t) for the true risk of the retained, the mean loss of a unit given that it has a row with
uncertainty ≤ t to which the claim applies.

1. Given all units, every split into a fifth and the rest is equally probable, for any one seed. So, given the design
   set, t_1, …, t_m and s are fixed, and the units of the test set are independent draws.
2. At a fixed t, given how many of them have such a row, those units' mean losses are independent with mean R(t). So
   the p-value is valid: P(p_t ≤ α) ≤ α if R(t) ≥ risk. It is exact (binomial) where units are single rows. Where a unit
   is a group, its rows are not independent and a binomial bound on rows would be wrong; each group gives one loss in
   [0, 1], and Hoeffding–Bentkus holds for those. With several claims p_t is the largest of their p-values: if any
   claim is false at t, its own p-value has to be small, so P(p_t ≤ α) ≤ α without correction (intersection–union).
3. Let t_f be the first of t_s, t_{s+1}, … at which some claim is false; given the design set it is one fixed number. A
   threshold with a false claim is chosen only if the sequence gets past t_f, so only if p_{t_f} ≤ α: probability ≤ α.

No correction for the number of thresholds is needed, nothing is assumed of how risk depends on uncertainty, and rows of
equal uncertainty are retained or referred together since thresholds are numbers fixed beforehand. (For one claim on
single rows :mod:`dubio.referral.fixed_sequence` needs no design set. It does not extend to groups, whose loss changes
with t.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from dubio.core.draws import Numbers
from dubio.core.errors import UserError
from dubio.core.types import BoolArray, FloatArray
from dubio.referral.bounds import BINOMIAL, HOEFFDING_BENTKUS, Bound
from dubio.referral.units import Claim, ClaimEstimate, Units

DESIGN_SHARE = 0.2
STEPS = 100
"""Thresholds at every hundredth of the design part's coverage."""


@dataclass(frozen=True, eq=False)
class ThresholdSearch:
    """A calibration set split into design and test units, with the thresholds to test.

    Attributes:
        units: Every unit.
        claims: The claims that must hold among the retained.
        bound: The bound that fits the units.
        level: α, the allowed probability of a choice that violates a claim.
        design: ``[units]`` True for the design set.
        thresholds: ``[m]`` ascending, the last one infinite.
    """

    units: Units
    claims: tuple[Claim, ...]
    bound: Bound
    level: float
    design: BoolArray
    thresholds: FloatArray

    def largest(self) -> float | None:
        """Return the largest threshold whose claims pass, or None where the first one tested fails."""
        start = int(np.argmin([self._largest_p(self._expected, threshold) for threshold in self.thresholds]))
        accepted = None
        for threshold in self.thresholds[start:]:
            if self.p_value(threshold) > self.level:
                break
            accepted = float(threshold)
        return accepted

    def nearest_miss(self) -> float:
        """Return the threshold at which, by the design set, the bounds come closest to the claims."""
        gaps = [
            max(self._upper(self._expected(claim, threshold)) - claim.risk for claim in self.claims)
            for threshold in self.thresholds
        ]
        return float(self.thresholds[int(np.argmin(gaps))])

    def p_value(self, threshold: float) -> float:
        """Return the p-value of "some claim is false at this threshold" on the test set."""
        return self._largest_p(self.estimate, threshold)

    def estimate(self, claim: Claim, threshold: float) -> ClaimEstimate:
        """Estimate a claim's loss on the test set."""
        return self.units.estimate(claim, threshold, ~self.design)

    def upper(self, claim: Claim, threshold: float) -> float:
        """Return an upper bound on a claim's risk at a threshold, jointly valid over the claims (Bonferroni)."""
        return self._upper(self.estimate(claim, threshold))

    def coverage(self, threshold: float) -> float:
        """Return the share of the test set's rows that are retained."""
        return float((self.units.uncertainty[~self.design[self.units.unit]] <= threshold).mean())

    def facts(self, threshold: float) -> dict[str, float]:
        """Return the sizes of the two sets, and the p-value at a threshold."""
        design = int(self.design.sum())
        sizes = {"design_units": float(design), "test_units": float(self.units.count - design)}
        return sizes | {"p_value": self.p_value(threshold)}

    def _expected(self, claim: Claim, threshold: float) -> ClaimEstimate:
        """Predict the test set's estimate from the design set; its mean loss is shrunk towards one half."""
        estimate = self.units.estimate(claim, threshold, self.design)
        scale = (self.units.count - self.design.sum()) / self.design.sum()
        mean = (estimate.mean * estimate.units + 0.5) / (estimate.units + 1.0)
        return ClaimEstimate(mean, round(estimate.units * scale))

    def _largest_p(self, estimate: Callable[[Claim, float], ClaimEstimate], threshold: float) -> float:
        return max(self.bound.p_value(*estimate(claim, threshold), claim.risk) for claim in self.claims)

    def _upper(self, estimate: ClaimEstimate) -> float:
        return self.bound.upper(*estimate, self.level / len(self.claims))


def threshold_search(units: Units, claims: tuple[Claim, ...], *, level: float, numbers: Numbers) -> ThresholdSearch:
    """Split the units and choose thresholds on the design set.

    Args:
        units: Every unit.
        claims: The claims that must hold among the retained.
        level: α.
        numbers: ``[units]`` random; the smallest make the design set.

    Raises:
        UserError: When there are fewer than two units.
    """
    if units.count < 2:
        raise UserError(f"a guarantee needs at least two independent rows or groups; given {units.count}.")
    design = np.zeros(units.count, dtype=bool)
    design[np.argsort(numbers)[: max(1, round(DESIGN_SHARE * units.count))]] = True
    uncertainties = units.uncertainty[design[units.unit]]
    inner = np.quantile(uncertainties, np.arange(1, STEPS) / STEPS, method="inverted_cdf")
    bound = BINOMIAL if units.single else HOEFFDING_BENTKUS
    return ThresholdSearch(units, claims, bound, level, design, np.append(np.unique(inner), inf))
