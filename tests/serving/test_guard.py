"""Who may speak to the server: by name, from which page, with which token."""

from __future__ import annotations

import pytest

from dubio.core.errors import UserError
from dubio.serving.guard import LOOPBACK, Guard, Refused, allowed_hosts, is_loopback, read_token

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.0.2.7", False), ("example.org", False), ("localhost.example.org", False)],
)  # fmt: skip
def test_loopback_addresses(address, loopback):
    assert is_loopback(address) == loopback


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:9", "LOCALHOST:80"])
def test_names_of_the_loopback_address_are_allowed(host):
    Guard(frozenset(LOOPBACK), None).check("/queue", {"host": host})


@pytest.mark.parametrize(
    "host", ["", "example.org", "127.0.0.1.example.org", "localhost.example.org:8000", "[::1", "a@127.0.0.2"]
)
def test_other_names_are_refused(host):
    with pytest.raises(Refused) as caught:
        Guard(frozenset(LOOPBACK), None).check("/health", {"host": host})
    assert caught.value.status == 421


@pytest.mark.parametrize(
    "origin", ["https://example.org", "null", "", "http://127.0.0.1:9000", "http://localhost:8000", "file://"]
)
def test_pages_of_other_origins_are_refused(origin):
    with pytest.raises(Refused) as caught:
        Guard(frozenset(LOOPBACK), None).check("/", {"host": "127.0.0.1:8000", "origin": origin})
    assert caught.value.status == 403


def test_the_servers_own_page_is_allowed():
    Guard(frozenset(LOOPBACK), None).check("/label", {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"})


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ünïcode"]
)
def test_a_wrong_token_is_refused_and_never_repeated(sent):
    headers = {"host": "localhost"} | ({} if sent is None else {"authorization": sent})
    guard = Guard(frozenset(LOOPBACK), TOKEN)
    with pytest.raises(Refused) as caught:
        guard.check("/decide", headers)
    assert caught.value.status == 401
    assert caught.value.headers == {"www-authenticate": "Bearer"}
    assert TOKEN not in str(caught.value)
    guard.check("/health", headers)
    guard.check("/", headers)


def test_the_right_token_is_accepted():
    Guard(frozenset(LOOPBACK), TOKEN).check("/decide", {"host": "localhost", "authorization": f"bearer {TOKEN}"})


def test_the_token_comes_from_a_file_or_the_environment_and_is_never_shown(tmp_path, monkeypatch):
    monkeypatch.delenv("DUBIO_SERVE_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("DUBIO_SERVE_TOKEN", TOKEN)
    assert read_token(None) == TOKEN
    (tmp_path / "token").write_text(f"{TOKEN[::-1]}\n")
    assert read_token(tmp_path / "token") == TOKEN[::-1]
    for bad in ("short", "", "with a space in it somewhere", "ünïcode-ünïcode-ünïcode"):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(UserError, match="at least 16 ASCII characters") as caught:
            read_token(tmp_path / "token")
        assert not bad or bad not in str(caught.value)
    with pytest.raises(UserError, match="missing"):
        read_token(tmp_path / "missing")


def test_hosts_of_an_address():
    assert allowed_hosts("127.0.0.1", ()) == frozenset(LOOPBACK)
    assert allowed_hosts("192.0.2.7", ("Queue.example.org",)) == {"192.0.2.7", "queue.example.org"}
    assert allowed_hosts("0.0.0.0", ("localhost",)) == {"localhost"}
    with pytest.raises(UserError, match="--allow-host"):
        allowed_hosts("0.0.0.0", ())
