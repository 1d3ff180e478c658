from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

from dubio.reporting import Report, build_report, report_texts, write_figures, write_texts
from dubio.reporting.build import Placed
from dubio.studies.ensembles.curve_figures import study_styles
from dubio.studies.ensembles.overview import EnsemblingStudy, study_document, summary_table, task_figures
from dubio.studies.ensembles.study import Study
from tests.reporting.helpers import part_of_run
from tests.reporting.stored_runs import make_world

FIGURES = [
    "equivalents", "curves", "likelihood", "order", "correlations", "tace", "equivalents-pooled", "curves-pooled",
]  # fmt: skip


def test_a_run_without_a_study_has_no_section() -> None:
    store, manifest = make_world((0,))
    report = build_report(store, part_of_run(manifest, "screening"))
    section = EnsemblingStudy()
    assert list(section.blocks(report.run, None)) == []
    assert section.files(report.run) == {}
    assert section.document(report.run) == {"ensembling_study": {}}


def test_the_summary_marks_methods_of_one_sample(study: Study) -> None:
    styles = study_styles([curve.method for curve in study.curves], study)
    titles = [row.title for row in summary_table(study, styles).rows]
    assert "SWA (1 sample)" in titles
    assert not any("augmented" in title for title in titles)


def test_figures_page_and_document(report: Report, study: Study, tmp_path: Path) -> None:
    styles = study_styles(report.run.methods, study)
    names = [figure.name for figure in task_figures(study, styles)]
    assert names == [f"pictures-ensembles-{name}" for name in FIGURES]
    section = EnsemblingStudy()
    # P has published numbers of that data set
    section.studies = {"pictures": replace(study, task=replace(study.task, task="cifar10"))}
    alone = Report(report.run, (Placed("ensembles", "closing", section, 10),))
    page = html.unescape(write_texts(report_texts(alone), tmp_path).read_text("utf-8"))
    assert "vgg-small is not one of P's networks" in page
    assert "in P (VGG16, CIFAR-10, 100 samples)" in page
    assert page.count('id="ensembles"') == 1
    assert "Why TACE must not rank" in page
    assert (tmp_path / "tables" / "ensembles-equivalents.csv").is_file()
    assert (tmp_path / "tables" / "ensembles-published.csv").is_file()
    document = study_document([study])
    json.dumps(document, allow_nan=False)
    assert document["tasks"][0]["compared_with_samples"] == study.compared_samples
    written = write_figures(alone, tmp_path / "figures", ["svg"])
    assert {path.name for path in written} == {f"{name}.{kind}" for name in names for kind in ("svg", "csv", "json")}
