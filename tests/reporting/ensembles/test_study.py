from __future__ import annotations

import csv
import html
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.reporting import write_figures, write_report
from dubio.reporting.manifest_view import read_manifest, twins_of
from dubio.reporting.measures import AT_IN_DOMAIN_TEMPERATURE
from dubio.reporting.results import Results
from dubio.reporting.scores import report_of, score_run
from dubio.reporting.sections.shift import averaged_series, many_corruptions
from dubio.reporting.style import styles_of
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.document import study_document
from dubio.studies.ensembles.gathering import has_study, random_orders
from dubio.studies.ensembles.paper_tables import augmentation_tables, sample_tables
from dubio.studies.ensembles.part import ensembles_part
from dubio.studies.ensembles.plates import averaged_plates, study_plates
from dubio.studies.ensembles.prefixes import MEASURES, fixed_order, prefix_scores
from dubio.studies.ensembles.study import SCORED, Study
from dubio.studies.ensembles.tables import table_files
from dubio.studies.ensembles.worths import averaged_worths
from tests.reporting.ensembles.study_world import NETWORKS, SAMPLES, make_study
from tests.reporting.world import FakeStore

World = tuple[FakeStore, dict[str, Any]]


def explicit_equivalent(curve: list[float], value: float) -> float:
    """The least l ≥ 1 at which the curve, linear in between, is down at the value, but for rounding."""
    value += 1e-9
    if curve[0] <= value:
        return 1.0
    for whole in range(1, len(curve)):
        if curve[whole] <= value:
            return whole + (curve[whole - 1] - value) / (curve[whole - 1] - curve[whole])
    return math.inf


def test_a_run_has_a_study_by_its_methods_samples_and_networks_alone(study_world: World) -> None:
    _, manifest = study_world
    view = read_manifest(manifest)
    assert has_study(view, view.tasks[0])
    fewer = replace(view, methods=tuple(m for m in view.methods if m.registered not in ("mc-dropout", "laplace")))
    assert not has_study(fewer, fewer.tasks[0])
    networks = [run for run in view.runs if run.method == "deterministic"]
    lone = replace(view, runs=tuple(run for run in view.runs if run not in networks[7:]))
    assert not has_study(lone, lone.tasks[0])


def test_an_ordinary_run_has_none(results: Results) -> None:
    assert results.studies == {}
    assert ensembles_part(results, lambda plate, prefix: {}) == {}
    assert table_files(list(results.studies.values())) == {}
    assert study_document(results) == {}


def test_twins_differ_in_views_alone_and_share_their_colour(study_world: World) -> None:
    view = read_manifest(study_world[1])
    twins = twins_of(view.methods)
    assert twins == {
        "deterministic-views": "deterministic", "deep-ensemble-views": "deep-ensemble", "swag-views": "swag",
        "swa-views": "swa", "laplace-last-views": "laplace-last",
    }  # fmt: skip
    drawn = styles_of(view.methods)
    assert drawn["swag-views"].colour == drawn["swag"].colour
    assert drawn["swag-views"].line["linestyle"] != drawn["swag"].line["linestyle"]
    other = [replace(m, settings='{"lr": 1}') if m.name == "swag-views" else m for m in view.methods]
    assert "swag-views" not in twins_of(other)


def test_a_line_holds_every_run_with_its_first_samples(study: Study, study_world: World) -> None:
    store, manifest = study_world
    line = study.by_name["swag"]
    assert line.sizes == (1, 2, 3, 5)
    runs = [run["id"] for run in manifest["runs"] if run["method"] == "swag"]
    for values, identifier in zip(line.values, runs, strict=True):
        predictions = store.predictions[identifier, "test"]
        assert np.allclose(values, prefix_scores(predictions, [fixed_order(predictions)], line.sizes)[0])
    assert study.by_name["deterministic"].samples == 1
    assert study.by_name["deterministic-views"].samples == SAMPLES
    assert study.by_name["swag-ensemble"].role == "ensemble"


def test_the_deep_ensemble_grows_in_random_orders_of_all_networks(study: Study) -> None:
    pool = study.pool
    assert pool is not None
    assert pool.samples == NETWORKS + 1 == len(study.growth)  # nine of the first seed, one of the second
    assert len(pool.values) == len(random_orders(NETWORKS))
    twin = study.twin(pool)
    assert twin is not None
    assert twin.samples == NETWORKS
    for size, worth in zip(pool.sizes, study.equivalents(pool), strict=True):
        # the last networks of the pool need not make it better, and then fewer are worth as much
        assert worth.central.size <= size + 1e-6
        assert size > 5 or worth.central.size == pytest.approx(size, abs=1e-6)


@pytest.mark.parametrize("score", SCORED)
def test_equivalents_are_explicit_interpolation(study: Study, score: Any) -> None:
    mean, std = study.growth.mean[score], study.growth.std[score]
    for line in study.lines:
        for value, worth in zip(line.mean(SCORED[score]), study.equivalents(line, score), strict=True):
            for part, curve in ((worth.lower, mean - std), (worth.central, mean), (worth.upper, mean + std)):
                assert part.size == pytest.approx(explicit_equivalent(list(curve), value), rel=1e-5)


def test_what_has_one_sample_stands_in_every_row_and_others_as_far_as_they_go(study: Study) -> None:
    single, drawn = study.by_name["deterministic"], study.by_name["swag"]
    assert single.at("error", 5) == single.at("error", 1)
    assert drawn.at("error", 10) is None
    assert study.equal == 5


def test_averaging_over_networks_is_the_mean_and_beyond_where_one_is(study: Study) -> None:
    line = study.by_name["snapshot-ensemble"]
    (alone,) = averaged_worths([study, study], [line], "nll")
    assert np.allclose(alone.central, [each.central.size for each in study.equivalents(line)])
    strong, weak = (
        replace(study, growth=replace(study.growth, mean={k: v + by for k, v in study.growth.mean.items()}))
        for by in (-10, 10)
    )
    (mixed,) = averaged_worths([study, strong], [line], "nll")
    assert np.allclose(mixed.central, (alone.central + 1) / 2)
    (beyond,) = averaged_worths([study, weak], [line], "nll")
    assert np.isinf(beyond.central).all()
    assert len(list(averaged_plates(read_manifest(make_study()[1]), [study]))) == 0


def test_tables_have_the_papers_layout(study: Study) -> None:
    tables = sample_tables([study])
    assert [table.title.partition(" on ")[0].split(" (")[0] for table in tables] == [
        "Error", "Calibrated NLL", "Calibrated Brier", "Calibrated AURC",
    ]  # fmt: skip
    grid = tables[1].grid
    assert [column.title for column in grid.columns][:2] == ["Single network", "Deep ensemble"]
    assert [row.title for row in grid.rows][:2] == ["vgg-small (1 sample)", "vgg-small (2 samples)"]
    swag = [column.title for column in grid.columns].index("SWAG")
    cell = study.by_name["swag"].at("calibrated_nll", 5)
    assert cell is not None
    row = next(row for row in grid.rows if row.title == "vgg-small (5 samples)")
    assert float(row.cells[swag].text) == pytest.approx(cell.mean, abs=6e-4)
    versus = augmentation_tables([study])[1].grid
    assert {column.title for column in versus.columns} == {
        "Single network", "Deep ensemble", "SWA (1 sample)", "SWAG", "Laplace, last layer",
    }  # fmt: skip
    assert all(cell.text[-1] in "↓↑≈" for row in versus.rows for cell in row.cells if " vs " in cell.text)


def test_files_hold_every_curve(study: Study) -> None:
    files = table_files([study])
    assert {"pictures-by-samples.md", "pictures-by-samples.csv", "pictures-by-augmentation.md"} < set(files)
    rows = list(csv.DictReader(io.StringIO(files["ensembles-curves.csv"])))
    assert len(rows) == sum(line.values.size for line in study.lines)
    own = [r for r in rows if (r["method"], r["samples"], r["measure"]) == ("swag", "3", "calibrated_nll")]
    place = MEASURES.index("calibrated_nll")
    assert [float(r["value"]) for r in own] == [float(run[2, place]) for run in study.by_name["swag"].values]
    widths = {line.count("|") for line in files["pictures-by-samples.md"].splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_conclusions_follow_from_the_numbers(study: Study) -> None:
    found = {claim.where: claim for claim in conclusions([study])}
    networks = found["P Fig. 3, §5"]
    for each in networks.evidence:
        title = each.text.removeprefix("pictures: ").partition(" with ")[0]
        assert title != "SWA"  # one network is no ensemble
        line = next(line for line in study.lines if line.method.title == title)
        worth = study.equivalent_at(line, study.equal)
        assert worth is not None
        assert each.outcome != "supports" or worth.upper.size < study.equal
        assert each.outcome != "contradicts" or worth.lower.size > study.equal
    helped = found["P Table 1, §4.3"]
    titles = [each.text.partition("NLL of ")[2].partition(" by ")[0] for each in helped.evidence]
    assert titles == ["Single network", "SWA", "Laplace, last layer"]  # those that have a twin
    assert helped.evidence[0].outcome == "supports"
    assert "comparison" in helped.tally


def test_figures_page_and_document(scored: Results, study_world: World, tmp_path: Path, study: Study) -> None:
    slugs = [plate.slug for plate in study_plates(scored.manifest, study)]
    assert slugs == ["worth", "curves", "likelihood", "order", "beside", "tace", "worth-pooled", "curves-pooled"]
    known = replace(study, task=replace(study.task, corpus="cifar10"))  # P has published numbers of that
    page = write_report(report_of(replace(scored, studies={"pictures": known})), tmp_path).read_text("utf-8")
    assert "Beside the published numbers" in page
    assert "vgg-small is none of P's networks" in html.unescape(page)
    assert "in P (VGG16, CIFAR-10, 100 samples)" in page
    assert page.count('id="ensembles"') == 1
    assert "Why TACE must not rank" in page
    assert (tmp_path / "tables" / "ensembles-equivalents.csv").is_file()
    document = study_document(scored)
    json.dumps(document, allow_nan=False)
    assert document["tasks"][0]["compared_with_samples"] == study.equal
    lone = replace(scored, manifest=replace(scored.manifest, tasks=()))
    written = write_figures(report_of(lone), tmp_path / "figures", ["svg"])
    assert {path.name for path in written} >= {f"pictures-ensembles-{slug}.svg" for slug in slugs}


def test_many_corruptions_are_looked_at_together() -> None:
    store, manifest = make_study(corrupted=True)
    keep = ("deterministic", "swag")
    manifest["methods"] = [row for row in manifest["methods"] if row["name"] in keep]
    manifest["runs"] = [run for run in manifest["runs"] if run["method"] in keep and run["seed"] == 1]
    found = score_run(store, manifest)
    task = found.manifest.tasks[0]
    assert task.many_corruptions
    assert task.farthest == ()
    assert [(place.title, len(place.splits)) for place in task.test_sets] == [("4 corruptions", 8)]
    view = found.report.run
    series = averaged_series(view, task, "accuracy", "accuracy")
    names = [splits[1].name for splits in task.severities.values()]
    expected = np.mean([found.cells[task.key, name, "swag", "accuracy"].mean for name in names])
    assert series[1].mean[2] == pytest.approx(expected)
    run = next(run for run in manifest["runs"] if run["method"] == "swag")
    temperature = float(np.median(view.scores.temperatures[task.key, "swag"].values))
    known = store.predictions[run["id"], "fog-2"]
    powers = known.probs ** (1 / temperature)
    own = powers[np.arange(len(known)), known.labels] / powers.sum(axis=1)
    cell = found.cells[task.key, "fog-2", "swag", AT_IN_DOMAIN_TEMPERATURE]
    assert cell.mean == pytest.approx(-np.log(own).mean(), rel=1e-5)
    figures = list(many_corruptions(view, task))
    assert [figure.name for figure in figures] == ["severity", "severity-each"]
    for figure in figures:
        assert figure.draw().axes
