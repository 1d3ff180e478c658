"""Reading charts: their rows, and the texts that Vega would interpret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dubio.reporting.charts import data_of, specification

if TYPE_CHECKING:
    from dubio.reporting.charts import Chart

INTERPRETED = {"field", "expr", "filter", "test", "calculate", "labelExpr", "format", "as", "x2", "y2", "equal"}
HOSTILE = "<b>'+datum.y+'{{x}}\\"


def rows_of(chart: Chart) -> list[dict[str, Any]]:
    """Return the rows of a valid chart."""
    chart.to_dict()
    return data_of(specification(chart))


def interpreted(chart: Chart) -> set[str]:
    """Return all names of fields and all texts that are fields, expressions or format strings."""
    spec = specification(chart)
    datasets = spec.pop("datasets")
    fields = {field for rows in datasets.values() for row in rows for field in row}
    return fields | {text for key, text in _texts(spec, "") if key in INTERPRETED}


def _texts(node: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _texts(child, name)
    elif isinstance(node, list):
        for child in node:
            yield from _texts(child, key)
    elif isinstance(node, str):
        yield key, node
