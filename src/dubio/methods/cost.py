"""Forecast what a fit will cost from a few of its steps, run now."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dubio.core.types import Task
from dubio.inference.batches import LabelledRows
from dubio.inference.engine import one_thread
from dubio.methods.encoding_cache import encode_split, encoder_shape
from dubio.methods.specification import build_model, encoding_of, recipe_of, training_splits
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.schedules import Constant

FEW, MORE = 2, 8
"""Steps of the two measured trainings: their difference excludes what every training pays once."""

SLOW = 1.0
"""Seconds: where one step takes longer, it is measured alone."""

PASS_SHARE = 1 / 3
"""Cost of a forward pass as a fraction of a training step; validation needs forward passes only."""


def estimate(spec: Mapping[str, Any], task: Task, *, device: str = "cpu") -> dict[str, float]:
    """Run a few steps of a fit and extrapolate to all its epochs.

    Args:
        spec: A fit specification.
        task: Its task.
        device: The device it will run on.

    Returns:
        ``seconds`` on one core, or on that device, if all epochs are run (early stopping ends sooner), and ``bytes`` of
        stored weights.
    """
    train_split, val_split = training_splits(task)
    encoding, recipe = encoding_of(spec), recipe_of(spec)
    model = build_model(spec, encoder_shape(encoding, train_split)).to(torch.device(device))
    objective = recipe.objective
    # one epoch has no cycles to divide and nothing to keep: its steps alone are measured
    slots = Slots(replace(objective, epochs=1, patience=0), recipe.optimiser, Constant(), Last())
    context = LoopContext(torch.device(device), lambda fraction, text: None)
    examples, labels = encode_split(encoding, train_split, train_split), train_split.data.labels

    def seconds(steps: int) -> float:
        rows = np.resize(np.arange(len(train_split)), steps * objective.batch)
        data = LabelledRows(examples.take(rows), labels[rows], len(task.classes))
        one = LabelledRows(examples.take(rows[:1]), labels[rows[:1]], len(task.classes))
        started = time.perf_counter()
        train(model, slots, data, one, seed=0, member=0, context=context)
        return time.perf_counter() - started

    with one_thread():
        per_example = max(1e-7, step_seconds(seconds) / objective.batch)
    per_epoch = len(train_split) + PASS_SHARE * (0 if val_split is None else len(val_split))
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    finish = PASS_SHARE * len(train_split) * recipe.collect.passes(model)
    stored = recipe.collect.stored(recipe.schedule, objective.epochs)
    return {"seconds": per_example * (per_epoch * objective.epochs + finish), "bytes": size * stored}


def step_seconds(seconds: Callable[[int], float]) -> float:
    """Return the seconds of one step, from a function that measures trainings of a few steps."""
    seconds(FEW)  # the first steps pay for allocations
    one = seconds(1)
    return one if one > SLOW else (seconds(MORE) - seconds(FEW)) / (MORE - FEW)
