"""Paired tests against statsmodels and simulation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.metrics.metric import metric_named
from dubio.statistics.paired import (
    align,
    in_domain_rows,
    make_the_same,
    mcnemar,
    mcnemar_tests,
    pair_tests,
)
from dubio.statistics.verdicts import Rows, Runs, compare_systems, holm


def made(seed, labels, strength=1.0, **more):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1, len(labels), 3))
    logits[0, np.arange(len(labels)), labels] += strength
    return Predictions(logits.astype(np.float32), labels, **more)


LABELS = np.random.default_rng(0).integers(0, 3, 400)


def pairs_by(systems, name, replicates=200):
    """Return the pairs under one metric, also under one that must not rank."""
    metric = replace(metric_named(name), comparable=True)
    return pair_tests(systems, [metric], replicates=replicates)[name]


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
    with pytest.raises(UserError, match="groups"):
        mcnemar(made(1, LABELS, group=group), made(2, LABELS))
    assert mcnemar_tests({"a": made(1, LABELS), "b": made(2, LABELS, group=group)}) == {}


def test_a_mean_is_compared_as_by_the_paired_normal_test():
    systems = {"good": made(1, LABELS, 1.6), "bad": made(2, LABELS, 1.0)}
    found = pairs_by(systems, "brier")[0]
    losses = [metric_named("brier").per_example(each) for each in systems.values()]
    gaps = losses[0] - losses[1]
    error = gaps.std() / np.sqrt(len(gaps))
    assert found.difference == pytest.approx(gaps.mean())
    assert (found.low, found.high) == pytest.approx((gaps.mean() - 1.96 * error, gaps.mean() + 1.96 * error), abs=0.01)
    assert found.resolves == pytest.approx(1.96 * error, rel=0.07)
    assert found.p < 0.01


def test_false_alarms_stay_at_their_rate():
    rng = np.random.default_rng(7)
    alarms = 0
    for gaps in rng.normal(size=(200, 80)):
        rows = Rows({"a": gaps, "b": np.zeros(80)})
        (test,) = compare_systems({"a": Runs((gaps.mean(),)), "b": Runs((0.0,))}, "lower", rows).tests
        alarms += test.p <= 0.1
    assert stats.binomtest(alarms, 200, 0.1).pvalue > 0.001


def test_p_equals_that_of_scipy():
    systems = {"a": made(1, LABELS, 1.1), "b": made(2, LABELS, 1.0)}
    test = pairs_by(systems, "brier", replicates=20)[0]
    one, two = (metric_named("brier").per_example(each) for each in systems.values())
    assert test.p == pytest.approx(stats.ttest_rel(one, two).pvalue)


def test_all_pairs_are_corrected_together():
    systems = {name: made(seed, LABELS, 1.0) for seed, name in enumerate("abc")}
    tests = pairs_by(systems, "aurc", replicates=200)
    assert [(test.first, test.second) for test in tests] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert tuple(test.adjusted_p for test in tests) == holm([test.p for test in tests])


def test_a_system_does_not_differ_from_itself():
    one = made(1, LABELS)
    found = pairs_by({"a": one, "b": one}, "nll", replicates=50)[0]
    assert (found.difference, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_systems_are_compared_by_id_whatever_the_order_of_rows():
    ids = np.array([f"e{i}" for i in range(400)])
    one, two = made(1, LABELS, ids=ids), made(2, LABELS, ids=ids)
    shuffled = two.take(np.random.default_rng(3).permutation(400))
    expected = pairs_by({"a": one, "b": two}, "nll", replicates=20)
    assert pairs_by({"a": one, "b": shuffled}, "nll", replicates=20) == expected


def test_other_examples_are_refused_by_name():
    ids = np.array([f"e{i}" for i in range(400)])
    one = made(1, LABELS, ids=ids)
    with pytest.raises(UserError, match=r"'b'.*399"):
        pairs_by({"a": one, "b": one.take(np.arange(399))}, "nll")
    with pytest.raises(UserError, match="'e0'"):
        pairs_by({"a": one, "b": made(1, LABELS, ids=np.array(["x0", *ids[1:]]))}, "nll")
    twice = np.array(["e1", *ids[1:]])
    with pytest.raises(UserError, match="'e1' occurs more than once"):
        pairs_by({"a": one, "b": made(1, LABELS, ids=twice)}, "nll")
    with pytest.raises(UserError, match="'e1' occurs more than once"):
        pairs_by({"a": made(1, LABELS, ids=twice), "b": one}, "nll")
    changed = LABELS.copy()
    changed[5] = (changed[5] + 1) % 3
    with pytest.raises(UserError, match=r"row 5 \(from 0\)\. Give ids to align them\.$"):
        pairs_by({"a": made(1, LABELS), "b": made(1, changed)}, "nll")
    for named in ({"ids": ids}, {}):
        with pytest.raises(UserError, match=r"row 5 \(from 0\)\." + ("$" if named else " Give ids")):
            pairs_by({"a": one, "b": made(1, changed, **named)}, "nll")
    with pytest.raises(UserError, match="level"):
        pair_tests({"a": one, "b": one}, [metric_named("nll")], replicates=20, level=95)
    with pytest.raises(UserError, match="two systems"):
        pairs_by({"a": one}, "nll")
    with pytest.raises(UserError, match="no system"):
        align({})


def test_other_targets_and_classes_are_refused_by_name():
    one = made(1, LABELS, classes=("x", "y", "z"))
    with pytest.raises(UserError, match=r"'a' and 'b'.*the target is multiclass in one and ordinal in the other"):
        align({"a": one, "b": made(1, LABELS, target="ordinal")})
    with pytest.raises(UserError, match="the number of classes is 3 in one and 4 in the other"):
        align({"a": one, "b": Predictions(np.zeros((1, 400, 4), dtype=np.float32), LABELS)})
    with pytest.raises(UserError, match="different classes, or in another order"):
        align({"a": one, "b": made(1, LABELS, classes=("y", "x", "z"))})
    assert len(align({"a": one, "b": made(1, LABELS)})) == 2  # one of them names no classes
    named = made(1, LABELS, ids=np.arange(400).astype(str))
    assert len(align({"a": named, "b": one})) == len(align({"a": one, "b": named})) == 2  # or no ids


def test_rows_out_of_distribution_are_left_out_unless_all_are():
    for ood in (np.arange(400) % 3 == 0, np.arange(400) > 0):
        system = made(1, LABELS, ood=ood)
        np.testing.assert_array_equal(in_domain_rows(system).logits, system.logits[:, ~ood])
    for ood in (np.zeros(400, dtype=bool), np.ones(400, dtype=bool)):
        system = made(1, LABELS, ood=ood)
        assert in_domain_rows(system) is system


def test_the_seed_of_replicates_is_zero_unless_another_is_asked_for():
    systems, metric = {"a": made(1, LABELS[:60]), "b": made(2, LABELS[:60])}, metric_named("macro_f1")
    errors = [
        pair_tests(systems, [metric], replicates=50, **seed)["macro_f1"][0].error
        for seed in ({}, {"seed": 0}, {"seed": 1})
    ]
    assert errors[0] == errors[1] != errors[2]


FEWER = np.random.default_rng(0).integers(0, 3, 300)


def skilled(seed, skill, labels=FEWER, **more):
    z = np.random.default_rng(seed).normal(size=(2, len(labels), 3)) + skill * np.eye(3)[labels]
    return Predictions(z.astype(np.float32), labels, **more)


def metrics(*names):
    return [metric_named(name) for name in names]


def test_a_better_system_is_named_and_twins_do_not_differ_significantly():
    systems = {"good": skilled(1, 3.0), "bad": skilled(2, 0.5), "twin": skilled(3, 3.0)}
    for tests in pair_tests(systems, metrics("accuracy", "brier", "aurc"), replicates=100).values():
        better = {(test.first, test.second): test.better for test in tests}
        assert better == {("good", "bad"): "good", ("good", "twin"): None, ("bad", "twin"): "twin"}
    assert mcnemar_tests(systems)["good", "bad"] == mcnemar(systems["good"], systems["bad"])


def test_the_verdict_follows_from_p_and_from_the_smallest_significant_difference():
    systems = {"a": skilled(1, 1.0), "b": skilled(2, 1.2), "c": skilled(4, 1.1), "d": skilled(5, 2.0)}
    for name in ("brier", "aurc"):
        tests = pair_tests(systems, metrics(name), replicates=50)[name]
        assert {test.better for test in tests} > {None}
        for test in tests:
            assert (test.better is not None) == (test.adjusted_p <= 0.05) == (abs(test.difference) > test.resolves)
    assert tests == pairs_by(systems, "aurc", replicates=480)  # four for each of 6 pairs and 1/0.05


def test_what_may_not_rank_or_does_not_apply_is_left_out():
    found = pair_tests(
        {"a": skilled(1, 1.0), "b": skilled(2, 1.0)},
        metrics("ece", "nll", "rps", "ood_auroc", "accuracy"),
        replicates=50,
    )
    assert list(found) == ["accuracy"]
    certain = np.full((1, 300, 3), -np.inf, np.float32)
    certain[0, :, 0] = 0.0
    infinite = Predictions(certain, FEWER)
    odd = [metric_named("nll").__class__(**{**vars(metric_named("nll")), "comparable": True, "why_not": ""})]
    assert pair_tests({"a": skilled(1, 1.0), "b": infinite}, odd, replicates=50) == {}
    with pytest.raises(UserError, match="at least two systems"):
        pair_tests({"a": skilled(1, 1.0)}, metrics("accuracy"), replicates=50)


def test_ood_rows_serve_detection_only():
    ood_labels = np.full(100, -1)
    systems = {
        name: join([skilled(seed, 2.0), skilled(seed + 5, 0.0, ood_labels, ood=np.ones(100, dtype=bool))])
        for name, seed in (("a", 1), ("b", 2))
    }
    found = pair_tests(systems, metrics("accuracy", "ood_auroc"), replicates=50)
    alone = pair_tests({"a": skilled(1, 2.0), "b": skilled(2, 2.0)}, metrics("accuracy"), replicates=50)
    assert found["accuracy"] == alone["accuracy"]
    assert set(found) == {"accuracy", "ood_auroc"}


def test_groups_are_resampled_and_not_tested_by_mcnemar():
    group = np.repeat([f"g{i}" for i in range(30)], 10)
    systems = {"a": skilled(1, 1.0, group=group), "b": skilled(2, 1.0, group=group)}
    assert mcnemar_tests(systems) == {}
    (test,) = pair_tests(systems, metrics("accuracy"), replicates=50)["accuracy"]
    one, two = (metric_named("accuracy").per_example(system) for system in systems.values())
    gaps = (one - two).reshape(30, 10).mean(axis=1)  # the groups are of one size: a paired test of their means
    assert test.p == pytest.approx(stats.ttest_rel(gaps, np.zeros(30)).pvalue)


def test_nothing_is_significant_on_a_single_group():
    group = np.full(300, "one patient")
    systems = {"a": skilled(1, 3.0, group=group), "b": skilled(2, 0.5, group=group)}
    for (test,) in pair_tests(systems, metrics("brier", "aurc"), replicates=50).values():
        assert (test.p, test.resolves, test.better) == (1.0, np.inf, None)


def test_equal_systems_rarely_differ_significantly():
    alarms = 0
    for seed in range(60):
        labels = np.random.default_rng(seed).integers(0, 3, 120)
        systems = {name: skilled(1000 * place + seed, 1.0, labels) for place, name in enumerate("abc")}
        verdicts = pair_tests(systems, metrics("brier"), replicates=50)["brier"]
        alarms += any(each.better is not None for each in verdicts)
    assert alarms <= 8  # 3 expected of 60 at 5 %; the chance of more than 8 is below 0.5 %


def test_many_systems_can_differ_significantly_by_metrics_that_are_not_means():
    labels = np.random.default_rng(0).integers(0, 3, 200)
    systems = {f"s{k}": skilled(k, 3.0 if k == 0 else 0.5, labels) for k in range(5)}
    verdicts = pair_tests(systems, metrics("aurc"), replicates=50)["aurc"]
    assert [each.better for each in verdicts if each.first == "s0"] == ["s0"] * 4


def null_pair(seed, rows, ood_rows, classes=3):
    """Two systems alike in distribution, half of whose noise is shared, on the same rows."""
    rng = np.random.default_rng(seed)
    labels = np.r_[rng.integers(0, classes, rows), np.full(ood_rows, -1)]
    lift = 1.6 * (labels[:, None] == np.arange(classes))
    shared = rng.normal(size=(rows + ood_rows, classes))
    logits = [1.5 * (lift + 0.7 * shared + 0.7 * rng.normal(size=shared.shape)) for _ in range(2)]
    return {
        name: Predictions(z[None].astype(np.float32), labels, ood=labels < 0)
        for name, z in zip("ab", logits, strict=True)
    }


@pytest.mark.parametrize(("rows", "ood_rows"), [(200, 6), (12, 200)])
def test_detection_with_few_rows_on_one_side_keeps_its_level(rows, ood_rows):
    """With the degrees of freedom of all rows 10 to 13 % of these pairs were called different."""
    metric = [metric_named("ood_auroc")]
    draws = 400
    p = [pair_tests(null_pair(s, rows, ood_rows), metric, replicates=2)["ood_auroc"][0].p for s in range(draws)]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [50, 200, 500])
def test_pairs_of_systems_alike_keep_the_level_under_metrics_without_values_per_example(rows):
    """The defaults: 200 replicates, level 95 %."""
    names, draws = ("aurc", "augrc", "class_auroc", "macro_f1", "ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95"), 400
    metrics = [metric_named(name) for name in names]
    different = dict.fromkeys(names, 0)
    for seed in range(draws):
        for name, (test,) in pair_tests(null_pair(seed, rows, rows // 5), metrics, replicates=200).items():
            different[name] += test.p <= 0.05
    limit = draws * 0.05 + 3 * np.sqrt(draws * 0.05 * 0.95)
    assert {name: count for name, count in different.items() if count > limit} == {}


def rare_pair(seed, rows, rare, strength=0.0):
    """Two systems alike in distribution on two classes, of which the second has a few rows alone."""
    rng, labels = np.random.default_rng(seed), np.r_[np.ones(rare, dtype=int), np.zeros(rows - rare, dtype=int)]
    odds = rng.normal(size=(2, rows)) + strength * labels
    return {
        name: Predictions(np.stack([np.zeros(rows), own], axis=1)[None].astype(np.float32), labels)
        for name, own in zip("ab", odds, strict=True)
    }


def test_an_area_between_classes_keeps_its_level_where_one_is_rare():
    """With the degrees of freedom of all rows 22 % of these pairs were called different; of two positives 35 %."""
    metric, draws = [metric_named("class_auroc")], 250
    p = [pair_tests(rare_pair(s, 200, 3), metric, replicates=2)["class_auroc"][0].p for s in range(draws)]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)


def test_areas_of_the_retained_are_not_judged_where_a_class_is_rare():
    """Of three positives those that both systems retain were few, and 27 % of pairs alike were called different."""
    metric = metric_named("referral_auc(retained=0.5)")
    few, enough = (pair_tests(rare_pair(1, 300, n, 1.0), [metric], replicates=50)[metric.name][0] for n in (10, 20))
    assert (few.p, few.resolves) == (1.0, np.inf)
    assert np.isfinite(enough.resolves)


@pytest.mark.parametrize("rows", [2, 5])
def test_a_few_examples_that_all_differ_alike_decide_nothing(rows):
    """Their spread is none, so that p was 0: of two examples, 12.5 % of pairs alike by chance in accuracy."""
    labels = np.zeros(rows, dtype=int)
    systems = {name: Predictions(np.full((1, rows, 2), [k, 1 - k], np.float32), labels) for k, name in enumerate("ba")}
    for name in ("accuracy", "macro_f1"):
        (test,) = pair_tests(systems, metrics(name), replicates=50)[name]
        assert (test.p, test.resolves, test.better) == (1.0, np.inf, None)
    six = {name: own.take(np.arange(6) % rows) for name, own in systems.items()}
    assert pair_tests(six, metrics("accuracy"), replicates=50)["accuracy"][0].better == "a"


def test_no_p_value_is_counted_from_replicates():
    """A p far below 1/replicates shows that replicates give a variance alone, so that there is no floor to state."""
    right = null_pair(0, 400, 0)["a"]
    wrong = replace(right, logits=np.roll(right.logits, 1, axis=2))
    metrics = [metric_named("aurc"), metric_named("macro_f1")]
    tests = pair_tests({"right": right, "wrong": wrong}, metrics, replicates=20)
    assert all(test.p < 1e-6 for (test,) in tests.values())


def test_a_false_positive_rate_of_few_ood_rows_is_not_judged():
    few, enough = (pair_tests(null_pair(1, 100, n), [metric_named("ood_fpr95")], replicates=50) for n in (39, 40))
    assert (few["ood_fpr95"][0].p, few["ood_fpr95"][0].resolves) == (1.0, np.inf)
    assert np.isfinite(enough["ood_fpr95"][0].resolves)


@pytest.mark.parametrize("name", ["brier", "accuracy", "aurc", "calibrated_brier"])
def test_copies_of_systems_change_no_verdict(name):
    """Three copies made the p of two systems four times as large: pairs of copies were counted as hypotheses."""
    ids = np.array([f"e{i}" for i in range(400)])
    own = {name: made(seed, LABELS, 1.0 + 0.2 * seed, ids=ids) for seed, name in enumerate("abc")}
    copies = {"copy": own["a"].take(np.random.default_rng(1).permutation(400)), "twin": own["a"], "b too": own["b"]}
    alone = {(test.first, test.second): test for test in pairs_by(own, name)}
    beside = {(test.first, test.second): test for test in pairs_by(own | copies, name)}
    assert len(beside) == 15
    assert {pair: beside[pair] for pair in alone} == alone
    assert replace(beside["c", "copy"], second="a") == replace(
        alone["a", "c"], first="c", second="a", difference=-alone["a", "c"].difference, low=-alone["a", "c"].high,
        high=-alone["a", "c"].low,
    )  # fmt: skip
    for pair in (("a", "copy"), ("copy", "twin"), ("b", "b too")):
        assert (beside[pair].difference, beside[pair].p, beside[pair].adjusted_p) == (0.0, 1.0, 1.0)
        assert beside[pair].better is None
    alike = {"a": own["a"], "b": own["b"], "other": made(9, LABELS)}
    assert holm([test.p for test in pairs_by(alike, name)]) == tuple(t.adjusted_p for t in pairs_by(alike, name))


def test_systems_make_the_same_predictions_where_all_that_a_metric_may_use_is_equal():
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(2, 400, 3)).astype(np.float32)
    one = Predictions(logits, LABELS, scores={"own": rng.random(400)}, member=np.array([0, 1]))
    assert make_the_same(one, replace(one, ids=np.array([f"e{i}" for i in range(400)]), notes=("another file",)))
    moved = logits.copy()
    moved[1, 399, 2] = np.nextafter(moved[1, 399, 2], np.float32(9))
    others = [
        replace(one, logits=moved),
        replace(one, logits=logits[:1], member=np.array([0])),
        replace(one, temperature=2.0),
        replace(one, member=np.array([0, 0])),
        replace(one, scores={}),
        replace(one, scores={"own": 1 - one.scores["own"]}),
        replace(one, data_variance=np.ones_like(logits)),
        replace(one, model_variance=np.ones((2, 400), dtype=np.float32)),
    ]
    assert not any(make_the_same(one, other) or make_the_same(other, one) for other in others)


def test_systems_of_equal_values_that_predict_otherwise_are_two():
    """Right equally often, on other rows: both are hypotheses about a third."""
    right = np.arange(400) < 300
    one, two = (np.eye(3)[np.where(hit, LABELS, (LABELS + 1) % 3)] * 3.0 for hit in (right, right[::-1]))
    systems = {"a": one, "b": two, "c": np.eye(3)[np.where(np.arange(400) % 4 < 2, LABELS, (LABELS + 1) % 3)] * 3.0}
    systems = {name: Predictions(own[None].astype(np.float32), LABELS) for name, own in systems.items()}
    tests = pairs_by(systems, "accuracy")
    assert tests[0].difference == 0.0
    assert tuple(test.adjusted_p for test in tests) == holm([test.p for test in tests])
