"""The OpenAPI document of a server, made from its endpoints and the documents that they decode."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dubio import __version__
from dubio.core.validate import json_schema
from dubio.serving import messages
from dubio.serving.decider import Decider
from dubio.serving.guard import OPEN_PATHS

if TYPE_CHECKING:
    from dubio.serving.web import Endpoint, Limits

Json = dict[str, Any]

_ALWAYS = {
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    421: "The server is not called by this name.",
    500: "An error that nobody foresaw.",
    503: "Too many requests are under way.",
}


def openapi_document(endpoints: Iterable[Endpoint], decider: Decider, limits: Limits) -> Json:
    """Return the document, OpenAPI 3.1.

    Args:
        endpoints: The endpoints.
        decider: Its classes and columns bound the documents.
        limits: The bounds on requests.
    """
    schemas = {cls.__name__: json_schema(cls) for cls in _message_types()}
    probabilities = _probabilities(decider, 0, 1)
    schemas["RowRequest"]["properties"]["probabilities"]["anyOf"] = [
        probabilities, {"type": "array", "items": probabilities, "minItems": 1}, {"type": "null"},
    ]  # fmt: skip
    schemas["RowRequest"]["anyOf"] = [*_predictable(decider), {"required": ["probabilities"]}]
    schemas["Decision"]["properties"]["probabilities"] |= _probabilities(decider, 0, 1)
    for name in ("LabelRequest", "LabelResponse"):
        schemas[name]["properties"]["label"] |= _label(decider)
    rows = schemas["DecideRequest"]["properties"]["rows"]
    rows |= {"items": _reference(messages.RowRequest), "maxItems": limits.rows}
    schemas["DecideResponse"]["properties"]["decisions"]["items"] = _reference(messages.Decision)
    schemas["QueueResponse"]["properties"]["rows"]["items"] = _reference(messages.QueueRow)
    schemas["QueueRow"]["properties"]["decision"] = _reference(messages.Decision)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dubio", "version": __version__, "description": f"Decisions: {decider.rule}."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Where one was set."}},
        },
    }


def _message_types() -> Iterator[type[Any]]:
    return (cls for cls in vars(messages).values() if isinstance(cls, type) and dataclasses.is_dataclass(cls))


def _reference(cls: type[Any]) -> Json:
    return {"$ref": f"#/components/schemas/{cls.__name__}"}


def _probabilities(decider: Decider, low: float, high: float) -> Json:
    share = {"type": "number", "minimum": low, "maximum": high}
    return {
        "type": "object", "properties": dict.fromkeys(decider.classes, share), "required": list(decider.classes),
        "additionalProperties": False,
    }  # fmt: skip


def _label(decider: Decider) -> Json:
    """Return the labels that a row may have: one class, or a list of them; null where it has none."""
    label: Json = {"enum": list(decider.classes)}
    if decider.target == "multilabel":
        label = {"type": "array", "items": label}
    return {"anyOf": [label, {"type": "null"}]}


def _predictable(decider: Decider) -> list[Json]:
    """Return the condition on a request that the model predicts: a row has its columns, and no others."""
    kinds: dict[str, Json] = {
        "text": {"type": ["string", "null"]},
        "any": {"type": ["string", "number", "null"]},
        "image": {"type": "string", "contentEncoding": "base64", "description": "A PNG or JPEG."},
    }
    if not decider.columns:
        return []
    columns = {column.name: kinds[column.kind] for column in decider.columns}
    row = {"type": "object", "properties": columns, "required": list(columns), "additionalProperties": False}
    return [{"required": ["row"], "properties": {"row": row}}]


def _operation(endpoint: Endpoint) -> Json:
    """Return what one method of a path takes and gives."""
    refusals = {**_ALWAYS, **endpoint.refusals}
    if endpoint.path in OPEN_PATHS:
        del refusals[401]
        if 503 not in endpoint.refusals:
            del refusals[503]
    content = endpoint.gives if isinstance(endpoint.gives, str) else "application/json"
    schema = {} if isinstance(endpoint.gives, str) else {"schema": _reference(endpoint.gives)}
    responses: dict[str, Json] = {"200": {"description": "The answer.", "content": {content: schema}}}
    error = {"application/json": {"schema": _reference(messages.Refusal)}}
    for status, description in sorted(refusals.items()):
        responses[str(status)] = {"description": description, "content": error}
    if endpoint.path == "/health":
        responses["503"]["content"] = {"application/json": {"schema": _reference(messages.Health)}}
    operation: Json = {
        "summary": (endpoint.handler.__doc__ or "").strip(),
        "operationId": getattr(endpoint.handler, "__name__", ""),
        "responses": responses,
        "security": [] if endpoint.path in OPEN_PATHS else [{"token": []}, {}],
    }
    if endpoint.takes is not None:
        body = {"application/json": {"schema": _reference(endpoint.takes)}}
        operation["requestBody"] = {"required": True, "content": body}
    if endpoint.path == "/queue":
        from dubio.serving.web import QUEUE_LIMIT

        limit = {"type": "integer", "minimum": 1, "maximum": QUEUE_LIMIT, "default": 20}
        operation["parameters"] = [{"name": "limit", "in": "query", "description": "Rows to list.", "schema": limit}]
    return operation
