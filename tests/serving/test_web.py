"""The endpoints as a client meets them: decisions, labels, the queue, and every bad request a refusal in JSON."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn

from dubio.serving.web import ENDPOINTS, LONGEST_HEAD, BoundedHttp, Limits
from tests.serving.helpers import CLASSES, Logistic, client_of, rows

TOKEN = "0123456789abcdef"


@pytest.fixture
def client(tmp_path):
    with client_of(tmp_path) as client:
        yield client


def decide(client, requests):
    response = client.post("/decide", json={"rows": requests})
    assert response.status_code == 200, response.text
    return response.json()["decisions"]


def test_rows_are_decided_queued_labelled_and_released(client):
    decisions = decide(client, rows(30))
    referred = [own for own in decisions if own["decision"] == "refer"]
    assert 0 < len(referred) < 30
    queue = client.get("/queue", params={"limit": 200}).json()
    assert queue["classes"] == list(CLASSES)
    assert (queue["waiting"], queue["labelled"], queue["several"]) == (len(referred), 0, False)
    assert [row["decision"] for row in queue["rows"]] == sorted(referred, key=lambda own: -own["uncertainty"])
    sent = {own["id"]: own["row"] for own in rows(30)}
    assert all(row["row"] == sent[row["decision"]["id"]] for row in queue["rows"])
    first = queue["rows"][0]["decision"]["id"]
    answer = client.post("/label", json={"id": first, "label": "ham"}).json()
    assert answer == {"id": first, "label": "ham", "waiting": len(referred) - 1, "labelled": 1}
    assert client.get("/queue").json()["rows"][0]["decision"]["id"] != first
    assert client.post("/label", json={"id": first, "label": "spam"}).status_code == 409
    assert client.post("/label", json={"id": first, "label": None}).json()["waiting"] == len(referred)
    assert client.get("/queue").json()["rows"][0]["decision"]["id"] == first


def test_an_id_sent_again_gets_its_first_answer_and_409_with_other_content(client):
    (row,) = rows(1)
    first = client.post("/decide", json={"rows": [row]})
    assert client.post("/decide", json={"rows": [row]}).content == first.content
    other = client.post("/decide", json={"rows": [{**row, "row": {"a": 9, "b": 9}}]})
    assert other.status_code == 409
    assert other.json() == {"error": "the id 'r0' was used for other content."}


def test_rows_without_an_id_get_one_each(client):
    names = {own["id"] for own in decide(client, [{"row": {"a": 1, "b": 2}}] * 5)}
    assert len(names) == 5


def deep(levels):
    return b'{"rows": [{"row": {"a": ' + b"[" * levels + b"]" * levels + b"}}]}"


ROW = {"a": 1, "b": 2}
BAD_BODIES = {
    "not json": (b"{", 400, "not JSON"),
    "not utf-8": (b'{"rows": "\xff"}', 400, "not JSON"),
    "empty": (b"", 400, "not JSON"),
    "NaN": (b'{"rows": [{"row": {"a": NaN, "b": 1}}]}', 400, "NaN is not a JSON number"),
    "infinity": (b'{"rows": [{"row": {"a": 1e999, "b": 1}}]}', 400, "not finite"),
    "half a pair": (b'{"rows": [{"row": {"a": "\\ud800", "b": 1}}]}', 400, "surrogate"),
    "a key twice": (b'{"rows": [], "rows": []}', 400, "twice"),
    "nested 200 deep": (deep(200), 400, "nested deeper"),
    "nested 10,000 deep": (deep(10_000), 400, "nested deeper"),
    "a list": (b"[]", 422, "must be a table"),
    "null": (b"null", 422, "must be a table"),
    "no rows": (b"{}", 422, "needs the field 'rows'"),
    "empty rows": (b'{"rows": []}', 422, "must be a list"),
    "unknown field": (json.dumps({"rows": [{"row": ROW}], "row": 1}).encode(), 422, "Did you mean 'rows'"),
    "unknown field of a row": (json.dumps({"rows": [{"rwo": ROW}]}).encode(), 422, "Did you mean 'row'"),
    "nothing in a row": (b'{"rows": [{}]}', 422, "needs the field 'row' or 'probabilities'"),
    "missing column": (b'{"rows": [{"row": {"a": 1}}]}', 422, "needs the column 'b'"),
    "unknown column": (json.dumps({"rows": [{"row": {**ROW, "c": 1}}]}).encode(), 422, "unknown column"),
    "a list for a value": (b'{"rows": [{"row": {"a": [1], "b": 1}}]}', 422, "rows[0].row"),
    "refused by the model": (b'{"rows": [{"row": {"a": 13, "b": 1}}]}', 422, "must not be 13"),
    "other classes": (b'{"rows": [{"probabilities": {"ham": 0.5, "eggs": 0.5}}]}', 422, "unknown class"),
    "a missing class": (b'{"rows": [{"probabilities": {"ham": 1.0}}]}', 422, "need the class 'spam'"),
    "no distribution": (b'{"rows": [{"probabilities": {"ham": 0.9, "spam": 0.9}}]}', 422, "0.001; they sum to 1.8."),
    "a share above one": (b'{"rows": [{"probabilities": {"ham": 1.5, "spam": -0.5}}]}', 422, "and 1; given 1.5."),
    "an id twice": (json.dumps({"rows": [{"id": "x", "row": ROW}] * 2}).encode(), 422, "'x' is there twice"),
    "an empty id": (json.dumps({"rows": [{"id": "", "row": ROW}]}).encode(), 422, "1 to 200 characters"),
    "an id with a line end": (json.dumps({"rows": [{"id": "a\nb", "row": ROW}]}).encode(), 422, "1 to 200 characters"),
    "an id that is a number": (json.dumps({"rows": [{"id": 3, "row": ROW}]}).encode(), 422, "must be a text"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_with_its_reason(client, name):
    body, status, reason = BAD_BODIES[name]
    response = client.post("/decide", content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert reason in response.json()["error"], response.json()
    assert client.service.register.state.decisions == {}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"id": "r0", "label": "eggs"}, 422, "unknown class 'eggs'"),
        ({"id": "r0", "label": ["ham"]}, 422, "must be one class, or null"),
        ({"id": "other", "label": "ham"}, 404, "no row 'other'"),
        ({"id": "r0"}, 422, "needs the field 'label'"),
        ({"id": "r0", "label": "ham", "by": "me"}, 422, "unknown field"),
    ],
)
def test_a_bad_label_is_refused_with_its_reason(client, body, status, reason):
    decide(client, rows(1))
    response = client.post("/label", json=body)
    assert response.status_code == status
    assert reason in response.json()["error"]
    assert client.service.register.state.labels == {}


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/x"])
def test_another_content_type_is_refused(client, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    response = client.post("/decide", content=b'{"rows": []}', headers=headers)
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=-1", "limit=x", "limit=٣", "limits=3", "limit=1e2"])
def test_a_bad_query_is_refused(client, query):
    assert client.get(f"/queue?{query}").status_code == 422


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_another_method_is_refused_with_the_right_one(client, endpoint):
    response = client.request("DELETE", endpoint.path)
    assert response.status_code == 405
    assert response.headers["allow"] == endpoint.method
    assert endpoint.method in response.json()["error"]


def test_an_unknown_path_is_refused(client):
    response = client.get("/decide/../etc/passwd")
    assert response.status_code == 404
    assert "/decide" in response.json()["error"]


def test_large_bodies_and_many_rows_are_refused(tmp_path):
    with client_of(tmp_path, limits=Limits(body=20_000, rows=5)) as client:
        large = client.post("/decide", json={"rows": [{"row": {"a": "x" * 30_000, "b": 1}}]})
        many = client.post("/decide", json={"rows": rows(6)})
        assert large.status_code == many.status_code == 413
        assert "20000 bytes" in large.json()["error"]
        assert many.json()["error"] == "a request may have 5 rows; given 6."
        assert len(decide(client, rows(5))) == 5


def test_more_requests_than_allowed_are_told_to_try_again(tmp_path):
    class Slow(Logistic):
        gate, reached = threading.Event(), threading.Semaphore(0)

        def predictions(self, rows, references=()):
            self.reached.release()
            assert self.gate.wait(20)
            return super().predictions(rows)

    with client_of(tmp_path, model=Slow(), limits=Limits(requests=2), batch_rows=1) as client:
        with ThreadPoolExecutor(2) as pool:
            under_way = [pool.submit(client.post, "/decide", json={"rows": [row]}) for row in rows(2)]
            assert Slow.reached.acquire(timeout=20)
            while client.app._active < 2:
                pass
            refused = client.post("/decide", json={"rows": rows(1)})
            health = client.get("/health")
            Slow.gate.set()
            assert [own.result().status_code for own in under_way] == [200, 200]
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert health.status_code == 200


def test_token_host_and_origin_are_checked(tmp_path):
    with client_of(tmp_path, token=TOKEN) as client:
        assert decide(client, rows(1))
        for path in ("/decide", "/label"):
            assert client.post(path, json={}, headers={"authorization": "Bearer wrong"}).status_code == 401
        for path in ("/queue", "/metrics", "/openapi.json"):
            assert client.get(path, headers={"authorization": ""}).status_code == 401
        for path in ("/health", "/"):
            assert client.get(path, headers={"authorization": ""}).status_code == 200
        assert client.get("/queue", headers={"origin": "https://example.org"}).status_code == 403
        assert client.get("/queue", headers={"host": "example.org"}).status_code == 421
        for name in ("host", "origin", "authorization"):  # of two, one might be checked and the other used
            twice = client.get("/queue", headers=[(name, "testserver"), (name, "testserver")])
            assert (twice.status_code, name in twice.json()["error"]) == (400, True)


def test_a_row_that_the_model_refuses_is_named_by_its_id(client):
    sent = [*rows(3), {"id": "scan-7", "row": {"a": 13, "b": 0}}]
    response = client.post("/decide", json={"rows": sent})
    assert (response.status_code, response.json()) == (422, {"error": "row 'scan-7': column 'a' must not be 13."})


def test_a_connection_that_ends_before_the_body_is_no_unexpected_error(client, capsys):
    """The server asked for a report of its own fault when a client hung up."""
    messages = iter([{"type": "http.request", "body": b'{"rows": [', "more_body": True}, {"type": "http.disconnect"}])
    sent = []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/decide", "raw_path": b"/decide", "query_string": b"",
             "headers": headers, "http_version": "1.1", "scheme": "http", "root_path": "",
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}  # fmt: skip
    client.portal.call(client.app, scope, receive, send)
    assert sent[0]["status"] == 400
    assert capsys.readouterr().err == ""


def test_an_error_that_nobody_foresaw_is_500_without_traceback_or_content(tmp_path, capsys):
    class Broken(Logistic):
        def predictions(self, rows, references=()):
            raise RuntimeError(f"secret {rows}")

    with client_of(tmp_path, model=Broken()) as client:
        response = client.post("/decide", json={"rows": [{"row": {"a": 4711, "b": 1}}]})
        assert response.status_code == 500
        assert response.json() == {"error": "an unexpected error; the server has noted its place."}
    printed = capsys.readouterr()
    assert "RuntimeError at" in printed.err
    assert "secret" not in printed.err + printed.out + response.text
    assert "4711" not in printed.err + printed.out


def test_contents_of_rows_are_kept_for_referred_rows_alone_and_outside_the_log(tmp_path, capsys):
    sent = [{"id": name, "row": {"a": value, "b": 0}} for name, value in (("x", 0.0123456), ("y", 7.0123456))]
    with client_of(tmp_path / "kept") as client:
        assert [own["decision"] for own in decide(client, sent)] == ["refer", "retain"]
    contents = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert [name for name, content in contents.items() if b"0.0123456" in content] == ["rows.log"]
    assert not any(b"7.0123456" in content for content in contents.values())
    with client_of(tmp_path / "none", keep_rows="none") as client:
        decide(client, sent)
        (row,) = client.get("/queue").json()["rows"]
        assert row["row"] is None
    assert not any(b"0.0123456" in path.read_bytes() for path in (tmp_path / "none").iterdir())
    printed = capsys.readouterr()
    assert "0123456" not in printed.out + printed.err


def test_health_says_what_decides(client):
    health = client.get("/health").json()
    assert (health["status"], health["model"]) == ("ok", "f" * 64)
    assert health["rule"].startswith("retained when the answer has at least")


# --- heads of requests, on a real connection

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def counting(scope, receive, send):
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
    config = uvicorn.Config(counting, http=BoundedHttp, ws="none", lifespan="off", log_config=None)
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
    answer = answered(address, *pieces)  # empty where the reset of the connection overtook it
    assert answer.startswith(b"HTTP/1.1 400") or answer == b""
    assert answered(address, HEAD + b"Content-Length: 0\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_what_is_not_http_is_refused(address):
    assert answered(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").startswith(b"HTTP/1.1 400")
