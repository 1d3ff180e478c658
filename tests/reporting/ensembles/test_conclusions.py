"""Every conclusion comes out for, against and undecided, as the spread over runs has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.studies.ensembles.closeness import closeness_of, families_of
from dubio.studies.ensembles.conclusions import (
    LITTLE,
    accuracy_and_likelihood,
    against_networks,
    augmentation_helps,
    powerful_unmoved,
    reordering,
    saturation,
)
from dubio.studies.ensembles.gains import NOTHING, gains_of, margin
from dubio.studies.ensembles.saturating import slope_of
from dubio.studies.ensembles.scatters import beside_of
from dubio.studies.ensembles.study import Line, Study
from dubio.studies.text.claims import Evidence
from tests.reporting.ensembles.lines import line, study, worth

Told = Callable[[Study], Iterable[Evidence]]


def outcomes(told: Told, found: Study) -> list[str]:
    return [each.outcome for each in told(found)]


def flat(value: float, *wobbles: float) -> list[list[float]]:
    """The same value with every number of samples, a run a wobble."""
    return [[value + by] * 5 for by in wobbles]


def twins(name: str, value: float, falls: list[float], **kind: object) -> tuple[Line, Line]:
    """A method and its twin whose calibrated NLL is lower by so much in each run."""
    wobbles = np.linspace(-0.3, 0.3, len(falls))  # runs differ far more than augmentation changes them
    plain = flat(value, *wobbles)
    after = [[one - fall for one in row] for row, fall in zip(plain, falls, strict=True)]
    return line(name, plain, **kind), line(f"{name}-views", after, base=name, **kind)  # type: ignore[arg-type]


NETWORK = twins("deterministic", 1.9, [0.1, 0.11, 0.09, 0.1], role="network")


@pytest.mark.parametrize(
    ("falls", "outcome"),
    [
        ([0.001, -0.001, 0.0], "supports"),
        ([0.05, 0.051, 0.049], "contradicts"),
        ([0.02, 0.03, 0.03], "undecided"),
        ([-0.2, 0.2, 0.02], "undecided"),
    ],
)
def test_what_powerful_ensembles_gain_is_judged_by_its_spread_over_runs(falls: list[float], outcome: str) -> None:
    assert outcomes(powerful_unmoved, study(*NETWORK, *twins("swag", 1.5, falls))) == [outcome]


def test_one_run_decides_nothing_whatever_its_value() -> None:
    (found,) = powerful_unmoved(study(*NETWORK, *twins("swag", 1.5, [0.0])))
    assert found.outcome == "undecided"
    assert "no spread over runs" in found.text


def test_without_a_sure_gain_of_one_network_there_is_nothing_to_take_a_share_of() -> None:
    unsure = twins("deterministic", 1.9, [0.1, -0.1, 0.02], role="network")
    (found,) = powerful_unmoved(study(*unsure, *twins("swag", 1.5, [0.0, 0.001, 0.0])))
    assert found.outcome == "undecided"
    assert "nothing to take a share of" in found.text
    harmed = twins("deterministic", 1.9, [-0.1, -0.11, -0.09], role="network")
    assert outcomes(powerful_unmoved, study(*harmed, *twins("swag", 1.5, [0.0, 0.001, 0.0]))) == ["undecided"]


@pytest.mark.parametrize(
    ("fall", "wobble", "outcome"),
    [(0.0, 0.001, "supports"), (0.06, 0.001, "contradicts"), (0.0, 0.05, "undecided")],
)
def test_a_pool_is_judged_by_its_orders(fall: float, wobble: float, outcome: str) -> None:
    falls = [fall + wobble * (-1) ** order for order in range(10)]
    sizes = (1, 2, 3, 5, 10)
    pool = twins("deep-ensemble", 1.5, falls, role="pool", members=10, sizes=sizes)
    drawn = twins("swag", 1.5, [0.0, 0.001, -0.001])
    found = study(*NETWORK, *pool, *(replace(each, sizes=(1, 2, 3, 5, 6)) for each in drawn))
    assert found.equal == 5  # half the pool
    told = {each.text.split("NLL of ")[1].split(" by")[0]: each.outcome for each in powerful_unmoved(found)}
    assert told["deep-ensemble"] == outcome


def test_gains_are_paired_by_seed_and_member_and_share_their_variance() -> None:
    one, other = twins("swag", 1.5, [0.01, 0.03]), twins("fge", 1.5, [0.05, 0.02, 0.05])
    shuffled = replace(one[1], values=one[1].values[::-1], runs=one[1].runs[::-1])
    found = study(one[0], shuffled, *other)
    gains = gains_of(found, [one[0], other[0]])
    assert gains["swag"].mean == pytest.approx(0.02)
    pooled = (np.var([0.01, 0.03], ddof=1) + 2 * np.var([0.05, 0.02, 0.05], ddof=1)) / 3
    assert gains["swag"].part == pytest.approx((pooled / 2, 3))
    assert gains["fge"].part == pytest.approx((pooled / 3, 3))
    apart = margin(gains["swag"], NOTHING, 4)
    assert apart.resolves == pytest.approx(stats.t.ppf(1 - 0.05 / 8, 3) * math.sqrt(pooled / 2))
    network = twins("deterministic", 1.9, [0.1, 0.12], role="network")
    lone = gains_of(study(*network), network[:1])["deterministic"]
    assert lone.scaled(LITTLE).part == pytest.approx((LITTLE**2 * np.var([0.1, 0.12], ddof=1) / 2, 1))


def test_the_variance_of_a_pools_mean_is_bounded_as_that_of_a_mean_of_members() -> None:
    """Of a score that is the mean over members, Var = σ²/L, and orders of k show σ²/k·(1 − k/L)."""
    generator = np.random.default_rng(0)
    networks, size, orders = 20, 5, 4000
    members = generator.normal(0, 1, networks)
    falls = [members[generator.permutation(networks)[:size]].mean() for _ in range(orders)]
    bound = np.var(falls, ddof=1) * size / (networks - size)
    assert bound == pytest.approx(members.var(ddof=1) / networks, rel=0.1)


@pytest.mark.parametrize(("fall", "wobble", "outcome"), [(0.05, 0.002, "supports"), (-0.05, 0.002, "contradicts"),
                                                         (0.01, 0.05, "undecided")])  # fmt: skip
def test_whether_augmentation_helps_is_told_from_the_same_fits(fall: float, wobble: float, outcome: str) -> None:
    falls = [fall - wobble, fall, fall + wobble]
    found = study(*NETWORK, *twins("laplace", 1.8, falls), *twins("swa", 1.8, falls))
    assert outcomes(augmentation_helps, found) == ["supports", outcome, outcome]


def drawn(*runs: tuple[float, float], name: str = "swag") -> Line:
    """Runs that are worth so many networks with 5 and with 10 samples."""
    return line(name, [worth(1.5, 1.6, 1.8, *run) for run in runs])


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
def test_saturation_is_told_by_the_slopes_of_the_runs(name: str, runs: list[tuple[float, float]], outcome: str) -> None:
    assert outcomes(saturation, study(drawn(*runs, name=name))) == [outcome]


def test_slopes_are_networks_a_sample_and_the_bounds_of_the_curve_must_agree() -> None:
    runs = [(4.0, 4.6), (4.2, 4.7), (3.9, 4.5)]
    slope = slope_of(study(drawn(*runs)), drawn(*runs))
    assert slope is not None
    assert slope.values is not None
    assert slope.values[1] == pytest.approx([(last - before) / 5 for before, last in runs])
    sloping = study(drawn((4.0, 4.3), (4.01, 4.31), (4.02, 4.32)))
    assert outcomes(saturation, sloping) == ["supports"]  # 0.06 networks a sample
    growth = sloping.growth
    rising = {**growth.std, "nll": np.where(np.arange(1, 21) < 5, 0.0, 0.04)}  # a kink just where the method is
    assert outcomes(saturation, replace(sloping, growth=replace(growth, std=rising))) == ["undecided"]


@pytest.mark.parametrize(("networks", "wobble", "outcome"), [(4.0, 0.1, "supports"), (16.0, 0.1, "contradicts"),
                                                             (8.0, 4.0, "undecided")])  # fmt: skip
def test_against_networks_the_spread_over_runs_counts_too(networks: float, wobble: float, outcome: str) -> None:
    runs = [worth(*[networks + by] * 5) for by in (-wobble, 0.0, wobble)]
    assert outcomes(against_networks, study(line("swag", runs), spread=0.01)) == [outcome]
    assert outcomes(against_networks, study(line("swag", runs[:1]), spread=0.01)) == ["undecided"]


def tempered(name: str, before: float, after: float, wobble: float) -> Line:
    wobbles = (-wobble, 0.0, wobble)
    return line(name, flat(after, *wobbles), nll=flat(before, *wobbles))


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
def test_the_order_changes_or_stays_only_where_pairs_are_told_apart(
    pair: tuple[tuple[float, float], tuple[float, float]], wobble: float, outcome: str
) -> None:
    lines = [tempered(name, *values, wobble) for name, values in zip(("swag", "fge"), pair, strict=True)]
    assert outcomes(reordering, study(*lines)) == [outcome]


def scattered(noise: tuple[float, float], families: int = 10, seed: int = 0) -> Study:
    """Families of methods whose NLL is their error times ten with so much noise, before and after calibration."""
    generator = np.random.default_rng(seed)
    made = []
    for place in range(families):
        error = generator.uniform(0.1, 0.4) + generator.normal(0, 0.01, (3, 5))
        before, after = (10 * error + by * generator.normal(0, 1, (1, 1)) for by in noise)
        made.append(line(f"method-{place}", after.tolist(), nll=before.tolist(), error=error.tolist()))
    return study(*made)


def test_likelihood_and_accuracy_come_out_all_three_ways() -> None:
    assert outcomes(accuracy_and_likelihood, scattered((2.0, 0.01))) == ["supports"]
    assert outcomes(accuracy_and_likelihood, scattered((0.01, 2.0))) == ["contradicts"]
    assert outcomes(accuracy_and_likelihood, scattered((0.2, 0.15))) == ["undecided"]
    (few,) = accuracy_and_likelihood(scattered((2.0, 0.01), families=3))
    assert few.outcome == "undecided"
    assert "too few families" in few.text
    same = line("swag", flat(1.0, 0.0, 0.0))
    (none,) = accuracy_and_likelihood(study(same))
    assert none.outcome == "undecided"
    assert "not defined" in none.text


def test_intervals_come_from_whole_families_drawn_again() -> None:
    found = scattered((1.0, 0.5), families=7)
    panels = beside_of(found.lines)[2:]
    closeness = closeness_of(panels[0], panels[1])
    assert closeness.after == pytest.approx(abs(panels[1].pearson))
    generator, afters, rises = np.random.default_rng(5), [], []
    for _ in range(1000):
        chosen = generator.integers(0, 7, 7)
        before, after = (
            abs(stats.pearsonr(*(np.concatenate([side[at] for at in chosen]) for side in (panel.x, panel.y))).statistic)
            for panel in panels
        )
        afters.append(after)
        rises.append(after - before)
    assert closeness.after_range == pytest.approx(np.quantile(afters, [0.025, 0.975]), abs=0.05)
    assert closeness.rise_range == pytest.approx(np.quantile(rises, [0.025, 0.975]), abs=0.05)
    plain, twin = twins("swag", 1.5, [0.0, 0.1])
    assert families_of([plain, twin]) == ["swag", "swag"]
