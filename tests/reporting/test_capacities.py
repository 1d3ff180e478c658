"""Policies that promise how much is referred: by hand, by brute force, on the page; and what a promise would take."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from dubio.core.predictions import Predictions
from dubio.referral.policy import Policy
from dubio.referral.sample_size import SampleSize, units_needed
from dubio.referral.units import independent_uncertainties, rounded_uncertainty
from dubio.reporting.capacities import CAPACITY, Referred, capacity_of, referred_by
from dubio.reporting.capacity_tables import capacity_grid, capacity_words
from dubio.reporting.page import render
from dubio.reporting.promise_cells import promise_cells
from dubio.reporting.promise_limits import needed_words, unpromised_words
from dubio.reporting.promises import Observed
from dubio.reporting.readings import readings_of
from dubio.reporting.results import Results
from dubio.reporting.scores import report_of, score_run
from dubio.statistics.bootstrap import units_of
from tests.reporting.screening_world import screening_world
from tests.reporting.world import FakeStore, make_world

ENTROPY = "predictive_entropy"
World = tuple[FakeStore, dict[str, Any]]


@pytest.fixture(scope="module")
def eyes() -> World:
    return screening_world()


@pytest.fixture(scope="module")
def found(eyes: World) -> Results:
    return score_run(*eyes)


@pytest.fixture(scope="module")
def starved() -> Results:
    """Too few calibration examples for any promise on the error."""
    store, manifest = make_world((0,), kept_aside=12)
    return score_run(store, manifest)


def policy_at(threshold: float, policy: Policy) -> Policy:
    return replace(policy, threshold=threshold)


def two_sided(doubts: list[float], wrong: list[bool], group: list[str] | None = None) -> Predictions:
    chance = np.array(doubts)
    logits = np.log(np.stack([1 - chance, chance], axis=1))[None].astype(np.float32)
    names = None if group is None else np.array(group)
    return Predictions(logits, np.array(wrong, dtype=np.int64), group=names, classes=("healthy", "ill"))


def test_the_threshold_is_the_order_statistic_of_one_example_a_patient(eyes: World, found: Results) -> None:
    for made in found.capacities["eyes"].values():
        calibration = eyes[0].predictions[made.run.id, "cal"]
        values = independent_uncertainties(calibration, ENTROPY, seed=0)
        assert len(values) == 120  # two eyes a patient
        place = ceil(121 * (1 - CAPACITY))
        assert made.policy.threshold == values[place - 1]
        assert made.upper == pytest.approx(beta.ppf(0.9, 121 - place, place))
        assert [seen.seen.split for seen in made.places] == ["test", "poor", "severe"]


def test_patients_count_alike_in_the_share_referred(found: Results) -> None:
    policy = next(iter(found.capacities["eyes"].values())).policy
    # Patient a: 1 of 3 referred; b: its only one referred; c: none of two. Mean 4/9, of examples 2/6.
    doubts = [0.01, 0.02, 0.45, 0.45, 0.01, 0.02]
    some = two_sided(doubts, [True, False, False, True, False, False], ["a", "a", "a", "b", "c", "c"])
    between = float(rounded_uncertainty(two_sided([0.2], [False]), ENTROPY)[0])
    seen = referred_by(policy_at(between, policy), "test", some)
    assert seen.share == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert seen.seen.retained == pytest.approx(4 / 6)
    assert seen.seen.error == pytest.approx(1 / 4)
    assert seen.interval is not None
    assert seen.interval == pytest.approx((0.0, 1.0))  # the same patient three times: 1 of 27 each, above 2.5 %
    alone = referred_by(policy_at(between, policy), "test", replace(some, group=np.repeat("a", 6)))
    assert alone.interval is None
    rows = referred_by(policy_at(between, policy), "test", replace(some, group=None))
    exact = binomtest(2, 6).proportion_ci(0.95)
    assert rows.share == pytest.approx(2 / 6)
    assert rows.interval == pytest.approx((exact.low, exact.high))


def test_the_interval_of_the_share_resamples_patients_whole(eyes: World, found: Results) -> None:
    made = found.capacities["eyes"]["deterministic"]
    run = eyes[0].predictions[made.run.id, "poor"]
    gone = rounded_uncertainty(run, ENTROPY) > made.policy.threshold
    names = np.unique(run.group)
    of_patient = {name: gone[run.group == name].mean() for name in names}
    share = float(np.mean(list(of_patient.values())))
    draws = []
    for weights in units_of(run).weights(1000, 0):
        for rows in weights.replicates():
            draws.append(np.mean([of_patient[run.group[row]] for row in rows]))  # all have two eyes
    seen = next(seen for seen in made.away if seen.seen.split == "poor")
    assert seen.share == pytest.approx(share)
    assert seen.interval == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=1e-9)


def test_a_capacity_is_broken_only_above_what_the_policy_states_for_itself(found: Results) -> None:
    made = found.capacities["eyes"]["deterministic"]
    assert CAPACITY < made.upper < 0.4
    observed = Observed("poor", 0.6, 0.1, (0.05, 0.2), 0.5)
    cases: list[tuple[float, tuple[float, float] | None, str]] = [
        (0.3, (0.2, 0.4), "held"),
        (0.35, (0.31, 0.42), "above, undecided"),
        (0.5, (made.upper + 0.01, 0.6), "broken"),
        (0.5, (made.upper - 0.01, 0.6), "above, undecided"),
        (0.5, None, "above"),
    ]
    for share, interval, outcome in cases:
        assert made.outcome(Referred(share, interval, observed)) == outcome


def test_the_table_and_the_sentence_of_a_split_say_what_became_of_it(found: Results) -> None:
    task = found.manifest.tasks[0]
    made = found.capacities["eyes"]["deterministic"]
    away = (Referred(0.62, (0.55, 0.7), Observed("poor", 0.4, 0.11, (0.06, 0.19), 1e-5)),)
    shown = replace(found, capacities={"eyes": {"deterministic": replace(made, away=away)}})
    table = capacity_grid(shown, task, "poor")
    assert table.caption == "Away from home, “poor”"
    assert [cell.plain for cell in table.rows[0].cells] == [
        "62.0% [55%, 70%]", "broken", "warns p < 0.001", "0.110 [0.060, 0.190]",
    ]  # fmt: skip
    assert capacity_words(shown, task, "poor") == (
        "On “poor” 62% are referred; of one policy 1 broke. The shift test warns for 1 of 1."
    )


def test_the_page_and_the_document_follow_both_policies(found: Results) -> None:
    page = render(report_of(found))
    assert "A promise on how much is referred" in page
    assert "Away from home, “severe”" in page
    written = report_of(found).document()["capacities"]
    assert {(each["task"], each["method"]) for each in written} == {("eyes", "deterministic"), ("eyes", "mc-dropout")}
    assert [place["split"] for place in written[0]["places"]] == ["test", "poor", "severe"]


def test_a_capacity_is_followed_where_no_error_can_be_promised(starved: Results) -> None:
    task = next(task for task in starved.manifest.tasks if task.key == "reviews")
    assert all(promise.policy is None for promise in starved.promises["reviews"].values())
    assert set(starved.capacities["reviews"]) == set(starved.promises["reviews"])
    words = needed_words(starved, task)
    assert words.startswith("No method can make this promise on the 12 examples of “cal”: it needs more")
    assert "now there are 12 examples" in words


def test_splits_without_labels_are_left_to_the_other_table(starved: Results) -> None:
    made = starved.capacities["digits"]["deterministic"]
    assert [seen.seen.split for seen in made.places] == ["test", "blur-5", "noise-5"]


def test_what_a_promise_would_take_is_asked_of_the_test_set(starved: Results) -> None:
    store, _ = make_world((0,), kept_aside=12)
    for promise in starved.promises["reviews"].values():
        test = store.predictions[promise.run.id, "test"]
        needed = units_needed(test, max_risk=promise.target, confidence=0.9, quantity=ENTROPY)
        assert promise.needed == needed
        assert (promise.rows, promise.units) == (12, 12)
        if needed is not None:
            assert promise_cells(promise)[".needed"].plain == f"{needed.units:,} examples"


def test_the_sentence_names_the_least_and_the_most_and_those_past_help(found: Results) -> None:
    task = found.manifest.tasks[0]
    some = replace(next(iter(found.promises["eyes"].values())), policy=None, home=None, best=(0.4, 0.5), target=0.11)
    first = replace(some, needed=SampleSize(100, 0.4, 0.02), rows=83, units=40)
    second = replace(first, needed=SampleSize(144, 0.3, 0.02))
    both = replace(found, promises={"eyes": {"deterministic": first, "mc-dropout": second}})
    assert needed_words(both, task) == (
        "No method can make this promise on the 83 examples of “cal” (40 groups, such as patients): it needs more "
        "calibration data. If more of it behaves like the test set, it takes at least about 210 examples (100 groups) "
        "for Deterministic, and about 300 examples (144 groups) for MC dropout; now there are 83 examples "
        "(40 groups). Twice what it takes is on the safer side."
    )
    worse = replace(found, promises={"eyes": {"deterministic": first, "mc-dropout": replace(first, needed=None)}})
    assert "More of it alone would not do for MC dropout" in needed_words(worse, task)
    assert promise_cells(replace(first, needed=None))[".needed"].text == "more alone would not do"
    tiny = replace(found, promises={"eyes": {"deterministic": replace(first, rows=20, units=10)}})
    assert "never errs would need 50 examples (25 groups)." in needed_words(tiny, task)
    assert needed_words(replace(found, promises={"eyes": {}}), task) == ""


def test_without_a_calibration_split_the_part_says_so(results: Results) -> None:
    task = results.manifest.tasks[1]
    assert results.capacities[task.key] == {}
    assert "no calibration split" in unpromised_words(results, task)
    page = render(report_of(replace(results, manifest=replace(results.manifest, tasks=(task,)))))
    assert "this task has no calibration split" in page
    assert "how much is referred" not in page


def test_too_few_examples_for_a_capacity_are_said_too(eyes: World, found: Results) -> None:
    store, _ = eyes
    task = found.manifest.tasks[0]
    run = found.capacities["eyes"]["deterministic"].run
    reading = next(readings_of(store, task, {"deterministic": run}, ()))
    assert capacity_of(replace(reading, calibration=reading.calibration.take([0, 1])), "test") is None
    bare = replace(found, promises={"eyes": {}}, capacities={"eyes": {}})
    assert "No policy can be fitted" in unpromised_words(bare, task)
    perfect = replace(found, promises={"eyes": {}})
    assert unpromised_words(perfect, task).startswith("No error is promised")
    assert "A promise on how much is referred" in render(report_of(perfect))
