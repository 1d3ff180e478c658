"""The training loop: the same few lines for every recipe.

Whether the slots of a training go together, asked before anything is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from dubio.core.errors import TrainingFailed, UserError
from dubio.core.specs import name_of
from dubio.inference.augmentation import augment
from dubio.inference.batches import (
    EVALUATION_BATCH,
    Batch,
    LabelledRows,
    collate,
    prediction_rows,
    to_device,
    training_rows,
)
from dubio.inference.engine import shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.head import HeadModule, bernoulli_loss, categorical_loss, log_mean_exp
from dubio.networks.network import Model
from dubio.training.batch_norm import least_batch
from dubio.training.checkpoints import Checkpoint, save, unpack
from dubio.training.collectors import Collected, Collector
from dubio.training.objectives import Objective, balanced_weights
from dubio.training.optimisers import Optimiser
from dubio.training.schedules import Schedule
from dubio.training.seeds import number, stream

VALIDATION_DRAWS = 3
"""Draws of Gaussian weights that validation pools."""


@dataclass(frozen=True)
class Slots:
    """The slots of a recipe that a loop uses."""

    objective: Objective
    optimiser: Optimiser
    schedule: Schedule
    collect: Collector


@dataclass
class Progress:
    """Where a training stands: what a checkpoint must know beside tensors."""

    epoch: int = 0
    best_epoch: int = 0
    best_val_nll: float | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopContext:
    """What surrounds a training.

    Attributes:
        device: Where it runs.
        say: Told the fraction done and a few words, once an epoch.
        checkpoint: Where it is kept while under way, if anywhere.
    """

    device: torch.device
    say: Callable[[float, str], None]
    checkpoint: Checkpoint | None = None


def train(
    model: Model,
    slots: Slots,
    train_data: LabelledRows,
    val_data: LabelledRows,
    *,
    seed: int,
    member: int,
    context: LoopContext,
) -> tuple[Collected, Progress]:
    """Train until the epochs are over or validation has not improved for ``patience`` of them.

    Args:
        model: Built, its sites filled; trained in place.
        slots: What to minimise, how, and what to keep.
        train_data: Training examples.
        val_data: Validation examples, for early stopping and selection.
        seed: The benchmark's seed.
        member: Which fit of that seed.
        context: Device, progress, checkpoint.

    Raises:
        TrainingFailed: When a loss is not a number.
    """
    optimiser = slots.optimiser.build(model)
    held, progress = slots.collect.init(model), Progress()
    if context.checkpoint is not None and (kept := context.checkpoint.load()) is not None:
        progress = Progress(**kept["state"]["progress"])
        held = unpack(kept, model, optimiser)
    saved = time.monotonic()
    for epoch in range(progress.epoch + 1, slots.objective.epochs + 1):
        if _patience_is_over(slots.objective, progress):
            break
        started = time.monotonic()
        model.head.begin_epoch()
        loss = _epoch(model, optimiser, slots, train_data, seed, member, epoch, context.device)
        model.head.end_epoch()
        val_nll = validation_nll(model, val_data, number(seed, member, "noise", 0), context.device)
        marked = slots.schedule.keeps_after(epoch, slots.objective.epochs)
        held = slots.collect.update(held, model, epoch=epoch, val_nll=val_nll, marked=marked)
        progress = _advanced(progress, epoch, loss, val_nll, time.monotonic() - started)
        context.say(epoch / slots.objective.epochs, f"epoch {epoch}, validation nll {val_nll:.4f}")
        if context.checkpoint is not None and time.monotonic() - saved >= context.checkpoint.every_seconds:
            held = save(context.checkpoint, model, optimiser, held, slots.collect.settled(held), vars(progress))
            saved = time.monotonic()
    return held, progress


def _patience_is_over(objective: Objective, progress: Progress) -> bool:
    return objective.patience > 0 and progress.epoch - progress.best_epoch >= objective.patience


def _advanced(before: Progress, epoch: int, loss: float, val_nll: float, seconds: float) -> Progress:
    better = before.best_val_nll is None or val_nll < before.best_val_nll
    return Progress(
        epoch,
        epoch if better else before.best_epoch,
        val_nll if better else before.best_val_nll,
        [*before.history, {"loss": loss, "val_nll": val_nll}],
        before.seconds + seconds,
    )


def _epoch(
    model: Model,
    optimiser: Optimizer,
    slots: Slots,
    data: LabelledRows,
    seed: int,
    member: int,
    epoch: int,
    device: torch.device,
) -> float:
    """One pass over the training data; returns the mean loss."""
    model.train()
    generator = torch.Generator().manual_seed(number(seed, member, "noise", epoch))
    _give_generator(model, generator)
    order = np.random.Generator(np.random.PCG64(stream(seed, member, "order", epoch)))
    batches = training_rows(data.encoded, slots.objective.batch, order, least=least_batch(model))
    weigh = _class_weights(slots.objective, data)
    temperature = _begin_epoch(optimiser, slots, len(data.encoded), seed, member, epoch, device)
    total = 0.0
    for i, rows in enumerate(batches):
        done = (epoch - 1 + i / len(batches)) / slots.objective.epochs
        asked = (epoch - 1 + (i + slots.schedule.ahead) / len(batches)) / slots.objective.epochs
        slots.optimiser.set_factor(optimiser, slots.schedule.factor(asked))
        batch = augment(slots.objective.augmentation, to_device(collate(data.encoded, rows), device), generator)
        labels = torch.from_numpy(data.labels[rows]).to(device)
        loss = _loss(model, batch, labels, weigh, len(data.encoded), done)
        value = float(loss.detach())
        if not np.isfinite(value):
            raise TrainingFailed(
                f"the training loss is not a number ({value}) in epoch {epoch}, step {i + 1}; "
                "a smaller learning rate (lr) may help."
            )
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        # a cut gradient is not the gradient of a posterior: where weights are sampled it is left whole
        if slots.objective.clip and not temperature:
            torch.nn.utils.clip_grad_norm_(model.parameters(), slots.objective.clip)
        optimiser.step()
        total += value * len(rows)
    return total / len(data.encoded)


def _begin_epoch(
    optimiser: Optimizer, slots: Slots, examples: int, seed: int, member: int, epoch: int, device: torch.device
) -> float:
    """Tell the optimiser how noisy this epoch is; returns the temperature."""
    temperature = slots.schedule.temperature_in(epoch, slots.objective.epochs)
    generator = torch.Generator(device).manual_seed(number(seed, member, "langevin", epoch))
    slots.optimiser.begin_epoch(optimiser, temperature=temperature, examples=examples, generator=generator)
    return temperature


def _loss(
    model: Model, batch: Batch, labels: Tensor, weigh: Callable[[Tensor], Tensor] | None, examples: int, done: float
) -> Tensor:
    """Mean (weighted) negative log-likelihood plus what noise adds when that much of the training is done."""
    head: HeadModule = model.head
    each = head.loss(model(batch), labels)
    if weigh is not None:
        each = each * weigh(labels)
    return each.mean() + model.penalty(examples, done)


def _class_weights(objective: Objective, data: LabelledRows) -> Callable[[Tensor], Tensor] | None:
    """A function from a batch's labels to a weight an example, or None."""
    if objective.class_weights == "none":
        return None
    if objective.class_weights == "batch":
        return lambda labels: balanced_weights(labels, data.classes)[labels]
    fixed = balanced_weights(torch.from_numpy(data.labels), data.classes)
    return lambda labels: fixed.to(labels.device)[labels]


def _give_generator(model: Model, generator: torch.Generator) -> None:
    for noise in model.noises():
        noise.generator = generator
    for layer in model.gaussians():
        layer.generator = generator
    model.head.generator = generator


@torch.inference_mode()
def validation_nll(model: Model, data: LabelledRows, seed: int, device: torch.device) -> float:
    """Mean negative log-likelihood of a deterministic pass (a heteroscedastic head still integrates).

    Gaussian weights have no such pass that would say how good they are: a few draws are pooled, in all epochs the same.
    """
    model.eval()
    draws = BlockDraws(seed)
    samples = VALIDATION_DRAWS if model.gaussians() else 0
    total = 0.0
    for rows in prediction_rows(data.encoded, EVALUATION_BATCH):
        batch = to_device(collate(data.encoded, rows), device)
        labels = torch.from_numpy(data.labels[rows]).to(device)
        loss = bernoulli_loss if labels.ndim == 2 else categorical_loss
        scores = shared_prefix(model, batch, draws, rows, samples)
        each = -log_mean_exp(torch.stack([-loss(one.logits, labels) for one in scores]))
        total += float((each.sum(-1) if labels.ndim == 2 else each).sum())
    if not np.isfinite(total):
        raise TrainingFailed(f"the validation loss is not a number ({total}); a smaller learning rate (lr) may help.")
    return total / len(data.encoded)


def check_slots(name: str, objective: Objective, optimiser: Optimiser, schedule: Schedule, collect: Collector) -> None:
    """Refuse slots that would not do together what each says.

    Args:
        name: The method's name, for the message.
        objective: How long the training goes.
        optimiser: What moves the weights.
        schedule: How hot the steps are, and what is marked to be kept.
        collect: What is kept.

    Raises:
        UserError: When the epochs do not suit the schedule, noise is asked of an optimiser that draws none, early
            stopping would cut off snapshots, or nothing would be kept.
    """
    epochs = objective.epochs
    schedule.check_epochs(epochs)
    hot = any(schedule.temperature_in(epoch, epochs) for epoch in range(1, epochs + 1))
    if hot and not optimiser.draws_noise:
        raise UserError(
            f"{name}: the schedule {name_of(schedule)!r} has a temperature, but the optimiser {name_of(optimiser)!r} "
            "draws no noise; use sgld or sghmc, or temperature=0."
        )
    if objective.patience and not collect.stops_early:
        raise UserError(
            f"{name}: {name_of(collect)} keeps snapshots over all epochs, which early stopping would cut off; "
            f"set patience=0; given {objective.patience}."
        )
    if collect.states(schedule, epochs) < 1:
        raise UserError(
            f"{name}: {name_of(collect)} would keep nothing of {epochs} epochs; "
            f"keep fewer snapshots back, or use a schedule that marks some ({name_of(schedule)} is given)."
        )
