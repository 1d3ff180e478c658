"""Fixed-sequence testing: the bound that a refusal offers holds at the stated rate."""

import numpy as np

from dubio.referral.fixed_sequence import FixedSequences
from dubio.referral.units import rounded_uncertainty
from tests.referral.helpers import ALPHA, RISK, at_most, draw, flat


def test_what_a_refusal_offers_holds_at_the_stated_rate():
    rng, runs, violations = np.random.default_rng(6), 500, 0
    for _ in range(runs):
        rows = draw(rng, 200, flat)
        doubts, wrong = rounded_uncertainty(rows, "confidence"), (rows.probs.argmax(axis=1) != rows.labels) * 1.0
        upper, _ = FixedSequences.over(doubts, wrong, risk=0.01, level=ALPHA).best_bound()
        violations += upper <= RISK
    print(f"\nbest bound: {violations} of {runs} violations")
    assert at_most(violations, runs, ALPHA)
    assert violations > 0.01 * runs
