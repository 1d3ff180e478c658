"""Batches: every row once, nothing invented, little padding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows, ImageRows, TokenRows
from dubio.inference.augmentation import ShiftFlip, Views, augment
from dubio.inference.batches import MOST_ELEMENTS, WINDOW, collate, prediction_rows, training_rows

lengths_of = st.lists(st.integers(1, 20), min_size=1, max_size=80)


def texts(lengths, seed=0):
    tokens = np.random.default_rng(seed).integers(1, 30, size=sum(lengths)).astype(np.int32)
    return TokenRows(tokens, np.cumsum([0, *lengths]).astype(np.int64))


@settings(max_examples=40, deadline=None)
@given(lengths_of, st.integers(1, 9), st.integers(0, 2**31))
def test_an_epoch_sees_every_row_once(lengths, batch, seed):
    rows = training_rows(texts(lengths), batch, np.random.default_rng(seed))
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
    assert all(len(piece) <= batch for piece in rows)


@settings(max_examples=40, deadline=None)
@given(lengths_of)
def test_collating_gives_the_tokens_back(lengths):
    data = texts(lengths)
    batch = collate(data, np.arange(len(lengths)))
    back = batch.distinct[batch.places].numpy()
    assert batch.distinct[0] == 0
    assert len(set(batch.distinct.tolist())) == len(batch.distinct)
    for i, length in enumerate(lengths):
        assert back[i, :length].tolist() == data.tokens[data.offsets[i] : data.offsets[i + 1]].tolist()
        assert (back[i, length:] == 0).all()


def test_prediction_visits_every_row_once_within_windows():
    data = texts(np.random.default_rng(0).integers(1, 50, size=2 * WINDOW + 7).tolist())
    rows = list(prediction_rows(data, 64))
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(data)))
    assert all(piece.min() // WINDOW == piece.max() // WINDOW for piece in rows)


@pytest.mark.parametrize(("side", "most"), [(8, 128), (64, 128), (128, 128), (256, 42), (512, 10), (2048, 1)])
def test_large_images_are_predicted_fewer_at_a_time(side, most):
    pixel = np.zeros((1, 1, 1, 1))
    as_floats = ArrayRows(np.broadcast_to(pixel.astype(np.float32), (300, 3, side, side)))
    as_bytes = ImageRows(np.broadcast_to(pixel.astype(np.uint8), (300, side, side, 3)), np.zeros((3, 256), np.float32))
    for encoded in (as_floats, as_bytes):
        batches = list(prediction_rows(encoded, 128))
        assert max(map(len, batches)) == most
        assert np.array_equal(np.concatenate(batches), np.arange(300))
        assert len(batches[0]) * 3 * side**2 <= max(MOST_ELEMENTS, 3 * side**2)


def test_buckets_waste_less_than_random_batches():
    lengths = np.random.default_rng(1).integers(1, 200, size=4000)
    rows = training_rows(texts(lengths.tolist()), 32, np.random.default_rng(2))
    padded = sum(len(piece) * lengths[piece].max() for piece in rows)
    assert padded < 1.1 * lengths.sum()


def test_two_epochs_differ_and_the_same_generator_does_not():
    data = ArrayRows(np.zeros((50, 2), dtype=np.float32))
    generator = np.random.default_rng(3)
    first, second = training_rows(data, 8, generator), training_rows(data, 8, generator)
    again = training_rows(data, 8, np.random.default_rng(3))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    assert np.array_equal(np.concatenate(first), np.concatenate(again))


@settings(max_examples=40, deadline=None)
@given(lengths_of, st.integers(1, 9), st.integers(0, 2**31))
def test_an_order_gives_the_same_batches_of_sorted_texts_in_every_epoch(lengths, batch, seed):
    data, generator = texts(lengths), np.random.default_rng(seed)
    order = generator.permutation(len(lengths))
    first, second = (training_rows(data, batch, generator, order=order) for _ in range(2))
    by_hand = sorted(order.tolist(), key=lambda row: lengths[row])  # ties stay in the order
    expected = {tuple(by_hand[i : i + batch]) for i in range(0, len(lengths), batch)}
    assert {tuple(rows.tolist()) for rows in first} == {tuple(rows.tolist()) for rows in second} == expected


def test_with_an_order_a_small_batch_joins_the_same_neighbour_every_time():
    """The last, too small batch joined whatever batch was shuffled before it."""
    rows = ArrayRows(np.arange(9.0, dtype=np.float32)[:, None])
    epochs = [
        training_rows(rows, 4, np.random.default_rng(seed), least=2, order=np.arange(9, dtype=np.int64))
        for seed in range(6)
    ]
    assert {frozenset(map(tuple, epoch)) for epoch in epochs} == {frozenset({(0, 1, 2, 3), (4, 5, 6, 7, 8)})}
    assert len({tuple(map(tuple, epoch)) for epoch in epochs}) == 2


def test_a_shift_moves_pixels_and_a_flip_mirrors_them():
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    identity = ShiftFlip(pixels=1).apply(image, torch.tensor([[0.5, 0.5, 0.0]]))
    assert torch.equal(identity, image)
    down_right = ShiftFlip(pixels=1).apply(image, torch.tensor([[0.0, 0.0, 0.0]]))
    assert down_right[0, 0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 3, 4]]
    mirrored = ShiftFlip(pixels=0, flip=1.0).apply(image, torch.tensor([[0.0, 0.0, 0.3]]))
    assert torch.equal(mirrored, image.flip(-1))


def test_it_is_a_crop_of_the_padded_image_then_a_flip_with_every_place_alike():
    images = np.random.default_rng(0).normal(size=(300, 3, 7, 5)).astype(np.float32)
    uniforms = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    found = ShiftFlip(4, 0.5).apply(torch.from_numpy(images), uniforms).numpy()
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    places = np.floor(9 * uniforms.numpy()).astype(int)
    for i, (top, left, _) in enumerate(places):
        cut = padded[i, :, top : top + 7, left : left + 5]
        assert np.array_equal(found[i], cut[..., ::-1] if uniforms[i, 2] < 0.5 else cut)
    assert np.bincount(places[:, 0], minlength=9).min() > 15
    assert np.bincount(places[:, 1], minlength=9).min() > 15


def test_augmentation_is_a_function_of_the_generator():
    images = torch.randn(6, 2, 5, 5)
    views = [augment(ShiftFlip(2, 0.5), images, torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])


def test_what_means_nothing_is_refused():
    with pytest.raises(UserError, match="pixels"):
        ShiftFlip(-1)
    with pytest.raises(UserError, match="flip"):
        ShiftFlip(1, 1.5)
    with pytest.raises(UserError, match="each"):
        Views(ShiftFlip(), 0)
