"""Encoded splits are cached, up to a limit."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.types import Examples, Split
from dubio.encoders import ArrayRows, ImageEncoding
from dubio.methods import encoding_cache


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    """Five splits of 4 images of 8×8: 4·8·8·4 = 1,024 bytes each once encoded."""
    monkeypatch.setattr(encoding_cache, "_cache", {})
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 4, 8, 8, 1)).astype(np.uint8)
    return [Split.of(f"s{k}", "id", Examples(images[k], np.zeros(4, np.int64))) for k in range(5)]


def asked(splits: list[Split], *order: int) -> list[bool]:
    """Whether each was remembered when it was asked for."""
    found = []
    text = encoding_cache.fitted_encoder(ImageEncoding(), splits[0])
    for k in order:
        found.append((text, splits[k]) in encoding_cache._cache)
        made = encoding_cache.encode(text, splits[k])
        assert isinstance(made, ArrayRows)
        np.testing.assert_array_equal(made.values, encoding_cache.encoder_of(text).encode(splits[k].data).values)
    return found


def test_the_last_used_stay_within_the_bytes(splits: list[Split], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_cache, "CACHED_BYTES", 3 * 1024)
    assert asked(splits, 0, 1, 2, 0, 3, 0, 1) == [False, False, False, True, False, True, False]


def test_the_last_one_is_cached_whatever_its_size(splits: list[Split], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_cache, "CACHED_BYTES", 10)
    assert asked(splits, 0, 0, 1, 1, 0) == [False, True, False, True, False]


def test_the_number_of_cached_splits_is_limited(splits: list[Split], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_cache, "CACHED_SPLITS", 2)
    assert asked(splits, 0, 1, 2, 0) == [False] * 4
