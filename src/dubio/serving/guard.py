"""Who may speak to the server: Host and Origin, the token, and how much at once. Checked before anything is read.

The check of Host keeps a web page from reaching a server on the loopback address under a name of its own (DNS
rebinding); that of Origin keeps pages of other sites from sending requests with a reader's browser.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dubio.core.errors import UserError
from dubio.core.files import reading

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_VARIABLE = "DUBIO_SERVE_TOKEN"
LEAST_TOKEN = 16
"""Characters of a token; `openssl rand -hex 32` makes one of 64."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN_PATHS = ("/", "/health")
"""Paths that need no token: the page, which holds no data, and the state of the server."""
CHECKED = ("host", "origin", "authorization")
"""Headers that are checked: of two, one might be checked and the other used."""
RETRY_AFTER = "1"


class Refused(UserError):
    """A request that is refused, with its status and further headers."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        """Keep the status, and headers by their names with underscores."""
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def read_token(path: Path | None) -> str | None:
    """Return the token of a file, or of the environment, or None.

    Raises:
        UserError: When it is too short; it is never part of a message.
    """
    if path is not None:
        with reading(path):
            token = path.read_bytes()[:4096].decode("utf-8", "replace").strip()
        source = f"--token-file {str(path)!r}"
    elif TOKEN_VARIABLE in os.environ:
        token, source = os.environ[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE
    else:
        return None
    if len(token) < LEAST_TOKEN or not token.isascii() or any(sign.isspace() for sign in token):
        raise UserError(f"{source} must hold a token of at least {LEAST_TOKEN} ASCII characters without spaces.")
    return token


def is_loopback(address: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def allowed_hosts(address: str, names: tuple[str, ...]) -> frozenset[str]:
    """Return the names by which the server may be called.

    Raises:
        UserError: For an address that stands for all of a machine's, without a name.
    """
    if is_loopback(address):
        return frozenset((*LOOPBACK, address, *names))
    if address in ("0.0.0.0", "::") and not names:
        raise UserError(f"--address {address} stands for every address of this machine: say with --allow-host by which "
                        "names clients call it.")  # fmt: skip
    return frozenset({name.lower() for name in (address, *names)} - {"0.0.0.0", "::"})


@dataclass(frozen=True)
class Guard:
    """The checks of a request by its headers.

    Attributes:
        hosts: Names by which the server may be called.
        token: The token that requests must carry, or None.
    """

    hosts: frozenset[str]
    token: str | None

    def check(self, path: str, headers: dict[str, str]) -> None:
        """Refuse a request that must not come in.

        Raises:
            Refused: With the reason.
        """
        host = headers.get("host", "")
        if _host_name(host) not in self.hosts:
            raise Refused(421, f"this server is not called {host[:100]!r}; --allow-host names others.")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Refused(403, f"requests of pages from {origin[:100]!r} are refused.")
        if self.token is None or path in OPEN_PATHS:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            raise Refused(401, "the token is missing or wrong: send Authorization: Bearer TOKEN.",
                          www_authenticate="Bearer")  # fmt: skip


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class Turnstile:
    """ASGI middleware that checks requests and bounds how many are under way."""

    def __init__(self, app: ASGIApp, guard: Guard, limit: int, refuse: Any) -> None:
        """Wrap an application.

        Args:
            app: The application.
            guard: The checks.
            limit: Requests at a time; further ones are told to come again.
            refuse: Makes a response of a :class:`Refused`.
        """
        self._app, self._guard, self._limit, self._refuse, self._active = app, guard, limit, refuse, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        headers, names = dict(pairs), [name for name, _ in pairs]
        try:
            if twice := next((name for name in CHECKED if names.count(name) > 1), None):
                raise Refused(400, f"the header {twice!r} is there twice.")
            self._guard.check(scope["path"], headers)
            if self._active >= self._limit and scope["path"] not in OPEN_PATHS:
                raise Refused(503, f"{self._limit} requests are under way; try again.", retry_after=RETRY_AFTER)
        except (Refused, ValueError) as fault:
            refused = fault if isinstance(fault, Refused) else Refused(400, "the headers cannot be read.")
            await self._refuse(scope, refused)(scope, receive, send)
            return
        self._active += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._active -= 1
