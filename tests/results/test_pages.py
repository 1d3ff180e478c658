"""The pages of results: their file, their commands, and the numbers of trainings that they state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import results.__main__ as results
from results.pages import FILE, ROOT, check_forecast, forecast, make_part, page_named, read_pages

from dubio.core.errors import UnknownName, UserError
from dubio.runner.benchmark_file import benchmark_files, load_benchmark

PAGES = read_pages()
STUDIES = [(page.name, study) for page in PAGES.values() for study in page.studies]


@pytest.mark.parametrize(("name", "study"), STUDIES, ids=[f"{name}: {study.heading}" for name, study in STUDIES])
def test_every_command_names_a_benchmark_and_presets_that_exist(name, study):
    words = study.arguments(Path("data"))
    assert words[0] in benchmark_files() or (ROOT / words[0]).is_file()
    preset = words[words.index("--preset") + 1] if "--preset" in words else None
    benchmark = load_benchmark(str(ROOT / words[0]) if words[0].endswith(".toml") else words[0], preset)
    labels = {label for entry in benchmark.tasks for label in entry.labels}
    chosen = [words[i + 1] for i, word in enumerate(words) if word == "--task"]
    assert {*chosen} <= labels
    assert {words[i + 1] for i, word in enumerate(words) if word == "--method"} <= {*benchmark.all_methods}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_states_its_version_and_its_command_and_trainings(page):
    """A page that was not remade says with which version it was made."""
    if not page.path.is_file():
        pytest.skip(f"{page.path.name} is not made yet")
    text = page.path.read_text(encoding="utf-8")
    assert "Made with dubio" in text
    if page.name == "errata":
        return
    for study in page.studies:
        if f"dubio run {study.command.split(' --no-baselines')[0]}" in text:
            assert f"{study.trainings} trainings" in text, f"{page.name}: {study.heading}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text", "retina", "ensembles", "errata"])
def test_the_numbers_of_trainings_are_those_of_the_commands(name, data_dir, tmp_path):
    page = page_named(name)
    forecasts = {study: forecast(study, data_dir, tmp_path) for study in page.studies}
    assert not [line for line in check_forecast(page, forecasts) if "trainings" in line]


def test_a_wrong_number_too_long_a_part_and_too_long_a_page_are_named():
    page = page_named("ensembles")
    study = page.studies[0]
    right = {"trainings": study.trainings, "trials": 0, "seconds": 3600.0}
    assert not list(check_forecast(page, {study: right}))
    wrong = list(check_forecast(page, {study: {**right, "trainings": study.trainings + 1, "seconds": 9 * 3600.0}}))
    clauses = f"makes {study.trainings + 1} trainings", "needs 5 parts", "9.0 hours"
    assert all(clause in line for line, clause in zip(wrong, clauses, strict=True))


def test_unknown_pages_parts_and_keys_are_refused(tmp_path):
    with pytest.raises(UnknownName, match="text"):
        page_named("texts")
    with pytest.raises(UserError, match="PART must be 1 to"):
        make_part(page_named("retina"), 9, tmp_path, tmp_path)
    other = tmp_path / "pages.toml"
    other.write_text(FILE.read_text(encoding="utf-8").replace("trainings = 47", "traininsg = 47", 1), encoding="utf-8")
    with pytest.raises(UserError, match="trainings"):
        read_pages(other)


def test_writing_a_page_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "forecast", lambda *arguments: {"trainings_left": 3})
    monkeypatch.setattr(results, "make_run", lambda *arguments: pytest.fail("a run was started"))
    assert results.main(["ensembles", "--write", "--store", str(tmp_path / "store")]) == 2
    missing = 3 * len(page_named("ensembles").studies)
    assert f"--write trains nothing, and {missing} trainings" in capsys.readouterr().err


def test_writing_a_page_names_the_sections_that_stay(tmp_path, monkeypatch, capsys):
    left = iter([0, 7, 0])
    written = {}
    monkeypatch.setattr(results, "forecast", lambda *arguments: {"trainings_left": next(left)})
    monkeypatch.setattr(results, "make_run", lambda study, *arguments: study.heading)
    monkeypatch.setattr(results, "open_run", lambda name, store: name)
    monkeypatch.setattr(results, "write_page", lambda page, runs: (written.update(runs), ("Gone",))[1])
    assert results.main(["retina", "--write", "--store", str(tmp_path / "store")]) == 0
    first, second, third = page_named("retina").studies
    assert written == {first: first.heading, third: third.heading}
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"Sections that stay as they are, with the trainings they lack: {second.heading} (7).",
        "Sections that pages.toml does not name, now gone: Gone.",
    ]


def test_a_study_that_a_page_does_not_have_is_refused(tmp_path):
    other = tmp_path / "pages.toml"
    other.write_text(
        FILE.read_text(encoding="utf-8").replace('"CLINC-OOS", "Amazon, t', '"CLINC-OOS", "Amazno, t', 1), "utf-8"
    )
    with pytest.raises(UserError, match="Amazon, twelve pairs"):
        read_pages(other)


def test_one_section_is_made_and_written_alone(tmp_path, monkeypatch, capsys):
    written = {}
    monkeypatch.setattr(results, "make_run", lambda study, *arguments: study.heading)
    monkeypatch.setattr(results, "open_run", lambda name, store: name)
    monkeypatch.setattr(results, "write_page", lambda page, runs: (written.update(runs), ())[1])
    second = page_named("retina").studies[1]
    assert results.main(["retina", "--study", second.heading, "--store", str(tmp_path / "store")]) == 0
    assert written == {second: second.heading}
    assert results.main(["retina", "--study", "The five grade", "--store", str(tmp_path / "store")]) == 2
    message = capsys.readouterr().err
    assert "STUDY" in message
    assert second.heading in message


def test_published_values_and_conclusions_of_the_text_paper_are_shown_once():
    """CLINC's stood in its section, of three seeds, and over the corpora, of one, so that their counts differed."""
    page = page_named("text")
    published, conclusions = ("ours and published",), ("Its conclusions, tested here",)
    headings = [study.heading for study in page.studies if "paper" in study.sections]
    assert headings == ["CLINC-OOS", "20 Newsgroups, in-domain", "Reuters, in-domain (multi-label)"]
    assert {study.without for study in page.studies if "paper" in study.sections} == {conclusions}
    assert "paper" in page.across.sections
    assert page.across.without == published
    assert "CLINC-OOS" in page.across.studies
    assert not [study.heading for study in page.studies if "across" in study.sections]


@pytest.mark.parametrize("study", [study for study in page_named("text").studies if "networks" in study.made_of],
                         ids=lambda study: study.heading)  # fmt: skip
def test_what_trainings_are_made_of_adds_up(study):
    """“nine of six set-ups” did not read; the parts that a sentence names are the trainings that a study states."""
    sources = 4 if "for each of four sources" in study.made_of else 1
    numbers = {"two": 2, "five": 5, "nine": 9, "15": 15}
    count = re.search(r"(\w+) networks(?: of each of (\w+) kinds)?, which the (\w+) set-ups share", study.made_of)
    networks = numbers[count[1]] * (numbers[count[2]] if count[2] else 1)
    baselines = 2 if "two plain baselines" in study.made_of else 0
    assert sources * (networks + baselines) == study.trainings
    assert ("--no-baselines" in study.command) == (baselines == 0)


def test_the_scope_of_the_ensembling_study_states_the_agreement_that_its_page_measures():
    """It said that the paper's order of methods can be reproduced, above values of τ around zero."""
    page = page_named("ensembles")
    measured = re.findall(r"^Order of .* and in P .*Kendall's τ = ([+−][\d.]+)", page.path.read_text("utf-8"), re.M)
    values = sorted(measured, key=lambda text: float(text.replace("−", "-")))
    assert f"Kendall's τ with it is {values[0]} to {values[-1]}." in page.scope


CYCLICAL = ("snapshot-ensemble", "csgld")


def _cycle_lengths(preset: str, method: str) -> set[int]:
    """The epochs of a cycle in every entry of CIFAR-10 that a preset trains."""
    benchmark, lengths = load_benchmark("ensembles", preset), set()
    for entry in benchmark.tasks:
        if entry.name == "cifar10" and entry.methods != () and method in benchmark.methods_of(entry):
            arguments = {**benchmark.method_arguments[method], **entry.method_arguments.get(method, {})}
            lengths.add(arguments["epochs"] // arguments["cycles"])
    return lengths


def test_the_scope_of_the_ensembling_study_states_the_lengths_of_cycles():
    here = [_cycle_lengths("small", name) | _cycle_lengths("small-networks", name) for name in CYCLICAL]
    paper = [_cycle_lengths("paper", name) for name in CYCLICAL]
    assert [here, paper] == [[{4, 5}, {8, 10}], [{40}, {50}]]
    clause = "a cycle of snapshot ensembles has 4 or 5 epochs and one of cSGLD 8 or 10, where P gave 40 and 50."
    assert clause in page_named("ensembles").scope
