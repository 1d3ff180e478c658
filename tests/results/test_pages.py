"""The pages of results: their file, their commands, and the numbers of trainings that they state."""

from __future__ import annotations

from pathlib import Path

import pytest
import results.__main__ as results
from results.pages import FILE, ROOT, Study, check_forecast, forecast, make_part, page_named, read_pages

from dubio.core.errors import UnknownName, UserError
from dubio.runner.benchmark_file import benchmark_files, load_benchmark

PAGES = read_pages()
STUDIES = [(page.name, study) for page in PAGES.values() for study in page.studies]
STUDIES += [
    (page.name, Study(page.across.heading, command, trainings=0))
    for page in PAGES.values() if page.across for command in page.across.further
]  # fmt: skip


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
    monkeypatch.setattr(results, "write_page", lambda page, runs, further: (written.update(runs), ("Gone",))[1])
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
        FILE.read_text(encoding="utf-8").replace('studies = ["Amazon, t', 'studies = ["Amazno, t', 1), "utf-8"
    )
    with pytest.raises(UserError, match="Amazon, twelve pairs"):
        read_pages(other)


def test_one_section_is_made_and_written_alone(tmp_path, monkeypatch, capsys):
    written = {}
    monkeypatch.setattr(results, "make_run", lambda study, *arguments: study.heading)
    monkeypatch.setattr(results, "open_run", lambda name, store: name)
    monkeypatch.setattr(results, "write_page", lambda page, runs, further: (written.update(runs), ())[1])
    second = page_named("retina").studies[1]
    assert results.main(["retina", "--study", second.heading, "--store", str(tmp_path / "store")]) == 0
    assert written == {second: second.heading}
    assert results.main(["retina", "--study", "The five grade", "--store", str(tmp_path / "store")]) == 2
    message = capsys.readouterr().err
    assert "STUDY" in message
    assert second.heading in message


def test_the_section_on_several_studies_needs_all_its_runs(tmp_path, monkeypatch):
    """Of CLINC one seed is enough there, so that its own section need not be made for it."""
    page = page_named("text")
    across = page.across
    left = dict.fromkeys(across.further, 0)
    monkeypatch.setattr(results, "forecast", lambda study, *arguments: {"trainings_left": left[study.command]})
    monkeypatch.setattr(results, "make_run", lambda study, *arguments: study.command)
    monkeypatch.setattr(results, "open_run", lambda name, store: name)
    runs = {study: study.heading for study in page.studies if study.heading in across.studies}
    assert "CLINC-OOS" not in runs.values()
    assert results.further_runs(page, runs, tmp_path, tmp_path, make=False) == across.further
    assert results.further_runs(page, dict([*runs.items()][1:]), tmp_path, tmp_path, make=True) is None
    left[across.further[0]] = 3
    assert results.further_runs(page, runs, tmp_path, tmp_path, make=False) is None
    assert results.further_runs(page, runs, tmp_path, tmp_path, make=True) == across.further
