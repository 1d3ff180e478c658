"""Paired tests against statsmodels and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar
from statsmodels.stats.multitest import multipletests

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.naming import metric_named
from dubio.statistics.paired import aligned, bootstrap_p, holm, mcnemar, paired_tests


def made(seed, labels, strength=1.0, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1, len(labels), 3))
    logits[0, np.arange(len(labels)), labels] += strength
    return Predictions(logits.astype(np.float32), labels, **more)


LABELS = np.random.default_rng(0).integers(0, 3, 400)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_equals_statsmodels(p):
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], atol=1e-12)


def test_holm_refuses_what_is_no_probability():
    with pytest.raises(UserError, match="between 0 and 1"):
        holm([0.1, 1.2])


def test_mcnemar_equals_statsmodels():
    one, two = made(1, LABELS, 1.5), made(2, LABELS, 1.0)
    found = mcnemar(one, two)
    right = [p.probs.argmax(axis=1) == LABELS for p in (one, two)]
    table = [[int((a & b).sum()) for b in (right[1], ~right[1])] for a in (right[0], ~right[0])]
    assert (found.only_first, found.only_second) == (table[0][1], table[1][0])
    assert found.p == pytest.approx(reference_mcnemar(table, exact=True).pvalue, abs=1e-12)
    assert mcnemar(one, one).p == 1.0


def test_mcnemar_refuses_groups():
    group = np.array([f"g{i % 9}" for i in range(400)])
    with pytest.raises(UserError, match="groups"):
        mcnemar(made(1, LABELS, group=group), made(2, LABELS, group=group))


def test_paired_bootstrap_agrees_with_the_paired_normal_test():
    systems = {"good": made(1, LABELS, 1.6), "bad": made(2, LABELS, 1.0)}
    found = paired_tests(systems, metric_named("brier"))[0]
    losses = [metric_named("brier").per_example(each) for each in systems.values()]
    gaps = losses[0] - losses[1]
    error = gaps.std() / np.sqrt(len(gaps))
    assert found.difference == pytest.approx(gaps.mean())
    assert (found.low, found.high) == pytest.approx((gaps.mean() - 1.96 * error, gaps.mean() + 1.96 * error), abs=0.01)
    assert found.resolves == pytest.approx(1.96 * error, rel=0.07)
    assert found.p < 0.01


def test_false_alarms_stay_at_their_rate():
    rng = np.random.default_rng(7)
    alarms = sum(
        bootstrap_p(np.array([rng.choice(gaps, 80).mean() for _ in range(199)])) <= 0.1
        for gaps in rng.normal(size=(200, 80))
    )
    assert stats.binomtest(alarms, 200, 0.11).pvalue > 0.001


def test_all_pairs_are_corrected_together():
    systems = {name: made(seed, LABELS, 1.0) for seed, name in enumerate("abc")}
    tests = paired_tests(systems, metric_named("aurc"), replicates=200)
    assert [(test.first, test.second) for test in tests] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert tuple(test.adjusted_p for test in tests) == holm([test.p for test in tests])


def test_a_system_against_itself_is_not_distinguishable():
    one = made(1, LABELS)
    found = paired_tests({"a": one, "b": one}, metric_named("nll"), replicates=50)[0]
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_systems_are_aligned_by_id():
    ids = np.array([f"e{i}" for i in range(400)])
    one, two = made(1, LABELS, ids=ids), made(2, LABELS, ids=ids)
    order = np.random.default_rng(3).permutation(400)
    found = aligned({"a": one, "b": two.take(order)})["b"]
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.logits, two.logits)


def test_other_examples_are_refused_by_name():
    ids = np.array([f"e{i}" for i in range(400)])
    one = made(1, LABELS, ids=ids)
    with pytest.raises(UserError, match="'b' has 399 examples"):
        aligned({"a": one, "b": one.take(np.arange(399))})
    with pytest.raises(UserError, match="no example with id 'e0'"):
        aligned({"a": one, "b": made(1, LABELS, ids=np.array(["x0", *ids[1:]]))})
    with pytest.raises(UserError, match="'e1' occurs more than once"):
        aligned({"a": one, "b": made(1, LABELS, ids=np.array(["e1", *ids[1:]]))})
    changed = LABELS.copy()
    changed[5] = (changed[5] + 1) % 3
    with pytest.raises(UserError, match="row 5"):
        aligned({"a": made(1, LABELS), "b": made(1, changed)})
    with pytest.raises(UserError, match="two systems"):
        paired_tests({"a": one}, metric_named("nll"))
