from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dubio.calibration.cross_validation import cross_validate
from dubio.core.predictions import pool_members
from dubio.metrics.decomposition import decompose
from dubio.metrics.quantities import predictive_entropy
from dubio.reporting.build import Report, build_report
from dubio.reporting.page import render
from dubio.reporting.sections.across_tasks import ranking_sentence, rankings
from dubio.reporting.sections.densities import Densities
from dubio.reporting.sections.ensembles import equivalents_of
from dubio.reporting.sections.in_domain import temperature
from dubio.statistics.ensemble_equivalent import equivalent, growth_curve
from dubio.statistics.ranks import critical_difference
from tests.reporting.helpers import figures, with_manifest
from tests.reporting.world import FakeStore, make_world

World = tuple[FakeStore, dict[str, Any]]


@pytest.fixture(scope="module")
def kept_aside() -> World:
    return make_world(kept_aside=400)


@pytest.fixture(scope="module")
def found(kept_aside: World) -> Report:
    return build_report(*kept_aside)


def first_run(manifest: dict[str, Any], task: str, method: str) -> str:
    return str(next(run["id"] for run in manifest["runs"] if (run["task"], run["method"]) == (task, method)))


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
    manifest = {**manifest, "runs": [run for run in manifest["runs"] if run["method"] != "deep-ensemble"]}
    report = build_report(store, manifest)
    assert report.run.growth == {}
    assert all("worth" not in figures(report, task) for task in report.tasks)


def test_entropy_is_the_sum_of_its_parts_at_home_and_away(world: World, report: Report) -> None:
    store, manifest = world
    task = report.run.manifest.tasks[0]
    (section,) = (placed.section for placed in report.sections if isinstance(placed.section, Densities))
    styles, panels = section.entropy_panels(report.run, task)
    titles = [style.title for style in styles]
    assert list(panels) == ["in-domain", "novel", "blur, worst severity", "noise, worst severity"]
    row = titles.index("MC dropout ensemble")
    runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "mc-dropout-ensemble")]
    parts = [decompose(store.predictions[run, "novel"]) for run in runs]
    expected = [np.mean([p.expected_entropy for p in parts]), np.mean([p.mutual_information for p in parts])]
    assert panels["novel"][row] == pytest.approx(expected)
    total = np.mean([predictive_entropy(store.predictions[run, "novel"]) for run in runs])
    assert panels["novel"][row].sum() == pytest.approx(total, rel=1e-5)
    assert panels["in-domain"][titles.index("Deterministic"), 1] == pytest.approx(0.0, abs=1e-9)


def test_entropies_are_drawn_where_there_is_an_elsewhere(report: Report) -> None:
    drawn = {t.key: "entropy" in figures(report, t) for t in report.run.manifest.tasks}
    assert drawn == {"digits": True, "screening": False, "reviews": True}


def test_temperatures_shown_are_the_medians_of_those_cross_validated(world: World, report: Report) -> None:
    store, manifest = world
    task = next(task for task in report.run.manifest.tasks if task.key == "screening")
    figure = next(temperature(report.run, task))
    for row, method in zip(figure.draw.args[0], report.run.manifest.methods, strict=True):  # type: ignore[attr-defined]
        runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("screening", method.name)]
        every = [t for run in runs for t in cross_validate(store.predictions[run, "test"]).temperatures]
        assert row[-1] == pytest.approx(np.median(every))


def test_mean_ranks_over_tasks_come_with_what_they_resolve(report: Report) -> None:
    ranking = rankings(report.run)[0]
    compared = ranking.comparison
    assert ranking.name == "ranks"
    scores = np.array([
        [report.run.scores.cells[task.key, "test", m.name, "calibrated_nll"].mean for m in report.run.manifest.methods]
        for task in report.run.manifest.tasks
    ])  # fmt: skip
    ranks = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [compared.average_ranks[m.title] for m in report.run.manifest.methods] == pytest.approx(ranks)
    assert compared.critical_difference == pytest.approx(critical_difference(6, 3, 0.05))
    assert f"{compared.critical_difference:.2f}" in ranking_sentence(ranking)
    assert "so few test sets resolve little" in ranking_sentence(ranking)


def test_one_task_or_two_methods_are_not_ranked(report: Report) -> None:
    manifest = report.run.manifest
    fewer = with_manifest(report, tasks=manifest.tasks[1:2])
    pair = with_manifest(report, methods=manifest.methods[:2])
    assert figures(fewer) == {}
    assert not [name for name in figures(pair) if name.startswith("ranks")]
    assert 'id="across"' not in render(fewer)


def test_the_ranks_are_a_figure_across_tasks(report: Report) -> None:
    assert "across-ranks" in [name for name, _ in report.figures()]
