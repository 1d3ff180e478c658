"""Fit what a specification describes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.types import Split, Task
from dubio.encoders import Encoding, encoder_from_json
from dubio.inference.batches import LabelledRows
from dubio.inference.posterior import Mixture, Posterior
from dubio.inference.samples import WeightSamples
from dubio.inference.weight_draws import WeightDraws
from dubio.methods.encoding_cache import encode, encoder_of, encoder_shape, fitted_encoder
from dubio.methods.estimator import FITTED, FREQUENCIES, Arrays, fit_estimator
from dubio.methods.logistic_regression import LogisticRegression
from dubio.methods.prediction import as_tensors
from dubio.methods.recipe import Recipe
from dubio.methods.specification import (
    NetworkSpec,
    build_model,
    encoder_split,
    encoding_of,
    estimator_of,
    fit_spec,
    recipe_of,
    training_splits,
)  # fmt: skip
from dubio.networks.network import Model
from dubio.training.checkpoints import Checkpoint, resume
from dubio.training.collectors import BestOnValidation, Collector, FinishContext, Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.seeds import number
from dubio.training.validation import posterior_nll


def no_progress(fraction: float, text: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class FitContext:
    """The surroundings of a fit; none of them changes its result.

    Attributes:
        device: The device it runs on.
        progress: Called with the fraction done and a short text.
        checkpoint: Where an unfinished fit is kept, if anywhere.
        start: The stored weights of the fit it continues from.
        encoding: How examples are encoded; the network's default where None.
    """

    device: str = "cpu"
    progress: Callable[[float, str], None] = no_progress
    checkpoint: Checkpoint | None = None
    start: Mapping[str, NDArray[Any]] | None = None
    encoding: Encoding | None = None


@dataclass(frozen=True, eq=False)
class FitResult:
    """A finished fit, as it is stored.

    Attributes:
        tensors: The posterior's tensors by name.
        encoder: The fitted encoder as JSON.
        record: What happened: epochs, validation NLL, history, seconds, …
    """

    tensors: dict[str, NDArray[Any]]
    encoder: dict[str, Any]
    record: dict[str, Any]


def check(spec: Mapping[str, Any], task: Task) -> None:
    """Refuse a fit whose model its edits, head or collector could not use, before anything is trained.

    Args:
        spec: A fit specification.
        task: Its task.

    Raises:
        UserError: With the reason.
    """
    if estimator_of(spec) is not None:
        return
    recipe = recipe_of(spec)
    if type(recipe.collect).check is Collector.check and not recipe.edits and not getattr(recipe.head, "random", False):
        return  # every model is accepted: none needs to be built
    encoding = encoding_of(spec)
    recipe.collect.check(build_model(spec, encoder_shape(encoding, encoder_split(encoding, task))))


def fit(spec: Mapping[str, Any], task: Task, context: FitContext) -> FitResult:
    """Train what a specification describes.

    Raises:
        UserError: When the task's data are not those of the specification, or the fit continues another one whose
            weights are not given.
        TrainingFailed: When the training diverges.
    """
    train_split, val_split = training_splits(task)
    fingerprints = train_split.fingerprint, None if val_split is None else val_split.fingerprint
    if fingerprints != (spec["task"]["train"], spec["task"]["val"]):
        raise UserError(f"task {task.name}: its data are not those this fit was planned for; has a file changed?")
    started = time.monotonic()
    encoding = encoding_of(spec)
    learned_from = encoder_split(encoding, task)
    if encoding.learns_from_all and learned_from.fingerprint != spec["task"]["all"]:
        raise UserError(f"task {task.name}: its data are not those this fit was planned for; has a file changed?")
    encoder = fitted_encoder(encoding, learned_from)
    if (estimator := estimator_of(spec)) is not None:
        arrays, record = fit_estimator(estimator, encoder, task, train_split, val_split, context.progress)
        return FitResult(arrays, json.loads(encoder), {**record, "seconds": time.monotonic() - started})
    recipe = recipe_of(spec)

    def rows(split: Split) -> LabelledRows:
        return LabelledRows(encode(encoder, split), split.data.labels, len(task.classes))

    data = rows(train_split), None if val_split is None else rows(val_split)

    def from_first_weights() -> tuple[Posterior, dict[str, Any]]:
        model = _model_to_fit(spec, recipe, encoder_of(encoder).shape, context.start)
        if model.network.pixels is not None and recipe.start is None:
            start_linear(model, encoder, task)
        return fit_model(model, recipe, *data, seed=spec["seed"], member=spec["member"], context=context)

    posterior, record = resume(context.checkpoint, from_first_weights)
    tensors = {name: tensor.cpu().numpy() for name, tensor in posterior.tensors().items()}
    return FitResult(tensors, json.loads(encoder), {**record, "seconds": time.monotonic() - started})


def _model_to_fit(
    spec: Mapping[str, Any], recipe: Recipe, shape: tuple[int, ...], start: Mapping[str, NDArray[Any]] | None
) -> Model:
    """Return the model of a specification with its first weights, or those of the fit that it continues."""
    model = build_model(spec, shape)
    if recipe.start is not None and start is not None:
        start_from(model, recipe.start, as_tensors(start))
    elif recipe.start is not None or spec["start"] is not None:
        raise UserError("start: this fit continues from another one; give its tensors as FitContext(start=...).")
    elif start is not None:
        raise UserError("start: weights to continue from are given, but this recipe starts from scratch.")
    return model


def start_linear(model: Model, encoder: bytes, task: Task) -> None:
    """Set a linear head to the logistic regression on the pixels among its features; another head stays as it is.

    Args:
        model: The model, whose network has :attr:`~dubio.networks.network.Network.pixels`.
        encoder: The canonical JSON of the encoder fitted on the training split.
        task: The task.
    """
    layer, factor = getattr(model.head, "linear", None), model.network.pixels
    shape = len(task.classes), model.network.width
    if factor is None or not isinstance(layer, nn.Linear) or layer.weight.shape != shape:
        return
    if not model.head.outputs_logits:  # a linear layer whose outputs mean something else
        return
    if layer.bias is None:  # members scale its weights, each in its own way, and have biases of their own
        return
    arrays = _logistic_regression(encoder, task)
    fitted = np.flatnonzero(arrays[FITTED])
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.from_numpy(arrays[FREQUENCIES]))
        if len(fitted):
            weights = torch.from_numpy(arrays["weights"].T / factor).to(layer.weight)
            layer.weight[fitted, -weights.shape[1] :] = weights
            layer.bias[fitted] = torch.from_numpy(arrays["intercept"]).to(layer.bias)


@lru_cache(maxsize=2)
def _logistic_regression(encoder: bytes, task: Task) -> Arrays:
    """Fit it once for all members and seeds that a process trains."""
    arrays, _ = fit_estimator(LogisticRegression(), encoder, task, *training_splits(task), no_progress)
    return arrays


def fit_model(
    model: Model,
    recipe: Recipe,
    train_data: LabelledRows,
    val_data: LabelledRows | None,
    *,
    seed: int,
    member: int,
    context: FitContext,
) -> tuple[Posterior, dict[str, Any]]:
    """Train a built model from the weights it has; return the posterior and the record.

    Args:
        model: The model; it is moved to the context's device.
        recipe: The method.
        train_data: Training examples.
        val_data: Validation examples. Without any, training runs all its epochs, and a recipe that keeps the weights of
            the best epoch keeps the last ones.
        seed: The benchmark's seed.
        member: Which fit of that seed.
        context: Device, progress, checkpoint.

    Raises:
        TrainingFailed: When the training diverges.
    """
    started = time.monotonic()
    device = torch.device(context.device)
    model.to(device)
    recipe.collect.check(model)
    if val_data is None:
        selected = isinstance(recipe.collect, BestOnValidation)
        collect = Last() if selected else recipe.collect
        recipe = replace(recipe, objective=replace(recipe.objective, patience=0), collect=collect)
    slots = Slots(recipe.objective, recipe.optimiser, recipe.schedule, recipe.collect)
    loop = LoopContext(device, context.progress, context.checkpoint)
    collected, progress = train(model, slots, train_data, val_data, seed=seed, member=member, context=loop)
    draws_seed, batch, views = number(seed, member, "draws"), recipe.objective.batch, recipe.objective.augmentation
    finish = FinishContext(train_data, val_data, device, draws_seed, batch, views, recipe.optimiser.l2)
    posterior = recipe.collect.finish(collected, model, finish)
    val_nll = collected.facts.get("val_nll")
    if val_data is not None and (
        val_nll is None or recipe.states > 1
    ):  # selection compares what will predict: all states together
        val_nll = posterior_nll(posterior, val_data, seed=number(seed, member, "noise", 0), device=device)
    return posterior, {
        "epochs": progress.epoch,
        "best_epoch": collected.facts.get("epoch", progress.epoch),
        "val_nll": val_nll,
        "history": progress.history,
        "parameters": model.parameter_count(),
        "rates": model.rates(),
        "seconds": time.monotonic() - started,
        "seconds_per_epoch": progress.seconds / max(1, progress.epoch),
        **collected.facts.get("record", {}),
    }


def fit_recipe(recipe: Recipe, task: Task, network: NetworkSpec, *, seed: int, context: FitContext) -> Posterior:
    """Fit every member in this process and return the posterior of the whole method."""
    encoding = context.encoding or network.encoding()
    posteriors: list[Posterior] = []
    for member in range(recipe.members):
        links = list(recipe.chain())
        specs = [fit_spec(link, task, encoding, network, seed=seed, member=member) for link in links]
        check(specs[-1], task)
        start = None
        for spec in specs:
            # without the checkpoint: it holds one fit, and every fit here would resume from that of another
            result = fit(spec, task, FitContext(context.device, context.progress, start=start))
            start = result.tensors
        model = build_model(specs[-1], encoder_from_json(result.encoder).shape)
        own = recipe.for_task(task.inputs, task.target)
        posteriors.append(own.posterior(as_tensors(result.tensors), model))
    return posteriors[0] if len(posteriors) == 1 else Mixture(tuple(posteriors))


def start_from(model: Model, start: Recipe, tensors: Mapping[str, Tensor]) -> None:
    """Load the weights that the fit of another recipe left, of a distribution its centre.

    Weights that only this model has, and batch-norm statistics of a centre, which has none, keep their first values.

    Args:
        model: The model.
        start: The other recipe.
        tensors: Its posterior's :meth:`~dubio.inference.posterior.Posterior.tensors`.

    Raises:
        UserError: When a weight of the earlier fit does not fit this model.
    """
    posterior = cast("WeightSamples | WeightDraws", start.collect.form.restore(tensors, model, 0, None))
    state = posterior.centre() if isinstance(posterior, WeightDraws) else posterior.states[-1]
    own = model.state_dict()
    for name, tensor in state.items():
        if name not in own or own[name].shape != tensor.shape:
            shape = tuple(own[name].shape) if name in own else "nothing"
            raise UserError(f"start: the earlier fit has {name} of shape {tuple(tensor.shape)}, this model {shape}.")
    model.load_state_dict(dict(state), strict=False)


def check_device(name: str, argument: str = "--devices") -> str:
    """Return the name of a device that this machine has.

    Args:
        name: As torch writes it: ``cpu``, ``cuda``, ``cuda:1``, ``mps``, …
        argument: Where it was named, for the message.

    Raises:
        UserError: For a name that is not a device, or a device that this machine lacks.
    """
    try:
        torch.empty(1, device=torch.device(name)).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        reason = str(fault).splitlines()[0]
        available = ", ".join(available_devices())
        raise UserError(f"{argument}: {name!r} cannot be used here; available: {available}. torch: {reason}") from fault
    return name


def available_devices() -> tuple[str, ...]:
    """Return the devices of this machine, the CPU first."""
    names = ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())))
    return (*names, "mps") if torch.backends.mps.is_available() else names
