"""From a specification to a fit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.encoders import Encoding, encoder_from_json
from dubio.errors import UserError
from dubio.methods.building import NetworkSpec, build_model, continue_from
from dubio.methods.encoded import encoded, encoder_of, fitted_encoder, learning_splits
from dubio.methods.recipe import Recipe
from dubio.methods.specs import fit_spec
from dubio.parts import restore
from dubio.posteriors.mixture import Mixture
from dubio.posteriors.points import Points
from dubio.posteriors.posterior import Posterior
from dubio.training.checkpoints import Checkpoint
from dubio.training.loop import Labelled, LoopContext, Slots, train
from dubio.training.pooled import pooled_nll
from dubio.training.seeds import number
from dubio.types import Task


def _silent(fraction: float, words: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class FitContext:
    """What surrounds a fit.

    Attributes:
        device: Where it runs.
        progress: Told the fraction done and a few words.
        checkpoint: Where it is kept while under way, if anywhere.
        start: The weights of the fit it continues from, as stored.
        encoding: How examples are encoded; the modality's defaults where None.
    """

    device: str = "cpu"
    progress: Callable[[float, str], None] = _silent
    checkpoint: Checkpoint | None = None
    start: Mapping[str, NDArray[Any]] | None = None
    encoding: Encoding | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit leaves for the store."""

    tensors: dict[str, NDArray[Any]]
    encoder: dict[str, Any]
    record: dict[str, Any]


def fit(spec: Mapping[str, Any], task: Task, context: FitContext) -> Fitted:
    """Train what a specification says.

    Raises:
        UserError: When the task is not the one the specification was made for.
        TrainingFailed: When the training comes to nothing.
    """
    train_split, val_split = learning_splits(task)
    if (train_split.fingerprint, val_split.fingerprint) != (spec["task"]["train"], spec["task"]["val"]):
        raise UserError(f"task {task.name}: its data is not what this fit was planned for; has a file changed?")
    started = time.monotonic()
    encoder = fitted_encoder(cast(Encoding, restore(spec["encoding"])), train_split)
    model = build_model(spec, encoder_of(encoder).shape)
    if context.start is not None:
        parent = Points.from_tensors({k: torch.from_numpy(np.array(v)) for k, v in context.start.items()}, model, 0)
        continue_from(model, parent.states[-1])
    device = torch.device(context.device)
    model.to(device)
    recipe = cast(Recipe, restore(spec["recipe"]))
    slots = Slots(recipe.objective, recipe.optimiser, recipe.schedule, recipe.collect)
    data = [Labelled(encoded(encoder, s), s.data.labels, len(task.classes)) for s in (train_split, val_split)]
    loop = LoopContext(device, context.progress, context.checkpoint)
    held, progress = train(model, slots, data[0], data[1], seed=spec["seed"], member=spec["member"], context=loop)
    points = recipe.collect.finish(held, model)
    val_nll = held.facts.get("val_nll", progress.best_val_nll)
    if len(points.states) > 1:  # what is chosen among is what will predict: all of them together
        noise = number(spec["seed"], spec["member"], "noise", 0)
        val_nll = pooled_nll(points, data[1], seed=noise, device=device)
    model.load_state_dict(dict(points.states[-1]))
    return Fitted(
        {name: tensor.cpu().numpy() for name, tensor in points.tensors().items()},
        json.loads(encoder),
        {
            "epochs": progress.epoch,
            "best_epoch": held.facts.get("epoch", progress.epoch),
            "val_nll": val_nll,
            "history": progress.history,
            "parameters": model.parameter_count(),
            "rates": model.rates(),
            "seconds": time.monotonic() - started,
            "seconds_per_epoch": progress.seconds / max(1, progress.epoch),
        },
    )


def fit_recipe(recipe: Recipe, task: Task, network: NetworkSpec, *, seed: int, context: FitContext) -> Posterior:
    """Fit every member in this process and return the posterior of the whole method."""
    encoding = context.encoding or network.encoding()
    parts: list[Posterior] = []
    # without the checkpoint: it is one place, and every fit here would go on from where another one was
    alone = FitContext(context.device, context.progress, encoding=encoding)
    for member in range(recipe.members):
        start = None
        if recipe.start is not None:
            first = fit_spec(recipe.start, task, encoding, network, seed=seed, member=member)
            start = fit(first, task, alone).tensors
        spec = fit_spec(recipe, task, encoding, network, seed=seed, member=member)
        fitted = fit(spec, task, replace(alone, start=start))
        model = build_model(spec, encoder_from_json(fitted.encoder).shape)
        named = {name: torch.from_numpy(array) for name, array in fitted.tensors.items()}
        parts.append(Points.from_tensors(named, model, recipe.samples, recipe.views))
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts))
