"""Small fits and predictions for the store's tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions
from dubio.core.specs import identity
from dubio.core.types import Examples, Split
from dubio.store import Store

SPEC = {
    "schema": 1, "kind": "fit", "task": {"name": "toy"}, "network": {"name": "net"}, "seed": 0, "member": 0,
    "start": None,
}  # fmt: skip
FIT = identity(SPEC)


def write_fit(store: Store, **changes: Any) -> str:
    tensors = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.array(3, dtype=np.int64), "c": np.zeros((0, 2), np.float32)}
    record = {"seconds": 1.5, "val_nll": float("nan"), "curve": (np.float32(0.5), 2)}
    return store.write_fit({**SPEC, **changes}, tensors, {"words": ["ä"]}, record)


def split(name: str = "test", seed: int = 0) -> Split:
    generator = np.random.default_rng(seed)
    ids = np.array(list("abcd"))
    return Split.of(name, "id", Examples(generator.normal(size=(4, 2)), np.array([0, 1, 1, 0]), ids))


def predicted(seed: int = 0) -> Predictions:
    logits = np.random.default_rng(seed).normal(size=(2, 4, 2)).astype(np.float32)
    return Predictions(logits, np.array([0, 1, 1, 0]), ids=np.array(list("abcd")), kind="id")


def write_prediction(store: Store, seed: int = 0, *splits: Split) -> str:
    spec = {"schema": 1, "kind": "prediction", "fit": FIT, "seed": seed}
    with store.prediction_writer(spec, {"python": "3"}) as writer:
        for part in splits or (split(),):
            writer.add(part, predicted(seed), 0.25)
    return identity(spec)


def dump_index(store: Store) -> str:
    """Return the index as SQL text, for comparing two stores."""
    with closing(sqlite3.connect(f"{store.layout.index.as_uri()}?mode=ro", uri=True)) as base:
        return "\n".join(base.iterdump())
