"""Limits of detection: DeLong's variance, error rates by simulation, and what the page says of detectors at chance."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.core.types import FloatArray
from dubio.reporting import Report, build_report
from dubio.reporting.detectors import DetectionVariances, detection_on
from dubio.reporting.measures import DETECTED_BY
from dubio.reporting.section import Card, Cards
from dubio.statistics.limits import intervals
from tests.reporting.helpers import blocks, figures, part_of_run, texts, with_scores_on_features, without_shift
from tests.reporting.stored_runs import FakeStore, make_world

KEY = ("task", "novel", "method")


def delong(inside: FloatArray, outside: FloatArray) -> tuple[float, float]:
    """The area and its variance as DeLong, DeLong and Clarke-Pearson (1988) write them, by comparing every pair."""
    above = (outside[:, None] > inside[None, :]) + 0.5 * (outside[:, None] == inside[None, :])
    rows, columns = above.mean(axis=1), above.mean(axis=0)
    return above.mean(), rows.var(ddof=1) / len(outside) + columns.var(ddof=1) / len(inside)


def one_run(inside: FloatArray, outside: FloatArray) -> tuple[float, tuple[float, int]]:
    variances = DetectionVariances()
    variances.add(KEY, {"q": inside}, {"q": outside}, (None, None))
    term = variances.term("task", ("novel",), "method", "q")
    assert term is not None
    return delong(inside, outside)[0], term


def test_the_variance_is_that_of_delong_with_four_further_examples_a_side() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0, 1, 900).round(1), rng.normal(0.5, 1, 700).round(1)
    area, variance = delong(inside, outside)
    _, (term, freedom) = one_run(inside, outside)
    further = 2 * (area**2 + (1 - area) ** 2) * (1 / 700**2 + 1 / 900**2)
    assert term == pytest.approx(variance + further, rel=3e-3)  # n/(n − 1) of the two sides
    assert freedom == 699


def test_differences_of_quantities_are_paired() -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(0, 1, 300), rng.normal(0.5, 1, 300)
    variances = DetectionVariances()
    sides = [{"a": own, "b": np.exp(own), "c": -own} for own in (inside, outside)]
    variances.add(KEY, *sides, (None, None))
    assert variances.term("task", ("novel",), "method", "a", "b") == (0.0, 299)
    opposite = variances.term("task", ("novel",), "method", "a", "c")
    assert opposite is not None
    assert opposite[0] == pytest.approx(4 * delong(inside, outside)[1], rel=0.01)


def test_groups_are_the_units() -> None:
    rng = np.random.default_rng(2)
    inside, outside = np.repeat(rng.normal(0, 1, 30), 10), np.repeat(rng.normal(0, 1, 20), 10)
    groups = np.repeat([f"i{k}" for k in range(30)], 10), np.repeat([f"o{k}" for k in range(20)], 10)
    variances = DetectionVariances()
    variances.add(KEY, {"q": inside}, {"q": outside}, groups)
    term, alone = variances.term("task", ("novel",), "method", "q"), one_run(inside[::10], outside[::10])[1]
    assert term is not None
    assert term[1] == 19
    assert term[0] == pytest.approx(alone[0], rel=0.05)


def errors(rows: int, replicates: int, detectors: int, *, two_kinds: bool) -> float:
    """The share of draws in which any of several useless detectors is called one, or inverted."""
    rng, wrong = np.random.default_rng(rows + detectors), 0
    for _ in range(replicates):
        estimates: dict[int, Any] = {}
        for index in range(detectors):
            inside, outside = rng.normal(0, 1, 150), rng.normal(0, 1, rows)
            if two_kinds:  # half of the OOD examples lie above all others, half below: the area is one half
                outside = rng.choice([-9.0, 9.0], rows) + 0.1 * outside
            area, term = one_run(inside, outside)
            estimates[index] = area, [term]
        wrong += any(found.low > 0.5 or found.high < 0.5 for found in intervals(estimates).values())
    return wrong / replicates


@pytest.mark.parametrize("two_kinds", [False, True])
@pytest.mark.parametrize(("rows", "detectors"), [(3, 1), (6, 1), (12, 6), (100, 6)])
def test_useless_detectors_are_rarely_called_detectors(rows: int, detectors: int, two_kinds: bool) -> None:
    replicates = 400
    share = errors(rows, replicates, detectors, two_kinds=two_kinds)
    assert share <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / replicates)


@pytest.mark.slow
@pytest.mark.parametrize("two_kinds", [False, True])
@pytest.mark.parametrize("detectors", [1, 8, 40])
@pytest.mark.parametrize("rows", [3, 5, 8, 15, 30, 200])
def test_useless_detectors_are_rarely_called_detectors_anywhere(rows: int, detectors: int, two_kinds: bool) -> None:
    replicates = 1000
    share = errors(rows, replicates, detectors, two_kinds=two_kinds)
    assert share <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / replicates)


def test_a_good_detector_is_found_with_few_examples() -> None:
    rng = np.random.default_rng(3)
    areas = {k: one_run(rng.normal(0, 1, 200), rng.normal(2, 1, 30)) for k in range(40)}
    assert all(found.low > 0.5 for found in intervals({k: (a, [t]) for k, (a, t) in areas.items()}).values())


# -- whole runs


METHODS = ("deterministic", "mc-dropout", "deep-ensemble")


def changed_world(scale: float) -> tuple[FakeStore, dict[str, Any]]:
    """Some methods on ``digits``; its novel examples are copies of in-domain ones, with logits of this scale."""
    store, manifest = make_world()
    runs = [run for run in manifest["runs"] if run["task"] == "digits" and run["method"] in METHODS]
    for run in runs:
        test, novel = store.predictions[run["id"], "test"], store.predictions[run["id"], "novel"]
        order = np.random.default_rng(0).permutation(len(test))[: len(novel)]
        logits = np.asarray(test.logits)[:, order]
        if scale != 1.0:
            logits = np.broadcast_to(scale * logits.mean(axis=0), logits.shape)
        store.predictions[run["id"], "novel"] = replace(novel, logits=logits.astype(np.float32))
    task = dict(manifest["tasks"][0])
    task["splits"] = [split for split in task["splits"] if split["kind"] != "shift"]
    methods = [method for method in manifest["methods"] if method["name"] in METHODS]
    return store, {**manifest, "tasks": [task], "methods": methods, "runs": runs, "failures": []}


def card(report: Report, section: str, title: str) -> Card:
    return next(
        c for b in blocks(report, section) if isinstance(b, Cards) for c in b.cards if c.title.startswith(title)
    )


@pytest.fixture(scope="module")
def at_chance() -> Report:
    return build_report(*changed_world(1.0))


@pytest.fixture(scope="module")
def inverted() -> Report:
    return build_report(*changed_world(40.0))


def test_nothing_is_advised_from_detectors_at_chance(at_chance: Report) -> None:
    said = "No method here detects these: do not rely on it"
    advised = card(at_chance, "advice", "Novel classes").texts[0]
    assert said in advised
    assert "Take" not in advised
    titles = [c.title for b in blocks(at_chance, "advice") if isinstance(b, Cards) for c in b.cards]
    assert "Which uncertainty detects novel classes" not in titles
    assert any(said in text for text in card(at_chance, "findings", "digits").texts)
    assert any(said in text for text in texts(blocks(at_chance, "shift", at_chance.run.tasks[0])))
    rows = [row for row in at_chance.document()["detection"] if row["test_set"] == "novel"]
    assert {row["outcome"] for row in rows} == {"undecided"}
    assert {row["quantity"] for row in rows} <= set(DETECTED_BY)


def test_an_inverted_order_is_named_everywhere(inverted: Report) -> None:
    task = inverted.run.tasks[0]
    found = [one for one in detection_on(inverted.run, task, ("novel",)).detectors if one.quantity == "confidence"]
    assert max(one.auroc for one in found) < 0.1
    advised = card(inverted, "advice", "Novel classes").texts[0]
    for text in (
        advised,
        " ".join(card(inverted, "findings", "digits").texts),
        " ".join(texts(blocks(inverted, "shift", task))),
    ):
        assert "do not rely on it" in text
        assert "is inverted for Deterministic, MC dropout and Deep ensemble" in text
    assert "Take" not in advised
    assert "below chance: inverted" in figures(inverted, task)["density-novel"].reading
    outcomes = {
        row["outcome"]
        for row in inverted.document()["detection"]
        if row["test_set"] == "novel" and row["quantity"] == "confidence"
    }
    assert outcomes == {"inverted"}


def test_working_detectors_carry_no_caution(report: Report) -> None:
    task = report.run.tasks[0]
    assert detection_on(report.run, task, ("novel",)).sentences(report.run) == []
    assert not any("rely" in text for text in texts(blocks(report, "shift", task)))
    assert card(report, "advice", "Novel classes").texts[0].startswith("Take ")


def test_a_method_trained_once_has_no_limits_beside_methods_whose_trainings_vary() -> None:
    store, manifest = changed_world(0.2)
    kept = [r for r in manifest["runs"] if r["method"] != "mc-dropout" or (r["seed"], r["member"]) == (0, 0)]
    kept = [run for run in kept if run["method"] != "deep-ensemble" or run["seed"] == 0]
    run = build_report(store, {**manifest, "runs": kept}).run
    found = {d.method: d for d in detection_on(run, run.tasks[0], ("novel",)).detectors if d.quantity == "confidence"}
    assert found["mc-dropout"].outcome == "unjudged"
    assert found["deep-ensemble"].outcome != "unjudged"  # one run, but of two trainings
    assert found["deterministic"].outcome == "detects"


def test_where_no_training_was_repeated_the_limits_are_of_these_trained_systems() -> None:
    store, manifest = changed_world(40.0)
    kept = [r for r in manifest["runs"] if (r["seed"], r["member"]) == (0, 0)]
    run = build_report(store, {**manifest, "runs": kept}).run
    detection = detection_on(run, run.tasks[0], ("novel",))
    assert detection.question == "systems"
    assert {one.outcome for one in detection.detectors if one.quantity == "confidence"} == {"inverted"}
    assert detection.sentences(run)[-1].endswith("this is about these trained systems.")


def test_without_a_ranked_method_nothing_is_said_of_trainings() -> None:
    store, manifest = make_world()
    rng = np.random.default_rng(0)
    for run in manifest["runs"]:
        if run["task"] == "digits":
            rows = store.predictions[run["id"], "test"]
            shuffled = replace(rows, logits=rows.logits[:, rng.permutation(len(rows))])
            store.predictions[run["id"], "test"] = shuffled
    report = build_report(store, without_shift(part_of_run(manifest, "digits")))
    (task,) = report.run.tasks
    assert detection_on(report.run, task, ("novel",)).sentences(report.run) == [
        "Detection is not judged, because no method is ranked on this task: do not rely on it."
    ]


def test_a_method_of_the_same_predictions_changes_no_limit_of_another() -> None:
    """A copy was one more method in the correction, and in the mean variance of its group."""
    store, manifest = make_world((0, 1))
    alone, beside = (
        build_report(store, with_scores_on_features(store, manifest, "digits", (*METHODS, *more))).run
        for more in ((), ("posthoc",))
    )
    limits = [
        {(d.method, d.quantity): d.interval for d in detection_on(run, run.tasks[0], ("novel",)).detectors}
        for run in (alone, beside)
    ]
    assert any(limits[0].values())
    assert limits[0] == {key: interval for key, interval in limits[1].items() if key[0] != "posthoc"}
    assert limits[1]["posthoc", "confidence"] == limits[1]["deterministic", "confidence"]
    for metric in ("calibrated_nll", "ece"):
        expected, found = (run.scores.intervals(run.tasks[0], ("test",), metric) for run in (alone, beside))
        assert expected == {name: interval for name, interval in found.items() if name != "posthoc"}
