"""Deep-ensemble equivalents, and ensembles of one member, two and so on against every order of their members."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from dubio.core.predictions import Predictions, pool_members
from dubio.core.registry import METRICS
from dubio.reporting.build import Report, build_report
from dubio.reporting.section import Figure
from dubio.reporting.sections.ensembles import (
    ACCURACY,
    NLL,
    Ensembles,
    Growth,
    equivalent_chart,
    equivalents_of,
    in_domain_growth,
    one_sample_per_member,
    pools_of,
)
from dubio.reporting.style import Style
from dubio.statistics.ensemble_equivalent import Equivalent, EquivalentRange, equivalent, growth_curve
from tests.reporting.helpers import blocks, of_kind, part_of_run
from tests.reporting.sections.helpers import rows_of
from tests.reporting.stored_runs import FakeStore, make_world, task_of

World = tuple[FakeStore, dict[str, Any]]


def three_members(rows: int = 240, classes: int = 3) -> list[Predictions]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, rows)
    return [
        Predictions((2 * np.eye(classes)[labels] + rng.normal(0, 2, (4, rows, classes))).astype(np.float32), labels)
        for _ in range(3)
    ]


def growth_of(predictions: Predictions) -> Growth | None:
    merged = one_sample_per_member(predictions)
    return None if merged is None else in_domain_growth(merged)


def test_growing_ensembles_are_those_of_all_orders_of_their_members() -> None:
    members = three_members()
    grown = growth_of(pool_members(members))
    assert grown is not None
    for size in (1, 2, 3):
        # A circle of three has every pair: the mean over the circle is the mean over all orders.
        pooled = [pool_members([members[i] for i in order[:size]]) for order in permutations(range(3))]
        right = np.mean([(p.probs.argmax(axis=1) == p.labels).mean() for p in pooled])
        nll = np.mean([METRICS.make("calibrated_nll").compute(p) for p in pooled])
        assert grown[ACCURACY][:, size - 1].mean() == pytest.approx(right, abs=1e-9)
        assert grown[NLL][:, size - 1].mean() == pytest.approx(nll, abs=1e-5)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_every_member_is_in_the_same_number_of_ensembles_of_a_size(members: int) -> None:
    pools = pools_of(members)
    assert len(pools) == len({frozenset(pool) for pool in pools}) == members * (members - 1) + 1
    for size in range(1, members):
        sized = [pool for pool in pools if len(pool) == size]
        assert sorted(pool[0] for pool in sized) == list(range(members))
        counts = np.bincount([member for pool in sized for member in pool])
        assert (counts == size).all()


def test_one_member_or_one_example_does_not_grow() -> None:
    assert growth_of(three_members()[0]) is None
    assert growth_of(pool_members([member.take(np.array([0])) for member in three_members()])) is None


def test_the_full_ensemble_of_the_figure_is_that_of_the_table(text_report: Report) -> None:
    run = text_report.run
    (section,) = (placed.section for placed in text_report.sections if isinstance(placed.section, Ensembles))
    panels = section.panels(run, task_of(run, "digits"))
    assert set(panels) == {ACCURACY, NLL, "AUROC, novel", "AUROC, blur-3", "AUROC, noise-3"}
    places = {ACCURACY: ("test", "accuracy"), NLL: ("test", "calibrated_nll"), "AUROC, novel": ("novel", "ood_auroc")}
    for title, (split, metric) in places.items():
        assert [series.style.ensemble for series in panels[title]] == [True] * 3
        cell = run.scores.cells["digits", split, "mc-dropout-ensemble", metric]
        series = next(series for series in panels[title] if series.style.title == "MC dropout ensemble")
        assert series.mean[-1] == pytest.approx(cell.mean, abs=1e-5)
        single = run.scores.cells["digits", split, "mc-dropout", metric]
        assert series.mean[0] == pytest.approx(single.mean, abs=1e-5)


def test_multilabel_ensembles_grow_by_their_probabilities() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (90, 4))
    members = [
        Predictions((3 * labels - 1.5 + rng.normal(0, 1.5, (3, 90, 4))).astype(np.float32), labels, "multilabel")
        for _ in range(2)
    ]
    grown = growth_of(pool_members(members))
    assert grown is not None
    pooled = np.mean([1 / (1 + np.exp(-m.logits.astype(float))) for m in members], axis=(0, 1))
    assert grown[ACCURACY][0, -1] == pytest.approx(((pooled > 0.5) == labels).all(axis=1).mean())


def test_the_equivalent_is_read_off_the_curve_of_all_deterministic_networks(world: World, report: Report) -> None:
    store, manifest = world
    runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("reviews", "deterministic")]
    curve = growth_curve(pool_members([store.predictions[run, "test"] for run in runs]), orders=10)
    task = next(task for task in report.run.manifest.tasks if task.key == "reviews")
    shown = {report.run.title(name): one.central for name, one in equivalents_of(report.run, task).items()}
    assert len(shown) == 6
    for method in report.run.manifest.methods:
        mean = report.run.scores.cells["reviews", "test", method.name, "calibrated_nll"].mean
        expected = equivalent(curve.mean["nll"], mean)
        assert shown[method.title].size == pytest.approx(expected.size)
        assert shown[method.title].longest == len(runs)


def test_without_a_deep_ensemble_there_is_no_equivalent() -> None:
    store, manifest = make_world((0,))
    manifest = part_of_run(manifest, "screening")
    manifest["runs"] = [run for run in manifest["runs"] if run["method"] != "deep-ensemble"]
    report = build_report(store, manifest)
    assert report.run.growth == {}
    names = [f.name for task in report.tasks for f in of_kind(blocks(report, "ensemble-size", task), Figure)]
    assert set(names) == {"size"}


def test_the_figure_of_sizes_has_the_means_of_the_table(text_report: Report) -> None:
    run = text_report.run
    task = task_of(run, "digits")
    (size,) = (f for f in of_kind(blocks(text_report, "ensemble-size", task), Figure) if f.name == "size")
    rows = rows_of(size)
    assert {row["x"] for row in rows} == {1, 2}
    (full,) = (r for r in rows if (r["panel"], r["method"], r["x"]) == (ACCURACY, "MC dropout ensemble", 2))
    assert full["y"] == pytest.approx(run.scores.cells["digits", "test", "mc-dropout-ensemble", "accuracy"].mean)


def test_equivalents_beyond_the_longest_ensemble_stand_at_the_edge() -> None:
    within, beyond = Equivalent(2.5, 4), Equivalent(np.inf, 4)
    styles = [Style("A", "#111111", "o", ensemble=True), Style("B", "#222222", "s", ensemble=False)]
    ranges = [EquivalentRange(within, within, beyond), EquivalentRange(within, beyond, beyond)]
    chart = equivalent_chart(dict(zip(styles, ranges, strict=True)), 4)
    rows = {row["method"]: row for row in rows_of(Figure("", "", "", lambda: chart)) if "method" in row}
    assert [rows["A"][name] for name in ("lower", "central", "beyond", "note")] == [2.5, 2.5, False, "2.5"]
    assert [rows["B"][name] for name in ("beyond", "note", "bounds")] == [True, "> 4", "2.5 to > 4"]
    assert 4 < rows["A"]["upper"] == rows["B"]["central"] < 4.5
