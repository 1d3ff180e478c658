"""Policies for rows in groups: violations at most at the stated rate; rows taken as independent exceed it."""

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import fit_risk_policy
from dubio.referral.bounds import binomial_p, binomial_upper, hoeffding_bentkus_p, hoeffding_bentkus_upper
from dubio.referral.group_search import threshold_search
from dubio.referral.units import Claim, Units
from tests.referral.helpers import ALPHA, RISK, at_most, of_doubts, threshold_or_none


def clusters(rng, groups, size):
    """Rows of a group are right or wrong together, with the risk on the boundary at every threshold."""
    wrong = np.repeat(rng.random(groups) < RISK, size)
    return of_doubts(rng.random(groups * size) / 2, wrong, group=np.repeat(np.arange(groups), size))


def test_grouped_risk_policy_breaks_its_bound_at_most_at_the_stated_rate():
    rng, runs, violations, naive = np.random.default_rng(2), 300, 0, 0
    for _ in range(runs):
        drawn = clusters(rng, 80, 5)
        for grouped in (True, False):
            given = drawn if grouped else Predictions(drawn.logits, drawn.labels, kind="cal")
            found = threshold_or_none(lambda given=given: fit_risk_policy(given, max_risk=RISK, confidence=1 - ALPHA))
            violations += grouped and found is not None
            naive += not grouped and found is not None
    print(f"\nrisk, groups: {violations} of {runs} violations, rows taken as independent {naive}")
    assert at_most(violations, runs, ALPHA)
    assert not at_most(naive, runs, ALPHA)


def test_grouped_risk_policy_finds_what_is_there():
    rng = np.random.default_rng(3)
    doubts = rng.random(4000) / 2
    group = np.repeat(np.arange(1000), 4)
    policy = fit_risk_policy(of_doubts(doubts, rng.random(4000) < doubts, group), max_risk=RISK, confidence=0.9)
    assert 0.1 < policy.threshold < 0.2
    assert policy.grouped


def mean_loss(search, claim, threshold, members):
    """A claim's mean loss over units with a retained row, and their number, one unit at a time."""
    units, losses = search.units, []
    for unit in np.flatnonzero(members):
        rows = [k for k in range(len(units.unit))
                if units.unit[k] == unit and units.uncertainty[k] <= threshold and claim.relevant[k]]  # fmt: skip
        if rows:
            losses.append(np.mean([claim.loss[k] for k in rows]))
    return (np.mean(losses) if losses else 0.0), len(losses)


def a_search(rng, groups, size, risks, level=0.3):
    rows = groups * size
    doubts = rng.integers(1, 500, rows) / 1024
    side, loss = rng.random(rows) < 0.6, (rng.random(rows) < doubts) * 1.0
    claims = tuple(Claim(f"claim {k}", side == bool(k), loss, risk) for k, risk in enumerate(risks))
    units = Units(doubts, np.repeat(np.arange(groups), size), groups, size == 1)
    return threshold_search(units, claims, level=level, numbers=rng.random(groups))


@pytest.mark.parametrize(("groups", "size"), [(40, 3), (60, 1), (25, 2)])
def test_a_search_is_that_of_the_procedure(groups, size):
    rng, chosen = np.random.default_rng(groups), []
    for _ in range(12):
        risks = tuple(rng.choice([0.25, 0.45, 0.8], 2))
        search = a_search(rng, groups, size, risks)
        p_value, upper = (binomial_p, binomial_upper) if size == 1 else (hoeffding_bentkus_p, hoeffding_bentkus_upper)
        design = search.design
        assert design.sum() == round(0.2 * groups)
        of_design = search.units.uncertainty[design[search.units.unit]]
        shares = np.arange(1, 100) / 100
        expected = [*np.unique(np.quantile(of_design, shares, method="inverted_cdf")), np.inf]
        assert search.thresholds.tolist() == expected

        def predicted(claim, threshold, search=search, design=design):
            mean, count = mean_loss(search, claim, threshold, design)
            return (mean * count + 0.5) / (count + 1), round(count * (~design).sum() / design.sum())

        evidence = [max(p_value(*predicted(c, t), c.risk) for c in search.claims) for t in expected]
        gaps = [max(upper(*predicted(c, t), 0.15) - c.risk for c in search.claims) for t in expected]
        assert search.nearest_miss() == expected[int(np.argmin(gaps))]
        best = None
        for threshold in expected[int(np.argmin(evidence)) :]:
            if max(p_value(*mean_loss(search, c, threshold, ~design), c.risk) for c in search.claims) > 0.3:
                break
            best = threshold
        assert search.largest() == best
        chosen.append(best)
        some, claim = expected[len(expected) // 2], search.claims[0]
        assert search.upper(claim, some) == pytest.approx(upper(*mean_loss(search, claim, some, ~design), 0.15))
        in_test = ~design[search.units.unit]
        assert search.coverage(some) == pytest.approx((search.units.uncertainty <= some)[in_test].mean())
        facts = search.facts(some)
        assert (facts["design_units"], facts["test_units"]) == (design.sum(), (~design).sum())
        assert facts["p_value"] == search.p_value(some)
    assert None in chosen
    assert any(threshold is not None for threshold in chosen)


def test_two_units_are_the_fewest():
    rng = np.random.default_rng(0)
    assert a_search(rng, 2, 3, (0.3,)).design.sum() == 1
    with pytest.raises(UserError, match="at least two independent rows or groups; given 1"):
        a_search(rng, 1, 3, (0.3,))


def test_thresholds_are_the_hundredths_of_the_design_set_and_ties_stay_together():
    rng = np.random.default_rng(0)
    numbers, doubts = rng.random(2000), rng.permutation(2000) / 4096
    claim = Claim("error", np.ones(2000, dtype=bool), np.zeros(2000), 0.1)
    search = threshold_search(Units(doubts, np.arange(2000), 2000, True), (claim,), level=0.1, numbers=numbers)
    of_design = doubts[np.argsort(numbers)[:400]]
    hundredths = np.quantile(of_design, np.arange(1, 100) / 100, method="inverted_cdf")
    assert search.thresholds.tolist() == [*hundredths, np.inf]
    tied = Units(np.repeat([0.1, 0.2], 1000), np.arange(2000), 2000, True)
    few = threshold_search(tied, (claim,), level=0.1, numbers=numbers)
    assert few.thresholds.tolist() == [0.1, 0.2, np.inf]
    assert few.coverage(0.1) == (np.argsort(numbers)[400:] < 1000).mean()
