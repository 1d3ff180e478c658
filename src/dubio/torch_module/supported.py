"""Which methods a plain module can be fitted with, and the recipe of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dubio.core.errors import UserError, listing
from dubio.core.registry import METHODS
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.heads.linear import Sigmoid, Softmax
from dubio.networks.noise import DropoutEdit
from dubio.torch_module.dropout import OwnDropout

EDITS = (DropoutEdit, OwnDropout, GaussianWeights)
HEADS = (Softmax, Sigmoid)


def recipe_of(method: str | Recipe, arguments: Mapping[str, Any], batch: int | None) -> Recipe:
    """The recipe to fit, with the module's own dropout rates unless ``p`` is given.

    Args:
        method: A registered name, or a recipe, which is taken as it is.
        arguments: The named method's arguments.
        batch: The loader's batch size, which counts where the arguments do not say another.

    Raises:
        UserError: When there is no such method, or it needs more than a module has.
    """
    if isinstance(method, Recipe):
        if arguments:
            raise UserError(
                f"{next(iter(arguments))}: a recipe has its arguments already; give a method's name, or none."
            )
        _check(method, method.name or "this recipe")
        return method
    entry = METHODS.entry(method)
    known = {} if batch is None or "batch" not in entry.parameters() else {"batch": batch}
    made = METHODS.make(method, **{**known, **arguments})
    _check(made, method)
    return made if "p" in arguments else with_own_rates(made)


def with_own_rates(recipe: Recipe) -> Recipe:
    """The same recipe with each dropout layer's own rate."""
    edits = tuple(OwnDropout() if isinstance(edit, DropoutEdit) else edit for edit in recipe.edits)
    return replace(recipe, edits=edits, start=None if recipe.start is None else with_own_rates(recipe.start))


def chain(recipe: Recipe) -> Iterator[Recipe]:
    """A recipe and those it starts from, the last first."""
    if recipe.start is not None:
        yield from chain(recipe.start)
    yield recipe


def supported() -> tuple[str, ...]:
    """The registered methods that a plain module can be fitted with."""
    found = []
    for entry in METHODS.entries():
        try:
            made = METHODS.make(entry.name)
        except UserError:  # a method with arguments that have no defaults
            continue
        if reason(made) is None:
            found.append(entry.name)
    return tuple(found)


def reason(method: Any) -> str | None:
    """Why a plain module cannot be fitted with a method; None where it can."""
    if not isinstance(method, Recipe):
        return "it is no recipe, and fits in its own way"
    for recipe in chain(method):
        if not isinstance(recipe.head, HEADS):
            return f"its head ({type(recipe.head).__name__}) would have to take the place of your module's own outputs"
        for edit in recipe.edits:
            if not isinstance(edit, EDITS):
                return f"{type(edit).__name__} needs places in the network that a plain module does not name"
    return None


def _check(method: Any, name: str) -> None:
    if (why := reason(method)) is not None:
        raise UserError(
            f"method {name!r} cannot be used on your own module: {why}. Supported: {listing(supported())}. "
            "A registered network takes them all."
        )
