"""Forecast what fits and predictions will cost from a few steps, run now, and from the time of another fit's steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.core.specs import canonical, describe
from dubio.core.types import Split, Task
from dubio.encoders import Encoder, Encoding, fit_encoder
from dubio.inference.batches import LabelledRows, collate, to_device
from dubio.inference.engine import one_thread
from dubio.methods.estimator import MOST_ROWS
from dubio.methods.specification import (
    build_model,
    encoder_split,
    encoding_of,
    estimator_of,
    recipe_of,
    training_splits,
)
from dubio.networks.network import Model, contract
from dubio.networks.noise import SiteEdit
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.schedules import Constant

FEW, MORE = 2, 8
"""Steps of the two measured trainings: their difference excludes what every training pays once."""

SLOW = 0.2
"""Seconds: where a step of some examples takes longer, no larger one is measured."""

WARMING = 2.0
"""Seconds after which a first stage that remembers its outputs runs on no further example."""

FIRST_ROWS = 2
"""Examples of the first measured step: batch normalisation needs two."""

GROWTH = 8
"""Factor by which the examples of a measured step grow."""

SAMPLE_ROWS = 1000
"""Training examples, evenly spread, that an encoder is fitted on and that are measured."""

ESTIMATOR_PASS = 1e-4
"""Seconds in which an estimator predicts one example, approximately."""

PASS_SHARE = 1 / 3
"""Cost of a forward pass as a fraction of a training step; validation and prediction need forward passes only."""


def estimate(
    spec: Mapping[str, Any], task: Task, *, device: str = "cpu", pace: float | None = None
) -> dict[str, float]:
    """Return the cost of a fit, extrapolated to all its epochs from the time that one example takes in a step.

    Args:
        spec: A fit specification.
        task: Its task.
        device: The device it will run on.
        pace: The seconds of one example in a step, from a fit with the same network; None runs a few steps.

    Returns:
        ``seconds`` on one core, or on that device, if all epochs are run (early stopping ends sooner), ``bytes`` of
        stored weights, the ``pace``, and ``pass``: the seconds that predicting one example with one sample takes.
    """
    train_split, val_split = training_splits(task)
    if (estimator := estimator_of(spec)) is not None:
        seconds = estimator.rate * min(len(train_split), MOST_ROWS) * len(task.classes)
        return {"seconds": seconds, "bytes": 1e6, "pace": 0.0, "pass": ESTIMATOR_PASS}
    recipe = recipe_of(spec)
    encoding = encoding_of(spec)
    encoder = _encoder(encoding, encoder_split(encoding, task))
    model = _model(spec, encoder.shape, again=pace is None)
    once = 0.0
    if pace is None:
        pace, once = _measured_pace(spec, task, model.to(torch.device(device)), encoder)
    objective, arrangement = recipe.objective, model.network.arrangement
    share = PASS_SHARE if arrangement is None else PASS_SHARE / arrangement.passes
    validated = 0 if val_split is None else len(val_split)
    per_epoch = len(train_split) + share * validated
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    finish = PASS_SHARE * len(train_split) * recipe.collect.passes(model, len(train_split))
    stored = recipe.collect.stored(recipe.schedule, objective.epochs)
    seconds = pace * (per_epoch * objective.epochs + finish) + once * (len(train_split) + validated)
    return {"seconds": seconds, "bytes": size * stored, "pace": pace, "pass": share * pace}


def _measured_pace(spec: Mapping[str, Any], task: Task, model: Model, encoder: Encoder) -> tuple[float, float]:
    """Return the seconds of one example in a step of a model, on its device, and those that it takes only once.

    The latter are those of a first stage that remembers its outputs. It runs before the steps, which are then measured
    as they are in every epoch but the first.
    """
    train_split, _ = training_splits(task)
    recipe, sample = recipe_of(spec), _sample(train_split)
    examples, labels = encoder.encode(train_split.data.take(sample)), train_split.data.labels[sample]
    device = next(model.parameters()).device
    context = LoopContext(device, lambda fraction, text: None)
    # on a CPU the time of this process alone: what else the machine does now it may not do later
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    first, once = model.network.stages[0], 0.0
    with one_thread():
        if contract(first).remembers:
            few = range(min(len(sample), MORE * recipe.objective.batch))
            batch = partial(collate, examples)
            count, once = first_passes(lambda row: first(to_device(batch(np.array([row])), device)), few, clock)
            sample = sample[:count]

    def seconds(count: int, steps: int) -> float:
        # one epoch has no cycles to divide and nothing to keep: its steps alone are measured
        objective = replace(recipe.objective, epochs=1, patience=0, batch=count)
        rows = np.resize(np.arange(len(sample)), count * steps)
        data = LabelledRows(examples.take(rows), labels[rows], len(task.classes))
        one = LabelledRows(examples.take(rows[:1]), labels[rows[:1]], len(task.classes))
        started = clock()
        train(
            model, Slots(objective, recipe.optimiser, Constant(), Last()), data, one, seed=0, member=0, context=context
        )
        return clock() - started

    with one_thread():
        return max(1e-7, example_seconds(seconds, recipe.objective.batch)), once


def first_passes(run: Callable[[int], object], rows: Sequence[int], clock: Callable[[], float]) -> tuple[int, float]:
    """Run a stage on one example after another, for :data:`WARMING` seconds at most.

    Args:
        run: Runs it on one row.
        rows: The rows, at least one.
        clock: Measures the time.

    Returns:
        The number of rows that were run, and the seconds of one of them.
    """
    count, started = 0, clock()
    while count < len(rows) and clock() - started <= WARMING:
        run(rows[count])
        count += 1
    return count, (clock() - started) / count


def example_seconds(seconds: Callable[[int, int], float], batch: int) -> float:
    """Return the seconds of one example in a step.

    Steps grow from two examples to a batch, and end where they become slow: one step of a large network on a whole
    batch may take minutes.

    Args:
        seconds: Measures a training by the number of examples in a step and the number of steps.
        batch: Examples in a step of the training that is forecast.
    """
    rows = min(FIRST_ROWS, batch)
    seconds(rows, 1)  # pays for allocations
    while (elapsed := seconds(rows, 1)) <= SLOW and rows < batch:
        rows = min(batch, GROWTH * rows)
    if elapsed > SLOW:
        return elapsed / rows
    return (seconds(batch, MORE) - seconds(batch, FEW)) / ((MORE - FEW) * batch)


def _sample(split: Split) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, len(split) - 1, min(SAMPLE_ROWS, len(split))).astype(np.int64))


@lru_cache(maxsize=4)
def _encoder(encoding: Encoding, train_split: Split) -> Encoder:
    """Return an encoder fitted on some of the training examples: all of a large corpus would take a minute."""
    return fit_encoder(encoding, train_split.data.take(_sample(train_split)))


_last_model: dict[bytes, Model] = {}
"""The model that was built last, by its network, head and edits of weights: noise at sites hardly changes its size."""


def _model(spec: Mapping[str, Any], shape: tuple[int, ...], *, again: bool) -> Model:
    """Return the model of a fit; one with the same layers and other noise will do unless it is built ``again``."""
    recipe = recipe_of(spec)
    edits = [edit for edit in recipe.edits if not isinstance(edit, SiteEdit)]
    key = canonical([spec["network"], list(shape), [describe(slot) for slot in (recipe.head, *edits)]])
    if again or key not in _last_model:
        _last_model.clear()
        _last_model[key] = build_model(spec, shape)
    return _last_model[key]
