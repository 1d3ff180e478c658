"""Whether the tensors of a file are what a fit leaves: names, shapes and types, known before anything predicts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dubio.core.errors import BadFile, DubioError
from dubio.inference.laplace import LaplaceDraws, LaplaceGaussian
from dubio.inference.posterior import Restored
from dubio.inference.samples import WeightSamples
from dubio.inference.weight_draws import SEED, LowRankGaussian, WeightDraws
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model
from dubio.torch_module.fitting import restored

FAULTS = (AttributeError, IndexError, KeyError, RuntimeError, StopIteration, TypeError, ValueError)
"""What tensors of another sort lead to where they are put together."""


def member_of(recipe: Recipe, named: Mapping[str, Tensor], model: Model, where: str) -> Restored:
    """What one member of a fit left.

    Args:
        recipe: Its method.
        named: The member's tensors.
        model: The module they belong to.
        where: The file and the member, for messages.

    Raises:
        BadFile: When they are not what such a fit leaves in such a module.
    """
    state = model.state_dict()
    _check_types(named, state, where)
    try:
        part = restored(recipe, dict(named), model)
        if isinstance(part, WeightSamples):
            _check_number(len(part.states), recipe, where)
        _check_part(part, state, where)
        wanted = part.tensors().keys()
    except BadFile:
        raise
    except (DubioError, *FAULTS) as fault:
        name = recipe.name or "this recipe"
        raise BadFile(f"{where}: its tensors are not what {name} leaves in this module: {_spoken(fault)}") from fault
    for said, names in (("must be a", wanted - named.keys()), ("must be no", named.keys() - wanted)):
        if names:
            raise BadFile(f"{where}: there {said} tensor {min(names)!r}.")
    return part


def _spoken(fault: Exception) -> str:
    if isinstance(fault, DubioError):
        return str(fault)
    if isinstance(fault, KeyError):
        return f"there is no tensor {fault.args[0]!r}."
    return f"{type(fault).__name__}: {str(fault).rstrip('.')}."


def _check_types(named: Mapping[str, Tensor], state: Mapping[str, Tensor], where: str) -> None:
    """Weights and what is computed from them are floating; seeds and counts are whole numbers."""
    counts = tuple(f"/{name}" for name, tensor in state.items() if not tensor.is_floating_point())
    for name, tensor in named.items():
        whole = name == SEED or (bool(counts) and name.endswith(counts))
        if tensor.is_floating_point() == whole:
            expected = "a whole number" if whole else "a floating type"
            raise BadFile(f"{where}: {name} has type {tensor.dtype}; it must be {expected}.")


def _check_number(states: int, recipe: Recipe, where: str) -> None:
    """As many weight states as the recipe leaves, or as it lets predict."""
    wanted = min(recipe.states, recipe.most) if recipe.most and recipe.states > 1 else recipe.states
    if states != wanted:
        raise BadFile(f"{where}: {states} weight states; {recipe.name or 'this recipe'} leaves {wanted}.")


def _check_part(part: Restored, state: Mapping[str, Tensor], where: str) -> None:
    if isinstance(part, LaplaceDraws):
        for draws in (part.plain, part.viewed):
            if draws is not None:
                _check_part(draws, state, where)
    elif isinstance(part, WeightDraws):
        _check_distribution(part, where)
        _same(part.state(0), state, f"{where}, draw 0")
        for k, buffers in enumerate(part.buffers):
            _same(buffers, part.buffers[0], f"{where}, draw {k}")
    elif isinstance(part, WeightSamples):
        for k, one in enumerate(part.states):
            _same(one, state, f"{where}, weight state {k}")


def _check_distribution(part: WeightDraws, where: str) -> None:
    found = part.distribution
    if isinstance(found, LowRankGaussian):
        _same(found.variance, found.mean, f"{where}, variance")
        for k in range(found.rank):
            _same({n: t[k] for n, t in found.deviations.items()}, found.mean, f"{where}, deviation {k}")
    elif isinstance(found, LaplaceGaussian):
        for block in found.blocks:
            size = block.matrix.size
            for part_of in (block.precision(found.prior), block.rotated(torch.zeros(size))):
                if tuple(part_of.shape) != size:
                    given = tuple(part_of.shape)
                    raise BadFile(f"{where}: the block of {block.matrix.weight} has shape {given}; it must be {size}.")


def _same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """The same names, each with the same shape.

    Raises:
        BadFile: Where they differ.
    """
    for name in dict.fromkeys((*wanted, *found)):
        given, right = (list(side[name].shape) if name in side else "none" for side in (found, wanted))
        if given != right:
            raise BadFile(f"{where}: {name} has shape {given}; it must be {right}.")
