from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dubio.core.errors import UserError
from dubio.core.types import Examples
from dubio.deployment.training_summary import Feature, RowCounter, TrainingSummary, _all_new, row_features
from dubio.encoders import encoding_for


class Unused:
    """An encoder that tables do not need."""


def counted(summary, *blocks):
    counter = RowCounter(summary)
    for values in blocks:
        counter.add(Examples(values, np.zeros(len(values), dtype=np.int64)), Unused())
    return counter.warnings()


def drawn(generator, rows):
    """Draw normal, integer, skewed, mostly constant and partly missing columns."""
    columns = [
        generator.normal(size=rows),
        generator.integers(0, 4, rows).astype(float),
        generator.exponential(size=rows),
    ]
    columns.append((generator.random(rows) < 0.02).astype(float))
    columns.append(np.where(generator.random(rows) < 0.3, np.nan, generator.normal(size=rows)))
    return np.stack(columns, axis=1)


def summary_of(values):
    return TrainingSummary(tuple(Feature.of(f"column {k}", column) for k, column in enumerate(values.T)))


@pytest.mark.parametrize(("old", "new"), [(60, 40), (500, 1), (500, 300), (300, 2000)])
def test_rows_of_the_same_distribution_are_warned_of_in_at_most_one_of_a_hundred_sets(old, new):
    generator = np.random.default_rng(old + new)
    repeats = 400
    alarms = sum(bool(counted(summary_of(drawn(generator, old)), drawn(generator, new))) for _ in range(repeats))
    assert alarms <= 0.01 * repeats + 3 * np.sqrt(0.01 * repeats)  # three standard deviations


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values + np.array([1.0, 0, 0, 0, 0]), ["column 0", "higher"]),
        (lambda values: np.where(np.arange(5) == 4, np.nan, values), ["column 4", "100.0% of values are missing"]),
        (lambda values: values * np.array([1, 1, 50, 1, 1]), ["column 2", "above the largest"]),
    ],
)
def test_what_changed_is_named(change, words):
    generator = np.random.default_rng(0)
    warnings = counted(summary_of(drawn(generator, 500)), change(drawn(generator, 200)))
    assert any(all(word in warning for word in words) for warning in warnings), warnings
    assert all(words[0] in warning for warning in warnings)


def test_the_blocks_of_rows_do_not_matter_and_the_statistic_is_never_above_the_exact_one():
    generator = np.random.default_rng(1)
    old, new = generator.normal(size=(400, 1)), generator.normal(0.4, 1, size=(300, 1))
    summary = summary_of(old)
    assert counted(summary, new) == counted(summary, *np.split(new, 7 * np.arange(1, 20)))
    (sentence,) = counted(summary, new)
    stated = float(sentence.split("at least ")[1].rstrip(")."))
    assert stated <= ks_2samp(old[:, 0], new[:, 0]).statistic + 0.005
    assert stated > ks_2samp(old[:, 0], new[:, 0]).statistic - 0.02


def test_a_summary_of_other_columns_than_the_rows_have_is_damage():
    values = drawn(np.random.default_rng(0), 50)
    with pytest.raises(UserError, match="5 features of training rows; the rows have 4"):
        counted(summary_of(values), values[:, :4])


def test_the_probability_of_a_range_is_that_of_counting():
    new, old, count = 4, 3, 2
    orders = list(combinations(range(new + old), new))  # positions of the new rows, the highest last
    share = np.mean([{new + old - 1, new + old - 2} <= set(order) for order in orders])
    assert _all_new(count, new, old) == pytest.approx(share)


def test_texts_are_counted_by_length_and_unknown_words():
    train = Examples(("a b c", "a b"), np.zeros(2, dtype=np.int64))
    encoder = encoding_for("text", {"min_frequency": 1}).fit(train)
    rows = Examples(("a x y z", "b", ""), np.zeros(3, dtype=np.int64))
    np.testing.assert_allclose(row_features(rows, encoder), [[4, 0.75], [1, 0], [0, 1]])


def test_images_are_counted_by_the_mean_and_deviation_of_each_channel():
    pixels = np.random.default_rng(0).integers(0, 255, size=(3, 5, 6, 2)).astype(np.uint8)
    features = row_features(Examples(pixels, np.zeros(3, dtype=np.int64)), Unused())
    expected = [
        [image[..., 0].mean(), image[..., 0].std(), image[..., 1].mean(), image[..., 1].std()] for image in pixels
    ]
    np.testing.assert_allclose(features, expected)
