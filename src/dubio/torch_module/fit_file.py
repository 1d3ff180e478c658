"""A fit of a module in one file: tensors, and the recipe as JSON in the header. The module's code stays the user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import BadFile, DubioError, UserError
from dubio.core.files import writing
from dubio.core.specs import describe, restore
from dubio.core.types import EmptyDecision, Target
from dubio.core.validate import NonNegative, document, encode, entries, from_json, matching
from dubio.formats.safetensors import read_tensors, write_tensors
from dubio.inference.posterior import Restored
from dubio.inference.weight_draws import SEED
from dubio.methods.fitting import check_device
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model
from dubio.torch_module.fitted_module import FittedModule, InputSpec, Shapes
from dubio.torch_module.fitting import shapes_of, unsupported
from dubio.torch_module.wrapped_module import ModelBuilder, NetworkSource, check_source, own_name

KEY = "dubio_module_fit"
"""The entry of the file's header that holds the specification."""

FAULTS = (AttributeError, IndexError, KeyError, RuntimeError, StopIteration, TypeError, ValueError)
"""Exceptions that wrong tensors or descriptions lead to while a posterior or recipe is restored."""


@document(None, schema=1)
@dataclass(frozen=True)
class FitHeader:
    """The specification of a fit in the header of its file; the fields are those of :class:`FittedModule`."""

    recipe: Mapping[str, Any]
    classes: Annotated[tuple[str, ...], entries(2)]
    target: Target
    seed: NonNegative
    shape: tuple[NonNegative, ...]
    dtype: Annotated[str, matching(r"float(16|32|64)|u?int(8|16|32|64)|bool", "naming a numeric type, such as float32")]
    weights: Mapping[str, tuple[NonNegative, ...]]
    records: tuple[Mapping[str, Any], ...]
    empty_decision: EmptyDecision = "empty"


def save(fit: FittedModule, path: Path) -> None:
    """Write a fit; an existing file is replaced once the new one is complete.

    Raises:
        UserError: When there is no such folder, or it cannot be written.
    """
    if not path.parent.is_dir():
        raise UserError(f"save: there is no folder {str(path.parent)!r}.")
    facts = fit.classes, fit.target, fit.seed, *fit.inputs, fit.records, fit.empty_decision
    header = FitHeader(describe(fit.recipe), *facts)
    tensors = {name: tensor.cpu().numpy() for name, tensor in fit.tensors()}
    with writing(path):
        write_tensors(path, tensors, {KEY: json.dumps(encode(header), ensure_ascii=False, sort_keys=True)})


def load_fit(path: str | Path, *, network: NetworkSource, device: str = "cpu") -> FittedModule:
    """Read a fit that :meth:`~dubio.torch_module.fitted_module.FittedModule.save` wrote.

    Args:
        path: The file.
        network: The module that was fitted, or the function that makes it; its weights are replaced.
        device: The device to predict on.

    Raises:
        BadFile: When the file is not a fit of a module.
        UserError: When the module is not the one that was fitted.
    """
    check_device(device, "device")
    name = repr(str(path))
    arrays, texts = read_tensors(Path(path))
    if KEY not in texts:
        raise BadFile(f"{name}: not a fit of a module, as dubio.fit(...).save(...) writes it ({KEY!r} is missing).")
    header = from_json(FitHeader, texts[KEY], f"{name}, header")
    recipe = _read_recipe(header, name)
    check_source(network, recipe.members)
    rows = torch.from_numpy(np.zeros((2, *header.shape), dtype=header.dtype))
    builder = ModelBuilder(network, rows, header.target, header.seed)
    own = builder.adapt(recipe)
    inputs = InputSpec(header.shape, header.dtype, header.weights)
    members = []
    for k, tensors in enumerate(_by_member(arrays, recipe.members, name)):
        model = builder.model(own, k)
        _check_module(model, inputs.weights)
        members.append(read_member(own, tensors, model.to(torch.device(device)), f"{name}, member {k}"))
    if len(header.classes) != builder.classes():
        raise BadFile(f"{name}: {len(header.classes)} names of classes; the module gives {builder.classes()} logits.")
    facts = device, inputs, header.records, header.empty_decision
    return FittedModule(recipe, tuple(members), header.classes, header.target, header.seed, *facts)


def _read_recipe(header: FitHeader, path: str) -> Recipe:
    try:
        recipe = restore(header.recipe)
        reason = unsupported(recipe)
    except (DubioError, *FAULTS) as fault:
        raise BadFile(f"{path}: 'recipe' in its header cannot be read: {_reason(fault)}") from fault
    if reason is not None:
        raise BadFile(f"{path}: 'recipe' in its header is not one for a plain module: {reason}.")
    assert isinstance(recipe, Recipe)
    if len(header.records) != recipe.members:
        raise BadFile(f"{path}: {len(header.records)} records for {recipe.members} members; there must be one each.")
    return recipe


def _by_member(arrays: Mapping[str, NDArray[Any]], members: int, path: str) -> list[dict[str, Tensor]]:
    """Return the tensors of each member, named ``<member>:<name>`` in the file."""
    tensors: list[dict[str, Tensor]] = [{} for _ in range(members)]
    for key, array in arrays.items():
        member, colon, name = key.partition(":")
        if not colon or not member.isdecimal() or int(member) >= members:
            raise BadFile(f"{path}: unexpected tensor {key!r}; '<member>:<name>' is expected, members below {members}.")
        tensors[int(member)][name] = torch.from_numpy(np.array(array))
    return tensors


def _check_module(model: Model, weights: Shapes) -> None:
    """Refuse a model that these weights were not fitted to."""
    own = shapes_of(model)
    for name in sorted(own.keys() | weights.keys()):
        if own.get(name) != weights.get(name):
            shapes = f"shape {own.get(name, 'none')}, the stored one {weights.get(name, 'none')}"
            raise UserError(f"network: this is not the module that was fitted: {own_name(name, model)} has {shapes}.")


def read_member(recipe: Recipe, tensors: Mapping[str, Tensor], model: Model, name: str) -> Restored:
    """Return the posterior of one member; names, shapes and types are checked before anything predicts.

    Args:
        recipe: Its method.
        tensors: The member's tensors.
        model: The model they belong to.
        name: The file and the member, for messages.

    Raises:
        BadFile: When such a fit of such a module leaves other tensors.
    """
    state = model.state_dict()
    _check_types(tensors, state, name)
    method = recipe.name or "this recipe"
    try:
        posterior = recipe.posterior(tensors, model)
        posterior.check_shapes(state)
        expected = posterior.tensors().keys()
    except (DubioError, *FAULTS) as fault:
        raise BadFile(f"{name}: its tensors are not what {method} leaves in this module: {_reason(fault)}") from fault
    states = min(recipe.states, recipe.most) if recipe.most and recipe.states > 1 else recipe.states
    if len(posterior) != states:
        raise BadFile(f"{name}: {len(posterior)} weight states; {method} leaves {states}.")
    for problem, names in (("missing", expected - tensors.keys()), ("unexpected", tensors.keys() - expected)):
        if names:
            raise BadFile(f"{name}: {problem} tensor {min(names)!r}.")
    return posterior


def _check_types(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor], path: str) -> None:
    """Check that weights and statistics are floating, seeds and counts whole numbers."""
    counts = tuple(f"/{name}" for name, tensor in state.items() if not tensor.is_floating_point())
    for name, tensor in tensors.items():
        counted = name == SEED or name.endswith(counts)
        if tensor.is_floating_point() == counted:
            expected = "a whole number" if counted else "a floating type"
            raise BadFile(f"{path}: {name} has type {tensor.dtype}; it must be {expected}.")


def _reason(fault: Exception) -> str:
    if isinstance(fault, DubioError):
        return str(fault)
    named = f"there is no {fault.args[0]!r}" if isinstance(fault, KeyError) else f"{type(fault).__name__}: {fault}"
    return f"{named.rstrip('.')}."
