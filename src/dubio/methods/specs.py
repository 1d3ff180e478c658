"""Specifications: everything that makes a fit or a prediction what it is, as JSON; identities are their hashes."""

from __future__ import annotations

from typing import Any

from dubio.core.specs import describe
from dubio.core.types import Task
from dubio.encoders import Encoding
from dubio.methods.building import NetworkSpec
from dubio.methods.encoded import learning_splits
from dubio.methods.recipe import Recipe

SCHEMA = 1
PREDICTION_VERSION = 1
"""Bumped by hand whenever the same weights come to give other predictions."""


def fit_spec(
    recipe: Recipe,
    task: Task,
    encoding: Encoding,
    network: NetworkSpec,
    *,
    seed: int,
    member: int,
    start_id: str | None = None,
) -> dict[str, Any]:
    """Everything that touches the weights of one fit, defaults filled in; its hash is the fit's identity.

    Args:
        recipe: The method.
        task: The task.
        encoding: How examples are encoded.
        network: The network.
        seed: The benchmark's seed.
        member: Which fit of that seed.
        start_id: The fit it continues from.
    """
    train_split, val_split = learning_splits(task)
    return {
        "schema": SCHEMA,
        "kind": "fit",
        "task": {
            "name": task.name,
            "inputs": task.inputs,
            "target": task.target,
            "classes": list(task.classes),
            "train": train_split.fingerprint,
            "val": val_split.fingerprint,
        },
        "encoding": describe(encoding),
        "network": network.describe(task.inputs),
        "recipe": describe(recipe.for_task(task.inputs, task.target).fit_part()),
        "start": start_id,
        "seed": seed,
        "member": member,
    }


def pred_spec(recipe: Recipe, fit_id: str, *, seed: int, member: int) -> dict[str, Any]:
    """Everything that makes the predictions of one fit; its hash is their identity."""
    fewer = {"latest": recipe.most} if recipe.most else {}
    return {
        **fewer,
        "schema": SCHEMA,
        "kind": "prediction",
        "version": PREDICTION_VERSION,
        "fit": fit_id,
        "samples": recipe.samples,
        "views": describe(recipe.views),
        "seed": seed,
        "member": member,
    }
