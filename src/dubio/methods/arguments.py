"""Functions whose keyword arguments are put together from a table: how the named methods are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dubio.data.affine import Affine
from dubio.data.augmentation import Augmentation, ShiftFlip, Views
from dubio.errors import UserError
from dubio.methods.recipe import Recipe

Arguments = Mapping[str, Any]


class Argument(NamedTuple):
    """An argument a user may give: its type and default."""

    type: Any
    default: Any


AUGMENTATION = {
    "shift": Argument(int, 0),
    "flip": Argument(float, 0.0),
    "flip_vertical": Argument(float, 0.0),
    "rotation": Argument(float, 0.0),
    "zoom": Argument(float, 0.0),
    "views": Argument(int, 0),
}
"""Random views of images: pixels, probabilities, degrees, a fraction; and how many of them at test time."""


def keyword_function(
    name: str, summary: str, allowed: Mapping[str, Argument], assemble: Callable[[Arguments], Recipe]
) -> Callable[..., Recipe]:
    """A function whose keyword arguments are exactly those allowed.

    Args:
        name: The method's name.
        summary: Its docstring.
        allowed: Its arguments.
        assemble: From all arguments, defaults filled in, to the recipe.
    """

    def make(**arguments: Any) -> Recipe:
        return assemble({key: argument.default for key, argument in allowed.items()} | arguments)

    keyword = inspect.Parameter.KEYWORD_ONLY
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(key, keyword, default=a.default, annotation=a.type) for key, a in allowed.items()]
    )
    make.__annotations__ = {key: argument.type for key, argument in allowed.items()}
    make.__doc__ = summary
    make.__name__ = make.__qualname__ = name.replace("-", "_")
    make.__module__ = assemble.__module__  # where the method is defined, which is what a registry goes by
    return make


def augmentation_of(arguments: Arguments) -> Augmentation | None:
    """What a user asks for, or None: whole pixels as they are where no other pixel values are needed."""
    zoom, rotation, vertical = (arguments.get(key, 0.0) for key in ("zoom", "rotation", "flip_vertical"))
    if zoom or rotation or vertical:
        return Affine(zoom, arguments["shift"], rotation, arguments["flip"], vertical)
    return ShiftFlip(arguments["shift"], arguments["flip"]) if arguments["shift"] or arguments["flip"] else None


def views_of(name: str, arguments: Arguments, augmentation: Augmentation | None) -> Views | None:
    """What ``views`` asks for.

    Raises:
        UserError: For views where nothing makes them differ.
    """
    if not arguments["views"]:
        return None
    if augmentation is None:
        raise UserError(
            f"{name}: views={arguments['views']} asks for random views of each example, but shift, flip, "
            "flip_vertical, rotation and zoom are all 0, so that every view would be the same."
        )
    return Views(augmentation, arguments["views"])
