from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dubio.studies.retina.document import gains_document, subgroups_document
from dubio.studies.retina.found import FALSE_ALARMS, Retained
from dubio.studies.retina.looking import gain_statistics, on_grid
from dubio.studies.retina.parts import gain_words
from dubio.studies.retina.subgroups import subgroup_grid, subgroup_words
from dubio.studies.retina.tables import nhs_cell, nhs_grid, over_seeds, retention_grid

from dubio.core.errors import BadFile
from dubio.core.predictions import Predictions
from dubio.metrics.calibration_error import ece
from dubio.metrics.decisions import correct
from dubio.metrics.referral_curve import FRACTIONS, best_sensitivity, retained_roc
from dubio.metrics.selective import referral_gain
from dubio.referral.units import rounded_uncertainty
from dubio.reporting.manifest_view import OTHERS, parts_of, read_manifest
from dubio.reporting.measures import referral_name
from dubio.reporting.page import render
from dubio.reporting.results import Results
from dubio.reporting.scores import report_of, score_run
from dubio.reporting.sections.in_domain import in_domain_table
from dubio.runner.gallery import thumbnail
from dubio.statistics.bootstrap import RunIntervals, replicates_for, units_of
from tests.reporting.helpers import with_scores
from tests.reporting.screening_world import SEEDS, screening_world
from tests.reporting.test_page import EVIL, Outline
from tests.reporting.world import FakeStore, identifier

World = tuple[FakeStore, dict[str, Any]]
ENTROPY = "predictive_entropy"


@pytest.fixture(scope="module")
def world() -> World:
    return screening_world()


@pytest.fixture(scope="module")
def found(world: World) -> Results:
    return score_run(*world)


def runs_of(world: World, method: str, split: str) -> list[Predictions]:
    store, manifest = world
    return [store.predictions[run["id"], split] for run in manifest["runs"] if run["method"] == method]


def test_a_gain_is_the_mean_over_runs_and_its_draws_resample_patients(world: World, found: Results) -> None:
    runs = runs_of(world, "mc-dropout", "poor")
    gathered = RunIntervals()
    for run in runs:
        gathered.add(("gain", "eyes", "poor", "mc-dropout"), run, gain_statistics(run))
    (weights,) = units_of(runs[0]).weights(1000, 0)
    rows = list(weights.replicates())[:12]
    wanted = [np.mean([referral_gain(run.take(each), quantity=ENTROPY) for run in runs]) for each in rows]
    sums = gathered.sums["gain", "eyes", "poor", "mc-dropout", "gain"]
    assert sums.draws[:12] / 2 == pytest.approx(wanted)
    for each in rows:
        assert len({runs[0].group[row] for row in each}) < 40  # type: ignore[index]
        assert all((each == row).sum() == (each == row + 1).sum() for row in range(0, 80, 2))
    gain = found.screening["eyes"].gains["poor", "mc-dropout"]
    assert gain.gain.value == pytest.approx(np.mean([referral_gain(run, quantity=ENTROPY) for run in runs]))
    assert (gain.gain.low, gain.gain.high) == pytest.approx(
        tuple(np.quantile(sums.draws / 2, [0.025, 0.975])), abs=1e-3
    )
    assert gain.units == 40
    assert gain.excludes_zero == (gain.gain.low > 0 or gain.gain.high < 0)
    assert replicates_for(120) == 1000
    assert replicates_for(10**6) == 200


def test_the_gain_is_said_method_by_method(found: Results) -> None:
    said = " ".join(gain_words(found, found.manifest.tasks[0]))
    for split in ("test", "poor", "severe"):
        assert f"On “{split}” " in said
    assert "20 groups (patients) are resampled, fewer than 50: underpowered" in said
    assert said.count("Deterministic") == said.count("MC dropout") == 3


def test_referral_scores_of_a_shift_are_those_of_its_own_rows(world: World, found: Results) -> None:
    run = runs_of(world, "deterministic", "poor")[0]
    order = np.argsort(rounded_uncertainty(run, ENTROPY))
    value = found.cells["eyes", "poor", "deterministic", referral_name("referral_accuracy", 0.5)].values[0]
    assert value == pytest.approx(correct(run)[order[:40]].mean())
    control = found.cells["eyes", "poor", "random-referral", referral_name("referral_accuracy", 0.5)]
    assert control.mean == found.cells["eyes", "poor", "deterministic", "accuracy"].mean


def test_errors_in_the_table_are_standard_errors_over_seeds(found: Results) -> None:
    task, name = found.manifest.tasks[0], referral_name("referral_accuracy", 0.7)
    values = found.cells["eyes", "test", "mc-dropout", name].values
    seeds = over_seeds(found, task, "test", name)["mc-dropout"]
    assert (seeds.mean, seeds.seeds) == (pytest.approx(np.mean(values)), len(SEEDS))
    assert seeds.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(2))
    members = [replace(score, member=1, value=score.value + 0.02) for score in found.scores]
    more = replace(found.report, run=with_scores(found.report.run, (*found.scores, *members)))
    both = over_seeds(replace(found, report=more), task, "test", name)["mc-dropout"]
    assert (both.mean, both.error) == (pytest.approx(seeds.mean + 0.01), pytest.approx(seeds.error))
    table = retention_grid(found, task, "test", "referral_accuracy")
    assert [column.title for column in table.columns] == ["100%", "90%", "80%", "70%", "60%", "50%"]
    assert table.rows[1].cells[3].plain == f"{seeds.mean:.3f} ± {seeds.error:.3f}"
    assert table.rows[-1].control


def test_a_split_of_one_class_has_no_auc_and_says_why(found: Results) -> None:
    task = found.manifest.tasks[0]
    assert found.screening["eyes"].undefined("severe") == "every row is class 'ill'"
    assert nhs_grid(found, task, "severe") is None
    for fraction in FRACTIONS:
        assert found.cells["eyes", "severe", "deterministic", referral_name("referral_auc", fraction)].n == 0
    page = " ".join(Outline(render(report_of(found))).words)
    assert "No AUC and no ROC curve is defined on “severe”: every row is class 'ill'." in page
    assert "Referral on severe" in page
    assert "ROC curves of the retained on severe" not in page
    assert "ROC curves of the retained on poor" in page


def test_the_nhs_point_by_hand(found: Results) -> None:
    one = found.screening["eyes"].retained["test", "deterministic"][0]

    def cell(*reached: float) -> str:
        runs: tuple[Retained, ...] = tuple(replace(one, sensitivity=np.array([value])) for value in reached)
        return nhs_cell(runs, 0).plain

    assert cell(0.85, 0.95) == "yes 0.900"
    assert cell(0.84, 0.80) == "no 0.820"
    assert cell(0.84, 0.90) == "1 of 2 0.870"
    assert cell(np.nan, 0.86) == "yes 0.860"
    assert cell(np.nan) == "undefined"


def test_roc_curves_and_sensitivities_are_those_of_the_metrics(world: World, found: Results) -> None:
    run = runs_of(world, "deterministic", "test")[0]
    seen = found.screening["eyes"].retained["test", "deterministic"][0]
    for fraction in (0.6, 0.9):
        curve = retained_roc(run, fraction=fraction, quantity=ENTROPY)
        wanted = [best_sensitivity(curve, 1 - rate) for rate in FALSE_ALARMS]
        assert seen.roc[fraction] == pytest.approx(wanted)
        assert on_grid(curve) == pytest.approx(wanted)
        assert seen.sensitivity[FRACTIONS.index(fraction)] == pytest.approx(best_sensitivity(curve, 0.8))
    right, wrong = seen.cloud
    assert right[0].sum() == correct(run).sum()
    assert wrong[0].sum() == (~correct(run)).sum()
    assert right[1].sum() + wrong[1].sum() == pytest.approx(run.probs[:, 1].sum(), rel=1e-5)


def test_subgroups_are_calibrated_on_their_own_rows_and_small_ones_are_marked(world: World, found: Results) -> None:
    part = found.screening["eyes"].subgroups["test", "site", "main", "mc-dropout"]
    rows = np.flatnonzero(np.arange(120) % 10 != 0)
    runs = [run.take(rows) for run in runs_of(world, "mc-dropout", "test")]
    assert part.ece.value == pytest.approx(np.mean([ece(run) for run in runs]))
    assert part.accuracy.value == pytest.approx(np.mean([correct(run).mean() for run in runs]))
    assert part.excess.value == pytest.approx(np.mean([run.probs.max(1).mean() - correct(run).mean() for run in runs]))
    assert (part.examples, part.units, part.underpowered) == (108, 60, False)
    assert part.ece.low <= part.ece.value <= part.ece.high
    assert found.screening["eyes"].subgroups["test", "site", "other", "mc-dropout"].underpowered
    table = subgroup_grid(found, found.manifest.tasks[0], "site", "ece")
    assert table.first == "Site"
    assert table.rows[1].title == "other, in “test” (underpowered)"
    assert table.rows[1].cells[2].place == "unranked"
    assert "other in “test” (12)" in subgroup_words(found, found.manifest.tasks[0])


def test_the_same_numbers_are_offered_as_data(found: Results) -> None:
    gains = {(row["split"], row["method"]): row for row in gains_document(found)}
    assert gains.keys() == found.screening["eyes"].gains.keys()
    row = gains["severe", "mc-dropout"]
    assert (row["resampled"], row["replicates"], row["nhs"]["0.5"]) == (20, 1000, "undefined")
    assert row["gain"]["value"] == found.screening["eyes"].gains["severe", "mc-dropout"].gain.value
    assert {part["value"] for part in subgroups_document(found) if part["underpowered"]} >= {"other"}


def test_facts_that_do_not_fit_are_refused_and_rare_values_are_taken_together(world: World) -> None:
    for rows in ("0 1", "0 " * 119 + "2", "0 " * 119 + "-1"):
        manifest = copy.deepcopy(world[1])
        manifest["tasks"][0]["facts"]["test"]["site"]["rows"] = rows
        with pytest.raises(BadFile, match="fact 'site' of split 'test'"):
            read_manifest(manifest)
    column = np.array([f"site {number}" for number in range(20) for _ in range(20 - number)])
    parts = parts_of(column)
    assert len(parts) == 12
    assert parts[OTHERS].sum() == sum(range(1, 10))
    assert np.sum(list(parts.values()), axis=0).tolist() == [1] * len(column)


def test_pictures_are_shown_and_whatever_names_them_stays_text() -> None:
    store, manifest = screening_world(EVIL)
    for (made, split), run in list(store.predictions.items()):
        store.predictions[made, split] = replace(run, ids=np.array([f"{EVIL}{row}" for row in range(len(run))]))
    picture = thumbnail(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    store.pictures[identifier("eyes", "test")] = dict.fromkeys(range(120), picture)
    page = render(report_of(score_run(store, manifest)))
    outline = Outline(page)
    sources = [value for tag, name, value in outline.attributes if (tag, name) == ("img", "src")]
    assert 12 < len(sources) <= 24
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert outline.tags.count("script") == 1
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    assert '<script>alert("x")</script>' not in page
    assert "Sure, and wrong" in " ".join(outline.words)
    without = Outline(render(report_of(score_run(*screening_world()))))
    assert "img" not in without.tags
    assert "Gallery" not in without.words


def test_grades_have_their_own_measures_and_are_screened(world: World) -> None:
    store, manifest = FakeStore(world[1]), copy.deepcopy(world[1])
    manifest["tasks"][0] |= {"target": "ordinal", "classes": ["none", "mild", "severe"], "facts": {}}
    for (made, split), run in world[0].predictions.items():
        grades = np.where(run.labels == 1, 2, np.arange(len(run)) % 2)
        logits = np.concatenate([run.logits, run.logits[..., 1:]], axis=-1)
        store.predictions[made, split] = replace(run, logits=logits, labels=grades, target="ordinal", classes=None)
    store.records = world[0].records
    results = score_run(store, manifest)
    table = in_domain_table(report_of(results).run, results.manifest.tasks[0])
    assert {"Kappa", "RPS", "AUC"} <= {column.title for column in table.columns}
    assert ("test", "deterministic") in results.screening["eyes"].gains
    assert results.cells["eyes", "test", "deterministic", referral_name("referral_auc", 1.0)].n == len(SEEDS)
