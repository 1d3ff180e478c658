"""Fitted encoders and encoded splits, cached: a worker fits and predicts many times on the same ones.

An encoder is known by its canonical JSON text, as it is stored with a fit, so that fitting and predicting share it.
"""

from __future__ import annotations

import json
from functools import lru_cache

from dubio.core.specs import canonical
from dubio.core.types import Split
from dubio.encoders import ArrayRows, Encoded, Encoder, Encoding, TokenRows, encoder_from_json, fit_encoder

CACHED_BYTES = 1 << 30
"""Encoded splits are cached up to this size in total, the last used ones longest; one always is."""

CACHED_SPLITS = 32
"""Largest number of cached splits."""

_cache: dict[tuple[bytes, Split], Encoded] = {}


def encode_split(encoding: Encoding, train_split: Split, split: Split) -> Encoded:
    """Return a split encoded by the encoder fitted on a training split."""
    return encode(fitted_encoder(encoding, train_split), split)


def encoder_shape(encoding: Encoding, train_split: Split) -> tuple[int, ...]:
    """Return the shape of an example encoded by the encoder fitted on a training split."""
    return encoder_of(fitted_encoder(encoding, train_split)).shape


@lru_cache(maxsize=4)
def fitted_encoder(encoding: Encoding, train_split: Split) -> bytes:
    """Fit an encoder on a training split and return its canonical JSON."""
    return canonical(fit_encoder(encoding, train_split.data).to_json())


@lru_cache(maxsize=4)
def encoder_of(text: bytes) -> Encoder:
    """Return the encoder that a canonical JSON text describes."""
    return encoder_from_json(json.loads(text))


def encode(text: bytes, split: Split) -> Encoded:
    """Return a split encoded by the encoder that a canonical JSON text describes."""
    key = (text, split)
    if key in _cache:
        _cache[key] = _cache.pop(key)  # now the last one to be dropped
        return _cache[key]
    rows = encoder_of(text).encode(split.data)
    _cache[key] = rows
    while len(_cache) > 1 and _over_limit():
        del _cache[next(iter(_cache))]
    return rows


def _over_limit() -> bool:
    return len(_cache) > CACHED_SPLITS or sum(map(_bytes, _cache.values())) > CACHED_BYTES


def _bytes(rows: Encoded) -> int:
    """Return the memory that caching needs beyond the split itself."""
    if isinstance(rows, TokenRows):
        return rows.tokens.nbytes + rows.offsets.nbytes
    return rows.values.nbytes if isinstance(rows, ArrayRows) else 0
