"""What a fit will cost, from a few of its steps run now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from dubio.core.specs import restore
from dubio.core.types import Task
from dubio.encoders import Encoding
from dubio.inference.batches import LabelledRows
from dubio.inference.engine import one_thread
from dubio.methods.building import build_model
from dubio.methods.encoded import encode_split, encoder_shape, learning_splits
from dubio.methods.recipe import Recipe
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.schedules import Constant

FEW, MORE = 2, 8
"""Steps of the two measured trainings: their difference leaves out what every training pays once."""

SLOW = 1.0
"""Seconds: a training of one step that takes longer is mostly that step, and no further ones are measured."""

PASS_SHARE = 1 / 3
"""Of a training step, the forward pass that validation needs too."""


def estimate(spec: Mapping[str, Any], task: Task, *, device: str = "cpu") -> dict[str, float]:
    """Run a few steps of a fit and extrapolate to all its epochs.

    Args:
        spec: A fit specification.
        task: Its task.
        device: Where it will run.

    Returns:
        ``seconds`` on one core, or on that device, at most: if every epoch is run (early stopping ends sooner), and
        ``bytes`` of stored weights.
    """
    train_split, val_split = learning_splits(task)
    encoding = cast(Encoding, restore(spec["encoding"]))
    model = build_model(spec, encoder_shape(encoding, train_split)).to(torch.device(device))
    recipe = cast(Recipe, restore(spec["recipe"]))
    objective = recipe.objective
    # one epoch has no cycles to divide and nothing to keep: its steps alone are measured
    slots = Slots(replace(objective, epochs=1, patience=0), recipe.optimiser, Constant(), Last())
    context = LoopContext(torch.device(device), lambda fraction, words: None)
    encoded, labels = encode_split(encoding, train_split, train_split), train_split.data.labels

    def seconds(steps: int) -> float:
        rows = np.resize(np.arange(len(train_split)), steps * objective.batch)
        data = LabelledRows(encoded.take(rows), labels[rows], len(task.classes))
        check = LabelledRows(encoded.take(rows[:1]), labels[rows[:1]], len(task.classes))
        started = time.perf_counter()
        train(model, slots, data, check, seed=0, member=0, context=context)
        return time.perf_counter() - started

    with one_thread():
        each = max(1e-7, _step(seconds) / objective.batch)
    rows = len(train_split) + PASS_SHARE * len(val_split)
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    passes = PASS_SHARE * len(train_split) * recipe.collect.passes(model)
    stored = recipe.collect.stored(recipe.schedule, objective.epochs)
    return {"seconds": each * (rows * objective.epochs + passes), "bytes": size * stored}


def _step(seconds: Callable[[int], float]) -> float:
    """Seconds of one step, from trainings of a few steps."""
    seconds(FEW)  # the first steps pay for allocations
    one = seconds(1)
    return one if one > SLOW else (seconds(MORE) - seconds(FEW)) / (MORE - FEW)
