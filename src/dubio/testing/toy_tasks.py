"""Toy tasks with three well-separated classes, one per modality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dubio.core.types import Examples, Inputs, IntArray, Kind, Modality, SourceCard, Split, Task

CLASSES = ("one", "two", "three")
_SIZES: tuple[tuple[str, Kind, int], ...] = (("train", "train", 120), ("val", "val", 60), ("test", "id", 90))
_CARD = SourceCard("made up by dubio.testing", "1", "CC0-1.0", "none", "Three well-separated classes.")


def _table(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return three blobs, six standard deviations apart."""
    centres = 6.0 * np.eye(3, 5)
    return centres[labels] + generator.standard_normal((len(labels), 5))


def _image(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return dark 8×8 images with one bright stripe, whose position is the class."""
    images = generator.integers(0, 40, (len(labels), 8, 8, 1))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 200
    return images.astype(np.uint8)


def _text(labels: IntArray, generator: np.random.Generator) -> Inputs:
    """Return texts of four to ten words, about half of them from the class's own vocabulary."""
    texts = []
    for label in labels.tolist():
        own = [f"{CLASSES[label]}{i}" for i in generator.integers(0, 6, generator.integers(2, 6))]
        common = [f"word{i}" for i in generator.integers(0, 12, generator.integers(2, 6))]
        texts.append(" ".join(generator.permutation(own + common)))
    return tuple(texts)


_MAKERS: dict[Modality, Callable[[IntArray, np.random.Generator], Inputs]] = {
    "table": _table,
    "image": _image,
    "text": _text,
}

SMALL_NETWORKS: dict[Modality, tuple[str, dict[str, Any]]] = {
    "table": ("mlp", {"hidden": [16, 16]}),
    "image": ("cnn", {"channels": [4, 4], "dense": 16}),
    "text": ("textcnn", {"embedding": 16, "maps": 8}),
}
"""A small built-in network for each modality: its name and arguments."""


def small_task(inputs: Modality) -> Task:
    """Return a task of 270 examples in three classes that a few training steps separate."""
    generator = np.random.default_rng(2026)
    splits = []
    for name, kind, rows in _SIZES:
        labels = np.arange(rows, dtype=np.int64) % len(CLASSES)
        ids = np.array([f"{name}-{row}" for row in range(rows)])
        splits.append(Split.of(name, kind, Examples(_MAKERS[inputs](labels, generator), labels, ids)))
    return Task(f"made-up-{inputs}", inputs, "multiclass", CLASSES, tuple(splits), _CARD)
