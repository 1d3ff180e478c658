from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from dubio.core.errors import UserError
from dubio.tasks.splitting import PARTS, TRAIN, SplitOptions, assign_parts, balanced_rows

FRACTIONS = (0.6, 0.1, 0.15, 0.15)
DEFAULT = {"fractions": FRACTIONS, "seed": 0}


def stratified_parts(labels, *, fractions, seed, group=None):
    return assign_parts(labels, SplitOptions(tuple(fractions), seed), group=group)


def parts_by_time(time, *, fractions, group=None):
    return assign_parts(np.zeros(len(time), dtype=np.int64), SplitOptions(tuple(fractions)), group=group, time=time)


def table(labels: np.ndarray, parts: np.ndarray, classes: int) -> np.ndarray:
    counts = np.zeros((classes, 4))
    np.add.at(counts, (labels, parts), 1)
    return counts


@given(st.lists(st.integers(2, 40), min_size=2, max_size=12), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_every_class_has_its_share_in_every_part_to_within_one_row(sizes: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if len(labels) < 30:
        return
    parts = stratified_parts(labels, fractions=FRACTIONS, seed=seed)
    counts = table(labels, parts, len(sizes))
    assert (np.abs(counts - np.outer(sizes, FRACTIONS)) < 1).all()
    assert (counts[:, TRAIN] >= 1).all()


def test_many_small_classes_still_fill_every_part() -> None:
    labels = np.repeat(np.arange(150), 3)
    sizes = np.bincount(stratified_parts(labels, **DEFAULT))
    np.testing.assert_allclose(sizes / 450, FRACTIONS, atol=0.02)


def test_same_seed_same_parts_other_seed_other_parts() -> None:
    labels = np.arange(200) % 5
    assert (stratified_parts(labels, **DEFAULT) == stratified_parts(labels, **DEFAULT)).all()
    assert (stratified_parts(labels, **DEFAULT) != stratified_parts(labels, fractions=FRACTIONS, seed=1)).any()


@given(st.integers(0, 1000), st.integers(12, 60))
@settings(max_examples=50, deadline=None)
def test_no_group_is_torn(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, groups * 4).astype(str)
    parts = stratified_parts(rng.integers(0, 3, len(group)), fractions=FRACTIONS, seed=seed, group=group)
    assert len(set(zip(group, parts, strict=True))) == len(set(group))
    assert set(parts) == {0, 1, 2, 3}


def test_groups_stay_stratified() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 400, 2000).astype(str)
    labels = rng.choice(4, 2000, p=[0.6, 0.2, 0.15, 0.05])
    counts = table(labels, stratified_parts(labels, group=group, **DEFAULT), 4)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), np.tile(FRACTIONS, (4, 1)), atol=0.03)


def test_many_labels_a_row_keep_their_shares() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((3000, 20)) < np.linspace(0.01, 0.4, 20)).astype(np.int64)
    parts = stratified_parts(labels, **DEFAULT)
    shares = np.stack([labels[parts == part].sum(axis=0) for part in range(4)], axis=1) / labels.sum(axis=0)[:, None]
    np.testing.assert_allclose(shares, np.tile(FRACTIONS, (20, 1)), atol=0.06)
    np.testing.assert_allclose(np.bincount(parts) / 3000, FRACTIONS, atol=0.01)


def test_rows_without_a_label_are_placed_too() -> None:
    labels = np.zeros((100, 2), dtype=np.int64)
    labels[:10, 0] = labels[5:20, 1] = 1
    parts = stratified_parts(labels, **DEFAULT)
    np.testing.assert_array_equal(np.bincount(parts), [60, 10, 15, 15])


@given(st.lists(st.integers(0, 30), min_size=40, max_size=120))
@settings(max_examples=50, deadline=None)
def test_time_runs_one_way_and_ties_stay_together(times: list[int]) -> None:
    time = np.array(times, dtype=float)
    try:
        parts = parts_by_time(time, fractions=FRACTIONS)
    except UserError:
        reject()  # so many ties that a part is empty: refused, see below
    order = np.argsort(time, kind="stable")
    assert (np.diff(parts[order]) >= 0).all()
    assert len(set(zip(time, parts, strict=True))) == len(set(times))


def test_time_without_ties_cuts_exactly() -> None:
    time = np.random.default_rng(0).permutation(200).astype(float)
    parts = parts_by_time(time, fractions=FRACTIONS)
    np.testing.assert_array_equal(np.bincount(parts), [120, 20, 30, 30])


def test_a_group_goes_with_its_latest_row() -> None:
    rng = np.random.default_rng(2)
    time, group = rng.permutation(300).astype(float), rng.integers(0, 90, 300).astype(str)
    parts = parts_by_time(time, fractions=FRACTIONS, group=group)
    latest = np.array([time[group == name].max() for name in group])
    assert len(set(zip(group, parts, strict=True))) == len(set(group))
    for earlier in range(3):
        assert latest[parts == earlier].max() < latest[parts == earlier + 1].min()
    assert time[parts == TRAIN].max() < latest[parts == 1].min()


@pytest.mark.parametrize(
    "fractions",
    [
        (0.5, 0.5),
        (0.7, 0.1, 0.1, 0.2),
        (1.1, -0.1, 0, 0),
        (0, 0.5, 0.25, 0.25),
        (np.nan, 0.5, 0.25, 0.25),
        (0.25, 0.5, 0.25, np.nan),
    ],
)
def test_fractions_that_cannot_be_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="fractions must be four numbers"):
        stratified_parts(np.arange(100) % 2, fractions=fractions, seed=0)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UserError, match=r"split_seed must be 0 or more; given -1"):
        stratified_parts(np.arange(100) % 2, **(DEFAULT | {"seed": -1}))


def test_a_part_that_would_be_empty_is_named() -> None:
    with pytest.raises(UserError, match=r"(val|cal|test) would be empty: 3 groups"):
        stratified_parts(np.arange(30) % 2, group=(np.arange(30) % 3).astype(str), **DEFAULT)
    with pytest.raises(UserError, match="2 different times"):
        parts_by_time(np.repeat([0.0, 1.0], 20), fractions=FRACTIONS)


def test_a_part_without_a_share_stays_empty() -> None:
    parts = stratified_parts(np.arange(100) % 4, fractions=(0.8, 0.1, 0, 0.1), seed=0)
    assert np.bincount(parts, minlength=len(PARTS))[2] == 0


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    share=st.floats(0, 1),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_chosen_rows_are_a_like_share_of_every_class(sizes, share, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    count = round(share * len(labels))
    rows = balanced_rows(labels, count, seed)
    assert len(rows) == len(set(rows.tolist())) == count
    assert (np.diff(rows) > 0).all()
    wanted = count * np.array(sizes) / len(labels)
    assert (np.abs(np.bincount(labels[rows], minlength=len(sizes)) - wanted) < 1).all()
