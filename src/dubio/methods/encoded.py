"""Encoded splits, remembered: a worker fits and predicts many times on the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dubio.core.errors import UserError
from dubio.core.types import Split, Task
from dubio.encoders import ArrayRows, Encoded, Encoder, Encoding, TokenRows, encoder_from_json, fit_encoder

REMEMBERED_BYTES = 1 << 30
"""Encoded splits are remembered up to so many bytes together, the last used ones longest; one is always."""

REMEMBERED_SPLITS = 32
"""And never more than so many."""

_remembered: dict[tuple[str, Split], Encoded] = {}


def encode_split(encoding: Encoding, train_split: Split, split: Split) -> Encoded:
    """A split encoded by the encoder fitted on a training split."""
    return encoded(fitted_encoder(encoding, train_split), split)


def encoder_shape(encoding: Encoding, train_split: Split) -> tuple[int, ...]:
    """The shape of an example encoded by the encoder fitted on a training split."""
    return encoder_of(fitted_encoder(encoding, train_split)).shape


def learning_splits(task: Task) -> tuple[Split, Split]:
    """The training and the validation split.

    Raises:
        UserError: When a task has not exactly one of each.
    """
    found = []
    for kind in ("train", "val"):
        splits = task.of_kind(kind)
        if len(splits) != 1:
            raise UserError(f"task {task.name}: exactly one {kind} split is asked; it has {len(splits)}.")
        found.append(splits[0])
    return found[0], found[1]


def canonical(value: Mapping[str, Any]) -> str:
    """An encoder's JSON as one text, the key it is remembered by."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4)
def fitted_encoder(encoding: Encoding, train_split: Split) -> str:
    """The encoder fitted on a training split, as canonical JSON text."""
    return canonical(fit_encoder(encoding, train_split.data).to_json())


@lru_cache(maxsize=4)
def encoder_of(text: str) -> Encoder:
    """The encoder a canonical text describes."""
    return encoder_from_json(json.loads(text))


def encoded(text: str, split: Split) -> Encoded:
    """A split encoded by the encoder a canonical text describes."""
    key = (text, split)
    if key in _remembered:
        _remembered[key] = _remembered.pop(key)  # the last to be forgotten
        return _remembered[key]
    made = encoder_of(text).encode(split.data)
    _remembered[key] = made
    while len(_remembered) > 1 and _too_many():
        del _remembered[next(iter(_remembered))]
    return made


def _too_many() -> bool:
    return len(_remembered) > REMEMBERED_SPLITS or sum(map(_bytes, _remembered.values())) > REMEMBERED_BYTES


def _bytes(made: Encoded) -> int:
    """What remembering it keeps in memory beyond the split itself."""
    if isinstance(made, TokenRows):
        return made.tokens.nbytes + made.offsets.nbytes
    return made.values.nbytes if isinstance(made, ArrayRows) else 0
