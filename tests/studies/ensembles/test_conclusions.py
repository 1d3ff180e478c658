"""Every conclusion is supported, contradicted or undecided, by the spread over runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.reporting.claims import Evidence
from dubio.studies.ensembles.conclusions import (
    LITTLE,
    NO_GAIN,
    accuracy_and_likelihood,
    against_networks,
    augmentation_helps,
    gains_of,
    margin,
    powerful_unmoved,
    reordering,
    saturation,
)
from dubio.studies.ensembles.study import SampleCurve, Study
from tests.studies.ensembles.helpers import curve, equivalent_to, growing, scattered, study

Test = Callable[[Study], Iterable[Evidence]]


def outcomes(test: Test, example: Study) -> list[str]:
    return [each.outcome for each in test(example)]


def flat(value: float, *wobbles: float) -> list[list[float]]:
    """The same value with every number of samples, a run a wobble."""
    return [[value + by] * 5 for by in wobbles]


def augmented_pair(name: str, value: float, falls: list[float], **kind: object) -> tuple[SampleCurve, SampleCurve]:
    """A method without and with augmentation, which lowers its calibrated NLL by these amounts, run by run."""
    wobbles = np.linspace(-0.3, 0.3, len(falls))  # runs differ far more than augmentation changes them
    plain = flat(value, *wobbles)
    after = [[one - fall for one in row] for row, fall in zip(plain, falls, strict=True)]
    return curve(name, plain, **kind), curve(f"{name}-views", after, base=name, **kind)  # type: ignore[arg-type]


NETWORK = augmented_pair("deterministic", 1.9, [0.1, 0.11, 0.09, 0.1], role="network")


@pytest.mark.parametrize(
    ("falls", "outcome"),
    [
        ([0.001, -0.001, 0.0], "supports"),
        ([0.05, 0.051, 0.049], "contradicts"),
        ([-0.05, -0.051, -0.049], "contradicts"),  # a harm is no small effect
        ([-0.001, -0.002, 0.0], "supports"),
        ([-0.02, -0.03, -0.03], "undecided"),
        ([0.02, 0.03, 0.03], "undecided"),
        ([-0.2, 0.2, 0.02], "undecided"),
    ],
)
def test_what_powerful_ensembles_gain_is_judged_by_its_spread_over_runs(falls: list[float], outcome: str) -> None:
    assert outcomes(powerful_unmoved, study(*NETWORK, *augmented_pair("swag", 1.5, falls))) == [outcome]


def test_one_run_decides_nothing_whatever_its_value() -> None:
    (example,) = powerful_unmoved(study(*NETWORK, *augmented_pair("swag", 1.5, [0.0])))
    assert example.outcome == "undecided"
    assert "no spread over runs" in example.text


def test_without_a_sure_gain_of_one_network_there_is_nothing_to_take_a_share_of() -> None:
    unsure = augmented_pair("deterministic", 1.9, [0.1, -0.1, 0.02], role="network")
    (example,) = powerful_unmoved(study(*unsure, *augmented_pair("swag", 1.5, [0.0, 0.001, 0.0])))
    assert example.outcome == "undecided"
    assert "no share" in example.text
    harmed = augmented_pair("deterministic", 1.9, [-0.1, -0.11, -0.09], role="network")
    assert outcomes(powerful_unmoved, study(*harmed, *augmented_pair("swag", 1.5, [0.0, 0.001, 0.0]))) == ["undecided"]


@pytest.mark.parametrize(
    ("fall", "wobble", "outcome"),
    [(0.0, 0.001, "supports"), (0.06, 0.001, "contradicts"), (0.0, 0.05, "undecided")],
)
def test_a_deep_ensemble_is_judged_by_its_orders(fall: float, wobble: float, outcome: str) -> None:
    falls = [fall + wobble * (-1) ** order for order in range(10)]
    sizes = (1, 2, 3, 5, 10)
    pool = augmented_pair("deep-ensemble", 1.5, falls, role="deep_ensemble", members=10, sizes=sizes)
    sampled = augmented_pair("swag", 1.5, [0.0, 0.001, -0.001])
    example = study(*NETWORK, *pool, *(replace(each, sizes=(1, 2, 3, 5, 6)) for each in sampled))
    assert example.compared_samples == 5  # half the pool
    outcomes_by_method = {
        each.text.split("NLL of ")[1].split(" by")[0]: each.outcome for each in powerful_unmoved(example)
    }
    assert outcomes_by_method["deep-ensemble"] == outcome


def test_gains_are_paired_by_seed_and_member_and_share_their_variance() -> None:
    one, other = augmented_pair("swag", 1.5, [0.01, 0.03]), augmented_pair("fge", 1.5, [0.05, 0.02, 0.05])
    shuffled = replace(one[1], values=one[1].values[::-1], runs=one[1].runs[::-1])
    example = study(one[0], shuffled, *other)
    gains = gains_of(example, [one[0], other[0]])
    assert gains["swag"].mean == pytest.approx(0.02)
    spreads = np.array([np.var([0.01, 0.03], ddof=1), np.var([0.05, 0.02, 0.05], ddof=1)])
    freedom = (spreads @ [1, 2]) ** 2 / (spreads**2 @ [1, 2])
    assert gains["swag"].variance == pytest.approx((4 * (spreads @ [1, 2]) / 3 / 2, freedom))
    assert gains["fge"].variance == pytest.approx((2.5 * (spreads @ [1, 2]) / 3 / 3, freedom))
    difference = margin(gains["swag"], NO_GAIN, 4)
    error = math.sqrt(gains["swag"].variance[0])  # type: ignore[index]
    assert difference.smallest == pytest.approx(stats.t.ppf(1 - 0.05 / 8, freedom) * error)
    network = augmented_pair("deterministic", 1.9, [0.1, 0.12], role="network")
    lone = gains_of(study(*network), network[:1])["deterministic"]
    assert lone.scaled(LITTLE).variance == pytest.approx((LITTLE**2 * np.var([0.1, 0.12], ddof=1) / 2, 1))


def test_the_variance_of_a_deep_ensembles_mean_is_bounded_as_that_of_a_mean_of_members() -> None:
    """Of a score that is the mean over members, Var = σ²/L, and orders of k show σ²/k·(1 − k/L)."""
    generator = np.random.default_rng(0)
    networks, size, orders = 20, 5, 4000
    members = generator.normal(0, 1, networks)
    falls = [members[generator.permutation(networks)[:size]].mean() for _ in range(orders)]
    bound = np.var(falls, ddof=1) * size / (networks - size)
    assert bound == pytest.approx(members.var(ddof=1) / networks, rel=0.1)


@pytest.mark.parametrize(("fall", "wobble", "outcome"), [(0.05, 0.002, "supports"), (-0.05, 0.002, "contradicts"),
                                                         (0.01, 0.05, "undecided")])  # fmt: skip
def test_whether_augmentation_helps_is_judged_on_the_same_fits(fall: float, wobble: float, outcome: str) -> None:
    falls = [fall - wobble, fall, fall + wobble]
    example = study(*NETWORK, *augmented_pair("laplace", 1.8, falls), *augmented_pair("swa", 1.8, falls))
    assert outcomes(augmentation_helps, example) == ["supports", outcome, outcome]


@pytest.mark.parametrize(
    ("name", "runs", "outcome"),
    [
        ("swag", [(4.0, 4.1), (4.1, 4.15), (3.9, 4.0)], "supports"),
        ("swag", [(4.0, 8.0), (4.1, 8.2), (3.9, 7.9)], "contradicts"),
        ("swag", [(4.0, 4.1), (4.1, 6.5), (3.9, 4.0)], "undecided"),
        ("swag", [(4.0, 4.1)], "undecided"),
        ("csgld", [(4.0, 8.0), (4.1, 8.2), (3.9, 7.9)], "supports"),
        ("csgld", [(4.0, 4.1), (4.1, 4.15), (3.9, 4.0)], "contradicts"),
        ("csgld", [(15.0, 25.0), (15.1, 26.0), (15.2, 25.0)], "supports"),
        ("swag", [(19.9, 25.0), (19.8, 26.0), (19.9, 25.0)], "undecided"),
        ("swag", [(22.0, 25.0), (22.0, 26.0), (22.0, 25.0)], "undecided"),
        ("swag", [(0.5, 0.6), (0.4, 0.6), (0.5, 0.6)], "undecided"),
    ],
)
def test_saturation_is_judged_by_the_slopes_of_the_runs(
    name: str, runs: list[tuple[float, float]], outcome: str
) -> None:
    assert outcomes(saturation, study(growing(*runs, name=name))) == [outcome]


@pytest.mark.parametrize(("networks", "wobble", "outcome"), [(4.0, 0.1, "supports"), (16.0, 0.1, "contradicts"),
                                                             (8.0, 4.0, "undecided")])  # fmt: skip
def test_against_networks_the_spread_over_runs_counts_too(networks: float, wobble: float, outcome: str) -> None:
    runs = [equivalent_to(*[networks + by] * 5) for by in (-wobble, 0.0, wobble)]
    assert outcomes(against_networks, study(curve("swag", runs), spread=0.01)) == [outcome]
    assert outcomes(against_networks, study(curve("swag", runs[:1]), spread=0.01)) == ["undecided"]


def tempered(name: str, before: float, after: float, wobble: float) -> SampleCurve:
    wobbles = (-wobble, 0.0, wobble)
    return curve(name, flat(after, *wobbles), nll=flat(before, *wobbles))


@pytest.mark.parametrize(
    ("pair", "wobble", "outcome"),
    [
        (((1.0, 2.0), (2.0, 1.0)), 0.01, "supports"),
        (((1.0, 1.0), (2.0, 2.0)), 0.01, "contradicts"),
        (((1.0, 2.0), (2.0, 1.0)), 5.0, "undecided"),
        (((1.0, 1.0), (2.0, 2.0)), 5.0, "undecided"),
        (((1.0, 1.0), (2.0, 1.001)), 0.01, "undecided"),
    ],
)
def test_the_order_changes_or_stays_only_where_pairs_differ_significantly(
    pair: tuple[tuple[float, float], tuple[float, float]], wobble: float, outcome: str
) -> None:
    lines = [tempered(name, *values, wobble) for name, values in zip(("swag", "fge"), pair, strict=True)]
    assert outcomes(reordering, study(*lines)) == [outcome]


def test_likelihood_and_accuracy_come_out_all_three_ways() -> None:
    assert outcomes(accuracy_and_likelihood, scattered((2.0, 0.01))) == ["supports"]
    assert outcomes(accuracy_and_likelihood, scattered((0.01, 2.0))) == ["contradicts"]
    assert outcomes(accuracy_and_likelihood, scattered((0.2, 0.15))) == ["undecided"]
    (few,) = accuracy_and_likelihood(scattered((2.0, 0.01), families=3))
    assert few.outcome == "undecided"
    assert "too few families" in few.text
    same = curve("swag", flat(1.0, 0.0, 0.0))
    (none,) = accuracy_and_likelihood(study(same))
    assert none.outcome == "undecided"
    assert "not defined" in none.text
