"""Functions whose keyword arguments are put together from a table: how the named methods are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dubio.core.errors import UserError
from dubio.inference.augmentation import Affine, Augmentation, ResizedCrop, ShiftFlip, Views
from dubio.methods.recipe import Recipe

Arguments = Mapping[str, Any]


class Argument(NamedTuple):
    """An argument a user may give: its type and default."""

    type: Any
    default: Any


AUGMENTATION = {
    "shift": Argument(int, 0),
    "shift_fraction": Argument(float, 0.0),
    "flip": Argument(float, 0.0),
    "flip_vertical": Argument(float, 0.0),
    "rotation": Argument(float, 0.0),
    "zoom": Argument(float, 0.0),
    "crop": Argument(float, 0.0),
    "views": Argument(int, 0),
}
"""Random views of images: pixels, a share of the side, probabilities, degrees, a fraction, or the smallest share of the
area that a resized crop shows; how many at test time."""


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
    """What a user asks for, or None: whole pixels as they are where no other pixel values are needed.

    Raises:
        UserError: For a resized crop together with other moves, which it already makes.
    """
    affine = ("zoom", "rotation", "flip_vertical", "shift_fraction")
    zoom, rotation, vertical, fraction = (arguments.get(key, 0.0) for key in affine)
    if crop := arguments.get("crop", 0.0):
        if other := next((key for key in ("shift", *affine) if arguments.get(key)), None):
            raise UserError(f"crop={crop} goes together with flip alone; {other} must be 0, given {arguments[other]}.")
        return ResizedCrop(area=crop, flip=arguments["flip"])
    if zoom or rotation or vertical or fraction:
        return Affine(zoom, arguments["shift"], rotation, arguments["flip"], vertical, fraction)
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
            f"{name}: views={arguments['views']} asks for random views of each example, but shift, "
            "shift_fraction, flip, flip_vertical, rotation, zoom and crop are all 0: every view would be the same."
        )
    return Views(augmentation, arguments["views"])
