"""``dubio.fit``: a method on a user's own module and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubio.core.errors import UserError, one_of
from dubio.core.types import TARGETS, Modality, Target
from dubio.inference.batches import LabelledRows, collate
from dubio.inference.posterior import Restored
from dubio.methods.fitting import FitContext, check_device, fit_model, start_from
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model
from dubio.torch_module.building import Builder, Source, check_source
from dubio.torch_module.calls import call_of
from dubio.torch_module.examples import Given, checked_labels, hold_out, read
from dubio.torch_module.fitted import FittedModule, Form
from dubio.torch_module.supported import chain, recipe_of
from dubio.torch_module.under_way import UnderWay, under_way
from dubio.training.seeds import number

Progress = Callable[[float, str], None]


def _silent(fraction: float, words: str) -> None:
    """Say nothing."""


def fit(
    method: str | Recipe,
    *,
    network: Source,
    train: Any,
    val: Any = None,
    classes: Sequence[str] | None = None,
    target: Target = "multiclass",
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    **arguments: Any,
) -> FittedModule:
    """Fit a method to your own PyTorch module and data.

    Args:
        method: The name of a registered method, such as ``swag``, or a recipe.
        network: An ``nn.Module`` from a batch to logits ``[batch, K]``, which is copied with its weights and itself
            left alone; or a function (or class) without arguments that makes one, which ensembles need.
        train: Training examples: ``(inputs, labels)`` as arrays or tensors, a ``Dataset`` of (input, label), or a
            ``DataLoader``, of which the dataset, the batch size and the collate function are used.
        val: Validation examples likewise. Without them a tenth of the training examples is held out, every class in
            its share.
        classes: Names of the classes; their numbers by default.
        target: ``multiclass`` or ``ordinal`` with a class index as label, ``multilabel`` with 0 or 1 for each class.
        seed: Fixes first weights, order, noise and draws.
        device: Where, as torch names it.
        progress: Told the fraction done and a few words, once an epoch and at the end.
        checkpoint: A folder that keeps the fit while it is under way, so that the same call goes on after it was
            interrupted; it is removed when the fit is done. None keeps nothing.
        arguments: The method's arguments (``dubio list methods`` shows them).

    Returns:
        The posterior; :meth:`~dubio.torch_module.fitted.FittedModule.predict` gives predictions.

    Raises:
        UserError: When something given cannot be used, with the reason.
        TrainingFailed: When the training comes to nothing.
    """
    one_of("target", target, TARGETS)
    check_device(device, "device")
    seed = _whole(seed)
    given = read(train, "train")
    recipe = recipe_of(method, arguments, given.batch)
    check_source(network, recipe.members)
    builder = Builder(network, _few(given), target, seed)
    names = _names(classes, builder.classes())
    builder.check_outputs()
    data = _learning(given, None if val is None else read(val, "val"), len(names), target)
    work = _Work(builder, data, modality_of(builder.rows), device, progress or _silent, recipe)
    form = Form(given.shape, str(builder.rows.numpy().dtype), work.weights())  # whether it can be is known first
    with under_way(checkpoint, lambda: call_of(recipe, builder.module(0), data, names, target, seed), device) as kept:
        fits = [work.member(k, kept) for k in range(recipe.members)]
    work.progress(1.0, "done")
    parts, records = tuple(part for part, _ in fits), tuple(record for _, record in fits)
    return FittedModule(recipe, parts, names, target, seed, device, form, records)


@dataclass(frozen=True)
class _Work:
    """What every member of a fit shares."""

    builder: Builder
    data: tuple[LabelledRows, LabelledRows]
    inputs: Modality
    device: str
    progress: Progress
    recipe: Recipe

    def member(self, k: int, kept: UnderWay | None) -> tuple[Restored, dict[str, Any]]:
        """Fit the recipe of one member and, before it, those that it starts from; what it leaves, and its record."""
        links = list(chain(self.recipe))
        tensors: dict[str, Tensor] = {}
        for i, link in enumerate(links):
            recipe = link.for_task(self.inputs, self.builder.target)
            model = self.builder.model(recipe, k)
            say = partial(self._say, k * len(links) + i, self.recipe.members * len(links))
            if kept is not None and (found := kept.finished(k, i)) is not None:
                tensors, record = found
                say(1.0, "done before")
                continue
            if recipe.start is not None:
                start_from(model, recipe.start, tensors)
            context = FitContext(self.device, say, None if kept is None else kept.checkpoint(k, i))
            tensors, record = self._fit(model, recipe, k, context)
            if kept is not None:
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # snapshots may be in its files
                kept.finish(k, i, tensors, record)
        return restored(recipe, tensors, model), record

    def _fit(
        self, model: Model, recipe: Recipe, k: int, context: FitContext
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        cuda = [torch.device(self.device)] if torch.device(self.device).type == "cuda" else []
        seed = self.builder.seed
        # a module may draw from torch's own generator, as nn.Dropout does
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(number(seed, k, "noise"))
            posterior, record = fit_model(model, recipe, *self.data, seed=seed, member=k, context=context)
        return {name: tensor.detach().cpu() for name, tensor in posterior.tensors().items()}, record

    def weights(self) -> dict[str, list[int]]:
        """The shapes of the model's state, by name."""
        model = self.builder.model(self.recipe.for_task(self.inputs, self.builder.target), 0)
        return shapes_of(model)

    def _say(self, done: int, of: int, fraction: float, words: str) -> None:
        self.progress((done + fraction) / of, words if of == 1 else f"fit {done + 1} of {of}, {words}")


def restored(recipe: Recipe, tensors: dict[str, Tensor], model: Model) -> Restored:
    """What a fit left, ready to predict as its recipe says."""
    found = recipe.collect.form.restore(tensors, model, recipe.samples, recipe.views)
    return found.limit(recipe.most) if recipe.most else found


def shapes_of(model: Model) -> dict[str, list[int]]:
    """The shapes of a model's state, by name."""
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


def _whole(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"seed: must be a whole number, at least 0; given {seed!r}.")
    return int(seed)


def _few(given: Given) -> Tensor:
    """The first examples, for a look at what the module does to them."""
    batch = collate(given.rows, np.arange(min(3, len(given.rows))))
    assert isinstance(batch, Tensor)
    return batch


def modality_of(rows: Tensor) -> Modality:
    """Augmentation is for images; what else rows may be makes no difference here."""
    return "image" if rows.ndim == 4 and rows.is_floating_point() else "table"


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if classes is None:
        return tuple(map(str, range(count)))
    if len(classes) != count or len(set(classes)) != count:
        raise UserError(f"classes: the module gives {count} logits, which need {count} names; given {list(classes)}.")
    return tuple(map(str, classes))


def _learning(given: Given, val: Given | None, classes: int, target: Target) -> tuple[LabelledRows, LabelledRows]:
    """Training and validation examples."""
    labels = checked_labels(given.labels, len(given.rows), classes, target, "train")
    if val is None:
        rest, held = hold_out(labels)
        return (
            LabelledRows(given.taken(rest), labels[rest], classes),
            LabelledRows(given.taken(held), labels[held], classes),
        )
    val = val.like(given.shape, str(given.rows.values.dtype), "val", "those of train have")
    chosen = checked_labels(val.labels, len(val.rows), classes, target, "val")
    return LabelledRows(given.rows, labels, classes), LabelledRows(val.rows, chosen, classes)
