"""Declare figures once, with Altair: interactive on the page, SVG, PNG or PDF for a paper.

A figure is a function that returns an Altair chart of rows with fixed field names; names from users are values in those
rows, never fields or expressions. By convention ``method`` holds the title of a method: every chart whose rows have it
follows the page's choice of methods, through two parameters that :func:`specification` adds:

- ``shown``: the titles of the methods to draw, or null for all;
- ``highlighted``: the title of one method; the others are drawn faintly.

Altair is imported by the functions that draw: tables and scores do without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dubio.core.errors import MissingExtra, UserError
from dubio.core.files import write_file
from dubio.core.types import BoolArray, FloatArray
from dubio.reporting.style import PAPER, SHAPES, Style

if TYPE_CHECKING:
    import altair

    Chart = (
        altair.Chart
        | altair.LayerChart
        | altair.FacetChart
        | altair.ConcatChart
        | altair.HConcatChart
        | altair.VConcatChart
    )

Json = dict[str, Any]
Rows = list[dict[str, Any]]
"""Rows of a figure: field → a text, a number, a truth value or None."""

WIDTH = 640
"""Pixels of a figure as wide as the text."""
PANEL = 230
"""Pixels of a panel, four of which stand side by side."""
TICKS = 8
"""About the number of labels below a figure as wide as the text."""
FORMATS = ("png", "svg", "pdf")
FAINT = 0.12
"""Opacity of the methods that are not highlighted."""
SHOWN = "shown == null || indexof(shown, datum.method) >= 0"
PLAIN = "highlighted == '' || datum.method == highlighted"

CONFIG: Json = {
    "background": None,
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor", "titleColor": "currentColor", "tickColor": "currentColor",
        "tickOpacity": 0.4, "domainColor": "currentColor", "domainOpacity": 0.4, "gridColor": "currentColor",
        "gridOpacity": 0.12, "titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11.5,
        "labelLimit": 220, "labelSeparation": 5,
    },
    "legend": {
        "labelColor": "currentColor", "titleColor": "currentColor", "orient": "bottom", "columns": 4, "title": None,
        "labelFontSize": 11, "symbolStrokeWidth": 2, "symbolOpacity": 1, "labelLimit": 240,
        "symbolLimit": 1000,  # by default 30: further methods would be "…26 entries"
    },
    "header": {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 11.5, "title": None,
               "labelLimit": PANEL},
    "title": {"color": "currentColor", "anchor": "start", "fontSize": 12.5, "fontWeight": "normal"},
    "text": {"color": "currentColor"},
    "rule": {"color": "currentColor"},
}  # fmt: skip
"""One look for all figures; ``currentColor`` follows the page's light or dark scheme, and is black in files."""


@dataclass(frozen=True, eq=False)
class Series:
    """One method's values over a common axis.

    Attributes:
        style: How the method is drawn.
        x: ``[X]``, the axis.
        runs: ``[R, X]``, one row per run; NaN where the value is not defined.
    """

    style: Style
    x: FloatArray
    runs: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean over the runs for which the value is defined; NaN where there is none."""
        count, total = self._defined.sum(axis=0), self.runs.sum(axis=0, where=self._defined)
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))

    @property
    def std(self) -> FloatArray:
        """Sample standard deviation over those runs; zero where there is one run."""
        squares = ((self.runs - self.mean) ** 2).sum(axis=0, where=self._defined)
        return np.asarray(np.sqrt(squares / np.maximum(self._defined.sum(axis=0) - 1, 1)))

    @property
    def _defined(self) -> BoolArray:
        return np.isfinite(self.runs)

    def rows(self, **fields: Any) -> Rows:
        """Return rows with method, x, y, and the band of one standard deviation; undefined values are left out."""
        values = zip(self.x.tolist(), self.mean.tolist(), self.std.tolist(), strict=True)
        return [
            {"method": self.style.title, **fields, "x": x, "y": mean, "low": mean - std, "high": mean + std}
            for x, mean, std in values
            if math.isfinite(mean)
        ]


# Pieces that figures share.


def chart_of(rows: Iterable[Mapping[str, Any]]) -> altair.Chart:
    """Return an empty chart of these rows; numbers that are not finite become null, which nothing draws.

    Raises:
        MissingExtra: Without Altair.
    """
    if find_spec("altair") is None:
        raise MissingExtra("drawing a figure", "report")
    import altair

    # A tuple in a plain dict: Altair would check and copy lists, and data of its own classes, at every step.
    values: Any = {"values": tuple({key: _plain(value) for key, value in row.items()} for row in rows)}
    return altair.Chart(values)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def method_colour(styles: Sequence[Style], field: str = "method") -> altair.Color:
    """Return the colour of every method, with a legend in the benchmark's order; a control has a field of its own."""
    import altair

    scale = altair.Scale(domain=_titles(styles), range=[style.colour for style in styles])
    return altair.Color(f"{field}:N", sort=None, scale=scale)


def method_shape(styles: Sequence[Style]) -> altair.Shape:
    """Return the marker of every method; the legend of the colours shows it too."""
    import altair

    shapes = [SHAPES[style.marker] for style in styles]
    return altair.Shape("method:N", sort=None, scale=altair.Scale(domain=_titles(styles), range=shapes))


def method_fill(styles: Sequence[Style]) -> altair.Fill:
    """Return the inside of every method's marker: full for ensembles, hollow for single fits."""
    import altair

    fills = [style.colour if style.ensemble else PAPER for style in styles]
    return altair.Fill("method:N", sort=None, scale=altair.Scale(domain=_titles(styles), range=fills))


def method_dash(styles: Sequence[Style], field: str = "method") -> altair.StrokeDash:
    """Return the line of every method: ensembles solid, single fits dashed, test-time augmentation dotted."""
    import altair

    dashes = [style.dash for style in styles]
    return altair.StrokeDash(f"{field}:N", sort=None, scale=altair.Scale(domain=_titles(styles), range=dashes))


def line_legend(styles: Sequence[Style]) -> Json:
    """Return the legend of lines: long enough to show dashes, in the number of columns that the names allow."""
    longest = max((len(style.title) for style in styles), default=0)
    return {"symbolType": "stroke", "symbolSize": 500, "columns": min(4, max(1, WIDTH // (40 + 6 * longest)))}


def method_points(chart: altair.Chart, styles: Sequence[Style], *, size: float = 45, **channels: Any) -> altair.Chart:
    """Return one marker per row in its method's colour and shape, filled for ensembles and hollow for single fits."""
    import altair

    titles, colours = _titles(styles), [style.colour for style in styles]
    fills = [style.colour if style.ensemble else "transparent" for style in styles]
    points: altair.Chart = chart.mark_point(size=size, strokeWidth=1.3).encode(
        stroke=altair.Stroke("method:N", sort=None, scale=altair.Scale(domain=titles, range=colours)),
        fill=altair.Fill("method:N", sort=None, scale=altair.Scale(domain=titles, range=fills)),
        shape=method_shape(styles),
        **channels,
    )
    return points


def method_row(styles: Sequence[Style]) -> altair.Y:
    """Return one labelled row per method, in the benchmark's order."""
    import altair

    axis = altair.Axis(ticks=False, domain=False, labelPadding=9)  # no marker on a label
    return altair.Y("method:N", sort=_titles(styles), title=None, axis=axis)


def row_notes(chart: altair.Chart, styles: Sequence[Style]) -> altair.Chart:
    """Return the field ``note`` of every method, written at the right of its row."""
    import altair

    text = chart.mark_text(align="left", dx=8)
    notes: altair.Chart = text.encode(method_row(styles), x=altair.XValue("width"), text=altair.Text("note:N"))
    return notes


def _titles(styles: Sequence[Style]) -> list[str]:
    return [style.title for style in styles]


def curves(
    rows: Rows,
    styles: Sequence[Style],
    *,
    x: str,
    y: str,
    x_scale: altair.Scale | None = None,
    x_axis: altair.Axis | None = None,
    y_scale: altair.Scale | None = None,
) -> altair.LayerChart:
    """Return one line per method from ``x`` to ``y``, with a band from ``low`` to ``high`` and the values on hover.

    Args:
        rows: As :meth:`Series.rows` returns them.
        styles: The methods.
        x: The title of the horizontal axis.
        y: The title of the vertical axis; none where it is empty.
        x_scale: The horizontal scale; from the rows by default.
        x_axis: The horizontal axis, such as one of whole numbers.
        y_scale: The vertical scale; by default from the rows, not necessarily from 0.
    """
    import altair

    chart = chart_of(rows)
    scale = y_scale or altair.Scale(zero=False)
    horizontal = altair.X("x:Q", title=x, scale=x_scale or altair.Scale(), axis=x_axis or altair.Axis())
    vertical = altair.Y("y:Q", title=y or None, scale=scale)
    colour = method_colour(styles).legend(**line_legend(styles))
    values = tooltips({"method": "method:N", x: "x:Q", y or "mean": "y:Q", "lower": "low:Q", "upper": "high:Q"})
    band = chart.mark_area(opacity=0.1, clip=True).encode(
        horizontal, altair.Y("low:Q", title=y or None, scale=scale), y2=altair.Y2("high:Q"), color=colour
    )
    dash = method_dash(styles)
    line = chart.mark_line(strokeWidth=1.8, clip=True).encode(horizontal, vertical, color=colour, strokeDash=dash)
    hover = chart.mark_point(size=60, opacity=0, filled=True, clip=True).encode(horizontal, vertical, tooltip=values)
    return altair.LayerChart(layer=[band, line, hover])


def tooltips(fields: Mapping[str, str]) -> list[altair.Tooltip]:
    """Return what is shown on hover: title → field with its type, such as ``y:Q``; numbers with four digits."""
    import altair

    numbers: Json = {"format": ".4~g"}
    return [altair.Tooltip(field, title=t, **(numbers if field.endswith(":Q") else {})) for t, field in fields.items()]


def panels_of(
    chart: Chart,
    field: str,
    order: Sequence[str],
    *,
    columns: int = 4,
    width: float = PANEL,
    height: float | altair.Step = 0.75 * PANEL,
) -> altair.FacetChart:
    """Return one panel per value of a field, in an order.

    Args:
        chart: The panel, whose rows have the field.
        field: The field, such as ``panel``.
        order: The values in order.
        columns: The largest number of panels in a row.
        width: Pixels of a panel.
        height: Pixels of a panel, or of each of its rows.
    """
    import altair

    count = len(order)
    across = math.ceil(count / math.ceil(count / columns)) if count else 1
    facet = altair.Facet(f"{field}:N", sort=list(order), title=None)
    panels = chart.properties(width=width, height=height).facet(facet, columns=across)
    # In a last row that is not full, shared axes would stand below empty space.
    return panels.resolve_axis(x="independent") if count % across else panels


def whole_numbers(values: Iterable[float]) -> altair.Axis:
    """Return an axis with ticks at these whole numbers alone."""
    import altair

    return altair.Axis(values=sorted(set(values)), format="d")


def curve_panels(panels: Mapping[str, Sequence[Series]], *, x: str) -> altair.FacetChart:
    """Return one panel per title over whole numbers, each with a vertical scale of its own; one legend of methods.

    Args:
        panels: Title → one series per method.
        x: The title of the horizontal axis.
    """
    styles = list(dict.fromkeys(series.style for lines in panels.values() for series in lines))
    rows = [row for title, lines in panels.items() for series in lines for row in series.rows(panel=title)]
    panel = curves(rows, styles, x=x, y="", x_axis=whole_numbers(row["x"] for row in rows))
    facets = panels_of(panel, "panel", list(panels), columns=3)
    independent: altair.FacetChart = facets.resolve_scale(y="independent")
    return independent


# From a chart to a specification, and to files.


def drawn(figure: Callable[[], Chart]) -> Json:
    """Return the specification of a figure; Altair does not check it at every step, which takes most of the time."""
    if find_spec("altair") is None:
        raise MissingExtra("drawing a figure", "report")
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        return specification(figure())


def specification(chart: Chart) -> Json:
    """Return the Vega-Lite specification of a chart, with dubio's look and the page's choice of methods."""
    spec: Json = chart.to_dict(validate=False)
    spec["datasets"] = {name: list(rows) for name, rows in spec.get("datasets", {}).items()}
    spec["config"] = {**CONFIG, **{key: value for key, value in spec.get("config", {}).items() if key != "view"}}
    if spec.get("width") == "container":  # rows of a fixed height cannot be fitted
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        spec["config"].setdefault("axisX", {"tickCount": TICKS})  # one every 40 pixels would be thirty
    if _link_methods(spec, spec.get("datasets", {}), inherited=False):
        spec["params"] = [
            *spec.get("params", ()),
            {"name": "shown", "value": None},
            {"name": "highlighted", "value": ""},
        ]
    return spec


def _link_methods(node: Json, datasets: Json, inherited: bool) -> bool:
    """Filter data with methods by ``shown`` and fade marks by ``highlighted``; return whether any data has methods."""
    name = node.get("data", {}).get("name")
    linked = inherited if name is None else any("method" in row for row in datasets[name][:1])
    if name is not None and linked:
        node["transform"] = [{"filter": SHOWN}, *node.get("transform", [])]
    children = [child for key in ("layer", "hconcat", "vconcat", "concat") for child in node.get(key, ())]
    children += [node["spec"]] if "spec" in node else []
    below = [_link_methods(child, datasets, linked) for child in children]
    if linked and "mark" in node and "opacity" not in node.setdefault("encoding", {}):
        mark = node["mark"]
        full = mark.get("opacity", 1) if isinstance(mark, dict) else 1
        if full:
            node["encoding"]["opacity"] = {"condition": {"test": PLAIN, "value": full}, "value": full * FAINT}
    return linked or any(below)


def data_of(spec: Json) -> Rows:
    """Return the rows of all data in a specification, those of several data sets one after the other."""
    return [row for rows in spec.get("datasets", {}).values() for row in rows]


def save(spec: Json, kind: str) -> bytes:
    """Return a figure as a file of this kind (png, svg or pdf), without a browser or the network."""
    import vl_convert

    fixed = _still(spec)
    fixed["config"] = {**fixed.get("config", {}), "aria": False}
    version: Json = {"vl_version": vegalite_version(), "allowed_base_urls": []}
    if kind in ("svg", "pdf"):
        image = _numbered_clips(str(vl_convert.vegalite_to_svg(fixed, **version)))
        return image.encode() if kind == "svg" else bytes(vl_convert.svg_to_pdf(image))
    return bytes(vl_convert.vegalite_to_png({**fixed, "background": "white"}, scale=2.5, **version))


def _still(node: Json) -> Json:
    """Return a specification of fixed width, without the invisible marks that show values on hover."""
    layers = [layer for layer in node.get("layer", ()) if not _invisible(layer)]
    inner: Json = {k: [_still(child) for child in node[k]] for k in ("hconcat", "vconcat", "concat") if k in node}
    inner |= {"layer": [_still(layer) for layer in layers]} if layers else {}
    inner |= {"spec": _still(node["spec"])} if "spec" in node else {}
    return {**node, **inner, **({"width": WIDTH} if node.get("width") == "container" else {})}


def _invisible(layer: Json) -> bool:
    return isinstance(layer.get("mark"), dict) and layer["mark"].get("opacity") == 0


def _numbered_clips(svg: str) -> str:
    """Return an image whose clip paths are numbered from 0: Vega goes on counting from one figure to the next."""
    names = dict.fromkeys(re.findall(r'<clipPath id="(clip\d+)"', svg))
    numbers = {name: f"clip{index}" for index, name in enumerate(names)}
    pattern = r'(<clipPath id="|clip-path="url\(#)(clip\d+)'
    return re.sub(pattern, lambda match: match[1] + numbers.get(match[2], match[2]), svg)


def vegalite_version() -> str:
    """Return the version of Vega-Lite that Altair writes, as vl-convert names it."""
    import altair

    return ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def write_figure(chart: Chart, path: Path, option: str) -> Path:
    """Write a figure in the format of its file's ending; the same figure gives the same PNG and SVG.

    Raises:
        UserError: For another ending, naming the option that the path comes from.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(f"{option} {str(path)!r}: the name must end in one of {', '.join('.' + f for f in FORMATS)}.")
    return write_file(path, save(specification(chart), kind))
