"""Encoded splits, remembered: a worker fits and predicts many times on the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dubio.encoders import Encoded, Encoder, Encoding, encoder_from_json, fit_encoder
from dubio.errors import UserError
from dubio.types import Split, Task


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


@lru_cache(maxsize=32)
def encoded(text: str, split: Split) -> Encoded:
    """A split encoded by the encoder a canonical text describes."""
    return encoder_of(text).encode(split.data)
