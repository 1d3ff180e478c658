"""From a specification to a fit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import restore
from dubio.core.types import Task
from dubio.encoders import Encoding, encoder_from_json
from dubio.inference.batches import LabelledRows
from dubio.inference.posterior import Mixture, Posterior
from dubio.inference.samples import WeightSamples
from dubio.methods.building import NetworkSpec, build_model, continue_from
from dubio.methods.checking import check
from dubio.methods.encoded import encoded, encoder_of, fitted_encoder, learning_splits
from dubio.methods.recipe import Recipe
from dubio.methods.specs import fit_spec
from dubio.methods.stored_tensors import in_place
from dubio.networks.network import Model
from dubio.training.checkpoints import Checkpoint
from dubio.training.collectors import FinishContext
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.seeds import number
from dubio.training.validation import pooled_nll


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
        UserError: When the task is not the one the specification was made for, or the fit continues another one whose
            weights are not given.
        TrainingFailed: When the training comes to nothing.
    """
    train_split, val_split = learning_splits(task)
    if (train_split.fingerprint, val_split.fingerprint) != (spec["task"]["train"], spec["task"]["val"]):
        raise UserError(f"task {task.name}: its data is not what this fit was planned for; has a file changed?")
    started = time.monotonic()
    encoder = fitted_encoder(cast(Encoding, restore(spec["encoding"])), train_split)
    recipe = cast(Recipe, restore(spec["recipe"]))
    model = build_model(spec, encoder_of(encoder).shape)
    _start(model, recipe, spec, context)
    data = [LabelledRows(encoded(encoder, s), s.data.labels, len(task.classes)) for s in (train_split, val_split)]
    posterior, record = fit_model(
        model, recipe, data[0], data[1], seed=spec["seed"], member=spec["member"], context=context
    )
    return Fitted(
        {name: tensor.cpu().numpy() for name, tensor in posterior.tensors().items()},
        json.loads(encoder),
        {**record, "seconds": time.monotonic() - started},
    )


def fit_model(
    model: Model,
    recipe: Recipe,
    train_data: LabelledRows,
    val_data: LabelledRows,
    *,
    seed: int,
    member: int,
    context: FitContext,
) -> tuple[Posterior, dict[str, Any]]:
    """Train a model that is built and has the weights it starts from; the posterior that it leaves, and its record.

    Args:
        model: The model; it is moved to the context's device.
        recipe: The method.
        train_data: Training examples.
        val_data: Validation examples.
        seed: The benchmark's seed.
        member: Which fit of that seed.
        context: Device, progress, checkpoint.

    Raises:
        TrainingFailed: When the training comes to nothing.
    """
    started = time.monotonic()
    device = torch.device(context.device)
    model.to(device)
    recipe.collect.check(model)
    slots = Slots(recipe.objective, recipe.optimiser, recipe.schedule, recipe.collect)
    loop = LoopContext(device, context.progress, context.checkpoint)
    held, progress = train(model, slots, train_data, val_data, seed=seed, member=member, context=loop)
    finish = FinishContext(
        train_data,
        val_data,
        device,
        seed=number(seed, member, "draws"),
        batch=recipe.objective.batch,
        augmentation=recipe.objective.augmentation,
        l2=getattr(recipe.optimiser, "l2", 0.0),
    )
    posterior = recipe.collect.finish(held, model, finish)
    val_nll = held.facts.get("val_nll")
    if val_nll is None or recipe.states > 1:  # what is chosen among is what will predict: all of it together
        val_nll = pooled_nll(posterior, val_data, seed=number(seed, member, "noise", 0), device=device)
    return posterior, {
        "epochs": progress.epoch,
        "best_epoch": held.facts.get("epoch", progress.epoch),
        "val_nll": val_nll,
        "history": progress.history,
        "parameters": model.parameter_count(),
        "rates": model.rates(),
        "seconds": time.monotonic() - started,
        "seconds_per_epoch": progress.seconds / max(1, progress.epoch),
        **held.facts.get("record", {}),
    }


def _start(model: Model, recipe: Recipe, spec: Mapping[str, Any], context: FitContext) -> None:
    """Give the model the weights of the fit it continues from, if it continues one."""
    if recipe.start is None and spec["start"] is None and context.start is None:
        return
    if context.start is None:
        raise UserError(
            "start: this fit continues from another one, whose weights are not given; "
            "fit its start first and give the tensors as FitContext(start=...)."
        )
    if recipe.start is None:
        raise UserError("start: weights to continue from are given, but this recipe starts from scratch.")
    start_from(model, recipe.start, {name: in_place(array) for name, array in context.start.items()})


def start_from(model: Model, start: Recipe, tensors: Mapping[str, Tensor]) -> None:
    """Give a model the weights that the fit of another recipe left.

    Args:
        model: The model.
        start: The other recipe.
        tensors: What its posterior's :meth:`~dubio.inference.posterior.Posterior.tensors` gave.
    """
    parent = cast(WeightSamples, start.collect.restore(tensors, model, 0, None))
    continue_from(model, parent.states[-1])


def fit_recipe(recipe: Recipe, task: Task, network: NetworkSpec, *, seed: int, context: FitContext) -> Posterior:
    """Fit every member in this process and return the posterior of the whole method."""
    encoding = context.encoding or network.encoding()
    parts: list[Posterior] = []
    # without the checkpoint: it is one place, and every fit here would go on from where another one was
    alone = FitContext(context.device, context.progress, encoding=encoding)
    for member in range(recipe.members):
        spec = fit_spec(recipe, task, encoding, network, seed=seed, member=member)
        check(spec, task)
        fitted = _fit_with_start(recipe, task, network, seed, member, alone)
        model = build_model(spec, encoder_from_json(fitted.encoder).shape)
        named = {name: torch.from_numpy(array) for name, array in fitted.tensors.items()}
        parts.append(recipe.collect.restore(named, model, recipe.samples, recipe.views))
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts))


def _fit_with_start(
    recipe: Recipe, task: Task, network: NetworkSpec, seed: int, member: int, context: FitContext
) -> Fitted:
    """A fit and, before it, the one it starts from, which may start from another one in turn."""
    start = None
    if recipe.start is not None:
        start = _fit_with_start(recipe.start, task, network, seed, member, context).tensors
    spec = fit_spec(recipe, task, cast(Encoding, context.encoding), network, seed=seed, member=member)
    return fit(spec, task, replace(context, start=start))
