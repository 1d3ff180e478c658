"""Heads of requests are bounded on a real connection; bodies of any size come through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

uvicorn = pytest.importorskip("uvicorn")

from dubio.serving.http_protocol import LONGEST_HEAD, BoundedHttp  # noqa: E402

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def app(scope, receive, send):
    """Answer with the number of bytes in the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    answer = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    config = uvicorn.Config(app, http=BoundedHttp, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        server.should_exit = True
        thread.join(30)


def answered(address: tuple[str, int], *pieces: bytes) -> bytes:
    """Send pieces until the server closes the connection, and return what it answered."""
    with socket.create_connection(address, timeout=30) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except OSError:
            pass
        received = b""
        while b"\r\n\r\n" not in received:
            try:
                chunk = client.recv(65536)
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
        return received


def test_a_body_larger_than_any_head_is_read(address):
    body = b"x" * (8 * LONGEST_HEAD)
    answer = answered(address, HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 200")
    chunks = [b"%x\r\n%s\r\n" % (1000, b"y" * 1000)] * 500
    answer = answered(address, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD, *[b"X-More: %s\r\n" % (b"z" * 1000)] * 800],
        [HEAD + b"X-Long: ", *[b"z" * 1000] * 800],
        [b"GET /", *[b"z" * 1000] * 800],
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", *[b"X-More: %s\r\n" % (b"z" * 1000)] * 800],
    ],
    ids=["many headers", "a long header", "a long address", "trailers"],
)
def test_a_head_that_does_not_end_is_refused(address, pieces):
    connection_closed = answered(address, *pieces)
    assert connection_closed.startswith(b"HTTP/1.1 400") or connection_closed == b""
    assert answered(address, HEAD + b"Content-Length: 0\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_what_is_not_http_is_refused(address):
    assert answered(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").startswith(b"HTTP/1.1 400")
