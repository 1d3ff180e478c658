"""Draw figures without global state, and write them to files.

matplotlib is imported by the functions that draw: tables and scores do without it.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np

from dubio.core.errors import MissingExtra, UserError
from dubio.core.files import write_file
from dubio.core.types import BoolArray, FloatArray
from dubio.reporting.style import CONTROL, INK, MUTED, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

WIDTH = 7.4
"""Inches: the text width of the page, and of two columns in print."""

ENTRY, LETTER = 0.62, 0.06
"""Inches of a legend's entry without its name, with the gap to the next column, and of a letter of the name."""

FORMATS = ("png", "svg", "pdf")

SETTINGS = Path(__file__).parent / "templates" / "figures.mplstyle"
"""Matplotlib settings of every figure."""


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


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in dubio's style, whatever the user's own matplotlib settings are.

    Raises:
        MissingExtra: When the figure is drawn without matplotlib installed.
    """

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> Figure:
        if find_spec("matplotlib") is None:
            raise MissingExtra("drawing a figure", "report")
        with _settings({}):
            return draw(*args, **kwargs)

    return inner


@contextmanager
def _settings(others: Any) -> Iterator[None]:
    """Set matplotlib's defaults, then dubio's settings, then others, until the context ends."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(SETTINGS, use_default_template=False))
        matplotlib.rcParams.update(others)
        yield


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, on the Agg canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.05, wspace=0.04, hspace=0.06)  # type: ignore[union-attr, call-arg]
    return figure


def small_multiples(
    count: int, *, columns: int = 4, panel_height: float = 1.75, extra: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of panels on shared axes.

    Args:
        count: The number of panels.
        columns: The largest number of panels in a row.
        panel_height: Inches of a row.
        extra: Inches for a legend beside the panels.
    """
    rows = math.ceil(count / columns)
    columns = math.ceil(count / rows)
    figure = blank(WIDTH if columns > 2 else 2.6 * columns, panel_height * rows + extra)
    panels = _panels(figure, rows, columns, count, shared=True)
    for index, panel in enumerate(panels):
        # The lowest panel of a column has its numbers even where the last row is not full.
        panel.tick_params(labelbottom=index + columns >= count, labelleft=index % columns == 0)
    return figure, panels


def _panels(figure: Figure, rows: int, columns: int, count: int, *, shared: bool) -> list[Axes]:
    """Return the first panels of a grid, and remove the others."""
    panels = list(figure.subplots(rows, columns, sharex=shared, sharey=shared, squeeze=False).flat)
    for unused in panels[count:]:
        unused.remove()
    return panels[:count]


def panel_grid(count: int, *, panel_height: float, extra: float, xlabel: str) -> tuple[Figure, list[Axes]]:
    """Return a figure of the text's width with panels on scales of their own, at most three in a row.

    Args:
        count: The number of panels.
        panel_height: Inches of a row.
        extra: Inches for a legend below.
        xlabel: The label of the horizontal axis, below the lowest panel of every column.
    """
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = blank(WIDTH, panel_height * rows + extra)
    panels = _panels(figure, rows, columns, count, shared=False)
    for lowest in panels[-columns:]:  # a legend below leaves no space for a common label
        lowest.set_xlabel(xlabel)
    return figure, panels


def label_rows(axis: Axes, styles: Sequence[Style]) -> None:
    """Label one row per method, the first on top, at the left."""
    axis.set_yticks(range(len(styles)), [style.title for style in styles])
    axis.set_ylim(len(styles) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)


def method_rows(styles: Sequence[Style], label: str, extra: float = 0.75) -> tuple[Figure, Axes]:
    """Return a figure with one labelled row per method, the first on top.

    Args:
        styles: The methods.
        label: What the horizontal axis shows.
        extra: Inches besides the rows.
    """
    figure = blank(WIDTH, 0.27 * len(styles) + extra)
    axis = figure.subplots()
    label_rows(axis, styles)
    axis.set_xlabel(label)
    return figure, axis


def note_row(axis: Axes, row: int, note: str) -> None:
    """Write a note at the right of a row."""
    axis.text(1.02, row, note, transform=axis.get_yaxis_transform(), va="center", fontsize=7.8, color=INK)


def draw_band(axis: Axes, series: Series, **line: Any) -> None:
    """Draw means with a band of one standard deviation."""
    low, high = series.mean - series.std, series.mean + series.std
    axis.fill_between(series.x, low, high, color=series.style.colour, alpha=0.09, linewidth=0)
    axis.plot(series.x, series.mean, **{**series.style.line, **line})


def draw_bars(axis: Axes, series: Series, **line: Any) -> None:
    """Draw means with bars of one standard deviation."""
    line = {"elinewidth": 0.7, "capsize": 0, **series.style.line, **line}
    axis.errorbar(series.x, series.mean, yerr=series.std, **line)


@styled
def curve_panels(
    panels: Mapping[str, Sequence[Series]], xlabel: str, draw: Callable[..., None], *, panel_height: float
) -> Figure:
    """Draw one panel per title over whole numbers, with one legend of methods.

    Args:
        panels: Title → one series per method.
        xlabel: The label of the horizontal axis.
        draw: :func:`draw_band` or :func:`draw_bars`.
        panel_height: Inches of a row of panels.
    """
    from matplotlib.ticker import MaxNLocator

    styles = [series.style for series in next(iter(panels.values()))]
    extra = legend_height(len(styles), 3) + 0.15
    figure, axes = panel_grid(len(panels), panel_height=panel_height, extra=extra, xlabel=xlabel)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for series in lines:
            draw(axis, series, linewidth=1.4, markersize=4.2)
        axis.set_title(title)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    method_legend(figure, styles, columns=3)
    return figure


def draw_stacks(axis: Axes, parts: FloatArray, colours: Sequence[str], *, height: float = 0.62) -> None:
    """Draw one stacked bar per row: ``[rows, parts]``."""
    starts = np.cumsum(parts, axis=1) - parts
    for column, colour in enumerate(colours):
        axis.barh(range(len(parts)), parts[:, column], left=starts[:, column], height=height, color=colour, linewidth=0,
                  zorder=2)  # fmt: skip


def patch_legend(
    figure: Figure, colours: Mapping[str, str], location: Literal["outside upper right", "outside lower center"]
) -> None:
    """Add a legend of coloured patches: label → colour."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for label, colour in colours.items()]
    figure.legend(handles=handles, loc=location, ncols=len(colours), handlelength=1.4)


def note_panel(axis: Axes, title: str, note: str) -> None:
    """Write a method's title over a small panel, and a note below it."""
    axis.set_title(panel_title(title), pad=14)
    axis.annotate(note, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=7.2, color=MUTED)


def label_panels(figure: Figure, x: str, y: str = "") -> None:
    """Name the axes that all panels share."""
    figure.supxlabel(x, fontsize=8.5)
    if y:
        figure.supylabel(y, fontsize=8.5)


def panel_title(title: str) -> str:
    """Return a method's title over a small panel, in two lines where it is long."""
    return textwrap.fill(title, 21, break_long_words=False)


def method_legend(figure: Figure, styles: Sequence[Style], *, control: str | None = None, columns: int = 4) -> None:
    """Draw a legend under the panels: each method once, in the benchmark's order.

    Args:
        figure: The figure; it grows where names are too long for that number of columns.
        styles: The methods.
        control: The label of the dotted line, where there is one.
        columns: The largest number of columns.
    """
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style.line) for style in styles]
    if control is not None:
        handles.append(Line2D([], [], color=CONTROL, linestyle="dotted", linewidth=1.4, label=control))
    width, height = (float(side) for side in figure.get_size_inches())
    fitting = _columns_that_fit([str(handle.get_label()) for handle in handles], width, columns)
    more = legend_height(len(handles), fitting) - legend_height(len(handles), columns)
    figure.set_size_inches(width, height + more)
    figure.legend(handles=handles, loc="outside lower center", ncols=fitting, handlelength=3.0, columnspacing=1.6)


def _columns_that_fit(names: Sequence[str], width: float, most: int) -> int:
    """Return how many columns of a legend fit into a width in inches; columns are filled one after the other."""
    lengths = [len(name) for name in names]
    for columns in range(min(most, len(names)), 1, -1):
        longest = [max(column) for column in np.array_split(lengths, columns)]
        if sum(ENTRY + LETTER * letters for letters in longest) <= width:
            return columns
    return 1


def legend_height(entries: int, columns: int = 4) -> float:
    """Return the height in inches of a legend."""
    return 0.19 * math.ceil(entries / columns) + 0.12


def save(figure: Figure, kind: str) -> bytes:
    """Return the figure as a file of this kind (png, svg or pdf), the same bytes every time."""
    with _settings({"svg.fonttype": "path"}):
        return _written(figure, kind, **({"facecolor": "white"} if kind == "png" else {}))


def write_figure(figure: Figure, path: Path, option: str) -> Path:
    """Write a figure in the format of its file's ending; the same figure gives the same bytes.

    Raises:
        UserError: For another ending, naming the option that the path comes from.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(f"{option} {str(path)!r}: the name must end in one of {', '.join('.' + f for f in FORMATS)}.")
    return write_file(path, save(figure, kind))


def inline_svg(figure: Figure) -> str:
    """Return the figure as SVG whose texts stay text, to be placed inside a page.

    It is laid out in DejaVu Sans, which comes with matplotlib and is wider than what browsers use: nothing is cut off.
    """
    with _settings({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):
        return _written(figure, "svg").decode()


def _written(figure: Figure, kind: str, **options: Any) -> bytes:
    sink, date = io.BytesIO(), {"png": "Software", "svg": "Date", "pdf": "CreationDate"}[kind]
    figure.savefig(sink, format=kind, metadata={date: None}, **options)
    return sink.getvalue()


def finite_limits(values: Iterable[float], *, pad: float = 0.06) -> tuple[float, float] | None:
    """Return limits that contain all finite values with some space, or None where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    space = pad * (high - low) or 0.05 * max(abs(high), 1e-3)
    return low - space, high + space
