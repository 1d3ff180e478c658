"""The web application: its endpoints, the bounds on requests, and what becomes of one that cannot be answered.

:data:`ENDPOINTS` is the one table of endpoints: routes and the OpenAPI document are made from it. Every refusal is JSON
with one field, ``error``. Contents of rows are never logged: of an error that nobody foresaw the log has its type and
place, not its message, which may quote a row.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dubio import __version__
from dubio.core.documents import parse_json
from dubio.core.errors import CorruptFile, DubioError, UnknownName, UserError
from dubio.core.validate import decode
from dubio.serving import exposition, queue_page
from dubio.serving.decider import Decider
from dubio.serving.exposition import Measurements
from dubio.serving.guard import RETRY_AFTER, Guard, Refused, Turnstile
from dubio.serving.log_file import LogFailed
from dubio.serving.messages import (
    DecideRequest,
    DecideResponse,
    Health,
    LabelRequest,
    LabelResponse,
    QueueResponse,
)
from dubio.serving.pipeline import Conflict, Pipeline, UnknownRow
from dubio.serving.register import Register

PARSED_IN_LOOP = 1 << 18
"""Bytes of a body that are parsed at once; larger ones in a thread, so that others need not wait."""

DISCARDED = 512 << 20
"""Bytes of a body that is too large which are read and thrown away, so that the client gets to read the refusal."""

LONGEST_HEAD = 1 << 16
"""Bytes of a request line with all headers, beyond those that arrive in one piece."""

QUEUE_LIMIT = 200


@dataclass(frozen=True)
class Limits:
    """The bounds on requests.

    Attributes:
        body: Bytes of a body.
        rows: Rows of a request.
        requests: Requests at a time.
        seconds: Time for a body to arrive.
    """

    body: int = 16 << 20
    rows: int = 256
    requests: int = 256
    seconds: float = 30.0


class BoundedHttp(HttpToolsProtocol):
    """A connection, which is closed where the head or the trailer of a request does not end in time.

    httptools takes request lines, headers and trailers of any size; :class:`Limits` bounds what is read of a body.
    """

    _unfinished = 0

    def data_received(self, data: bytes) -> None:
        """Parse what was received, some hundred kilobytes at most."""
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The request line and the headers may have {LONGEST_HEAD} bytes.")

    def on_headers_complete(self) -> None:
        """Begin a body."""
        self._unfinished = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unfinished = 0
        super().on_message_complete()


class Service:
    """The parts of a server that answer requests."""

    def __init__(self, decider: Decider, register: Register, limits: Limits, health: Health) -> None:
        """Keep the parts; the pipeline is started with the event loop."""
        self.decider, self.register, self.limits, self._health = decider, register, limits, health
        self.measured = Measurements()
        self.pipeline: Pipeline | None = None

    @property
    def running(self) -> Pipeline:
        """The pipeline.

        Raises:
            Refused: When the server is starting or stopping.
        """
        if self.pipeline is None:
            raise Refused(503, "the server is not ready.", retry_after=RETRY_AFTER)
        if self.pipeline.failure is not None:
            raise self.pipeline.failure
        return self.pipeline

    async def decide(self, request: Request) -> Response:
        """Decide about rows."""
        started = perf_counter()
        document = await self._document(request, DecideRequest)
        if len(document.rows) > self.limits.rows:
            raise Refused(413, f"a request may have {self.limits.rows} rows; given {len(document.rows)}.")
        items = [self.decider.item(row, number) for number, row in enumerate(document.rows)]
        response = json_response({"decisions": await self.running.decide(items)})
        self.measured.request.observe(perf_counter() - started)
        return response

    async def label(self, request: Request) -> Response:
        """Label a row, or withdraw its label."""
        document = await self._document(request, LabelRequest)
        self._check_label(document.label)
        await self.running.label(document)
        state = self.register.state
        label, waiting = state.labels.get(document.id), len(state.waiting)
        return json_response(asdict(LabelResponse(document.id, label, waiting, state.labelled_referrals)))  # type: ignore[arg-type]

    def _check_label(self, label: str | tuple[str, ...] | None) -> None:
        several = self.decider.target == "multilabel"
        if label is not None and isinstance(label, tuple) != several:
            expected = "a list of classes" if several else "one class"
            raise UserError(f"field 'label' must be {expected}, or null; given {json.dumps(label)[:60]}.")
        for name in (label,) if isinstance(label, str) else label or ():
            if name not in self.decider.classes:
                raise UnknownName("class", name, self.decider.classes)

    async def queue(self, request: Request) -> Response:
        """Return the rows that wait for an expert."""
        limit = _query_limit(request.query_params)
        state = self.register.state
        rows = [{"at": entry["at"], "row": row, "decision": entry["decision"]}
                for entry, row in self.register.queue(limit)]  # fmt: skip
        return json_response({
            "waiting": len(state.waiting), "labelled": state.labelled_referrals, "classes": self.decider.classes,
            "several": self.decider.target == "multilabel",
            "columns": [asdict(column) for column in self.decider.columns], "rows": rows,
        })  # fmt: skip

    async def health(self, request: Request) -> Response:
        """Return the state of the server."""
        failure = self.pipeline.failure if self.pipeline is not None else None
        document = asdict(self._health) | ({} if failure is None else {"status": str(failure)})
        return json_response(document, 200 if failure is None else 503)

    async def metrics(self, request: Request) -> Response:
        """Return counts in the text format of Prometheus."""
        state = self.register.state
        gauges = {
            "dubio_queue_rows": ("Referred rows without a label.", len(state.waiting)),
            "dubio_log_bytes": ("Bytes of the log of decisions.", self.register.log.size),
        }
        text = self.measured.text(gauges, state.counts, len(state.labels))
        return Response(text, media_type=exposition.CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        """Return the description of these endpoints."""
        from dubio.serving.openapi import openapi_document

        return json_response(openapi_document(ENDPOINTS, self.decider, self.limits))

    async def page(self, request: Request) -> Response:
        """Return the page of the expert's queue."""
        return Response(queue_page.html(), media_type="text/html; charset=utf-8", headers=queue_page.headers())

    async def _document(self, request: Request, cls: type[Any]) -> Any:
        """Return the body of a request as one of :mod:`dubio.serving.messages`."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise Refused(415, f"the body must be application/json; given {content_type[:60] or 'no content type'!r}.")
        body = await self._body(request)

        def parse() -> Any:
            return decode(cls, parse_json(body, "the body", NotJson), "the body")

        return parse() if len(body) <= PARSED_IN_LOOP else await asyncio.to_thread(parse)

    async def _body(self, request: Request) -> bytes:
        chunks, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= self.limits.body:
                        chunks.append(chunk)
                    elif size > DISCARDED:
                        break
        except TimeoutError:
            raise Refused(408, f"the body took longer than {self.limits.seconds:g} seconds.") from None
        except ClientDisconnect:
            raise Refused(400, "the connection ended before the body did.") from None
        if size > self.limits.body:
            raise Refused(413, f"a body may have {self.limits.body} bytes; this one has more.")
        return b"".join(chunks)


class NotJson(UserError):
    """A body that is not JSON, or breaks a limit of dubio's documents."""


def _query_limit(query: Mapping[str, str]) -> int:
    for name in query:
        if name != "limit":
            raise UnknownName("parameter", name, ("limit",))
    text = query.get("limit", "20")
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= QUEUE_LIMIT):
        raise UserError(f"limit must be a whole number between 1 and {QUEUE_LIMIT}; given {text[:60]!r}.")
    return int(text)


# --- endpoints ------------------------------------------------------------------------------------------------------

Handler = Callable[[Service, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: GET or POST.
        path: The path.
        handler: The method of the service.
        takes: The document in the body, or None.
        gives: The document in the answer, or its media type.
        refusals: Statuses of refusals beside those that every endpoint has, with their meaning.
    """

    method: str
    path: str
    handler: Handler
    takes: type[Any] | None
    gives: type[Any] | str
    refusals: Mapping[int, str]


_BODY = {
    400: "The body is not JSON.", 408: "The body took too long.", 413: "The body is too large.",
    415: "The body is not application/json.", 422: "The document is not valid.",
    503: "The log cannot be written, or too many requests are under way.",
}  # fmt: skip

ENDPOINTS = (
    Endpoint("POST", "/decide", Service.decide, DecideRequest, DecideResponse,
             _BODY | {409: "An id was used for other content."}),
    Endpoint("POST", "/label", Service.label, LabelRequest, LabelResponse,
             _BODY | {404: "The id was never decided about.", 409: "The row has another label."}),
    Endpoint("GET", "/queue", Service.queue, None, QueueResponse, {422: "The limit is not valid."}),
    Endpoint("GET", "/health", Service.health, None, Health, {503: "The log cannot be written."}),
    Endpoint("GET", "/metrics", Service.metrics, None, "text/plain", {}),
    Endpoint("GET", "/openapi.json", Service.openapi, None, "application/json", {}),
    Endpoint("GET", "/", Service.page, None, "text/html", {}),
)  # fmt: skip

STATUSES: tuple[tuple[type[DubioError], int], ...] = (
    (NotJson, 400), (UnknownRow, 404), (Conflict, 409), (LogFailed, 503), (CorruptFile, 500), (UserError, 422),
)  # fmt: skip


def make_app(service: Service, guard: Guard, lifespan: Lifespan[Any]) -> Turnstile:
    """Return the application, behind its guard."""

    def answering(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                response = await endpoint.handler(service, request)
            except Exception as fault:
                response = refusal(fault)
            service.measured.requests[endpoint.path, response.status_code] += 1
            return response

        return answer

    def refuse(scope: Scope, fault: Refused) -> Response:
        path = scope["path"] if any(scope["path"] == endpoint.path for endpoint in ENDPOINTS) else "other"
        service.measured.requests[path, fault.status] += 1
        return refusal(fault)

    async def no_route(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        paths = ", ".join(endpoint.path for endpoint in ENDPOINTS)
        allowed = ", ".join(endpoint.method for endpoint in ENDPOINTS if endpoint.path == request.url.path)
        reason = f"this path takes {allowed}." if allowed else f"there is no such path; there are {paths}."
        headers = {"allow": allowed} if allowed else {}
        return refuse(request.scope, Refused(fault.status_code, reason, **headers))

    routes = [Route(endpoint.path, answering(endpoint), methods=[endpoint.method]) for endpoint in ENDPOINTS]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route}, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Turnstile(app, guard, service.limits.requests, refuse)


def refusal(fault: Exception) -> Response:
    """Return the response to a request that ends in an error."""
    if isinstance(fault, Refused):
        return json_response({"error": str(fault)}, fault.status, fault.headers)
    for kind, status in STATUSES:
        if isinstance(fault, kind):
            return json_response({"error": str(fault)}, status)
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    location = f"{type(fault).__name__} at {frame.filename}:{frame.lineno}"
    print(f"dubio: unexpected error: {location}; please report it.", file=sys.stderr, flush=True)
    return json_response({"error": "an unexpected error; the server has noted its place."}, 500)


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON document that no cache keeps and no browser takes for another type."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    own = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(headers or {})}
    return Response(text.encode("utf-8"), status, own, media_type="application/json")


def health_of(decider: Decider, policy: str | None) -> Health:
    """Return the state of a server that can decide.

    Args:
        decider: Its model and policy.
        policy: SHA-256 of the policy.
    """
    identity = None if decider.model is None else decider.model.identity
    return Health("ok", __version__, identity, policy, decider.rule)
