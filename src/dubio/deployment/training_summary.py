"""A summary of the run's own rows, and the test whether new rows are like them.

Every row has a few features: the length of a text and its share of unknown words, the numbers of a table and whether
they are missing, mean and deviation of each channel of an image. Of each feature the summary has the distribution
function F of the run's rows at up to 201 points. New rows are counted against these points, so that memory does not
grow with their number, and are compared in three ways:

- **distribution**: D = max |F_new − F| over the points is at most the Kolmogorov–Smirnov statistic, hence its p-value,
  from the distribution of that statistic, is at least the exact one. Differences below D = 0.1 are never reported.
- **range**: of n old and m new rows from one distribution, the k highest are all new with probability
  C(m, k)/C(m + n, k), and so for the lowest.
- **missing values**: Fisher's exact test of the two shares.

The level, 1 %, is shared equally over all tests: new rows from the same distribution cause a warning in at most one of
a hundred data sets. The rows of the summary are those that training has not used: its own have hardly an unknown word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import fisher_exact, kstwo

from dubio.core.errors import UserError
from dubio.core.lazy_rows import LazyRows
from dubio.core.types import Examples, FloatArray, Inputs, Task
from dubio.core.validate import Finite, NonNegative, entries
from dubio.encoders import UNK, Encoder, TextEncoder
from dubio.encoders.text import tokenise

LEVEL = 0.01
POINTS = 201
LEAST_ROWS = 30
"""Fewer rows of the run, or new ones, are not compared by their distribution."""

LEAST_DIFFERENCE = 0.1
"""A smaller difference of distribution functions may be significant among many rows, and matters to nobody."""

MOST_ROWS = 5_000
"""Rows of the run that are summarised; of more, evenly spaced ones."""


@dataclass(frozen=True)
class Feature:
    """The distribution of one feature among the run's rows.

    Attributes:
        name: Its name in a sentence.
        rows: Rows that have it.
        missing: Rows in which it is missing.
        points: Values, ascending; the smallest and the largest of all rows are the first and the last.
        shares: The share of rows that are at most each point.
    """

    name: str
    rows: NonNegative
    missing: NonNegative
    points: tuple[Finite, ...]
    shares: tuple[Finite, ...]

    @classmethod
    def of(cls, name: str, values: FloatArray) -> Feature:
        """Summarise values, NaN where one is missing."""
        present = np.sort(values[~np.isnan(values)])
        points: FloatArray = np.empty(0)
        if len(present):
            points = np.unique(np.quantile(present, np.linspace(0, 1, POINTS), method="inverted_cdf"))
        shares = np.searchsorted(present, points, side="right") / max(1, len(present))
        return cls(name, len(present), len(values) - len(present), tuple(map(float, points)), tuple(shares.tolist()))

    def median(self) -> float:
        """Return the median of the run's rows."""
        return self.points[int(np.searchsorted(self.shares, 0.5))]


@dataclass(frozen=True)
class TrainingSummary:
    """The features of a run's rows.

    Attributes:
        features: One summary each.
    """

    features: Annotated[tuple[Feature, ...], entries(1)]

    @classmethod
    def of(cls, task: Task, encoder: Encoder, columns: Sequence[str]) -> TrainingSummary:
        """Summarise the rows of a task that training has not used; all rows where there are few others.

        Args:
            task: The task.
            encoder: The encoder of its texts.
            columns: The names of a row's fields.
        """
        splits = task.of_kind("val", "cal", "id")
        if sum(map(len, splits)) < LEAST_ROWS:
            splits = task.of_kind("train", "val", "cal", "id")
        total = sum(map(len, splits))
        blocks = []
        for split in splits:
            count = -(-len(split) * min(total, MOST_ROWS) // total)
            rows = np.unique(np.linspace(0, len(split) - 1, count).astype(np.int64))
            blocks.append(row_features(split.data.take(rows), encoder))
        values = np.concatenate(blocks)
        return cls(tuple(map(Feature.of, feature_names(task.inputs, values.shape[1], columns), values.T)))

    def counter(self) -> RowCounter:
        """Return a counter of new rows."""
        return RowCounter(self)


def feature_names(inputs: str, count: int, columns: Sequence[str]) -> list[str]:
    """Return the names of the features of a row."""
    if inputs == "text":
        return ["length in words", "share of unknown words"][:count]
    if inputs == "table":
        return [f"column {name!r}" for name in columns]
    return [f"{what} of channel {channel}" for channel in range(count // 2) for what in ("mean", "deviation")]


def row_features(examples: Examples, encoder: Encoder) -> FloatArray:
    """Return the features of rows ``[rows, features]``."""
    inputs = examples.inputs
    if isinstance(inputs, tuple):
        lengths = np.array([len(tokenise(text)) for text in inputs], dtype=np.float64)
        if not isinstance(encoder, TextEncoder):
            return lengths[:, None]
        encoded = encoder.encode(examples)
        unknown = np.add.reduceat(encoded.tokens == UNK, encoded.offsets[:-1]) / encoded.lengths
        return np.stack([lengths, unknown], axis=1)
    return _array_features(inputs)


def _array_features(inputs: Inputs | LazyRows) -> FloatArray:
    assert not isinstance(inputs, tuple)
    rows: NDArray[Any] = np.asarray(inputs[:])
    if rows.ndim == 2:
        return rows.astype(np.float64)
    pixels = (rows if rows.ndim == 4 else rows[..., None]).reshape(
        len(rows), -1, rows.shape[3] if rows.ndim == 4 else 1
    )
    return np.stack([pixels.mean(axis=1), pixels.std(axis=1)], axis=2).reshape(len(rows), -1)


class RowCounter:
    """Counts new rows against the points of a summary."""

    def __init__(self, summary: TrainingSummary) -> None:
        """Begin without a row."""
        self._summary = summary
        self._counts = [np.zeros(len(feature.points) + 1, dtype=np.int64) for feature in summary.features]
        self._below = np.zeros(len(summary.features), dtype=np.int64)
        self._rows, self._missing = 0, np.zeros(len(summary.features), dtype=np.int64)

    def add(self, examples: Examples, encoder: Encoder) -> None:
        """Count rows.

        Raises:
            UserError: When the rows have other features than the summary.
        """
        values = row_features(examples, encoder)
        if values.shape[1] != len(self._summary.features):
            count = f"{len(self._summary.features)} features of training rows; the rows have {values.shape[1]}"
            raise UserError(f"the model is damaged: it summarises {count}.")
        self._rows += len(values)
        for index, feature in enumerate(self._summary.features):
            present = values[:, index][~np.isnan(values[:, index])]
            self._missing[index] += len(values) - len(present)
            if feature.points:
                bins = np.searchsorted(feature.points, present, side="left")  # bin j: in (point j − 1, point j]
                self._counts[index] += np.bincount(bins, minlength=len(feature.points) + 1)
                self._below[index] += int((present < feature.points[0]).sum())

    @cached_property
    def _level(self) -> float:
        return LEVEL / (4 * len(self._summary.features))

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each feature in which the new rows look unlike those of the run."""
        sentences = []
        for index, feature in enumerate(self._summary.features):
            sentences += self._missing_sentence(index, feature)
            if feature.points:
                sentences += self._range_sentences(index, feature)
                sentences += self._distribution_sentence(index, feature)
        return tuple(sentences)

    def _missing_sentence(self, index: int, feature: Feature) -> list[str]:
        missing, old = int(self._missing[index]), feature.rows + feature.missing
        if not missing and not feature.missing:
            return []
        table = [[missing, self._rows - missing], [feature.missing, old - feature.missing]]
        if fisher_exact(table).pvalue >= self._level:
            return []
        share, before = missing / self._rows, feature.missing / old
        return [f"Unlike training, {feature.name}: {share:.1%} of values are missing, {before:.1%} in the run's data."]

    def _range_sentences(self, index: int, feature: Feature) -> list[str]:
        present = int(self._counts[index].sum())
        sides = {"above the largest": (int(self._counts[index][-1]), feature.points[-1])}
        sides["below the smallest"] = int(self._below[index]), feature.points[0]
        return [
            f"Unlike training, {feature.name}: {count:,} of {present:,} rows are {side} value of the run's data, "
            f"{end:.6g}."
            for side, (count, end) in sides.items()
            if count and _all_new(count, present, feature.rows) < self._level
        ]

    def _distribution_sentence(self, index: int, feature: Feature) -> list[str]:
        present = int(self._counts[index].sum())
        if min(present, feature.rows) < LEAST_ROWS:
            return []
        shares = np.cumsum(self._counts[index][:-1]) / present
        gaps = shares - np.array(feature.shares)
        statistic, size = float(np.abs(gaps).max()), present * feature.rows / (present + feature.rows)
        if statistic < LEAST_DIFFERENCE or kstwo.sf(statistic, round(size)) >= self._level:
            return []
        middle = int(np.searchsorted(shares, 0.5))
        median = (
            f"median {feature.points[middle]:.4g}" if middle < len(shares) else f"median above {feature.points[-1]:.4g}"
        )
        direction = "lower" if gaps[int(np.abs(gaps).argmax())] > 0 else "higher"
        return [
            f"Unlike training, {feature.name}: values are {direction}, {median}, in the run's data "
            f"{feature.median():.4g} (Kolmogorov–Smirnov D at least {statistic:.2f})."
        ]


def _all_new(count: int, new: int, old: int) -> float:
    """Return C(new, count)/C(new + old, count): the probability that the ``count`` most extreme rows are all new."""
    logs = gammaln(new + 1) - gammaln(new - count + 1) - gammaln(new + old + 1) + gammaln(new + old - count + 1)
    return float(np.exp(logs))
