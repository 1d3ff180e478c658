"""Policies for a grid of targets: their guarantees hold at once, whichever stop is chosen afterwards."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.validate import from_json
from dubio.referral import TARGETS, NoGuarantee, Policy, apply_policy, fit_risk_policies, fit_risk_policy
from tests.referral.helpers import easy, of_doubts
from tests.referral.test_guarantees import limit

RISK_ERROR = 1e-4
"""Uncertainties are rounded: a threshold at the end of a good stretch may lie beyond it by this much of the error."""


@cache
def staircase(first=0.3, length=0.1):
    """Coverages and the errors up to them: R is on every target of the grid over a stretch of coverages.

    Between two stretches every row is wrong, until the error of all rows so far has risen to the next target.
    """
    edges, errors, end, before = [], [], 0.0, None
    for target in TARGETS:
        if before is not None:
            end *= (1 - before) / (1 - target)
            edges, errors = [*edges, end], [*errors, 1.0]
        end += first if before is None else length
        edges, errors, before = [*edges, end], [*errors, target], target
    return np.array([*edges, 1.0]), np.array([*errors, 1.0])


def true_risk(coverage):
    edges, errors = staircase()
    stretches = np.clip(np.minimum(coverage, edges) - np.append(0.0, edges[:-1]), 0.0, None)
    return float((stretches * errors).sum() / coverage)


def drawn_systems(rng, rows, systems):
    edges, errors = staircase()
    places = rng.random((systems, rows))
    wrong = rng.random((systems, rows)) < errors[np.searchsorted(edges, places)]
    return {f"s{k}": of_doubts(places[k] / 2, wrong[k]) for k in range(systems)}


def violations(stops):
    """Which stops have a policy whose true error is on or above its target."""
    return np.array([
        policy is not None and true_risk(min(1.0, 2 * policy.threshold)) >= target - RISK_ERROR
        for target, policy in stops
    ])  # fmt: skip


def most_favourable(stops, systems):
    """The stop whose policy retains most, compared with the mean of all systems at its target."""
    retained = np.array([0.0 if policy is None else policy.evidence["coverage"] for _, policy in stops])
    by_system = retained.reshape(systems, len(TARGETS))
    return int(np.argmax((by_system - by_system.mean(axis=0)).ravel()))


def alone(systems):
    """The same stops, each with the full level."""
    stops = []
    for rows in systems.values():
        for target in TARGETS:
            try:
                stops.append((target, fit_risk_policy(rows, max_risk=target)))
            except NoGuarantee:
                stops.append((target, None))
    return stops


def violation_rates(fit, *, runs, rows, systems):
    """The share of calibration sets with any violation, and with one at the stop that looks most favourable."""
    rng, joint, picked = np.random.default_rng(1), 0, 0
    for _ in range(runs):
        stops = fit(drawn_systems(rng, rows, systems))
        violated = violations(stops)
        joint += violated.any()
        picked += violated[most_favourable(stops, systems)]
    return joint / runs, picked / runs


def shared(systems):
    return [(stop.target, stop.policy) for stop in fit_risk_policies(systems).stops]


def test_the_error_of_the_staircase_is_on_every_target():
    edges, _ = staircase()
    for target, end in zip(TARGETS, edges[::2], strict=False):
        assert true_risk(end) == pytest.approx(target)
        assert true_risk(end - 0.05) == pytest.approx(target)
    assert true_risk(1.0) > 0.3


def test_all_guarantees_hold_at_once_also_for_the_stop_that_looks_best():
    joint, picked = violation_rates(shared, runs=120, rows=1200, systems=2)
    assert picked <= joint <= limit(0.95, 120)


def test_without_sharing_the_stop_that_looks_best_violates_its_guarantee_too_often():
    joint, picked = violation_rates(alone, runs=80, rows=1200, systems=3)
    assert joint >= picked > limit(0.95, 80)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "systems"), [(4000, 2), (4000, 1), (1200, 2), (1200, 5), (600, 3)])
def test_scan_of_grids(rows, systems):
    joint, picked = violation_rates(shared, runs=1000, rows=rows, systems=systems)
    print(f"grid, {rows} rows, {systems} systems: {joint:.4f} any, {picked:.4f} of the picked, of 0.05 (1000 runs)")
    assert picked <= joint <= limit(0.95, 1000)


@pytest.mark.slow
def test_scan_of_grids_without_sharing():
    joint, picked = violation_rates(alone, runs=500, rows=4000, systems=2)
    print(f"no sharing, 4000 rows, 2 systems: {joint:.4f} any, {picked:.4f} of the picked (500 runs)")
    assert joint > 3 * 0.05
    assert picked > limit(0.95, 500)


def two_systems(rows=1500, **fields):
    rng = np.random.default_rng(3)
    doubts = rng.random(rows) / 2
    return {
        "good": replace(of_doubts(doubts, rng.random(rows) < doubts / 4), **fields),
        "poor": replace(of_doubts(doubts, rng.random(rows) < doubts), **fields),
    }


def test_every_policy_is_that_of_its_target_at_its_share_of_the_level():
    systems = two_systems()
    grid = fit_risk_policies(systems, targets=[0.3, 0.1], confidence=0.9)
    assert grid.targets == (0.1, 0.3)
    assert [(stop.system, stop.target) for stop in grid.stops] == [
        ("good", 0.1), ("good", 0.3), ("poor", 0.1), ("poor", 0.3)
    ]  # fmt: skip
    for stop in grid.stops:
        policy = fit_risk_policy(systems[stop.system], max_risk=stop.target, confidence=1 - 0.1 / 4)
        assert stop.policy.threshold == policy.threshold
        assert stop.policy.evidence == policy.evidence
        assert stop.policy.confidence == pytest.approx(0.975)
    named = fit_risk_policies({"good": systems["good"]}, targets=[0.1, 0.3], confidence=0.9)
    assert [policy.confidence for policy in named.policies] == pytest.approx([0.95, 0.95])


def test_a_policy_states_how_the_level_is_shared_and_so_do_its_decisions():
    systems = two_systems()
    policy = fit_risk_policies(systems).policies[0]
    family = policy.family
    assert (family.system, family.targets, family.systems, family.confidence) == ("good", TARGETS, 2, 0.95)
    assert "error among the retained is below 0.05" in policy.guarantee
    assert "0.995 confidence" in policy.guarantee
    assert "(5 targets × 2 systems) hold at once with 0.95 confidence" in policy.guarantee
    assert Policy.from_json(policy.to_json()) == policy
    assert apply_policy(policy, easy()).notes == (family.sentence,)
    assert apply_policy(fit_risk_policy(easy(), max_risk=0.3), easy()).notes == ()


def test_a_target_that_cannot_be_met_is_a_stop_without_a_policy():
    grid = fit_risk_policies(two_systems(), targets=(0.001, 0.3))
    unmet, met = grid.systems["good"]
    assert not unmet.guaranteed
    assert unmet.policy is None
    assert "max_risk 0.001" in unmet.refusal
    assert unmet.coverage == 0
    assert unmet.rule == "every row is referred"
    assert met.guaranteed
    assert len(grid.policies) == 2
    assert str(grid).splitlines()[0].startswith("good: error below 0.001 not guaranteed, 0.0% retained")
    with pytest.raises(NoGuarantee, match=r"none of 2 targets × 2 systems can be guaranteed.*max_risk 0.002"):
        fit_risk_policies(two_systems(), targets=(0.001, 0.002))
    bounds = []
    for rows in two_systems().values():
        with pytest.raises(NoGuarantee) as refusal:
            fit_risk_policy(rows, max_risk=0.002, confidence=1 - 0.05 / 4)
        bounds.append(refusal.value.upper)
    with pytest.raises(NoGuarantee) as refusal:
        fit_risk_policies(two_systems(), targets=(0.001, 0.002))
    assert refusal.value.upper == min(bounds) < max(bounds)


def test_groups_are_the_units_as_for_one_policy():
    systems = two_systems(group=(np.arange(1500) // 2).astype(str))
    grid = fit_risk_policies(systems, targets=(0.2, 0.3), seed=4)
    expected = fit_risk_policy(systems["good"], max_risk=0.2, confidence=1 - 0.05 / 4, seed=4)
    assert grid.policies[0].grouped
    assert grid.policies[0].threshold == expected.threshold
    assert "mean over groups" in grid.policies[0].guarantee
    thresholds = [fit_risk_policies(systems, targets=(0.2,), **seed).policies[-1].threshold
                  for seed in ({}, {"seed": 0}, {"seed": 1})]  # fmt: skip
    assert thresholds[0] == thresholds[1] != thresholds[2]


def test_a_split_that_was_selected_on_has_no_guarantee():
    systems = two_systems(kind="val")
    with pytest.raises(UserError, match="val"):
        fit_risk_policies(systems)
    grid = fit_risk_policies(systems, allow_selected=True)
    assert not any(stop.guaranteed for stop in grid.stops)
    assert grid.policies
    assert grid.sentence.startswith("No guarantee")
    assert "hold at once" not in grid.policies[0].guarantee
    assert apply_policy(grid.policies[0], easy()).notes == ()


def test_files_have_safe_names_that_all_differ_whatever_the_systems_are_called():
    rows = two_systems()["good"]
    names = ["a/b", "A b", "..", "con", "x" * 300, "x" * 301, "</script>", "ü", "ö", "a-b-2"]
    grid = fit_risk_policies(dict.fromkeys(names, rows), targets=(0.05, 0.2))
    files = grid.files()
    assert len({name.casefold() for name in files}) == len(grid.policies) == 20
    for name, (system, target) in zip(files, grid.file_names(), strict=True):
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
        assert name.startswith(f"risk-{target}-")
        assert len(name) < 120
        assert from_json(Policy, files[name], name).family.system == system
    alike = fit_risk_policies(dict.fromkeys(["a/b", "a b", "A:b"], rows), targets=(0.2,))
    stems = [name.removesuffix(".json").casefold() for name in alike.file_names().values()]
    assert stems == [stems[0], f"{stems[0]}-2", f"{stems[0]}-3"]


def test_downloads_make_the_very_same_files_and_store_the_uncertainties_once():
    grid = fit_risk_policies(two_systems())
    downloads, files = grid.downloads(), grid.files()
    assembled = {
        name: before + own["uncertainties"] + after
        for own in json.loads(json.dumps(downloads)).values()
        for name, (before, after) in own["files"].items()
    }
    assert assembled == files
    for own in downloads.values():
        assert sum(map(len, own["files"])) < 2000
        assert all(len(before) + len(after) < 2500 for before, after in own["files"].values())


def test_the_document_has_every_stop():
    document = json.loads(json.dumps(fit_risk_policies(two_systems(), targets=(0.001, 0.05, 0.6)).as_dict()))
    assert document["each_confidence"] == pytest.approx(1 - 0.05 / 6)
    unmet, met, every = document["systems"][0]["stops"]
    assert (unmet["file"], unmet["threshold"], unmet["guaranteed"]) == (None, None, False)
    assert met["file"] == "risk-0.05-good.json"
    assert met["probability"]["text"] in met["rule"]
    assert met["probability"]["value"] == pytest.approx(1 - met["threshold"], abs=1e-3)
    assert every["threshold"] is None
    assert every["coverage"] == 1
    assert every["rule"].startswith("every row is retained")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ((0.1, 0.0), "between 0 and 1; given 0.0"),
        ((0.1, 1), "between 0 and 1; given 1"),
        ((0.1, float("nan")), "given nan"),
        ((0.1, "0.2"), "between 0 and 1; given 0.2"),
        ((0.1, 0.2, 0.1), "different; given 0.1 more than once"),
        ((), "at least one bound"),
    ],
)
def test_targets_that_are_not_bounds_are_refused(targets, message):
    with pytest.raises(UserError, match=message):
        fit_risk_policies({"a": easy()}, targets=targets)


def test_systems_that_cannot_be_fitted_together_are_refused():
    with pytest.raises(UserError, match="400 rows and the other 300"):
        fit_risk_policies({"a": easy(400), "b": easy(300)})
    with pytest.raises(UserError, match="map a name to predictions; given Predictions"):
        fit_risk_policies(easy())
    with pytest.raises(UserError, match="no system"):
        fit_risk_policies({})
    with pytest.raises(UserError, match="Unicode text"):
        fit_risk_policies({"a\udcff": easy()})
    with pytest.raises(UserError, match=r"confidence .* given 1.5"):
        fit_risk_policies({"a": easy()}, confidence=1.5)


def test_a_policy_file_with_another_share_of_the_level_is_refused():
    document = fit_risk_policies(two_systems()).policies[0].as_dict()
    for changed in (
        {"confidence": 0.95},
        {"goals": {"max_risk": 0.03}},
        {"family": document["family"] | {"targets": [0.02, 0.01]}},
        {"family": document["family"] | {"systems": 0}},
        {"family": document["family"] | {"confidence": 1.0}},
    ):
        with pytest.raises(BadFile):
            Policy.from_json(json.dumps(document | changed))
    assert Policy.from_json(json.dumps(document)).family.systems == 2


def test_the_refusal_that_is_nearest_to_a_guarantee_is_told():
    doubts = np.linspace(0.01, 0.4, 30)
    systems = {"right": of_doubts(doubts, np.zeros(30)), "wrong": of_doubts(doubts, np.ones(30))}
    with pytest.raises(NoGuarantee) as refusal:
        fit_risk_policies(systems, targets=(0.01, 0.02))
    level = 0.05 / 4  # two targets, two systems; of 30 rows without an error (1 − r)³⁰ ≤ α
    assert 1 - level ** (1 / 30) <= refusal.value.upper < 0.2
