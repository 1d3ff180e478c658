"""A page from a small real run: its numbers, its sentences, and a wrong number of trainings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from results.pages import Page, Study
from results.writing import study_lines, trainings_of, write_page

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.reporting.measures import referral_name

FILE = """
name = "few"
seeds = [0, 1]
methods = ["deterministic", "laplace"]

[[task]]
name = "breast-cancer"
network = "mlp"
training = { epochs = 2 }
method.laplace = { structure = "last-kron", samples = 3 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    file = folder / "few.toml"
    file.write_text(FILE, encoding="utf-8")
    return dubio.run(file, store=folder / "store", jobs=1, baselines=False)


def test_a_study_has_its_trainings_its_table_and_the_findings(run):
    study = Study("Few", "few.toml", trainings=4)
    assert len(trainings_of(run.built.run)) == 4
    lines = list(study_lines(study, run))
    text = "\n".join(lines)
    assert lines[0].startswith("Seeds 0, 1; 4 trainings whose weights predict, ")
    cell = run.results.cell(run.built.run.tasks[0], "test", "laplace", "accuracy")
    assert f"| laplace | 2 | {cell.mean:.3f} ± {cell.std:.3f} |" in text
    assert any(line.startswith("- ") for line in lines)
    with pytest.raises(UserError, match="has 4 trainings"):
        list(study_lines(replace(study, trainings=5), run))


def test_tables_of_named_sections_are_those_of_the_report(run):
    study = Study("Few", "few.toml", trainings=4, sections=("two-class-referral",))
    lines = list(study_lines(study, run))
    assert "#### Gain over random referral" in lines
    cell = run.results.cell(run.built.run.tasks[0], "test", "laplace", referral_name("referral_auc", 1.0))
    assert f"| {cell.mean:.3f} ± {cell.std:.3f} |" in "\n".join(lines)
    with pytest.raises(UnknownName, match="two-class-referral"):
        list(study_lines(replace(study, sections=("two-class-referal",)), run))


def test_a_page_states_version_command_and_is_written_at_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Page, "path", property(lambda page: tmp_path / f"{page.name}.md"))
    study = Study(
        "Few", "few.toml --data {data}/x", trainings=4, made_of="two of each", figures=("breast-cancer-referral",)
    )
    page = Page("few", "A page", (study,), scope="Nothing follows from these.")
    text = write_page(page, {study: run}).read_text(encoding="utf-8")
    assert "\nNothing follows from these.\n" in text
    assert "![Referral curves](figures/breast-cancer-referral.png)" in text
    assert (tmp_path / "figures" / "breast-cancer-referral.png").read_bytes().startswith(b"\x89PNG")
    wrong = replace(study, figures=("breast-cancer-referal",))
    with pytest.raises(UnknownName, match="breast-cancer-referral"):
        write_page(Page("few", "A page", (wrong,)), {wrong: run})
    assert text.startswith("# A page\n")
    assert f"Made with dubio {dubio.__version__}, commit " in text
    assert "dubio run few.toml --data DATA/x" in text
    assert "4 trainings (two of each)" in text
