"""A page from a small real run: its numbers, its sentences, and a wrong number of trainings."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest
from results.pages import Across, Page, Study, page_named
from results.tables import severity_table
from results.writing import (
    SPREADS,
    block_lines,
    blocks_lines,
    sections_of,
    study_lines,
    summary_lines,
    trainings_of,
    version_sentence,
    without_headings,
    write_page,
)

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.reporting import build_report
from dubio.reporting.claims import Claim, Evidence, claim_blocks
from dubio.reporting.measures import referral_name
from dubio.reporting.section import Cards, Figure, Headline, Text
from dubio.reporting.sections.findings import how_to_read
from dubio.reporting.tables import Column, Table, folded, plain_table
from dubio.studies.text.published import Paper
from results import writing
from tests.executor_here import training_here
from tests.reporting.helpers import on_tasks
from tests.reporting.stored_runs import make_text_world
from tests.studies.ensembles.helpers import make_study

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
    with training_here():
        return dubio.run(file, store=folder / "store", jobs=1, baselines=False)


def test_a_study_has_its_trainings_its_table_and_the_findings(run):
    study = Study("Few", "few.toml", trainings=4)
    assert len(trainings_of(run.built.run)) == 4
    lines = list(study_lines(study, run))
    text = "\n".join(lines)
    assert lines[0].startswith(f"Made with dubio {dubio.__version__}, commit ")
    assert "Seeds 0, 1; 4 trainings, " in lines[0]
    sizes = {split.kind: f"{split.examples:,}" for split in run.built.run.tasks[0].splits}
    assert f"Examples: {sizes['train']} to train on, {sizes['id']} to test on in-domain" in text
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
        "Few", "few.toml --data {data}/x", trainings=4, made_of="two of each", figures=("breast-cancer-referral",),
        prefix="few-",
    )  # fmt: skip
    page = Page("few", "A page", (study,), scope="Nothing follows from these.")
    assert write_page(page, {study: run}) == ()
    text = page.path.read_text(encoding="utf-8")
    assert "\nNothing follows from these.\n" in text
    assert "![Referral curves](figures/few-breast-cancer-referral.png)" in text
    assert (tmp_path / "figures" / "few-breast-cancer-referral.png").read_bytes().startswith(b"\x89PNG")
    wrong = replace(study, figures=("breast-cancer-referal",))
    with pytest.raises(UnknownName, match="breast-cancer-referral"):
        write_page(Page("few", "A page", (wrong,)), {wrong: run})
    assert text.startswith("# A page\n")
    assert f"Made with dubio {dubio.__version__}, commit " in text
    assert "dubio run few.toml --data DATA/x" in text
    assert "4 trainings (two of each)" in text


def test_a_page_names_the_commit_of_the_code_whatever_documents_changed(tmp_path, monkeypatch):
    """Sections written before are uncommitted changes, too, and are not the code that made this one."""
    monkeypatch.setattr(writing, "ROOT", tmp_path)
    for name in ("docs/page.md", "src/code.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("first\n", encoding="utf-8")
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    clean = version_sentence.__wrapped__()
    (tmp_path / "docs/page.md").write_text("second\n", encoding="utf-8")
    assert version_sentence.__wrapped__() == clean
    assert "-dirty" not in clean
    (tmp_path / "src/code.py").write_text("second\n", encoding="utf-8")
    assert version_sentence.__wrapped__() == clean.replace(". Trainings", "-dirty. Trainings")


def test_sections_of_studies_without_a_run_stay_as_they_are(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Page, "path", property(lambda page: tmp_path / f"{page.name}.md"))
    few, earlier, later = Study("Few", "few.toml", 4), Study("Earlier", "e.toml", 1), Study("Later", "l.toml", 1)
    page = Page("few", "A page", (earlier, few, later), across=Across("All", ("Few", "Later")))
    page.path.write_text(
        "# A page\n\n## Few\n\nold\n\n## Gone\n\nx\n\n## Earlier\n\nkept\n\n### as it is\n", encoding="utf-8"
    )
    assert write_page(page, {few: run}) == ("Gone",)
    sections = sections_of(page.path.read_text(encoding="utf-8"))
    assert list(sections) == ["Earlier", "Few", "Later", "All"]
    assert sections["Earlier"] == ["", "kept", "", "### as it is", ""]
    assert "old" not in sections["Few"]
    assert any(line.startswith("| laplace |") for line in sections["Few"])
    assert [line for line in sections["Later"] + sections["All"] if line] == ["Not run yet.", "Not run yet."]
    unchanged = page.path.read_bytes()
    assert write_page(page, {few: run}) == ()
    assert page.path.read_bytes() == unchanged


def test_a_page_ends_with_its_studies_together(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Page, "path", property(lambda page: tmp_path / f"{page.name}.md"))
    few = Study("Few", "few.toml", 4)
    write_page(Page("few", "A page", (few,), across=Across("All", ("Few",), ("cost", "setup"))), {few: run})
    lines = sections_of((tmp_path / "few.md").read_text(encoding="utf-8"))["All"]
    assert any(line.endswith("The sections together: Few (two seeds).") for line in lines)
    other = Study("Other", "other.toml", 1)
    write_page(Page("few", "A page", (few, other), across=Across("All", ("Few", "Other"))), {few: run})
    assert sections_of((tmp_path / "few.md").read_text(encoding="utf-8"))["All"] == lines


def test_studies_of_different_numbers_of_seeds_are_compared_together(run, tmp_path, monkeypatch):
    """The command of a study with three seeds was written again with one, for the section on several studies."""
    monkeypatch.setattr(Page, "path", property(lambda page: tmp_path / f"{page.name}.md"))
    file = tmp_path / "one.toml"
    other = FILE.replace("seeds = [0, 1]", "seeds = [0]").replace('name = "few"', 'name = "one"')
    entry = 'name = "breast-cancer"\ncalled = "other"\narguments = { split_seed = 1 }'
    file.write_text(other.replace('name = "breast-cancer"', entry), encoding="utf-8")
    with training_here():
        once = dubio.run(file, store=run.store, jobs=1, baselines=False)
    few, one = Study("Few", "few.toml", 4), Study("One", "one.toml", 2)
    across = Across("All", ("Few", "One"), ("across",))
    write_page(Page("both", "A page", (few, one), across=across), {few: run, one: once})
    lines = sections_of((tmp_path / "both.md").read_text(encoding="utf-8"))["All"]
    assert any(line.endswith("The sections together: Few (two seeds); One (one seed).") for line in lines)
    (row,) = (line for line in lines if line.startswith("| Laplace |"))
    cells = [own.results.cell(own.built.run.tasks[0], "test", "laplace", "calibrated_nll") for own in (run, once)]
    assert f"| {cells[0].mean:.3f} ± {cells[0].std:.3f} | {cells[1].mean:.3f} (1 run)" in row


def test_a_page_says_once_how_significance_and_spreads_are_computed(run, tmp_path, monkeypatch):
    """The same paragraph stood below every one of ten sections, with another last sentence for three seeds."""
    monkeypatch.setattr(Page, "path", property(lambda page: tmp_path / f"{page.name}.md"))
    few, again = Study("Few", "few.toml", 4), Study("Again", "few.toml", 4)
    write_page(Page("few", "A page", (few, again)), {few: run, again: run})
    text = (tmp_path / "few.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if "Two methods are significantly different if" in line)
    assert line.endswith(f"these data do not decide. {SPREADS}")
    assert text.index(line) < text.index("## Few")
    assert text.count("Spreads are standard deviations") == 1
    assert how_to_read(run.built.run).partition("Spreads are ")[0] + SPREADS == line


def test_a_page_begins_with_the_first_finding_on_every_task():
    sections = {
        "One": ["", "| a |", "- A leads.", "- B follows."],
        "Two": ["### first", "", "- C leads.", "### second", "- D leads."],
        "Over both": ["- **A claim**: supported.", "    - evidence"],
    }
    assert list(summary_lines(sections))[3:] == [
        "- **One**: A leads.", "- **Two, first**: C leads.", "- **Two, second**: D leads."]  # fmt: skip
    assert list(summary_lines({"One": ["Not run yet."]})) == []


def test_a_text_below_a_folded_table_is_left_out_with_it():
    """Sentences of ranks stood one after another without the tables that they are about."""
    table = plain_table("method", (Column("x"),), {"a": ["1"]})
    blocks = [Headline("One"), table, Text("of the first"), folded(table, "A"), Text("of A"), Text("more of A"),
              folded(table, "B"), Text("of B"), Headline("Two"), Text("of two"), folded(table, "C"), Text("of C"),
              replace(table, title="D", shown=True), Text("of D"), folded(table, "E"),
              Figure("f", "F", "", lambda: None), Text("of F")]  # fmt: skip
    text = "\n".join(blocks_lines(blocks))
    assert re.findall(r"^(?:more )?of .*$", text, re.M) == ["of the first", "of two", "of D", "of F"]
    assert text.endswith("The report that the command writes has further tables: A; B; C; E.")


def test_a_page_leaves_out_what_stands_below_some_headings():
    table = plain_table("method", (Column("x"),), {"a": ["1"]})
    blocks = [Text("source"), Headline("clinc: published"), table, Text("of clinc"), Headline("Conclusions"),
              Text("of all")]  # fmt: skip
    assert list(without_headings(blocks, (": published",))) == [blocks[0], *blocks[4:]]
    assert list(without_headings(blocks, ("Conclusions",))) == blocks[:4]
    assert list(without_headings(blocks, ())) == blocks


def test_headings_that_the_text_page_leaves_out_are_those_of_the_report():
    """With another heading, what stands below it would be shown twice again."""
    page, report = page_named("text"), build_report(*make_text_world())
    texts = [task for task in report.run.tasks if task.inputs == "text"]
    clinc = replace(texts[0], name="clinc", network="textcnn", classes=tuple(map(str, range(150))))
    blocks = list(Paper().blocks(on_tasks(report.run, (clinc,)), None))
    shown = [{type(block) for block in without_headings(blocks, own.without)} for own in (page.studies[0], page.across)]
    assert [types & {Table, Cards} for types in shown] == [{Table}, {Cards}]


def test_claims_and_texts_become_lists_and_folded_texts_do_not():
    claim = Claim("It is so.", "T, Section 1", (Evidence("supports", "0.1 against 0.2"),))
    lines = [line for line in blocks_lines(claim_blocks((claim,), "Claims")) if line]
    tally = "Supported (one comparison: 1 for, 0 against, 0 undecided)."
    evidence = "    - 0.1 against 0.2 (supports)"
    assert lines == ["#### Claims", f"- **It is so** (T, Section 1): {tally}", evidence]
    many = replace(claim, evidence=(*claim.evidence, *[Evidence("undecided", "0.1 against 0.1")] * 3))
    assert [line for line in blocks_lines(claim_blocks((many,), "Claims")) if line.startswith("  ")] == [evidence]
    few = replace(many, evidence=many.evidence[:3])
    assert sum(line.startswith("  ") for line in blocks_lines(claim_blocks((few,), "Claims"))) == 3
    assert list(block_lines(Text(("a", "b")))) == ["", "- a", "- b"]
    assert not list(block_lines(Text("a", title="folded")))


def test_a_table_too_wide_for_a_page_of_text_is_named():
    few, many = (plain_table("method", (Column("x"),) * n, {"a": ["1"] * n}) for n in (3, 21))
    assert "| a | 1 | 1 | 1 |" in "\n".join(block_lines(few))
    assert [line for line in block_lines(replace(many, title="Wide", shown=True)) if line] == [
        "Wide: 21 columns, which the report of the run shows."
    ]


def test_folded_tables_are_named_and_headings_of_nothing_left_out():
    """A page of the ensembling study had every score in every layout, and headings of figures that it did not show."""
    table = plain_table("method", (Column("x"),), {"a": ["1"]})
    blocks = [Headline("Empty"), Headline("Full"), replace(table, title="Shown", shown=True), folded(table, "A"),
              folded(table, "B"), Headline("At the end")]  # fmt: skip
    lines = [line for line in blocks_lines(blocks) if line]
    assert lines[:2] == ["#### Full", "Shown"]
    assert lines[-1] == "The report that the command writes has further tables: A; B."
    assert len(lines) == 4


def test_many_corruptions_have_one_column_per_severity():
    """Each of eleven corruptions in five severities had five columns of its own."""
    store, manifest = make_study(corrupted=True)
    manifest["runs"] = [run for run in manifest["runs"] if run["method"] == "swag" and run["seed"] == 1]
    view = build_report(store, manifest).run
    task = view.tasks[0]
    head, _, *rows = severity_table(view.scores, task).splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == ["method", "runs", "accuracy", "calibrated nll", "severity 1: accuracy", "severity 2: accuracy",
                       "severity 1: nll", "severity 2: nll"]  # fmt: skip
    names = [splits[1].name for splits in task.severities.values()]
    values = [view.scores.cells[task.key, name, "swag", "accuracy"].mean for name in names]
    (row,) = rows
    assert row.split(" | ")[5].startswith(f"{sum(values) / len(values):.3f}")
