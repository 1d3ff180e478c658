"""The OpenAPI document is valid, and true: what the server takes and gives is what it describes."""

from __future__ import annotations

import json

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from dubio.serving.web import ENDPOINTS
from tests.serving.helpers import client_of, rows
from tests.serving.test_web import BAD_BODIES


@pytest.fixture
def client(tmp_path):
    with client_of(tmp_path) as client:
        yield client


def check(document, schema, value):
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def accepts(document, value):
    schema = document["paths"]["/decide"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]}).is_valid(value)


def test_the_document_is_valid_and_has_every_endpoint(client):
    document = client.get("/openapi.json").json()
    OpenAPIV31SpecValidator(document).validate()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    routes = {(method, route.path) for route in client.app._app.routes for method in route.methods - {"HEAD"}}
    assert described == routes


def test_answers_and_refusals_are_as_described(client):
    document = client.get("/openapi.json").json()
    first = client.post("/decide", json={"rows": rows(30)})
    name = client.get("/queue").json()["rows"][0]["decision"]["id"]
    responses = [
        first,
        client.post("/decide", json={"rows": []}),
        client.post("/decide", content=b"{", headers={"content-type": "application/json"}),
        client.post("/decide", content=b"{}"),
        client.post("/decide", json={"rows": [{"id": name, "row": {"a": 0, "b": 0}}]}),
        client.post("/label", json={"id": name, "label": "ham"}),
        client.post("/label", json={"id": name, "label": "spam"}),
        client.post("/label", json={"id": name, "label": None}),
        client.post("/label", json={"id": "other", "label": "ham"}),
        client.get("/queue"),
        client.get("/queue?limit=0"),
        client.get("/health"),
        client.get("/queue", headers={"origin": "https://example.org"}),
        client.get("/queue", headers={"host": "example.org"}),
    ]
    statuses = set()
    for response in responses:
        operation = document["paths"][response.url.path][response.request.method.lower()]
        described = operation["responses"][str(response.status_code)]
        check(document, described["content"]["application/json"]["schema"], response.json())
        statuses.add(response.status_code)
    assert statuses == {200, 400, 403, 404, 409, 415, 421, 422}
    for path in ("/metrics", "/openapi.json", "/"):
        response = client.get(path)
        (media,) = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert response.headers["content-type"].startswith(media)


def test_what_is_accepted_is_described_and_what_is_not_described_is_refused(client):
    document = client.get("/openapi.json").json()
    good = [
        {"rows": rows(2)},
        {"rows": [{"probabilities": {"ham": 0.5, "spam": 0.5}}]},
        {"rows": [{"probabilities": [{"ham": 0.5, "spam": 0.5}, {"ham": 1, "spam": 0}], "row": {"a": 1, "b": 1}}]},
    ]
    for body in good:
        assert accepts(document, body)
        assert client.post("/decide", json=body).status_code == 200
    undescribed = ("a list", "null", "no rows", "empty rows", "unknown field", "unknown field of a row",
                   "missing column", "nothing in a row", "unknown column", "a list for a value", "other classes",
                   "a missing class", "a share above one", "an empty id",
                   "an id with a line end", "an id that is a number")  # fmt: skip
    for name in undescribed:
        assert not accepts(document, json.loads(BAD_BODIES[name][0])), name
    assert not accepts(document, {"rows": rows(257)})


def test_labels_are_described_by_the_classes(client):
    document = client.get("/openapi.json").json()
    schema = document["components"]["schemas"]["LabelRequest"]["properties"]["label"]
    assert client.post("/decide", json={"rows": [{"id": "a", "probabilities": {"ham": 0.5, "spam": 0.5}}]}).is_success
    for label, accepted in (("ham", True), (None, True), ([], False), (["ham"], False), ("eggs", False), (3, False)):
        assert jsonschema.Draft202012Validator(schema).is_valid(label) == accepted
        assert client.post("/label", json={"id": "a", "label": label}).is_success == accepted
