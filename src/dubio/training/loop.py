"""The training loop, the same few lines for every recipe, and the check that a recipe's slots go together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from dubio.core.errors import TrainingFailed, UserError
from dubio.core.specs import name_of
from dubio.inference.augmentation import augment
from dubio.inference.batches import LabelledRows, Rows, collate, to_device, training_rows
from dubio.networks.network import Model
from dubio.training.batch_norm import least_batch
from dubio.training.checkpoints import Checkpoint, save, unpack
from dubio.training.collectors import Collected, Collector, Epoch
from dubio.training.objectives import Objective, balanced_weights
from dubio.training.optimisers import Optimiser
from dubio.training.schedules import Schedule, temperature_value
from dubio.training.seeds import number, stream
from dubio.training.validation import validation_nll

MOST_EPOCHS = 1_000_000
"""More than any training has; schedules are asked about each of them before it begins."""


@dataclass(frozen=True)
class Slots:
    """The slots of a recipe that the loop uses."""

    objective: Objective
    optimiser: Optimiser
    schedule: Schedule
    collect: Collector


@dataclass
class Progress:
    """The progress of a training: what a checkpoint stores besides tensors."""

    epoch: int = 0
    best_epoch: int = 0
    best_val_nll: float | None = None
    history: list[dict[str, float | None]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopContext:
    """The surroundings of a training.

    Attributes:
        device: Where it runs.
        report: Called once per epoch with the fraction done and a short text.
        checkpoint: Where an unfinished training is saved, or None.
    """

    device: torch.device
    report: Callable[[float, str], None]
    checkpoint: Checkpoint | None = None


def train(
    model: Model,
    slots: Slots,
    train_data: LabelledRows,
    val_data: LabelledRows | None,
    *,
    seed: int,
    member: int,
    context: LoopContext,
) -> tuple[Collected, Progress]:
    """Train until the epochs are over or validation has not improved for ``patience`` of them.

    Args:
        model: The model with its edits; trained in place.
        slots: Objective, optimiser, schedule and collector.
        train_data: Training examples.
        val_data: Validation examples, for early stopping and selection; None where neither is asked for.
        seed: The benchmark's seed.
        member: Number of the fit for that seed.
        context: Device, progress reports, checkpoint.

    Raises:
        TrainingFailed: When a loss is not a number.
    """
    optimiser = slots.optimiser.build(model)
    collected, progress = slots.collect.init(model), Progress()
    if context.checkpoint is not None and (stored := context.checkpoint.load()) is not None:
        progress = Progress(**stored["state"]["progress"])
        if not len(progress.history) == progress.epoch <= slots.objective.epochs:
            raise ValueError("the epochs of the checkpoint do not agree with its history or with the training.")
        collected = unpack(stored, model, optimiser)
    saved = time.monotonic()
    for epoch in range(progress.epoch + 1, slots.objective.epochs + 1):
        if 0 < slots.objective.patience <= progress.epoch - progress.best_epoch:
            break
        started = time.monotonic()
        model.head.begin_epoch()
        loss = _epoch(model, optimiser, slots, train_data, seed, member, epoch, context.device)
        model.head.end_epoch()
        val_nll = None
        if val_data is not None:
            val_nll = validation_nll(model, val_data, number(seed, member, "noise", 0), context.device)
        marked = slots.schedule.marks_after(epoch, slots.objective.epochs)
        collected = slots.collect.update(collected, model, Epoch(epoch, val_nll, marked))
        progress = _advanced(progress, epoch, loss, val_nll, time.monotonic() - started)
        context.report(epoch / slots.objective.epochs, f"epoch {epoch}, {_shown(loss, val_nll)}")
        if context.checkpoint is not None and time.monotonic() - saved >= context.checkpoint.every_seconds:
            frozen = slots.collect.frozen(collected)
            collected = save(context.checkpoint, model, optimiser, collected, frozen, vars(progress))
            saved = time.monotonic()
    return collected, progress


def _shown(loss: float, val_nll: float | None) -> str:
    return f"training loss {loss:.4f}" if val_nll is None else f"validation nll {val_nll:.4f}"


def _advanced(before: Progress, epoch: int, loss: float, val_nll: float | None, seconds: float) -> Progress:
    better = val_nll is not None and (before.best_val_nll is None or val_nll < before.best_val_nll)
    best = (epoch, val_nll) if better else (before.best_epoch, before.best_val_nll)
    return Progress(epoch, *best, [*before.history, {"loss": loss, "val_nll": val_nll}], before.seconds + seconds)


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
    """Train on every batch once; return the mean loss."""
    model.train()
    generator = torch.Generator().manual_seed(number(seed, member, "noise", epoch))
    model.draw_from(generator)
    order = np.random.Generator(np.random.PCG64(stream(seed, member, "order", epoch)))
    fixed = _fixed_order(len(data.encoded)) if slots.objective.fixed_batches else None
    batches = training_rows(data.encoded, slots.objective.batch, order, least=least_batch(model), order=fixed)
    class_weights = _class_weights(slots.objective, data)
    planned = slots.schedule.temperature_in(epoch, slots.objective.epochs)
    temperature = temperature_value(planned, len(data.encoded), len(batches))
    noise = torch.Generator(device).manual_seed(number(seed, member, "langevin", epoch))
    slots.optimiser.begin_epoch(optimiser, temperature=temperature, examples=len(data.encoded), generator=noise)
    penalty, parameters = model.penalty_of(len(data.encoded)), list(model.parameters())
    total = 0.0
    for i, rows in enumerate(batches):
        progress = (epoch - 1 + i / len(batches)) / slots.objective.epochs
        counted = (epoch - 1 + (i + slots.schedule.ahead) / len(batches)) / slots.objective.epochs
        slots.optimiser.set_factor(optimiser, slots.schedule.factor(counted))
        batch = augment(slots.objective.augmentation, to_device(collate(data.encoded, rows), device), generator)
        labels = torch.from_numpy(data.labels[rows]).to(device)
        losses = model.loss(batch, labels)
        if class_weights is not None:
            losses = losses * class_weights(labels)
        loss = losses.mean() + penalty(progress)
        value = float(loss.detach())
        if not np.isfinite(value):
            where = f"epoch {epoch}, step {i + 1}"
            raise TrainingFailed(f"the training loss is {value} in {where}; a smaller learning rate (lr) may help.")
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        # a clipped gradient is not the gradient of a posterior: where weights are sampled it is not clipped
        if slots.objective.clip and not temperature:
            _clip(parameters, slots.objective.clip)
        optimiser.step()
        total += value * len(rows)
    return total / len(data.encoded)


def _fixed_order(count: int) -> Rows:
    """Return the order of rows from which the same batches are cut in every epoch, for every network of every seed.

    It is random, as that of the erratum's data, which decides among texts of one length; rows of some corpora come
    class by class.
    """
    return np.random.Generator(np.random.PCG64(stream(0, 0, "batches"))).permutation(count).astype(np.int64)


def _clip(parameters: Sequence[Tensor], most: float) -> None:
    """Scale the gradient to the norm ``most`` where it is longer; ``clip_grad_norm_`` would multiply by 1 where not."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if not most / (norm + 1e-6) >= 1.0:
        torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


def _class_weights(objective: Objective, data: LabelledRows) -> Callable[[Tensor], Tensor] | None:
    """Return a function from a batch's labels to one weight per example, or None."""
    if objective.class_weights == "none":
        return None
    if objective.class_weights == "batch":
        return lambda labels: balanced_weights(labels, data.classes)[labels]
    fixed = balanced_weights(torch.from_numpy(data.labels), data.classes)
    return lambda labels: fixed.to(labels.device)[labels]


def check_slots(name: str, objective: Objective, optimiser: Optimiser, schedule: Schedule, collect: Collector) -> None:
    """Refuse slots that do not go together, before anything is trained.

    Args:
        name: The method's name, for the message.
        objective: The number of epochs and the patience.
        optimiser: The optimiser.
        schedule: Its learning rates, temperatures and snapshots.
        collect: The collector of weights.

    Raises:
        UserError: When there are too many epochs, the schedule cannot divide them, has a temperature that the optimiser
            ignores, early stopping would cut off snapshots, or nothing would be collected.
    """
    epochs = objective.epochs
    if epochs > MOST_EPOCHS:
        raise UserError(f"{name}: epochs must be at most {MOST_EPOCHS:,}; given {epochs:,}.")
    schedule.check_epochs(epochs)
    hot = any(schedule.temperature_in(epoch, epochs) for epoch in range(1, epochs + 1))
    if hot and not optimiser.draws_noise:
        slots = f"schedule {name_of(schedule)!r} has a temperature, the optimiser {name_of(optimiser)!r} draws no noise"
        raise UserError(f"{name}: the {slots}; choose one that does, or temperature=0.")
    if objective.patience and not collect.stops_early:
        patience = f"patience must be 0; given {objective.patience}"
        raise UserError(f"{name}: {name_of(collect)} keeps snapshots, which early stopping would cut off: {patience}.")
    if collect.states(schedule, epochs) < 1:
        hint = f"skip fewer snapshots, or use a schedule that marks some; given {name_of(schedule)}"
        raise UserError(f"{name}: {name_of(collect)} would collect nothing from {epochs} epochs; {hint}.")
