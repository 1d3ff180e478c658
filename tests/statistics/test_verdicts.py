from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dubio.reporting.score_table import Cell
from dubio.statistics.verdicts import Losses, against_best, pair_verdict, paired_variance


def cell(*values: float) -> Cell:
    return Cell(tuple(values))


def test_without_examples_it_is_welchs_test() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.normal(0, 1, 5), rng.normal(1.5, 0.4, 4)
        verdicts = against_best({"a": cell(*a), "b": cell(*b)}, "lower")
        pair_verdict = "behind" in {verdict.place for verdict in verdicts.values()}
        assert pair_verdict == (stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05)


def test_with_one_run_each_it_is_the_paired_test_over_examples() -> None:
    rng = np.random.default_rng(1)
    for shift in np.linspace(0, 0.5, 30):
        a = rng.normal(1, 0.3, 60)
        b = a + rng.normal(shift, 0.8, 60)
        losses = {"a": Losses(a), "b": Losses(b)}
        verdicts = against_best({"a": cell(a.mean()), "b": cell(b.mean())}, "lower", losses)
        pair_verdict = "behind" in {verdict.place for verdict in verdicts.values()}
        assert pair_verdict == (stats.ttest_rel(a, b).pvalue < 0.05)


def test_groups_are_the_units_of_the_paired_variance() -> None:
    rng = np.random.default_rng(2)
    by_group = rng.normal(0, 1, 20)
    difference = np.repeat(by_group, 5)  # five equal examples a group tell no more than one
    group = np.repeat(np.arange(20).astype(str), 5)
    variance, freedom = paired_variance(difference, group)  # type: ignore[misc]
    assert freedom == 19
    assert variance == pytest.approx(by_group.var(ddof=1) / 20)


def test_with_one_kin_it_is_students_test_with_the_pooled_variance() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        a, b = rng.normal(0, 1, 3), rng.normal(1.5, 1, 6)
        verdicts = against_best({"a": cell(*a), "b": cell(*b)}, "lower", variance_groups={"a": 1, "b": 1})
        pair_verdict = "behind" in {verdict.place for verdict in verdicts.values()}
        assert pair_verdict == (stats.ttest_ind(a, b, equal_var=True).pvalue < 0.05)


def test_kin_is_an_analysis_of_variance_with_bonferroni() -> None:
    rng = np.random.default_rng(6)
    groups = {name: rng.normal(centre, 0.3, 4) for name, centre in zip("abcd", (0.0, 0.3, 0.6, 1.2), strict=True)}
    within = sum(((values - values.mean()) ** 2).sum() for values in groups.values()) / 12
    needed = stats.t.ppf(1 - 0.05 / 6 / 2, 12) * np.sqrt(within * 2 / 4)
    cells = {name: cell(*values) for name, values in groups.items()}
    verdicts = against_best(cells, "lower", variance_groups=dict.fromkeys(cells, 0))
    for verdict in verdicts.values():
        if verdict.place != "best":
            assert verdict.resolves == pytest.approx(needed)


def test_the_best_is_the_lowest_or_the_highest_mean() -> None:
    cells = {"a": cell(0.2, 0.21), "b": cell(0.9, 0.91), "c": cell(0.5, 0.52)}
    assert against_best(cells, "lower")["a"].place == "best"
    assert against_best(cells, "higher")["b"].place == "best"


def test_a_wide_spread_is_not_distinguishable_a_narrow_one_is() -> None:
    cells = {"best": cell(0.10, 0.101, 0.099), "near": cell(0.05, 0.2, 0.1), "far": cell(0.5, 0.501, 0.499)}
    places = {name: verdict.place for name, verdict in against_best(cells, "lower").items()}
    assert places == {"best": "best", "near": "tied", "far": "behind"}


def test_one_run_and_no_examples_is_not_judged() -> None:
    assert against_best({"a": cell(0.1), "b": cell(0.9)}, "lower")["b"].place == "unjudged"


def test_one_run_with_examples_is_judged_by_them() -> None:
    rng = np.random.default_rng(3)
    good = rng.gamma(1, 0.2, 400)
    bad = good + rng.gamma(1, 0.2, 400)
    losses = {"a": Losses(good), "b": Losses(bad)}
    verdict = against_best({"a": cell(good.mean()), "b": cell(bad.mean())}, "lower", losses)["b"]
    assert verdict.place == "behind"
    assert verdict.difference == pytest.approx(bad.mean() - good.mean())


def test_more_methods_ask_for_a_larger_difference() -> None:
    two = {"a": cell(0.1, 0.12, 0.11), "b": cell(0.15, 0.17, 0.16)}
    many = two | {f"m{i}": cell(0.4, 0.5, 0.6) for i in range(6)}
    assert against_best(many, "lower")["b"].resolves > against_best(two, "lower")["b"].resolves  # type: ignore[operator]


def test_a_part_of_the_methods_is_judged_as_strictly_as_all_of_them() -> None:
    cells = {"a": cell(0.1, 0.12, 0.11), "b": cell(0.15, 0.17, 0.16), "c": cell(0.25, 0.27, 0.3), "d": cell(0.5, 0.6)}
    kin = dict.fromkeys(cells, "alike")
    part = against_best(cells, "lower", variance_groups=kin, among=("b", "c"))
    assert (part["b"].place, set(part)) == ("best", {"b", "c"})
    assert part["c"] == pair_verdict(cells, "lower", ("c", "b"), variance_groups=kin)
    alone = against_best({name: cells[name] for name in "bc"}, "lower", variance_groups=kin)
    assert part["c"].resolves != alone["c"].resolves


def test_false_alarms_stay_below_the_level() -> None:
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(300):
        cells = {str(k): cell(*rng.normal(1, 0.1, 3)) for k in range(5)}
        verdicts = against_best(cells, "lower", variance_groups=dict.fromkeys(cells, "alike"))
        alarms += any(verdict.place == "behind" for verdict in verdicts.values())
    # The best of five is chosen after looking; the correction over all pairs has to make up for it.
    assert alarms / 300 < 0.06


def test_an_infinite_loss_is_behind_and_never_best() -> None:
    cells = {"a": cell(float("inf"), 0.1), "b": cell(0.3, 0.4), "none": Cell((), undefined=2)}
    verdicts = against_best(cells, "lower")
    assert (verdicts["a"].place, verdicts["b"].place) == ("behind", "best")
    assert "none" not in verdicts
