"""A small task, and estimators for it."""

from __future__ import annotations

import numpy as np

from dubio.core.types import Examples, SourceCard, Split, Task

CARD = SourceCard("made here", "1", "none", "none")


def make_task(classes=2, rows=40, target="multiclass", group=False, seed=0):
    """Make a small task whose inputs lean towards their class: train, val, test and an OOD split."""
    rng = np.random.default_rng(seed)
    names = tuple("abcdefgh"[:classes])

    def split(name, kind, shape=rows):
        labels = rng.integers(0, classes, shape)
        inputs = np.eye(classes)[labels] * 1.5 + rng.normal(size=(shape, classes))
        if target == "multilabel":
            labels = (inputs > 0.7).astype(np.int64)
        elif kind == "ood":
            labels = np.full(shape, -1)
        members = rng.integers(0, 12, shape).astype(np.str_) if group else None
        ids = np.array([f"{name}-{row}" for row in range(shape)])
        return Split.of(name, kind, Examples(inputs, labels.astype(np.int64), ids, members))

    splits = (split("train", "train"), split("val", "val"), split("test", "id"), split("far", "ood", 25))
    return Task("made", "table", target, names, splits, CARD)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def three(score):
    return [score.value, score.low, score.high]


def values_of(scores):
    return {name: score.value for name, score in scores.items()}


SYSTEMS = {
    "sharp": lambda x: softmax(2.5 * x),
    "rough": lambda x: softmax(1.5 * x + np.sin(7 * x)),
    "blunt": lambda x: softmax(0.4 * x + np.cos(5 * x)),
}
