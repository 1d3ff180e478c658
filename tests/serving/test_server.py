"""The server as a process: it stops in good order, goes on with its log after any end, and owns it alone."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import httpx
import pytest

from dubio.core.errors import CorruptFile, UserError
from dubio.serving import serve
from dubio.serving.register import Register
from dubio.serving.server import _listening
from tests.serving.helpers import CLASSES, capacity_policy, command

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    path.write_text(capacity_policy().to_json())
    return str(path)


def request(name, spam, text=""):
    return {"id": name, "probabilities": {"ham": 1 - spam, "spam": spam}, "row": {"text": text or name}}


def entries(folder):
    lines = (Path(folder) / "decisions.log").read_text().splitlines()
    return [entry for line in lines[1:] for entry in json.loads(line[33:])]


def test_a_server_stops_in_good_order_and_goes_on_with_its_log(policy, tmp_path):
    words = "--policy", policy, "--log", str(tmp_path / "log")
    with command(*words) as (process, address):
        first = httpx.post(f"{address}/decide", json={"rows": [request("a", 0.5), request("b", 0.999)]})
        assert first.status_code == 200
        assert httpx.post(f"{address}/label", json={"id": "b", "label": "spam"}).status_code == 200
        queue = httpx.get(f"{address}/queue").json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    kinds = [entry["entry"] for entry in entries(tmp_path / "log")]
    assert kinds == ["start", "decision", "decision", "label", "stop"]
    with command(*words) as (process, address):
        again = httpx.post(f"{address}/decide", json={"rows": [request("a", 0.5), request("b", 0.999)]})
        assert again.content == first.content
        assert httpx.get(f"{address}/queue").json() == queue
        process.kill()
        process.wait(30)
    register = Register(tmp_path / "log")
    assert [entry["id"] for entry, _ in register.queue(10)] == [row["decision"]["id"] for row in queue["rows"]]
    register.close()


def test_requests_under_way_are_finished_before_it_stops(policy, tmp_path):
    with command("--policy", policy, "--log", str(tmp_path / "log")) as (process, address):
        host, port = address.removeprefix("http://").split(":")
        body = json.dumps({"rows": [request("slow", 0.5)]}).encode()
        lines = f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"
        head = "\r\n".join(["POST /decide HTTP/1.1", *lines, "", ""])
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(head.encode() + body[:10])
            threading.Event().wait(0.3)  # the request is under way
            process.send_signal(signal.SIGINT)
            threading.Event().wait(0.3)
            client.sendall(body[10:])
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert process.wait(30) == 0
    assert [entry["entry"] for entry in entries(tmp_path / "log")] == ["start", "decision", "stop"]


def test_one_server_owns_a_log(policy, tmp_path):
    register = Register(tmp_path / "log")
    with pytest.raises(UserError, match="belongs to a server that is running"):
        serve(policy=policy, log=tmp_path / "log", port=0)
    register.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": None}, r"a server without a model has no policy: give one \(--policy\), or refer every row"),
        ({"refer_all": True}, "not both"),
        ({"policy": None, "refer_all": True}, "a server without a model needs a policy that names its classes"),
        ({"policy": "missing.json"}, "missing.json"),
        ({"address": "0.0.0.0"}, "set a token with --token-file or the variable DUBIO_SERVE_TOKEN"),
        ({"address": "0.0.0.0", "token_file": "TOKEN"}, "say with --allow-host"),
        ({"address": "203.0.113.7", "token_file": "TOKEN"}, "cannot be listened on"),
        ({"token_file": "POLICY"}, "must hold a token"),
    ],
)
def test_options_that_do_not_fit_are_refused(policy, tmp_path, monkeypatch, options, message):
    monkeypatch.delenv("DUBIO_SERVE_TOKEN", raising=False)
    (tmp_path / "token").write_text(TOKEN)
    files = {"POLICY": policy, "TOKEN": str(tmp_path / "token")}
    options = {"policy": policy, **{name: files.get(value, value) for name, value in options.items()}}
    with pytest.raises(UserError, match=message) as caught:
        serve(**options, log=tmp_path / "log", port=0)
    assert TOKEN not in str(caught.value)


def test_a_port_in_use_is_refused(policy, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UserError, match="cannot be listened on"):
        serve(policy=policy, log=tmp_path / "log", port=other.getsockname()[1])


def test_connections_send_at_once():
    with _listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_damaged_log_is_refused(policy, tmp_path):
    register = Register(tmp_path)
    register.write([{"entry": "start"}])
    register.write([{"entry": "stop"}])
    register.close()
    content = (tmp_path / "decisions.log").read_bytes()
    (tmp_path / "decisions.log").write_bytes(content.replace(b"start", b"stare"))
    with pytest.raises(CorruptFile, match="is damaged at byte"):
        serve(policy=policy, log=tmp_path, port=0)
    assert (tmp_path / "decisions.log").read_bytes() == content.replace(b"start", b"stare")


def test_a_hundred_megabytes_are_refused_and_the_server_goes_on(policy, tmp_path):
    with command("--policy", policy, "--log", str(tmp_path / "log")) as (_, address):
        chunk = b"x" * (1 << 20)
        for body in (chunk * 100, (chunk for _ in range(100))):
            response = httpx.post(f"{address}/decide", content=body, timeout=60,
                                  headers={"content-type": "application/json"})  # fmt: skip
            assert response.status_code == 413
            assert "bytes" in response.json()["error"]
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        openapi = httpx.get(f"{address}/openapi.json").json()
        assert openapi["components"]["schemas"]["Decision"]["properties"]["probabilities"]["required"] == list(CLASSES)
