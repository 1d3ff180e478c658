from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dubio.core.errors import UnknownName, UserError
from dubio.tasks.shift import add_noise, blur, corruptions, hold_out, novel_names, other_domains, rotate


def test_held_out_rows_lose_their_label_and_others_keep_theirs() -> None:
    found = hold_out(("a", "b", "c"), np.array([0, 1, 2, 1, -1]), ["b"])
    assert found.classes == ("a", "c")
    assert found.labels.tolist() == [0, -1, 1, -1, -1]
    assert found.novel.tolist() == [False, True, False, True, False]


def test_many_labels_every_row_that_carries_a_novel_label_is_novel() -> None:
    labels = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1]])
    found = hold_out(("a", "b", "c"), labels, ["b"])
    assert found.labels.tolist() == [[1, 0], [1, 0], [0, 0], [0, 1]]
    assert found.novel.tolist() == [True, False, False, True]


@given(st.lists(st.integers(1, 500), min_size=3, max_size=30), st.integers(0, 50))
@settings(max_examples=80, deadline=None)
def test_automatic_novelty_follows_its_rule(rows: list[int], seed: int) -> None:
    classes = [f"c{i}" for i in range(len(rows))]
    held = novel_names(classes, rows, ("auto",), seed=seed)
    assert held == novel_names(classes, rows, ("auto",), seed=seed)
    assert 1 <= len(held) <= max(1, len(rows) // 5)
    assert len(classes) - len(held) >= 2
    assert sum(rows[classes.index(name)] for name in held) <= sum(rows) / 3


def test_novelty_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'sport'"):
        novel_names(("sport", "news", "art"), (1, 1, 1), ("sports",), seed=0)
    with pytest.raises(UserError, match="at least two classes"):
        novel_names(("a", "b", "c"), (1, 1, 1), ("a", "b"), seed=0)
    with pytest.raises(UserError, match="at least three classes"):
        novel_names(("a", "b"), (1, 1), ("auto",), seed=0)


def test_other_domains() -> None:
    domain = np.array(["x", "y", "x", "z"])
    assert {name: mask.tolist() for name, mask in other_domains(domain, "x").items()} == {
        "y": [False, True, False, False],
        "z": [False, False, False, True],
    }
    with pytest.raises(UnknownName, match="train_domain"):
        other_domains(domain, "w")
    with pytest.raises(UserError, match="only domain"):
        other_domains(np.array(["x"]), "x")


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3)).astype(np.uint8)


def test_corruptions_are_seeded_uint8_and_grow_with_severity() -> None:
    clean = images()
    made = corruptions(clean, seed=3)
    again = corruptions(clean, seed=3)
    assert len(made) == 15
    for name, corrupted in made.items():
        assert corrupted.dtype == np.uint8
        assert corrupted.shape == clean.shape
        np.testing.assert_array_equal(corrupted, again[name])
    for sort in ("noise", "blur"):
        damage = [np.abs(made[sort, s].astype(float) - clean).mean() for s in range(1, 6)]
        assert damage == sorted(damage)


def test_noise_has_the_documented_deviation() -> None:
    grey = np.full((50, 20, 20, 1), 128, dtype=np.uint8)
    for severity, deviation in enumerate((0.08, 0.12, 0.18), start=1):
        made = add_noise(grey, severity, seed=0).astype(float)
        assert made.std() == pytest.approx(255 * deviation, rel=0.03)
        assert made.mean() == pytest.approx(128, abs=1)


def test_blur_turns_an_edge_into_the_normal_distribution_function() -> None:
    edge = np.zeros((1, 60, 60, 1), dtype=np.uint8)
    edge[:, :, 30:] = 255
    profile = blur(edge, 3)[0, 30, :, 0].astype(float)
    np.testing.assert_allclose(profile, 255 * norm.cdf((np.arange(60) - 29.5) / (0.07 * 60)), atol=1.5)


def test_rotation_turns_by_the_documented_angle_to_either_side() -> None:
    field = np.zeros((60, 41, 41, 1), dtype=np.uint8)
    field[:, 20, 30] = 255  # a point to the right of the centre
    turned = rotate(field, 4, seed=0)[..., 0].astype(float)
    y, x = np.mgrid[:41, :41] - 20
    angles = np.degrees(np.arctan2((turned * y).sum(axis=(1, 2)), (turned * x).sum(axis=(1, 2))))
    np.testing.assert_allclose(np.abs(angles), 45, atol=2)
    assert 15 < (angles > 0).sum() < 45


def test_severity_outside_one_to_five_is_refused() -> None:
    with pytest.raises(UserError, match="severity"):
        blur(images(), 6)
