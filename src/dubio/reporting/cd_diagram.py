"""The critical-difference diagram (Demšar 2006): methods on a line of mean ranks, bars over those that do not differ.

The best rank is on the left. Half of the methods hang to the left of the line and half to the right, one a row, so that
names of any length stay legible whatever the number of methods. All positions are pixels from the left end of the line,
downwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Literal

from dubio.core.errors import UserError
from dubio.reporting.charts import Rows, chart_of, tooltips
from dubio.reporting.style import MUTED

if TYPE_CHECKING:
    import altair

BAR = "#0065a9"
ROW, BAR_STEP, LETTER = 20, 12, 6.4
"""Pixels between two names, between two bars, and of the mean width of a letter."""
LINE = 320
"""Pixels of the line of ranks."""
ABOVE = 58
"""Pixels above the line: its numbers, and the critical difference."""
KINDS = {"line": ("currentColor", 1.2), "difference": (BAR, 1.6), "bar": (BAR, 4.0)}
"""Colour and thickness of the line of ranks, of the critical difference, and of the bars of what does not differ."""
SIDES: tuple[tuple[str, Literal["left", "right"], int], ...] = (("left", "right", -3), ("right", "left", 3))
"""The sides of the line, where their texts are aligned, and the pixels between a leader and its mean rank."""
GAP, NUMBER = 22, 34
"""Pixels between the line and a mean rank, and of the rank with the space to the name."""


@dataclass(frozen=True)
class _Scale:
    """Ranks to pixels along the line."""

    low: int
    high: int

    def __call__(self, rank: float) -> float:
        """Return the position of a rank."""
        return LINE * (rank - self.low) / (self.high - self.low)


def draw_cd_diagram(
    average_ranks: Mapping[str, float],
    critical_difference: float,
    cliques: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
) -> altair.LayerChart:
    """Return the diagram as a chart.

    Args:
        average_ranks: Method to mean rank.
        critical_difference: Length of the bar that shows what differs.
        cliques: Sets of methods that do not differ significantly.
        title: Above, to the left.
        note: Below the title, e.g. Friedman's test.

    Raises:
        MissingExtra: When Altair is not installed.
        UserError: For fewer than two methods.
    """
    if len(average_ranks) < 2:
        raise UserError(f"a critical-difference diagram needs at least two methods; given {len(average_ranks)}.")
    low, high = floor(min(average_ranks.values())), ceil(max(average_ranks.values()))
    scale = _Scale(low, max(high, low + 1))
    methods = hanging_names(average_ranks, scale, 16 + BAR_STEP * len(cliques))
    segments, texts = [*_line(scale), *_bars(scale, average_ranks, cliques)], _numbers(scale)
    difference = scale(low + critical_difference)
    segments.append({"x": 0, "x2": min(LINE, difference), "y": -34, "y2": -34, "kind": "difference"})
    ends = [0, difference] if difference <= LINE else [0]
    segments += [{"x": x, "x2": x, "y": -38, "y2": -30, "kind": "difference"} for x in ends]
    label = f"CD = {critical_difference:.3f}" + ("" if difference <= LINE else ", longer than the line →")
    texts.append({"x": 0, "y": -46, "text": label, "kind": "difference"})
    return _chart(methods, segments, texts, title, note)


def hanging_names(ranks: Mapping[str, float], scale: _Scale, top: float) -> Rows:
    """Return every method with its place on the line and its row on a side.

    On either side the outermost rank takes the uppermost row, so that no lines cross.

    Args:
        ranks: Method to mean rank.
        scale: Ranks to pixels.
        top: Pixels between the line and the first row.
    """
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    half = ceil(len(names) / 2)
    rows: Rows = []
    for side, hanging in (("left", names[:half]), ("right", names[: half - 1 : -1])):
        sign, end = (-1, 0) if side == "left" else (1, LINE)
        for row, name in enumerate(hanging):
            rows.append({
                "method": name, "rank": ranks[name], "number": f"{ranks[name]:.2f}", "side": side,
                "x": scale(ranks[name]), "y": top + ROW * (row + 0.5),
                "edge": end + sign * GAP, "name": end + sign * (GAP + NUMBER),
            })  # fmt: skip
    return rows


def _line(scale: _Scale) -> Iterator[dict[str, object]]:
    yield {"x": 0, "x2": LINE, "y": 0, "y2": 0, "kind": "line"}
    for tick in range(scale.low, scale.high + 1):
        yield {"x": scale(tick), "x2": scale(tick), "y": -7, "y2": 0, "kind": "line"}


def _numbers(scale: _Scale) -> Rows:
    step = 1 if scale.high - scale.low <= 12 else 2
    return [
        {"x": scale(tick), "y": -16, "text": str(tick), "kind": "line"}
        for tick in range(scale.low, scale.high + 1, step)
    ]


def _bars(scale: _Scale, ranks: Mapping[str, float], cliques: Sequence[Sequence[str]]) -> Iterator[dict[str, object]]:
    """Yield one bar per set of methods that do not differ, each below the last."""
    for index, clique in enumerate(cliques):
        y = 11 + BAR_STEP * index
        first, last = (scale(ranks[name]) for name in (clique[0], clique[-1]))
        yield {"x": first - 3, "x2": last + 3, "y": y, "y2": y, "kind": "bar", "names": ", ".join(clique)}


def _chart(methods: Rows, segments: Rows, texts: Rows, title: str, note: str) -> altair.LayerChart:
    import altair

    longest = {
        s: max((len(row["method"]) for row in methods if row["side"] == s), default=0) for s in ("left", "right")
    }
    margins = [GAP + NUMBER + LETTER * longest[side] for side in ("left", "right")]
    depth = max(row["y"] for row in methods) + ROW
    x_scale = altair.Scale(domain=[-margins[0], LINE + margins[1]], nice=False)
    y_scale = altair.Scale(domain=[-ABOVE, depth], nice=False, reverse=True)

    def at(x: str, y: str) -> tuple[altair.X, altair.Y]:
        return altair.X(f"{x}:Q", scale=x_scale, axis=None), altair.Y(f"{y}:Q", scale=y_scale, axis=None)

    hung, values = chart_of(methods), tooltips({"method": "method:N", "mean rank": "rank:Q"})
    leader = hung.mark_rule(color=MUTED, strokeWidth=0.8)
    layers = [leader.encode(*at("x", "y"), y2=altair.Y2Datum(0)), leader.encode(*at("x", "y"), x2=altair.X2("edge:Q"))]
    for kind, (colour, thickness) in KINDS.items():
        line, numbers = (chart_of(row for row in rows if row["kind"] == kind) for rows in (segments, texts))
        joined = {"tooltip": tooltips({"not significantly different": "names:N"})} if kind == "bar" else {}
        layers.append(
            line.mark_rule(color=colour, strokeWidth=thickness, strokeCap="round").encode(
                *at("x", "y"), x2=altair.X2("x2:Q"), y2=altair.Y2("y2:Q"), **joined
            )
        )
        align: Literal["left", "center"] = "left" if kind == "difference" else "center"
        layers.append(
            numbers.mark_text(color=colour, align=align, fontSize=11).encode(*at("x", "y"), text=altair.Text("text:N"))
        )
    across, line_of_ranks = at("x", "y")[0], altair.YDatum(0, scale=y_scale, axis=None)
    dots = hung.mark_point(size=26, filled=True, color="currentColor", opacity=1)
    layers.append(dots.encode(across, y=line_of_ranks, tooltip=values))
    for side, towards, shift in SIDES:
        own = hung.transform_filter(f"datum.side == '{side}'")
        name = own.mark_text(align=towards, fontSize=12).encode(
            *at("name", "y"), text=altair.Text("method:N"), tooltip=values
        )
        number = own.mark_text(align=towards, fontSize=10.5, dx=shift, color=MUTED)
        layers += [name, number.encode(*at("edge", "y"), text=altair.Text("number:N"))]
    chart = altair.LayerChart(layer=layers).properties(width=LINE + sum(margins), height=ABOVE + depth)
    return chart.properties(title=altair.Title(title, subtitle=note)) if title or note else chart
