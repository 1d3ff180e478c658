"""Checks of charts: valid specifications, their rows, and no text of users where Vega reads names or expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dubio.reporting.charts import Rows, data_of, save, specification

TEXTS = {"datasets", "domain", "sort", "title", "subtitle"}
"""Parts of a specification that hold values and titles, which Vega shows and never evaluates."""


def rows_of_chart(chart: Any, *present: str) -> Rows:
    """Return the rows that have all these fields; the chart is valid by the schema, and it can be drawn."""
    chart.to_dict()
    spec = specification(chart)
    assert save(spec, "svg").startswith(b"<svg")
    return [row for row in data_of(spec) if all(row.get(field) is not None for field in present)]


def names_and_expressions(chart: Any) -> list[str]:
    """Return every text of a specification but values and titles: fields, expressions, formats, marks."""
    return list(_texts(specification(chart)))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in TEXTS:
                yield key
                yield from _texts(value)
    elif isinstance(node, list):
        for item in node:
            yield from _texts(item)
    elif isinstance(node, str):
        yield node
