"""The search for the largest coverage whose claims hold among the kept, for groups and for several claims at once.

**Procedure** (learn then test, Angelopoulos et al. 2021, with a fixed sequence). The units are parted at random into a
*design* part (one fifth) and a *test* part. The design part alone gives a list of thresholds t_1 < … < t_m, its own
quantiles of uncertainty and last ∞ (keep everything), and the place s at which to start, where it predicts the
strongest evidence. On the test part the claims are tested at t_s, t_{s+1}, … outwards, each at the full level
α = 1 − confidence, up to the first that is not shown. The last threshold shown is chosen.

**Why it is valid.** Write R(t) for the true risk of the kept, the mean loss of a unit given that it has a row with
uncertainty ≤ t that the claim speaks of.

1. Given the design part, t_1, …, t_m and s are fixed, and the units of the test part are independent draws.
2. At a fixed t, given how many of them have such a row, those units' mean losses are independent with mean R(t). So
   the p-value is valid: P(p_t ≤ α) ≤ α if R(t) ≥ risk. It is exact (binomial) where units are single rows. Where a unit
   is a group, its rows are not independent and a binomial bound on rows would be wrong; each group gives one loss in
   [0, 1], and Hoeffding–Bentkus holds for those. With several claims p_t is the largest of their p-values: if any
   claim is false at t, its own p-value has to be small, so P(p_t ≤ α) ≤ α without correction (intersection–union).
3. Let t_f be the first of t_s, t_{s+1}, … at which some claim is false; given the design part it is one fixed number. A
   threshold with a false claim is chosen only if the walk gets past t_f, and so only if p_{t_f} ≤ α: probability ≤ α.

No correction for the number of thresholds is needed, nothing is assumed of how risk depends on uncertainty, and rows of
equal uncertainty are kept or referred together since thresholds are numbers fixed beforehand. (For one claim on single
rows :mod:`dubio.referral.walk` needs no design part. It does not extend to groups, whose loss changes with t.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dubio.core.errors import UserError
from dubio.core.types import BoolArray, FloatArray
from dubio.referral.bounds import Bound
from dubio.referral.units import Claim, Standing, Units

DESIGN_SHARE = 0.2
STEPS = 100
"""Thresholds at every hundredth of the design part's coverage."""


@dataclass(frozen=True, eq=False)
class Search:
    """A calibration set made ready to be searched.

    Attributes:
        units: Every unit.
        claims: What must hold.
        bound: The bound that fits the units.
        level: α, the allowed chance of a choice that does not keep its claims.
        design: ``[units]`` those that give thresholds and the start.
        thresholds: ``[m]`` ascending, the last one infinite.
    """

    units: Units
    claims: tuple[Claim, ...]
    bound: Bound
    level: float
    design: BoolArray
    thresholds: FloatArray

    def largest(self) -> float | None:
        """The largest threshold whose claims are shown, or None where the first one tested is not."""
        start = int(np.argmin([self._predicted_p(threshold) for threshold in self.thresholds]))
        shown = None
        for threshold in self.thresholds[start:]:
            if self.p_value(threshold) > self.level:
                break
            shown = float(threshold)
        return shown

    def nearest_miss(self) -> float:
        """The threshold at which the design part expects bounds to come nearest to what is claimed, or lowest."""
        return float(self.thresholds[int(np.argmin([self._predicted_gap(each) for each in self.thresholds]))])

    def p_value(self, threshold: float) -> float:
        """Evidence of the test part against "some claim is false at this threshold"."""
        stands = [(self.standing(claim, threshold), claim.risk) for claim in self.claims]
        return max(self.bound.p_value(stand.mean, stand.count, risk) for stand, risk in stands)

    def standing(self, claim: Claim, threshold: float) -> Standing:
        """A claim on the test part."""
        return self.units.standing(claim, threshold, ~self.design)

    def upper(self, claim: Claim, threshold: float) -> float:
        """Upper bound on a claim's risk at a threshold, jointly valid over the claims (Bonferroni)."""
        stand = self.standing(claim, threshold)
        return self.bound.upper(stand.mean, stand.count, self.level / len(self.claims))

    def coverage(self, threshold: float) -> float:
        """Share of the test part's rows that are kept."""
        return self.units.coverage(threshold, ~self.design)

    def facts(self, threshold: float) -> dict[str, float]:
        """The sizes of the two parts, and the evidence at a threshold."""
        design = int(self.design.sum())
        return {
            "design_units": float(design),
            "test_units": float(self.units.count - design),
            "p_value": self.p_value(threshold),
        }

    def _expected(self, claim: Claim, threshold: float) -> Standing:
        """What the design part leads to expect of the test part; its mean loss is drawn towards one half."""
        stand = self.units.standing(claim, threshold, self.design)
        scale = (self.units.count - self.design.sum()) / self.design.sum()
        return Standing(round(stand.count * scale), (stand.mean * stand.count + 0.5) / (stand.count + 1.0))

    def _predicted_p(self, threshold: float) -> float:
        stands = [(self._expected(claim, threshold), claim.risk) for claim in self.claims]
        return max(self.bound.p_value(stand.mean, stand.count, risk) for stand, risk in stands)

    def _predicted_gap(self, threshold: float) -> float:
        stands = [(self._expected(claim, threshold), claim.risk) for claim in self.claims]
        level = self.level / len(self.claims)
        return max(self.bound.upper(stand.mean, stand.count, level) - risk for stand, risk in stands)


def prepare(units: Units, claims: tuple[Claim, ...], *, level: float, seed: int) -> Search:
    """Part the units and let the design part choose thresholds.

    Args:
        units: Every unit.
        claims: What must hold among the kept.
        level: α.
        seed: Of the parting.

    Raises:
        UserError: When there are fewer than two units.
    """
    if units.count < 2:
        raise UserError(f"a guarantee needs at least two independent rows or groups; given {units.count}.")
    shuffled = np.random.default_rng(seed).permutation(units.count)
    design = np.zeros(units.count, dtype=bool)
    design[shuffled[: max(1, round(DESIGN_SHARE * units.count))]] = True
    seen = units.uncertainty[design[units.unit]]
    inner = np.quantile(seen, np.arange(1, STEPS) / STEPS, method="inverted_cdf")
    bound = Bound("binomial" if units.single else "hoeffding-bentkus")
    return Search(units, claims, bound, level, design, np.append(np.unique(inner), inf))
