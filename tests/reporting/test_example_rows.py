"""Which rows become examples, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.reporting.example_rows import (
    CERTAIN_OOD,
    EXTREMES,
    answer_keys,
    choose_rows,
    disputed_rows,
    stratified_order,
    telling_rows,
)


def test_tags_are_those_of_sorting_every_row_by_its_entropy() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (3, 400, 4)).astype(np.float32)
    labels = generator.integers(-1, 4, 400)
    run = Predictions(logits, labels, ood=labels < 0)
    shares = np.exp(logits - logits.max(axis=2, keepdims=True)).astype(float)
    mean = (shares / shares.sum(axis=2, keepdims=True)).mean(axis=0)
    entropy = -(mean * np.log(mean)).sum(axis=1)

    def ranked(rows: np.ndarray, sign: int) -> list[int]:
        return sorted(np.flatnonzero(rows).tolist(), key=lambda row: sign * entropy[row])[:EXTREMES]

    right = mean.argmax(axis=1) == labels
    wrong = ~right & (labels >= 0)
    tags = {tag: rows.tolist() for tag, rows in telling_rows(run).items()}
    assert tags == {
        "confident wrong": ranked(wrong, 1), "uncertain wrong": ranked(wrong, -1),
        "uncertain right": ranked(right, -1), "confident right": ranked(right, 1), CERTAIN_OOD: ranked(labels < 0, 1),
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 7, 20, 41, 60, 300])
def test_every_beginning_of_the_sample_has_labels_in_equal_numbers_as_far_as_there_are(count) -> None:
    labels = np.repeat([-1, 0, 1, 2], [100, 3, 150, 47])
    order = stratified_order(labels, "f" * 64)
    assert sorted(order.tolist()) == list(range(300))
    numbers = [int((labels[order[:count]] == label).sum()) for label in (-1, 0, 1, 2)]
    level = max(numbers)
    assert sum(numbers) == count
    for number, available in zip(numbers, (100, 3, 150, 47), strict=True):
        assert number == available or number >= level - 1


def test_the_sample_depends_on_the_split_and_on_nothing_else() -> None:
    labels = np.arange(50) % 3
    assert (stratified_order(labels, "a") == stratified_order(labels, "a")).all()
    assert (stratified_order(labels, "a") != stratified_order(labels, "b")).any()


def test_of_several_labels_the_first_counts() -> None:
    hot = np.array([[1, 0], [0, 1], [0, 1], [0, 0], [0, 1], [1, 1]])
    first = stratified_order(hot, "a")[:3]
    assert {int(row) for row in first} & {0, 5}
    assert 3 in first


def test_rows_are_chosen_in_turns_and_the_sample_has_its_share() -> None:
    telling = [np.array([9, 8, 7, 6]), np.array([9, 5, 4]), np.array([], dtype=np.int64)]
    sample = np.arange(20, 40)
    assert choose_rows(telling, sample, 6).tolist() == [5, 7, 8, 9, 20, 21]  # in turns: 9, 8, 5, 7, 4, 6
    assert choose_rows(telling, np.array([9, 30]), 6).tolist() == [4, 5, 7, 8, 9, 30]
    assert choose_rows(telling, sample[:0], 100).tolist() == [4, 5, 6, 7, 8, 9]
    assert choose_rows(telling, sample, 0).tolist() == []


def test_disputed_rows_are_those_that_split_the_methods() -> None:
    answers = [np.array([0, 0, 0, 0]), np.array([0, 1, 0, 1]), np.array([0, 1, 1, 1]), np.array([0, 1, 0, 0])]
    assert disputed_rows(answers).tolist() == [3, 1, 2]
    assert disputed_rows(answers[:1]).tolist() == []
    assert disputed_rows([answers[0], answers[0]]).tolist() == []


def test_two_sets_of_labels_have_one_key_only_if_they_are_equal() -> None:
    logits = np.where(np.random.default_rng(0).random((1, 60, 9)) < 0.5, 2.0, -2.0).astype(np.float32)
    run = Predictions(logits, np.zeros((60, 9), dtype=np.int64), target="multilabel")
    keys = answer_keys(run)
    for one in range(60):
        for two in range(60):
            assert (keys[one] == keys[two]) == bool((logits[0, one] == logits[0, two]).all())
