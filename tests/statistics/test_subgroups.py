"""Subgroups of rows: by frequency, rare ones together."""

import numpy as np

from dubio.statistics.subgroups import MOST_SUBGROUPS, OTHERS, UNDERPOWERED, parts_of


def column_of(values: int) -> np.ndarray:
    """Value k of so many occurs k + 1 times, the rows of all mixed."""
    names = np.repeat([f"v{k:02d}" for k in range(values)], np.arange(1, values + 1))
    return np.random.default_rng(0).permutation(names)


def test_a_dozen_values_are_shown_the_most_frequent_first() -> None:
    column = column_of(12)
    parts = parts_of(column)
    assert list(parts) == [f"v{k:02d}" for k in range(11, -1, -1)]
    for name, rows in parts.items():
        np.testing.assert_array_equal(rows, column == name)


def test_of_more_values_the_rare_ones_are_taken_together() -> None:
    column = column_of(14)
    parts = parts_of(column)
    assert list(parts) == [*(f"v{k:02d}" for k in range(13, 2, -1)), OTHERS]
    np.testing.assert_array_equal(parts[OTHERS], np.isin(column, ["v00", "v01", "v02"]))
    assert sum(rows.sum() for rows in parts.values()) == len(column)
    assert (MOST_SUBGROUPS, UNDERPOWERED) == (12, 50)
