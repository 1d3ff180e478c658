from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from dubio.calibration.cross_validation import cross_validate
from dubio.core.predictions import pool_members
from dubio.metrics.decomposition import decompose
from dubio.metrics.quantities import predictive_entropy
from dubio.referral import NoGuarantee, fit_risk_policy
from dubio.referral.units import rounded_uncertainty
from dubio.reporting.operating import operating_of
from dubio.reporting.page import render
from dubio.reporting.promise_cells import promise_cells
from dubio.reporting.promise_tables import promise_grid
from dubio.reporting.promises import exact_interval, target_of
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


def test_the_target_is_half_the_reference_methods_error_on_the_test_set(found: Results) -> None:
    for task in found.manifest.tasks:
        error = 1 - found.cells[task.key, "test", "deterministic", "accuracy"].mean
        assert {p.target for p in found.promises[task.key].values()} == {float(f"{error / 2:.2g}")}
    assert target_of(0.0) is None


def test_a_policy_and_its_operating_point_are_those_of_the_first_run(kept_aside: World, found: Results) -> None:
    store, manifest = kept_aside
    made = 0
    for method, promise in found.promises["digits"].items():
        run = first_run(manifest, "digits", method)
        calibration, test = store.predictions[run, "cal"], store.predictions[run, "test"]
        options = {"max_risk": promise.target, "confidence": 0.9, "quantity": "predictive_entropy"}
        assert promise.run.id == run
        if promise.policy is None:
            with pytest.raises(NoGuarantee) as refusal:
                fit_risk_policy(calibration, **options)  # type: ignore[arg-type]
            assert promise.best == (refusal.value.upper, refusal.value.coverage)
            continue
        made += 1
        policy = fit_risk_policy(calibration, **options)  # type: ignore[arg-type]
        kept = rounded_uncertainty(test, "predictive_entropy") <= policy.threshold
        wrong = test.probs.argmax(axis=1) != test.labels
        home = promise.home
        assert home is not None
        assert home.retained == pytest.approx(kept.mean())
        assert home.error == pytest.approx(wrong[kept].mean())
        assert home.interval is not None
        exact = binomtest(int(wrong[kept].sum()), int(kept.sum())).proportion_ci(0.95)
        assert home.interval == pytest.approx((exact.low, exact.high))
    assert made > 0


def test_what_shift_did_to_a_policy_is_tested_on_the_worst_severity_of_each_corruption(
    kept_aside: World, found: Results
) -> None:
    store, manifest = kept_aside
    method, promise = next((n, p) for n, p in found.promises["digits"].items() if p.policy is not None)
    run = first_run(manifest, "digits", method)
    assert [seen.split for seen in promise.away] == ["novel", "blur-5", "noise-5"]
    calibration = predictive_entropy(store.predictions[run, "cal"])
    for seen in promise.away:
        reference = ks_2samp(predictive_entropy(store.predictions[run, seen.split]), calibration)
        assert seen.shift == pytest.approx(reference.pvalue, rel=0.2)
        assert (seen.error is None) == (seen.split == "novel")
    table = promise_grid(found, found.manifest.tasks[0])
    assert table is not None
    heads = [(column.title, column.sub) for column in table.columns[-3:]]
    assert heads == [("Kept, shift", "novel"), ("Error, kept, shift", "blur, at its worst"),
                     ("Error, kept, shift", "noise, at its worst")]  # fmt: skip


def test_the_outcome_of_a_promise_follows_from_error_interval_and_target(found: Results) -> None:
    promise = next(p for p in found.promises["digits"].values() if p.home is not None)
    assert promise.home is not None
    cases = [
        (0.04, (0.02, 0.07), "held"),
        (0.06, (0.03, 0.10), "above, undecided"),
        (0.09, (0.06, 0.13), "broken"),
        (0.09, None, "above"),
        (None, None, "nothing kept"),
    ]
    for error, interval, outcome in cases:
        home = replace(promise.home, error=error, interval=interval)
        assert replace(promise, target=0.05, home=home).outcome == outcome


def test_an_interval_without_errors_ends_at_zero_and_with_errors_alone_at_one() -> None:
    assert exact_interval(0.0, 20) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))
    assert exact_interval(1.0, 20) == pytest.approx((0.025 ** (1 / 20), 1.0))


def test_a_method_without_a_policy_says_what_could_be_guaranteed() -> None:
    store, manifest = make_world((0,), kept_aside=12)
    results = score_run(store, manifest)
    promise = results.promises["screening"]["deterministic"]
    assert promise.policy is None
    assert promise.best is not None
    cells = promise_cells(promise)
    assert cells[".threshold"].text == "none"
    assert f"below {promise.best[0]:.2g}" in cells[".outcome"].plain or "none can be made" in cells[".outcome"].plain
    task = next(task for task in results.manifest.tasks if task.key == "screening")
    assert "operating" not in figures(results.report, task)
    table = promise_grid(results, task)
    assert table is not None
    assert [column.title for column in table.columns] == ["Threshold", "Promise", "Would take"]


def test_without_a_calibration_split_nothing_is_promised(results: Results) -> None:
    for task in results.manifest.tasks:
        assert not results.promises[task.key]
        assert promise_grid(results, task) is None
        assert operating_of(results, task) == []
    alone = replace(results, manifest=replace(results.manifest, tasks=(task,)))
    assert "Asked of the first run" not in render(report_of(alone))


def test_the_page_and_the_figures_show_the_promise(found: Results) -> None:
    task = found.manifest.tasks[0]
    assert "operating" in figures(found.report, task)
    page = render(report_of(replace(found, manifest=replace(found.manifest, tasks=(task,)))))
    assert "A promise" in page
    assert f"below {next(iter(found.promises['digits'].values())).target:g}" in page


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
