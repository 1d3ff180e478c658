"""The report of an unchanged run is written again without a score; whatever could change it is noticed."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dubio
from dubio.core.registry import METRICS
from dubio.reporting import report_cache, reported
from dubio.reporting.report_cache import MOST, ReportCache

pytest.importorskip("torch")


def opened(run: dubio.Run) -> dubio.Run:
    return dubio.open_run(store=run.store)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reports that are built from predictions."""
    built: list[Any] = []
    build = reported.build_report

    def counted(*arguments: Any, **options: Any) -> Any:
        built.append(options)
        return build(*arguments, **options)

    monkeypatch.setattr(reported, "build_report", counted)
    return built


def test_an_unchanged_run_is_not_scored_again(trained_run: dubio.Run, builds: list[Any], tmp_path: Path) -> None:
    first, again = opened(trained_run), opened(trained_run)
    written = first.report(tmp_path / "a")
    count, printed = len(builds), str(first)
    pages = [path.read_bytes() for path in (written.page, written.table)]
    second = again.report(tmp_path / "b")
    assert str(again) == printed
    assert [path.read_bytes() for path in (second.page, second.table)] == pages
    assert len(builds) == count <= 1
    assert second.report.document()["scores"] == written.report.document()["scores"]  # computed when it is asked for


def test_other_options_files_and_code_are_another_report(
    trained_run: dubio.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(trained_run)
    cache = ReportCache(run.source, run.manifest)
    options = {"margin": 0.01}
    paths = [cache.path(options), cache.path({"margin": 0.02})]
    assert cache.path(options) == paths[0]
    changed = next(path for path in sorted((run.store / "predictions").glob("*/*.safetensors")))
    facts = changed.stat()
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    paths.append(cache.path(options))
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert cache.path(options) == paths[0]
    paths.append(ReportCache(run.source, {**run.manifest, "advice": ["other"]}).path(options))
    monkeypatch.setattr(report_cache, "code_digest", lambda: "other")
    paths.append(cache.path(options))
    assert len(set(paths)) == len(paths)


def test_a_run_that_just_ended_has_the_report_of_the_same_run_when_opened(trained_run: dubio.Run) -> None:
    path = opened(trained_run)._cache().path({})
    assert path is not None
    assert trained_run._cache().path({}) == path


def test_metrics_of_plugins_are_never_reused(trained_run: dubio.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ReportCache(opened(trained_run).source, trained_run.manifest)
    entry = METRICS.entries()[0]
    own = replace(entry, origin="mine")
    monkeypatch.setattr(METRICS, "_entries", {**METRICS._entries, "mine": own})
    assert cache.path({}) is None


def test_a_damaged_file_is_made_again_and_old_ones_go(
    trained_run: dubio.Run, builds: list[Any], tmp_path: Path
) -> None:
    folder = trained_run.store / "derived"
    opened(trained_run).report(tmp_path / "a")
    for index in range(MOST + 2):
        (folder / f"{index}.report").write_bytes(b"old")
        os.utime(folder / f"{index}.report", (index, index))
    (path,) = [path for path in folder.glob("*.report") if path.stat().st_size > 3]
    for damage in (b"", b"x", path.read_bytes()[:-40]):
        path.write_bytes(damage)
        count = len(builds)
        opened(trained_run).report(tmp_path / "a")
        assert len(builds) == count + 1
    assert len(list(folder.glob("*.report"))) == MOST
    assert path.exists()


def test_published_definitions_are_not_scored_twice(trained_run: dubio.Run, builds: list[Any], tmp_path: Path) -> None:
    run = opened(trained_run)
    run.report(tmp_path / "a", as_published=True)
    count = len(builds)
    assert "MC dropout" in str(run)
    assert len(run.results.scores) > 0
    assert len(builds) <= max(count, 1)


def kept(path: Path, *, files: dict[str, str], padding: int = 0) -> Path:
    document = json.dumps({"files": files, "terminal": []}).encode() + b" " * padding
    path.write_bytes(zlib.compress(document, 9))
    return path


def test_a_kept_report_writes_only_into_the_folder_of_the_report(trained_run: dubio.Run, tmp_path: Path) -> None:
    cache = ReportCache(opened(trained_run).source, trained_run.manifest)
    good = cache.read(kept(tmp_path / "a.report", files={"report.html": "<p>"}))
    assert good is not None
    assert dict(good.files) == {"report.html": "<p>"}
    for name in ("../outside.html", str(tmp_path / "outside.html"), "..", "a/b.html", ""):
        assert cache.read(kept(tmp_path / "b.report", files={name: "<p>"})) is None


def test_a_kept_report_that_unpacks_to_more_than_any_report_is_made_again(
    trained_run: dubio.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_cache, "LARGEST", 1 << 20, raising=False)
    cache = ReportCache(opened(trained_run).source, trained_run.manifest)
    assert cache.read(kept(tmp_path / "a.report", files={"report.html": "<p>"}, padding=1 << 19)) is not None
    assert cache.read(kept(tmp_path / "b.report", files={"report.html": "<p>"}, padding=1 << 20)) is None
    whole = (tmp_path / "a.report").read_bytes()
    (tmp_path / "c.report").write_bytes(whole[:-3])
    assert cache.read(tmp_path / "c.report") is None
