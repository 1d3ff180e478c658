"""Operating points: counts and rates by brute force, intervals from scipy, and ties that no threshold splits."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.metrics.selective import rejection_curve
from dubio.referral import apply_policy, fit_risk_policy, operating_points
from dubio.referral.assessment import subgroup_rates
from dubio.referral.units import rounded_uncertainty
from dubio.statistics.subgroups import UNDERPOWERED
from tests.referral.helpers import easy, of_doubts


def tied(rows=400, seed=0, **fields):
    """Two classes, uncertainties of twelve values, both classes among the labels."""
    rng = np.random.default_rng(seed)
    doubts, truth = (rng.integers(0, 12, rows) + 1) / 26, rng.random(rows) < 0.4
    return replace(of_doubts(doubts, rng.random(rows) < doubts, truth=truth), **fields)


def graded(rows=300, seed=0):
    """Five grades."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, rows)
    logits = 1.5 * np.eye(5)[labels] + rng.normal(size=(rows, 5))
    return Predictions(logits[None].astype(np.float32), labels, target="ordinal")


def exact(successes, count):
    interval = binomtest(successes, count).proportion_ci(0.95)
    return pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize("rows", [easy(seed=3), tied(), easy(3), tied(1)])
def test_every_point_counts_the_rows_up_to_its_threshold(rows):
    uncertainty, wrong = rounded_uncertainty(rows, "confidence"), rows.probs.argmax(1) != rows.labels
    curve = operating_points(rows)
    assert curve.points[0].retained == 0
    assert curve.points[0].threshold is None
    assert curve.points[0].risk is None
    assert curve.points[-1].retained == len(rows)
    for point in curve.points[1:]:
        retained = uncertainty <= point.threshold
        assert point.threshold in uncertainty
        assert point.retained == retained.sum()
        assert point.errors == wrong[retained].sum()
        assert point.risk.value == pytest.approx(wrong[retained].mean())
        assert point.risk.interval == exact(int(wrong[retained].sum()), int(retained.sum()))


def test_every_threshold_is_a_point_where_there_are_few_and_ties_stay_together():
    rows = tied()
    curve = operating_points(rows)
    values, counts = np.unique(rounded_uncertainty(rows, "confidence"), return_counts=True)
    assert [point.threshold for point in curve.points[1:]] == values.tolist()
    assert [point.retained for point in curve.points] == [0, *np.cumsum(counts)]


def test_many_rows_have_a_bounded_number_of_evenly_spaced_points():
    curve = operating_points(easy(30_000, seed=1))
    assert len(curve.points) == 201
    retained = [point.retained for point in curve.points]
    assert max(np.diff(retained)) <= 151
    assert len(curve.to_json()) < 70_000
    few = operating_points(easy(30_000, seed=1), most=11)
    assert [point.retained for point in few.points] == pytest.approx([3000 * step for step in range(11)], abs=5)


def test_points_lie_on_the_curve_of_accuracy_and_rejection():
    rows = easy(500, seed=5)
    curve = rejection_curve(rows)
    for point in operating_points(rows, most=50).points[1:]:
        assert 1 - point.risk.value == pytest.approx(curve.accuracy[len(rows) - point.retained])


def test_confusion_sensitivity_and_specificity_of_two_classes():
    rows = tied()
    uncertainty, truth = rounded_uncertainty(rows, "confidence"), rows.labels == 1
    called = rows.probs[:, 1] > 0.5
    curve = operating_points(rows)
    assert curve.positive == "class 1"
    for point in curve.points[1:]:
        retained = uncertainty <= point.threshold
        counts = [int((retained & (truth == side) & (called == answer)).sum())
                  for side, answer in ((True, True), (False, True), (True, False), (False, False))]  # fmt: skip
        assert list(point.confusion) == counts
        hits, alarms, misses, passes = counts
        assert point.errors == misses + alarms
        assert point.sensitivity.value == pytest.approx(hits / (hits + misses))
        assert point.sensitivity.interval == exact(hits, hits + misses)
        assert point.specificity.interval == exact(passes, passes + alarms)


def test_grades_are_positive_from_the_second_on_by_the_more_probable_side():
    rows = graded()
    last = operating_points(rows).points[-1]
    truth, called = rows.labels >= 2, rows.probs[:, 2:].sum(1) > 0.5
    assert last.confusion.true_positive == (truth & called).sum()
    assert last.specificity.value == pytest.approx((~called)[~truth].mean())
    assert last.errors == (rows.probs.argmax(1) != rows.labels).sum()


def test_other_predictions_have_no_sides_and_a_side_without_rows_has_no_rate():
    several = replace(graded(), target="multiclass")
    curve = operating_points(several)
    assert curve.positive is None
    assert curve.points[-1].confusion is None
    assert curve.as_dict()["binary"] is None
    negatives = operating_points(of_doubts([0.1, 0.2], [False, True]))
    assert negatives.points[-1].sensitivity is None
    assert negatives.as_dict()["binary"]["sensitivity"]["low"] == [None, None, None]
    assert negatives.points[-1].confusion == (0, 1, 0, 1)


def test_equally_probable_classes_are_answered_by_the_first():
    even = operating_points(of_doubts([0.5, 0.5], [False, False], truth=[0, 1]))
    assert even.points[-1].confusion == (0, 0, 1, 1)
    assert even.points[-1].errors == 1


def test_risk_of_groups_is_the_mean_of_their_errors():
    rows = tied(group=(np.arange(400) // 4).astype(str))
    uncertainty, wrong = rounded_uncertainty(rows, "confidence"), rows.probs.argmax(1) != rows.labels
    curve = operating_points(rows)
    assert curve.grouped
    assert curve.units == 100
    single = operating_points(replace(rows, group=None))
    for point, alone in zip(curve.points[1:], single.points[1:], strict=True):
        retained = uncertainty <= point.threshold
        names = np.unique(rows.group[retained])
        means = [wrong[retained & (rows.group == name)].mean() for name in names]
        assert point.risk.value == pytest.approx(np.mean(means))
        assert point.risk.units == len(names)
        assert point.errors == alone.errors
    assert np.ptp(curve.points[-1].risk.interval) > np.ptp(single.points[-1].risk.interval)


def test_the_probability_divides_the_rows_as_the_threshold_does():
    rows = easy(300, seed=2)
    answers = rows.probs.max(1)
    for quantity in ("confidence", "predictive_entropy"):
        uncertainty = rounded_uncertainty(rows, quantity)
        for point in operating_points(rows, quantity=quantity).points[1:]:
            probability, decimals = point.probability
            retained = uncertainty <= point.threshold
            assert (answers[retained] >= probability - 1e-3).all()  # up to the rounding of uncertainties
            assert (answers[~retained] < probability).all()
            assert f"{100 * probability:.{decimals}f}" == f"{100 * probability:.9f}"[: -(9 - decimals) or None]
    graded_points = operating_points(graded(), quantity="predictive_entropy").points
    assert graded_points[-1].probability is None
    assert graded_points[-1].threshold > 0


def test_points_at_stops_retain_what_the_policies_retain():
    calibration, new = easy(2000, seed=0), easy(5000, seed=1)
    policies = [fit_risk_policy(calibration, max_risk=risk) for risk in (0.1, 0.15, 0.3)]
    thresholds = [policy.threshold for policy in policies]
    curve = operating_points(new, stops=[-1.0, *thresholds], most=10)
    assert len(curve.points) <= 10
    assert curve.stops[0] == 0
    for stop, policy in zip(curve.stops[1:], policies, strict=True):
        applied = apply_policy(policy, new)
        assert curve.points[stop].retained == applied.retained.sum()
        assert curve.points[stop].risk.value == pytest.approx(applied.rates[0].value)
        assert curve.points[stop].risk.interval == pytest.approx(applied.rates[0].interval)
    with pytest.raises(UserError, match=r"most must be at least 4.*given 3"):
        operating_points(new, stops=thresholds, most=3)


def test_subgroups_count_their_rows_and_errors():
    site = np.array(["a", "b", "b", "c"] * 100)
    rows = tied(columns={"site": site})
    policy = fit_risk_policy(rows, max_risk=0.3)
    curve = operating_points(rows, by=["site"], stops=[policy.threshold])
    retained = rounded_uncertainty(rows, "confidence") <= policy.threshold
    expected = subgroup_rates(policy, rows, retained, ["site"])["site"]
    assert list(curve.subgroups["site"]) == list(expected) == ["b", "a", "c"]
    for value, own in curve.subgroups["site"].items():
        assert own.retained[curve.stops[0]] == expected[value].retained
        assert own.errors[curve.stops[0]] == round(expected[value].rates[0].value * expected[value].retained)
        assert (own.rows, own.units) == (expected[value].rows, expected[value].units)
    sums = sum(own.errors for own in curve.subgroups["site"].values())
    assert sums.tolist() == [point.errors for point in curve.points]
    with pytest.raises(UnknownName, match="sites"):
        operating_points(rows, by=["sites"])


LEVELS = np.array([0.95, 0.8, 0.6])  # confidences of rows, each as frequent as the others
ERRORS = np.array([[0.02, 0.1, 0.3]]) * np.array([[0.5, 0.7, 0.9, 1.1, 1.3, 1.5]]).T  # by site and confidence
AT = 1.0 - LEVELS + 1e-6  # thresholds on the uncertainty, fixed beforehand


def _sites(rng, rows=240):
    """Rows of six sites whose errors are known by site and confidence."""
    site, level = np.arange(rows) % len(ERRORS), rng.integers(0, 3, rows)
    labels = (rng.random(rows) < ERRORS[site, level]).astype(int)  # the answer is always class 0
    probs = np.stack([LEVELS[level], 1 - LEVELS[level]], axis=1)
    return Predictions(np.log(probs)[None].astype(np.float32), labels, columns={"site": site.astype(str)})


def test_intervals_of_subgroups_at_stops_hold_at_once_where_they_share_the_level():
    true = np.cumsum(ERRORS, axis=1) / np.arange(1, 4)  # of the retained at each threshold
    rng, systems, draws = np.random.default_rng(5), 2, 120
    alone = shared = 0
    for _ in range(draws):
        missed_alone = missed = False
        for rows in [_sites(rng) for _ in range(systems)]:
            level = 0.05 / (systems * true.size)
            curve = operating_points(rows, by=["site"], stops=AT, stop_level=level, most=5)
            for site, errors in zip(map(str, range(6)), true, strict=True):
                own = curve.subgroups["site"][site]
                missed_alone |= not _inside([own.risk[stop] for stop in curve.stops], errors)
                missed |= not _inside(own.at_stops, errors)
        alone, shared = alone + missed_alone, shared + missed
    assert shared <= 12  # of 120, where 6 are allowed on average: P(more) < 1 %
    assert alone > 24  # each with 95 % of its own, and the reader picks


def _inside(shares, errors):
    return all(share.interval[0] <= error <= share.interval[1] for share, error in zip(shares, errors, strict=True))


def test_errors_of_subgroups_have_the_interval_of_their_units():
    rng = np.random.default_rng(0)
    rows = _sites(rng)
    curve = operating_points(rows, by=["site"], stops=[AT[1]], stop_level=0.001)
    own, at = curve.subgroups["site"]["2"], curve.stops[0]
    n, k = int(own.retained[at]), int(own.errors[at])
    for share, level in ((own.risk[at], 0.05), (own.at_stops[0], 0.001)):
        exact = binomtest(k, n).proportion_ci(1 - level, method="exact")
        assert share.interval == pytest.approx((exact.low, exact.high))
        assert share.value == pytest.approx(k / n)
    grouped = replace(rows, group=np.repeat(np.arange(40), 6).astype(str))
    curve = operating_points(grouped, by=["site"], stops=[AT[1]])
    chosen = (rows.columns["site"] == "2") & (rounded_uncertainty(rows, "confidence") <= AT[1])
    share = curve.subgroups["site"]["2"].risk[curve.stops[0]]
    assert (share.value, share.units) == (pytest.approx(rows.labels[chosen].mean()), chosen.sum())  # one row a group
    assert curve.subgroups["site"]["2"].risk[0] is None  # nothing is retained


def test_rows_without_a_label_and_ood_rows_are_left_out():
    rows = easy(100)
    mixed = replace(rows, labels=np.where(np.arange(100) < 30, -1, rows.labels), ood=np.arange(100) >= 90)
    curve = operating_points(mixed)
    kept = rows.take(np.arange(30, 90))
    assert curve.as_dict() == operating_points(kept).as_dict()
    with pytest.raises(UserError, match="labels"):
        operating_points(replace(rows, labels=np.full(100, -1)))


def test_the_document_has_one_entry_per_point():
    curve = operating_points(tied(columns={"site": np.array(["x", "y"] * 200)}), by=["site"], stops=[0.3])
    document = json.loads(curve.to_json())
    count = len(curve.points)
    lists = [document[name] for name in ("threshold", "probability", "decimals", "retained", "errors")]
    binary = document["binary"]
    lists += [*document["risk"].values(), *binary["sensitivity"].values(), binary["true_positive"]]
    lists += [document["subgroups"]["site"]["x"][name] for name in ("retained", "errors")]
    assert {len(numbers) for numbers in lists} == {count}
    assert document["threshold"][0] is None
    assert document["retained"][-1] == document["rows"] == 400


def test_the_number_of_points_is_bounded_to_the_last_and_a_stop_at_a_tie_retains_it():
    rows = tied()
    values = np.unique(rounded_uncertainty(rows, "confidence"))
    assert len(operating_points(rows, most=13).points) == 13  # none, and twelve blocks
    assert [point.retained for point in operating_points(rows, most=2).points] == [0, 400]
    ten = of_doubts(np.arange(1, 11) / 40, np.zeros(10, bool))
    assert [point.retained for point in operating_points(ten, most=3).points] == [0, 5, 10]
    curve = operating_points(rows, stops=[values[4]])
    assert curve.points[curve.stops[0]].threshold == values[4]


def test_three_grades_have_sides_and_any_split_has_points():
    rng = np.random.default_rng(0)
    grades = Predictions(rng.normal(size=(1, 60, 3)).astype(np.float32), rng.integers(0, 3, 60), target="ordinal")
    assert operating_points(grades).points[-1].confusion is not None
    assert operating_points(easy(50, kind="val")).as_dict() == operating_points(easy(50)).as_dict()


def test_what_is_printed_is_short_and_a_subgroup_of_enough_units_is_not_underpowered():
    site = np.array(["a"] * UNDERPOWERED + ["b"] * (UNDERPOWERED - 1))
    curve = operating_points(tied(len(site), columns={"site": site}), by=["site"], stops=[0.3])
    assert {name: own.as_dict()["underpowered"] for name, own in curve.subgroups["site"].items()} == {
        "a": False, "b": True,
    }  # fmt: skip
    assert "points=" not in repr(curve)
    assert "subgroups=" not in repr(curve)
    assert "risk=" not in repr(curve.subgroups["site"]["a"])
    assert "at_stops=" not in repr(curve.subgroups["site"]["a"])
    assert "seen=" not in repr(fit_risk_policy(easy(), max_risk=0.3))
