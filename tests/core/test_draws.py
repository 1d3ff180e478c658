"""Draws by hash against a plain loop; their order, their uniformity, and what they may depend on."""

from dataclasses import replace
from hashlib import blake2b, shake_256

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from dubio.core import draws
from dubio.core.draws import independent_rows, name_numbers, row_numbers, unit_numbers
from dubio.core.predictions import Predictions


def drawn(rows=30, seed=0, **more):
    rng = np.random.default_rng(seed)
    return Predictions(rng.normal(size=(2, rows, 3)).astype(np.float32), rng.integers(0, 3, rows), **more)


def every_column(rows=30, seed=0):
    rng = np.random.default_rng(seed)
    names = {"ids": [f"é{row}" for row in range(rows)], "group": [f"g{row % 7}" for row in range(rows)]}
    return replace(
        drawn(rows, seed), **{name: np.array(column) for name, column in names.items()},
        data_variance=rng.random((2, rows, 3)).astype(np.float32), model_variance=rng.random((2, rows)).astype("f4"),
        scores={"own": rng.random(rows)},
    )  # fmt: skip


def plain_row_numbers(p, seed, purpose):
    """The documented hash, row by row."""
    digests = []
    for row in range(len(p)):
        values = p.logits[:, row].tobytes()
        if p.data_variance is not None:
            values += p.data_variance[:, row].tobytes() + p.model_variance[:, row].tobytes()
        values += b"".join(score[row].tobytes() for score in p.scores.values()) + p.labels[row].tobytes()
        name, group = ("" if names is None else names[row] for names in (p.ids, p.group))
        digests.append(blake2b(f"{name}\0{group}\0".encode() + values, digest_size=16).digest())
    stream = shake_256(f"{seed} {purpose}\0".encode() + b"".join(sorted(digests))).digest(8 * len(p))
    numbers = [int.from_bytes(stream[8 * place : 8 * place + 8], "little") for place in range(len(p))]
    places = sorted(range(len(p)), key=digests.__getitem__)
    return [numbers[places.index(row)] for row in range(len(p))]


@pytest.mark.parametrize("predictions", [drawn(), every_column()])
def test_numbers_of_rows_are_those_of_a_plain_loop(predictions):
    assert row_numbers(predictions, seed=3, purpose="test").tolist() == plain_row_numbers(predictions, 3, "test")


@pytest.mark.parametrize("predictions", [drawn(), every_column()])
def test_the_order_of_rows_does_not_matter(predictions):
    order = np.random.default_rng(1).permutation(len(predictions))
    moved = predictions.take(order)
    for numbers in (row_numbers, unit_numbers):
        one, other = (numbers(rows, seed=0, purpose="test") for rows in (predictions, moved))
        by_row = predictions.group is None or numbers is row_numbers
        np.testing.assert_array_equal(one[order] if by_row else one, other)
    chosen = independent_rows(predictions, seed=0)
    np.testing.assert_array_equal(np.sort(order[independent_rows(moved, seed=0)]), np.sort(chosen))


def test_seed_purpose_and_every_row_make_another_draw():
    plain = row_numbers(drawn(), seed=0, purpose="test")
    changed = drawn()
    changed.labels[5] = (changed.labels[5] + 1) % 3
    others = [
        row_numbers(drawn(), seed=1, purpose="test"),
        row_numbers(drawn(), seed=0, purpose="other"),
        row_numbers(changed, seed=0, purpose="test"),
    ]
    for other in others:
        assert not (plain == other).any()


def test_numbers_are_uniform_whatever_the_rows_at_one_seed():
    # One of ten rows differs: over data sets every row of a set of few distinct rows is drawn alike.
    chosen, numbers = np.zeros(10), []
    for data in range(2000):
        labels = np.zeros(10, dtype=np.int64)
        logits = np.zeros((1, 10, 2), dtype=np.float32)
        logits[0, :, 0] = data
        logits[0, 3, 1] = 1.0
        found = row_numbers(Predictions(logits, labels), seed=0, purpose="test")
        chosen[found.argmin()] += 1
        numbers.append(found[3] / 2**64)
    assert kstest(numbers, "uniform").pvalue > 0.01
    assert chisquare([chosen[3], chosen.sum() - chosen[3]], [200, 1800]).pvalue > 0.01


def test_one_row_of_each_group_whatever_its_size():
    group = np.repeat(["a", "b", "c"], [1, 4, 25])
    counts = np.zeros(30)
    for data in range(400):
        rows = independent_rows(drawn(seed=data, group=group), seed=0)
        assert group[rows].tolist() == ["a", "b", "c"]
        counts[rows] += 1
    assert chisquare(counts[1:5]).pvalue > 0.01
    assert chisquare(counts[5:]).pvalue > 0.01
    assert independent_rows(drawn(), seed=0).tolist() == list(range(30))


def test_numbers_of_names_depend_on_the_name_and_the_seed_alone():
    few, more = name_numbers(["a", "b"], seed=0, count=2), name_numbers(["b", "c", "a"], seed=0, count=5)
    np.testing.assert_array_equal(few[:, :2], more[[2, 0], :2])
    assert not (few == name_numbers(["a", "b"], seed=1, count=2)).any()
    stream = shake_256(b"0\0a").digest(16)
    assert few[0].tolist() == [int.from_bytes(stream[:8], "little"), int.from_bytes(stream[8:], "little")]
    assert name_numbers(["\udcff.png"], seed=0, count=1).shape == (1, 1)


def test_the_numbers_of_names_are_drawn_once_for_all_systems_of_a_test_set(monkeypatch):
    first = name_numbers(["once", "for", "all"], seed=3, count=2)
    monkeypatch.setattr(draws, "_stream", None)  # nothing is hashed again
    assert np.array_equal(name_numbers(np.array(["once", "for", "all"]), seed=3, count=2), first)
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 0  # it would change the halves of the next system
