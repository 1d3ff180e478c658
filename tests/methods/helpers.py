"""Small tasks, a training that is cut off and goes on, whether two fits have the same bits, one prediction of a fit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors.numpy import save_file

from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.methods import NetworkSpec, fit_spec, predictor


def predict(spec, prediction, tensors, encoder, split):
    """Predict one split from a fit."""
    return predictor(spec, prediction, tensors, encoder)(split)


def equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


class Kept:
    """A checkpoint, in memory but for what is settled, that is cut off after some savings."""

    every_seconds = 0.0

    def __init__(self, stop_after):
        self.kept, self.left = None, stop_after
        self._place = TemporaryDirectory()
        self._files = {}

    def load(self):
        return self.kept

    def set_aside(self, reason):
        raise AssertionError(reason)

    def save(self, tensors, state, settled):
        for name in settled.keys() - self._files.keys():
            self._files[name] = Path(self._place.name) / str(len(self._files))
            save_file({k: np.asarray(v, order="C") for k, v in settled[name].items()}, self._files[name])
        files = {name: self._files[name] for name in settled}
        copied = {name: array.copy() for name, array in tensors.items()}
        self.kept, self.left = {"tensors": copied, "state": state, "settled": files}, self.left - 1
        if self.left == 0:
            raise KeyboardInterrupt
        return files


def blobs(target="multiclass", rows=160, apart=3.0):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, size=rows)
    inputs = (np.eye(3)[labels] * apart + generator.normal(size=(rows, 3))).astype(np.float32)
    if target == "multilabel":
        labels = (inputs > 1).astype(np.int64)
    cuts = {"train": slice(0, 80), "val": slice(80, 120), "id": slice(120, rows)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("blobs", "table", target, ("a", "b", "c"), splits, SourceCard("made here", "1", "none", "none"))


def images(rows=60, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, size=rows)
    pixels = (generator.random((rows, 6, 6, 1)) * 80 + labels[:, None, None, None] * 100).astype(np.uint8)
    cuts = {"train": slice(0, 30), "val": slice(30, 45), "id": slice(45, rows)}
    splits = tuple(Split.of(k, k, Examples(pixels[c], labels[c])) for k, c in cuts.items())
    return Task("images", "image", "multiclass", ("dark", "light"), splits, SourceCard("made", "1", "none", "none"))


SETUPS = [entry.name for entry in METHODS.entries() if entry.facts.get("family") == "dropout"]


def spec_of(recipe, task, network="cnn", seed=0, member=0):
    return fit_spec(recipe, task, encoding_for(task.inputs, {}), NetworkSpec(network), seed=seed, member=member)
