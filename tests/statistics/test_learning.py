"""Evidence of learning: the exchange test against enumeration, its level and power with the defaults, and the gain."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from dubio.calibration.class_maps import fit_intercepts, recalibration_features
from dubio.calibration.cross_validation import REPEATS, calibrated_nll, random_halves
from dubio.core.predictions import Predictions
from dubio.statistics.learning import MARGIN, Gain, Learning, enough_exchanges, gain_of, judge_learning


def predictions(logits: np.ndarray, labels: np.ndarray, group: np.ndarray | None = None) -> Predictions:
    target = "multilabel" if labels.ndim == 2 else "multiclass"
    return Predictions(logits[None].astype(np.float32), labels.astype(np.int64), target, group=group)


def gain(logits: np.ndarray, labels: np.ndarray, group: np.ndarray | None = None, **options: int) -> Gain:
    rows = predictions(logits, labels, group)
    per_example = calibrated_nll.metric().per_example
    assert per_example is not None
    return gain_of(rows, per_example(rows), **options)


def judged(logits: np.ndarray, labels: np.ndarray, group: np.ndarray | None = None, **options: int) -> Learning:
    return judge_learning({"m": [gain(logits, labels, group, **options)]}, group)["m"]


def two_classes(rng: np.random.Generator, rows: int, separation: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and log-odds that differ by so many deviations between the classes."""
    labels = rng.integers(0, 2, rows)
    odds = separation * (rng.normal(size=rows) + separation * labels)
    return np.stack([np.zeros(rows), odds], axis=1), labels


def test_the_p_value_is_that_of_all_exchanges() -> None:
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2])
    logits[np.arange(6), labels] += 0.8
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    every = [logs[np.arange(6), labels[list(order)]].sum() for order in permutations(range(6))]
    exact = np.mean(np.array(every) >= logs[np.arange(6), labels].sum() - 1e-9)
    assert judged(logits, labels, exchanges=20_000).p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("several", [False, True])
def test_groups_exchange_their_labels_as_a_whole(several: bool) -> None:
    """All 24 exchanges of four groups, of which smaller ones give their labels again and again."""
    group, rng = np.array(list("bacbdcadbd")), np.random.default_rng(8)
    labels = rng.integers(0, 2, (10, 3)) if several else rng.integers(0, 3, 10)
    logits = rng.normal(size=(10, 3))
    rows = predictions(logits, labels, group)
    features = recalibration_features(rows)
    centred = features - features.mean(axis=0)
    members = [np.flatnonzero(group == name) for name in "abcd"]
    every = []
    for order in permutations(range(4)):
        score = 0.0
        for own, source in zip(members, (members[k] for k in order), strict=True):
            for position, row in enumerate(own):
                label = labels[source[position % len(source)]]
                score += (centred[row] * label).sum() if several else centred[row, label]
        every.append(score)
    found = gain(logits, labels, group, exchanges=600).score
    assert found[0] == pytest.approx(every[0])
    assert set(np.round(found, 6)) == set(np.round(every, 6))
    assert np.mean(found >= every[0] - 1e-9) == pytest.approx(np.mean(np.array(every) >= every[0] - 1e-9), abs=0.06)


def test_the_statistic_is_the_score_of_b_at_the_class_frequencies() -> None:
    """d/db Σ_i log softmax(b z_i + c)(y_i) at b = 0, c = log frequencies, by finite differences."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    start = np.log(np.bincount(labels, minlength=4) / 50)

    def likelihood(b: float) -> float:
        scaled = b * logs + start
        scaled -= np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        return float(scaled[np.arange(50), labels].sum())

    slope = (likelihood(1e-5) - likelihood(-1e-5)) / 2e-5
    assert gain(logits, labels, exchanges=1).score[0] == pytest.approx(slope, abs=1e-4)


def test_one_slope_and_intercepts_are_a_logistic_regression() -> None:
    """Two classes: σ(b·odds + c) by maximum likelihood, against the normal equations of its score."""
    logits, labels = two_classes(np.random.default_rng(1), 400, 1.2)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    b, intercepts = fit_intercepts(logs, labels)
    odds = b * (logs[:, 1] - logs[:, 0]) + intercepts[1] - intercepts[0]
    residual = labels - 1 / (1 + np.exp(-odds))
    assert abs(residual.mean()) < 1e-3
    assert abs((residual * (logs[:, 1] - logs[:, 0])).mean()) < 1e-3


def frequency_nll(rows: Predictions) -> np.ndarray:
    """The NLL of every example under the frequencies of the half it is not in, one more of each class counted."""
    total = np.zeros(len(rows))
    for half in random_halves(rows, repeats=REPEATS, seed=0):
        for row in range(len(rows)):
            others = rows.labels[half != half[row]]
            if rows.target == "multilabel":
                share = (others.sum(axis=0) + 1) / (len(others) + 2)
                total[row] -= np.log(np.where(rows.labels[row] == 1, share, 1 - share)).sum()
            else:
                total[row] -= np.log((np.sum(others == rows.labels[row]) + 1) / (len(others) + rows.class_count))
    return total / REPEATS


@pytest.mark.parametrize(("classes", "several"), [(2, False), (3, False), (3, True)])
def test_a_clear_gain_is_that_of_the_temperature_over_the_frequencies_of_the_other_half(
    classes: int, several: bool
) -> None:
    rng = np.random.default_rng(4)
    labels = (rng.random((60, 3)) < 0.4).astype(np.int64) if several else rng.integers(0, classes, 60)
    hot = labels if several else np.eye(classes)[labels]
    shift = np.where(np.arange(classes) == 0, -3.0, 0.0)  # intercepts would gain more
    logits = 8 * hot - 4 + rng.normal(size=(60, classes)) + shift
    rows = predictions(logits, labels)
    calibrated = calibrated_nll.metric().per_example(rows)
    found = gain_of(rows, calibrated)
    expected = frequency_nll(rows)
    assert found.reference == pytest.approx(expected.mean())
    assert (expected - calibrated).mean() > 0.5 * found.reference
    np.testing.assert_allclose(found.rows, expected - calibrated, atol=1e-9)
    assert len(found.score) == 1 + 999


@pytest.mark.parametrize("several", [False, True])
def test_a_weak_gain_is_that_of_intercepts_fitted_on_the_other_half(several: bool) -> None:
    rng = np.random.default_rng(6)
    if several:
        labels = (rng.random((50, 2)) < 0.4).astype(np.int64)
        logits, more = labels + rng.normal(size=(50, 2)), np.array([[0, 0], [1, 1]])
    else:
        (logits, labels), more = two_classes(rng, 50, 0.7), np.array([0, 1])
    rows = predictions(logits + np.array([0.0, 5.0]), labels)
    logs, expected = recalibration_features(rows), np.zeros(50)
    for half in random_halves(rows, repeats=REPEATS, seed=0):
        for fitted in (half, ~half):
            mean = np.stack([logs[fitted].mean(axis=0)] * 2)
            b, intercepts = fit_intercepts(np.concatenate([logs[fitted], mean]), np.concatenate([labels[fitted], more]))
            scaled = b * logs + intercepts
            if several:
                nll = np.log1p(np.exp(-scaled * (2 * labels - 1))).sum(axis=1)
            else:
                nll = np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(50), labels]
            expected[~fitted] += nll[~fitted] / REPEATS
    found = gain_of(rows, calibrated_nll.metric().per_example(rows))
    np.testing.assert_allclose(found.rows, frequency_nll(rows) - expected, atol=1e-6)


def test_runs_are_averaged_after_division_by_their_own_deviation() -> None:
    wide, narrow = 1000.0 * np.array([0.0, 1.0, -1.0, 0.0]), np.array([3.0, 0.0, 0.0, 0.0])
    gains = [Gain(np.linspace(0.1, 0.5, 30), 0.7, score) for score in (wide, narrow)]
    assert judge_learning({"m": gains})["m"].p == 0.25  # 2.3 deviations of one run against 1.4 of the other
    constant = Gain(np.linspace(0.1, 0.5, 30), 0.7, np.full(4, 5.0))
    assert judge_learning({"m": [gains[1], constant]})["m"].p == 0.25


def test_methods_of_the_same_predictions_are_one_in_the_correction() -> None:
    """A copy made every p-value larger, and could leave all methods without evidence."""
    rows = np.linspace(0.1, 0.5, 30)
    one, two = (Gain(rows, 0.7, np.array([3.0] + [3.0] * larger + [0.0] * (99 - larger))) for larger in (1, 3))
    alone = judge_learning({"one": [one], "two": [two]})
    beside = judge_learning({"one": [one], "two": [two], "copy": [two]})
    assert [found.p for found in alone.values()] == pytest.approx([0.04, 0.04])
    assert beside == alone | {"copy": alone["two"]}


def test_only_scores_that_never_change_are_constant() -> None:
    constant, changes = (
        Gain(np.linspace(0.1, 0.5, 100), 0.7, np.array([spread] + [0.0] * 99)) for spread in (5e-5, 1.0)
    )
    for runs, learned in (([constant], True), ([constant, constant], True), ([constant, changes], False)):
        assert (judge_learning({"m": runs})["m"].learned == "constant") == learned


@pytest.mark.parametrize("group", [None, np.repeat(["a", "b", "c", "d", "e"], 4)])
def test_the_limit_counts_the_variance_over_examples_and_over_runs(group: np.ndarray | None) -> None:
    """Both variances by hand; of the degrees of freedom the mean of Satterthwaite's and the least."""
    values = np.random.default_rng(2).normal(0.1, 0.3, (3, 20)) + np.array([[0.0], [0.1], [0.3]])
    score = np.random.default_rng(3).normal(size=100)
    runs_of_method = [Gain(own, 0.6 + 0.1 * k, score) for k, own in enumerate(values)]
    found = judge_learning({"m": runs_of_method}, group)["m"]
    over_rows = values.mean(axis=0)
    sums = over_rows - over_rows.mean() if group is None else (over_rows - over_rows.mean()).reshape(5, 4).sum(axis=1)
    units = len(sums)
    examples, runs = units / (units - 1) * np.square(sums).sum() / 20**2, values.mean(axis=1).var(ddof=1) / 3
    total = examples + runs
    freedom = (total**2 / (examples**2 / (units - 1) + runs**2 / 2) + 2) / 2
    assert found.gain == pytest.approx(values.mean())
    assert found.high == pytest.approx(values.mean() + stats.t.ppf(0.95, freedom) * np.sqrt(total))
    assert found.margin == pytest.approx(0.03 * 0.7)


def test_a_p_value_at_the_level_is_evidence() -> None:
    for scores, learned in ((19, "learned"), (18, "no evidence")):
        run = Gain(np.linspace(0.1, 0.5, 30), 0.7, np.array([30.0] + [0.0] * scores))
        found = judge_learning({"m": [run]})["m"]
        assert (found.p, found.learned) == (pytest.approx(1 / (1 + scores)), learned)


def test_the_same_prediction_for_every_example_is_named_as_such() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 120)
    constant = judged(np.tile([0.3, 0.2, -1.0], (120, 1)), labels)
    assert (constant.learned, constant.p) == ("constant", 1.0)
    assert constant.gain == pytest.approx(0.0, abs=2 / 60)  # K − 1 frequencies of 60 rows cost about (K − 1)/60


def test_shifted_and_scaled_log_odds_hide_no_learning() -> None:
    """Class-weighted training: far too many of one class, far too sure, yet the order is good."""
    logits, labels = two_classes(np.random.default_rng(2), 300, 1.5)
    found = judged(3 * logits + np.array([0.0, 12.0]), labels)
    assert found.learned == "learned"
    assert found.gain == pytest.approx(judged(logits, labels).gain, abs=0.01)


def test_a_significant_but_small_gain_is_hardly_one() -> None:
    """An area under the ROC curve of 0.57 on 800 photographs, as of networks that learned next to nothing."""
    logits, labels = two_classes(np.random.default_rng(5), 800, 0.25)
    found = judged(logits, labels)
    assert found.p <= 0.05
    assert found.learned == "hardly"
    assert found.gain < found.high < found.margin == pytest.approx(MARGIN * np.log(2), rel=0.02)


def test_several_labels() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((150, 8)) < 0.2).astype(np.int64)
    noise = rng.normal(size=(150, 8))
    assert judged(noise, labels).learned == "no evidence"
    assert judged(noise + 1.5 * labels, labels).learned == "learned"


def test_a_good_method_of_many_classes_is_recognised_with_two_rows_of_each() -> None:
    rng = np.random.default_rng(0)
    labels, logits = np.arange(300) % 150, rng.normal(size=(300, 150))
    logits[np.arange(300), labels] += 2.0
    assert judged(2 * logits, labels).learned == "learned"


def test_a_good_method_is_recognised_on_forty_rows() -> None:
    rng = np.random.default_rng(0)
    found = [judged(*two_classes(rng, 40, 1.3)).learned for _ in range(40)]
    assert found.count("learned") >= 34


def flagged(rng: np.random.Generator, rows: int, share: float, repetitions: int, runs: int = 1) -> float:
    """Return how often a method that learned nothing is not ranked; heavy tails, as of overconfident networks."""
    count = 0
    for _ in range(repetitions):
        labels = (rng.random(rows) < share).astype(np.int64)
        gains = [gain(3 * rng.standard_t(2, size=(rows, 2)), labels) for _ in range(runs)]
        count += judge_learning({"m": gains})["m"].learned != "learned"
    return count / repetitions


def test_a_method_that_learned_nothing_is_not_ranked() -> None:
    """19 of 20, less two Monte-Carlo errors."""
    assert flagged(np.random.default_rng(0), 40, 0.3, 120) >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / 120)


def grouped(rng: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of one to eight rows whose labels, and predictions, are alike; the two are independent."""
    unit = np.repeat(np.arange(groups), rng.integers(1, 9, groups))
    labels = (2 * rng.normal(size=groups)[unit] + rng.normal(size=len(unit)) > 0).astype(np.int64)
    odds = 2 * rng.normal(size=groups)[unit] + rng.normal(size=len(unit))
    return np.stack([np.zeros(len(unit)), odds], axis=1), labels, unit.astype(str)


def test_groups_are_the_units() -> None:
    rng = np.random.default_rng(0)
    data = [grouped(rng, 20) for _ in range(100)]
    kept = np.mean([judged(*one, exchanges=199).learned != "learned" for one in data])
    as_rows = np.mean([judged(*one[:2], exchanges=199).learned != "learned" for one in data])
    assert kept >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / 100)
    assert as_rows < 0.9


def test_exchanges_suffice_for_all_methods_together() -> None:
    for methods in (1, 34, 200):
        assert methods / (1 + enough_exchanges(methods)) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("rows", [20, 40, 200, 1000])
def test_the_level_holds_for_sizes_shares_and_runs(rows: int, share: float, runs: int) -> None:
    repetitions = 400
    found = flagged(np.random.default_rng([rows, runs]), rows, share, repetitions, runs)
    assert found >= 0.95 - 2.5 * np.sqrt(0.05 * 0.95 / repetitions)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [10, 20, 50])
def test_the_level_holds_for_groups(groups: int) -> None:
    rng = np.random.default_rng(groups)
    found = np.mean([judged(*grouped(rng, groups)).learned != "learned" for _ in range(400)])
    assert found >= 0.95 - 2.5 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.slow
def test_no_method_of_ten_that_learned_nothing_leads() -> None:
    rng, ranked = np.random.default_rng(0), 0
    for _ in range(300):
        labels = rng.integers(0, 2, 60)
        gains = {str(k): [gain(rng.normal(size=(60, 2)), labels)] for k in range(10)}
        ranked += any(found.learned == "learned" for found in judge_learning(gains).values())
    assert ranked / 300 <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 300)
