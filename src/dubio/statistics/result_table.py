"""The long table of results: dataset, method, metric, value, seed, exact and averaged over seeds.

Values are kept as exact fractions of the decimal text they were written in: averages and roundings of printed results
then come out as they would on paper, where binary floats can flip a tie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from dubio.core.errors import UserError, check_known
from dubio.core.types import Direction

MAX_EXPONENT = 300
"""Powers of ten beyond which a value is refused: means and ranks are also floats, which end at 1e308."""


@dataclass(frozen=True)
class Result:
    """One value of one metric, of one method on one dataset with one seed."""

    dataset: str
    method: str
    metric: str
    value: Fraction
    seed: str | None = None


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a long table; those of the seed and of the block are optional.

    Attributes:
        dataset: The data set.
        method: The method.
        metric: The metric.
        value: The value.
        seed: The seed; rows are averaged over it.
        block: What the data set shares with others of its block, such as the training data. A data set without a value
            is a block of its own.
    """

    dataset: str = "dataset"
    method: str = "method"
    metric: str = "metric"
    value: str = "value"
    seed: str | None = None
    block: str | None = None

    @property
    def chosen(self) -> dict[str, str]:
        """The columns whose names are not the defaults."""
        return {column: name for column, name in vars(self).items() if name != getattr(Columns, column)}


@dataclass(frozen=True)
class ResultTable:
    """Results in the long form.

    Attributes:
        results: The values.
        notes: How they were read, and what was not.
        blocks: Dataset → the block that it belongs to, of datasets that are not independent measurements.
        kind: Where they are the results of runs: the kind of splits that they are about.
    """

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    blocks: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics in it, in order of appearance."""
        return tuple(dict.fromkeys(result.metric for result in self.results))

    def means(self, metric: str) -> dict[tuple[str, str], Fraction]:
        """Return (dataset, method) → the exact mean over all its rows of that metric.

        Raises:
            UnknownName: When the table has no such metric.
        """
        check_known("metric in the table of results", [metric], self.metrics)
        sums: dict[tuple[str, str], list[Fraction]] = {}
        for result in self.results:
            if result.metric == metric:
                sums.setdefault((result.dataset, result.method), []).append(result.value)
        return {cell: sum(values, Fraction(0)) / len(values) for cell, values in sums.items()}


@dataclass(frozen=True)
class Grid:
    """One metric's values, every method on every dataset, after rounding.

    Attributes:
        metric: The metric.
        better: Which way is better.
        datasets: Row names.
        methods: Column names.
        values: ``values[d][m]``, exact.
    """

    metric: str
    better: Direction
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    values: tuple[tuple[Fraction, ...], ...] = field(repr=False)


def exact(value: Any) -> Fraction:
    """Return the exact value of a number or of its decimal text; a float is read by its shortest decimal text.

    Raises:
        ValueError: For what is no finite number.
    """
    try:
        number = Decimal(repr(float(value)) if isinstance(value, float) else str(value).strip())
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None
    if not number.is_finite() or abs(number.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"{value!r} is not finite, or too large or small")
    return Fraction(number)


def rounded(value: Fraction, digits: int | None) -> Fraction:
    """Return the value rounded half-even to a number of decimals, in exact arithmetic; as it is for None."""
    return value if digits is None else Fraction(round(value, digits))


def grid(table: ResultTable, metric: str, better: Direction, *, digits: int | None = None) -> Grid:
    """Return the value of every method on every dataset: rows averaged, then rounded.

    Args:
        table: Long results.
        metric: Which metric.
        better: Which way is better.
        digits: Decimals to round the averages to; None leaves them exact.

    Raises:
        UserError: When a method has no value on a dataset that others have, naming both.
    """
    means = table.means(metric)
    datasets = tuple(dict.fromkeys(dataset for dataset, _ in means))
    methods = tuple(dict.fromkeys(method for _, method in means))
    missing = [(method, dataset) for dataset in datasets for method in methods if (dataset, method) not in means]
    if missing:
        method, dataset = missing[0]
        gap = f"method {method!r} has no {metric} on dataset {dataset!r}"
        more = f" ({len(missing) - 1} more such gaps)" if len(missing) > 1 else ""
        raise UserError(f"{gap}{more}; ranks need every method on every dataset.")
    values = tuple(tuple(rounded(means[dataset, method], digits) for method in methods) for dataset in datasets)
    return Grid(metric, better, datasets, methods, values)


def table_of(rows: Iterable[Mapping[str, Any]]) -> ResultTable:
    """Return a table of scores computed by dubio: mappings with dataset, method, metric, value and optionally seed."""
    return ResultTable(tuple(map(_result, rows)))


def _result(row: Mapping[str, Any]) -> Result:
    dataset, method, metric = (str(row[column]).strip() for column in ("dataset", "method", "metric"))
    return Result(dataset, method, metric, exact(row["value"]), None if row.get("seed") is None else str(row["seed"]))
