"""Helpers of the core's tests: a small validator of JSON Schema."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions

TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


def schema_fault(schema: Any, value: Any, where: str = "document") -> str | None:
    """Return why a value does not satisfy a JSON Schema, or None; the keywords that dubio's schemas use are known."""
    if schema is True or schema == {}:
        return None
    if schema is False:
        return f"{where} is not allowed"
    known = {
        "anyOf", "enum", "const", "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern",
        "minItems", "maxItems", "minLength", "minProperties", "uniqueItems", "items", "prefixItems", "properties",
        "required", "additionalProperties", "title", "description",
    }  # fmt: skip
    assert set(schema) <= known, set(schema) - known
    if "anyOf" in schema:
        faults = [schema_fault(choice, value, where) for choice in schema["anyOf"]]
        return None if None in faults else f"{where}: none of {faults}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is not in {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is not {schema['const']}"
    if "type" in schema:
        fits = isinstance(value, TYPES[schema["type"]])
        if not fits or (isinstance(value, bool) and schema["type"] != "boolean"):
            return f"{where} is not of type {schema['type']}"
    return _scalar_fault(schema, value, where) or _entries_fault(schema, value, where)


def _scalar_fault(schema: Any, value: Any, where: str) -> str | None:
    if isinstance(value, int | float):
        fits = (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        )
        return None if fits else f"{where} is out of range"
    if isinstance(value, str):
        fits = re.search(schema.get("pattern", ""), value) is not None and len(value) >= schema.get("minLength", 0)
        return None if fits else f"{where} does not match"
    return None


def _entries_fault(schema: Any, value: Any, where: str) -> str | None:
    faults: list[str | None] = []
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{where} has {len(value)} entries"
        if schema.get("uniqueItems") and any(item in value[:i] for i, item in enumerate(value)):
            return f"{where} has an entry twice"
        hints = schema.get("prefixItems", [schema.get("items", True)] * len(value))
        faults = [schema_fault(hints[i], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        missing = [key for key in schema.get("required", ()) if key not in value]
        if missing or len(value) < schema.get("minProperties", 0):
            return f"{where} lacks {missing}"
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        faults = [schema_fault(properties.get(key, others), item, f"{where}.{key}") for key, item in value.items()]
    return next((fault for fault in faults if fault is not None), None)


def some_predictions(seed=0, samples=2, rows=5, classes=3, **more):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    return Predictions(rng.normal(size=(samples, rows, classes)).astype(np.float32), labels, **more)
