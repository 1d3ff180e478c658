"""``dubio.fit``: a method on a user's own module and data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dubio.core.errors import UserError, listing, one_of
from dubio.core.registry import METHODS, Entry
from dubio.core.types import TARGETS, Target, empty_decision_for
from dubio.inference.batches import LabelledRows, collate
from dubio.inference.posterior import Restored
from dubio.methods.estimator import EstimatorRecipe
from dubio.methods.fitting import FitContext, check_device, fit_model, no_progress, start_from
from dubio.methods.recipe import Recipe
from dubio.networks.members import MemberEdit
from dubio.networks.network import Model, UnfitWidth
from dubio.networks.noise import DropoutEdit
from dubio.torch_module.checkpoint import FitFolder, call_spec, fit_folder
from dubio.torch_module.dropout_sites import OwnDropout
from dubio.torch_module.examples import UserExamples, check_labels, hold_out, read_examples
from dubio.torch_module.fitted_module import FittedModule, InputSpec
from dubio.torch_module.wrapped_module import ModelBuilder, NetworkSource, check_source, wrap
from dubio.training.checkpoints import resume
from dubio.training.seeds import number

Progress = Callable[[float, str], None]


def fit(
    method: str | Recipe,
    *,
    network: NetworkSource,
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
        network: An ``nn.Module`` from a batch to logits ``[batch, K]``; it is copied with its weights and not changed.
            Or a function (or class) without arguments that makes one, which ensembles need.
        train: Training examples: ``(inputs, labels)`` as arrays or tensors, a ``Dataset`` of (input, label), or a
            ``DataLoader``, of which the dataset, the batch size and the collate function are used.
        val: Validation examples in the same forms. Without them a tenth of the training examples is held out,
            stratified by class.
        classes: Names of the classes; their numbers by default.
        target: ``multiclass`` or ``ordinal`` with a class index as label, ``multilabel`` with 0 or 1 for each class.
        seed: Determines first weights, order, noise and draws.
        device: The device, as torch names it.
        progress: Called with the fraction done and a short text, once per epoch and at the end.
        checkpoint: A folder that keeps the unfinished fit, so that the same call resumes after an interruption; it is
            removed when the fit is done. None keeps nothing.
        arguments: The method's arguments (``dubio list methods`` shows them).

    Returns:
        The posterior; :meth:`~dubio.torch_module.fitted_module.FittedModule.predict` gives predictions.

    Raises:
        UserError: When an argument cannot be used, with the reason.
        TrainingFailed: When the training diverges.
    """
    one_of("target", target, TARGETS)
    check_device(device, "device")
    seed = _check_seed(seed)
    examples = read_examples(train, "train")
    recipe = choose_recipe(method, arguments, examples.batch)
    check_source(network, recipe.members)
    builder = ModelBuilder(network, _first_rows(examples), target, seed)
    names = _class_names(classes, builder.classes())
    builder.check_outputs()
    data = _labelled(examples, None if val is None else read_examples(val, "val"), names, target)
    job = _FitJob(builder, data, device, progress or no_progress, recipe)
    # a module that the recipe cannot use is refused here, before the folder is made
    shapes = shapes_of(builder.model(builder.adapt(recipe), 0))
    _caution_of_new_weights(network, recipe)
    inputs = InputSpec(examples.shape, str(builder.rows.numpy().dtype), shapes)
    with ExitStack() as stack:
        folder = None
        if checkpoint is not None:
            call = call_spec(recipe, builder.module(0), data, names, target, seed)
            folder = stack.enter_context(fit_folder(checkpoint, call, device))
        fits = [job.member(k, folder) for k in range(recipe.members)]
    job.progress(1.0, "done")
    posteriors, records = (tuple(column) for column in zip(*fits, strict=True))
    empty = empty_decision_for(data[0].labels)
    return FittedModule(recipe, posteriors, names, target, seed, device, inputs, records, empty)


@dataclass(frozen=True)
class _FitJob:
    """The data and settings that all members of a fit share."""

    builder: ModelBuilder
    data: tuple[LabelledRows, LabelledRows]
    device: str
    progress: Progress
    recipe: Recipe

    def member(self, k: int, folder: FitFolder | None) -> tuple[Restored, dict[str, Any]]:
        """Fit one member, after the recipes that it starts from; return its posterior and record."""
        links = list(self.recipe.chain())
        tensors: dict[str, Tensor] = {}
        for i, link in enumerate(links):
            recipe = self.builder.adapt(link)
            report = partial(self._report, k * len(links) + i, self.recipe.members * len(links))
            if folder is not None and (finished := folder.finished(k, i)) is not None:
                (tensors, record), model = finished, self.builder.model(recipe, k)
                report(1.0, "done before")
                continue
            context = FitContext(self.device, report, None if folder is None else folder.checkpoint(k, i))
            tensors, record, model = resume(context.checkpoint, partial(self._fit, recipe, k, context, tensors))
            if folder is not None:
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # snapshots may be in its files
                folder.finish(k, i, tensors, record)
        return recipe.posterior(tensors, model), record

    def _fit(
        self, recipe: Recipe, k: int, context: FitContext, start: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Any], Model]:
        device, seed = torch.device(self.device), self.builder.seed
        model = self.builder.model(recipe, k)
        if recipe.start is not None:
            start_from(model, recipe.start, start)
        # a module may draw from torch's own generator, as nn.Dropout does
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(number(seed, k, "noise"))
            posterior, record = fit_model(model, recipe, *self.data, seed=seed, member=k, context=context)
        return {name: tensor.detach().cpu() for name, tensor in posterior.tensors().items()}, record, model

    def _report(self, finished: int, fits: int, fraction: float, text: str) -> None:
        self.progress((finished + fraction) / fits, text if fits == 1 else f"fit {finished + 1} of {fits}, {text}")


def shapes_of(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's state, by name."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


# --- the recipe -------------------------------------------------------------------------------------------------------


def choose_recipe(method: str | Recipe, arguments: Mapping[str, Any], batch: int | None) -> Recipe:
    """Return the recipe to fit, with the module's own dropout rates unless ``p`` is given.

    Args:
        method: A registered name, or a recipe, which is used as it is.
        arguments: The named method's arguments.
        batch: The loader's batch size, which counts unless the arguments name another.

    Raises:
        UserError: When there is no such method, or it needs more than a plain module has.
    """
    if isinstance(method, Recipe):
        if arguments:
            raise UserError(f"{next(iter(arguments))}: a recipe has its arguments already; pass none beside it.")
        _check_supported(method, method.name or "this recipe")
        return method
    entry = METHODS.entry(method)
    if _is_complete(entry):  # a method that no module can have is refused before its arguments are
        _check_supported(entry.make(), method)
    from_loader = {} if batch is None or "batch" not in entry.parameters() else {"batch": batch}
    recipe = METHODS.make(method, **{**from_loader, **arguments})
    _check_supported(recipe, method)
    return recipe if "p" in arguments else _with_own_rates(recipe)


def _with_own_rates(recipe: Recipe) -> Recipe:
    """Return the same recipe with each dropout layer's own rate."""
    edits = tuple(OwnDropout() if isinstance(edit, DropoutEdit) else edit for edit in recipe.edits)
    return replace(recipe, edits=edits, start=None if recipe.start is None else _with_own_rates(recipe.start))


def supported_methods() -> tuple[str, ...]:
    """Return the registered methods that a plain module can be fitted with."""
    complete = filter(_is_complete, METHODS.entries())
    return tuple(entry.name for entry in complete if unsupported(entry.make()) is None)


def _is_complete(entry: Entry[Any]) -> bool:
    """Return whether a method can be made without arguments."""
    return entry.defaults().keys() == entry.parameters().keys()


def unsupported(method: Any) -> str | None:
    """Return why a plain module cannot be fitted with a method; None where it can.

    The recipe is tried on a small module with dense layers and dropout. Arguments that its widths rule out say nothing
    about another module.
    """
    if isinstance(method, EstimatorRecipe):
        return "it is an estimator with features of its own, and has no network"
    if not isinstance(method, Recipe):
        return "it is not a recipe, and fits in its own way"
    for recipe in method.chain():
        with torch.random.fork_rng(devices=[]):
            try:
                wrap(nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2)), recipe, torch.zeros(2, 2))
            except UnfitWidth:
                continue
            except UserError as fault:
                return str(fault).rstrip(".")
    return None


def _check_supported(method: Any, name: str) -> None:
    if (reason := unsupported(method)) is not None:
        supported = listing(supported_methods())
        raise UserError(f"method {name!r} cannot be used on your own module: {reason}. Supported: {supported}.")


def _caution_of_new_weights(network: NetworkSource, recipe: Recipe) -> None:
    """Warn of weights of a given module that do not count; those that a function makes are first weights anyway."""
    layers = [edit.redraws for edit in recipe.edits if isinstance(edit, MemberEdit) and edit.redraws]
    if isinstance(network, nn.Module) and layers:
        reason = f"{recipe.name or 'this recipe'} draws new weights for {layers[0]}"
        text = f"network: {reason}; there the weights of your module are not a starting point."
        warnings.warn(f"{text} Give a function that makes the module to say that none are meant.", stacklevel=3)


# --- arguments --------------------------------------------------------------------------------------------------------


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"seed: must be a whole number, at least 0; given {seed!r}.")
    return int(seed)


def _first_rows(examples: UserExamples) -> Tensor:
    """Return the first examples, to probe the module with."""
    return cast(Tensor, collate(examples.rows, np.arange(min(3, len(examples.rows)))))


def _class_names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if classes is None:
        return tuple(map(str, range(count)))
    if len(classes) != count or len(set(classes)) != count:
        raise UserError(f"classes: the module gives {count} logits, which need {count} names; given {list(classes)}.")
    return tuple(map(str, classes))


def _labelled(
    examples: UserExamples, val: UserExamples | None, names: Sequence[str], target: Target
) -> tuple[LabelledRows, LabelledRows]:
    """Return training and validation examples.

    Raises:
        UserError: For labels that do not match, or training examples of a single class.
    """
    classes = len(names)
    labels = check_labels(examples.labels, len(examples.rows), classes, target, "train")
    if target != "multilabel" and len(present := np.unique(labels)) < 2:
        only = ", ".join(names[k] for k in present)
        raise UserError(f"train: there must be at least two classes; the data has {len(present)}: {only}.")
    if val is None:
        first, second = (LabelledRows(examples.take(r), labels[r], classes) for r in hold_out(labels))
        return first, second
    val = val.convert(examples.shape, str(examples.rows.values.dtype), "val", "those of train have")
    val_labels = check_labels(val.labels, len(val.rows), classes, target, "val")
    return LabelledRows(examples.rows, labels, classes), LabelledRows(val.rows, val_labels, classes)
