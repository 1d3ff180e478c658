"""Every command that a page shows is copied from it and run, with a store that is not the usual one."""

from __future__ import annotations

import csv
import html
import re
import shlex
import shutil

import pytest

import dubio
from dubio.cli.app import app
from dubio.reporting.sections.cockpit import Cockpit, fit_command
from tests.cli.helpers import invoke

STORE = "other store"


@pytest.fixture(scope="module")
def folder(texts_run, texts_csv, tmp_path_factory):
    """A folder with a store of another name, in which a second run begins with the same name, and some new rows."""
    path = tmp_path_factory.mktemp("copied")
    shutil.copytree(texts_run.store, path / STORE)
    store = dubio.open_store(path / STORE)
    (name,) = store.manifests()
    store.write_manifest({**store.manifest(name), "runs": []}, "0" * 8)
    rows = list(csv.reader(texts_csv.read_text().splitlines()))[:4]
    (path / "new.csv").write_text("\n".join(",".join(shlex.quote(cell) for cell in row[:2]) for row in rows))
    return path, name


def commands_of(page):
    """Return purpose → command of the page's list of next steps, and the lines that make it again."""
    text = page.read_text()
    (steps,) = re.findall(r'<dl class="card commands">(.*?)</dl>', text, re.S)
    pairs = re.findall(r"<dt>(.*?)</dt><dd><code>(.*?)</code></dd>", steps, re.S)
    again = [own for own in re.findall(r"<pre.*?>(.*?)</pre>", text, re.S) if own.startswith("dubio ")]
    return {name: html.unescape(command) for name, command in pairs}, html.unescape("\n".join(again)).splitlines()


def test_commands_of_a_page_work_when_they_are_copied(folder, monkeypatch):
    path, name = folder
    monkeypatch.chdir(path)
    steps, again = commands_of(dubio.open_run(name, store=STORE).report("page").page)
    for drawing in ("write_figures", "report_texts"):  # it takes long, and once is enough
        monkeypatch.setattr(f"dubio.reporting.reported.{drawing}", lambda *arguments, **options: {})
    served = steps.pop("Serve it")
    assert {"Predict new rows", "Export a model", "Figures for a paper", "Scores in Python"} <= steps.keys()
    for command in (*steps.values(), *again):
        if not command.startswith("dubio "):
            assert eval(command, {"dubio": dubio}) is not None
            continue
        words = shlex.split(command)[1:]
        done = invoke(app, *words, *(["--dry-run"] if words[0] == "run" else []))
        assert done.exit_code == 0, (command, done.output)
        assert STORE in words
    assert [line.split()[1] for line in again] == ["run", "report"]
    assert (path / shlex.split(served)[2] / "model.json").exists()
    assert (path / "predictions.csv").exists()
    assert not (path / "dubio-store").exists()


def test_the_command_of_the_cockpit_writes_the_policies_that_the_page_offers(folder, monkeypatch):
    path, name = folder
    monkeypatch.chdir(path)
    report = dubio.open_run(name, store=STORE).built
    (task,) = report.tasks
    section = next(placed.section for placed in report.sections if placed.name == "cockpit")
    cockpit: Cockpit = section.cockpits[task.key]
    assert cockpit.grid is not None
    exec(fit_command(report.run, task, cockpit), {})
    files = {file.name: file.read_text() for file in (path / "policies").iterdir()}
    assert files == cockpit.grid.files()


def test_the_usual_store_is_not_named_and_no_page_that_names_another_is_reused(folder, monkeypatch, tmp_path):
    path, name = folder
    shutil.copytree(path / STORE, tmp_path / "dubio-store")
    monkeypatch.chdir(tmp_path)
    pages = []
    monkeypatch.setattr("dubio.reporting.reported.report_texts", lambda report, **options: pages.append(report) or {})
    for store in ("dubio-store", "dubio-store", tmp_path / "dubio-store"):
        dubio.open_run(name, store=store).report("page")
    usual, other = (report.run for report in pages)  # the second time the page is reused
    assert (usual.store_option, usual.opened("a")) == ("", "dubio.open_run('a')")
    assert other.opened("a") == f"dubio.open_run('a', store={str(tmp_path / 'dubio-store')!r})"
