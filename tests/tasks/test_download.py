"""Downloads against a local server that also breaks off, lies, serves another file and ignores Range."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.tasks.sources.fetch import Patience, download
from dubio.tasks.sources.locate import DataMissing

CONTENT = bytes(range(256)) * 1200
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUICK = Patience(timeout=5, attempts=3, pause=0)


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
    assert download(server.url(name), target, sha256=SHA256, patience=QUICK) == target
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:50_000])
    seen: list[tuple[int, int | None]] = []
    download(
        server.url("breaks"), tmp_path / "file.bin", sha256=SHA256, progress=lambda *at: seen.append(at), patience=QUICK
    )
    assert server.asked == ["bytes=50000-", "bytes=150000-", "bytes=250000-"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [have for have, _ in seen] == sorted(have for have, _ in seen)


def test_a_part_that_is_already_whole_is_only_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    download(server.url("good"), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["wrong", "announces-less"])
def test_another_file_is_deleted_and_refused(server: Server, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadFile, match="another file than expected"):
        download(server.url(name), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_stale_part_of_another_file_is_not_trusted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"y" * 1000)
    with pytest.raises(BadFile, match="deleted"):
        download(server.url("good"), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)
    download(server.url("good"), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)


@pytest.mark.parametrize(("name", "why"), [("never-whole", "fewer bytes"), ("another-range", "another range")])
def test_giving_up_keeps_what_has_arrived(server: Server, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(DataMissing, match=f"{why}.*3 times in a row"):
        download(server.url(name), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)
    assert not (tmp_path / "file.bin").exists()
    assert (tmp_path / "file.bin.part").stat().st_size > 0


def test_a_file_that_is_not_there_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="404"):
        download(server.url("missing"), tmp_path / "file.bin", sha256=SHA256, patience=QUICK)
    assert len(server.asked) == 1


def test_a_dead_server_and_another_scheme_are_refused(tmp_path: Path) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = closed.server_address[1]
    closed.server_close()
    with pytest.raises(DataMissing, match="cannot be fetched"):
        download(f"http://127.0.0.1:{port}/x", tmp_path / "x", sha256=SHA256, patience=QUICK)
    with pytest.raises(UserError, match="http or https"):
        download("file:///etc/hostname", tmp_path / "x", sha256=SHA256)


def test_the_proxy_of_the_environment_is_used(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", server.url(""))
    download("http://nowhere.invalid/good", tmp_path / "x", sha256=SHA256, patience=QUICK)
    assert server.asked == [None]
