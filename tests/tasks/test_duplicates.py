from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.types import Examples, Inputs, Split
from dubio.tasks.duplicates import (
    grey_thumbnails,
    jaccard,
    near_matches,
    near_points,
    normalize_text,
    shared_rows,
    signatures,
)

WORDS = [f"{a}{b}{c}" for a in ("ba", "ke", "lo", "mi") for b in ("ran", "sut", "vel", "dor") for c in ("", "ta", "ni")]


def sentence(rng: np.random.Generator, length: int = 25) -> list[str]:
    return rng.choice(WORDS, length).tolist()


def splits(train: Inputs, test: Inputs) -> list[Split]:
    def named(inputs: Inputs, prefix: str) -> Examples:
        ids = np.array([f"{prefix}{i}" for i in range(len(inputs))])
        return Examples(inputs, np.zeros(len(inputs), dtype=np.int64), ids)

    return [Split.of("train", "train", named(train, "a")), Split.of("test", "id", named(test, "b"))]


def brute_jaccard(one: str, other: str) -> float:
    a, b = ({text[i : i + 5] for i in range(max(1, len(text) - 4))} for text in (one.ljust(5), other.ljust(5)))
    return len(a & b) / len(a | b)


@given(st.text(alphabet="ab c", max_size=30), st.text(alphabet="ab c", max_size=30))
@settings(max_examples=80)
def test_jaccard_agrees_with_sets(one: str, other: str) -> None:
    assert jaccard(one, other) == pytest.approx(brute_jaccard(one, other))


def test_signatures_estimate_the_jaccard_similarity() -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for changed in (0, 1, 3, 6, 12, 24):
        for _ in range(40):
            words = sentence(rng, 40)
            other = words.copy()
            for place in rng.choice(40, changed, replace=False):
                other[place] = "".join(rng.choice(list("xyzqw"), 6))
            pairs.append((" ".join(words), " ".join(other)))
    a, b = signatures([one for one, _ in pairs]), signatures([other for _, other in pairs])
    error = (a == b).mean(axis=1) - np.array([brute_jaccard(one, other) for one, other in pairs])
    assert abs(error.mean()) < 0.02
    assert np.sqrt(np.square(error).mean()) < 0.08  # binomial with 64 draws: at most 0.0625


def test_near_texts_are_those_that_brute_force_finds() -> None:
    rng = np.random.default_rng(1)
    train = [sentence(rng) for _ in range(150)]
    test = []
    for index in range(60):
        words = train[index].copy()
        for place in rng.choice(len(words), index % 6, replace=False):
            words[place] = str(rng.choice(WORDS))
        test.append(words)
    old, new = [" ".join(words) for words in train], [" ".join(words) for words in test]
    found = near_matches(old, signatures(old), new, signatures(new)) >= 0
    wanted = np.array([max(brute_jaccard(text, other) for other in old) >= 0.8 for text in new])
    assert 10 < wanted.sum() < 60
    np.testing.assert_array_equal(found, wanted)


def test_texts_equal_but_for_case_and_punctuation_are_the_same() -> None:
    rng = np.random.default_rng(2)
    train = [" ".join(sentence(rng)) for _ in range(20)]
    test = [train[3].upper() + "!!", train[5].replace(" ", ", ", 3), train[7] + " again", " ".join(sentence(rng)), "?"]
    (found,) = shared_rows(splits(tuple(train), tuple(test)), "text")
    assert (found.earlier, found.later, found.rows) == ("train", "test", 5)
    assert (found.exact, found.near) == (2, 1)
    assert found.example == ("a3", "b0")
    assert "3 of 5 (60.0 %)" in found.sentence()
    assert normalize_text("?!") == "?!"


def test_what_only_evaluation_splits_share_is_no_leak() -> None:
    text = ("the very same sentence is here",)
    rows = [
        Split.of("train", "train", Examples(("something quite different",), np.zeros(1, dtype=np.int64))),
        Split.of("test", "id", Examples(text, np.zeros(1, dtype=np.int64))),
        Split.of("far", "shift", Examples(text, np.zeros(1, dtype=np.int64))),
    ]
    assert shared_rows(rows, "text") == ()


def test_images_saved_again_are_near_and_others_are_not() -> None:
    rng = np.random.default_rng(3)
    train = rng.integers(20, 230, (30, 32, 32, 3)).astype(np.uint8)
    again = (train[:5].astype(int) + rng.integers(-2, 3, train[:5].shape)).astype(np.uint8)
    test = np.concatenate([train[8:10], again, rng.integers(20, 230, (10, 32, 32, 3)).astype(np.uint8)])
    (found,) = shared_rows(splits(train, test), "image")
    assert (found.exact, found.near) == (2, 5)


def test_thumbnails_are_block_means() -> None:
    image = np.random.default_rng(4).integers(0, 256, (2, 32, 48, 1)).astype(np.uint8)
    wanted = image[..., 0].reshape(2, 16, 2, 16, 3).mean(axis=(2, 4)).reshape(2, -1)
    np.testing.assert_allclose(grey_thumbnails(image), wanted, rtol=1e-6)
    assert grey_thumbnails(np.zeros((3, 8, 8, 1), dtype=np.uint8)).shape == (3, 64)
    assert grey_thumbnails(np.full((1, 19, 17, 3), 7, dtype=np.uint8)).tolist() == [[7.0] * 256]


def test_table_rows_are_near_within_a_hundredth_of_a_deviation() -> None:
    rng = np.random.default_rng(5)
    train = rng.normal(1000, 5, (50, 6))
    train[0, 0] = np.nan
    test = np.concatenate([train[:4], train[10:13] * (1 + 1e-6), rng.normal(1000, 5, (8, 6))])
    (found,) = shared_rows(splits(train, test), "table")
    assert (found.exact, found.near) == (4, 3)


def test_nearest_points_agree_with_all_distances() -> None:
    rng = np.random.default_rng(6)
    old, new = rng.integers(0, 4, (80, 3)).astype(float), rng.integers(0, 4, (600, 3)).astype(float)
    distance = np.sqrt(np.square(new[:, None] - old[None]).mean(axis=2))
    found = near_points(old, new, 0.6)
    np.testing.assert_array_equal(found >= 0, distance.min(axis=1) <= 0.6)
    hit = found >= 0
    np.testing.assert_allclose(distance[hit, found[hit]], distance[hit].min(axis=1))


def test_boilerplate_shared_by_all_texts_stays_bounded() -> None:
    rng = np.random.default_rng(7)
    common = "all rights reserved no part may be reproduced " * 3
    texts = tuple(common + " ".join(sentence(rng, 4)) for _ in range(6000))
    start = time.process_time()
    shared_rows(splits(texts[:4000], texts[4000:]), "text")
    assert time.process_time() - start < 5
