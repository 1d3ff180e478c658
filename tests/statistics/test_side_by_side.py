"""Several systems side by side: who is told apart, how often wrongly, and what is left out."""

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, join
from dubio.metrics.naming import metric_named
from dubio.statistics.paired import mcnemar, paired_tests
from dubio.statistics.side_by_side import side_by_side

LABELS = np.random.default_rng(0).integers(0, 3, 300)


def made(seed, skill, labels=LABELS, **more):
    z = np.random.default_rng(seed).normal(size=(2, len(labels), 3)) + skill * np.eye(3)[labels]
    return Predictions(z.astype(np.float32), labels, **more)


def metrics(*names):
    return [metric_named(name) for name in names]


def test_a_better_system_is_named_and_twins_are_not_told_apart():
    systems = {"good": made(1, 3.0), "bad": made(2, 0.5), "twin": made(3, 3.0)}
    found = side_by_side(systems, metrics("accuracy", "brier", "aurc"), replicates=100)
    for verdicts in found.verdicts.values():
        told = {(each.test.first, each.test.second): each.better for each in verdicts}
        assert told == {("good", "bad"): "good", ("good", "twin"): None, ("bad", "twin"): "twin"}
    assert found.mcnemar["good", "bad"] == mcnemar(systems["good"], systems["bad"])


def test_the_tests_are_the_paired_tests_and_the_verdict_needs_both():
    systems = {"a": made(1, 1.0), "b": made(2, 1.2), "c": made(4, 1.1)}
    found = side_by_side(systems, metrics("brier"), replicates=50).verdicts["brier"]
    assert tuple(each.test for each in found) == paired_tests(systems, metric_named("brier"), replicates=2000)
    for each in found:
        told = each.test.adjusted_p <= 0.05 and abs(each.test.difference) >= each.test.resolves
        assert (each.better is not None) == told


def test_what_may_not_rank_or_does_not_apply_is_left_out():
    found = side_by_side(
        {"a": made(1, 1.0), "b": made(2, 1.0)}, metrics("ece", "nll", "rps", "ood_auroc", "accuracy"), replicates=50
    )
    assert list(found.verdicts) == ["accuracy"]
    certain = np.full((1, 300, 3), -np.inf, np.float32)
    certain[0, :, 0] = 0.0
    infinite = Predictions(certain, LABELS)
    odd = [metric_named("nll").__class__(**{**vars(metric_named("nll")), "comparable": True, "why_not": ""})]
    assert side_by_side({"a": made(1, 1.0), "b": infinite}, odd, replicates=50).verdicts == {}
    with pytest.raises(UserError, match="at least two systems"):
        side_by_side({"a": made(1, 1.0)}, metrics("accuracy"), replicates=50)


def test_strange_rows_serve_detection_only():
    strange = np.full(100, -1)
    systems = {
        name: join([made(seed, 2.0), made(seed + 5, 0.0, strange, ood=np.ones(100, dtype=bool))])
        for name, seed in (("a", 1), ("b", 2))
    }
    found = side_by_side(systems, metrics("accuracy", "ood_auroc"), replicates=50)
    alone = side_by_side({"a": made(1, 2.0), "b": made(2, 2.0)}, metrics("accuracy"), replicates=50)
    assert found.verdicts["accuracy"] == alone.verdicts["accuracy"]
    assert set(found.verdicts) == {"accuracy", "ood_auroc"}


def test_groups_are_resampled_and_not_tested_by_mcnemar():
    group = np.repeat([f"g{i}" for i in range(30)], 10)
    systems = {"a": made(1, 1.0, group=group), "b": made(2, 1.0, group=group)}
    found = side_by_side(systems, metrics("accuracy"), replicates=50)
    assert found.mcnemar == {}
    assert found.verdicts["accuracy"][0].test == paired_tests(systems, metric_named("accuracy"))[0]


def test_equal_systems_are_rarely_told_apart():
    alarms = 0
    for seed in range(60):
        labels = np.random.default_rng(seed).integers(0, 3, 120)
        systems = {name: made(1000 * place + seed, 1.0, labels) for place, name in enumerate("abc")}
        verdicts = side_by_side(systems, metrics("brier"), replicates=50).verdicts["brier"]
        alarms += any(each.better is not None for each in verdicts)
    assert alarms <= 8  # 3 expected of 60 at 5 %; the chance of more than 8 is below 0.5 %


def test_many_systems_can_still_be_told_apart_by_metrics_that_are_no_means():
    labels = np.random.default_rng(0).integers(0, 3, 200)
    systems = {f"s{k}": made(k, 3.0 if k == 0 else 0.5, labels) for k in range(5)}
    verdicts = side_by_side(systems, metrics("aurc"), replicates=50).verdicts["aurc"]
    assert [each.better for each in verdicts if each.test.first == "s0"] == ["s0"] * 4
