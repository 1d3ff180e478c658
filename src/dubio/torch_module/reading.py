"""What the file of a module's fit says, every word of it checked before anything is made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from dubio.core.errors import BadFile, DubioError
from dubio.core.specs import restore
from dubio.core.types import TARGETS, Target
from dubio.methods.recipe import Recipe
from dubio.torch_module.fitted import Form
from dubio.torch_module.supported import reason

SCHEMA = 1
KEY = "dubio_module_fit"
"""Where the file's header has the specification."""


class Specification(NamedTuple):
    """What is fitted, as the header says.

    Attributes:
        recipe: The method.
        classes: Names of the classes.
        target: What the logits mean.
        seed: Of the fit.
        form: What the module takes and holds.
        records: Of each member.
    """

    recipe: Recipe
    classes: tuple[str, ...]
    target: Target
    seed: int
    form: Form
    records: tuple[dict[str, Any], ...]


def specification_of(header: Mapping[str, str], path: str) -> Specification:
    """The specification in a file's header.

    Args:
        header: The texts that the file has beside its tensors.
        path: The file, as a message names it.

    Raises:
        BadFile: When it has none, or one that is not as :meth:`~dubio.torch_module.fitted.FittedModule.save` writes it.
    """
    if KEY not in header:
        raise BadFile(
            f"{path}: not a fit of a module, as dubio.fit(...).save(...) writes it: no {KEY!r} in its header."
        )
    try:
        found = json.loads(header[KEY])
    except (ValueError, RecursionError) as fault:
        raise BadFile(f"{path}: {KEY!r} in its header must be JSON, and is not: {fault}.") from fault
    if not isinstance(found, dict):
        raise BadFile(f"{path}: {KEY!r} in its header must be a JSON object; it is a {type(found).__name__}.")
    if found.get("schema") != SCHEMA:
        raise BadFile(f"{path}: written in format {found.get('schema', '(none)')}; this dubio reads {SCHEMA}.")
    for name, (expected, fits) in FIELDS.items():
        if name not in found or not fits(found[name]):
            given = f"it is {str(found[name])[:80]!r}" if name in found else "it is missing"
            raise BadFile(f"{path}: {name!r} in its header must be {expected}; {given}.")
    recipe = _recipe(found["recipe"], path)
    if len(found["records"]) != recipe.members:
        raise BadFile(f"{path}: {len(found['records'])} records for {recipe.members} members; there must be one each.")
    form = Form(tuple(found["shape"]), found["dtype"], found["weights"])
    classes, records = tuple(found["classes"]), tuple(found["records"])
    return Specification(recipe, classes, found["target"], found["seed"], form, records)


def _recipe(description: Any, path: str) -> Recipe:
    try:
        recipe = restore(description)
    except (DubioError, AttributeError, KeyError, TypeError, ValueError) as fault:
        said = str(fault) if isinstance(fault, DubioError) else f"{type(fault).__name__}: {fault}"
        raise BadFile(f"{path}: 'recipe' in its header cannot be read: {said}") from fault
    why = reason(recipe)
    if why is not None:
        raise BadFile(f"{path}: 'recipe' in its header is none for a plain module: {why}.")
    return cast(Recipe, recipe)


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole, value))


def _shapes(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_sizes, value.values()))


def _names(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(name, str) for name in value)


def _numeric(value: Any) -> bool:
    try:
        return isinstance(value, str) and np.dtype(value).kind in "fiub"
    except TypeError:
        return False


FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "recipe": ("the description of a recipe", lambda value: isinstance(value, dict)),
    "classes": ("a list of two or more names", _names),
    "target": (f"one of {', '.join(TARGETS)}", lambda value: value in TARGETS),
    "seed": ("a whole number, at least 0", _whole),
    "shape": ("a list of whole numbers", _sizes),
    "dtype": ("the name of a type of numbers, such as float32", _numeric),
    "weights": ("names with the shapes of their tensors", _shapes),
    "records": (
        "a list of records",
        lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    ),
}
"""What stands in a header: name → in words, and whether a value is such a thing."""
