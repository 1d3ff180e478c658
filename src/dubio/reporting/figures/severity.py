"""What becomes of a classifier as its inputs get worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from dubio.reporting.canvas import WIDTH, blank, legend_height, method_legend, styled
from dubio.reporting.figures.series import Series


@styled
def severity_figure(accuracy: Mapping[str, Sequence[Series]], nll: Mapping[str, Sequence[Series]]) -> Figure:
    """Accuracy (above) and negative log-likelihood (below) against severity, one column a corruption.

    Args:
        accuracy: Corruption → one series a method over severities, 0 being the clean test set.
        nll: The same for the negative log-likelihood.
    """
    columns = len(accuracy)
    drawn = next(iter(accuracy.values()))
    width = max(3.4, min(WIDTH, 2.6 * columns))
    legend_columns = 4 if width == WIDTH else 2
    figure = blank(width, 4.0 + legend_height(len(drawn), legend_columns))
    axes = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    for row, (label, panels) in enumerate((("accuracy", accuracy), ("nll", nll))):
        for axis, (base, series) in zip(axes[row], panels.items(), strict=True):
            for one in series:
                axis.errorbar(one.x, one.mean, yerr=one.std, elinewidth=0.7, capsize=0, alpha=0.95, **one.style.line)
                axis.set_xticks(one.x)
            if row == 0:
                axis.set_title(base)
        axes[row][0].set_ylabel(label)
    for axis in axes[1]:
        axis.set_xlabel("severity (0: untouched)")
    method_legend(figure, [series.style for series in drawn], columns=legend_columns)
    return figure
