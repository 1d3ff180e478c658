from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.calibration.cross_validation import cross_validate
from dubio.core.predictions import pool_members
from dubio.metrics.decomposition import decompose
from dubio.metrics.quantities import predictive_entropy
from dubio.reporting.page import render
from dubio.reporting.results import Results
from dubio.reporting.scores import report_of, score_run
from dubio.reporting.sections.across_tasks import ranking_sentence, rankings
from dubio.reporting.sections.densities import Densities
from dubio.reporting.sections.ensembles import equivalent_rows
from dubio.reporting.sections.in_domain import temperature
from dubio.statistics.ensemble_equivalent import equivalent, growth_curve
from dubio.statistics.ranks import critical_difference
from tests.reporting.helpers import figures
from tests.reporting.world import FakeStore, make_world

World = tuple[FakeStore, dict[str, Any]]


@pytest.fixture(scope="module")
def kept_aside() -> World:
    return make_world(kept_aside=400)


@pytest.fixture(scope="module")
def found(kept_aside: World) -> Results:
    return score_run(*kept_aside)


def first_run(manifest: dict[str, Any], task: str, method: str) -> str:
    return str(next(run["id"] for run in manifest["runs"] if (run["task"], run["method"]) == (task, method)))


def test_the_equivalent_is_read_off_the_curve_of_all_deterministic_networks(world: World, results: Results) -> None:
    store, manifest = world
    runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("reviews", "deterministic")]
    curve = growth_curve(pool_members([store.predictions[run, "test"] for run in runs]), orders=10)
    task = next(task for task in results.manifest.tasks if task.key == "reviews")
    shown = {style.title: each.central for style, each in equivalent_rows(results.report.run, task)}
    assert len(shown) == 6
    for method in results.manifest.methods:
        mean = results.cells["reviews", "test", method.name, "calibrated_nll"].mean
        expected = equivalent(curve.mean["nll"], mean)
        assert shown[method.title].size == pytest.approx(expected.size)
        assert shown[method.title].longest == len(runs)


def test_without_a_deep_ensemble_there_is_no_equivalent() -> None:
    store, manifest = make_world((0,))
    manifest = {**manifest, "runs": [run for run in manifest["runs"] if run["method"] != "deep-ensemble"]}
    results = score_run(store, manifest)
    assert results.report.run.growth == {}
    assert all("worth" not in figures(results.report, task) for task in results.report.tasks)


def test_entropy_is_the_sum_of_its_parts_at_home_and_away(world: World, results: Results) -> None:
    store, manifest = world
    task = results.manifest.tasks[0]
    (section,) = (placed.section for placed in results.report.sections if isinstance(placed.section, Densities))
    panels = section.entropy_panels(results.report.run, task)
    assert [panel.title for panel in panels] == ["in-domain", "novel", "blur, worst severity", "noise, worst severity"]
    place = [style.title for style in panels[1].styles].index("MC dropout ensemble")
    runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "mc-dropout-ensemble")]
    parts = [decompose(store.predictions[run, "novel"]) for run in runs]
    expected = [np.mean([p.expected_entropy for p in parts]), np.mean([p.mutual_information for p in parts])]
    assert panels[1].parts[place] == pytest.approx(expected)
    whole = np.mean([predictive_entropy(store.predictions[run, "novel"]) for run in runs])
    assert panels[1].parts[place].sum() == pytest.approx(whole, rel=1e-5)
    single = [style.title for style in panels[0].styles].index("Deterministic")
    assert panels[0].parts[single, 1] == pytest.approx(0.0, abs=1e-9)


def test_entropies_are_drawn_where_there_is_an_elsewhere(results: Results) -> None:
    drawn = {t.key: "entropy" in figures(results.report, t) for t in results.manifest.tasks}
    assert drawn == {"digits": True, "screening": False, "reviews": True}


def test_temperatures_shown_are_the_medians_of_those_cross_validated(world: World, results: Results) -> None:
    store, manifest = world
    task = next(task for task in results.manifest.tasks if task.key == "screening")
    figure = next(temperature(report_of(results).run, task))
    for row, method in zip(figure.draw.args[0], results.manifest.methods, strict=True):  # type: ignore[attr-defined]
        runs = [r["id"] for r in manifest["runs"] if (r["task"], r["method"]) == ("screening", method.name)]
        every = [t for run in runs for t in cross_validate(store.predictions[run, "test"]).temperatures]
        assert row.temperature == pytest.approx(np.median(every))


def test_mean_ranks_over_tasks_come_with_what_they_resolve(results: Results) -> None:
    ranking = rankings(results.report.run)[0]
    compared = ranking.comparison
    assert ranking.name == "ranks"
    scores = np.array([
        [results.cells[task.key, "test", m.name, "calibrated_nll"].mean for m in results.manifest.methods]
        for task in results.manifest.tasks
    ])  # fmt: skip
    ranks = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [compared.average_ranks[m.title] for m in results.manifest.methods] == pytest.approx(ranks)
    assert compared.critical_difference == pytest.approx(critical_difference(6, 3, 0.05))
    assert f"{compared.critical_difference:.2f}" in ranking_sentence(ranking)
    assert "so few test sets resolve little" in ranking_sentence(ranking)


def test_one_task_or_two_methods_are_not_ranked(results: Results) -> None:
    manifest = results.manifest
    fewer = replace(results, manifest=replace(manifest, tasks=manifest.tasks[1:2]))
    pair = replace(results, manifest=replace(manifest, methods=manifest.methods[:2]))
    assert figures(report_of(fewer)) == {}
    assert not [name for name in figures(report_of(pair)) if name.startswith("ranks")]
    assert 'id="across"' not in render(report_of(fewer))


def test_the_ranks_are_a_figure_across_tasks(results: Results) -> None:
    assert "across-ranks" in [name for name, _ in report_of(results).figures()]
