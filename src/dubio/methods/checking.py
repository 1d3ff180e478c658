"""What can be refused before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dubio.core.specs import restore
from dubio.core.types import Task
from dubio.encoders import Encoding
from dubio.methods.building import build_model
from dubio.methods.encoded import encoder_shape, learning_splits
from dubio.methods.recipe import Recipe
from dubio.training.collectors import Collector


def check(spec: Mapping[str, Any], task: Task) -> None:
    """Refuse a fit whose model its collector could not finish with: the trainings before it would be in vain.

    Args:
        spec: A fit specification.
        task: Its task.

    Raises:
        UserError: With the reason.
    """
    recipe = cast(Recipe, restore(spec["recipe"]))
    if type(recipe.collect).check is Collector.check:
        return  # takes every model: none needs to be built
    train_split, _ = learning_splits(task)
    shape = encoder_shape(cast(Encoding, restore(spec["encoding"])), train_split)
    recipe.collect.check(build_model(spec, shape))
