"""One comparison of methods over datasets: ranks, Friedman, Nemenyi, wins, under one metric or several together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dubio.core.errors import UserError
from dubio.core.types import Direction
from dubio.statistics.friedman import Friedman, friedman
from dubio.statistics.nemenyi import cliques, critical_difference
from dubio.statistics.pairwise import SignedRank, signed_rank_tests
from dubio.statistics.ranks import rank
from dubio.statistics.results import Grid, ResultTable, grid
from dubio.statistics.wins import Record, win_draw_loss


@dataclass(frozen=True)
class Comparison:
    """How methods compare.

    Attributes:
        metrics: The metrics compared by, and which way each is better.
        digits: Decimals the averages were rounded to, or None.
        alpha: Level of the tests.
        datasets: Names of the datasets.
        average_ranks: Method to mean rank, best first.
        friedman: Friedman's test.
        critical_difference: Nemenyi's, over datasets: the smallest difference of mean ranks these data resolve.
        cliques: Sets of methods that do not differ significantly.
        win_draw_loss: Method to its record over datasets and metrics.
        pairs: Signed-rank tests of every pair, where there is one metric.
        by_metric: The comparison under each metric alone, where there are several.
    """

    metrics: Mapping[str, Direction]
    digits: int | None
    alpha: float
    datasets: tuple[str, ...]
    average_ranks: Mapping[str, float]
    friedman: Friedman
    critical_difference: float
    cliques: tuple[tuple[str, ...], ...]
    win_draw_loss: Mapping[str, Record]
    pairs: tuple[SignedRank, ...] = ()
    by_metric: Mapping[str, Comparison] = field(default_factory=dict)


def compare(
    table: ResultTable, metrics: Mapping[str, Direction], *, digits: int | None = None, alpha: float = 0.05
) -> Comparison:
    """Compare the methods of a table.

    Args:
        table: Long results.
        metrics: Which metrics, and which way each is better.
        digits: Decimals to round averages to before they are ranked; None for none.
        alpha: Level of the tests.

    Raises:
        UserError: For an unknown metric, a gap in the table, fewer than two methods or datasets.
    """
    if not metrics:
        raise UserError("name at least one metric to compare by.")
    grids = [grid(table, name, better, digits=digits) for name, better in metrics.items()]
    together = _compared(grids, digits, alpha)
    if len(grids) == 1:
        return together
    apart = {each.metric: _compared([each], digits, alpha) for each in grids}
    return Comparison(**{**vars(together), "by_metric": apart})


def _compared(grids: list[Grid], digits: int | None, alpha: float) -> Comparison:
    ranks = rank(grids)
    tested = friedman(ranks)
    average = dict(zip(ranks.methods, ranks.average.tolist(), strict=True))
    names = sorted(average, key=lambda name: (average[name], name))
    difference = critical_difference(tested.methods, tested.datasets, alpha)
    records = win_draw_loss(grids)
    return Comparison(
        metrics={each.metric: each.better for each in grids},
        digits=digits,
        alpha=alpha,
        datasets=ranks.datasets,
        average_ranks={name: average[name] for name in names},
        friedman=tested,
        critical_difference=difference,
        cliques=cliques(average, difference),
        win_draw_loss={name: records[name] for name in names},
        pairs=signed_rank_tests(grids[0]) if len(grids) == 1 else (),
    )
